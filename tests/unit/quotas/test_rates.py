"""Rates: averages, the pacer, requests to delete, and processes that are paced."""

import gc
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.clock import SystemClock
from include.tiering.configs.config_catalogue import DELETE_LIMIT, DELETE_RATE, config_on
from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, ConfigSnapshot, EntityType
from include.tiering.configs.rules import quotas_in_force
from include.tiering.errors import MetadataUnavailableError, SendingStoppedError, SettingError
from include.tiering.quotas import pacing as pacing_module
from include.tiering.quotas import shared_quotas
from include.tiering.quotas.contract import (
    UNITS_PER_REQUEST,
    UNLIMITED,
    QuotaKind,
    QuotaLevel,
    QuotasInForce,
    RequestsAsBytes,
    Scope,
    copy_scopes,
    delete_scopes,
    keep_on,
    take_all,
)
from include.tiering.quotas.fetch_admission import FetchAdmission
from include.tiering.quotas.pacer import CATCH_UP_SECONDS, LATE_SECONDS, MAKE_UP, SLICE_SECONDS, Pacer
from include.tiering.quotas.pacing import (
    FORGET_MANY_SECONDS,
    FORGET_SECONDS,
    MANY_SCOPES,
    ProcessPacing,
    ScopedLimiter,
    Stream,
)
from include.tiering.quotas.shared_quotas import AllocationRenewer, AnnouncingLedger, LedgerRowChange, SharedQuotas
from include.tiering.quotas.shares import FILL, UNLIMITED_DEMAND, LedgerRow
from include.tiering.quotas.topic_quotas import ALPHA, EwmaMeter
from include.tiering.units import MIB
from tests.doubles.manual_clock import ManualClock
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.quotas import MemoryLedgerStore, NoQuotas
from tests.doubles.stored_log import CountingLimiter

# Rates: averages, windows, the pacer, and requests to delete.

# Golden vectors of the one-minute meter, worked out by hand, and clocks that misbehave.

START = 1_700_000_000_000


def test_alpha_is_that_of_one_minute_in_ticks_of_five_seconds():
    assert pytest.approx(1 - math.e ** (-5 / 60), rel=1e-15) == ALPHA
    assert round(ALPHA, 12) == 0.079955585371


# (seconds since the meter was made, events marked then, rate after that)
# 300 in the first 5 s are 60/s. e^(-1/12) = 0.920044414629: 60 x it = 55.202664877759; idle for 11 more ticks, one
# minute after the first tick, e^-1 of 60 is left.
COLD_START_AND_IDLE = [
    (0.0, 300, 0.0),
    (4.999, 0, 0.0),
    (5.0, 0, 60.0),
    (9.999, 0, 60.0),
    (10.0, 0, 55.202664877759),
    (65.0, 0, 22.072766470287),
    (125.0, 0, 8.120116994197),
]
# A steady 100/s stays 100/s. At 600 in the tick that ends at 15 s: 100 + 0.079955585371 x (120 - 100).
# Then one idle tick: 101.599111707421 x 0.920044414629.
STEADY_AND_A_PEAK = [
    (0.0, 500, 0.0),
    (5.0, 500, 100.0),
    (10.0, 600, 100.0),
    (15.0, 0, 101.599111707421),
    (20.0, 0, 93.475695257),
]
# The mark in the millisecond of a tick belongs to the next: 0 in the first tick, 50 in the second.
MARK_ON_THE_TICK = [(0.0, 0, 0.0), (5.0, 50, 0.0), (10.0, 0, 0.799555853707)]


@pytest.mark.parametrize("vector", [COLD_START_AND_IDLE, STEADY_AND_A_PEAK, MARK_ON_THE_TICK])
def test_vectors(vector):
    meter = EwmaMeter(START)
    for seconds, events, rate in vector:
        meter = meter.mark(events, START + round(seconds * 1000))
        assert meter.per_second == pytest.approx(rate, rel=1e-11)
    assert meter.count == sum(events for _, events, _ in vector)


def test_a_gap_of_a_thousand_years_costs_nothing_and_leaves_nothing():
    meter = EwmaMeter(START).mark(10**15, START).at(START + 1_000 * 365 * 86_400_000)
    assert (meter.per_second, meter.count, meter.uncounted) == (0.0, 10**15, 0)


def test_a_clock_that_steps_back_loses_no_count_and_goes_on_from_there():
    meter = EwmaMeter(START).mark(500, START).mark(500, START + 5_000)
    stepped = meter.mark(250, START - 3_600_000)
    assert (stepped.count, stepped.uncounted, stepped.per_second) == (1_250, 750, 100.0)
    assert stepped.at(START - 3_600_000 + 4_999).per_second == 100.0
    assert stepped.at(START - 3_600_000 + 5_000).per_second == pytest.approx(100 + ALPHA * (150 - 100))


def test_looking_changes_nothing_that_a_later_look_sees():
    meter = EwmaMeter(START).mark(777, START)
    assert meter.at(START + 5_000).at(START + 47_000) == meter.at(START + 5_000).at(START + 21_000).at(START + 47_000)


def test_nothing_is_uncounted():
    with pytest.raises(ValueError, match="-1"):
        EwmaMeter(START).mark(-1, START)


# Bytes of one rate inside the second.

RATE = 1_000_000.0


def sent_by(pacer: Pacer, pauses: list[float], until: float) -> list[tuple[float, int]]:
    """A sender that takes every slice as soon as it may, apart from its pauses."""
    return sent_from(pacer, pacer.free_at, until, pauses)


def sent_from(pacer: Pacer, now: float, until: float, pauses: Sequence[float] = ()) -> list[tuple[float, int]]:
    """The same from this time on."""
    sent, waits = [], iter(pauses)
    while now < until:
        now += pacer.wait_seconds(now) + next(waits, 0.0)
        size_bytes = pacer.slice_bytes(now)
        pacer.charge(size_bytes, now)
        sent.append((now, size_bytes))
    return sent


def test_a_steady_sender_gets_the_rate() -> None:
    sent = sent_by(Pacer(RATE, 0.0), [], until=10.0)
    assert sum(size_bytes for _, size_bytes in sent) == pytest.approx(10 * RATE, rel=0.002)


@given(
    rate=st.sampled_from([1.0, 333.0, 125e3, 1e6, 2e8]),
    pauses=st.lists(st.floats(0, 0.3), max_size=200),
    start=st.floats(0, 2),
)
def test_no_second_carries_more_than_the_rate_and_the_catch_up(rate: float, pauses: list[float], start: float) -> None:
    sent = sent_by(Pacer(rate, 0.0), pauses, until=max(3.0, 3 / rate))
    in_window = sum(size_bytes for at, size_bytes in sent if start <= at < start + 1)
    one_slice = max(1.0, rate * SLICE_SECONDS)
    assert in_window <= rate * MAKE_UP * (1 + CATCH_UP_SECONDS) + one_slice + 1e-6 * rate


def test_a_long_silence_is_lost_but_for_a_quarter_of_a_second() -> None:
    sent = sent_by(Pacer(RATE, 0.0), [100.0], until=130.0)
    assert sent[0][1] == pytest.approx(RATE * (CATCH_UP_SECONDS + SLICE_SECONDS))
    in_all = sum(size_bytes for _, size_bytes in sent)
    assert in_all == pytest.approx((30 + LATE_SECONDS) * RATE, rel=0.001)


@pytest.mark.parametrize("pause", [0.0, 0.06, 0.15, 0.25])
def test_a_sender_that_stands_still_now_and_then_gets_the_rate(pause: float) -> None:
    """Once in thirty seconds, and then less than a slice at a time: such a sender catches up nothing at once."""
    pacer, now = Pacer(RATE, 0.0), 0.0
    sent: list[int] = []
    while now < 60:
        now += pacer.wait_seconds(now) + (pause if len(sent) in (500, 3_500) else 0.0)
        size_bytes = min(pacer.slice_bytes(now), 10_000)
        pacer.charge(size_bytes, now)
        sent.append(size_bytes)
    assert sum(sent) >= 0.999 * 60 * RATE


@given(rate=st.sampled_from([125e3, 1e6, 2e8]), pauses=st.lists(st.floats(0, 2), max_size=100))
def test_what_was_missed_comes_slowly(rate: float, pauses: list[float]) -> None:
    """In any tenth of a second, second and five seconds; and no more of it than is remembered."""
    sent = sent_by(Pacer(rate, 0.0), pauses, until=10.0)
    times = np.array([at for at, _ in sent])
    carried = np.concatenate(([0.0], np.cumsum([float(size_bytes) for _, size_bytes in sent])))
    for seconds in (0.1, 1.0, 5.0):
        most = min(MAKE_UP * (seconds + CATCH_UP_SECONDS), seconds + LATE_SECONDS) + SLICE_SECONDS
        ends = np.searchsorted(times, times + seconds)
        assert np.max(carried[ends] - carried[: len(times)]) <= rate * most * (1 + 1e-6)


def test_no_minute_carries_more_than_the_quota_and_no_second_more_than_a_twenty_fifth_above_it() -> None:
    assert FILL * (60 + LATE_SECONDS + SLICE_SECONDS) <= 60
    assert FILL * (MAKE_UP * (1 + CATCH_UP_SECONDS) + SLICE_SECONDS) <= 1.041


@pytest.mark.parametrize("new_rate", [10 * RATE, RATE / 10])
def test_lost_time_is_worth_no_more_bytes_than_before(new_rate: float) -> None:
    pacer = Pacer(RATE, 0.0)
    pacer.change(new_rate, 0.2)
    sent = sum(size_bytes for _, size_bytes in sent_from(pacer, 0.2, until=30.2))
    assert sent == pytest.approx(30 * new_rate + 0.2 * min(RATE, new_rate), rel=0.001)


@pytest.mark.parametrize(("but", "made_up"), [(0.0, CATCH_UP_SECONDS), (0.1, 0.1), (1.0, LATE_SECONDS)])
def test_lost_time_can_be_forgotten(but: float, made_up: float) -> None:
    pacer = Pacer(RATE, 0.0)
    pacer.forget_lost_time(5.0, but=but)
    sent = sum(size_bytes for _, size_bytes in sent_from(pacer, 5.0, until=35.0))
    assert sent == pytest.approx((30 + made_up) * RATE, rel=0.001)


@pytest.mark.parametrize("grant_seconds", [0.005, 0.02, 0.03])
def test_a_slow_sender_gets_the_rate(grant_seconds: float) -> None:
    """Each grant takes it this long, whatever its size. Nor does it get more than 105 % of a quota in any second."""
    pacer, now, sent = Pacer(RATE, 0.0), 0.0, []
    while now < 60:
        now += pacer.wait_seconds(now)
        size_bytes = pacer.slice_bytes(now)
        pacer.charge(size_bytes, now)
        sent.append((now, size_bytes))
        now += grant_seconds
    assert sum(size_bytes for _, size_bytes in sent) >= 0.99 * 60 * RATE
    fullest = max(sum(size for at, size in sent if start <= at < start + 1) for start, _ in sent[::7])
    assert fullest * FILL <= 1.05 * RATE


def test_a_slice_is_never_empty() -> None:
    assert Pacer(0.5, 0.0).slice_bytes(0.0) == 1
    assert Pacer(100.0 * MIB, 0.0).slice_bytes(0.0) == MIB


def test_nothing_is_granted_at_rate_zero_until_the_rate_rises() -> None:
    pacer = Pacer(0.0, 0.0)
    assert pacer.wait_seconds(1e9) == float("inf")
    pacer.change(RATE, 1e9)
    assert pacer.wait_seconds(1e9) == 0.0


@pytest.mark.parametrize("new_rate", [RATE / 1000, RATE * 1000])
def test_a_change_is_followed_within_a_slice(new_rate: float) -> None:
    pacer = Pacer(RATE / 1000, 0.0)
    pacer.charge(1_000_000, 0.0)
    pacer.change(new_rate, 1.0)
    assert pacer.wait_seconds(1.0) <= SLICE_SECONDS + 1e-9


# The rate of delete requests: how it is set, what a request weighs, and that it goes through the same limiter.

TOTAL = Scope(QuotaKind.DELETE, QuotaLevel.TOTAL)


def in_force(value: str) -> int | None:
    return quotas_in_force(ConfigSnapshot(1, {ALL_BROKERS: {DELETE_RATE: value}})).of(TOTAL)


def test_requests_are_paced_as_units() -> None:
    assert in_force("5") == 5 * UNITS_PER_REQUEST
    assert delete_scopes() == (TOTAL,)


def test_zero_is_unlimited() -> None:
    assert in_force("0") is None


@pytest.mark.parametrize("text", ["-1", "1000001", "five"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="0 \\(unlimited\\) to 1000000"):
        DELETE_LIMIT.canonical(text)


def test_it_belongs_to_the_default_of_the_brokers_alone() -> None:
    assert config_on(ALL_BROKERS, DELETE_RATE) is DELETE_LIMIT
    with pytest.raises(SettingError, match="belongs to brokers: default"):
        config_on(ConfigEntity(EntityType.BROKERS, "1"), DELETE_RATE)


def test_a_request_takes_all_of_its_units() -> None:
    units = CountingLimiter()
    RequestsAsBytes(units).take()
    assert units.total_bytes == UNITS_PER_REQUEST


def test_a_slow_rate_is_as_smooth_as_a_fast_one() -> None:
    """Two requests a second: the second one may leave half a second after the first, in slices of 10 ms."""
    pacer = Pacer(2.0 * UNITS_PER_REQUEST, free_at=0.0)
    now = 0.0
    for _ in range(2):
        left = UNITS_PER_REQUEST
        while left:
            now += pacer.wait_seconds(now)
            taken = min(left, pacer.slice_bytes(now))
            pacer.charge(taken, now)
            left -= taken
    assert now == pytest.approx(1.0, abs=0.02)


def test_without_quotas_only_the_gate_counts() -> None:
    def closed() -> None:
        raise SendingStoppedError("paused")

    NoQuotas().delete("orders", go_on=lambda: None).take()
    with pytest.raises(SendingStoppedError):
        NoQuotas().delete("orders", go_on=closed).take()


# Grants of one process, in time that only the test moves. `take` with no patience never blocks.

SCOPES = copy_scopes(1, "orders")
PACED_SCOPE, BROKER, TOPIC = SCOPES
PACED_RATE = 100_000.0
SLICE = int(PACED_RATE * SLICE_SECONDS)


@dataclass
class Observed:
    """A `QuotaObserver` that remembers."""

    granted_bytes: int = 0
    throttled_bytes: int = 0
    held_seconds: list[float] = field(default_factory=list)
    quotas: Mapping[Scope, int] | None = None

    def granted(self, kind: QuotaKind, topic: str, size_bytes: int) -> None:
        assert (kind, topic) == (QuotaKind.COPY, "orders")
        self.granted_bytes += size_bytes

    def throttled(self, kind: QuotaKind, topic: str, size_bytes: int, seconds: float) -> None:
        assert seconds > 0
        self.throttled_bytes += size_bytes

    def held_back(self, kind: QuotaKind, seconds: float) -> None:
        self.held_seconds.append(seconds)

    def refused(self, topic: str, size_bytes: int, seconds: float) -> None:
        raise AssertionError("a copy is never refused")

    def in_force(self, quotas: Mapping[Scope, int]) -> None:
        self.quotas = quotas


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pacing(clock: ManualClock) -> ProcessPacing:
    return ProcessPacing(clock)


def demand_of(pacing: ProcessPacing) -> float:
    return {demand.scopes: demand.wanted for demand in pacing.demands()}[SCOPES]


def take_of(pacing: ProcessPacing, stream: Stream, wanted_bytes: int) -> int:
    return pacing.take(stream, wanted_bytes, 0.0, pacing.next_turn()).size_bytes


def take(pacing: ProcessPacing, wanted_bytes: int = MIB) -> int:
    return take_of(pacing, pacing.stream(SCOPES), wanted_bytes)


def test_nothing_is_granted_before_the_ledger_was_asked(pacing: ProcessPacing) -> None:
    assert take(pacing) == 0
    assert pacing.starved.is_set()


def test_without_a_quota_all_is_granted_at_once(pacing: ProcessPacing, clock: ManualClock) -> None:
    pacing.hold(dict.fromkeys(SCOPES), clock.monotonic() + 1)
    assert not pacing.starved.is_set()
    assert take(pacing) == MIB
    assert pacing.share(PACED_SCOPE) is None


def test_the_narrowest_scope_decides_and_all_are_charged(pacing: ProcessPacing, clock: ManualClock) -> None:
    pacing.hold({PACED_SCOPE: 4 * PACED_RATE, BROKER: None, TOPIC: PACED_RATE}, clock.monotonic() + 1)
    assert take(pacing) == SLICE
    assert take(pacing) == 0
    clock.advance(SLICE_SECONDS)
    assert take(pacing) == SLICE
    pacing.hold({PACED_SCOPE: 4 * PACED_RATE, BROKER: None, TOPIC: PACED_RATE}, clock.monotonic() + 1)
    clock.advance(SLICE_SECONDS)
    assert take(pacing, SLICE) == SLICE
    assert pacing.share(PACED_SCOPE) == 4 * PACED_RATE


def test_a_stream_waits_for_the_scope_that_grants_last(pacing: ProcessPacing, clock: ManualClock) -> None:
    stream = pacing.stream(SCOPES)
    assert pacing.waits_for(stream) == PACED_SCOPE, "no rate is valid: the widest"
    pacing.hold({PACED_SCOPE: 4 * PACED_RATE, BROKER: None, TOPIC: PACED_RATE}, clock.monotonic() + 1)
    assert pacing.waits_for(stream) is None
    assert take(pacing) == SLICE
    assert pacing.waits_for(stream) == TOPIC
    clock.advance(SLICE_SECONDS)
    assert pacing.waits_for(stream) is None
    new_topic = copy_scopes(1, "payments")
    assert pacing.waits_for(pacing.stream(new_topic)) == new_topic[-1]


def test_of_scopes_that_grant_at_the_same_time_a_stream_waits_for_the_widest(
    pacing: ProcessPacing, clock: ManualClock
) -> None:
    pacing.hold(dict.fromkeys(SCOPES, PACED_RATE), clock.monotonic() + 1)
    assert take(pacing) == SLICE
    assert pacing.waits_for(pacing.stream(SCOPES)) == PACED_SCOPE


def test_rates_end_with_the_lease(pacing: ProcessPacing, clock: ManualClock) -> None:
    pacing.hold(dict.fromkeys(SCOPES), clock.monotonic() + 1)
    clock.advance(0.999)
    assert take(pacing, 5) == 5
    clock.advance(0.001)
    assert take(pacing, 5) == 0
    assert pacing.share(PACED_SCOPE) == 0.0
    assert pacing.starved.is_set()


def test_time_for_which_another_scope_held_a_stream_back_is_not_made_up_for(
    pacing: ProcessPacing, clock: ManualClock
) -> None:
    """Else a topic could take from others of the process what the total quota gave to these."""
    pacing.hold({PACED_SCOPE: PACED_RATE, BROKER: None, TOPIC: 2 * PACED_RATE}, clock.monotonic() + 100)
    for _ in range(100):
        clock.advance(SLICE_SECONDS)
        take(pacing)
    pacing.hold({PACED_SCOPE: None, BROKER: None, TOPIC: 2 * PACED_RATE}, clock.monotonic() + 100)
    taken = 0
    for _ in range(1_000):
        clock.advance(SLICE_SECONDS)
        taken += take(pacing)
    assert taken == pytest.approx(10 * 2 * PACED_RATE, rel=0.005)


def test_time_without_rates_is_not_made_up_for(pacing: ProcessPacing, clock: ManualClock) -> None:
    """Other processes may have used the quota meanwhile."""
    rates = {PACED_SCOPE: PACED_RATE, BROKER: None, TOPIC: None}
    pacing.hold(rates, clock.monotonic() + 1)
    clock.advance(10)
    pacing.hold(rates, clock.monotonic() + 100)
    taken = 0
    for _ in range(1_000):
        clock.advance(SLICE_SECONDS)
        taken += take(pacing)
    assert taken == pytest.approx(10 * PACED_RATE, rel=0.005)


def test_a_new_scope_waits_for_news_of_its_quota_while_others_go_on(pacing: ProcessPacing, clock: ManualClock) -> None:
    pacing.hold(dict.fromkeys(SCOPES), clock.monotonic() + 1)
    assert take_of(pacing, pacing.stream(copy_scopes(1, "payments")), 5) == 0
    assert take(pacing, 5) == 5


def test_a_reduction_never_raises_a_rate(pacing: ProcessPacing, clock: ManualClock) -> None:
    pacing.hold({PACED_SCOPE: PACED_RATE, BROKER: None, TOPIC: PACED_RATE}, clock.monotonic() + 1)
    pacing.reduce({PACED_SCOPE: PACED_RATE / 2, TOPIC: 2 * PACED_RATE, BROKER: 1.0})
    assert [pacing.share(scope) for scope in SCOPES] == [PACED_RATE / 2, 1.0, PACED_RATE]


def test_demand_is_what_was_used_or_all_there_is_for_who_was_held_up(pacing: ProcessPacing, clock: ManualClock) -> None:
    pacing.hold({PACED_SCOPE: PACED_RATE, BROKER: None, TOPIC: None}, clock.monotonic() + 100)
    pacing.demands()
    take(pacing, 100)
    clock.advance(1.0)
    assert demand_of(pacing) == pytest.approx(100)
    clock.advance(1.0)
    assert demand_of(pacing) == pytest.approx(100), "the faster of the last two periods counts"
    clock.advance(1.0)
    assert demand_of(pacing) == 0.0


def use(pacing: ProcessPacing, clock: ManualClock, shares: Mapping[Scope, float | None], used: float) -> float:
    """Return the demand after a second in which a sender, which also had to wait, used this part of the total share."""
    pacing.hold(shares, clock.monotonic() + 100)
    clock.advance(1.0)
    while take(pacing):
        pass
    pacing.stream(SCOPES).meter.used_bytes = round((shares[PACED_SCOPE] or 0.0) * used)
    return demand_of(pacing)


@pytest.mark.parametrize(("used", "is_held_up"), [(0.99, True), (0.95, False)])
def test_a_full_use_of_what_the_narrowest_scope_gives_shows_an_unlimited_demand(
    pacing: ProcessPacing, clock: ManualClock, used: float, is_held_up: bool
) -> None:
    """The wide share is no larger than what the narrow one lets it use; both are used to this part."""
    shares = {PACED_SCOPE: PACED_RATE, BROKER: None, TOPIC: PACED_RATE}
    for _ in range(4):
        demand = use(pacing, clock, shares, used)
    assert (demand == UNLIMITED_DEMAND) is is_held_up


def test_one_full_period_after_slow_ones_is_no_growth(pacing: ProcessPacing, clock: ManualClock) -> None:
    """A sender of bursts has now and then one more of them in a period, and its neighbours should not pay for it."""
    shares = {PACED_SCOPE: PACED_RATE, BROKER: None, TOPIC: None}
    for _ in range(2):
        use(pacing, clock, shares, 0.9)
    shares[PACED_SCOPE] = PACED_RATE * 0.99
    assert use(pacing, clock, shares, 1.0) == pytest.approx(PACED_RATE * 0.99, rel=0.001)
    assert use(pacing, clock, shares, 1.0) == UNLIMITED_DEMAND


def test_who_waits_at_a_full_share_wants_all_there_is() -> None:
    pacing = ProcessPacing(SystemClock())
    waiting = threading.Thread(target=pacing.take, args=(pacing.stream(SCOPES), 1, 600.0, 0))
    waiting.start()
    assert pacing.starved.wait(PATIENCE_SECONDS)
    assert demand_of(pacing) == UNLIMITED_DEMAND
    pacing.hold(dict.fromkeys(SCOPES), SystemClock().monotonic() + 600)
    waiting.join(PATIENCE_SECONDS)
    assert not waiting.is_alive()


def test_a_scope_is_forgotten_after_a_while(pacing: ProcessPacing, clock: ManualClock) -> None:
    pacing.hold(dict.fromkeys(SCOPES), clock.monotonic() + 1)
    take(pacing, 1)
    clock.advance(FORGET_SECONDS + 1)
    assert pacing.demands() == ()


def test_many_scopes_are_forgotten_soon_and_take_no_memory(pacing: ProcessPacing, clock: ManualClock) -> None:
    """Clients choose their names: each is a scope, and the ledger's row holds every scope in use."""
    for number in range(MANY_SCOPES + 1):
        pacing.share(Scope(QuotaKind.FETCH, QuotaLevel.CLIENT, f"client-{number}"))
    stream = pacing.stream(SCOPES)
    clock.advance(FORGET_MANY_SECONDS + 0.1)
    pacing.hold(dict.fromkeys(SCOPES, 1_000.0), clock.monotonic() + 10)
    assert take_of(pacing, stream, 1) == 1
    assert SCOPES in {demand.scopes for demand in pacing.demands()}
    del stream
    clock.advance(FORGET_SECONDS + 1)
    pacing.demands()
    gc.collect()
    mine = [one for one in gc.get_objects() if isinstance(one, Stream) and one.scopes[0].name.startswith("client-")]
    assert mine == []


def test_a_stream_that_was_forgotten_shares_the_rate_with_new_ones(pacing: ProcessPacing, clock: ManualClock) -> None:
    old = pacing.stream(SCOPES)
    clock.advance(FORGET_SECONDS + 1)
    assert pacing.demands() == ()
    pacing.hold({}, clock.monotonic() + 10)
    assert take_of(pacing, old, 1) == 0
    assert pacing.starved.is_set()
    assert SCOPES in {demand.scopes for demand in pacing.demands()}
    pacing.hold(dict.fromkeys(SCOPES, 1_000.0), clock.monotonic() + 10)
    assert take_of(pacing, old, MIB) > 0
    assert take_of(pacing, pacing.stream(SCOPES), MIB) == 0


def test_a_limiter_asks_whether_to_go_on_before_and_while_it_waits(clock: ManualClock) -> None:
    asked = 0

    def go_on() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise SendingStoppedError("stopped")

    limiter = ScopedLimiter(ProcessPacing(SystemClock()), SCOPES, "orders", go_on, Observed())
    assert limiter.take(0) == 0
    with pytest.raises(SendingStoppedError):
        limiter.take(1)
    assert asked == 3


class TickingClock(ManualClock):
    """A millisecond passes with each look at it."""

    def monotonic(self) -> float:
        self.advance(0.001)
        return super().monotonic()


def test_a_limiter_tells_what_it_granted_and_what_had_to_wait() -> None:
    clock, observed = TickingClock(), Observed()
    pacing = ProcessPacing(clock)
    limiter = ScopedLimiter(pacing, SCOPES, "orders", lambda: None, observed)
    pacing.hold(dict.fromkeys(SCOPES), clock.monotonic() + 60)
    assert limiter.take(10) == 10
    assert (limiter.waited_seconds, observed.throttled_bytes) == (0.0, 0)
    pacing.hold({PACED_SCOPE: PACED_RATE, BROKER: None, TOPIC: None}, clock.monotonic() + 60)
    first, second = limiter.take(MIB), limiter.take(MIB)
    assert SLICE <= first <= 1.2 * SLICE, "a tick of the clock is caught up"
    assert second == SLICE
    assert limiter.waited_seconds > 0
    assert (observed.granted_bytes, observed.throttled_bytes) == (10 + first + second, second)


class PassingTime(threading.Condition):
    """Whoever waits here finds that the time has passed."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._clock.advance(timeout)
        return False


def test_a_limiter_names_what_it_waits_for_as_long_as_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, seen = ManualClock(), list[Scope | None]()
    pacing = ProcessPacing(clock)
    pacing.hold({PACED_SCOPE: None, BROKER: None, TOPIC: PACED_RATE}, float("inf"))
    limiter = ScopedLimiter(pacing, SCOPES, "orders", lambda: None, Observed())

    class Seeing(PassingTime):
        def wait(self, timeout: float | None = None) -> bool:
            seen.append(limiter.waits_for)
            return super().wait(timeout)

    monkeypatch.setattr(pacing, "_condition", lambda: Seeing(clock))
    take_all(limiter, 3 * SLICE)
    assert limiter.waits_for is None
    assert set(seen) == {TOPIC}


@pytest.mark.parametrize("limited", [TOPIC, BROKER, None])
def test_who_comes_while_a_sender_oversleeps_waits_for_the_scope_with_the_limit(
    limited: Scope | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a quota counts as exhausted that is not, and copies that only it would limit do not begin."""
    clock, seen = ManualClock(), list[Scope | None]()
    pacing = ProcessPacing(clock)
    rates = {scope: float(PACED_RATE) if scope == limited else None for scope in SCOPES}
    stream = pacing.stream(SCOPES)

    class Oversleeping(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            clock.advance(timeout)
            self.release()
            if limited is None:
                pacing.hold(rates, float("inf"))
            seen.append(pacing.waits_for(stream))
            self.acquire()
            return False

    if limited is not None:
        pacing.hold({**rates, PACED_SCOPE: 100.0 * PACED_RATE}, float("inf"))
        assert take_of(pacing, stream, MIB) == SLICE
    monkeypatch.setattr(pacing, "_condition", lambda: Oversleeping(pacing._lock))
    assert pacing.take(stream, 1, 1.0, pacing.next_turn()).size_bytes == 1
    assert seen == [limited]
    assert pacing.waits_for(stream) is None


@pytest.mark.parametrize("begins_with", [0, 3])
def test_copies_are_sent_in_the_order_in_which_they_began(begins_with: int) -> None:
    """In whatever order they ask: a transfer whose limiter is older gets its bytes before all younger ones."""
    pacing, size_bytes = ProcessPacing(SystemClock()), 50_000
    pacing.hold(dict.fromkeys(SCOPES, 1_000_000.0), float("inf"))
    limiters = [ScopedLimiter(pacing, SCOPES, "orders", keep_on, Observed(), keeps_turn=True) for _ in range(4)]
    sent, ended = Counter[int](), dict[int, Counter[int]]()

    def send(number: int) -> None:
        while sent[number] < size_bytes:
            sent[number] += limiters[number].take(size_bytes - sent[number])
        ended[number] = Counter(sent)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for number in range(4):
        threads[(number + begins_with) % 4].start()
    for thread in threads:
        thread.join()
    assert list(ended) == [0, 1, 2, 3]
    for number in range(3):
        # Each may have had one grant, with what is caught up, before the older ones were there.
        younger = [ended[number][other] for other in range(number + 1, 4)]
        assert max(younger) <= 1_000_000 * (SLICE_SECONDS + CATCH_UP_SECONDS)


def test_no_copy_stands_still_for_long_while_older_ones_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request has begun, and a store ends one of which nothing comes."""
    monkeypatch.setattr(pacing_module, "LONGEST_STANDSTILL_SECONDS", 0.3)
    pacing, grants = ProcessPacing(SystemClock()), {number: [time.monotonic()] for number in range(4)}
    pacing.hold(dict.fromkeys(SCOPES, 1_000_000.0), float("inf"))
    limiters = [ScopedLimiter(pacing, SCOPES, "orders", keep_on, Observed(), keeps_turn=True) for _ in range(4)]
    ends_at, sent = time.monotonic() + 2.5, Counter[int]()

    def send(number: int) -> None:
        while time.monotonic() < ends_at:
            sent[number] += limiters[number].take(MIB)
            grants[number].append(time.monotonic())

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pauses = [max(after - before for before, after in pairwise(times)) for times in grants.values()]
    assert max(pauses) < 1.5, pauses
    assert sent[0] > 0.6 * sum(sent.values()), "the oldest is sent before the others all the same"


def test_readers_of_the_same_quota_take_turns() -> None:
    pacing, sent = ProcessPacing(SystemClock()), Counter[int]()
    pacing.hold(dict.fromkeys(SCOPES, 1_000_000.0), float("inf"))
    ends_at = time.monotonic() + 0.5

    def read(number: int) -> None:
        limiter = ScopedLimiter(pacing, SCOPES, "orders", keep_on, Observed())
        while time.monotonic() < ends_at:
            sent[number] += limiter.take(MIB)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert min(sent.values()) > 0.7 * max(sent.values())


@pytest.mark.parametrize("rate", [1_000.0, 1e6, 50e6])
@pytest.mark.parametrize("size_bytes", [250_000, 64 * MIB])
def test_a_segment_is_held_back_for_the_time_that_its_bytes_take(
    monkeypatch: pytest.MonkeyPatch, rate: float, size_bytes: int
) -> None:
    """The model: size / rate, less the first slice, which nothing holds back. It takes no time to send."""
    if size_bytes / rate > 1_000:
        size_bytes = int(1_000 * rate)
    clock = ManualClock()
    pacing = ProcessPacing(clock)
    monkeypatch.setattr(pacing, "_condition", lambda: PassingTime(clock))
    pacing.hold({PACED_SCOPE: rate, BROKER: None, TOPIC: None}, float("inf"))
    limiter = ScopedLimiter(pacing, SCOPES, "orders", lambda: None, Observed())
    take_all(limiter, size_bytes)
    expected = max(0.0, size_bytes / rate - SLICE_SECONDS)
    assert limiter.waited_seconds == pytest.approx(expected, abs=0.05, rel=0.01)


class SilentLedger:
    """It does not answer."""

    def exchange(self, change: LedgerRowChange) -> LedgerRow:
        raise MetadataUnavailableError("the file is locked")

    def database_ms(self) -> int:
        raise MetadataUnavailableError("the file is locked")


@dataclass
class Stored:
    """The stored quotas, and when they were read."""

    quotas: QuotasInForce
    reads: int = 0

    def read(self) -> QuotasInForce:
        self.reads += 1
        return self.quotas


def test_rounds_without_a_ledger_follow_each_other_before_what_they_read_is_too_old() -> None:
    assert shared_quotas._SILENT_PERIOD_SECONDS < shared_quotas.NO_LIMIT_SECONDS


@pytest.fixture
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are a tenth as far apart, for tests that count them."""
    for name in ("PERIOD_SECONDS", "_EARLY_ROUND_SECONDS", "_MEAN_SECONDS", "_SILENT_PERIOD_SECONDS"):
        monkeypatch.setattr(shared_quotas, name, getattr(shared_quotas, name) / 10)


@contextmanager
def quotas_without_ledger(stored: Stored) -> Iterator[SharedQuotas]:
    quotas = SharedQuotas(
        SilentLedger(), SystemClock(), random_bytes=bytes, stored_quotas=stored.read, observer=Observed()
    )
    try:
        yield quotas
    finally:
        quotas.close()


@pytest.mark.usefixtures("quick_rounds")
@pytest.mark.parametrize("set_before", [{}, {PACED_SCOPE: UNLIMITED}])
def test_a_silent_ledger_stops_nothing_while_no_quota_is_set(set_before: dict[Scope, int]) -> None:
    stored = Stored(QuotasInForce(1, set_before))
    with quotas_without_ledger(stored) as quotas:
        limiter = quotas.copy(1, "orders", go_on=lambda: None)
        assert limiter.take(MIB) == MIB
        reads = stored.reads
        eventually(lambda: stored.reads > reads + 2, "it reads again and again")
        assert limiter.take(MIB) == MIB
        stored.quotas = QuotasInForce(2, {PACED_SCOPE: 5_000_000})
        eventually(lambda: quotas.share(PACED_SCOPE) == 0.0, "a quota is set: without the ledger nothing is sent")


@pytest.mark.usefixtures("quick_rounds")
def test_an_error_that_nobody_expected_does_not_end_the_rounds() -> None:
    class Broken(Stored):
        def read(self) -> QuotasInForce:
            if super().read() and self.reads > 1:
                raise ZeroDivisionError("nobody expects it")
            return self.quotas

    stored = Broken(QuotasInForce(1, {}))
    with quotas_without_ledger(stored) as quotas:
        quotas.share(PACED_SCOPE)
        eventually(lambda: stored.reads > 4, "it reads again and again")


def test_the_first_read_is_admitted_by_a_silent_ledger_while_no_quota_is_set() -> None:
    """Before any round, a process knows no scope; a new topic is never known."""
    stored = Stored(QuotasInForce(1, {}))
    admission = FetchAdmission(
        SilentLedger().exchange, SilentLedger().database_ms, stored=stored.read, has_no_limit=lambda _: False
    )
    assert (admission.admit(SCOPES, 5), admission.throttle_ms(SCOPES), admission.lowest_quota(SCOPES)) == (0, 0, None)
    admission.record(SCOPES, 5)
    stored.quotas = QuotasInForce(2, {Scope(QuotaKind.COPY, QuotaLevel.TOTAL): 5})
    for ask in (lambda: admission.admit(SCOPES, 5), lambda: admission.throttle_ms(SCOPES)):
        with pytest.raises(MetadataUnavailableError):
            ask()


@pytest.mark.usefixtures("quick_rounds")
def test_with_a_quota_in_any_scope_a_silent_ledger_stops_all() -> None:
    stored = Stored(QuotasInForce(1, {Scope(QuotaKind.FETCH, QuotaLevel.TOTAL): 5}))
    asked = 0

    def go_on() -> None:
        nonlocal asked
        asked += 1
        if stored.reads > 4:
            raise SendingStoppedError("enough")

    with quotas_without_ledger(stored) as quotas, pytest.raises(SendingStoppedError):
        quotas.copy(1, "orders", go_on=go_on).take(MIB)


def test_a_row_that_was_lost_puts_no_quota_out_of_force(clock: ManualClock) -> None:
    ledger = MemoryLedgerStore()
    stored = QuotasInForce(4, {PACED_SCOPE: int(PACED_RATE)})
    pacing = ProcessPacing(clock)
    renewer = AllocationRenewer(ledger, pacing, clock, worker_id="a", stored_quotas=lambda: stored)
    pacing.stream(SCOPES)
    renewer.round()
    ledger.exchange(lambda _: LedgerRow())
    renewer.round()
    assert ledger.exchange(lambda row: row).quotas == stored
    assert pacing.share(PACED_SCOPE) is not None


def test_quotas_report_what_comes_into_force_and_give_their_shares_back() -> None:
    ledger, observed = MemoryLedgerStore(), Observed()
    AnnouncingLedger(ledger, SystemClock()).announce(QuotasInForce(1, {PACED_SCOPE: int(PACED_RATE)}))
    quotas = SharedQuotas(
        ledger,
        SystemClock(),
        random_bytes=lambda size: b"x" * size,
        stored_quotas=lambda: QuotasInForce(2, {PACED_SCOPE.default: 5_000_000}),
        observer=observed,
    )
    assert observed.quotas is None
    assert quotas.copy(1, "orders", go_on=lambda: None).take(1) == 1
    eventually(lambda: observed.quotas == {PACED_SCOPE: 5_000_000}, "what is stored is newer than what was announced")
    eventually(lambda: quotas.share(BROKER) is None, "no limit where there is no quota")
    quotas.held_back(QuotaKind.COPY, 0.0)
    quotas.held_back(QuotaKind.COPY, 2.5)
    assert observed.held_seconds == [2.5], "what was not held back is no throttle time"
    assert len(AnnouncingLedger(ledger, SystemClock()).workers()) == 1
    quotas.close()
    assert AnnouncingLedger(ledger, SystemClock()).workers() == ()
    assert not [thread for thread in threading.enumerate() if thread.name == "quota-shares"]


def test_the_first_round_reports_that_there_is_no_quota() -> None:
    """Another process may have recorded one that was removed since then."""
    observed = Observed()
    quotas = SharedQuotas(
        MemoryLedgerStore(),
        SystemClock(),
        random_bytes=bytes,
        stored_quotas=lambda: QuotasInForce(1, {}),
        observer=observed,
    )
    quotas.share(PACED_SCOPE)
    eventually(lambda: observed.quotas == {}, "no quota is in force")
    quotas.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda quotas: quotas.copy(1, "orders", go_on=lambda: None),
        lambda quotas: quotas.share(PACED_SCOPE),
    ],
    ids=["limiter", "share"],
)
def test_the_first_round_knows_what_was_asked_for(
    ask: Callable[[SharedQuotas], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first sender waits for the second round. Here the first one is over before `start` returns."""
    ledger, start, first = MemoryLedgerStore(), AllocationRenewer.start, list[LedgerRow]()

    def started(renewer: AllocationRenewer) -> None:
        start(renewer)
        eventually(lambda: ledger.exchange(lambda row: row).workers, "the first round is over")
        first.append(ledger.exchange(lambda row: row))

    monkeypatch.setattr(AllocationRenewer, "start", started)
    quotas = SharedQuotas(
        ledger,
        SystemClock(),
        random_bytes=bytes,
        stored_quotas=lambda: QuotasInForce(1, {PACED_SCOPE: 5_000_000}),
        observer=Observed(),
    )
    ask(quotas)
    quotas.close()
    ((entry,),) = (row.workers.values() for row in first)
    assert PACED_SCOPE in entry.allocations
