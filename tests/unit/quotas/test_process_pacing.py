"""Grants of one process, in time that only the test moves. `take` with no patience never blocks."""

import threading
from dataclasses import dataclass, field

import pytest

from include.tiering.clock import SystemClock
from include.tiering.errors import SendingStoppedError
from include.tiering.quotas.contract import QuotaKind, QuotasInForce, Scope, copy_scopes
from include.tiering.quotas.shared_quotas import AnnouncingLedger, SharedQuotas
from include.tiering.quotas.shares import (
    FORGET_SECONDS,
    SLICE_SECONDS,
    UNLIMITED_DEMAND,
    ProcessPacing,
    ScopedLimiter,
)
from include.tiering.units import MIB
from tests.doubles.manual_clock import ManualClock
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.quotas import MemoryLedgerStore

SCOPES = copy_scopes(1, "orders")
TOTAL, BROKER, TOPIC = SCOPES
RATE = 100_000.0
SLICE = int(RATE * SLICE_SECONDS)


@dataclass
class Observed:
    """A `QuotaObserver` that remembers."""

    granted_bytes: int = 0
    throttled_bytes: int = 0
    quotas: dict[Scope, int | None] = field(default_factory=dict)

    def granted(self, kind: QuotaKind, topic: str, size_bytes: int) -> None:
        assert (kind, topic) == (QuotaKind.COPY, "orders")
        self.granted_bytes += size_bytes

    def throttled(self, kind: QuotaKind, topic: str, size_bytes: int, seconds: float) -> None:
        assert seconds > 0
        self.throttled_bytes += size_bytes

    def in_force(self, scope: Scope, bytes_per_second: int | None) -> None:
        self.quotas[scope] = bytes_per_second


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pacing(clock: ManualClock) -> ProcessPacing:
    return ProcessPacing(clock)


def take(pacing: ProcessPacing, wanted_bytes: int = MIB) -> int:
    return pacing.take(pacing.stream(SCOPES), wanted_bytes, 0.0).size_bytes


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
    assert pacing.take(pacing.stream(copy_scopes(1, "payments")), 5, 0.0).size_bytes == 0
    assert take(pacing, 5) == 5


def test_a_reduction_never_raises_a_rate(pacing: ProcessPacing, clock: ManualClock) -> None:
    pacing.hold({TOTAL: RATE, BROKER: None, TOPIC: RATE}, clock.monotonic() + 1)
    pacing.reduce({TOTAL: RATE / 2, TOPIC: 2 * RATE, BROKER: 1.0})
    assert [pacing.share(scope) for scope in SCOPES] == [RATE / 2, 1.0, RATE]


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
    waiting = threading.Thread(target=pacing.take, args=(pacing.stream(SCOPES), 1, 600.0))
    waiting.start()
    assert pacing.starved.wait(PATIENCE_SECONDS)
    assert pacing.wanted(QuotasInForce(1, {})) == dict.fromkeys(SCOPES, UNLIMITED_DEMAND)
    pacing.hold(dict.fromkeys(SCOPES), SystemClock().monotonic() + 600)
    waiting.join(PATIENCE_SECONDS)
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
    pacing.hold({TOTAL: RATE, BROKER: None, TOPIC: None}, clock.monotonic() + 60)
    assert [limiter.take(MIB), limiter.take(MIB)] == [SLICE, SLICE]
    assert limiter.waited_seconds > 0
    assert (observed.granted_bytes, observed.throttled_bytes) == (10 + 2 * SLICE, SLICE)


def test_quotas_report_what_comes_into_force_and_give_their_shares_back() -> None:
    ledger, observed = MemoryLedgerStore(), Observed()
    AnnouncingLedger(ledger, SystemClock()).announce(QuotasInForce(1, {TOTAL: int(RATE)}))
    quotas = SharedQuotas(
        ledger,
        SystemClock(),
        random_bytes=lambda size: b"x" * size,
        stored_quotas=lambda: QuotasInForce(2, {TOTAL.default: 5_000_000}),
        observer=observed,
    )
    assert quotas.copy(1, "orders", go_on=lambda: None).take(1) == 1
    eventually(lambda: observed.quotas == {TOTAL: 5_000_000}, "what is stored is newer than what was announced")
    eventually(lambda: quotas.share(BROKER) is None, "no limit where there is no quota")
    assert len(AnnouncingLedger(ledger, SystemClock()).workers()) == 1
    quotas.close()
    assert AnnouncingLedger(ledger, SystemClock()).workers() == ()
    assert not [thread for thread in threading.enumerate() if thread.name == "quota-shares"]
