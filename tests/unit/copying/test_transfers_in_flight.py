"""Several transfers of one batch at the same time: what is sent side by side, and what becomes FINISHED."""

import threading
from dataclasses import replace

import pytest

from include.tiering.clock import SystemClock
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.copying.scheduling import (
    BUSY_CORES,
    ENOUGH_WAITING,
    RECOVERY_SECONDS,
    WINDOW_SECONDS,
    TransferLimit,
)
from include.tiering.errors import MetadataUnavailableError, RemoteStorageUnavailableError, SendingStoppedError
from include.tiering.model.segments import RemoteLogSegmentState
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.contract import SegmentOutcome
from tests.doubles.manual_clock import ManualClock
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.storage_decorators import StorageDecorator
from tests.doubles.stored_log import CountingLimiter

THREE = [(0, 9), (10, 19), (20, 29)]
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


class Meeting(StorageDecorator):
    """A segment in `waits` is sent only when those that it waits for were sent; then one in `fails` fails."""

    def __init__(self, inner, waits, fails=()):
        super().__init__(inner)
        self.waits, self.fails = waits, fails
        self.sent = []
        self.most_in_flight = self.in_flight = 0
        self._changed = threading.Condition()

    def copy_log_segment(self, metadata, data, *, limiter, on_sent):
        place = (metadata.topic_id_partition.topic, metadata.start_offset)
        with self._changed:
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            others = self.waits.get(place, set())
            assert self._changed.wait_for(lambda: others <= set(self.sent), PATIENCE_SECONDS), self.sent
        try:
            if place in self.fails:
                raise RemoteStorageUnavailableError("no answer")
            return super().copy_log_segment(metadata, data, limiter=limiter, on_sent=on_sent)
        finally:
            with self._changed:
                self.in_flight -= 1
                self.sent.append(place)
                self._changed.notify_all()


LATER_ONES = {("orders", 10), ("orders", 20)}


def test_segments_are_sent_side_by_side_and_finished_in_order(world):
    orders = world.source.add("orders")
    world.plan()
    world.storage = Meeting(world.storage, {("orders", 0): LATER_ONES})
    result = world.batch(transfers=3)
    assert world.storage.sent[-1] == ("orders", 0)
    assert [segment.start_offset for segment in result.copied] == [0, 10, 20]
    assert (world.offsets(orders), world.objects()) == (THREE, 9)


def test_the_setting_bounds_the_transfers(world):
    world.source.add("orders", segments=6)
    world.plan()
    world.storage = Meeting(world.storage, {("orders", 0): {("orders", 10)}})
    assert len(world.batch(transfers=2).copied) == 6
    assert world.storage.most_in_flight == 2


@pytest.mark.parametrize(("bound", "most"), [(999, 1), (1000, 1), (1001, 2)])
def test_no_further_transfer_begins_while_those_in_flight_have_too_many_bytes(world, bound, most):
    world.source.add("orders", segments=6, size_bytes=1000)
    world.plan()
    waits = {("orders", 0): {("orders", 10)}} if most > 1 else {}
    world.storage = Meeting(world.storage, waits)
    assert len(world.batch(transfers=6, queued_bytes=bound).copied) == 6
    assert world.storage.most_in_flight == most


def test_a_batch_gets_its_part_of_the_transfers_of_all_batches(world):
    world.source.add("orders", segments=6)
    world.plan()
    world.storage = Meeting(world.storage, {})
    assert len(world.batch(transfers=6, total_transfers=1).copied) == 6
    assert world.storage.most_in_flight == 1


def test_other_partitions_are_taken_while_one_is_being_sent(world):
    orders, payments = world.source.add("orders", segments=1), world.source.add("payments", segments=1)
    world.plan()
    world.storage = Meeting(world.storage, {("orders", 0): {("payments", 0)}})
    assert len(world.batch(transfers=2).copied) == 2
    assert (world.offsets(orders), world.offsets(payments)) == ([(0, 9)], [(0, 9)])
    assert not world.work.live_leases()


def test_what_is_complete_behind_a_failure_is_finished_later_in_its_turn(world):
    """The source may have lost its segments by then, so it is not deleted."""
    orders = world.source.add("orders")
    world.plan()
    kept, world.storage = world.storage, Meeting(world.storage, {("orders", 0): LATER_ONES}, {("orders", 0)})
    result = world.batch(transfers=3)
    assert [failure.item.segment.base_offset for failure in result.failed] == [0]
    assert (result.copied, result.worth_retrying) == ((), True)
    assert (world.offsets(orders), world.objects(), world.states(orders)) == ([], 6, [STARTED] * 2)
    assert world.outcomes() == [(base, SegmentOutcome.PLANNED) for base, _ in THREE]
    world.storage = kept
    assert [segment.start_offset for segment in world.batch(transfers=3).copied] == [0]
    assert (world.offsets(orders), world.objects()) == (THREE, 9)


def test_what_is_not_complete_behind_a_failure_is_taken_back(world):
    orders = world.source.add("orders")
    world.plan()
    waits = {("orders", 10): {("orders", 0)}, ("orders", 0): set()}
    world.storage = Meeting(world.storage, waits, {("orders", 0)})
    world.limiter = CountingLimiter()
    held = world.storage.copy_log_segment

    def after_the_failure(metadata, data, *, limiter, on_sent):
        if metadata.start_offset == 10:
            eventually(lambda: world.work.live_leases() and _is_stopped(limiter), "the failure was noticed")
        return held(metadata, data, limiter=limiter, on_sent=on_sent)

    world.storage.copy_log_segment = after_the_failure
    result = world.batch(transfers=2)
    assert [failure.item.segment.base_offset for failure in result.failed] == [0]
    assert (world.offsets(orders), world.objects(), world.states(orders)) == ([], 0, [])


def test_a_database_that_is_away_for_a_while_stops_nothing_that_is_in_flight(world, monkeypatch):
    orders, payments = world.source.add("orders", segments=1), world.source.add("payments", segments=1)
    world.plan()
    world.storage = Meeting(world.storage, {("orders", 0): {("payments", 0)}})
    claim, claims = world.work.claim, []

    def claim_sometimes(*args, **options):
        claims.append(len(claims))
        if len(claims) == 2:
            raise MetadataUnavailableError("away")
        return claim(*args, **options)

    monkeypatch.setattr(world.work, "claim", claim_sometimes)
    result = world.batch(transfers=2)
    assert (len(result.copied), result.failed) == (2, ())
    assert (world.offsets(orders), world.offsets(payments)) == ([(0, 9)], [(0, 9)])


def test_a_copy_that_could_not_be_recorded_as_such_counts_and_is_found_by_the_next_batch(world, monkeypatch):
    orders = world.source.add("orders", segments=2)
    world.plan()
    record = world.work.record_outcome

    def record_the_second(lease, item):
        if item.segment.base_offset == 0:
            raise MetadataUnavailableError("away")
        record(lease, item)

    with monkeypatch.context() as away:
        away.setattr(world.work, "record_outcome", record_the_second)
        result = world.batch(transfers=2, max_seconds=0.3)
    assert ([segment.start_offset for segment in result.copied], result.failed) == ([0, 10], ())
    assert world.offsets(orders) == [(0, 9), (10, 19)]
    world.batch(batch_id="run/1")
    assert world.outcomes() == [(0, SegmentOutcome.SKIPPED), (10, SegmentOutcome.COPIED)]


def test_what_was_stopped_in_flight_is_not_planned_twice(world):
    """A lease that is lost and taken again counts its bytes once."""
    world.source.add("orders", size_bytes=1000)
    world.plan()
    world.storage = Meeting(world.storage, {("orders", 0): LATER_ONES}, {("orders", 0)})
    world.batch(transfers=3)
    (progress,) = world.work.progress("run")
    assert progress.planned_bytes == 1000, "the one that failed"


def _is_stopped(limiter) -> bool:
    try:
        limiter.take(0)
    except SendingStoppedError:
        return True
    return False


def test_a_failure_in_the_middle_lets_the_earlier_one_be_finished(world):
    orders = world.source.add("orders")
    world.source.corrupt.add((orders.topic_id_partition, 10))
    world.plan()
    result = world.batch(transfers=3)
    assert (world.offsets(orders), world.objects()) == ([(0, 9)], 3)
    assert [failure.item.segment.base_offset for failure in result.failed] == [10]


def test_copies_behind_a_segment_that_vanished_stay_and_are_finished_by_the_next_batch(world):
    """All of them are whole, and the source may lose the later segments, too."""
    orders = world.source.add("orders")
    world.plan()
    world.storage = Meeting(world.storage, {("orders", 0): LATER_ONES})
    segments = world.source.replicas[orders].segments

    def vanish() -> None:
        world.source.change(orders, segments=segments[1:], log_start_offset=10)

    world.at[CopyStep.VERIFIED, 0] = vanish
    world.batch(transfers=3)
    assert (world.states(orders), world.objects()) == ([STARTED] * 3, 9)
    world.plan("next")
    world.batch("next", "next/0", transfers=3)
    assert (world.offsets(orders), world.objects()) == (THREE, 9)


def test_a_decision_while_segments_are_in_flight_lets_none_of_them_leave_a_gap(world):
    """What is copied ends elsewhere when the turn of a later segment comes."""
    orders = world.source.add("orders")
    world.plan()
    world.storage = Meeting(world.storage, {("orders", 0): {("orders", 10)}})
    highest = world.metadata.highest_copied_offset
    world.at[CopyStep.FINISHED, 0] = lambda: setattr(
        world.metadata, "highest_copied_offset", lambda partition, *rest: 4 if not rest else highest(partition, *rest)
    )
    result = world.batch(transfers=2)
    del world.metadata.highest_copied_offset
    assert world.offsets(orders) == [(0, 9)]
    (failure,) = result.failed
    assert "goes up to offset 4 by decision, not up to 9 any more" in failure.item.message


def test_a_pool_that_became_smaller_lets_those_in_flight_end(world):
    orders = world.source.add("orders")
    world.pool_mirror.record("remote_log_copier", 1, seen=None, author="test")
    world.plan()
    world.storage = Meeting(world.storage, {("orders", 0): {("orders", 10)}})
    world.at[CopyStep.STARTED, 10] = lambda: world.pool_mirror.record("remote_log_copier", 0, seen=1, author="test")
    assert world.batch(pool="remote_log_copier", transfers=2).ended is BatchEnd.SURPLUS
    assert world.offsets(orders) == [(0, 9), (10, 19)]


# How many transfers are allowed.

SENDING, WAITING = UnlimitedBytes(), replace(CountingLimiter(), is_waiting=True)


A_WINDOW = WINDOW_SECONDS * 1.01


class Growing:
    def __init__(self, most: int = 16) -> None:
        self.clock = ManualClock()
        self.limit = TransferLimit(self.clock, most=most)

    def after(self, seconds: float = A_WINDOW, *, cores: float = 0.1, slow_downs: int = 0) -> int:
        """Return how many transfers may be in flight after this time with this use of the machine."""
        self.clock.advance(seconds)
        self.clock.used_seconds += cores * seconds
        in_flight: list[UnlimitedBytes] = []
        while self.limit.allows_another(in_flight, slow_downs):
            in_flight.append(SENDING)
        return len(in_flight)


def test_the_number_doubles_with_each_window_up_to_the_limit():
    growing = Growing(most=6)
    assert [growing.after(0.0), *(growing.after() for _ in range(4))] == [1, 2, 4, 6, 6]


def test_a_window_that_is_not_over_changes_nothing():
    growing = Growing()
    assert [growing.after(WINDOW_SECONDS * 0.4), growing.after(WINDOW_SECONDS * 0.4)] == [1, 1]


@pytest.mark.parametrize(("cores", "allowed"), [(BUSY_CORES + 0.01, 1), (BUSY_CORES - 0.01, 2)])
def test_a_process_that_uses_a_core_begins_no_more(cores, allowed):
    assert Growing().after(cores=cores) == allowed


def test_transfers_that_wait_for_the_quota_are_enough():
    growing = Growing()
    for _ in range(3):
        growing.after()
    assert ENOUGH_WAITING == 2
    assert growing.limit.allows_another([WAITING, SENDING, SENDING], 0)
    assert not growing.limit.allows_another([WAITING, WAITING, SENDING], 0)


def test_a_store_that_asks_for_it_gets_half_at_once_and_one_more_each_second():
    growing = Growing()
    for _ in range(4):
        growing.after()
    assert growing.after() == 16
    assert growing.after(slow_downs=1) == 8
    assert growing.after(slow_downs=40) == 8
    assert growing.after(RECOVERY_SECONDS * 1.01, slow_downs=40) == 9
    assert growing.after(RECOVERY_SECONDS * 1.01, slow_downs=40) == 10
    assert growing.after(RECOVERY_SECONDS * 1.01, slow_downs=41) == 5


def test_what_the_store_asked_for_before_the_batch_does_not_count():
    growing = Growing()
    assert growing.after(slow_downs=7) == 2


def test_the_limit_may_be_lowered_while_transfers_are_in_flight():
    growing = Growing()
    for _ in range(4):
        growing.after()
    growing.limit.most = 3
    assert growing.after() == 3


def test_the_clock_of_this_host_counts_the_time_of_its_processes():
    clock = SystemClock()
    before = clock.process_seconds()
    while clock.process_seconds() == before:
        sum(range(10_000))
    assert clock.process_seconds() > before
