"""The newest part of a leader's log as a partition directory: what a broker that loads it finds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from include.tiering.broker_process.sample import sample_of
from include.tiering.errors import RehearsalError
from include.tiering.formats.checkpoints import parse_partition_metadata
from include.tiering.formats.indexes import parse_producer_snapshot
from include.tiering.kafka.fetch_api.contract import Leader, RollRules
from include.tiering.kafka.fetch_api.newest_segments import LeaderLog, leader_logs_of, write_newest
from include.tiering.kafka.log_dirs.contract import IneligibleReason, Replica
from tests.doubles.broker_data import expected
from tests.doubles.leader_logs import FetchWorld
from tests.unit.kafka.fetch_api.test_cut_log import BATCH, batches, partitions, world_of

WEEK_MS = 7 * 86_400_000
BIG = 1 << 30


def log_of(world: FetchWorld, segment_bytes: int = 2 * BATCH, **more: IneligibleReason) -> LeaderLog:
    size_bytes = len(world.logs.logs[world.partition])
    roll = RollRules(segment_bytes, WEEK_MS)
    leader = Leader(1, world.model.leader_epoch)
    return LeaderLog(
        world.partition, leader, world.model.earliest, world.model.high_watermark, size_bytes, roll, 4096, **more
    )


def written(world: FetchWorld, log: LeaderLog, directory: Path, max_bytes: int = BIG) -> Replica:
    return write_newest(world.logs, log, directory, max_bytes, lambda _: None)


def spans(replica: Replica) -> list[tuple[int, int, bool]]:
    return [(one.base_offset, one.end_offset, one.active) for one in replica.segments]


def test_it_has_the_bytes_of_the_log(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5, 10) + batches(15, 20, leader_epoch=0))
    replica = written(world, log_of(world), tmp_path)
    assert spans(replica) == [(0, 9, False), (10, 19, False), (20, 24, True)]
    directory = tmp_path / "orders-0"
    files = sorted(directory.glob("*.log"))
    assert b"".join(file.read_bytes() for file in files) == world.logs.logs[world.partition]
    assert parse_partition_metadata((directory / "partition.metadata").read_bytes()) == world.partition.topic_id
    assert {one.reason for one in replica.segments} == {None, IneligibleReason.ACTIVE}
    assert sample_of(replica, BIG).size_bytes == 5 * BATCH


@pytest.mark.parametrize(("max_bytes", "first"), [(5 * BATCH, 0), (4 * BATCH, 5), (BATCH, 15), (1, 20)])
def test_what_does_not_fit_is_not_even_read(tmp_path: Path, max_bytes: int, first: int) -> None:
    world = world_of(tmp_path, batches(0, 5, 10, 15, 20))
    replica = written(world, log_of(world, BATCH), tmp_path, max_bytes)
    assert world.logs.reads[0][0] >= first
    assert replica.segments[-1].end_offset == 24
    kept = sum(one.size_bytes for one in replica.segments if not one.active)
    assert kept <= max(max_bytes, BATCH)
    names = {path.stem for path in (tmp_path / "orders-0").glob("0*.*")}
    assert names == {f"{one.base_offset:020d}" for one in replica.segments}


def test_a_log_whose_newest_records_are_larger_loses_its_oldest_segments(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(*range(0, 50, 5)))
    replica = written(world, replace(log_of(world), log_bytes=1), tmp_path, 4 * BATCH)
    assert spans(replica) == [(20, 29, False), (30, 39, False), (40, 49, True)]


def test_an_empty_log_has_an_active_segment(tmp_path: Path) -> None:
    world = world_of(tmp_path, b"")
    replica = written(world, log_of(world), tmp_path)
    assert spans(replica) == [(0, -1, True)]
    assert (tmp_path / "orders-0" / f"{0:020d}.log").read_bytes() == b""


def test_why_a_topic_may_not_be_copied_is_the_reason_of_each_segment(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5, 10))
    replica = written(world, log_of(world, refusal=IneligibleReason.COMPACTED), tmp_path)
    with pytest.raises(RehearsalError, match="compacted topic"):
        sample_of(replica, BIG)


@pytest.mark.parametrize("directory", partitions()[:3], ids=lambda path: path.name)
def test_the_directory_of_a_real_broker_is_written_again(directory: Path, tmp_path: Path) -> None:
    """The broker had left out producers that expired; it wrote no other than these."""
    logs = sorted(directory.glob("*.log"))
    topics = expected("public")["facts"]["topics"]
    segment_bytes = int(topics[directory.name.rpartition("-")[0]]["configs"]["internal.segment.bytes"])
    world = world_of(tmp_path, b"".join(log.read_bytes() for log in logs))
    world.model.earliest = int(logs[0].stem)
    world.model.leader_epoch = 1 << 20
    replica = written(world, log_of(world, segment_bytes), tmp_path)
    assert [one.base_offset for one in replica.segments] == [int(log.stem) for log in logs]
    for log in logs:
        ours = tmp_path / "orders-0" / log.name
        assert ours.read_bytes() == log.read_bytes()
        snapshot, theirs = ours.with_suffix(".snapshot"), log.with_suffix(".snapshot")
        if snapshot.exists() and theirs.exists():
            assert set(parse_producer_snapshot(theirs.read_bytes())) <= set(
                parse_producer_snapshot(snapshot.read_bytes())
            )


def test_a_leader_that_does_not_tell_the_size_of_its_log_is_named(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5))
    topic = world.brokers.topics(["orders"])["orders"]
    world.model.log_bytes = 2 * BATCH
    (found,) = leader_logs_of(world.brokers, topic, None)
    assert (found.log_bytes, found.high_watermark, found.roll.segment_bytes) == (2 * BATCH, 10, 2 * BATCH)
    silent: Any = world.brokers
    silent.log_sizes = lambda _leaders: {}
    with pytest.raises(RehearsalError, match="orders-0: broker 1 does not tell"):
        leader_logs_of(world.brokers, topic, None)
