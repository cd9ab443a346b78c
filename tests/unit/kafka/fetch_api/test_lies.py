"""Answers of leaders that no log leads to: none of them becomes part of a range or of a copy."""

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from include.tiering.clock import SystemClock
from include.tiering.errors import (
    CorruptFileError,
    SourceChangedError,
    SourceVanishedError,
    UnusableBatchesError,
)
from include.tiering.formats.record_batch import BatchHeader
from include.tiering.kafka.fetch_api.fetched_batches import FetchedBatches, FetchFault, read_batches
from include.tiering.kafka.fetch_api.spool import Spool
from include.tiering.kafka.log_dirs.contract import ReplicaId
from tests.doubles.leader_logs import FetchWorld, headers_of
from tests.doubles.record_batches import old_batch, record_batch

BATCH = len(record_batch(0, count=5))
LOG = b"".join(record_batch(base, count=5, leader_epoch=base // 10) for base in range(0, 30, 5))


def world_of(tmp_path: Path, log: bytes = LOG) -> FetchWorld:
    world = FetchWorld(Spool(tmp_path, 1 << 20, SystemClock()), log, segment_bytes=2 * BATCH)
    world.model.leader_epoch = 2
    return world


def fault_of(records: bytes, *, offset: int = 0, leader_epoch: int = -1, may_begin_below: bool = False) -> FetchFault:
    with pytest.raises(UnusableBatchesError) as raised:
        list(
            read_batches(
                records,
                path="orders-0",
                position=0,
                offset=offset,
                leader_epoch=leader_epoch,
                high_watermark=30,
                may_begin_below=may_begin_below,
            )
        )
    return FetchFault(raised.value.message.partition(":")[0])


def headers(found: Iterable[FetchedBatches]) -> list[BatchHeader]:
    return [batch.header for each in found for batch in each.batches]


def flipped(log: bytes, position: int) -> bytes:
    damaged = bytearray(log)
    damaged[position] ^= 1
    return bytes(damaged)


BATCHES = [LOG[position : position + header.size_bytes] for position, header in headers_of(LOG)]
LIES: dict[str, tuple[bytes, FetchFault]] = {
    "the first batch is cut": (LOG[: BATCH - 1], FetchFault.CUT),
    "not even a header": (LOG[:40], FetchFault.CUT),
    "a batch is repeated": (BATCHES[0] + BATCHES[0], FetchFault.OLD),
    "an old answer": (BATCHES[0] + BATCHES[1] + BATCHES[0] + BATCHES[1], FetchFault.OLD),
    "a batch is left out": (BATCHES[0] + BATCHES[2], FetchFault.MISSING),
    "batches change places": (BATCHES[1] + BATCHES[0], FetchFault.MISSING),
    "a record is damaged": (flipped(LOG, 70), FetchFault.DAMAGED),
    "a length is damaged": (LOG[:8] + bytes(4) + LOG[12:], FetchFault.DAMAGED),
    "an old format": (old_batch(0, 1) + LOG, FetchFault.DAMAGED),
    "no leader epoch": (record_batch(0, count=5, leader_epoch=-1), FetchFault.EPOCH),
    "a leader epoch falls": (
        record_batch(0, count=5, leader_epoch=2) + record_batch(5, count=5, leader_epoch=1),
        FetchFault.EPOCH,
    ),
    "more than is replicated": (LOG + record_batch(30, leader_epoch=2), FetchFault.ABOVE_HIGH_WATERMARK),
}


@pytest.mark.parametrize("name", LIES)
def test_each_lie_has_its_fault(name: str) -> None:
    records, fault = LIES[name]
    assert fault_of(records) is fault


def test_a_first_batch_below_the_requested_offset_must_hold_it() -> None:
    assert fault_of(BATCHES[0], offset=3) is FetchFault.OLD
    assert fault_of(BATCHES[0], offset=5, may_begin_below=True) is FetchFault.OLD
    found = list(
        read_batches(
            BATCHES[0],
            path="orders-0",
            position=0,
            offset=3,
            leader_epoch=-1,
            high_watermark=5,
            may_begin_below=True,
        )
    )
    assert [header.base_offset for header in headers(found)] == [0]


def test_an_epoch_below_that_of_the_range_before_is_a_lie() -> None:
    assert fault_of(BATCHES[0], leader_epoch=1) is FetchFault.EPOCH


def test_an_answer_may_end_anywhere() -> None:
    for size in range(BATCH, len(LOG)):
        (found,) = list(
            read_batches(
                LOG[:size],
                path="orders-0",
                position=0,
                offset=0,
                leader_epoch=-1,
                high_watermark=30,
                may_begin_below=False,
            )
        )
        assert (found.size_bytes, len(found.batches)) == (size // BATCH * BATCH, size // BATCH)
        assert found.answer.view[: found.size_bytes] == LOG[: size // BATCH * BATCH]


def shuffled(records: bytes, source: random.Random) -> bytes:
    """The same batches with their CRCs intact: cut, repeated, left out, in another order, or as they are."""
    parts = [records[position : position + header.size_bytes] for position, header in headers_of(records)]
    match source.randrange(6):
        case 0:
            source.shuffle(parts)
        case 1:
            parts.insert(source.randrange(len(parts) + 1), source.choice(BATCHES))
        case 2:
            del parts[source.randrange(len(parts))]
        case 3:
            return b"".join(parts)[: source.randrange(len(records))]
    return b"".join(parts)


@pytest.mark.parametrize("seed", range(25))
def test_behind_a_lying_proxy_ranges_are_right_and_the_work_is_done(tmp_path: Path, seed: int) -> None:
    honest, world, source = world_of(tmp_path), world_of(tmp_path), random.Random(seed)
    honest.scan()
    world.logs.alter = lambda records: shuffled(records, source) if records else records
    for _ in range(100):
        world.scan()
        if len(world.stored()) == len(honest.stored()):
            break
    assert world.stored()[:-1] == honest.stored()[:-1]
    replica_id = ReplicaId(world.partition, 1, "fetch")
    for known in world.stored()[:-1]:
        at = known.base_offset // 5 * BATCH
        assert copied_bytes(world, replica_id, known.base_offset) == LOG[at : at + known.size_bytes]


def copied_bytes(world: FetchWorld, replica_id: ReplicaId, base_offset: int) -> bytes:
    """As a copy does: opened anew until all checks pass."""
    for _ in range(200):
        with world.source.open_segment(replica_id, base_offset) as opened:
            try:
                data = opened.check().data
            except (CorruptFileError, SourceChangedError):
                with pytest.raises(SourceChangedError):
                    opened.recheck()
                continue
            opened.recheck()
            read = bytearray(data.log.size_bytes)
            data.log.read_into(0, memoryview(read))
            return bytes(read)
    raise AssertionError("never copied")


# Between the cut and the copy, and during the copy.


def opened_after(tmp_path: Path, change: Callable[[FetchWorld], None]) -> str:
    """What the check, or the check after it, says when the world changes before the range is opened."""
    world = world_of(tmp_path)
    (replica,) = world.scan().replicas
    change(world)
    with (
        pytest.raises((SourceChangedError, CorruptFileError)) as raised,
        world.source.open_segment(replica.replica_id, 10) as opened,
    ):
        opened.check()
    return str(raised.value)


def test_other_bytes_than_when_it_was_cut(tmp_path: Path) -> None:
    def rewrite(world: FetchWorld) -> None:
        world.replace(
            b"".join(record_batch(base, count=5, leader_epoch=base // 10, timestamp_ms=5) for base in range(0, 30, 5))
        )

    assert "CRC-32C was" in opened_after(tmp_path, rewrite)


def test_more_bytes_than_when_it_was_cut(tmp_path: Path) -> None:
    def rewrite(world: FetchWorld) -> None:
        world.replace(
            b"".join(record_batch(base, count=5, leader_epoch=base // 10, value_bytes=30) for base in range(0, 30, 5))
        )

    assert "now has more" in opened_after(tmp_path, rewrite)


def test_fewer_bytes_than_when_it_was_cut(tmp_path: Path) -> None:
    def truncate(world: FetchWorld) -> None:
        world.replace(LOG[: 3 * BATCH])
        world.model.high_watermark = 30

    assert "size was" in opened_after(tmp_path, truncate)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda world: setattr(world.model, "leader", 2), "leader was 1 in epoch 2, now 2 in epoch 2"),
        (lambda world: setattr(world.model, "leader_epoch", 3), "leader was 1 in epoch 2, now 1 in epoch 3"),
        (lambda world: setattr(world.model, "earliest", 20), "log start offset was 0, now 20"),
        (lambda world: setattr(world.model, "last_stable_offset", 19), "last stable offset was 30, now 19"),
        (lambda world: world.brokers.create_topic("orders"), "topic orders has id .* now, not"),
        (
            lambda world: world.brokers.alter_topic_configs("orders", {"cleanup.policy": "compact"}),
            "reason not to copy the topic was None, now compacted topic",
        ),
        (lambda world: world.brokers.delete_topic("orders"), "there is no topic orders"),
        (lambda world: world.replace(LOG[: 3 * BATCH]), "last stable offset was 30, now 15"),
    ],
)
def test_a_change_during_the_copy_is_noticed(
    tmp_path: Path, change: Callable[[FetchWorld], None], message: str
) -> None:
    world = world_of(tmp_path)
    (replica,) = world.scan().replicas
    with world.source.open_segment(replica.replica_id, 10) as opened:
        opened.check()
        opened.recheck()
        change(world)
        with pytest.raises((SourceChangedError, SourceVanishedError), match=message):
            opened.recheck()


def test_another_history_under_the_same_leader_epoch_is_noticed(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    (replica,) = world.scan().replicas
    with world.source.open_segment(replica.replica_id, 10) as opened:
        opened.check()
        world.replace(LOG[: 3 * BATCH] + b"".join(record_batch(base, count=5, leader_epoch=2) for base in (15, 20, 25)))
        with pytest.raises(SourceChangedError, match="leader epoch was 1 up to 20, now 1 up to 15"):
            opened.recheck()


def test_the_topic_id_is_asked_for_after_all_that_names_the_topic(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    (replica,) = world.scan().replicas
    epoch_end = world.logs.epoch_end

    def create_again(*arguments):
        found = epoch_end(*arguments)
        world.brokers.create_topic("orders")
        return found

    with world.source.open_segment(replica.replica_id, 10) as opened:
        opened.check()
        world.logs.epoch_end = create_again  # type: ignore[method-assign]
        with pytest.raises(SourceChangedError):
            opened.recheck()


def test_a_batch_that_reaches_over_the_end_of_its_range_is_noticed(tmp_path: Path) -> None:
    def rewrite(world: FetchWorld) -> None:
        world.replace(LOG[: 3 * BATCH] + record_batch(15, count=15, leader_epoch=1))

    assert "ended at offset 19, now in a batch up to 29" in opened_after(tmp_path, rewrite)


def test_nothing_stays_in_the_directory_of_the_spool(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    (replica,) = world.scan().replicas
    with world.source.open_segment(replica.replica_id, 0):
        assert list(tmp_path.iterdir()) == []
