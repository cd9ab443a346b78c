"""Bugs of Kafka's copying that were fixed: each named after its ticket, none to be made again."""

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from include.tiering.copying.plan import CopyPlan
from include.tiering.copying.plan_copy import plan_copy
from include.tiering.copying.run_scope import RunScope
from include.tiering.database.engine import open_engine
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import ScanReport
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.sizes.compare import compare_tiers
from tests.doubles.databases import migrated_database
from tests.doubles.deployment import Deployment
from tests.doubles.log_dirs import BrokerLogDir
from tests.doubles.segments import CLUSTER_ID, finish, lease_of, segment_of

NOW_MS = 1_700_000_100_000


class World(Deployment):
    """A log dir with topic `orders`: rolled segments at 0 and 10, an empty active one at 20; nothing is remote."""

    def __init__(self, engine: Engine, tmp_path: Path) -> None:
        super().__init__(engine)
        self.tmp_path = tmp_path
        log_dir = BrokerLogDir(tmp_path / "data")
        log_dir.create_topic()
        partition = log_dir.partition()
        partition.filled(0, 10, 20)
        partition.segment(20, [])
        log_dir.all_current({"orders-0": 20})
        self.source = LogDirSource([LogDirLocation(None, log_dir.path)], MetadataLog([log_dir.path]))
        self.cluster_metadata = MetadataLog([log_dir.path])
        self.report = self.source.scan()
        (self.replica,) = self.report.replicas
        self.partition = self.replica.topic_id_partition
        self.own(self.partition)

    def copied(self, base: int, end: int) -> None:
        lease = lease_of(self.engine, self.partition, f"copy-{base}")
        finish(self.metadata, segment_of(self.partition, base, base, end), lease.fence)
        self.work.release(lease)

    def plan(self, report: ScanReport | None = None) -> CopyPlan:
        return plan_copy(
            "run",
            report or self.report,
            scope=RunScope(),
            metadata=self.metadata,
            registry=self.registry,
            cluster_metadata=self.cluster_metadata,
            now_ms=NOW_MS,
        )


@pytest.fixture
def world(tmp_path: Path):
    with migrated_database(tmp_path) as engine:
        yield World(engine, tmp_path)


def bases(plan: CopyPlan) -> list[int]:
    return [segment.base_offset for partition in plan.partitions for segment in partition.segments]


def test_kafka_15272_the_segment_that_rolled_last_is_copied_from_an_idle_topic(world: World) -> None:
    """The active segment behind it is empty, and nothing more will be written."""
    assert [(one.base_offset, one.end_offset, one.active) for one in world.replica.segments] == [
        (0, 9, False),
        (10, 19, False),
        (20, 19, True),
    ]
    assert bases(world.plan()) == [0, 10]


def test_kafka_16711_after_a_move_to_another_directory_the_copy_goes_on_where_it_was(world: World) -> None:
    world.copied(0, 9)
    moved = replace(world.replica, replica_id=replace(world.replica.replica_id, directory_id="another"))
    assert bases(world.plan(ScanReport(world.report.cluster_id, (moved,), ()))) == [10]


@pytest.mark.parametrize(("copied", "segments"), [((), 2), ((0,), 1), ((0, 10), 0)])
def test_kafka_16895_the_copy_lag_counts_each_segment_once(
    world: World, copied: tuple[int, ...], segments: int
) -> None:
    """Neither the active segment nor the last one that is remote."""
    for base in copied:
        world.copied(base, base + 9)
    (lag,) = compare_tiers(world.report, world.metadata, world.registry, NOW_MS).copy_lags
    sizes = [one.size_bytes for one in world.replica.segments if not one.active]
    assert (lag.segments, lag.size_bytes) == (segments, sum(sizes[len(copied) :]))


def test_kafka_16146_the_log_start_is_kept_where_a_restart_finds_it(world: World) -> None:
    world.copied(0, 9)
    world.metadata.raise_log_start(world.partition, 10, reason="time", author="test")
    world.engine.dispose()
    again = open_engine(f"sqlite:///{world.tmp_path / 'metadata.sqlite'}")
    assert SqlRemoteLogMetadata(again, CLUSTER_ID).retention_state(world.partition).log_start_offset == 10
    again.dispose()
