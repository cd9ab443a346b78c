"""The doubles themselves."""

import filecmp
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from include.tiering.errors import RemoteStorageUnavailableError
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.doubles.broker_data import broker_data, copy_of, expected
from tests.doubles.leftovers import MARK, new_root_entries, processes_left_behind, root_entries
from tests.doubles.manual_clock import ManualClock
from tests.doubles.patience import PATIENCE_SECONDS
from tests.doubles.storage_decorators import Fault, FaultyStorage, Lies, LyingStorage, RecordingStorage, SlowStorage
from tests.doubles.stored_log import some_segment

# The bundled log directories arrive whole, and a test may write into its copy only.


def test_every_file_of_the_oracle_is_there_with_its_size() -> None:
    partitions = expected("public")["snapshots"]["stopped"]["broker-1"]["partitions"]
    directory = broker_data("public") / "stopped" / "broker-1"
    assert partitions
    for name, partition_metadata in partitions.items():
        found = {path.name: path.stat().st_size for path in (directory / name).iterdir()}
        assert found == partition_metadata["files"], name


def test_the_unpacked_tree_may_not_be_written() -> None:
    writable = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
    for path in broker_data("crash").rglob("*"):
        assert not path.stat().st_mode & writable, path


def test_a_copy_is_equal_and_sparse_and_writable(tmp_path: Path) -> None:
    original = broker_data("crash") / "killed"
    copy = copy_of("crash", tmp_path, part="killed")
    for path in original.rglob("*.*"):
        twin = copy / path.relative_to(original)
        assert filecmp.cmp(path, twin, shallow=False), path
        assert twin.stat().st_mtime_ns == path.stat().st_mtime_ns
        assert twin.stat().st_blocks <= path.stat().st_blocks + 16
        assert twin.stat().st_mode & stat.S_IWUSR


# The leak check finds a process that outlives its test, and only one of this run.

_WAITS_FOR_ITS_INPUT = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def test_a_running_child_is_named_until_it_ends() -> None:
    environment = {**os.environ, MARK: "only-this-test"}
    with subprocess.Popen(_WAITS_FOR_ITS_INPUT, env=environment, stdin=subprocess.PIPE) as child:
        deadline = time.monotonic() + PATIENCE_SECONDS
        # On a busy machine its environment is not readable at once.
        while not (named := processes_left_behind("only-this-test", patience_seconds=0.0)):
            assert time.monotonic() < deadline
        (found,) = named
        assert found.startswith(f"{child.pid} ")
        assert processes_left_behind("another-run", patience_seconds=0.0) == []
    assert processes_left_behind("only-this-test", patience_seconds=PATIENCE_SECONDS) == []


def test_new_names_at_the_top_are_reported(tmp_path: Path) -> None:
    before = root_entries(tmp_path)
    (tmp_path / "spark-warehouse").mkdir()
    (tmp_path / ".cache").mkdir()
    assert new_root_entries(tmp_path, before) == ["spark-warehouse"]


# The doubles do what their names say, and otherwise keep the contract.

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
