"""A deployment with bootstrap servers and the log directory of one of two brokers.

Partition 0 of `orders` is led by broker 1, whose directory is in the settings, partition 1 by broker 2.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from include.tiering.app import App, open_app
from include.tiering.copying.plan import HeldBack
from include.tiering.copying.report import present_scan
from include.tiering.kafka.log_dirs.contract import IneligibleReason, ScanReport
from include.tiering.kafka.log_dirs.rules import merged
from include.tiering.model.segments import TopicIdPartition
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.runs.contract import ANYWHERE
from include.tiering.settings import load_settings
from tests.doubles.leader_logs import ModelLogs
from tests.doubles.log_dirs import CLUSTER_ID, ORDERS, BrokerLogDir
from tests.doubles.model_brokers import ModelBrokers, ModelPartition
from tests.doubles.quotas import SameLimiter
from tests.doubles.record_batches import record_batch
from tests.unit.app.test_leaders import LogsOfProcess

IN_DIRECTORY, ELSEWHERE = (TopicIdPartition(ORDERS, number, "orders") for number in (0, 1))
BATCH = len(record_batch(0, count=5, timestamp_ms=1_700_000_000_000))
LOG = b"".join(record_batch(at, count=5, timestamp_ms=1_700_000_000_000 + at) for at in range(0, 35, 5))


class Both:
    """The directory rolls at 10, 20 and 30; the topic's segment.bytes at each third batch."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log_dir = BrokerLogDir(root / "data")
        self.log_dir.partition().filled(0, 10, 20, 30)
        self.log_dir.checkpoint("recovery-point-offset-checkpoint", {"orders-0": 35})
        self.brokers = ModelBrokers(CLUSTER_ID, brokers=(1, 2))
        configs = {"min.insync.replicas": "2", "segment.bytes": str(3 * BATCH)}
        self.brokers.create_topic("orders", topic_id=ORDERS, partitions=2, configs=configs)
        for number in (0, 1):
            model = self.model(number)
            model.high_watermark = 35
            model.replicas = model.isr = (1, 2)
        self.model(1).leader = 2
        self.logs = ModelLogs(self.brokers, {IN_DIRECTORY: LOG, ELSEWHERE: LOG})

    def model(self, number: int) -> ModelPartition:
        return self.brokers.partition(ORDERS, number)

    @contextmanager
    def opened(self) -> Iterator[App]:
        environ = {
            "HOME": str(self.root),
            "TIERING_CLUSTER__BOOTSTRAP_SERVERS": "localhost:1",
            "TIERING_LEADERS__SPOOL_DIRECTORY": str(self.root),
            "TIERING_LOG_DIRS": f"1:{self.log_dir.path}",
            "TIERING_METADATA__URL": f"sqlite:///{self.root / 'metadata.sqlite'}",
            "TIERING_REMOTE_STORAGE__URL": (self.root / "store").as_uri(),
            "TIERING_TOPICS__INCLUDE": "orders",
        }
        quotas: Any = SameLimiter(UnlimitedBytes())
        with open_app(load_settings(environ=environ), quotas=quotas) as app:
            adapters: Any = app.adapters
            adapters.brokers = self.brokers
            adapters.leader_logs = LogsOfProcess(self.logs)
            yield app

    def copy(self, run_id: str) -> None:
        with self.opened() as app:
            app.copying.plan(run_id)
            assert app.copying.run_batch(run_id, f"{run_id}.0").failed == ()

    def offsets(self, partition: TopicIdPartition) -> list[tuple[int, int]]:
        """Of what is FINISHED, all of which has the bytes of the log."""
        with self.opened() as app:
            rows = [row.metadata for row in app.adapters.stores.metadata.list_segments(partition)]
            for row in rows:
                stored = b"".join(app.adapters.storage.fetch_log_segment(row, limiter=UnlimitedBytes()))
                assert stored == LOG[row.start_offset // 5 * BATCH : (row.end_offset + 1) // 5 * BATCH]
        return sorted(((row.start_offset, row.end_offset) for row in rows), key=lambda offsets: offsets[1])


@pytest.fixture
def both(tmp_path: Path) -> Both:
    made = Both(tmp_path)
    with made.opened() as app:
        app.set_up.migrate()
    return made


def read_from(report: ScanReport) -> dict[int, tuple[int, bool]]:
    """The broker of the chosen replica of each partition, and whether it is asked over the network."""
    return {
        replica.topic_id_partition.partition: (replica.replica_id.broker_id, replica.found_to is not None)
        for replica in report.replicas
        if replica.chosen
    }


def test_each_partition_is_read_where_its_leader_can_be_read_and_a_scan_says_where(both: Both) -> None:
    with both.opened() as app:
        report = app.log_dirs.scan_all()
        assert read_from(report) == {0: (1, False), 1: (2, True)}
        (table, *_) = present_scan(report).tables()
        assert [row[table.columns.index("read from")] for row in table.rows] == ["log dir", "leader"]
        plan = app.copying.plan("run", dry_run=True)
        assert {found.placement for found in plan.partitions} == {ANYWHERE}
    both.copy("run")
    assert both.offsets(IN_DIRECTORY) == [(0, 9), (10, 19), (20, 29)]
    assert both.offsets(ELSEWHERE) == [(0, 14), (15, 29)]
    assert {offset for offset, _ in both.logs.reads} <= {0, 15}, "only the log that has no directory is read"
    with both.opened() as app:
        assert app.copying.plan("again").segments == 0


def test_a_directory_that_cannot_be_read_is_named_and_its_partitions_are_not_fetched(both: Both) -> None:
    both.log_dir.path.rename(both.root / "unmounted")
    with both.opened() as app:
        report = app.log_dirs.scan_all()
        assert read_from(report) == {1: (2, True)}
        assert [error.path for error in report.errors] == [str(both.log_dir.path)]
        plan = app.copying.plan("run")
        assert [found.replica_id.topic_id_partition for found in plan.partitions] == [ELSEWHERE]
        (held,) = plan.held_back
        assert (held.topic_id_partition, held.reason) == (IN_DIRECTORY, HeldBack.OUT_OF_SIGHT)
        assert str(both.log_dir.path) in held.detail
        app.copying.run_batch("run", "run.0")
    assert both.offsets(ELSEWHERE) == [(0, 14), (15, 29)]
    (both.root / "unmounted").rename(both.log_dir.path)
    both.copy("again")
    assert both.offsets(IN_DIRECTORY) == [(0, 9), (10, 19), (20, 29)]


def test_a_leader_that_moves_to_a_broker_without_a_directory_is_read_from_its_next_segment_on(both: Both) -> None:
    """As after every move: the segment of the new leader that has the next offset is taken whole."""
    both.model(0).high_watermark = 15
    both.copy("run")
    assert both.offsets(IN_DIRECTORY) == [(0, 9)]
    both.model(0).high_watermark = 35
    both.model(0).leader, both.model(0).leader_epoch = 2, 1
    both.copy("moved")
    assert both.offsets(IN_DIRECTORY) == [(0, 9), (0, 14), (15, 29)]
    with both.opened() as app:
        assert app.operations.diagnose("orders")


def test_offsets_that_a_leader_never_had_to_be_read_for_are_no_divergence(both: Both) -> None:
    """Broker 2 leads, then broker 1, which copies two leader epochs, then broker 2 again, with a higher log start."""

    def batches(*bases: int, epoch: int) -> list[bytes]:
        return [record_batch(at, count=5, timestamp_ms=1_700_000_000_000 + at, leader_epoch=epoch) for at in bases]

    model = both.model(1)
    both.logs.logs[ELSEWHERE], model.high_watermark = b"".join(batches(0, 5, 10, 15, epoch=0)), 20
    both.copy("first")
    directory = both.log_dir.partition("orders-1", epochs=[(0, 0), (1, 15), (2, 30)])
    directory.segment(0, batches(0, 5, 10, epoch=0), next_base=15)
    directory.segment(15, batches(15, 20, 25, epoch=1), next_base=30)
    directory.segment(30, batches(30, 35, 40, epoch=2), next_base=45)
    directory.segment(45, batches(45, epoch=2))
    both.log_dir.checkpoint("recovery-point-offset-checkpoint", {"orders-0": 35, "orders-1": 50})
    model.leader, model.leader_epoch, model.high_watermark = 1, 2, 50
    both.copy("second")
    model.leader, model.leader_epoch, model.earliest, model.high_watermark = 2, 3, 60, 100
    both.logs.logs[ELSEWHERE] = b"".join(batches(*range(60, 100, 5), epoch=3))
    with both.opened() as app:
        (held,) = app.copying.plan("third").held_back
        assert (held.reason, held.hole) == (HeldBack.HOLE, (45, 59))
        assert not app.adapters.stores.metadata.divergences(ELSEWHERE)


def test_without_partitions_elsewhere_no_database_is_needed(both: Both) -> None:
    (both.root / "metadata.sqlite").unlink()
    both.model(1).leader = 1
    with both.opened() as app:
        assert read_from(app.log_dirs.scan_all()) == {0: (1, False)}


def test_a_partition_that_both_would_read_is_read_by_none(both: Both) -> None:
    """Its leader moved between the two questions."""
    with both.opened() as app:
        files = app.adapters.source.scan()
        both.model(0).leader, both.model(0).leader_epoch = 2, 1
        source: Any = app.adapters.source
        leaders = source.others.source().scan()
    report = merged([ScanReport(files.cluster_id, files.replicas[:1], ()), leaders])
    assert read_from(report) == {1: (2, True)}
    refused = [replica for replica in report.replicas if replica.topic_id_partition == IN_DIRECTORY]
    assert len(refused) == 2
    assert not any(segment.eligible for replica in refused for segment in replica.segments)
    assert IneligibleReason.AMBIGUOUS_REPLICA in {segment.reason for segment in refused[0].segments}


def test_retention_by_size_counts_no_bytes_of_a_log_whose_files_are_not_known(both: Both) -> None:
    both.copy("run")
    with both.opened() as app:
        report = app.log_dirs.scan_files(["orders"])
        assert [replica.topic_id_partition for replica in report.replicas] == [IN_DIRECTORY]
        assert set(app.log_dirs.log_ends(["orders"])) == {IN_DIRECTORY}


def test_the_free_space_of_a_broker_without_a_directory_is_asked_for(both: Both) -> None:
    both.brokers.disk_free_bytes = {1: 77, 2: 78}
    with both.opened() as app:
        actions = app.handover_ports.actions
        assert actions.free_bytes(2) == 78
        assert actions.free_bytes(1) not in (77, None)


def test_the_free_space_of_a_directory_that_is_not_mounted_is_not_that_of_its_mount_point(both: Both) -> None:
    both.log_dir.path.rename(both.root / "unmounted")
    both.log_dir.path.mkdir()
    with both.opened() as app:
        assert app.handover_ports.actions.free_bytes(1) is None
