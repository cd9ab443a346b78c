"""Compressed and encrypted segments of real brokers: an independent reader opens what is written here, an independent
writer's are opened here, and what is not right is named with its segment and chunk."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from include.tiering.errors import RemoteResourceNotFoundError, RemoteStorageError, SegmentKeyError, StoredChunkError
from include.tiering.formats.aiven_chunks import encode_sizes
from include.tiering.model.segments import Depth, IndexType
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.recovery.stored_attempts import FaultyAttempt, examine, found_attempts
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.layouts.key_ring import KeyRing, PemKeyPair
from include.tiering.remote_storage.object_store import BytesSource
from include.tiering.remote_storage.s3.store import S3ObjectStore
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.segments.contract import SegmentRow
from include.tiering.units import KIB, MIB
from include.tiering.verification.measure_segment import measure_segment
from tests.doubles.aiven_files import read_segment, write_segment
from tests.doubles.key_pairs import key_files, private_pem, public_pem
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.s3_server import CREDENTIALS, versitygw_or_skip
from tests.doubles.stored_log import CopiedPartition, copied_partition, rolled_segments, some_bytes, some_segment

CHUNK = 4 * KIB
NAME = "orders-0"
FORMS = {
    "compressed": AivenForm(CHUNK, compresses=True),
    "encrypted": AivenForm(CHUNK, encrypts=True),
    "both": AivenForm(CHUNK, compresses=True, encrypts=True, with_txn_index_empty=True),
    "both, in one chunk": AivenForm(4 * MIB, compresses=True, encrypts=True),
}
SUFFIXES = ("log", "indexes", "rsm-manifest")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PemKeyPair:
    return key_files(tmp_path_factory.mktemp("keys"), "one")


@pytest.fixture(params=FORMS)
def copied(request: pytest.FixtureRequest, tmp_path: Path, pair: PemKeyPair) -> CopiedPartition:
    layout = AivenLayout(FORMS[request.param], KeyRing([pair], "one"))
    return copied_partition(tmp_path, NAME, segments=3, layout=layout)


@pytest.fixture
def encrypted(tmp_path: Path, pair: PemKeyPair) -> CopiedPartition:
    return copied_partition(tmp_path, NAME, segments=1, layout=AivenLayout(FORMS["both"], KeyRing([pair], "one")))


def read_back(storage: RemoteStorage, row: SegmentRow, first: int = 0, last: int | None = None) -> bytes:
    return b"".join(storage.fetch_log_segment(row.metadata, first, last, limiter=UnlimitedBytes()))


def broken_rules(storage: RemoteStorage, row: SegmentRow, depth: Depth) -> tuple[set[str], str]:
    measure = measure_segment(row, previous=None, storage=storage, limiter=UnlimitedBytes(), depth=depth)
    broken = {breach.rule.rule_id for breach in PlainEvaluator().evaluate([measure])}
    return broken, " ".join(text for _, text in measure.remarks)


def test_an_independent_reader_opens_what_is_written(copied: CopiedPartition) -> None:
    for row, (_, data) in zip(copied.rows, rolled_segments(NAME), strict=False):
        objects = {suffix: copied.object_path(row, suffix).read_bytes() for suffix in SUFFIXES}
        found = read_segment(objects, {"one": private_pem("one")})
        assert isinstance(data.log, BytesSource)
        assert found.log == data.log.content
        assert objects["log"] != data.log.content
        assert found.indexes == {index_type.value: data.index(index_type) for index_type in IndexType}
        described = found.manifest["remoteLogSegmentMetadata"]
        assert (described["startOffset"], described["endOffset"]) == (
            row.metadata.start_offset,
            row.metadata.end_offset,
        )


def test_nothing_of_a_log_is_readable_in_an_encrypted_store(encrypted: CopiedPartition) -> None:
    (row,) = encrypted.rows
    _, data = rolled_segments(NAME)[0]
    assert isinstance(data.log, BytesSource)
    stored = b"".join(encrypted.object_path(row, suffix).read_bytes() for suffix in SUFFIXES)
    for part in (data.log.content[100:140], data.producer_snapshot, data.offset_index, data.leader_epoch):
        assert part not in stored


def test_it_reads_back_and_is_verified_at_both_depths(copied: CopiedPartition) -> None:
    for row, (_, data) in zip(copied.rows, rolled_segments(NAME), strict=False):
        assert isinstance(data.log, BytesSource)
        assert read_back(copied.storage, row) == data.log.content
        for first, last in [(0, 0), (1, CHUNK), (CHUNK - 1, CHUNK), (3 * CHUNK, 3 * CHUNK + 9), (50, None)]:
            if last is None or last < len(data.log.content):
                until = None if last is None else last + 1
                assert read_back(copied.storage, row, first, last) == data.log.content[first:until]
        for depth in Depth:
            assert broken_rules(copied.storage, row, depth) == (set(), "")


def test_what_an_independent_writer_made_is_opened(tmp_path: Path, pair: PemKeyPair) -> None:
    storage = SegmentStorage(FileObjectStore(tmp_path), AivenLayout(keys=KeyRing([pair])))
    plain = copied_partition(tmp_path, NAME, segments=4)
    for number, (row, (_, data)) in enumerate(zip(plain.rows, rolled_segments(NAME), strict=False)):
        assert isinstance(data.log, BytesSource)
        metadata = json.loads(plain.object_path(row, "rsm-manifest").read_text())["remoteLogSegmentMetadata"]
        objects = write_segment(
            data.log.content,
            {index_type.value: data.index(index_type) for index_type in IndexType},
            metadata,
            chunk_size=(10_000, 1_000, 4 * MIB, 777)[number],
            compress=bool(number & 1),
            public_key=("one", public_pem("one")) if number & 2 or not number else None,
        )
        for suffix, content in objects.items():
            plain.object_path(row, suffix).write_bytes(content)
        assert read_back(storage, row) == data.log.content
        assert read_back(storage, row, 500, 20_000) == data.log.content[500:20_001]
        for index_type in IndexType:
            if data.index(index_type) is not None:
                assert storage.fetch_index(row.metadata, index_type) == data.index(index_type)
        for depth in Depth:
            assert broken_rules(storage, row, depth) == (set(), "")


def test_a_copy_that_is_found_in_the_store_is_complete_as_its_manifest_says(copied: CopiedPartition) -> None:
    attempts = found_attempts(copied.storage.list_segment_objects())
    assert len(attempts) == 3
    for attempt, row in zip(attempts, copied.rows, strict=True):
        found = examine(copied.storage, attempt)
        assert not isinstance(found, FaultyAttempt)
        assert found.metadata == replace(row.metadata, state=found.metadata.state)
        assert found.log_crc32c is None
    log = copied.object_path(copied.rows[0], "log")
    log.write_bytes(log.read_bytes()[:-1])
    faulty = examine(copied.storage, found_attempts(copied.storage.list_segment_objects())[0])
    assert isinstance(faulty, FaultyAttempt)
    assert faulty.error == "RemoteChecksumError"


def test_a_key_that_is_not_at_hand_is_named_and_gives_no_verdict(
    encrypted: CopiedPartition, tmp_path: Path, pair: PemKeyPair
) -> None:
    (row,) = encrypted.rows
    rings = {
        "no keys are set": None,
        "in remote_storage.encryption_key_pairs: two": KeyRing([key_files(tmp_path, "two")]),
        "has no private key": KeyRing([PemKeyPair("one", pair.public_key)]),
    }
    for words, ring in rings.items():
        storage = SegmentStorage(FileObjectStore(encrypted.root), AivenLayout(keys=ring))
        for ask in (
            lambda storage=storage: read_back(storage, row),
            lambda storage=storage: storage.fetch_index(row.metadata, IndexType.OFFSET),
            lambda storage=storage: broken_rules(storage, row, Depth.SHALLOW),
            lambda storage=storage: broken_rules(storage, row, Depth.DEEP),
        ):
            with pytest.raises(SegmentKeyError, match=words) as raised:
                ask()
            assert str(row.metadata.remote_log_segment_id) in str(raised.value)


def test_a_wrong_key_is_a_clear_error(encrypted: CopiedPartition, tmp_path: Path) -> None:
    (row,) = encrypted.rows
    ring = KeyRing([key_files(tmp_path, "two", called="one")])
    storage = SegmentStorage(FileObjectStore(encrypted.root), AivenLayout(keys=ring))
    for ask in (
        lambda: read_back(storage, row),
        lambda: storage.fetch_index(row.metadata, IndexType.OFFSET),
    ):
        with pytest.raises(StoredChunkError, match=r"key pair 'one': .*wrapped for another key") as raised:
            ask()
        assert str(row.metadata.remote_log_segment_id) in str(raised.value)
    for depth in Depth:
        broken, remarks = broken_rules(storage, row, depth)
        assert {"Q103", "Q201"} <= broken
        assert "wrapped for another key" in remarks
        assert "Q101" not in broken


def _flip(position: int) -> Callable[[bytes], bytes]:
    return lambda log: log[:position] + bytes([log[position] ^ 1]) + log[position + 1 :]


def _swapped(log: bytes, size: int = CHUNK + 28) -> bytes:
    return log[size : 2 * size] + log[:size] + log[2 * size :]


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "a byte of the first chunk": ("encrypted", _flip(2_000), "chunk 0 of .*tag is wrong"),
    "a byte of the second chunk": ("encrypted", _flip(CHUNK + 100), "chunk 1 of .*tag is wrong"),
    "a tag": ("encrypted", _flip(CHUNK + 27), "chunk 0 of .*tag is wrong"),
    "a byte of a frame's head": ("compressed", _flip(1), "chunk 0 of .*not a zstd frame"),
    "a chunk that was compressed, then sealed": ("both", _flip(40), "chunk 0 of .*tag is wrong"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_chunk_that_changed_is_named(tmp_path: Path, pair: PemKeyPair, case: str) -> None:
    form, damage, words = DAMAGES[case]
    copied = copied_partition(tmp_path, NAME, segments=1, layout=AivenLayout(FORMS[form], KeyRing([pair], "one")))
    (row,) = copied.rows
    log = copied.object_path(row, "log")
    content = damage(log.read_bytes())
    assert content != log.read_bytes()
    log.write_bytes(content)
    with pytest.raises(StoredChunkError, match=words) as raised:
        read_back(copied.storage, row)
    assert str(row.metadata.remote_log_segment_id) in str(raised.value)
    broken, remarks = broken_rules(copied.storage, row, Depth.DEEP)
    assert "Q102" in broken
    assert "chunk " in remarks


@pytest.mark.parametrize(("form", "damage"), [("encrypted", _swapped), ("compressed", _flip(40))])
def test_what_no_tag_tells_a_deep_measure_does(
    tmp_path: Path, pair: PemKeyPair, form: str, damage: Callable[[bytes], bytes]
) -> None:
    """Chunks that changed places are each what they were; a frame of zstd carries no checksum."""
    copied = copied_partition(tmp_path, NAME, segments=1, layout=AivenLayout(FORMS[form], KeyRing([pair], "one")))
    (row,) = copied.rows
    log = copied.object_path(row, "log")
    log.write_bytes(damage(log.read_bytes()))
    assert broken_rules(copied.storage, row, Depth.DEEP)[0] >= {"Q102", "Q262"}


@pytest.mark.parametrize("form", ["compressed", "encrypted", "both"])
def test_a_log_that_was_cut_is_named_with_the_chunk_that_is_not_whole(
    tmp_path: Path, pair: PemKeyPair, form: str
) -> None:
    copied = copied_partition(tmp_path, NAME, segments=1, layout=AivenLayout(FORMS[form], KeyRing([pair], "one")))
    (row,) = copied.rows
    log = copied.object_path(row, "log")
    log.write_bytes(log.read_bytes()[:-5])
    with pytest.raises(RemoteResourceNotFoundError, match="chunk 0 of"):
        read_back(copied.storage, row)
    broken, remarks = broken_rules(copied.storage, row, Depth.SHALLOW)
    assert {"Q101", "Q102"} <= broken
    assert "as in its manifest" in remarks


def test_an_encrypted_index_that_changed_is_named(encrypted: CopiedPartition) -> None:
    (row,) = encrypted.rows
    indexes = encrypted.object_path(row, "indexes")
    indexes.write_bytes(_flip(15)(indexes.read_bytes()))
    with pytest.raises(StoredChunkError, match="its offset index: its tag is wrong"):
        encrypted.storage.fetch_index(row.metadata, IndexType.OFFSET)
    assert encrypted.storage.fetch_index(row.metadata, IndexType.TIMESTAMP)


HOSTILE: dict[str, tuple[dict[str, object], str]] = {
    "a huge chunk": ({"originalChunkSize": 2**30, "originalFileSize": 2**30}, "at most"),
    "a chunk that is stored in much more": ({}, "its manifest says 1000000000 stored bytes"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_manifest_cannot_make_a_reader_hold_more_than_a_chunk(tmp_path: Path, case: str) -> None:
    copied = copied_partition(tmp_path, NAME, segments=1, layout=AivenLayout(FORMS["compressed"]))
    (row,) = copied.rows
    path = copied.object_path(row, "rsm-manifest")
    manifest = json.loads(path.read_text())
    change, words = HOSTILE[case]
    chunks = manifest["chunkIndex"] | change
    count = -(-chunks["originalFileSize"] // chunks["originalChunkSize"])
    manifest["chunkIndex"] = chunks | {"transformedChunks": encode_sizes([100 if change else 10**9] * count)}
    path.write_text(json.dumps(manifest))
    with pytest.raises(StoredChunkError, match=words):
        read_back(copied.storage, row)


def test_a_manifest_cannot_make_a_reader_count_to_billions(tmp_path: Path, pair: PemKeyPair) -> None:
    layout = AivenLayout(FORMS["encrypted"], KeyRing([pair], "one"))
    copied = copied_partition(tmp_path, NAME, segments=1, layout=layout)
    (row,) = copied.rows
    path = copied.object_path(row, "rsm-manifest")
    manifest = json.loads(path.read_text())
    manifest["chunkIndex"] |= {
        "originalChunkSize": 1,
        "originalFileSize": 2**31 - 1,
        "transformedChunkSize": 29,
        "finalTransformedChunkSize": 29,
    }
    path.write_text(json.dumps(manifest))
    with pytest.raises(StoredChunkError, match="2147483647 chunks: at most"):
        read_back(copied.storage, row, 0, 0)


def test_a_manifest_of_a_shorter_log_is_no_end_of_the_segment(tmp_path: Path) -> None:
    copied = copied_partition(tmp_path, NAME, segments=1, layout=AivenLayout(FORMS["compressed"]))
    (row,) = copied.rows
    longer = replace(row.metadata, segment_size_bytes=row.metadata.segment_size_bytes + 1)
    with pytest.raises(RemoteStorageError, match="was requested"):
        b"".join(copied.storage.fetch_log_segment(longer, limiter=UnlimitedBytes()))


@pytest.fixture(scope="module")
def s3_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3ObjectStore]:
    with versitygw_or_skip(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as environment:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        server.make_bucket("archive")
        yield S3ObjectStore(
            "archive", "p/", endpoint_url=server.endpoint_url, single_request_bytes=MIB, part_size_bytes=8 * MIB
        )


@pytest.mark.integration
@pytest.mark.parametrize("size_bytes", [300_000, 20 * MIB])
def test_a_server_proves_what_was_transformed_in_one_request_and_in_parts(
    s3_store: S3ObjectStore, pair: PemKeyPair, size_bytes: int
) -> None:
    layout = AivenLayout(AivenForm(3 * MIB, compresses=True, encrypts=True), KeyRing([pair], "one"))
    storage = SegmentStorage(s3_store, layout)
    metadata, data = some_segment(size_bytes, seed=f"s3 {size_bytes}")
    sent = storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    assert storage.stat_log_segment(metadata) == sent
    assert [stored.confirmed for stored in sent] == [size_bytes < MIB, True, True]
    found = b"".join(storage.fetch_log_segment(metadata, limiter=UnlimitedBytes()))
    assert found == some_bytes(size_bytes, f"s3 {size_bytes}")
