"""The source changes under one of four transfers of a partition: what becomes FINISHED then, and by the next run."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from include.tiering.copying.copy_segment import CopyStep
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.segments.stored_copies import WholeCopy
from tests.doubles.deployment import World
from tests.doubles.patience import PATIENCE_SECONDS
from tests.doubles.quotas import SameLimiter

CHANGED = 10
FOUR = [(0, 9), (10, 19), (20, 29), (30, 39)]
Change = Callable[[World, ReplicaId], None]


def replaced(world: World, _orders: ReplicaId) -> None:
    """Other files under the same names."""
    world.source.generation += 1


def truncated(world: World, orders: ReplicaId) -> None:
    """The log ends before the second segment now, in which other records follow."""
    first, second, *_ = world.source.replicas[orders].segments
    cut = replace(second, end_offset=14, size_bytes=500)
    world.source.change(orders, segments=(first, cut), high_watermark=15, last_stable_offset=15)


def deleted(world: World, orders: ReplicaId) -> None:
    """By retention, from the beginning of the log."""
    world.source.change(orders, segments=world.source.replicas[orders].segments[2:], log_start_offset=20)


def led_by_another_epoch(world: World, orders: ReplicaId) -> None:
    world.source.change(orders, leader_epoch=1, leader_epochs=LeaderEpochs.of([(0, 0), (1, 40)]))


@pytest.mark.parametrize("step", [CopyStep.STARTED, CopyStep.SENT, CopyStep.VERIFIED], ids=str)
@pytest.mark.parametrize(
    ("change", "in_the_end"),
    [(replaced, FOUR), (truncated, [(0, 9), (10, 14)]), (deleted, FOUR), (led_by_another_epoch, FOUR)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_change_under_one_of_four_transfers(
    world: World, change: Change, in_the_end: list[tuple[int, int]], step: CopyStep
) -> None:
    orders = world.source.add("orders", segments=4)
    world.plan()
    all_in_flight, has_changed = threading.Barrier(4), threading.Event()
    finished = list[int]()

    def reached(at: CopyStep, _partition: object, base_offset: int) -> None:
        if at is CopyStep.STARTED:
            all_in_flight.wait(PATIENCE_SECONDS)
        if (at, base_offset) == (step, CHANGED) and not has_changed.is_set():
            change(world, orders)
            has_changed.set()
        elif at is CopyStep.VERIFIED and base_offset == 0:
            assert has_changed.wait(PATIENCE_SECONDS), "or the first one would be FINISHED before"
        elif at is CopyStep.FINISHED:
            finished.append(base_offset)

    world._reached = reached  # type: ignore[assignment, method-assign]
    world.batch(transfers=4)
    assert world.offsets(orders) == [], "the first segment, too, is of the replica that has changed"
    all_in_flight = threading.Barrier(1)
    world.plan("next")
    world.batch("next", "next/0", transfers=4)
    assert world.offsets(orders) == in_the_end
    assert finished == sorted(finished)
    whole = WholeCopy(world.storage, SameLimiter(UnlimitedBytes()))
    rows = world.metadata.list_segments(orders.topic_id_partition)
    assert [whole.fault(row) for row in rows if row.metadata.is_finished] == [None] * len(in_the_end)
