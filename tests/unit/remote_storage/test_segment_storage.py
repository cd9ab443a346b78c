"""What the composition adds: failures keep their owner, checks notice a store that lies, sizes are bounded."""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from include.tiering.errors import RemoteStorageError, RemoteStorageFullError, RemoteStorageUnavailableError
from include.tiering.model.segments import IndexType
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.object_store import KeyFailure, ObjectStat, OpenUpload
from include.tiering.remote_storage.segment_storage import MAX_IN_MEMORY_BYTES, SegmentStorage
from include.tiering.units import GIB
from tests.doubles.stored_log import some_segment

LAYOUT = AivenLayout()


@dataclass
class Moods:
    """What the store below does wrong."""

    keeps: set[str] = field(default_factory=set)
    stat: ObjectStat | str | None = "truth"
    abort_fails: bool = False


class MoodyStore(FileObjectStore):
    def __init__(self, root: Path, moods: Moods) -> None:
        super().__init__(root)
        self.moods = moods

    def delete(self, keys: Collection[str]) -> tuple[KeyFailure, ...]:
        kept = {key for key in keys if any(key.endswith(suffix) for suffix in self.moods.keeps)}
        failures = tuple(KeyFailure(key, "busy", retriable=True) for key in sorted(kept))
        return failures + super().delete([key for key in keys if key not in kept])

    def stat(self, key: str, *, read_back: bool = True) -> ObjectStat | None:
        return super().stat(key, read_back=read_back) if isinstance(self.moods.stat, str) else self.moods.stat

    def abort_upload(self, upload: OpenUpload) -> None:
        if self.moods.abort_fails:
            raise RemoteStorageUnavailableError("slow down")
        super().abort_upload(upload)


@pytest.fixture
def moods() -> Moods:
    return Moods()


@pytest.fixture
def storage(tmp_path: Path, moods: Moods) -> SegmentStorage:
    return SegmentStorage(MoodyStore(tmp_path, moods), LAYOUT)


def test_a_failed_delete_names_its_segment_and_spares_nothing_else(
    storage: SegmentStorage, moods: Moods, tmp_path: Path
) -> None:
    (first, data), (second, more) = some_segment(100, seed="a"), some_segment(100, seed="b", start_offset=25)
    for metadata, content in ((first, data), (second, more)):
        storage.copy_log_segment(metadata, content, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    moods.keeps = {f"{second.remote_log_segment_id.id}.indexes"}
    (failure,) = storage.delete_log_segments([first, second])
    assert failure.segment_id == second.remote_log_segment_id
    assert failure.key.endswith(".indexes")
    assert (failure.message, failure.retriable) == ("busy", True)
    assert [stored.kind for stored in storage.stat_log_segment(second)] == [ObjectKind.INDEXES]


def test_an_upload_that_cannot_be_aborted_is_a_failure_too(
    storage: SegmentStorage, moods: Moods, tmp_path: Path
) -> None:
    metadata, _ = some_segment(100)
    key = LAYOUT.keys(metadata)[0][1]
    left = tmp_path / f"{key}.~0123456789abcdef"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    moods.abort_fails = True
    (failure,) = storage.delete_log_segments([metadata])
    assert (failure.segment_id, failure.key, failure.retriable) == (metadata.remote_log_segment_id, key, True)
    moods.abort_fails = False
    assert storage.delete_log_segments([metadata]) == ()
    assert not left.exists()


@pytest.mark.parametrize("stat", [None, ObjectStat(3, 0)], ids=["lost", "other bytes"])
def test_a_store_that_loses_what_it_took_is_not_writable(
    storage: SegmentStorage, moods: Moods, stat: ObjectStat | None, tmp_path: Path
) -> None:
    moods.stat = stat
    with pytest.raises(RemoteStorageError, match="cannot be found as it was"):
        storage.check_writable()
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_deletes_nothing_is_not_writable(storage: SegmentStorage, moods: Moods) -> None:
    moods.keeps = {""}
    with pytest.raises(RemoteStorageError, match="cannot be deleted: busy"):
        storage.check_writable()


def test_a_full_store_is_not_written_to(tmp_path: Path) -> None:
    store = FileObjectStore(tmp_path, min_free_bytes=2**20 * GIB)
    with pytest.raises(RemoteStorageFullError):
        SegmentStorage(store, LAYOUT).check_writable()
    assert list(tmp_path.iterdir()) == []


def test_a_store_without_checksums_is_read_back(storage: SegmentStorage, moods: Moods) -> None:
    metadata, data = some_segment(100)
    sent = storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    moods.stat = ObjectStat(100, None)
    assert [stored.crc32c for stored in storage.stat_log_segment(metadata)] == [stored.crc32c for stored in sent]


def test_a_manifest_of_absurd_size_is_refused_before_it_fills_the_memory(
    storage: SegmentStorage, tmp_path: Path
) -> None:
    metadata, data = some_segment(100)
    storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    manifest = tmp_path / LAYOUT.keys(metadata)[2][1]
    with manifest.open("r+b") as file:
        file.truncate(4 * GIB)
    for ask in (
        lambda: storage.fetch_manifest(metadata),
        lambda: storage.fetch_index(metadata, IndexType.OFFSET),
        lambda: storage.fetch_log_segment(metadata, limiter=UnlimitedBytes()),
        lambda: storage.open_log_segment(metadata, limiter=UnlimitedBytes()).index(IndexType.OFFSET),
    ):
        with pytest.raises(RemoteStorageError, match=str(MAX_IN_MEMORY_BYTES)):
            ask()
