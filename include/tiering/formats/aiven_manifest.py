"""The `.rsm-manifest` object and the custom metadata of a segment in the `aiven` layout.

The manifest is compact JSON that describes how to read the segment's other objects:

    {"version":"1",
     "chunkIndex":{"type":"fixed","originalChunkSize":n,"originalFileSize":n,
                   "transformedChunkSize":n,"finalTransformedChunkSize":n},
     "segmentIndexes":{"offset":{"position":n,"size":n},"timestamp":…,"producerSnapshot":…,"leaderEpoch":…,
                       "transaction":… or null},
     "compression":false,
     "remoteLogSegmentMetadata":{…}}

The JSON has no white space and exactly this order of members. The manifest of a compressed segment has a `variable`
chunk index (`aiven_chunks`). That of an encrypted segment has a member `encryption` before the last member, with

    dataKey    <key pair id>:<base64 of the data key, wrapped for that key pair>
    aad        base64 of 32 random bytes

Positions and sizes of indexes refer to the stored `.indexes` object. `remoteLogSegmentMetadata` is for people and for
recovery; the plugin never reads it. Brokers from 4.0 on append `txnIdxEmpty` to it.

The plugin returns custom metadata to the broker for a copied segment, and the broker stores it in the metadata topic.
It is a flexible struct of Kafka that has only tagged fields:

    unsigned varint    number of fields
    each field, ascending by tag:
      unsigned varint  tag
      unsigned varint  length of the value
      ..               value

    tag    field            value
    0      REMOTE_SIZE      varlong: zigzag, base 128
    1      OBJECT_PREFIX    unsigned varint of the length in bytes + 1, then UTF-8
    2      OBJECT_KEY       encoded like OBJECT_PREFIX

Source: Aiven's tiered-storage-for-apache-kafka 1.2, segment.format=kafka, `security` and
`metadata.SegmentCustomMetadataSerde`.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from include.tiering.errors import FormatError, UnknownVersionError, printable
from include.tiering.formats import strict_json
from include.tiering.formats.aiven_chunks import (
    ENCRYPTION_OVERHEAD_BYTES,
    INT32_MAX,
    MAX_CHUNK_SIZE_BYTES,
    ChunkIndex,
    FixedChunkIndex,
    VariableChunkIndex,
    decode_sizes,
    encode_sizes,
)
from include.tiering.formats.primitive_types import write_uvarint, write_varlong
from include.tiering.formats.strict_json import JsonObject
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from include.tiering.units import MIB

_MAX_ID_LENGTH: Final = 256
_MAX_FIELD_LENGTH: Final = 8192


@dataclass(frozen=True, slots=True)
class Encryption:
    """The `encryption` member of a manifest. Its data key is wrapped, so it is useless without the private key."""

    key_pair_id: str
    wrapped_key: bytes = field(repr=False)
    aad: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not is_key_pair_id(self.key_pair_id):
            raise ValueError("the id of a key pair is blank, too long, or has a colon or an unprintable character")

    def data_key_text(self) -> str:
        return f"{self.key_pair_id}:{base64.b64encode(self.wrapped_key).decode()}"

    def aad_text(self) -> str:
        return base64.b64encode(self.aad).decode()

    @classmethod
    def parse(cls, data_key: str, aad: str) -> "Encryption":
        """Parse the two members. `data_key` must be the id of a key pair, a colon and base64; `aad` must be base64.

        Raises:
            FormatError: a member is malformed, or its base64 has more than 8192 characters.
        """
        key_pair_id, colon, wrapped = data_key.partition(":")
        if not colon or ":" in wrapped or not is_key_pair_id(key_pair_id):
            raise FormatError("encryption.dataKey does not start with the id of a key pair")
        return cls(key_pair_id, _base64(wrapped, "dataKey"), _base64(aad, "aad"))


def is_key_pair_id(text: str) -> bool:
    """Return whether a text is a legal id: at most 256 characters, not blank, printable and without a colon."""
    return bool(text.strip()) and ":" not in text and text.isprintable() and len(text) <= _MAX_ID_LENGTH


def _base64(text: str, name: str) -> bytes:
    if len(text) > _MAX_FIELD_LENGTH:
        raise FormatError(f"encryption.{name} has {len(text)} characters")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise FormatError(f"encryption.{name} is not base64") from None


MAX_MANIFEST_BYTES: Final = 16 * MIB
_MAX_MANIFEST_VALUES: Final = 100_000
"""A manifest with more values is refused: each read of it would take long. Only leader epochs can be so many."""
_INT64_MAX: Final = 2**63 - 1
_METADATA_MEMBER: Final = "remoteLogSegmentMetadata"


@dataclass(frozen=True, slots=True)
class IndexPosition:
    """The position of one index in the `.indexes` object."""

    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """A manifest.

    `encryption` is None if the objects are not encrypted. `metadata` is None if the manifest has no
    `remoteLogSegmentMetadata`. Otherwise its state is COPY_SEGMENT_STARTED, and it has no custom metadata: a manifest
    contains neither.
    """

    chunk_index: ChunkIndex
    indexes: Mapping[IndexType, IndexPosition | None]
    compression: bool
    encryption: Encryption | None
    metadata: RemoteLogSegmentMetadata | None

    @property
    def is_plain(self) -> bool:
        """Whether the log object is the segment file, byte for byte."""
        return not self.compression and self.encryption is None

    @property
    def stored_indexes_bytes(self) -> int:
        """The size of the `.indexes` object."""
        return max((index.position + index.size_bytes for index in self.indexes.values() if index), default=0)


def index_positions(sizes_bytes: Mapping[IndexType, int | None]) -> dict[IndexType, IndexPosition | None]:
    """Return the positions of indexes that are written without gaps in the order of `IndexType`.

    An index whose size is None is absent, and its position is None.
    """
    positions: dict[IndexType, IndexPosition | None] = {}
    position = 0
    for index_type in IndexType:
        size_bytes = sizes_bytes[index_type]
        positions[index_type] = None if size_bytes is None else IndexPosition(position, size_bytes)
        position += size_bytes or 0
    return positions


def build_manifest(
    metadata: RemoteLogSegmentMetadata,
    indexes: Mapping[IndexType, IndexPosition | None],
    chunk_index: ChunkIndex,
    *,
    encryption: Encryption | None = None,
    with_txn_index_empty: bool,
) -> bytes:
    """Return the manifest with exactly the bytes that the plugin writes.

    Args:
        metadata: the segment's metadata.
        indexes: the positions of the indexes.
        chunk_index: the chunk index; a variable one means that the segment is compressed.
        encryption: None if the objects are not encrypted.
        with_txn_index_empty: whether to write the member `txnIdxEmpty`, which brokers from 4.0 on write themselves.
    """
    document: dict[str, object] = {
        "version": "1",
        "chunkIndex": _chunk_index_document(chunk_index),
        "segmentIndexes": {
            index_type.value: None if index is None else {"position": index.position, "size": index.size_bytes}
            for index_type, index in ((index_type, indexes[index_type]) for index_type in IndexType)
        },
        "compression": isinstance(chunk_index, VariableChunkIndex),
    }
    if encryption is not None:
        document["encryption"] = {"dataKey": encryption.data_key_text(), "aad": encryption.aad_text()}
    document[_METADATA_MEMBER] = _metadata_document(metadata, with_txn_index_empty)
    return json.dumps(document, separators=(",", ":")).encode()


def _chunk_index_document(chunks: ChunkIndex) -> dict[str, object]:
    sizes = {
        "originalChunkSize": chunks.original_chunk_size_bytes,
        "originalFileSize": chunks.original_file_size_bytes,
    }
    if isinstance(chunks, VariableChunkIndex):
        return {"type": "variable", **sizes, "transformedChunks": encode_sizes(chunks.stored_sizes_bytes)}
    return {
        "type": "fixed",
        **sizes,
        "transformedChunkSize": chunks.transformed_chunk_size_bytes,
        "finalTransformedChunkSize": chunks.final_transformed_chunk_size_bytes,
    }


def _metadata_document(metadata: RemoteLogSegmentMetadata, with_txn_index_empty: bool) -> dict[str, object]:
    partition = metadata.topic_id_partition
    document: dict[str, object] = {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": str(partition.topic_id),
                "topicPartition": {"topic": partition.topic, "partition": partition.partition},
            },
            "id": str(metadata.remote_log_segment_id.id),
        },
        "startOffset": metadata.start_offset,
        "endOffset": metadata.end_offset,
        "maxTimestampMs": metadata.max_timestamp_ms,
        "brokerId": metadata.broker_id,
        "eventTimestampMs": metadata.event_timestamp_ms,
        "segmentLeaderEpochs": {str(entry.epoch): entry.start_offset for entry in metadata.segment_leader_epochs},
    }
    if with_txn_index_empty:
        document["txnIdxEmpty"] = metadata.txn_index_empty
    return document


def parse_manifest(content: bytes) -> SegmentManifest:
    """Parse a manifest of version 1. The members `encryption` and `remoteLogSegmentMetadata` may be missing.

    Raises:
        FormatError: it has more than `MAX_MANIFEST_BYTES`, is not JSON, or lacks another member; or a value is
            malformed, out of its range, or contradicts another.
        UnknownVersionError: it has another version, or a member or a type of chunk index that version 1 does not have.
    """
    if sum(content.count(sign) for sign in (b",", b"{", b"[")) > _MAX_MANIFEST_VALUES:
        raise FormatError(f"it has more than {_MAX_MANIFEST_VALUES} values, a manifest has some fifty")
    document = strict_json.parse_object(content, MAX_MANIFEST_BYTES)
    known = {"version", "chunkIndex", "segmentIndexes", "compression", "encryption", _METADATA_MEMBER}
    if str(version := document.value("version")) != "1":
        raise UnknownVersionError(f"its version is {printable(str(version))[:64]}, and this release reads version 1")
    try:
        document.refuse_members_beyond(known)
    except FormatError as error:
        raise UnknownVersionError(error.message) from error
    chunk_index = _parse_chunk_index(document.object("chunkIndex"))
    compression = document.boolean("compression")
    encryption = _parse_encryption(document.object("encryption")) if document.has("encryption") else None
    if not compression:
        _check_fixed(chunk_index, 0 if encryption is None else ENCRYPTION_OVERHEAD_BYTES)
    elif isinstance(chunk_index, FixedChunkIndex):
        raise FormatError("chunkIndex.type is fixed, that of an uncompressed file, although compression is true")
    described = document.object(_METADATA_MEMBER) if document.has(_METADATA_MEMBER) else None
    return SegmentManifest(
        chunk_index=chunk_index,
        indexes=dict(_parse_indexes(document.object("segmentIndexes"))),
        compression=compression,
        encryption=encryption,
        metadata=None if described is None else _parse_metadata(described, chunk_index.original_file_size_bytes),
    )


def _parse_encryption(document: JsonObject) -> Encryption:
    return Encryption.parse(document.text("dataKey"), document.text("aad"))


def _parse_chunk_index(document: JsonObject) -> ChunkIndex:
    chunk_size = document.integer("originalChunkSize", 1, MAX_CHUNK_SIZE_BYTES)
    file_size = document.integer("originalFileSize", 0, INT32_MAX)
    match document.value("type"):
        case "fixed":
            return FixedChunkIndex(
                chunk_size,
                file_size,
                document.integer("transformedChunkSize", 1, INT32_MAX),
                document.integer("finalTransformedChunkSize", 0, INT32_MAX),
            )
        case "variable":
            sizes = decode_sizes(document.text("transformedChunks"), -(-file_size // chunk_size))
            return VariableChunkIndex(chunk_size, file_size, sizes)
        case str():
            raise UnknownVersionError("chunkIndex.type is neither fixed nor variable")
        case _:
            raise FormatError("chunkIndex.type is not a string")


def _check_fixed(chunk_index: ChunkIndex, overhead_bytes: int) -> None:
    expected = FixedChunkIndex.plain(
        chunk_index.original_chunk_size_bytes, chunk_index.original_file_size_bytes, overhead_bytes
    )
    if chunk_index != expected:
        raise FormatError(f"chunkIndex does not describe an uncompressed file: expected {expected}")


def _parse_indexes(document: JsonObject) -> Iterator[tuple[IndexType, IndexPosition | None]]:
    for index_type in IndexType:
        if index_type is IndexType.TRANSACTION and document.value(index_type) is None:
            yield index_type, None
            continue
        index = document.object(index_type)
        position = index.integer("position", 0, INT32_MAX)
        yield index_type, IndexPosition(position, index.integer("size", 0, INT32_MAX - position))


def _parse_metadata(document: JsonObject, segment_size_bytes: int) -> RemoteLogSegmentMetadata:
    segment = document.object("remoteLogSegmentId")
    partition = segment.object("topicIdPartition")
    topic = partition.object("topicPartition")
    epochs = document.object("segmentLeaderEpochs")
    try:
        return RemoteLogSegmentMetadata(
            remote_log_segment_id=RemoteLogSegmentId(
                TopicIdPartition(
                    Uuid.parse(partition.text("topicId")),
                    topic.integer("partition", 0, INT32_MAX),
                    topic.text("topic"),
                ),
                Uuid.parse(segment.text("id")),
            ),
            start_offset=document.integer("startOffset", 0, _INT64_MAX),
            end_offset=document.integer("endOffset", 0, _INT64_MAX),
            max_timestamp_ms=document.integer("maxTimestampMs", -1, _INT64_MAX),
            broker_id=document.integer("brokerId", -1, INT32_MAX),
            event_timestamp_ms=document.integer("eventTimestampMs", 0, _INT64_MAX),
            segment_size_bytes=segment_size_bytes,
            segment_leader_epochs=LeaderEpochs.of(sorted(_parse_epochs(epochs))),
            txn_index_empty=document.boolean("txnIdxEmpty") if document.has("txnIdxEmpty") else False,
        )
    except ValueError as error:
        raise FormatError(f"{_METADATA_MEMBER}: {error}") from error


def _parse_epochs(document: JsonObject) -> Iterator[tuple[int, int]]:
    for epoch in document.names():
        if not (epoch.isascii() and epoch.isdigit() and len(epoch) <= len(str(INT32_MAX))):
            raise FormatError("segmentLeaderEpochs has a member that is no epoch")
        yield int(epoch), document.integer(epoch, 0, _INT64_MAX)


MAX_REMOTE_SIZE_BYTES: Final = 2**33
"""The limit of REMOTE_SIZE; the three objects of a segment are always smaller in total."""


class CustomMetadataField(IntEnum):
    """The fields of custom metadata, by tag."""

    REMOTE_SIZE = 0
    OBJECT_PREFIX = 1
    OBJECT_KEY = 2


def encode_custom_metadata(values: Mapping[CustomMetadataField, int | str]) -> bytes:
    """Encode custom metadata. The value of REMOTE_SIZE is an integer, the others are strings."""
    content = write_uvarint(len(values))
    for tag, value in sorted(values.items()):
        encoded = write_varlong(value) if isinstance(value, int) else _compact_string(value)
        content += write_uvarint(tag) + write_uvarint(len(encoded)) + encoded
    return content


def _compact_string(text: str) -> bytes:
    content = text.encode()
    return write_uvarint(len(content) + 1) + content
