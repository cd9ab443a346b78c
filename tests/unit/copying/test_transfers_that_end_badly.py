"""Several transfers in flight while the database, the lease or the batch itself fails: what goes on, and what ends."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from sqlalchemy import select, update

from include.tiering.copying.copy_segment import CopyStep
from include.tiering.database.schema import leases, topics
from include.tiering.errors import MetadataUnavailableError
from include.tiering.quotas.contract import GoOn
from include.tiering.runs.batch import CancellationToken
from include.tiering.runs.contract import SegmentOutcome
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.quotas import SameLimiter
from tests.unit.copying.test_transfers_in_flight import LATER_ONES, STARTED, THREE, Meeting, held_tokens, in_a_thread


def two_topics(world):
    """Orders, of which the first segment is damaged, and payments, which are sent when orders have failed."""
    orders, payments = world.source.add("orders"), world.source.add("payments")
    world.source.corrupt.add((orders.topic_id_partition, 0))
    world.urge(orders=2, payments=1)
    return orders, payments


def lose_the_lease(world, topic: str) -> None:
    """As a withdrawal of the run does."""
    key = leases.c.topic_id.in_(select(topics.c.topic_id).where(topics.c.name == topic))
    with world.engine.begin() as connection:
        connection.execute(update(leases).where(key).values(expires_at_ms=0))


def test_a_failure_under_a_lease_that_was_lost_stops_no_other_partition(world):
    orders, payments = two_topics(world)
    world.at[CopyStep.OPENED, 0] = lambda: lose_the_lease(world, "orders")
    result = world.batch(transfers=4, max_seconds=5.0)
    assert len(world.offsets(payments)) == 3
    assert world.offsets(orders) == []
    assert result.copied


def test_a_failure_that_cannot_be_recorded_stops_no_other_partition(world, monkeypatch):
    orders, payments = two_topics(world)
    record = world.work.record_outcome

    def unless_failed(lease, item):
        if item.outcome is SegmentOutcome.FAILED:
            raise MetadataUnavailableError("away")
        record(lease, item)

    monkeypatch.setattr(world.work, "record_outcome", unless_failed)
    result = world.batch(transfers=4)
    assert (len(world.offsets(payments)), world.offsets(orders)) == (3, [])
    assert [failure.item.segment.base_offset for failure in result.failed] == [0]
    assert not world.work.live_leases()


def test_what_was_in_flight_under_a_lost_lease_is_not_planned_twice(world):
    world.source.add("orders", size_bytes=1000)
    world.plan()
    world.at[CopyStep.SENT, 0] = lambda: lose_the_lease(world, "orders")
    world.batch(transfers=3)
    (progress,) = world.work.progress("run")
    assert (progress.planned_bytes, progress.done_bytes) == (2000, 2000), "the first one was sent before, and finished"


def test_the_source_is_looked_at_after_a_pause_not_before(world, monkeypatch):
    orders = world.source.add("orders", segments=1)
    world.plan()
    tokens = held_tokens(monkeypatch)
    waits = threading.Event()

    def pause() -> None:
        world.work.pause("orders", author="test")
        eventually(lambda: tokens[-1].paused, "the pause was noticed")
        waits.set()

    def change_and_resume() -> None:
        assert waits.wait(PATIENCE_SECONDS)
        eventually(lambda: is_waiting.is_set(), "the copy waits for the end of the pause")
        world.source.generation += 1
        world.work.resume("orders", author="test")

    is_waiting, check = threading.Event(), CancellationToken.check

    def check_paused(self):
        if self.paused:
            is_waiting.set()
        check(self)

    monkeypatch.setattr(CancellationToken, "check", check_paused)
    world.at[CopyStep.VERIFIED, 0] = pause
    changer = threading.Thread(target=change_and_resume)
    changer.start()
    result = world.batch(transfers=2)
    changer.join()
    assert result.copied == ()
    assert world.offsets(orders) == []


def test_a_pause_that_begins_right_before_a_transfer_does_not_stop_those_in_flight(world, monkeypatch):
    """They wait for its end, as they do in any short pause."""
    orders = world.source.add("orders", segments=2)
    world.plan()
    world.storage = Meeting(world.storage, {("orders", 0): {("orders", 10)}})
    tokens, live_batches = held_tokens(monkeypatch), world.work.live_batches
    world.pool_mirror.record("remote_log_copier", 4, seen=None, author="test")
    asked = list[int]()

    def pause_for_a_moment(pool):
        if tokens and tokens[0].stop_reason is None and not asked and world.states(orders):
            asked.append(1)
            tokens[0].set_paused(True)
        return live_batches(pool)

    monkeypatch.setattr(world.work, "live_batches", pause_for_a_moment)
    result = world.batch(transfers=2, pool="remote_log_copier")
    assert asked
    assert [segment.start_offset for segment in result.copied] == [0, 10]
    assert len(tokens) == 1, "under one lease"


@dataclass
class Piecewise(SameLimiter):
    """Grants pieces of a hundred bytes to each segment. `at_third` is called before the third piece of each."""

    at_third: Callable[[], object] = lambda: None
    granted: list[int] = field(default_factory=list)

    def copy(self, broker_id, topic, *, go_on):
        return _Pieces(self, go_on)


@dataclass
class _Pieces:
    quotas: Piecewise
    go_on: GoOn
    pieces: int = 0
    waited_seconds = 0.0
    waits_for = None

    def take(self, wanted_bytes):
        self.pieces += wanted_bytes > 0
        if self.pieces == 3:
            self.quotas.at_third()
        self.go_on()
        granted = min(wanted_bytes, 100)
        self.quotas.granted.append(granted)
        return granted


def test_in_a_pause_none_of_the_transfers_in_flight_sends_a_byte(world, monkeypatch):
    """All four are in the middle of their segments when it begins, and go on after it."""
    orders = world.source.add("orders", segments=4)
    world.plan()
    tokens, waiting, check = held_tokens(monkeypatch), list[object](), CancellationToken.check
    in_the_middle = threading.Barrier(4)

    def check_paused(self):
        if self.paused:
            waiting.append(self)
        check(self)

    def pause() -> None:
        if in_the_middle.wait(PATIENCE_SECONDS) == 0:
            world.work.pause(None, author="test")
        eventually(lambda: tokens[0].paused, "the pause was noticed")

    world.copy_quotas = Piecewise(world.limiter, at_third=pause)
    monkeypatch.setattr(CancellationToken, "check", check_paused)
    batch, results = in_a_thread(world, transfers=4)
    try:
        eventually(lambda: len(waiting) >= 4, "all wait for the end of the pause")
        assert world.copy_quotas.granted == [100] * 8
    finally:
        world.work.resume(None, author="test")
        batch.join()
    assert [segment.start_offset for segment in results[0].copied] == [0, 10, 20, 30]
    assert len(world.offsets(orders)) == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_in_the_deciding_thread_ends_all_transfers_before_the_batch_returns(world, monkeypatch, error):
    orders = world.source.add("orders")
    world.plan()
    world.storage = Meeting(world.storage, {("orders", 0): {("orders", 10)}})
    tokens, threads = held_tokens(monkeypatch), threading.active_count()

    class FailingList(list[object]):
        def append(self, _copied) -> None:
            raise error

    world.copied = FailingList()
    world.at[CopyStep.SENT, 10] = lambda: eventually(lambda: tokens[0].stop_reason, "the batch failed")
    with pytest.raises(error):
        world.batch(transfers=2)
    assert threading.active_count() == threads
    assert not world.work.live_leases()
    assert (world.offsets(orders), world.objects()) == ([(0, 9)], 3), "what was in flight was taken back"
    world.copied = []
    world.batch(batch_id="run/1", transfers=2)
    assert (world.offsets(orders), world.objects()) == (THREE, 9)


RECUT = [
    [(0, 14), (15, 29)],
    [(0, 19), (20, 29)],
    [(0, 12), (13, 19), (20, 29)],
    [(0, 4), (5, 9), (10, 19), (20, 29)],
    [(0, 29)],
]


@pytest.mark.parametrize("bounds", RECUT, ids=str)
def test_whole_copies_behind_a_failure_never_overlap_segments_with_other_bounds(world, bounds):
    """The next leader has other bounds than the replica that was read when the first segment failed."""
    orders = world.source.add("orders")
    world.plan()
    kept, world.storage = world.storage, Meeting(world.storage, {("orders", 0): LATER_ONES}, {("orders", 0)})
    world.batch(transfers=3)
    assert world.states(orders) == [STARTED] * 2
    (first, *_), world.storage = world.source.replicas[orders].segments, kept
    recut = [
        replace(first, base_offset=base, end_offset=end, size_bytes=100 * (end - base + 1)) for base, end in bounds
    ]
    world.source.change(orders, segments=tuple(recut))
    world.plan("next")
    world.batch("next", "next/0", transfers=3)
    assert world.offsets(orders) == bounds
