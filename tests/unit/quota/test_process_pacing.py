"""Grants of one process, in time that only the test moves. `take` with no patience never blocks."""

import threading

import pytest

from include.tiering.clock import SystemClock
from include.tiering.errors import SendingStoppedError
from include.tiering.quota.contract import QuotasInForce
from include.tiering.quota.demand import ALL_THERE_IS
from include.tiering.quota.limiter import ScopedLimiter
from include.tiering.quota.pacer import SLICE_SECONDS
from include.tiering.quota.process_pacing import FORGET_SECONDS, ProcessPacing
from include.tiering.quota.scopes import copy_scopes
from include.tiering.units import MIB
from tests.doubles.manual_clock import ManualClock

SCOPES = copy_scopes(1, "orders")
TOTAL, BROKER, TOPIC = SCOPES
RATE = 100_000.0
SLICE = int(RATE * SLICE_SECONDS)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pacing(clock: ManualClock) -> ProcessPacing:
    return ProcessPacing(clock)


def take(pacing: ProcessPacing, wanted_bytes: int = MIB) -> int:
    return pacing.take(SCOPES, wanted_bytes, 0.0)


def test_nothing_is_granted_before_the_ledger_was_asked(pacing: ProcessPacing) -> None:
    assert take(pacing) == 0
    assert pacing.starved.is_set()


def test_without_a_quota_all_is_granted_at_once(pacing: ProcessPacing, clock: ManualClock) -> None:
    pacing.hold(dict.fromkeys(SCOPES), clock.monotonic() + 1)
    assert not pacing.starved.is_set()
    assert take(pacing) == MIB
    assert pacing.share(TOTAL) is None


def test_the_narrowest_scope_decides_and_all_are_charged(pacing: ProcessPacing, clock: ManualClock) -> None:
    pacing.hold({TOTAL: 4 * RATE, BROKER: None, TOPIC: RATE}, clock.monotonic() + 1)
    assert take(pacing) == SLICE
    assert take(pacing) == 0
    clock.advance(SLICE_SECONDS)
    assert take(pacing) == SLICE
    used = pacing.wanted(QuotasInForce(1, {TOTAL: 1, TOPIC: 1}))
    assert used[TOTAL] == pytest.approx(used[TOPIC]) == pytest.approx(2 * SLICE / SLICE_SECONDS, rel=0.01)


def test_rates_end_with_the_lease(pacing: ProcessPacing, clock: ManualClock) -> None:
    pacing.hold(dict.fromkeys(SCOPES), clock.monotonic() + 1)
    clock.advance(0.999)
    assert take(pacing, 5) == 5
    clock.advance(0.001)
    assert take(pacing, 5) == 0
    assert pacing.share(TOTAL) == 0.0
    assert pacing.starved.is_set()


def test_a_new_scope_waits_for_news_of_its_quota_while_others_go_on(pacing: ProcessPacing, clock: ManualClock) -> None:
    pacing.hold(dict.fromkeys(SCOPES), clock.monotonic() + 1)
    assert pacing.take(copy_scopes(1, "payments"), 5, 0.0) == 0
    assert take(pacing, 5) == 5


def test_a_reduction_never_raises_a_rate(pacing: ProcessPacing, clock: ManualClock) -> None:
    pacing.hold({TOTAL: RATE, BROKER: None, TOPIC: RATE}, clock.monotonic() + 1)
    pacing.reduce({TOTAL: RATE / 2, TOPIC: 2 * RATE, BROKER: 1.0})
    assert [pacing.share(scope) for scope in SCOPES] == [RATE / 2, None, RATE]


def test_demand_is_what_was_used_or_all_there_is_for_who_was_held_up(pacing: ProcessPacing, clock: ManualClock) -> None:
    quotas = QuotasInForce(1, {TOTAL: int(RATE)})
    pacing.hold({TOTAL: RATE, BROKER: None, TOPIC: None}, clock.monotonic() + 100)
    pacing.wanted(quotas)
    take(pacing, 100)
    clock.advance(1.0)
    assert pacing.wanted(quotas)[TOTAL] == pytest.approx(110)
    clock.advance(1.0)
    assert pacing.wanted(quotas)[TOTAL] == pytest.approx(110), "the faster of the last two periods counts"
    clock.advance(1.0)
    assert pacing.wanted(quotas)[TOTAL] == 0.0


def test_who_waits_at_a_full_share_wants_all_there_is() -> None:
    pacing = ProcessPacing(SystemClock())
    waiting = threading.Thread(target=pacing.take, args=(SCOPES, 1, 10.0))
    waiting.start()
    assert pacing.starved.wait(5)
    assert pacing.wanted(QuotasInForce(1, {})) == dict.fromkeys(SCOPES, ALL_THERE_IS)
    pacing.hold(dict.fromkeys(SCOPES), SystemClock().monotonic() + 5)
    waiting.join(5)
    assert not waiting.is_alive()


def test_a_scope_is_forgotten_after_a_while(pacing: ProcessPacing, clock: ManualClock) -> None:
    pacing.hold(dict.fromkeys(SCOPES), clock.monotonic() + 1)
    take(pacing, 1)
    clock.advance(FORGET_SECONDS + 1)
    assert pacing.wanted(QuotasInForce(1, {})) == {}


def test_a_limiter_asks_whether_to_go_on_before_and_while_it_waits(clock: ManualClock) -> None:
    asked = 0

    def go_on() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise SendingStoppedError("stopped")

    limiter = ScopedLimiter(ProcessPacing(SystemClock()), SCOPES, go_on, SystemClock())
    assert limiter.take(0) == 0
    with pytest.raises(SendingStoppedError):
        limiter.take(1)
    assert asked == 3
