"""One thing broken at a time: the error's class, file and position, and what is still eligible."""

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from include.tiering.errors import SourceUnreadableError
from include.tiering.formats.indexes import ProducerEntry
from include.tiering.formats.record_batch import ControlType
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import IneligibleReason, ScanReport
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.units import MIB
from tests.doubles.damage import HOSTILE_FILES, HOSTILE_NAMES
from tests.doubles.log_dirs import BrokerLogDir, PartitionDirectory
from tests.doubles.record_batches import data_batch, marker, record_batch

ACTIVE, CORRUPT, AFTER = IneligibleReason.ACTIVE, IneligibleReason.CORRUPT, IneligibleReason.AFTER_CORRUPT
ALL_WELL = [None, None, None, ACTIVE]
STOPPED_AT_10 = [None, CORRUPT, AFTER, ACTIVE]


@dataclass
class Setup:
    """`orders` with the segments 0, 10, 20 and 30; two batches each."""

    dir: BrokerLogDir
    partition: PartitionDirectory

    def scan(self, *, deep: bool) -> ScanReport:
        return LogDirSource([LogDirLocation(1, self.dir.path)], MetadataLog([self.dir.path])).scan(deep=deep)

    def path(self, kind: str, base: int = 10) -> Path:
        return self.partition.file(base, kind)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    log_dir = BrokerLogDir(tmp_path / "data")
    log_dir.create_topic()
    partition = log_dir.partition()
    log_dir.all_current({"orders-0": partition.filled(0, 10, 20, 30)})
    return Setup(log_dir, partition)


def _outcome(report: ScanReport) -> tuple[list[tuple[str, str, int | None]], list[IneligibleReason | None]]:
    errors = [(error.error, error.path.rpartition("/")[2], error.position) for error in report.errors]
    return errors, [segment.reason for replica in report.replicas for segment in replica.segments]


def _write_at(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def _cut_log(setup: Setup) -> None:
    os.truncate(setup.path("log"), setup.path("log").stat().st_size - 1)


def _flip_record(setup: Setup) -> None:
    _write_at(setup.path("log"), 70, b"\xff")


def _garbage_behind(setup: Setup) -> None:
    setup.path("log").write_bytes(setup.path("log").read_bytes() + b"garbage")


def _foreign_log(setup: Setup) -> None:
    """Sound in itself, and inside the segment's offsets: only the indexes give it away."""
    setup.path("log").write_bytes(record_batch(10, count=9, value_bytes=30))


def _fewer_batches(setup: Setup) -> None:
    setup.path("log").write_bytes(record_batch(10, count=5, timestamp_ms=1_700_000_000_010))


def _foreign_epoch(setup: Setup) -> None:
    _write_at(setup.path("log"), 12, struct.pack(">i", 1))


def _zero_tail_in_offset_index(setup: Setup) -> None:
    setup.path("index").write_bytes(setup.path("index").read_bytes() + bytes(8))


def _offset_index_between_batches(setup: Setup) -> None:
    setup.path("index").write_bytes(struct.pack(">ii", 9, 100))


def _offset_index_above(setup: Setup) -> None:
    """Offset 12 is in the first batch: who looks for 13 would start in the second and miss it."""
    second = setup.path("log").stat().st_size // 2
    setup.path("index").write_bytes(struct.pack(">ii", 2, second))


def _time_index_of_another_log(setup: Setup) -> None:
    setup.path("timeindex").write_bytes(struct.pack(">qi", 1_700_000_000_015, 9))


def _broken_snapshot(setup: Setup) -> None:
    _write_at(setup.path("snapshot", 20), 3, b"\xff")


LOG, INDEX, TIMES = f"{10:020d}.log", f"{10:020d}.index", f"{10:020d}.timeindex"
HALF = 218
DEEP = [
    (_cut_log, LOG, HALF // 2),
    (_flip_record, LOG, 0),
    (_garbage_behind, LOG, HALF),
    (_foreign_epoch, LOG, 0),
    (_foreign_log, INDEX, 0),
    (_fewer_batches, INDEX, 0),
    (_zero_tail_in_offset_index, INDEX, 8),
    (_offset_index_between_batches, INDEX, 0),
    (_offset_index_above, INDEX, 0),
    (_time_index_of_another_log, TIMES, 0),
    (_broken_snapshot, f"{20:020d}.snapshot", 2),
]


@pytest.mark.parametrize(("break_it", "file", "position"), DEEP, ids=[entry[0].__name__[1:] for entry in DEEP])
def test_a_deep_look_finds(setup: Setup, break_it: Callable[[Setup], None], file: str, position: int) -> None:
    half = setup.path("log").stat().st_size // 2
    break_it(setup)
    errors, reasons = _outcome(setup.scan(deep=True))
    wanted = {HALF // 2: half, HALF: 2 * half}.get(position, position)
    assert errors == [("CorruptFileError", file, wanted)]
    assert reasons == STOPPED_AT_10


def _no_time_index(setup: Setup) -> None:
    setup.path("timeindex").unlink()


def _partial_time_index(setup: Setup) -> None:
    setup.path("timeindex").write_bytes(bytes(range(13)))


def _zeros_in_time_index(setup: Setup) -> None:
    setup.path("timeindex").write_bytes(setup.path("timeindex").read_bytes() + bytes(12))


def _empty_log(setup: Setup) -> None:
    setup.path("log").write_bytes(b"")


def _linked_log(setup: Setup) -> None:
    setup.path("log").unlink()
    setup.path("log").symlink_to("/etc/passwd")


def _linked_snapshot(setup: Setup) -> None:
    setup.path("snapshot", 20).unlink()
    setup.path("snapshot", 20).symlink_to("/etc/passwd")


def _pipe_for_index(setup: Setup) -> None:
    setup.path("index").unlink()
    os.mkfifo(setup.path("index"))


def _directory_for_transaction_index(setup: Setup) -> None:
    setup.path("txnindex").mkdir()


BOTH = [
    (_no_time_index, "CorruptFileError", TIMES, None),
    (_partial_time_index, "CorruptFileError", TIMES, 12),
    (_zeros_in_time_index, "CorruptFileError", TIMES, 24),
    (_empty_log, "CorruptFileError", LOG, 0),
    (_linked_log, "HostileNameError", LOG, None),
    (_linked_snapshot, "HostileNameError", f"{20:020d}.snapshot", None),
    (_pipe_for_index, "SourceUnreadableError", INDEX, None),
    (_directory_for_transaction_index, "SourceUnreadableError", f"{10:020d}.txnindex", None),
]


@pytest.mark.parametrize(("break_it", "error", "file", "position"), BOTH, ids=[entry[0].__name__[1:] for entry in BOTH])
@pytest.mark.parametrize("deep", [False, True], ids=["cheap", "deep"])
def test_a_cheap_look_finds_too(
    setup: Setup, break_it: Callable[[Setup], None], error: str, file: str, position: int | None, deep: bool
) -> None:
    break_it(setup)
    errors, reasons = _outcome(setup.scan(deep=deep))
    assert errors == [(error, file, position)]
    assert reasons == STOPPED_AT_10


def test_a_segment_whose_log_is_lost_stops_the_one_before(setup: Setup) -> None:
    """Its indexes are left; without them nobody could tell it from a segment that never was."""
    setup.path("log").unlink()
    errors, reasons = _outcome(setup.scan(deep=False))
    assert errors == [("CorruptFileError", LOG, None)]
    assert reasons == [CORRUPT, AFTER, ACTIVE]


def test_a_log_starts_where_its_first_segment_was_lost(setup: Setup) -> None:
    """A broker that deletes takes the indexes too, and raises the log start."""
    setup.path("log", base=0).unlink()
    (replica,) = setup.scan(deep=False).replicas
    assert (replica.log_start_offset, replica.segments[0].base_offset) == (0, 10)
    for path in setup.partition.path.glob(f"{0:020d}.*"):
        path.unlink()
    (replica,) = setup.scan(deep=False).replicas
    assert replica.log_start_offset == 10


@pytest.mark.parametrize("name", HOSTILE_FILES)
def test_hostile_file_names_are_reported_and_harm_nothing(setup: Setup, name: str) -> None:
    (setup.partition.path / name).write_bytes(b"x")
    report = setup.scan(deep=True)
    assert [error.error for error in report.errors] == ["HostileNameError"]
    assert report.errors[0].path.isprintable()
    assert _outcome(report)[1] == ALL_WELL


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("kind", ["directory", "link"])
def test_hostile_directory_names_are_reported_and_harm_nothing(setup: Setup, name: str, kind: str) -> None:
    path = setup.dir.path / name
    if kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/etc")
    report = setup.scan(deep=False)
    assert [error.error for error in report.errors] == ["HostileNameError"]
    assert report.errors[0].path.isprintable()
    assert _outcome(report)[1] == ALL_WELL


def test_a_file_with_a_hostile_name_beside_the_partitions(setup: Setup) -> None:
    (setup.dir.path / "a\nb").touch()
    assert [error.error for error in setup.scan(deep=False).errors] == ["HostileNameError"]


@pytest.mark.parametrize(
    ("name", "data", "reasons"),
    [
        ("leader-epoch-checkpoint", b"0\n2\n1 5\n", [IneligibleReason.NO_LEADER_EPOCH] * 3 + [ACTIVE]),
        ("partition.metadata", b"version: 0\n", []),
        ("../replication-offset-checkpoint", b"7\n", [IneligibleReason.ABOVE_HIGH_WATERMARK] * 3 + [ACTIVE]),
        ("../recovery-point-offset-checkpoint", b"0\n1\norders x 1\n", [IneligibleReason.NOT_FLUSHED] * 3 + [ACTIVE]),
    ],
)
def test_broken_small_files(setup: Setup, name: str, data: bytes, reasons: list[IneligibleReason | None]) -> None:
    (setup.partition.path / name).write_bytes(data)
    errors, found = _outcome(setup.scan(deep=False))
    assert [error[:2] for error in errors] == [("CorruptFileError", name.rpartition("/")[2])]
    assert found == reasons


def test_an_active_log_that_is_no_file(setup: Setup) -> None:
    setup.path("log", 30).unlink()
    os.mkfifo(setup.path("log", 30))
    errors, reasons = _outcome(setup.scan(deep=False))
    assert errors[0] == ("SourceUnreadableError", f"{30:020d}.log", None)
    assert reasons == ALL_WELL


def test_an_active_log_that_its_index_goes_beyond(setup: Setup) -> None:
    setup.partition.segment(30, [record_batch(30, count=5), record_batch(35, count=5)])
    setup.dir.all_current({"orders-0": 35})
    os.truncate(setup.path("log", 30), setup.path("log", 30).stat().st_size - 1)
    report = setup.scan(deep=False)
    assert [error.message for error in report.errors] == ["the log ends at offset 35, but its index has 39"]


def test_a_partition_without_a_log(setup: Setup) -> None:
    for path in setup.partition.path.glob("0*"):
        path.unlink()
    errors, reasons = _outcome(setup.scan(deep=False))
    assert errors == [("CorruptFileError", "orders-0", None)]
    assert reasons == []


def _transactional(setup: Setup) -> None:
    """A transaction that began in segment 0 and was aborted in segment 10."""
    before = [ProducerEntry(7, 1, 0, 5, 0, 0, 9, 5)]
    partition = setup.partition
    partition.segment(0, [record_batch(0, count=5), data_batch(5, 7, count=5)], next_base=10, snapshot=before)
    partition.segment(10, [marker(10, 7, ControlType.ABORT), record_batch(11, count=9)], next_base=20)
    partition.file(10, "txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 5, 10, 11))


def test_aborted_transactions_are_known_to_their_index(setup: Setup) -> None:
    _transactional(setup)
    assert _outcome(setup.scan(deep=True)) == ([], ALL_WELL)


@pytest.mark.parametrize(
    ("index", "position"),
    [
        (None, None),
        (b"", None),
        (struct.pack(">hqqqq", 0, 7, 6, 10, 11), None),
        (struct.pack(">hqqqq", 0, 7, 5, 10, 11) + struct.pack(">hqqqq", 0, 8, 11, 15, 16), 34),
        (struct.pack(">hqqqq", 3, 7, 5, 10, 11), 0),
    ],
    ids=["missing", "empty", "another transaction", "one too many", "version"],
)
def test_a_transaction_index_that_is_not_this_logs(setup: Setup, index: bytes | None, position: int | None) -> None:
    _transactional(setup)
    path = setup.path("txnindex")
    path.unlink()
    if index is not None:
        path.write_bytes(index)
    errors, reasons = _outcome(setup.scan(deep=True))
    assert errors == [("CorruptFileError", path.name, position)]
    assert reasons == STOPPED_AT_10


def test_a_large_index_is_spot_checked_at_both_ends(setup: Setup) -> None:
    batches = [record_batch(base) for base in range(10, 1010)]
    setup.partition.segment(10, batches, next_base=1010)
    for base in (20, 30):
        for kind in ("log", "index", "timeindex"):
            setup.path(kind, base).unlink()
    setup.partition.segment(1010, [record_batch(1010)])
    setup.dir.all_current({"orders-0": 1011})
    assert _outcome(setup.scan(deep=True)) == ([], [None, None, ACTIVE])
    entries = setup.path("index").read_bytes()
    setup.path("index").write_bytes(entries[:-8] + struct.pack(">ii", 999, 999 * len(batches[0]) - 1))
    errors, _ = _outcome(setup.scan(deep=True))
    assert errors == [("CorruptFileError", INDEX, len(entries) - 8)]


def test_an_unreadable_root_does_not_hide_the_others(tmp_path: Path, setup: Setup) -> None:
    other = BrokerLogDir(tmp_path / "other", broker_id=2)
    (other.path / "meta.properties").unlink()
    (other.path / "meta.properties").mkdir()
    dirs = [LogDirLocation(2, other.path), LogDirLocation(1, setup.dir.path)]
    source = LogDirSource(dirs, MetadataLog([other.path, setup.dir.path]))
    report = source.scan()
    assert [error.error for error in report.errors] == [SourceUnreadableError.__name__]
    assert _outcome(report)[1] == ALL_WELL
    assert source.replica(report.replicas[0].replica_id) == report.replicas[0]


def test_snapshots_and_indexes_of_unbelievable_size(setup: Setup) -> None:
    for kind, base in (("index", 10), ("timeindex", 10), ("snapshot", 20)):
        path = setup.path(kind, base)
        before = path.read_bytes()
        os.truncate(path, 1 << 40)
        (error,) = setup.scan(deep=True).errors
        assert (error.error, error.path) == ("CorruptFileError", str(path))
        assert error.position is not None
        assert error.position < 65 * MIB
        path.write_bytes(before)
