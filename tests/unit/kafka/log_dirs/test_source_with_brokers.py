"""Log directories whose brokers can be asked: exact bounds, and what does not agree with the leader is not read."""

from pathlib import Path

import pytest

from include.tiering.errors import BrokersLoginError, BrokersUnavailableError, SourceChangedError
from include.tiering.kafka.cluster.cluster_metadata import AdminClusterMetadata
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import BoundsQuality, IneligibleReason, Replica, ScanReport
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.model.segments import Uuid
from tests.doubles.log_dirs import CLUSTER_ID, HIGH_WATERMARKS, LOG_STARTS, ORDERS, BrokerLogDir
from tests.doubles.model_brokers import ModelBrokers, ModelPartition

ACTIVE = IneligibleReason.ACTIVE


class World:
    """Topic `orders` on broker 1: segments at 0, 10, and the active one at 20, whose log ends at 25.

    Checkpoints are an hour old, and know nothing beyond offset 5.
    """

    def __init__(self, path: Path) -> None:
        self.log_dir = BrokerLogDir(path / "data")
        self.log_dir.create_topic()
        self.log_dir.partition(epochs=((4, 0),)).filled(0, 10, 20, leader_epoch=4)
        self.log_dir.all_current({"orders-0": 25})
        self.log_dir.checkpoint(HIGH_WATERMARKS, {"orders-0": 5})
        self.brokers = ModelBrokers(CLUSTER_ID)
        self.brokers.create_topic("orders", topic_id=ORDERS)
        self.leader.leader_epoch = 4
        self.leader.high_watermark = 25

    @property
    def leader(self) -> ModelPartition:
        return self.brokers.partition(ORDERS, 0)

    def source(self) -> LogDirSource:
        paths = [self.log_dir.path]
        cluster_metadata = AdminClusterMetadata(self.brokers, MetadataLog(paths))
        return LogDirSource(
            [LogDirLocation(1, path) for path in paths], cluster_metadata, brokers=self.brokers, named_topics=["orders"]
        )

    def scan(self) -> ScanReport:
        return self.source().scan()

    def replica(self) -> Replica:
        (replica,) = self.scan().replicas
        return replica


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def _reasons(replica: Replica) -> list[IneligibleReason | None]:
    return [segment.reason for segment in replica.segments]


def test_what_the_leader_says_counts_not_what_checkpoints_say(world: World) -> None:
    report = world.scan()
    (replica,) = report.replicas
    assert report.errors == ()
    assert replica.bounds is BoundsQuality.EXACT
    assert (replica.high_watermark, replica.last_stable_offset, replica.leader_epoch) == (25, 25, 4)
    assert _reasons(replica) == [None, None, ACTIVE]


def test_nothing_at_or_above_the_stable_offset_or_the_high_watermark(world: World) -> None:
    world.leader.last_stable_offset = 12
    assert _reasons(world.replica()) == [None, IneligibleReason.ABOVE_LAST_STABLE_OFFSET, ACTIVE]
    world.leader.high_watermark = 9
    world.leader.last_stable_offset = 9
    assert _reasons(world.replica())[0] is IneligibleReason.ABOVE_HIGH_WATERMARK


def test_the_log_start_is_the_leaders(world: World) -> None:
    world.leader.earliest = 10
    replica = world.replica()
    assert (replica.log_start_offset, _reasons(replica)[0]) == (10, IneligibleReason.BELOW_LOG_START)


def test_of_a_topic_that_its_broker_tiers_the_log_start_is_that_of_the_remote_log(world: World) -> None:
    world.brokers.alter_topic_configs("orders", {"remote.storage.enable": "true"})
    world.log_dir.checkpoint(LOG_STARTS, {"orders-0": 0})
    replica = world.replica()
    assert (replica.log_start_offset, replica.owner_is_broker) == (0, True)
    assert set(_reasons(replica)) == {IneligibleReason.BROKER_TIERED}


def test_the_leader_is_asked_before_its_directory_is_read(world: World) -> None:
    def appended_meanwhile(method: str) -> None:
        if method == "partition_offsets":
            world.leader.high_watermark = 1_000

    world.brokers.after_call = appended_meanwhile
    assert world.replica().bounds is BoundsQuality.EXACT


def test_a_directory_that_ends_below_the_high_watermark_is_stale(world: World) -> None:
    world.leader.high_watermark = 26
    report = world.scan()
    (replica,) = report.replicas
    assert set(_reasons(replica)) == {IneligibleReason.STALE_LOG_DIR}
    assert replica.bounds is BoundsQuality.LOWER
    (error,) = report.errors
    assert error.path == str(world.log_dir.path / "orders-0")
    assert "its log ends at 25, but broker 1, which leads it in epoch 4, has replicated up to 26" in error.message


def test_a_directory_with_a_later_epoch_than_the_leaders_is_another_history(world: World) -> None:
    world.leader.leader_epoch = 3
    report = world.scan()
    assert set(_reasons(report.replicas[0])) == {IneligibleReason.STALE_LOG_DIR}
    assert "it has leader epoch 4" in report.errors[0].message


def test_a_leader_that_does_not_say_its_offsets_is_not_guessed(world: World) -> None:
    world.brokers.refuse_partition(ORDERS, 0, BrokersUnavailableError("partition orders-0 has no leader just now"))
    report = world.scan()
    (replica,) = report.replicas
    assert set(_reasons(replica)) == {IneligibleReason.OFFSETS_UNKNOWN}
    assert [error.message for error in report.errors] == ["partition orders-0 has no leader just now"]


def test_a_leader_that_changes_between_metadata_and_offsets_is_not_believed(world: World) -> None:
    def elected_meanwhile(method: str) -> None:
        if method == "topics":
            world.leader.leader_epoch = 5

    world.brokers.after_call = elected_meanwhile
    report = world.scan()
    assert set(_reasons(report.replicas[0])) == {IneligibleReason.OFFSETS_UNKNOWN}
    assert "was broker 1 in epoch 4, then broker 1 in epoch 5" in report.errors[0].message


def test_a_replica_that_is_not_the_leaders_has_lower_bounds_and_no_error(world: World) -> None:
    world.leader.leader = 2
    report = world.scan()
    (replica,) = report.replicas
    assert replica.bounds is BoundsQuality.LOWER
    assert set(_reasons(replica)) == {IneligibleReason.NOT_LEADER}
    assert report.errors == ()


def test_without_a_leader_a_replica_is_not_read_by_lower_bounds(world: World) -> None:
    world.leader.leader = -1
    report = world.scan()
    assert set(_reasons(report.replicas[0])) == {IneligibleReason.OFFSETS_UNKNOWN}
    assert [error.message for error in report.errors] == ["it has no leader just now"]


def test_naming_a_topic_does_not_stand_in_for_brokers_that_do_not_know_it(world: World) -> None:
    world.brokers.delete_topic("orders")
    report = world.scan()
    assert set(_reasons(report.replicas[0])) == {IneligibleReason.OFFSETS_UNKNOWN}
    assert "has no such partition of its topic id" in report.errors[0].message
    world.brokers.create_topic("orders")
    assert set(_reasons(world.replica())) == {IneligibleReason.TOPIC_REMOVED}


def test_without_an_answer_there_is_no_scan_and_no_lower_bound(world: World) -> None:
    for method in ("cluster_id", "partition_offsets"):
        world.brokers.fail(method, BrokersUnavailableError("no answer"))
        with pytest.raises(BrokersUnavailableError):
            world.scan()
    (replica,) = world.scan().replicas
    world.brokers.fail("partition_offsets", BrokersUnavailableError("no answer"))
    with pytest.raises(BrokersUnavailableError):
        world.source().replica(replica.replica_id)


def test_a_login_that_is_refused_is_listed_and_nothing_is_eligible(world: World) -> None:
    world.brokers.fail("cluster_id", BrokersLoginError("user me: login failed"))
    report = world.scan()
    assert set(_reasons(report.replicas[0])) == {IneligibleReason.TOPIC_UNKNOWN}
    assert [(error.error, error.message) for error in report.errors] == [("BrokersLoginError", "user me: login failed")]


def test_a_topic_that_may_not_be_seen_does_not_hide_the_others(world: World) -> None:
    world.log_dir.partition("secret-0", Uuid(b"secret-topic-id0")).filled(0, 10)
    world.brokers.create_topic("secret", topic_id=Uuid(b"secret-topic-id0"))
    world.brokers.forbidden_topics.add("secret")
    report = world.scan()
    by_topic = {replica.topic_id_partition.topic: replica for replica in report.replicas}
    assert by_topic["orders"].bounds is BoundsQuality.EXACT
    assert set(_reasons(by_topic["secret"])) == {IneligibleReason.TOPIC_UNKNOWN}
    assert [error.error for error in report.errors] == ["BrokersForbiddenError"]


def test_brokers_of_another_cluster_are_no_reason_to_read_a_directory(world: World) -> None:
    world.brokers.id = "another-cluster-id-000"
    report = world.scan()
    assert report.replicas == ()
    (error,) = report.errors
    assert f"belongs to cluster {CLUSTER_ID}, not another-cluster-id-000" in error.message


def test_a_copy_stops_where_the_leader_changes_before_it_is_finished(world: World) -> None:
    (replica,) = world.scan().replicas
    source = world.source()
    with source.open_segment(replica.replica_id, 0) as segment:
        segment.check()
        segment.recheck()
        world.leader.leader_epoch = 5
        with pytest.raises(SourceChangedError, match="leader epoch was 4, now 5"):
            segment.recheck()
        world.leader.leader_epoch = 4
        world.brokers.fail("topic", BrokersUnavailableError("no answer"))
        with pytest.raises(SourceChangedError, match="cannot be evaluated now: no answer"):
            segment.recheck()


def test_a_directory_with_an_id_to_which_the_brokers_give_another_name(world: World) -> None:
    world.log_dir.partition("trimmed-0").filled(0, 10, 20)
    report = world.scan()
    by_name = {replica.topic_id_partition.topic: replica for replica in report.replicas}
    assert _reasons(by_name["trimmed"]) == [IneligibleReason.TOPIC_CONTRADICTED] * 3
    assert _reasons(by_name["orders"]) == [None, None, ACTIVE]
    (error,) = report.errors
    assert error.message.endswith(f"its topic id is {ORDERS}, which the cluster calls orders")
