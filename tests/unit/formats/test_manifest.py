"""Aiven's manifests, chunks and custom metadata."""

import base64
import contextlib
import json
from dataclasses import replace

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import FormatError, UnknownVersionError
from include.tiering.formats.aiven_chunks import (
    MAX_CHUNKS,
    Chunk,
    FixedChunkIndex,
    VariableChunkIndex,
    chunk_count,
    chunks_over,
    decode_sizes,
    encode_sizes,
)
from include.tiering.formats.aiven_manifest import (
    MAX_MANIFEST_BYTES,
    CustomMetadataField,
    Encryption,
    IndexPosition,
    build_manifest,
    encode_custom_metadata,
    index_positions,
    parse_manifest,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from include.tiering.units import GIB, MIB
from tests.doubles.aiven_files import decompressed, encoded_sizes, unpacked

# Manifests and custom metadata of Aiven.

# Golden manifests of the plugin itself, and what a hostile one meets.

# As the plugin's own classes wrote it: 25 bytes in chunks of 10, no transaction index.
GOLDEN = (
    b'{"version":"1","chunkIndex":{"type":"fixed","originalChunkSize":10,"originalFileSize":25,'
    b'"transformedChunkSize":10,"finalTransformedChunkSize":5},"segmentIndexes":{"offset":{"position":0,"size":8},'
    b'"timestamp":{"position":8,"size":12},"producerSnapshot":{"position":20,"size":10},"leaderEpoch":{"position":30,'
    b'"size":8},"transaction":null},"compression":false,"remoteLogSegmentMetadata":{"remoteLogSegmentId":'
    b'{"topicIdPartition":{"topicId":"AQIDBAUGBwgJCgsMDQ4PEA","topicPartition":{"topic":"orders","partition":3}},'
    b'"id":"__79_Pv6-fj39vX08_Lx8A"},"startOffset":0,"endOffset":24,"maxTimestampMs":1700000000123,"brokerId":1,'
    b'"eventTimestampMs":1700000001000,"segmentLeaderEpochs":{"0":0}}}'
)
METADATA = RemoteLogSegmentMetadata(
    remote_log_segment_id=RemoteLogSegmentId(
        TopicIdPartition(Uuid(bytes(range(1, 17))), 3, "orders"),
        Uuid(bytes.fromhex("fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0")),
    ),
    start_offset=0,
    end_offset=24,
    max_timestamp_ms=1_700_000_000_123,
    broker_id=1,
    event_timestamp_ms=1_700_000_001_000,
    segment_size_bytes=25,
    segment_leader_epochs=LeaderEpochs.of([(0, 0)]),
)
SIZES = {
    IndexType.OFFSET: 8,
    IndexType.TIMESTAMP: 12,
    IndexType.PRODUCER_SNAPSHOT: 10,
    IndexType.LEADER_EPOCH: 8,
    IndexType.TRANSACTION: None,
}
DOCUMENT = json.loads(GOLDEN)


def build(
    metadata: RemoteLogSegmentMetadata = METADATA, chunk_size_bytes: int = 10, with_member: bool = False
) -> bytes:
    return build_manifest(
        metadata,
        index_positions(SIZES),
        FixedChunkIndex.plain(chunk_size_bytes, metadata.segment_size_bytes),
        with_txn_index_empty=with_member,
    )


def changed(path: str, value: object) -> bytes:
    """The golden manifest with one member set, or taken out if `value` is Ellipsis."""
    document = json.loads(GOLDEN)
    *parents, name = path.split(".")
    target = document
    for parent in parents:
        target = target[parent]
    if value is ...:
        del target[name]
    else:
        target[name] = value
    return json.dumps(document).encode()


def test_the_plain_form_equals_the_plugins_bytes() -> None:
    assert build() == GOLDEN


def test_brokers_of_the_new_line_append_one_member() -> None:
    assert build(with_member=True) == GOLDEN[:-2] + b',"txnIdxEmpty":false}}'
    assert build(replace(METADATA, txn_index_empty=True), with_member=True) == GOLDEN[:-2] + b',"txnIdxEmpty":true}}'
    parsed = parse_manifest(build(replace(METADATA, txn_index_empty=True), with_member=True))
    assert parsed.metadata == replace(METADATA, txn_index_empty=True)


def test_the_golden_manifest_is_read_whole() -> None:
    manifest = parse_manifest(GOLDEN)
    assert manifest.metadata == METADATA
    assert manifest.chunk_index == FixedChunkIndex(10, 25, 10, 5)
    assert manifest.indexes == {
        IndexType.OFFSET: IndexPosition(0, 8),
        IndexType.TIMESTAMP: IndexPosition(8, 12),
        IndexType.PRODUCER_SNAPSHOT: IndexPosition(20, 10),
        IndexType.LEADER_EPOCH: IndexPosition(30, 8),
        IndexType.TRANSACTION: None,
    }
    assert not manifest.compression
    assert manifest.encryption is None
    assert manifest.is_plain


@pytest.mark.parametrize(
    ("chunk_size", "file_size", "overhead", "expected"),
    [
        (10, 25, 28, FixedChunkIndex(10, 25, 38, 33)),
        (4 * MIB, 8 * MIB, 0, FixedChunkIndex(4 * MIB, 8 * MIB, 4 * MIB, 4 * MIB)),
        (4 * MIB, 100, 0, FixedChunkIndex(4 * MIB, 100, 4 * MIB, 100)),
        (4 * MIB, 0, 0, FixedChunkIndex(4 * MIB, 0, 4 * MIB, 0)),
    ],
)
def test_fixed_chunk_indexes_equal_the_plugins(
    chunk_size: int, file_size: int, overhead: int, expected: FixedChunkIndex
) -> None:
    assert FixedChunkIndex.plain(chunk_size, file_size, overhead) == expected


def test_an_encrypted_manifest_is_recognised_and_named() -> None:
    chunk_index = {
        "type": "fixed",
        "originalChunkSize": 10,
        "originalFileSize": 25,
        "transformedChunkSize": 38,
        "finalTransformedChunkSize": 33,
    }
    document = {**DOCUMENT, "chunkIndex": chunk_index, "encryption": {"dataKey": "key-1:c2VjcmV0", "aad": "YWFk"}}
    manifest = parse_manifest(json.dumps(document).encode())
    assert manifest.encryption == Encryption("key-1", b"secret", b"aad")
    assert not manifest.is_plain
    assert "secret" not in repr(manifest)


def test_an_encrypted_and_compressed_manifest_has_its_members_in_the_plugins_order() -> None:
    content = build_manifest(
        METADATA,
        index_positions(SIZES),
        VariableChunkIndex(10, 25, (19, 300, 14)),
        encryption=Encryption("key-1", b"secret", b"aad"),
        with_txn_index_empty=False,
    )
    head = (
        b'{"version":"1","chunkIndex":{"type":"variable","originalChunkSize":10,"originalFileSize":25,'
        b'"transformedChunks":"KLUv/SARiQAAAAAAAwAAABMCAAABGQAAAA4="},"segmentIndexes":'
    )
    encryption = (
        b',"compression":true,"encryption":{"dataKey":"key-1:c2VjcmV0","aad":"YWFk"},"remoteLogSegmentMetadata":'
    )
    tail = GOLDEN.partition(b'"remoteLogSegmentMetadata":')[2]
    indexes = GOLDEN.partition(b'"segmentIndexes":')[2].partition(b',"compression"')[0]
    assert content == head + indexes + encryption + tail
    assert parse_manifest(content).chunk_index.stored_size_bytes == 333


def test_a_compressed_manifest_is_recognised() -> None:
    # Chunk sizes 1000000, 1000010, 400000, packed by the plugin.
    packed = "KLUv/SAPeQAAAAAAAwAPQkABAAoABhqA"
    chunk_index = {"type": "variable", "originalChunkSize": 10, "originalFileSize": 25, "transformedChunks": packed}
    manifest = parse_manifest(json.dumps({**DOCUMENT, "chunkIndex": chunk_index, "compression": True}).encode())
    assert manifest.chunk_index == VariableChunkIndex(10, 25, (1_000_000, 1_000_010, 400_000))
    assert manifest.compression
    assert not manifest.is_plain


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", "2"),
        ("version", True),
        ("version", ...),
        ("compression", ...),
        ("compression", "false"),
        ("compression", None),
        ("unknown", 1),
        ("encryption", None),
        ("encryption", {"dataKey": "no colon", "aad": ""}),
        ("encryption", {"dataKey": " :x", "aad": ""}),
        ("chunkIndex", []),
        ("chunkIndex.type", "other"),
        ("chunkIndex.originalChunkSize", 0),
        ("chunkIndex.originalChunkSize", GIB + 1),
        ("chunkIndex.originalFileSize", -1),
        ("chunkIndex.originalFileSize", 2**31),
        ("chunkIndex.originalFileSize", 26),
        ("chunkIndex.originalFileSize", 25.0),
        ("chunkIndex.originalFileSize", "25"),
        ("chunkIndex.finalTransformedChunkSize", 4),
        ("segmentIndexes.offset", None),
        ("segmentIndexes.offset.position", -1),
        ("segmentIndexes.offset.size", 2**31),
        ("segmentIndexes.offset.size", True),
        ("segmentIndexes.leaderEpoch", ...),
        ("segmentIndexes.transaction", ...),
        ("remoteLogSegmentMetadata.endOffset", -1),
        ("remoteLogSegmentMetadata.endOffset", 2**63),
        ("remoteLogSegmentMetadata.startOffset", 25),
        ("remoteLogSegmentMetadata.segmentLeaderEpochs", {}),
        ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"x": 0}),
        ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"٣": 0}),
        ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"0": 5, "1": 0}),
        ("remoteLogSegmentMetadata.remoteLogSegmentId.id", "../../etc/passwd"),
        ("remoteLogSegmentMetadata.remoteLogSegmentId.topicIdPartition.topicPartition.topic", "../outside"),
        ("remoteLogSegmentMetadata.remoteLogSegmentId.topicIdPartition.topicPartition.partition", 2**31),
    ],
)
def test_a_broken_manifest_is_a_format_error(path: str, value: object) -> None:
    with pytest.raises(FormatError):
        parse_manifest(changed(path, value))


@pytest.mark.parametrize(
    ("path", "value"), [("version", "2"), ("version", 10**9), ("codec", "zstd"), ("chunkIndex.type", "sparse")]
)
def test_a_manifest_of_another_release_is_told_from_a_broken_one(path: str, value: object) -> None:
    with pytest.raises(UnknownVersionError):
        parse_manifest(changed(path, value))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        GOLDEN[:-1],
        GOLDEN + b"}",
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b'{"version":NaN}',
        b'{"version":' + b"9" * 10_000 + b"}",
        GOLDEN.replace(b'"version":"1"', b'"version":"1","version":"1"'),
        b" " * (MAX_MANIFEST_BYTES + 1),
    ],
    ids=lambda content: content[:12].decode(errors="replace"),
)
def test_what_is_not_a_manifest_is_a_format_error(content: bytes) -> None:
    with pytest.raises(FormatError):
        parse_manifest(content)


@pytest.mark.parametrize("chunk_size", [0, -1, GIB + 1])
def test_an_unusable_chunk_size_is_refused(chunk_size: int) -> None:
    with pytest.raises(ValueError, match="chunk size"):
        build(chunk_size_bytes=chunk_size)


def metadata_values() -> st.SearchStrategy[RemoteLogSegmentMetadata]:
    uuids = st.binary(min_size=16, max_size=16).map(Uuid)
    topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in (".", ".."))
    partitions = st.builds(TopicIdPartition, uuids, st.integers(0, 2**31 - 1), topics)

    @st.composite
    def build_one(draw: st.DrawFn) -> RemoteLogSegmentMetadata:
        start = draw(st.integers(0, 2**62))
        end = start + draw(st.integers(0, 2**62 - 1))
        epochs = draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5, unique=True).map(sorted))
        later = draw(st.lists(st.integers(start, end), min_size=len(epochs) - 1, max_size=len(epochs) - 1).map(sorted))
        return RemoteLogSegmentMetadata(
            remote_log_segment_id=RemoteLogSegmentId(draw(partitions), draw(uuids)),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=draw(st.integers(-1, 2**62)),
            broker_id=draw(st.integers(0, 2**31 - 1)),
            event_timestamp_ms=draw(st.integers(0, 2**62)),
            segment_size_bytes=draw(st.integers(0, 2**31 - 1)),
            segment_leader_epochs=LeaderEpochs.of(zip(epochs, [start, *later], strict=True)),
            txn_index_empty=draw(st.booleans()),
        )

    return build_one()


index_sizes = st.fixed_dictionaries(
    {
        each: st.integers(0, 10_000_000) | (st.none() if each is IndexType.TRANSACTION else st.nothing())
        for each in IndexType
    }
)


@given(metadata_values(), index_sizes, st.integers(1, GIB))
def test_a_manifest_parses_back_to_what_it_was_built_from(
    metadata: RemoteLogSegmentMetadata, sizes: dict[IndexType, int | None], chunk_size_bytes: int
) -> None:
    positions = index_positions(sizes)
    chunks = FixedChunkIndex.plain(chunk_size_bytes, metadata.segment_size_bytes)
    content = build_manifest(metadata, positions, chunks, with_txn_index_empty=True)
    manifest = parse_manifest(content)
    assert manifest.metadata == metadata
    assert manifest.metadata.topic_id_partition.topic == metadata.topic_id_partition.topic
    assert manifest.indexes == positions
    assert manifest.chunk_index.original_file_size_bytes == metadata.segment_size_bytes


@given(st.integers(0, len(GOLDEN) - 1), st.integers(0, 255))
def test_a_flipped_byte_gives_another_manifest_or_a_format_error(position: int, byte: int) -> None:
    damaged = GOLDEN[:position] + bytes([byte]) + GOLDEN[position + 1 :]
    with contextlib.suppress(FormatError):
        parse_manifest(damaged)


# Custom metadata: the plugin's vectors.

SIZE, PREFIX, KEY = CustomMetadataField


@pytest.mark.parametrize(
    ("values", "encoded"),
    [
        ({SIZE: 100, KEY: "foo"}, "020002c801020404666f6f"),
        ({KEY: "foo", SIZE: 100}, "020002c801020404666f6f"),
        ({SIZE: 76}, "0100029801"),
        ({SIZE: 2**30}, "0100058080808008"),
        ({PREFIX: "p/"}, "01010303702f"),
        ({PREFIX: ""}, "01010101"),
        ({}, "00"),
    ],
)
def test_it_equals_the_plugins(values: dict[CustomMetadataField, int | str], encoded: str) -> None:
    assert encode_custom_metadata(values).hex() == encoded


def test_a_long_key_has_a_length_of_two_bytes() -> None:
    encoded = encode_custom_metadata({KEY: "k" * 200})
    assert encoded[:6].hex() == "0102ca01c901"
    assert encoded[6:] == b"k" * 200


# Chunk indexes: the plugin's vectors, an independent packing, and what a hostile one meets.

VECTORS = [
    ([1_000_000, 1_000_010, 400_000], "00000003000f424001000a00061a80", "KLUv/SAPeQAAAAAAAwAPQkABAAoABhqA"),
    ([19, 300, 14], "000000030000001302000001190000000e", "KLUv/SARiQAAAAAAAwAAABMCAAABGQAAAA4="),
    ([60], "000000010000003c", "KLUv/SAIQQAAAAAAAQAAADw="),
]


@pytest.mark.parametrize(("sizes", "binary", "text"), VECTORS)
def test_encoded_sizes_equal_the_plugins(sizes: list[int], binary: str, text: str) -> None:
    assert decompressed(base64.b64decode(text)).hex() == binary
    assert encode_sizes(sizes) == text
    assert decode_sizes(text, len(sizes)) == tuple(sizes)


sizes_lists = st.lists(st.integers(1, 2**31 - 1), max_size=40) | st.builds(
    lambda base, rest: [base + one for one in rest],
    st.integers(1, 2**30),
    st.lists(st.sampled_from([0, 1, 255, 256, 65535, 65536, 2**24]), max_size=8),
)


@given(sizes_lists)
def test_sizes_are_packed_as_an_independent_writer_does(sizes: list[int]) -> None:
    assert unpacked(decompressed(base64.b64decode(encode_sizes(sizes)))) == sizes
    assert decode_sizes(encoded_sizes(sizes), len(sizes)) == tuple(sizes)


def packed(binary: bytes) -> str:
    return base64.b64encode(zstandard.ZstdCompressor().compress(binary)).decode()


@pytest.mark.parametrize(
    ("text", "chunks", "words"),
    [
        ("", 1, "zstd"),
        ("not base64!", 1, "base64"),
        ("ключ", 1, "base64"),
        # Characters that a lenient decoder leaves out: the rest is a list of these chunks.
        *((f"{VECTORS[2][2][:4]}{foreign}{VECTORS[2][2][4:]}", 1, "base64") for foreign in ("\n", " ", "!", "-_")),
        (base64.b64encode(b"no frame").decode(), 1, "zstd"),
        (packed(b""), 0, "0 bytes"),
        (packed(bytes.fromhex("00000001")), 1, "4 bytes"),
        (packed(bytes.fromhex("000000010000003c00")), 1, "9 bytes"),
        (packed(bytes.fromhex("000000010000003c")), 2, "says 1 chunks, the file has 2"),
        (packed(bytes.fromhex("7fffffff0000001301")), 2**31 - 1, "at most"),
        (packed(bytes.fromhex("00000003")), 3, "4 bytes"),
        (packed(bytes.fromhex("0000000300000013020000011900000e")), 3, "16 bytes, 3 chunks need 17"),
        (packed(bytes.fromhex("00000003000000130000000119")), 3, "width 0"),
        (packed(bytes.fromhex("000000030000001305000001190000000e")), 3, "width 5"),
        (packed(bytes.fromhex("00000003ffffff1302000001190000000e")), 3, "base -237"),
        (packed(bytes.fromhex("00000003000000000200000119ffffffff")), 3, "chunk of -1 bytes"),
        (packed(bytes.fromhex("0000000100000000")), 1, "chunk of 0 bytes"),
        (packed(bytes(11 * MIB)), 3, "at most"),
    ],
)
def test_what_is_no_list_of_these_chunks_is_refused(text: str, chunks: int, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        decode_sizes(text, chunks)


def test_a_count_is_not_believed() -> None:
    with pytest.raises(FormatError, match=str(MAX_CHUNKS)):
        decode_sizes(packed(b"\0"), MAX_CHUNKS + 1)


def plain_chunks(file_size: int, chunk_size: int, stored: list[int]) -> list[Chunk]:
    found, at = [], 0
    for number, position in enumerate(range(0, file_size, chunk_size)):
        found.append(Chunk(number, position, min(chunk_size, file_size - position), at, stored[number]))
        at += stored[number]
    return found


@given(st.integers(1, 300), st.integers(1, 60), st.booleans(), st.data())
def test_chunks_over_a_range_are_those_that_hold_its_bytes(
    file_size: int, chunk_size: int, is_variable: bool, data: st.DataObject
) -> None:
    count = -(-file_size // chunk_size)
    if is_variable:
        stored = data.draw(st.lists(st.integers(1, 90), min_size=count, max_size=count))
        index: FixedChunkIndex | VariableChunkIndex = VariableChunkIndex(chunk_size, file_size, tuple(stored))
    else:
        index = FixedChunkIndex.plain(chunk_size, file_size, 28)
        stored = [chunk_size + 28] * (count - 1) + [file_size - (count - 1) * chunk_size + 28]
    first = data.draw(st.integers(0, file_size - 1))
    last = data.draw(st.integers(first, file_size - 1))
    expected = plain_chunks(file_size, chunk_size, stored)
    holding = [one for one in expected if one.position <= last and one.position + one.size_bytes > first]
    assert list(chunks_over(index, first, last)) == holding
    assert (chunk_count(index), index.stored_size_bytes) == (count, sum(stored))


def test_an_empty_file_has_no_chunk() -> None:
    index = FixedChunkIndex.plain(10, 0)
    assert (chunk_count(index), index.stored_size_bytes, list(index.stored_chunks(0))) == (0, 0, [])


@pytest.mark.parametrize("chunk_size", [0, -1, GIB + 1])
def test_an_impossible_chunk_size_is_refused(chunk_size: int) -> None:
    with pytest.raises(ValueError, match="chunk size"):
        FixedChunkIndex.plain(chunk_size, 100)


def test_millions_of_values_are_refused_before_they_are_parsed() -> None:
    with pytest.raises(FormatError, match="more than 100000 values"):
        parse_manifest(b'{"version": "1", "more": [' + b"{}," * 200_000 + b"{}]}")
