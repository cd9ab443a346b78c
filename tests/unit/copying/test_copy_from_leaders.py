"""Copies from leaders' logs, by the protocol of every copy, over a real file store and a real SQLite database."""

import random
from pathlib import Path

import pytest

from include.tiering.clock import SystemClock
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.copying.plan import HeldBack
from include.tiering.errors import TieringError
from include.tiering.formats.indexes import parse_producer_snapshot
from include.tiering.formats.record_batch import ControlType
from include.tiering.kafka.fetch_api.spool import Spool, SpooledLog
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.segments import IndexType
from tests.doubles.deployment import Crash, World, crash
from tests.doubles.leader_logs import FetchWorld, headers_of
from tests.doubles.record_batches import data_batch, marker, record_batch

BATCH = len(record_batch(0, count=5))
LOG = b"".join(
    [
        record_batch(0, count=5),
        data_batch(5, 7, count=5),
        record_batch(10, count=5),
        marker(15, 7, ControlType.ABORT),
        record_batch(16, count=5, leader_epoch=2),
        record_batch(21, count=5, leader_epoch=2),
        record_batch(26, count=5, leader_epoch=2),
    ]
)
RANGES = [(0, 9), (10, 15), (16, 25)]


@pytest.fixture
def leaders(world: World, tmp_path: Path) -> FetchWorld:
    """The source of `world`; the last batch closes the third range."""
    spool = tmp_path / "spool"
    spool.mkdir()
    found = FetchWorld(Spool(spool, 1 << 20, SystemClock()), LOG, segment_bytes=2 * BATCH)
    found.model.leader_epoch = 2
    world.source = found.source  # type: ignore[assignment]
    return found


def replica_of(leaders: FetchWorld, leader: int = 1) -> ReplicaId:
    return ReplicaId(leaders.partition, leader, "fetch")


def bytes_between(base: int, end: int) -> bytes:
    return b"".join(
        LOG[position : position + header.size_bytes]
        for position, header in headers_of(LOG)
        if base <= header.base_offset and header.last_offset <= end
    )


def require_right_bytes(world: World, leaders: FetchWorld) -> None:
    """Whatever is FINISHED has the bytes of the log that nobody disturbed."""
    for row in world.metadata.list_segments(leaders.partition):
        if row.metadata.is_finished:
            stored = b"".join(world.storage.fetch_log_segment(row.metadata, limiter=world.limiter))
            assert stored == bytes_between(row.metadata.start_offset, row.metadata.end_offset)


def test_every_closed_range_is_copied_with_its_files(world: World, leaders: FetchWorld) -> None:
    leaders.scan()
    world.plan()
    assert world.batch().failed == ()
    assert world.offsets(replica_of(leaders)) == RANGES
    require_right_bytes(world, leaders)
    first, second, third = (row.metadata for row in world.metadata.list_segments(leaders.partition))
    (producer,) = parse_producer_snapshot(world.storage.fetch_index(first, IndexType.PRODUCER_SNAPSHOT))
    assert (producer.producer_id, producer.current_txn_first_offset) == (7, 5)
    assert len(world.storage.fetch_index(second, IndexType.TRANSACTION)) == 34
    assert world.storage.fetch_index(third, IndexType.LEADER_EPOCH) == b"0\n2\n0 0\n2 16\n"


@pytest.mark.parametrize("step", [step for step in CopyStep if not step.startswith(("delete", "objects"))])
def test_a_worker_that_is_killed_after_a_step_is_followed_by_another(
    world: World, leaders: FetchWorld, step: CopyStep
) -> None:
    leaders.scan()
    world.plan()
    world.at[step, 10] = crash
    with pytest.raises(Crash):
        world.batch()
    spool = Spool(world.store.parent / "spool", 1 << 20, SystemClock())
    world.source = leaders.new_source(spool)  # type: ignore[assignment]
    assert world.batch().failed == ()
    assert world.offsets(replica_of(leaders)) == RANGES
    assert world.objects() == len(RANGES) * 3
    require_right_bytes(world, leaders)
    assert [known.base_offset for known in leaders.stored()] == [0, 10, 16, 26]


def test_a_leader_that_moves_during_a_copy_finishes_nothing_and_the_new_one_is_read(
    world: World, leaders: FetchWorld
) -> None:
    leaders.scan()
    world.plan()

    def move() -> None:
        leaders.model.leader, leaders.model.leader_epoch = 2, 3

    world.at[CopyStep.SENT, 10] = move
    world.batch()
    assert world.offsets(replica_of(leaders)) == RANGES[:1]
    leaders.scan()
    world.plan("again")
    world.batch("again", "again/0")
    assert world.offsets(replica_of(leaders, 2)) == RANGES
    require_right_bytes(world, leaders)


def test_a_range_of_another_history_does_not_continue_what_is_copied(world: World, leaders: FetchWorld) -> None:
    """An unclean election between two segments, and a plan that has cut the new log, at the same offsets and sizes."""
    leaders.replace(b"".join(record_batch(base, count=5) for base in range(0, 30, 5)))
    leaders.model.leader_epoch = 0
    leaders.scan()
    world.plan()

    def elect() -> None:
        kept, more = record_batch(0, count=5), (record_batch(base, count=5, leader_epoch=1) for base in range(5, 30, 5))
        leaders.replace(kept + b"".join(more))
        leaders.model.leader_epoch = 1
        leaders.scan()

    world.at[CopyStep.FINISHED, 0] = elect
    world.batch()
    assert [known.base_offset for known in leaders.stored()] == [0, 10, 20]
    assert world.offsets(replica_of(leaders)) == [(0, 9)]


@pytest.mark.parametrize("position", [0, 8, 70])
def test_a_spool_that_returns_other_bytes_finishes_nothing(
    world: World, leaders: FetchWorld, monkeypatch: pytest.MonkeyPatch, position: int
) -> None:
    """In a base offset, a length, a record: an object has the checksum of what was checked, or there is none."""
    leaders.scan()
    world.plan()
    read_into, is_damaged = SpooledLog.read_into, True

    def damaged(log: SpooledLog, at: int, buffer: memoryview) -> int:
        count = read_into(log, at, buffer)
        if is_damaged and at <= position < at + count:
            buffer[position - at] ^= 1
        return count

    monkeypatch.setattr(SpooledLog, "read_into", damaged)
    result = world.batch()
    assert [failed.item.error for failed in result.failed] == ["RemoteChecksumError"]
    assert world.offsets(replica_of(leaders)) == []
    assert world.objects() == 0
    is_damaged = False
    world.plan("again")
    assert world.batch("again", "again/0").failed == ()
    assert world.offsets(replica_of(leaders)) == RANGES
    require_right_bytes(world, leaders)


def test_a_log_start_that_rises_above_the_range_during_a_copy_finishes_nothing(
    world: World, leaders: FetchWorld
) -> None:
    leaders.scan()
    world.plan()
    world.at[CopyStep.SENT, 10] = lambda: setattr(leaders.model, "earliest", 16)
    world.batch()
    assert world.offsets(replica_of(leaders)) == RANGES[:1]


@pytest.mark.parametrize("base", [0, 10])
def test_a_whole_copy_of_a_range_that_lost_its_first_offsets_is_finished_before_the_rest_is_cut_again(
    world: World, leaders: FetchWorld, base: int
) -> None:
    """Its first offsets are nowhere else: the worker was killed, and then a broker deleted a segment of its own."""
    leaders.replace(b"".join(record_batch(at, count=5) for at in range(0, 45, 5)))
    leaders.model.leader_epoch = 0
    leaders.scan()
    world.plan()
    world.at[CopyStep.SENT, base] = crash
    with pytest.raises(Crash):
        world.batch()
    leaders.model.earliest = base + 5
    highest = world.metadata.highest_copied_offset(leaders.partition)
    leaders.source.find_segments(topics=None, copied_to=lambda _: highest, go_on=lambda _: None)
    assert base + 5 in [known.base_offset for known in leaders.stored()]
    for run in ("again", "once more"):
        assert world.planned(run).held_back == ()
        world.plan(run)
        assert world.batch(run, f"{run}/0").failed == ()
    found = world.offsets(replica_of(leaders))
    assert found == [(at, at + 9) for at in range(0, base + 1, 10)] + [(at, at + 9) for at in range(base + 5, 30, 10)]


def test_a_log_that_ends_below_what_was_copied_after_an_unclean_election_is_a_divergence_at_once(
    world: World, leaders: FetchWorld
) -> None:
    """The new leader has less than is remote, in another history, and that was read to its end."""
    leaders.scan()
    world.plan()
    assert world.batch().failed == ()
    leaders.replace(
        bytes_between(0, 4) + b"".join(record_batch(base, count=5, leader_epoch=3) for base in range(5, 20, 5))
    )
    leaders.model.leader_epoch = 3
    leaders.scan()
    (held,) = world.planned("again").held_back
    assert held.reason is HeldBack.DIVERGENCE
    assert [divergence.seen.offsets for divergence in world.metadata.divergences(leaders.partition)] == [(5, 25)]


def test_a_topic_that_is_created_again_during_a_copy_finishes_nothing(world: World, leaders: FetchWorld) -> None:
    leaders.scan()
    world.plan()
    world.at[CopyStep.SENT, 10] = lambda: leaders.brokers.create_topic("orders")
    world.batch()
    assert world.offsets(replica_of(leaders)) == RANGES[:1]


@pytest.mark.parametrize("seed", range(4))
def test_behind_a_lying_proxy_nothing_wrong_is_finished_and_the_work_is_done(
    world: World, leaders: FetchWorld, seed: int
) -> None:
    source = random.Random(seed)
    leaders.logs.alter = lambda records: altered(records, source) if source.random() < 0.5 else records
    for number in range(40):
        try:
            leaders.scan()
            world.plan(f"run-{number}")
            world.batch(f"run-{number}", f"run-{number}/0")
        except TieringError:
            continue
        require_right_bytes(world, leaders)
        if world.offsets(replica_of(leaders)) == RANGES:
            return
    raise AssertionError(f"copied only {world.offsets(replica_of(leaders))}")


def altered(records: bytes, source: random.Random) -> bytes:
    """Whole batches in another order, repeated or left out, or a cut; no checksum is wrong."""
    parts = [records[position : position + header.size_bytes] for position, header in headers_of(records)]
    match source.randrange(4):
        case 0:
            source.shuffle(parts)
        case 1:
            parts.insert(source.randrange(len(parts) + 1), source.choice(parts))
        case 2:
            del parts[source.randrange(len(parts))]
        case 3:
            return records[: source.randrange(len(records))]
    return b"".join(parts)
