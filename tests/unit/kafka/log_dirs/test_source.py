"""Scans of log directories of one or several brokers: what is believed, chosen, eligible, and reported."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from include.tiering.errors import (
    ClusterMetadataError,
    MetadataUnavailableError,
    SettingError,
    SourceUnreadableError,
    SourceVanishedError,
)
from include.tiering.kafka.cluster.cluster_metadata import UnknownClusterMetadata
from include.tiering.kafka.cluster.contract import ClusterMetadata
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import IneligibleReason, ReplicaId, ScanReport
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.doubles.log_dirs import (
    CLEANED,
    CLUSTER_ID,
    HIGH_WATERMARKS,
    LOG_STARTS,
    ORDERS,
    RECOVERY_POINTS,
    BrokerLogDir,
)
from tests.doubles.record_batches import old_batch, record_batch
from tests.doubles.tiered_topic import partition_record, topic_record

HEX = "0123456789abcdef" * 2
AGAIN = Uuid(b"orders-topic-id1")
ACTIVE = IneligibleReason.ACTIVE


def _source(*log_dirs: BrokerLogDir, cluster_metadata: ClusterMetadata | None = None, **options: Any) -> LogDirSource:
    paths = [log_dir.path for log_dir in log_dirs]
    return LogDirSource(
        [LogDirLocation(None, path) for path in paths], cluster_metadata or MetadataLog(paths), **options
    )


def _reasons(report: ScanReport, broker_id: int = 1) -> list[IneligibleReason | None]:
    (replica,) = [replica for replica in report.replicas if replica.replica_id.broker_id == broker_id]
    return [segment.reason for segment in replica.segments]


@pytest.fixture
def log_dir(tmp_path: Path) -> BrokerLogDir:
    """Topic `orders`: rolled segments at 0 and 10, the active one at 20."""
    made = BrokerLogDir(tmp_path / "data")
    made.create_topic()
    made.all_current({"orders-0": made.partition().filled(0, 10, 20)})
    return made


def test_a_sound_directory(log_dir: BrokerLogDir) -> None:
    report = _source(log_dir).scan()
    (replica,) = report.replicas
    assert report.errors == ()
    assert report.cluster_id == CLUSTER_ID
    assert replica.replica_id == ReplicaId(TopicIdPartition(ORDERS, 0, "orders"), 1, str(log_dir.directory_id))
    assert (replica.log_start_offset, replica.log_end_offset) == (0, 25)
    assert (replica.high_watermark, replica.last_stable_offset, replica.recovery_point) == (25, 25, 25)
    assert replica.chosen
    assert _reasons(report) == [None, None, ACTIVE]
    assert [(s.base_offset, s.end_offset) for s in replica.segments] == [(0, 9), (10, 19), (20, 24)]


def test_what_no_checkpoint_names_is_known_to_be_replicated_nowhere(tmp_path: Path) -> None:
    """Not even its first record: the brokers have not said so yet."""
    made = BrokerLogDir(tmp_path / "data")
    made.create_topic()
    made.partition().filled(0, 1, 20)
    made.all_current({"payments-0": 20})
    report = _source(made).scan()
    (replica,) = report.replicas
    assert (replica.log_start_offset, replica.high_watermark, replica.recovery_point) == (0, 0, 0)
    assert replica.last_stable_offset == 0
    assert _reasons(report) == [IneligibleReason.ABOVE_HIGH_WATERMARK, IneligibleReason.ABOVE_HIGH_WATERMARK, ACTIVE]


def test_topics_are_selected_by_patterns(log_dir: BrokerLogDir) -> None:
    source = _source(log_dir)
    assert len(source.scan(topics=["ord*"]).replicas) == 1
    assert source.scan(topics=["other"]).replicas == ()
    assert source.scan(topics=[]).replicas == ()


def test_one_replica_is_read_again(log_dir: BrokerLogDir) -> None:
    source = _source(log_dir)
    (scanned,) = source.scan().replicas
    assert source.replica(scanned.replica_id) == scanned
    log_dir.checkpoint(HIGH_WATERMARKS, {"orders-0": 12})
    assert source.replica(scanned.replica_id).high_watermark == 12


def test_a_replica_that_is_not_there_any_more(log_dir: BrokerLogDir) -> None:
    source = _source(log_dir)
    replica_id = source.scan().replicas[0].replica_id
    with pytest.raises(SourceVanishedError, match="no readable log directory"):
        source.replica(ReplicaId(replica_id.topic_id_partition, 9, replica_id.directory_id))
    partition = log_dir.path / "orders-0" / "partition.metadata"
    partition.write_text(f"version: 0\ntopic_id: {AGAIN}")
    with pytest.raises(SourceVanishedError, match=f"topic id was {ORDERS}, now {AGAIN}"):
        source.replica(replica_id)
    shutil.rmtree(log_dir.path / "orders-0")
    with pytest.raises(SourceVanishedError, match="orders-0: no such file"):
        source.replica(replica_id)


def test_what_cannot_be_opened_names_the_host(log_dir: BrokerLogDir) -> None:
    source = _source(log_dir)
    replica_id = source.scan().replicas[0].replica_id
    shutil.rmtree(log_dir.path / "orders-0")
    (log_dir.path / "orders-0").touch()
    with pytest.raises(SourceUnreadableError, match="not a directory on host"), source.open_segment(replica_id, 0):
        pass


def test_a_path_that_is_not_there_names_the_host(tmp_path: Path) -> None:
    report = LogDirSource([LogDirLocation(1, tmp_path / "nowhere")], UnknownClusterMetadata()).scan()
    (error,) = report.errors
    assert error.error == "SourceVanishedError"
    assert "on host" in error.message


@pytest.mark.parametrize(
    ("meta", "error", "message"),
    [
        (None, "SourceVanishedError", "no such file"),
        ("version=1\nnode.id=1\n", "CorruptFileError", "lacks cluster.id"),
        ("broker.id=1\n", "CorruptFileError", "lacks the cluster id"),
        (
            "version=1\nnode.id=8\ncluster.id=c\n",
            "ClusterMetadataError",
            "belongs to broker 8, the settings say broker 1",
        ),
    ],
)
def test_a_directory_is_believed_after_its_meta_properties(
    log_dir: BrokerLogDir, meta: str | None, error: str, message: str
) -> None:
    path = log_dir.path / "meta.properties"
    path.unlink()
    if meta is not None:
        path.write_text(meta)
    report = LogDirSource([LogDirLocation(1, log_dir.path)], UnknownClusterMetadata()).scan()
    assert report.replicas == ()
    assert [(e.error, message in e.message) for e in report.errors] == [(error, True)]
    assert report.errors[0].path.startswith(str(log_dir.path))


def test_directories_of_two_clusters_are_not_mixed(tmp_path: Path, log_dir: BrokerLogDir) -> None:
    other = BrokerLogDir(tmp_path / "other", broker_id=2, cluster_id="another-cluster")
    other.partition("orders-1").filled(0, 10)
    for cluster_metadata in (UnknownClusterMetadata(), MetadataLog([log_dir.path])):
        report = _source(log_dir, other, cluster_metadata=cluster_metadata).scan()
        assert len(report.replicas) == 1
        assert [error.path for error in report.errors] == [str(other.path)]
        assert "another-cluster, not" in report.errors[0].message


def test_a_directory_and_its_copy_are_not_both_read(tmp_path: Path, log_dir: BrokerLogDir) -> None:
    shutil.copytree(log_dir.path, tmp_path / "copy")
    source = LogDirSource(
        [LogDirLocation(1, log_dir.path), LogDirLocation(1, tmp_path / "copy")], MetadataLog([log_dir.path])
    )
    report = source.scan()
    assert len(report.replicas) == 1
    assert "both are directory" in report.errors[0].message


def test_a_directory_given_twice_is_a_wrong_setting(log_dir: BrokerLogDir) -> None:
    with pytest.raises(SettingError, match="given twice"):
        _source(log_dir, log_dir, cluster_metadata=UnknownClusterMetadata())


def test_unknown_topics_must_be_named(log_dir: BrokerLogDir) -> None:
    cluster_metadata = UnknownClusterMetadata()
    assert _reasons(_source(log_dir, cluster_metadata=cluster_metadata).scan()) == [IneligibleReason.TOPIC_UNKNOWN] * 3
    assert (
        _reasons(_source(log_dir, cluster_metadata=cluster_metadata, named_topics=["*"]).scan())
        == [IneligibleReason.TOPIC_UNKNOWN] * 3
    )
    assert _reasons(_source(log_dir, cluster_metadata=cluster_metadata, named_topics=["orders"]).scan()) == [
        None,
        None,
        ACTIVE,
    ]


def test_unreadable_metadata_makes_topics_unknown_but_a_scan_goes_on(log_dir: BrokerLogDir) -> None:
    source = _source(log_dir)
    source.scan()
    log_dir.append_metadata(b"\x02garbage")
    log_dir.append_metadata(topic_record("other", AGAIN))
    report = source.scan()
    assert [(e.error, e.path.rpartition("/")[2]) for e in report.errors] == [("ClusterMetadataError", f"{0:020d}.log")]
    assert report.errors[0].position is not None
    assert _reasons(report) == [IneligibleReason.TOPIC_UNKNOWN] * 3
    with pytest.raises(ClusterMetadataError):
        source.replica(report.replicas[0].replica_id)


def test_metadata_are_read_anew_by_every_scan(log_dir: BrokerLogDir) -> None:
    source = _source(log_dir)
    source.scan()
    (log_dir.path / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {AGAIN}")
    assert _reasons(source.scan()) == [IneligibleReason.TOPIC_REMOVED] * 3
    log_dir.append_metadata(topic_record("orders", AGAIN), partition_record(AGAIN))
    assert _reasons(source.scan()) == [None, None, ACTIVE]


def test_a_cleaner_checkpoint_gives_compaction_away(log_dir: BrokerLogDir) -> None:
    log_dir.checkpoint(CLEANED, {"orders-0": 10})
    assert _reasons(_source(log_dir).scan()) == [IneligibleReason.COMPACTED] * 3


def test_missing_checkpoints_mean_nothing_is_safe(log_dir: BrokerLogDir) -> None:
    (log_dir.path / RECOVERY_POINTS).unlink()
    assert _reasons(_source(log_dir).scan()) == [IneligibleReason.NOT_FLUSHED] * 2 + [ACTIVE]
    (log_dir.path / HIGH_WATERMARKS).unlink()
    report = _source(log_dir).scan()
    assert _reasons(report) == [IneligibleReason.ABOVE_HIGH_WATERMARK] * 2 + [ACTIVE]
    assert report.errors == ()


def test_an_unflushed_segment_is_eligible_if_other_brokers_hold_it(tmp_path: Path) -> None:
    log_dir = BrokerLogDir(tmp_path / "data")
    log_dir.create_topic(configs={"min.insync.replicas": "2"})
    log_dir.append_metadata(partition_record(ORDERS, replicas=(1, 2), isr=(1, 2)))
    log_dir.checkpoint(HIGH_WATERMARKS, {"orders-0": log_dir.partition().filled(0, 10, 20)})
    assert _reasons(_source(log_dir).scan()) == [None, None, ACTIVE]


def test_retention_is_asked_per_topic(log_dir: BrokerLogDir) -> None:
    cut_off = 1_700_000_000_010
    report = _source(log_dir, retention=lambda topic: cut_off if topic and topic.topic == "orders" else None).scan()
    assert _reasons(report) == [IneligibleReason.PAST_RETENTION, None, ACTIVE]


def test_the_log_start_is_the_highest_that_is_known(log_dir: BrokerLogDir) -> None:
    log_dir.checkpoint(LOG_STARTS, {"orders-0": 10})
    report = _source(log_dir).scan()
    assert report.replicas[0].log_start_offset == 10
    assert _reasons(report) == [IneligibleReason.BELOW_LOG_START, None, ACTIVE]
    # The checkpoint lags, the epochs are cut at once.
    (log_dir.path / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 15\n")
    report = _source(log_dir).scan()
    assert report.replicas[0].log_start_offset == 15
    assert _reasons(report) == [IneligibleReason.BELOW_LOG_START, None, ACTIVE]


@pytest.mark.parametrize(("start", "is_kept"), [(24, True), (25, True), (26, False), (27, False)])
def test_a_leader_epoch_that_begins_behind_the_logs_end_is_not_this_logs(
    log_dir: BrokerLogDir, start: int, is_kept: bool
) -> None:
    """The log ends at 25. A new leader writes its epoch down before its first record."""
    (log_dir.path / "orders-0" / "leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n7 {start}\n")
    (replica,) = _source(log_dir).scan().replicas
    assert replica.leader_epochs == LeaderEpochs.of([(0, 0), (7, start)] if is_kept else [(0, 0)])


def test_batches_from_before_there_were_epochs_are_not_below_the_log_start(tmp_path: Path) -> None:
    log_dir = BrokerLogDir(tmp_path / "data")
    log_dir.create_topic()
    partition = log_dir.partition(epochs=((4, 10),))
    partition.segment(0, [record_batch(0, count=10, leader_epoch=-1)], next_base=10)
    partition.segment(10, [record_batch(10, count=10, leader_epoch=4)], next_base=20)
    partition.segment(20, [])
    log_dir.all_current({"orders-0": 20})
    report = _source(log_dir).scan()
    assert report.replicas[0].log_start_offset == 0
    assert _reasons(report) == [IneligibleReason.NO_LEADER_EPOCH, None, ACTIVE]


def test_a_replica_that_was_fetched_of_a_cleaned_log_begins_where_its_file_does(tmp_path: Path) -> None:
    """Its leader epochs begin with the first batch that it was given. What lay before was compacted away, and nobody
    raised the log start over it."""
    log_dir = BrokerLogDir(tmp_path / "data")
    log_dir.create_topic()
    partition = log_dir.partition(epochs=((4, 7),))
    partition.segment(0, [record_batch(7, count=3, leader_epoch=4)], next_base=10)
    partition.segment(10, [record_batch(10, count=10, leader_epoch=4)], next_base=20)
    partition.segment(20, [])
    log_dir.all_current({"orders-0": 20})
    assert _source(log_dir).scan().replicas[0].log_start_offset == 0
    log_dir.checkpoint(LOG_STARTS, {"orders-0": 7})
    assert _source(log_dir).scan().replicas[0].log_start_offset == 7


def test_old_magic_is_found_by_a_deep_verification_and_is_no_damage(tmp_path: Path) -> None:
    log_dir = BrokerLogDir(tmp_path / "data")
    log_dir.create_topic()
    partition = log_dir.partition()
    partition.filled(0, 10, 20)
    partition.file(0, "log").write_bytes(old_batch(0, 1) * 3)
    log_dir.all_current({"orders-0": 25})
    report = _source(log_dir).scan(deep=True)
    assert _reasons(report) == [IneligibleReason.OLD_MAGIC, None, ACTIVE]
    assert report.errors == ()
    partition.file(20, "log").write_bytes(old_batch(20, 1))
    partition.file(20, "index").write_bytes(b"")
    log_dir.all_current({"orders-0": 20})
    report = _source(log_dir).scan()
    assert _reasons(report) == [None, None, ACTIVE]
    assert report.replicas[0].log_end_offset == 20


@pytest.mark.parametrize(
    ("suffix", "reason"),
    [
        ("delete", IneligibleReason.BEING_DELETED),
        ("stray", IneligibleReason.BEING_DELETED),
        ("future", IneligibleReason.BEING_MOVED),
    ],
)
def test_directories_on_their_way_are_listed_and_left_alone(
    log_dir: BrokerLogDir, suffix: str, reason: IneligibleReason
) -> None:
    log_dir.partition(f"orders-1.{HEX}-{suffix}").filled(0, 10)
    report = _source(log_dir).scan()
    assert report.errors == ()
    assert [(r.topic_id_partition.partition, r.chosen) for r in report.replicas] == [(0, True), (1, False)]
    assert {segment.reason for segment in report.replicas[1].segments} == {reason}


def test_both_replicas_are_listed_and_the_leaders_is_eligible(tmp_path: Path) -> None:
    first, second = BrokerLogDir(tmp_path / "1", broker_id=1), BrokerLogDir(tmp_path / "2", broker_id=2)
    for log_dir in (first, second):
        log_dir.append_metadata(topic_record("orders", ORDERS), partition_record(ORDERS, replicas=(1, 2), leader=2))
        log_dir.all_current({"orders-0": log_dir.partition().filled(0, 10, 20)})
    report = _source(first, second).scan()
    assert _reasons(report, 1) == [IneligibleReason.NOT_LEADER] * 3
    assert _reasons(report, 2) == [None, None, ACTIVE]


def test_one_partition_in_two_directories_of_a_broker(tmp_path: Path) -> None:
    first, second = BrokerLogDir(tmp_path / "1", directory=1), BrokerLogDir(tmp_path / "2", directory=2)
    first.append_metadata(topic_record("orders", ORDERS), partition_record(ORDERS))
    for log_dir in (first, second):
        log_dir.all_current({"orders-0": log_dir.partition().filled(0, 10, 20)})
    report = _source(first, second).scan()
    assert {s.reason for r in report.replicas for s in r.segments} == {IneligibleReason.AMBIGUOUS_REPLICA}
    first.append_metadata(partition_record(ORDERS, directories=(second.directory_id,)))
    report = _source(first, second).scan()
    assert [r.replica_id.directory_id for r in report.replicas if r.chosen] == [str(second.directory_id)]


def test_directories_of_old_brokers_have_no_id_but_their_path(log_dir: BrokerLogDir) -> None:
    meta = log_dir.path / "meta.properties"
    meta.write_text(f"version=0\nbroker.id=1\ncluster.id={CLUSTER_ID}\n")
    source = _source(log_dir)
    (replica,) = source.scan().replicas
    assert replica.replica_id.directory_id == str(log_dir.path)
    assert source.replica(replica.replica_id) == replica


def test_files_on_their_way_in_or_out_are_not_seen(log_dir: BrokerLogDir) -> None:
    before = _source(log_dir).scan()
    for name in ("log.deleted", "index.cleaned", "log.swap", "snapshot.tmp"):
        (log_dir.path / "orders-0" / f"{5:020d}.{name}").write_bytes(b"x")
    assert _source(log_dir).scan() == before


def test_a_log_that_ends_before_what_the_broker_knew_lost_something(log_dir: BrokerLogDir) -> None:
    log_dir.checkpoint(HIGH_WATERMARKS, {"orders-0": 30})
    (error,) = _source(log_dir).scan().errors
    assert error.path.endswith(f"orders-0/{20:020d}.log")
    assert error.message == "the log ends at offset 25, but the broker's checkpoints have 30"


def test_an_empty_time_index_leaves_it_to_the_batches_then_to_the_file(log_dir: BrokerLogDir) -> None:
    partition = log_dir.path / "orders-0"
    (partition / f"{0:020d}.timeindex").write_bytes(b"")
    assert _source(log_dir).scan().replicas[0].segments[0].max_timestamp_ms == 1_700_000_000_009
    unstamped = record_batch(0, count=1, timestamp_ms=-1)
    (partition / f"{0:020d}.log").write_bytes(unstamped)
    (partition / f"{0:020d}.index").write_bytes(b"")
    modified_ms = (partition / f"{0:020d}.log").stat().st_mtime_ns // 1_000_000
    for deep in (False, True):
        assert _source(log_dir).scan(deep=deep).replicas[0].segments[0].max_timestamp_ms == modified_ms


CONTRADICTED = IneligibleReason.TOPIC_CONTRADICTED


def test_a_directory_with_the_id_of_another_topic(tmp_path: Path) -> None:
    """The cluster knows the id, under another name: nothing of the directory is read."""
    log_dir = BrokerLogDir(tmp_path / "data")
    log_dir.create_topic("trimmed", AGAIN)
    log_dir.create_topic("never-written", ORDERS)
    log_dir.all_current({"trimmed-0": log_dir.partition("trimmed-0", ORDERS).filled(0, 10, 20)})
    source = _source(log_dir, named_topics=["trimmed"])
    report = source.scan()
    (replica,) = report.replicas
    assert not replica.chosen
    assert _reasons(report) == [CONTRADICTED] * 3
    assert _reasons(ScanReport(None, (source.replica(replica.replica_id),), ())) == [CONTRADICTED] * 3
    (error,) = report.errors
    assert error.path == str(log_dir.path / "trimmed-0" / "partition.metadata")
    assert error.message == (
        f"cluster metadata contradicts what is on disk: its topic id is {ORDERS}, which the cluster calls never-written"
    )


@pytest.mark.parametrize("misnamed_on", [1, 2])
def test_a_directory_with_the_id_of_a_topic_that_is_there(tmp_path: Path, misnamed_on: int) -> None:
    """It never stands for the other one, whoever leads, and holds nothing of it up."""
    first, second = BrokerLogDir(tmp_path / "1", broker_id=1), BrokerLogDir(tmp_path / "2", broker_id=2)
    dirs = {1: first, 2: second}
    for number, log_dir in dirs.items():
        records = [topic_record("orders", ORDERS), partition_record(ORDERS, replicas=(1, 2), leader=misnamed_on)]
        log_dir.append_metadata(*records)
        log_dir.all_current({"orders-0": log_dir.partition().filled(0, 10, 20)})
        if number == misnamed_on:
            log_dir.partition("trimmed-0", ORDERS).filled(0, 10, 20, 30)
    report = _source(first, second, named_topics=["orders", "trimmed"]).scan()
    by_name = {(replica.topic_id_partition.topic, replica.replica_id.broker_id): replica for replica in report.replicas}
    wrong = by_name["trimmed", misnamed_on]
    assert {segment.reason for segment in wrong.segments} == {CONTRADICTED}
    right = by_name["orders", misnamed_on]
    assert right.chosen
    assert [segment.reason for segment in right.segments] == [None, None, ACTIVE]
    assert len(report.errors) == 1


def test_without_metadata_two_names_of_one_id_are_both_refused(tmp_path: Path) -> None:
    first, second = BrokerLogDir(tmp_path / "1", broker_id=1), BrokerLogDir(tmp_path / "2", broker_id=2)
    first.all_current({"orders-0": first.partition().filled(0, 10, 20)})
    second.all_current({"trimmed-0": second.partition("trimmed-0", ORDERS).filled(0, 10, 20)})
    source = _source(first, second, cluster_metadata=UnknownClusterMetadata(), named_topics=["orders", "trimmed"])
    report = source.scan()
    assert {segment.reason for replica in report.replicas for segment in replica.segments} == {CONTRADICTED}
    assert [error.message.rpartition(", ")[2] for error in report.errors] == ["which directories of two names have"] * 2


def _archived_as(name: str) -> dict[str, Any]:
    return {
        "cluster_metadata": UnknownClusterMetadata(),
        "recorded": {ORDERS: name}.get,
        "named_topics": ["orders", "trimmed"],
    }


def test_without_metadata_a_directory_whose_topic_id_was_archived_under_another_name(tmp_path: Path) -> None:
    log_dir = BrokerLogDir(tmp_path / "data")
    log_dir.all_current({"trimmed-0": log_dir.partition("trimmed-0", ORDERS).filled(0, 10, 20)})
    source = _source(log_dir, **_archived_as("orders"))
    report = source.scan()
    (replica,) = report.replicas
    assert not replica.chosen
    assert _reasons(report) == [CONTRADICTED] * 3
    (error,) = report.errors
    assert error.path == str(log_dir.path / "trimmed-0" / "partition.metadata")
    assert error.message == (
        f"cluster metadata contradicts what is on disk: its topic id is {ORDERS}, which was archived as orders"
    )
    assert _reasons(ScanReport(None, (source.replica(replica.replica_id),), ())) == [CONTRADICTED] * 3
    with source.open_segment(replica.replica_id, 0) as opened:
        assert opened.segment.reason is CONTRADICTED
    by_its_name = _source(log_dir, **_archived_as("trimmed")).scan()
    assert by_its_name.replicas[0].chosen
    assert _reasons(by_its_name) == [None, None, ACTIVE]


def test_without_metadata_the_directory_of_the_archived_name_goes_on_beside_another(tmp_path: Path) -> None:
    first, second = BrokerLogDir(tmp_path / "1", broker_id=1), BrokerLogDir(tmp_path / "2", broker_id=2)
    first.all_current({"orders-0": first.partition().filled(0, 10, 20)})
    second.all_current({"trimmed-0": second.partition("trimmed-0", ORDERS).filled(0, 10, 20)})
    report = _source(first, second, **_archived_as("orders")).scan()
    by_name = {replica.topic_id_partition.topic: replica for replica in report.replicas}
    assert by_name["orders"].chosen
    assert [segment.reason for segment in by_name["orders"].segments] == [None, None, ACTIVE]
    assert {segment.reason for segment in by_name["trimmed"].segments} == {CONTRADICTED}
    assert len(report.errors) == 1


def test_what_the_cluster_says_of_a_name_comes_before_what_was_archived(log_dir: BrokerLogDir) -> None:
    def recorded(_: Uuid) -> str:
        raise AssertionError("asked, although the cluster knows the id")

    assert _reasons(_source(log_dir, recorded=recorded).scan()) == [None, None, ACTIVE]


def test_a_scan_without_a_database_compares_no_archived_name_and_opening_a_segment_needs_it(tmp_path: Path) -> None:
    log_dir = BrokerLogDir(tmp_path / "data")
    log_dir.all_current({"orders-0": log_dir.partition().filled(0, 10, 20)})

    def recorded(_: Uuid) -> str:
        raise MetadataUnavailableError("away")

    source = _source(log_dir, cluster_metadata=UnknownClusterMetadata(), recorded=recorded, named_topics=["orders"])
    report = source.scan()
    assert _reasons(report) == [None, None, ACTIVE]
    with pytest.raises(MetadataUnavailableError), source.open_segment(report.replicas[0].replica_id, 0):
        pass


@pytest.mark.parametrize("cluster_metadata", [None, UnknownClusterMetadata()])
def test_a_directory_that_is_being_deleted_under_a_shortened_name_is_no_contradiction(
    log_dir: BrokerLogDir, cluster_metadata: ClusterMetadata | None
) -> None:
    log_dir.partition(f"ord-0.{HEX}-delete").filled(0, 10, 20)
    report = _source(
        log_dir, cluster_metadata=cluster_metadata, recorded={ORDERS: "orders"}.get, named_topics=["orders"]
    ).scan()
    assert not report.errors
    live = next(replica for replica in report.replicas if replica.topic_id_partition.topic == "orders")
    assert [segment.reason for segment in live.segments] == [None, None, ACTIVE]
