"""The `.rsm-manifest` object of the `aiven` layout: compact JSON that says how to read a segment's other objects.

    {"version":"1",
     "chunkIndex":{"type":"fixed","originalChunkSize":n,"originalFileSize":n,
                   "transformedChunkSize":n,"finalTransformedChunkSize":n},
     "segmentIndexes":{"offset":{"position":n,"size":n},"timestamp":…,"producerSnapshot":…,"leaderEpoch":…,
                       "transaction":… or null},
     "compression":false,
     "remoteLogSegmentMetadata":{…}}

Written without white space, in exactly this order of members; a compressed segment has a `variable` chunk index, an
encrypted one a member `encryption` before the last. We write the plain form and read all: what the objects of a
compressed or encrypted segment hold is out of reach, so `unreadable_reason` names it. `remoteLogSegmentMetadata` is for
people and recovery, the plugin never reads it back; brokers of the 4.x line append `txnIdxEmpty` to it.

Source: Aiven's tiered-storage-for-apache-kafka 1.2, segment.format=kafka.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import FormatError
from include.tiering.formats import strict_json
from include.tiering.formats.strict_json import JsonObject
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segment_data import IndexType
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.units import GIB, MIB

MAX_MANIFEST_BYTES: Final = 16 * MIB
MAX_CHUNK_SIZE_BYTES: Final = GIB
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_ENCRYPTION_OVERHEAD_BYTES: Final = 28
_METADATA_MEMBER: Final = "remoteLogSegmentMetadata"


@dataclass(frozen=True, slots=True)
class IndexPosition:
    """Where one index lies inside the `.indexes` object."""

    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FixedChunkIndex:
    """Every stored chunk but the last has the same size: neither chunk nor file were compressed."""

    original_chunk_size_bytes: int
    original_file_size_bytes: int
    transformed_chunk_size_bytes: int
    final_transformed_chunk_size_bytes: int

    @classmethod
    def plain(cls, chunk_size_bytes: int, file_size_bytes: int, overhead_bytes: int = 0) -> "FixedChunkIndex":
        """Of a file cut into chunks that each grow by `overhead_bytes`; a file that is an exact multiple ends in a
        full chunk."""
        final = file_size_bytes % chunk_size_bytes or min(chunk_size_bytes, file_size_bytes)
        return cls(chunk_size_bytes, file_size_bytes, chunk_size_bytes + overhead_bytes, final + overhead_bytes)


@dataclass(frozen=True, slots=True)
class VariableChunkIndex:
    """Stored chunks differ in size: the segment was compressed. Their sizes stay encoded."""

    original_chunk_size_bytes: int
    original_file_size_bytes: int
    encoded_chunk_sizes: str


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """One manifest. `encryption_key_pair_id` is None unless the objects are encrypted. `metadata` is None only in a
    manifest that was read and has none; its state and custom metadata are those of the start of the copy."""

    chunk_index: FixedChunkIndex | VariableChunkIndex
    indexes: Mapping[IndexType, IndexPosition | None]
    compression: bool
    encryption_key_pair_id: str | None
    metadata: RemoteLogSegmentMetadata | None

    @property
    def unreadable_reason(self) -> str | None:
        """Why the other objects cannot be used as they are; None if they can."""
        reasons = []
        if self.compression:
            reasons.append("compressed (zstd, chunk by chunk)")
        if self.encryption_key_pair_id is not None:
            reasons.append(f"encrypted (AES-256-GCM, key pair {self.encryption_key_pair_id})")
        return " and ".join(reasons) or None


def index_positions(sizes_bytes: Mapping[IndexType, int | None]) -> dict[IndexType, IndexPosition | None]:
    """Positions of indexes that are written one after the other in the order of `IndexType`; None stays None."""
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
    *,
    chunk_size_bytes: int,
    with_txn_index_empty: bool,
) -> bytes:
    """The plain form, byte for byte as the plugin writes it.

    `chunk_size_bytes` (1..2^30) sets how much a later reader asks for at once. `with_txn_index_empty`: whether the
    brokers that will read it write that member too.

    Raises:
        ValueError: an unusable chunk size.
    """
    if not 0 < chunk_size_bytes <= MAX_CHUNK_SIZE_BYTES:
        raise ValueError(f"chunk size {chunk_size_bytes} is outside 1..{MAX_CHUNK_SIZE_BYTES}")
    chunks = FixedChunkIndex.plain(chunk_size_bytes, metadata.segment_size_bytes)
    document = {
        "version": "1",
        "chunkIndex": {
            "type": "fixed",
            "originalChunkSize": chunks.original_chunk_size_bytes,
            "originalFileSize": chunks.original_file_size_bytes,
            "transformedChunkSize": chunks.transformed_chunk_size_bytes,
            "finalTransformedChunkSize": chunks.final_transformed_chunk_size_bytes,
        },
        "segmentIndexes": {
            index_type.value: None if index is None else {"position": index.position, "size": index.size_bytes}
            for index_type, index in ((each, indexes[each]) for each in IndexType)
        },
        "compression": False,
        _METADATA_MEMBER: _metadata_document(metadata, with_txn_index_empty),
    }
    return json.dumps(document, separators=(",", ":")).encode()


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
    """Read any manifest of version 1, as strictly as the plugin does and no further.

    Raises:
        FormatError: more than `MAX_MANIFEST_BYTES`, not JSON, a member missing, unknown or out of its range.
    """
    document = strict_json.parse_object(content, MAX_MANIFEST_BYTES)
    known = {"version", "chunkIndex", "segmentIndexes", "compression", "encryption", _METADATA_MEMBER}
    document.refuse_members_beyond(known)
    if str(document.value("version")) != "1":
        raise FormatError("version is not 1")
    chunk_index = _parse_chunk_index(document.object("chunkIndex"))
    compression = document.boolean("compression")
    encryption = document.object("encryption") if document.has("encryption") else None
    key_pair_id = None if encryption is None else _key_pair_id(encryption)
    if not compression:
        _check_fixed(chunk_index, 0 if encryption is None else _ENCRYPTION_OVERHEAD_BYTES)
    described = document.object(_METADATA_MEMBER) if document.has(_METADATA_MEMBER) else None
    return SegmentManifest(
        chunk_index=chunk_index,
        indexes=dict(_parse_indexes(document.object("segmentIndexes"))),
        compression=compression,
        encryption_key_pair_id=key_pair_id,
        metadata=None if described is None else _parse_metadata(described, chunk_index.original_file_size_bytes),
    )


def _parse_chunk_index(document: JsonObject) -> FixedChunkIndex | VariableChunkIndex:
    chunk_size = document.integer("originalChunkSize", 1, MAX_CHUNK_SIZE_BYTES)
    file_size = document.integer("originalFileSize", 0, _INT32_MAX)
    match document.value("type"):
        case "fixed":
            return FixedChunkIndex(
                chunk_size,
                file_size,
                document.integer("transformedChunkSize", 1, _INT32_MAX),
                document.integer("finalTransformedChunkSize", 0, _INT32_MAX),
            )
        case "variable":
            return VariableChunkIndex(chunk_size, file_size, document.text("transformedChunks"))
        case _:
            raise FormatError("chunkIndex.type is neither fixed nor variable")


def _check_fixed(chunk_index: FixedChunkIndex | VariableChunkIndex, overhead_bytes: int) -> None:
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
        position = index.integer("position", 0, _INT32_MAX)
        yield index_type, IndexPosition(position, index.integer("size", 0, _INT32_MAX - position))


def _key_pair_id(document: JsonObject) -> str:
    """The part of `dataKey` before its colon. The wrapped key itself is not kept."""
    document.text("aad")
    key_pair_id, colon, _ = document.text("dataKey").partition(":")
    if not colon or not key_pair_id.strip():
        raise FormatError("encryption.dataKey does not start with the id of a key pair")
    return key_pair_id


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
                    topic.integer("partition", 0, _INT32_MAX),
                    topic.text("topic"),
                ),
                Uuid.parse(segment.text("id")),
            ),
            start_offset=document.integer("startOffset", 0, _INT64_MAX),
            end_offset=document.integer("endOffset", 0, _INT64_MAX),
            max_timestamp_ms=document.integer("maxTimestampMs", -1, _INT64_MAX),
            broker_id=document.integer("brokerId", -1, _INT32_MAX),
            event_timestamp_ms=document.integer("eventTimestampMs", 0, _INT64_MAX),
            segment_size_bytes=segment_size_bytes,
            segment_leader_epochs=LeaderEpochs.of(sorted(_parse_epochs(epochs))),
            txn_index_empty=document.boolean("txnIdxEmpty") if document.has("txnIdxEmpty") else False,
        )
    except ValueError as error:
        raise FormatError(f"{_METADATA_MEMBER}: {error}") from error


def _parse_epochs(document: JsonObject) -> Iterator[tuple[int, int]]:
    for epoch in document.names():
        if not (epoch.isascii() and epoch.isdigit() and len(epoch) <= len(str(_INT32_MAX))):
            raise FormatError("segmentLeaderEpochs has a member that is no epoch")
        yield int(epoch), document.integer(epoch, 0, _INT64_MAX)
