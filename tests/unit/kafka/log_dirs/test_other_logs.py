"""What checkpoints say of another log of the same name, and what followers say of an old directory of the leader."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from include.tiering.kafka.cluster.cluster_metadata import UnknownClusterMetadata
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import IneligibleReason, Replica, ScanReport
from include.tiering.kafka.log_dirs.dirs import DirIdentity, LogDirLocation
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.model.segments import Uuid
from tests.doubles.log_dirs import (
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    ORDERS,
    RECOVERY_POINTS,
    BrokerLogDir,
    PartitionDirectory,
)
from tests.doubles.tiered_topic import config_record, partition_record, topic_record

ACTIVE = IneligibleReason.ACTIVE
OLDER = IneligibleReason.CHECKPOINT_OLDER_THAN_LOG
HEX = "0123456789abcdef" * 2
BEGUN = 1_800_000_000.0
"""When the log was begun, seconds. The broker wrote 30 s to it."""


def scan(*log_dirs: BrokerLogDir, deep: bool = False) -> ScanReport:
    return source(*log_dirs).scan(deep=deep)


def source(*log_dirs: BrokerLogDir) -> LogDirSource:
    paths = [log_dir.path for log_dir in log_dirs]
    return LogDirSource([LogDirLocation(None, path) for path in paths], MetadataLog(paths))


def reasons(replica: Replica) -> list[IneligibleReason | None]:
    return [segment.reason for segment in replica.segments]


class Recreated:
    """Topic `orders` was deleted and created again: segments at 0, 10 and 20, the active one, and the log ends at 25.

    Each checkpoint has what is set, and was written at a moment that is set, in seconds since the log was begun.
    """

    def __init__(self, path: Path) -> None:
        self.log_dir = BrokerLogDir(path / "data")
        self.log_dir.create_topic()
        self.partition = self.log_dir.partition()
        self.partition.filled(0, 10, 20)
        self.partition.written_at(BEGUN, *(BEGUN + 10 * number for number in (1, 2, 3)))
        for name in (HIGH_WATERMARKS, RECOVERY_POINTS):
            self.wrote(name, 25, 5)

    def wrote(self, name: str, offset: int, at: float) -> None:
        self.log_dir.checkpoint(name, {"orders-0": offset})
        os.utime(self.log_dir.path / name, (BEGUN + at, BEGUN + at))

    def replica(self) -> Replica:
        (replica,) = [one for one in scan(self.log_dir).replicas if one.topic_id_partition.topic_id == ORDERS]
        return replica


@pytest.fixture
def recreated(tmp_path: Path) -> Recreated:
    return Recreated(tmp_path)


def test_checkpoints_written_after_the_log_was_begun_are_believed(recreated: Recreated) -> None:
    assert reasons(recreated.replica()) == [None, None, ACTIVE]


@pytest.mark.parametrize("age", [-3_600, -5, -0.3, 5])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (HIGH_WATERMARKS, IneligibleReason.HIGH_WATERMARK_ABOVE_LOG_END),
        (RECOVERY_POINTS, IneligibleReason.RECOVERY_POINT_ABOVE_LOG_END),
        (LOG_STARTS, IneligibleReason.LOG_START_ABOVE_LOG_END),
    ],
)
def test_an_offset_above_the_end_of_the_log_is_never_cut_down_to_it(
    recreated: Recreated, name: str, reason: IneligibleReason, age: float
) -> None:
    recreated.wrote(name, 3_000, age)
    report = scan(recreated.log_dir)
    (replica,) = report.replicas
    assert set(reasons(replica)) == {reason}
    assert replica.log_start_offset == 0
    assert replica.high_watermark == (0 if name == HIGH_WATERMARKS else 25)
    assert replica.recovery_point == (0 if name == RECOVERY_POINTS else 25)
    (error,) = report.errors
    assert error.path.endswith(f"orders-0/{20:020d}.log")
    assert error.message == "the log ends at offset 25, but the broker's checkpoints have 3000"
    assert reasons(source(recreated.log_dir).replica(replica.replica_id)) == reasons(replica)


@pytest.mark.parametrize("age", [-3_600, -5, -0.01])
@pytest.mark.parametrize(
    ("name", "offset", "words"),
    [
        (HIGH_WATERMARKS, 12, "replication-offset-checkpoint has high watermark 12 for this name"),
        (HIGH_WATERMARKS, 25, "replication-offset-checkpoint has high watermark 25 for this name"),
        (RECOVERY_POINTS, 25, "recovery-point-offset-checkpoint has recovery point 25 for this name"),
        (LOG_STARTS, 15, "log-start-offset-checkpoint has log start offset 15 for this name"),
    ],
)
def test_a_new_log_that_has_passed_the_old_offset(
    recreated: Recreated, name: str, offset: int, words: str, age: float
) -> None:
    recreated.wrote(name, offset, age)
    report = scan(recreated.log_dir)
    (replica,) = report.replicas
    assert set(reasons(replica)) == {OLDER}
    assert (replica.log_start_offset, replica.log_end_offset) == (0, 25)
    (error,) = report.errors
    assert error.path == str(recreated.log_dir.path / "orders-0")
    assert error.message.startswith(words)
    recreated.wrote(name, min(offset, 0 if name == LOG_STARTS else offset), 5)
    assert scan(recreated.log_dir).errors == ()
    assert None in reasons(recreated.replica())


def test_what_no_checkpoint_has_of_a_new_log_is_no_error(recreated: Recreated) -> None:
    for name in (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_STARTS):
        recreated.log_dir.checkpoint(name, {"payments-0": 3_000})
        os.utime(recreated.log_dir.path / name, (BEGUN - 5, BEGUN - 5))
    report = scan(recreated.log_dir)
    assert report.errors == ()
    assert reasons(report.replicas[0])[:2] == [IneligibleReason.ABOVE_HIGH_WATERMARK] * 2


@pytest.mark.parametrize("age", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("state", ["delete", "stray"])
def test_within_a_moment_the_directory_of_the_older_log_decides(recreated: Recreated, state: str, age: float) -> None:
    """A broker collects the offsets some time before it writes them."""
    recreated.wrote(HIGH_WATERMARKS, 20, age)
    assert reasons(recreated.replica())[:2] == [None, None]
    other = recreated.log_dir.partition(f"orders-1.{HEX}-{state}", Uuid(b"orders-topic-id1"))
    other.filled(0)
    assert recreated.replica().high_watermark == 20
    other.path.rename(recreated.log_dir.path / f"orders-0.{HEX}-{state}")
    assert set(reasons(recreated.replica())) == {OLDER}
    recreated.wrote(HIGH_WATERMARKS, 20, 1.1)
    assert reasons(recreated.replica()) == [None, None, ACTIVE]


def _in_order(paths: Sequence[Path], seconds: float) -> None:
    for number, path in enumerate(paths):
        os.utime(path, (BEGUN + 60 + number * seconds, BEGUN + 60 + number * seconds))


@pytest.mark.parametrize("seconds", [0.0, 0.001, 1.0, 60.0])
@pytest.mark.parametrize("first", ["checkpoints", "partitions"])
def test_a_copy_that_lost_its_times_is_read_as_ever(recreated: Recreated, first: str, seconds: float) -> None:
    """`rsync` without times and `git checkout` go by name: `partition.metadata` comes after the segments."""
    root = recreated.log_dir.path
    checkpoints = sorted(path for path in root.iterdir() if path.is_file())
    partitions = sorted(path for path in root.glob("*/*"))
    _in_order([*checkpoints, *partitions] if first == "checkpoints" else [*partitions, *checkpoints], seconds)
    report = scan(recreated.log_dir)
    assert report.errors == ()
    assert reasons(report.replicas[0]) == [None, None, ACTIVE]
    recreated.log_dir.checkpoint(HIGH_WATERMARKS, {"orders-0": 3_000})
    assert reasons(recreated.replica())[0] is IneligibleReason.HIGH_WATERMARK_ABOVE_LOG_END


def test_a_log_that_is_older_than_topic_ids_is_read_as_ever(recreated: Recreated) -> None:
    recreated.partition.written_at(BEGUN + 100, *(BEGUN + 10 * number for number in (1, 2, 3)))
    assert reasons(recreated.replica()) == [None, None, ACTIVE]


def test_the_first_uncleaned_offset_makes_a_topic_wait_whatever_its_age(tmp_path: Path) -> None:
    """It can only keep a topic from being copied, of which nothing else is known."""
    made = Recreated(tmp_path)
    made.wrote(CLEANED, 3_000, -5)
    named = LogDirSource([LogDirLocation(None, made.log_dir.path)], UnknownClusterMetadata(), named_topics=["orders"])
    assert set(reasons(named.scan().replicas[0])) == {IneligibleReason.COMPACTED}


def test_leader_epochs_lie_in_the_logs_own_directory(recreated: Recreated) -> None:
    path = recreated.partition.path / "leader-epoch-checkpoint"
    os.utime(path, (BEGUN - 5, BEGUN - 5))
    assert reasons(recreated.replica()) == [None, None, ACTIVE]


class TwoBrokers:
    """Broker 1 leads `orders`; its directory ends at 25, that of broker 2 at 45. No broker can be asked."""

    def __init__(self, path: Path, *, leader: int = 1) -> None:
        self.dirs = [BrokerLogDir(path / str(broker), broker_id=broker) for broker in (1, 2)]
        self.partitions: list[PartitionDirectory] = []
        for log_dir, bases in zip(self.dirs, [(0, 10, 20), (0, 10, 20, 30, 40)], strict=True):
            log_dir.append_metadata(
                topic_record("orders", ORDERS), partition_record(ORDERS, replicas=(1, 2), leader=leader)
            )
            self.partitions.append(log_dir.partition())
            log_dir.all_current({"orders-0": self.partitions[-1].filled(*bases)})

    def scan(self) -> ScanReport:
        return scan(*self.dirs)

    def of(self, broker: int) -> Replica:
        (replica,) = [one for one in self.scan().replicas if one.replica_id.broker_id == broker]
        return replica


def test_a_directory_of_the_leader_that_ends_below_a_followers_high_watermark_is_old(tmp_path: Path) -> None:
    both = TwoBrokers(tmp_path)
    report = both.scan()
    assert set(reasons(both.of(1))) == {IneligibleReason.STALE_LOG_DIR}
    (error,) = report.errors
    assert error.path == str(both.dirs[0].path / "orders-0")
    assert "its log ends at 25, but broker 2, a follower in epoch 0, has the high watermark 45" in error.message
    found = source(*both.dirs).replica(both.of(1).replica_id)
    assert set(reasons(found)) == {IneligibleReason.STALE_LOG_DIR}


@pytest.mark.parametrize("high_watermark", [0, 20, 25])
def test_a_follower_that_is_ahead_of_what_is_replicated_says_nothing(tmp_path: Path, high_watermark: int) -> None:
    both = TwoBrokers(tmp_path)
    both.dirs[1].checkpoint(HIGH_WATERMARKS, {"orders-0": high_watermark})
    report = both.scan()
    assert report.errors == ()
    assert reasons(both.of(1)) == [None, None, ACTIVE]


def test_a_follower_of_an_earlier_epoch_says_nothing_an_unclean_election_cut_the_log(tmp_path: Path) -> None:
    both = TwoBrokers(tmp_path)
    both.partitions[0].epochs([(0, 0), (1, 25)])
    assert reasons(both.of(1)) == [None, None, ACTIVE]
    both.partitions[1].epochs([(0, 0), (2, 25)])
    assert set(reasons(both.of(1))) == {IneligibleReason.STALE_LOG_DIR}


def test_a_followers_high_watermark_of_another_log_says_nothing(tmp_path: Path) -> None:
    both = TwoBrokers(tmp_path)
    both.dirs[1].checkpoint(HIGH_WATERMARKS, {"orders-0": 3_000})
    report = both.scan()
    assert reasons(both.of(1)) == [None, None, ACTIVE]
    assert report.errors == ()
    (note,) = report.notes
    assert note.message == "the log ends at offset 45, but the broker's checkpoints have 3000"


class Interrupted(LogDirSource):
    """Calls `before` with the path of each log directory whose replicas are about to be read."""

    before: Callable[[str], None]

    def _replicas_in(self, identity: DirIdentity, *others: Any) -> Any:
        self.before(identity.path)
        return super()._replicas_in(identity, *others)


def test_a_leader_that_went_on_while_the_followers_directory_was_read(tmp_path: Path) -> None:
    both = TwoBrokers(tmp_path)
    grown = TwoBrokers(tmp_path / "grown")

    def go_on(path: str) -> None:
        if path == str(both.dirs[1].path):
            shutil.rmtree(both.partitions[0].path)
            shutil.copytree(grown.partitions[1].path, both.partitions[0].path)

    paths = [log_dir.path for log_dir in both.dirs]
    interrupted = Interrupted([LogDirLocation(None, path) for path in paths], MetadataLog(paths))
    interrupted.before = go_on
    report = interrupted.scan()
    assert report.errors == ()
    (leader,) = [one for one in report.replicas if one.chosen]
    assert (leader.replica_id.broker_id, leader.log_end_offset) == (1, 45)
    assert None in reasons(leader)


def _break(partition: PartitionDirectory, base: int) -> None:
    partition.file(base, "timeindex").unlink()


def test_damage_of_a_follower_is_noted_and_keeps_nothing(tmp_path: Path) -> None:
    both = TwoBrokers(tmp_path, leader=2)
    _break(both.partitions[0], 10)
    both.dirs[0].all_current({"orders-0": 3_000})
    report = both.scan()
    assert report.errors == ()
    assert sorted(note.message for note in report.notes) == [
        "missing, although its .log exists",
        "the log ends at offset 25, but the broker's checkpoints have 3000",
    ]
    assert reasons(both.of(2)).count(None) == 4


def test_a_follower_of_which_nothing_can_be_read_is_noted_and_keeps_nothing(tmp_path: Path) -> None:
    both = TwoBrokers(tmp_path, leader=2)
    (both.partitions[0].path / "partition.metadata").write_text("rubbish")
    report = both.scan()
    assert report.errors == ()
    assert [Path(note.path).name for note in report.notes] == ["partition.metadata"]
    assert reasons(both.of(2)).count(None) == 4


@pytest.mark.parametrize("damage", ["partition.metadata", f"{10:020d}.timeindex"])
def test_damage_of_the_leader_and_where_no_leader_is_known_is_an_error(tmp_path: Path, damage: str) -> None:
    for number, leader in enumerate((1, -1)):
        both = TwoBrokers(tmp_path / str(number), leader=leader)
        both.dirs[1].checkpoint(HIGH_WATERMARKS, {"orders-0": 25})
        (both.partitions[0].path / damage).unlink()
        report = both.scan()
        assert (len(report.errors), report.notes) == (1, ())


def test_damage_of_topics_that_are_never_copied_is_noted(tmp_path: Path) -> None:
    log_dir = BrokerLogDir(tmp_path / "data")
    log_dir.create_topic(configs={"cleanup.policy": "compact"})
    for name, topic_id in (("orders-0", ORDERS), ("__consumer_offsets-0", Uuid(b"internal-topic-0"))):
        partition = log_dir.partition(name, topic_id)
        partition.filled(0, 10, 20)
        _break(partition, 10)
    (log_dir.partition("__transaction_state-0").path / "partition.metadata").write_text("rubbish")
    report = scan(log_dir)
    assert report.errors == ()
    assert len(report.notes) == 3


def emptied(path: Path, policy: str, *, cleaned: bool) -> BrokerLogDir:
    """`orders` with segments at 0, 10, 20 and 30; nothing is left of the one at 10."""
    log_dir = BrokerLogDir(path / "data")
    log_dir.append_metadata(
        topic_record("orders", ORDERS), partition_record(ORDERS), config_record("orders", "cleanup.policy", policy)
    )
    partition = log_dir.partition()
    log_dir.all_current({"orders-0": partition.filled(0, 10, 20, 30)})
    for kind in ("log", "index", "timeindex"):
        partition.file(10, kind).write_bytes(b"")
    if cleaned:
        log_dir.checkpoint(CLEANED, {"orders-0": 20})
    return log_dir


@pytest.mark.parametrize("deep", [False, True])
def test_an_empty_rolled_segment_of_a_compacted_topic_is_not_worth_a_word(tmp_path: Path, deep: bool) -> None:
    for number, cleaned in enumerate((False, True)):
        report = scan(emptied(tmp_path / str(number), "compact", cleaned=cleaned), deep=deep)
        assert (report.errors, report.notes) == ((), ())
        assert set(reasons(report.replicas[0])) == {IneligibleReason.COMPACTED}


@pytest.mark.parametrize("deep", [False, True])
def test_an_empty_rolled_segment_of_a_topic_that_was_compacted_is_no_corruption(tmp_path: Path, deep: bool) -> None:
    report = scan(emptied(tmp_path, "delete", cleaned=True), deep=deep)
    assert (report.errors, report.notes) == ((), ())
    assert reasons(report.replicas[0]) == [
        None,
        IneligibleReason.COMPACTED_SEGMENT,
        None,
        ACTIVE,
    ]


@pytest.mark.parametrize("deep", [False, True])
def test_an_empty_rolled_segment_that_no_cleaner_left_is_damage(tmp_path: Path, deep: bool) -> None:
    report = scan(emptied(tmp_path, "delete", cleaned=False), deep=deep)
    (error,) = report.errors
    assert (Path(error.path).name, error.position) == (f"{10:020d}.log", 0)
    assert (error.error, error.message) == ("CorruptFileError", "a rolled segment without a batch")
    assert reasons(report.replicas[0]) == [None, IneligibleReason.CORRUPT, IneligibleReason.AFTER_CORRUPT, ACTIVE]
