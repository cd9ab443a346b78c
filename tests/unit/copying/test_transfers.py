"""How many transfers a batch may have in flight."""

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from include.tiering.clock import BUSY_CORES, WINDOW_SECONDS, SystemClock
from include.tiering.copying.copy_segment import CopiedSegment
from include.tiering.copying.transfers import (
    BATCH_BOUND,
    KNOWN_SECONDS,
    PARTITION_BOUND,
    RECOVERY_SECONDS,
    InFlight,
    LeasedPartition,
    ProcessorUse,
    Settlement,
    Transfer,
    TransferLimit,
)
from include.tiering.errors import TieringError
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.ownership import Fence
from include.tiering.model.segments import RemoteLogSegmentId
from include.tiering.quotas.contract import Scope, copy_scopes
from include.tiering.quotas.topic_quotas import Admission
from include.tiering.runs.batch import CancellationToken, HeldLease
from include.tiering.runs.contract import Lease, PlannedSegment
from tests.doubles.manual_clock import ManualClock
from tests.doubles.segments import partition_of, uuid
from tests.doubles.stored_log import CountingLimiter

OF_TOTAL, OF_BROKER, OF_TOPIC = copy_scopes(1, "orders")
SENDING = None
A_WINDOW = WINDOW_SECONDS * 1.01


def partition_of_topic(topic: str, broker_id: int = 1) -> LeasedPartition:
    partition = partition_of(topic)
    lease = Lease(
        run_id="run",
        batch_id="run/0",
        replica_id=ReplicaId(partition, broker_id, "dir"),
        fence=Fence(partition, 1),
        expires_at_ms=0,
    )
    return LeasedPartition(HeldLease(lease, CancellationToken(ManualClock()), lease))


def a_transfer(waits_for: Scope | None = SENDING) -> Transfer:
    admission = Admission(1, "orders", 1000, 10, metered=False)
    return Transfer(PlannedSegment(0, 9, 1000), CountingLimiter(waits_for=waits_for), admission)


class Growing:
    """A limit, and a clock that moves on."""

    def __init__(self, most: int = 16) -> None:
        self.clock = ManualClock()
        self.limit = TransferLimit(self.clock, most=most)

    @classmethod
    def to(cls, most: int) -> "Growing":
        """A limit that has as many slots as it may have."""
        growing = cls(most)
        while growing.after() < most:
            pass
        return growing

    def after(self, seconds: float = A_WINDOW, *, cores: float = 0.1, slow_downs: int = 0) -> int:
        """Return how many transfers may be in flight after this time with this use of the machine."""
        self.clock.advance(seconds)
        self.clock.used_seconds += cores * seconds
        transfers = 0
        while self.limit.allows_another(InFlight(transfers, 0, Counter({SENDING: transfers})), slow_downs, None):
            transfers += 1
        return transfers

    def ends(self, busy_seconds: float, idle_seconds: float) -> None:
        transfer = a_transfer()
        transfer.use = ProcessorUse(busy_seconds, idle_seconds)
        self.limit.note_end(transfer)

    def allows(
        self, by_quota: Sequence[Scope | None], partition: LeasedPartition | None = None, *, waiting_for_turn: int = 0
    ) -> bool:
        return self.limit.allows_another(in_flight(by_quota, waiting_for_turn), 0, partition)


def in_flight(by_quota: Sequence[Scope | None], waiting_for_turn: int = 0) -> InFlight:
    """Return transfers of which any two have enough bytes to use a quota to the full."""
    counted = Counter(by_quota)
    exhausted = frozenset(scope for scope, transfers in counted.items() if scope and transfers >= 2)
    return InFlight(len(by_quota) + waiting_for_turn, 0, counted, exhausted)


def test_the_number_doubles_with_each_window_up_to_the_limit():
    growing = Growing(most=6)
    assert [growing.after(0.0), *(growing.after() for _ in range(4))] == [1, 2, 4, 6, 6]


def test_a_window_that_is_not_over_changes_nothing():
    growing = Growing()
    assert [growing.after(WINDOW_SECONDS * 0.4), growing.after(WINDOW_SECONDS * 0.4)] == [1, 1]


@pytest.mark.parametrize(("cores", "allowed"), [(BUSY_CORES + 0.01, 1), (BUSY_CORES - 0.01, 2)])
def test_a_process_that_uses_a_core_begins_no_more(cores, allowed):
    assert Growing().after(cores=cores) == allowed


def test_transfers_that_wait_for_a_quota_are_enough_for_the_segments_it_applies_to():
    growing = Growing.to(16)
    assert growing.allows([OF_TOTAL, *3 * [SENDING]])
    assert not growing.allows([OF_TOTAL, OF_TOTAL])
    assert not growing.allows([OF_TOTAL, OF_TOTAL], partition_of_topic("payments"))
    assert growing.allows([OF_TOPIC, OF_TOPIC])
    assert growing.allows([OF_TOPIC, OF_TOPIC], partition_of_topic("payments"))
    assert not growing.allows([OF_TOPIC, OF_TOPIC], partition_of_topic("orders"))
    assert not growing.allows([OF_BROKER, OF_BROKER], partition_of_topic("payments"))
    assert growing.allows([OF_BROKER, OF_BROKER], partition_of_topic("payments", broker_id=2))


def test_a_transfer_that_waits_for_a_narrow_quota_needs_no_slot_beside_other_topics():
    growing = Growing.to(4)
    assert growing.allows([OF_TOPIC, *3 * [SENDING]], partition_of_topic("payments"))
    assert not growing.allows([OF_TOPIC, *3 * [SENDING]], partition_of_topic("orders"))
    assert not growing.allows(4 * [SENDING], partition_of_topic("payments"))


def test_a_transfer_that_waits_for_its_turn_needs_no_slot():
    growing = Growing.to(4)
    assert growing.allows(3 * [SENDING], waiting_for_turn=5)
    assert not growing.allows(4 * [SENDING])


def test_all_that_is_in_flight_together_is_bounded():
    growing = Growing.to(4)
    assert growing.allows([SENDING], waiting_for_turn=4 * BATCH_BOUND - 2)
    assert not growing.allows([SENDING], waiting_for_turn=4 * BATCH_BOUND - 1)


def test_what_is_in_flight_of_one_partition_is_bounded():
    growing, partition = Growing.to(4), partition_of_topic("orders")
    partition.in_flight.extend(a_transfer() for _ in range(4 * PARTITION_BOUND - 1))
    assert growing.allows([SENDING], partition)
    partition.in_flight.append(a_transfer())
    assert not growing.allows([SENDING], partition)


def test_a_partition_that_lacks_a_slot_is_not_held_back():
    growing, partition = Growing.to(4), partition_of_topic("orders")
    assert not growing.allows([OF_TOPIC, *3 * [SENDING]], partition)
    assert not growing.limit.is_held_back(in_flight([OF_TOPIC, *3 * [SENDING]]), partition)
    assert growing.limit.is_held_back(in_flight([OF_TOPIC, OF_TOPIC]), partition)


def test_what_a_batch_has_in_flight_is_counted():
    orders, payments = partition_of_topic("orders"), partition_of_topic("payments")
    orders.in_flight.extend([a_transfer(OF_TOPIC), a_transfer(OF_TOPIC), a_transfer(OF_TOTAL)])
    orders.in_flight[-1].waits_for_turn = True
    payments.settlement = Settlement((), Future())
    counted = InFlight.of([orders, payments], {OF_TOPIC: 1.0}.get)
    assert (counted.total, counted.size_bytes) == (4, 3000)
    assert counted.by_quota == {OF_TOPIC: 2, SENDING: 1}
    assert counted.exhausted == {OF_TOPIC}


@pytest.mark.parametrize(
    ("transfers", "share", "are_enough"),
    [
        (2, 2_000, True),
        (2, 2_001, False),
        (7, 7_000, True),
        (6, 7_000, False),
        (1, 1, False),
        (2, 0, True),
        (2, None, True),
    ],
)
def test_enough_wait_for_a_quota_with_bytes_of_half_a_second(transfers: int, share: float | None, are_enough: bool):
    """Each has 1,000 bytes, half of which are sent on average."""
    orders = partition_of_topic("orders")
    orders.in_flight.extend(a_transfer(OF_TOTAL) for _ in range(transfers))
    counted = InFlight.of([orders], {OF_TOTAL: share}.get)
    assert counted.exhausted == ({OF_TOTAL} if are_enough else set())


def test_transfers_that_wait_for_a_quota_keep_no_processor_busy():
    growing = Growing.to(16)
    growing.ends(busy_seconds=1.0, idle_seconds=0.0)
    assert not growing.allows(2 * [SENDING])
    in_use = InFlight(9, 0, Counter([SENDING, *8 * [OF_TOTAL]]))
    assert growing.limit.allows_another(in_use, 0, None)


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


@pytest.mark.parametrize(
    ("busy_seconds", "idle_seconds", "transfers"),
    [(0.023, 0.007, 2), (0.023, 0.035, 3), (0.023, 0.250, 22), (0.02, -0.001, 2), (0.0, 0.0, 2), (0.0, 0.1, 200_000)],
)
def test_transfers_are_useful_that_fill_the_waits_of_one_twice(busy_seconds, idle_seconds, transfers):
    assert ProcessorUse(busy_seconds, idle_seconds).useful_transfers == transfers


def test_a_near_store_gets_no_more_transfers_than_are_useful():
    growing = Growing.to(8)
    growing.ends(busy_seconds=0.02, idle_seconds=0.03)
    assert growing.after() == 3
    growing.ends(busy_seconds=0.02, idle_seconds=0.0)
    assert growing.after() == 2
    assert growing.after(KNOWN_SECONDS * 0.9) == 2
    assert growing.after(KNOWN_SECONDS * 0.2) == 8  # no transfer has ended for a while: those in flight may be stuck
    for _ in range(30):
        growing.ends(busy_seconds=0.01, idle_seconds=0.2)
    assert growing.after() == 8


def test_the_use_of_a_transfer_leaves_out_its_waits_for_the_quota_and_for_its_turn():
    clock, limiter, before = ManualClock(), CountingLimiter(), Future[CopiedSegment]()
    transfer = Transfer(PlannedSegment(0, 9, 1000), limiter, Admission(1, "orders", 1000, 10, metered=False))
    before.set_result(CopiedSegment(RemoteLogSegmentId(partition_of(), uuid(1)), 0, 9, 1000, 1200))
    with transfer.noting_use(clock):
        clock.advance(5.0)
        clock.used_seconds += 2.0
        limiter.waited_seconds = 1.0
        transfer.wait_for_turn(before, clock, lambda: clock.advance(0.5))
    assert transfer.use == ProcessorUse(busy_seconds=2.0, idle_seconds=2.0)


def test_the_use_of_a_transfer_that_fails_is_not_noted():
    transfer = a_transfer()
    with pytest.raises(TieringError), transfer.noting_use(ManualClock()):
        raise TieringError("refused")
    assert transfer.use is None


def test_the_clock_of_this_host_counts_the_time_of_its_processes():
    clock = SystemClock()
    before = clock.process_seconds()
    while clock.process_seconds() == before:
        sum(range(10_000))
    assert clock.process_seconds() > before


def test_the_clock_of_this_host_counts_the_time_of_the_calling_thread():
    clock = SystemClock()
    before, process_before = clock.thread_seconds(), clock.process_seconds()
    while clock.process_seconds() - process_before < 0.05:
        sum(range(10_000))
    ran = clock.thread_seconds() - before
    assert 0.04 < ran < 60
    of_others = []
    thread = threading.Thread(target=lambda: of_others.append(clock.thread_seconds()))
    thread.start()
    thread.join()
    assert of_others[0] < before + ran


def test_without_the_times_of_the_host_the_clock_counts_what_the_thread_ran(monkeypatch):
    monkeypatch.setattr("include.tiering.clock._OF_THIS_THREAD", Path("/proc/thread-self/none"))
    before = SystemClock().thread_seconds()
    while SystemClock().thread_seconds() == before:
        sum(range(10_000))
    assert SystemClock().thread_seconds() > before
