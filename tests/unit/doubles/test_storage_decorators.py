"""The doubles do what their names say, and otherwise keep the contract."""

from pathlib import Path

import pytest

from include.tiering.errors import RemoteStorageUnavailableError
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.doubles.manual_clock import ManualClock
from tests.doubles.storage_decorators import Fault, FaultyStorage, Lies, LyingStorage, RecordingStorage, SlowStorage
from tests.doubles.storage_segments import some_segment

METADATA, DATA = some_segment(1000)


@pytest.fixture
def storage(tmp_path: Path) -> SegmentStorage:
    return SegmentStorage(FileObjectStore(tmp_path), AivenLayout())


def copy(storage: RemoteStorage) -> None:
    storage.copy_log_segment(METADATA, DATA, limiter=UnlimitedBytes(), on_sent=lambda _: None)


def test_a_recording_storage_remembers_the_order(storage: SegmentStorage) -> None:
    recording = RecordingStorage(storage)
    copy(recording)
    recording.stat_log_segment(METADATA)
    assert recording.calls == [
        ("copy_log_segment", str(METADATA.remote_log_segment_id)),
        ("stat_log_segment", str(METADATA.remote_log_segment_id)),
    ]


def test_a_fault_happens_once_at_its_turn(storage: SegmentStorage) -> None:
    fault = Fault("stat_log_segment", 2, RemoteStorageUnavailableError("away"))
    faulty = FaultyStorage(storage, fault)
    copy(faulty)
    assert len(faulty.stat_log_segment(METADATA)) == 3
    with pytest.raises(RemoteStorageUnavailableError):
        faulty.stat_log_segment(METADATA)
    assert len(faulty.stat_log_segment(METADATA)) == 3
    assert faulty.met == [fault]


def test_a_lost_reply_leaves_the_work_done(storage: SegmentStorage) -> None:
    faulty = FaultyStorage(storage, Fault("copy_log_segment", 1, RemoteStorageUnavailableError("lost"), done=True))
    with pytest.raises(RemoteStorageUnavailableError):
        copy(faulty)
    assert len(storage.stat_log_segment(METADATA)) == 3


def test_a_slow_storage_takes_the_clocks_time(storage: SegmentStorage) -> None:
    clock = ManualClock()
    before = clock.monotonic()
    copy(SlowStorage(storage, clock, 3.0))
    assert clock.monotonic() - before == pytest.approx(3.0)


def test_a_lying_storage_hides_what_it_has(storage: SegmentStorage) -> None:
    lying = LyingStorage(storage, Lies(crc32c_xor=1, hides=frozenset({ObjectKind.MANIFEST}), keeps_deleted=True))
    copy(lying)
    truth = storage.stat_log_segment(METADATA)
    assert [(stored.key, stored.crc32c) for stored in lying.stat_log_segment(METADATA)] == [
        (stored.key, stored.crc32c ^ 1) for stored in truth[:2]
    ]
    assert lying.delete_log_segments([METADATA]) == ()
    assert storage.stat_log_segment(METADATA) == truth
