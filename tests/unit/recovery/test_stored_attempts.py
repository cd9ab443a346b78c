"""Complete copies, and every way in which objects do not make one up."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from include.tiering.errors import RemoteStorageUnavailableError
from include.tiering.formats.aiven_manifest import MAX_MANIFEST_BYTES
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RemoteLogSegmentMetadata
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.recovery.contract import StoredSegment
from include.tiering.recovery.stored_attempts import (
    FaultyAttempt,
    FoundAttempt,
    examine,
    examined,
    found_attempts,
    leader_epochs_of,
    separated,
)
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.location import open_storage
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.doubles.storage_decorators import StorageDecorator
from tests.doubles.stored_log import some_segment, some_uuid

Manifest = dict[str, Any]


@pytest.fixture
def storage(tmp_path: Path) -> SegmentStorage:
    return SegmentStorage(FileObjectStore(tmp_path), AivenLayout())


def copied(storage: SegmentStorage, **arguments: Any) -> tuple[RemoteLogSegmentMetadata, int]:
    metadata, data = some_segment(1_000, **arguments)
    storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    return metadata, data.log_crc32c


def found(storage: RemoteStorage) -> list[FoundAttempt]:
    return found_attempts(storage.list_segment_objects())


def object_path(root: Path, suffix: str) -> Path:
    (path,) = root.rglob(f"*.{suffix}")
    return path


@pytest.mark.parametrize("with_transactions", [True, False])
def test_a_complete_copy_says_all_that_its_manifest_and_its_store_know(
    storage: SegmentStorage, with_transactions: bool
) -> None:
    metadata, log_crc32c = copied(storage, with_transactions=with_transactions)
    (attempt,) = found(storage)
    expected = replace(metadata, txn_index_empty=not with_transactions)
    assert examine(storage, attempt) == StoredSegment(expected, log_crc32c)


def test_a_layout_without_manifests_has_nothing_to_adopt(tmp_path: Path) -> None:
    storage = open_storage(tmp_path.as_uri(), layout="local_tiered_storage")
    metadata, data = some_segment(1_000)
    storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    (attempt,) = found(storage)
    faulty = examine(storage, attempt)
    assert isinstance(faulty, FaultyAttempt)
    assert "this layout writes no manifests" in faulty.message


@pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
def test_an_object_that_is_missing_is_named(storage: SegmentStorage, tmp_path: Path, suffix: str) -> None:
    copied(storage)
    object_path(tmp_path, suffix).unlink()
    (attempt,) = found(storage)
    faulty = examine(storage, attempt)
    assert faulty == FaultyAttempt(attempt, "RemoteResourceNotFoundError", f"it has no {suffix} object")


@pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
def test_an_object_that_goes_away_after_the_listing_is_named(
    storage: SegmentStorage, tmp_path: Path, suffix: str
) -> None:
    copied(storage)
    (attempt,) = found(storage)
    object_path(tmp_path, suffix).unlink()
    faulty = examine(storage, attempt)
    assert isinstance(faulty, FaultyAttempt)
    assert faulty.error == "RemoteResourceNotFoundError"
    assert suffix in faulty.message


@pytest.mark.parametrize("suffix", ["log", "indexes"])
@pytest.mark.parametrize("extra", [-1, 1])
def test_a_length_that_the_manifest_does_not_say_is_named(
    storage: SegmentStorage, tmp_path: Path, suffix: str, extra: int
) -> None:
    copied(storage)
    path = object_path(tmp_path, suffix)
    path.write_bytes(path.read_bytes()[:extra] if extra < 0 else path.read_bytes() + b"x")
    (attempt,) = found(storage)
    faulty = examine(storage, attempt)
    assert isinstance(faulty, FaultyAttempt)
    assert faulty.error == "RemoteChecksumError"
    assert f"its {suffix} object has {path.stat().st_size} bytes" in faulty.message


def _in_segment_id(change: Callable[[Manifest], None]) -> Callable[[Manifest], None]:
    return lambda manifest: change(manifest["remoteLogSegmentMetadata"]["remoteLogSegmentId"])


HOSTILE: dict[str, tuple[Callable[[Manifest], object], str, str]] = {
    "another segment id": (
        _in_segment_id(lambda one: one.update(id=str(some_uuid("other")))),
        "ObjectKeyError",
        "its manifest names",
    ),
    "another topic id": (
        _in_segment_id(lambda one: one["topicIdPartition"].update(topicId=str(some_uuid("topic")))),
        "ObjectKeyError",
        "its manifest names",
    ),
    "another partition": (
        _in_segment_id(lambda one: one["topicIdPartition"]["topicPartition"].update(partition=4)),
        "ObjectKeyError",
        "orders-4",
    ),
    "another topic": (
        _in_segment_id(lambda one: one["topicIdPartition"]["topicPartition"].update(topic="payments")),
        "ObjectKeyError",
        "payments-3",
    ),
    "another start offset": (
        lambda m: m["remoteLogSegmentMetadata"].update(startOffset=1, segmentLeaderEpochs={"0": 1}),
        "ObjectKeyError",
        "says start offset 1, its key 0",
    ),
    "no metadata": (lambda m: m.pop("remoteLogSegmentMetadata"), "FormatError", "does not name its segment"),
    "no epochs": (lambda m: m["remoteLogSegmentMetadata"].update(segmentLeaderEpochs={}), "FormatError", "epoch"),
    "offsets that fall": (lambda m: m["remoteLogSegmentMetadata"].update(endOffset=-1), "FormatError", "endOffset"),
    "a huge number": (lambda m: m["remoteLogSegmentMetadata"].update(endOffset=10**40), "FormatError", "endOffset"),
    "a hostile topic": (
        _in_segment_id(lambda one: one["topicIdPartition"]["topicPartition"].update(topic="../../etc")),
        "FormatError",
        "legal topic name",
    ),
    "an unknown version": (lambda m: m.update(version="2"), "UnknownVersionError", "version"),
    "encrypted": (
        lambda m: m.update(
            encryption={"dataKey": "k:AAAA", "aad": "AAAA"},
            chunkIndex={**m["chunkIndex"], "transformedChunkSize": 4194332, "finalTransformedChunkSize": 1028},
        ),
        "RemoteChecksumError",
        "1028",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_manifest_that_cannot_be_believed_is_a_fault_of_its_own(
    storage: SegmentStorage, tmp_path: Path, case: str
) -> None:
    change, error, message = HOSTILE[case]
    copied(storage)
    path = object_path(tmp_path, "rsm-manifest")
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    (attempt,) = found(storage)
    faulty = examine(storage, attempt)
    assert isinstance(faulty, FaultyAttempt)
    assert (faulty.error, message in faulty.message) == (error, True), faulty.message


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{" * 100_000, b'{"version":"1","version":"1"}'])
def test_a_manifest_that_is_none_is_a_fault_of_its_own(storage: SegmentStorage, tmp_path: Path, content: bytes) -> None:
    copied(storage)
    object_path(tmp_path, "rsm-manifest").write_bytes(content)
    (attempt,) = found(storage)
    faulty = examine(storage, attempt)
    assert isinstance(faulty, FaultyAttempt)
    assert faulty.error == "FormatError"


def test_a_huge_manifest_is_not_read(storage: SegmentStorage, tmp_path: Path) -> None:
    copied(storage)
    with object_path(tmp_path, "rsm-manifest").open("r+b") as file:
        file.truncate(MAX_MANIFEST_BYTES + 1)
    (attempt,) = found(storage)

    class Unread(StorageDecorator):
        def before(self, operation: str, detail: str) -> None:
            raise AssertionError(operation)

    faulty = examine(Unread(storage), attempt)
    assert isinstance(faulty, FaultyAttempt)
    assert (faulty.error, f"{MAX_MANIFEST_BYTES + 1} bytes" in faulty.message) == ("FormatError", True)


def test_an_id_belongs_to_one_attempt(storage: SegmentStorage, tmp_path: Path) -> None:
    first, _ = copied(storage, seed="same", start_offset=0)
    copied(storage, seed="same", start_offset=25)
    stored, faulty = separated(examined(storage, found(storage)))
    assert [one.metadata.start_offset for one in stored.values()] == [first.start_offset]
    assert [(one.attempt.start_offset, one.error) for one in faulty] == [(25, "ObjectKeyError")]


def test_many_are_examined_in_order_however_long_each_takes(storage: SegmentStorage) -> None:
    for n in range(100):
        copied(storage, seed=str(n), start_offset=25 * n)
    results = list(examined(storage, found(storage)))
    assert [one.metadata.start_offset for one in results if isinstance(one, StoredSegment)] == [
        25 * n for n in range(100)
    ]


def test_a_store_that_does_not_answer_is_no_fault_of_a_segment(storage: SegmentStorage) -> None:
    for n in range(20):
        copied(storage, seed=str(n), start_offset=25 * n)

    class Away(StorageDecorator):
        def before(self, operation: str, detail: str) -> None:
            if operation == "fetch_manifest":
                raise RemoteStorageUnavailableError("503")

    with pytest.raises(RemoteStorageUnavailableError):
        list(examined(Away(storage), found(storage)))


def test_the_history_that_a_copy_carries_ends_with_it(storage: SegmentStorage, tmp_path: Path) -> None:
    metadata, data = some_segment(1_000)
    history = b"0\n3\n0 0\n2 10\n5 400\n"
    storage.copy_log_segment(
        metadata, replace(data, leader_epoch=history), limiter=UnlimitedBytes(), on_sent=lambda _: None
    )
    assert leader_epochs_of(storage, metadata) == LeaderEpochs.of([(0, 0), (2, 10)])
    path = object_path(tmp_path, "indexes")
    path.write_bytes(path.read_bytes().replace(b"0\n3\n", b"x\n3\n"))
    assert leader_epochs_of(storage, metadata) == LeaderEpochs()
    path.unlink()
    assert leader_epochs_of(storage, metadata) == LeaderEpochs()
