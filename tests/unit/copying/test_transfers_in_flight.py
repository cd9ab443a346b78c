"""Several transfers of one batch at the same time: what is sent side by side, and what becomes FINISHED."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from include.tiering.clock import WINDOW_SECONDS
from include.tiering.copying.copy_batch import BatchResult, CopyBatch
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.copying.transfers import ENOUGH_WAITING, PARTITION_BOUND
from include.tiering.errors import MetadataUnavailableError, RemoteStorageUnavailableError, SendingStoppedError
from include.tiering.model.segments import RemoteLogSegmentState
from include.tiering.quotas.contract import GoOn, Scope, copy_scopes
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.location import open_storage
from include.tiering.runs.batch import PAUSE_HOLD_SECONDS, BatchEnd, CancellationToken
from include.tiering.runs.contract import SegmentOutcome
from tests.doubles.deployment import Crash, crash
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.quotas import SameLimiter
from tests.doubles.storage_decorators import StorageDecorator
from tests.doubles.stored_log import CountingLimiter

TOTAL_QUOTA, _, TOPIC_QUOTA = copy_scopes(1, "orders")
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
    claim, claims = world.work.claim, list[int]()

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
    assert world.offsets(orders) == [(0, 9)]
    # The segment behind the corrupt one may have been sent meanwhile; its copy is whole, and stays.
    assert {found.start_offset for found in world.storage.list_segment_objects()} <= {0, 20}
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


# A narrow quota, transfers that wait for their turn, and a pause.


@dataclass
class HeldBack:
    """A limiter of one segment, which waits for a quota until the test says otherwise."""

    waits_for: Scope | None
    go_on: GoOn
    granted: threading.Event
    waited_seconds: float = 0.0

    def take(self, wanted_bytes: int) -> int:
        while not self.granted.wait(0.01):
            self.go_on()
        self.go_on()
        self.waits_for = None
        return wanted_bytes


@dataclass
class NarrowQuota(SameLimiter):
    """Copies that this scope applies to wait for its quota; others do not."""

    scope: Scope = TOPIC_QUOTA
    granted: threading.Event = field(default_factory=threading.Event)

    def copy(self, broker_id, topic, *, go_on):
        if self.scope in copy_scopes(broker_id, topic):
            return HeldBack(self.scope, go_on, self.granted)
        return super().copy(broker_id, topic, go_on=go_on)


def leave_a_whole_copy(world) -> None:
    """Of the first segment, as a process leaves it that dies right before FINISHED."""
    world.plan("killed")
    world.at[CopyStep.VERIFIED, 0] = crash
    with pytest.raises(Crash):
        world.batch("killed", "killed/0")


def held_tokens(monkeypatch) -> "list[CancellationToken]":
    """The tokens of the leases that a batch takes, in order."""
    tokens, for_lease = [], CancellationToken.for_lease

    def keep(self):
        tokens.append(for_lease(self))
        return tokens[-1]

    monkeypatch.setattr(CancellationToken, "for_lease", keep)
    return tokens


def leased_topics(world) -> list[str]:
    return [lease.topic_id_partition.topic for lease in world.work.live_leases()]


def in_a_thread(world, **limits) -> "tuple[threading.Thread, list[BatchResult]]":
    results = []
    thread = threading.Thread(target=lambda: results.append(world.batch(**limits)))
    thread.start()
    return thread, results


def test_a_narrow_quota_of_one_topic_keeps_no_transfer_of_another_topic_back(world):
    """Orders are more urgent, have more partitions than there are slots, and a quota that grants nothing for now."""
    orders = [world.source.add("orders", number, segments=3) for number in range(6)]
    payments = [world.source.add("payments", number, segments=3) for number in range(2)]
    world.urge(orders=2, payments=1)
    world.copy_quotas = NarrowQuota(world.limiter)
    batch, results = in_a_thread(world, transfers=4)
    try:
        eventually(lambda: all(len(world.offsets(each)) == 3 for each in payments), "payments were copied")
        assert not any(world.offsets(each) for each in orders)
    finally:
        world.copy_quotas.granted.set()
        batch.join()
    assert all(len(world.offsets(each)) == 3 for each in orders)
    assert results[0].ended is BatchEnd.NO_WORK


def test_no_further_partition_of_a_topic_is_leased_while_its_transfers_wait_for_its_quota(world):
    for number in range(20):
        world.source.add("orders", number, segments=1)
    payments = world.source.add("payments", segments=1)
    world.urge(orders=2, payments=1)
    world.copy_quotas = NarrowQuota(world.limiter)
    batch, _ = in_a_thread(world, transfers=4)
    try:
        eventually(lambda: world.offsets(payments), "payments were copied")
        assert ENOUGH_WAITING <= leased_topics(world).count("orders") <= 4 + ENOUGH_WAITING
    finally:
        world.copy_quotas.granted.set()
        batch.join()


def test_no_further_partition_is_leased_while_one_that_is_leased_lacks_only_a_slot(world):
    """Its abandoned copies are settled while the slots are in use."""
    for number in range(12):
        world.source.add("orders", number, segments=2)
    world.plan()
    leased, send = list[int](), world.storage.copy_log_segment

    def count_leases(*args, **options):
        leased.append(len(leased_topics(world)))
        return send(*args, **options)

    world.storage.copy_log_segment = count_leases
    assert len(world.batch(transfers=2).copied) == 24
    assert max(leased) <= 4


def test_a_quota_of_everything_keeps_every_topic_back(world):
    world.source.add("orders", segments=6)
    payments = world.source.add("payments", segments=1)
    world.urge(orders=2, payments=1)
    world.copy_quotas = NarrowQuota(world.limiter, scope=TOTAL_QUOTA)
    # With fairness, orders are handed on to payments as soon as their first transfer has waited for a moment.
    batch, _ = in_a_thread(world, transfers=4, fairness=False)
    try:
        eventually(lambda: len(world.work.live_leases()) == 1 and world.objects() == 0, "orders are in flight")
        time.sleep(10 * WINDOW_SECONDS)
        assert leased_topics(world) == ["orders"]
    finally:
        world.copy_quotas.granted.set()
        batch.join()
    assert world.offsets(payments) == [(0, 9)]


def test_transfers_that_wait_for_their_turn_leave_the_slots_to_other_partitions(world):
    """One slow segment, and later ones that are stored: another partition is copied meanwhile."""
    orders = world.source.add("orders", segments=20)
    payments = world.source.add("payments", segments=6)
    world.urge(orders=2, payments=1)
    world.storage = Meeting(world.storage, {("orders", 0): {("payments", 10 * number) for number in range(6)}})
    assert len(world.batch(transfers=2).copied) == 26
    assert (len(world.offsets(orders)), len(world.offsets(payments))) == (20, 6)


def test_one_slow_segment_bounds_the_transfers_of_its_partition(world):
    world.source.add("orders", segments=20)
    world.plan()
    world.storage = Meeting(world.storage, {})
    begun = list[int]()
    for offset in range(0, 200, 10):
        world.at[CopyStep.STARTED, offset] = partial(begun.append, offset)

    def until_no_more_begin() -> None:
        eventually(lambda: len(begun) == PARTITION_BOUND * 2, "as many began as may")
        time.sleep(5 * WINDOW_SECONDS)
        assert sorted(begun) == [10 * number for number in range(PARTITION_BOUND * 2)]

    world.at[CopyStep.SENT, 0] = until_no_more_begin
    assert len(world.batch(transfers=2).copied) == 20


def test_a_settlement_of_abandoned_copies_stops_no_other_partition(world):
    """Before a whole copy of orders is finished, payments are copied, although both are in the same batch."""
    orders, payments = world.source.add("orders", segments=2), world.source.add("payments", segments=1)
    leave_a_whole_copy(world)
    world.urge(orders=2, payments=1)
    world.at[CopyStep.VERIFIED, 0] = lambda: eventually(lambda: world.offsets(payments), "payments were copied")
    world.batch(transfers=2)
    assert (world.offsets(orders), world.offsets(payments)) == ([(0, 9), (10, 19)], [(0, 9)])


def test_other_batches_may_take_the_other_partitions_while_the_first_is_settled(world, monkeypatch):
    """Without a transfer nobody knows yet whether the quota is exhausted, and one batch would take them all."""
    for topic in ("orders", "payments", "sensors"):
        world.source.add(topic, segments=1)
    world.plan()
    settle, held = CopyBatch._settle, list[int]()

    def slowly(batch, partition, planned):
        if not held:
            time.sleep(5 * WINDOW_SECONDS)
        held.append(len(batch._partitions))
        return settle(batch, partition, planned)

    monkeypatch.setattr(CopyBatch, "_settle", slowly)
    assert len(world.batch(transfers=16).copied) == 3
    assert held[0] == 1


def test_a_settlement_ends_at_once_in_a_pause_and_the_batch_with_it(world, monkeypatch):
    orders = world.source.add("orders", segments=1)
    leave_a_whole_copy(world)
    world.plan()

    def pause() -> None:
        world.work.pause("orders", author="test")
        eventually(lambda: tokens[-1].paused, "the pause was noticed")

    tokens = held_tokens(monkeypatch)
    world.at[CopyStep.VERIFIED, 0] = pause
    begun = time.monotonic()
    assert world.batch(transfers=2, max_seconds=1.0).ended is BatchEnd.TIME_OVER
    assert time.monotonic() - begun < PAUSE_HOLD_SECONDS / 2
    assert (world.offsets(orders), world.states(orders)) == ([], [STARTED])


@dataclass
class PausedReading(SameLimiter):
    """The platform is paused while the first bytes are read back."""

    pause: Callable[[], object] = lambda: None

    def fetch(self, broker_id, topic, client=None, **_):
        self.pause()
        return super().fetch(broker_id, topic, client)


def test_a_settlement_that_reads_a_log_back_ends_in_a_pause(world, monkeypatch):
    """The log of the whole copy is compressed, so it is read back, under a quota of its own."""
    world.storage = open_storage(world.store.as_uri(), form=AivenForm(100, compresses=True))
    orders = world.source.add("orders", segments=1)
    leave_a_whole_copy(world)
    world.plan()
    tokens = held_tokens(monkeypatch)

    def pause() -> None:
        world.work.pause("orders", author="test")
        eventually(lambda: tokens[-1].paused, "the pause was noticed")

    world.copy_quotas = PausedReading(world.limiter, pause=pause)
    checked = list[int]()
    world.at[CopyStep.VERIFIED, 0] = lambda: checked.append(1)
    assert world.batch(transfers=2, max_seconds=1.0).ended is BatchEnd.TIME_OVER
    assert checked == [], "it did not read to the end"
    assert (world.offsets(orders), world.states(orders)) == ([], [STARTED])


def test_no_transfer_begins_under_a_lease_that_was_lost(world, monkeypatch):
    """It is lost while the partition has nothing in flight, so no transfer could find that out."""
    orders = world.source.add("orders", segments=3)
    world.plan()
    tokens, recorded = held_tokens(monkeypatch), world.work.record_outcome

    def lose_the_lease(lease, item) -> None:
        recorded(lease, item)
        tokens[-1].lease_valid_until(0.0)

    monkeypatch.setattr(world.work, "record_outcome", lose_the_lease)
    begun = []
    world.at[CopyStep.OPENED, 10] = lambda: begun.append(tokens[-1])
    world.batch(transfers=1, max_seconds=1.0)
    assert [(tokens.index(token), len(tokens) > 1) for token in begun] == [(1, True)], "under the next lease"
    assert world.offsets(orders)[0] == (0, 9)
