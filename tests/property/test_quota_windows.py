"""Averages, windows and shares of quotas, against plain models."""

import math
import secrets
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import MetadataUnavailableError
from include.tiering.quotas.contract import QuotasInForce, Scope, copy_scopes
from include.tiering.quotas.pacing import ProcessPacing
from include.tiering.quotas.shared_quotas import PERIOD_SECONDS, AllocationRenewer, AnnouncingLedger, LedgerRowChange
from include.tiering.quotas.shares import FILL, NO_QUOTAS, SILENT_SECONDS, UNLIMITED_DEMAND, Demand, LedgerRow
from include.tiering.quotas.topic_quotas import EwmaMeter
from include.tiering.quotas.window import QuotaWindow
from tests.doubles.manual_clock import ManualClock
from tests.doubles.quotas import MemoryLedgerStore

# Averages and windows of quotas, against plain models.

# The meter in closed form against one that is awake at every tick.

EWMA_STEPS = st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 2**40)), max_size=40)


class EverAwake:
    """A timer of one millisecond resolution, as a plain loop."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.rate: float | None = None
        self.waiting = 0

    def sleep_until(self, now_ms: int) -> None:
        while self.now_ms - self.now_ms % 5_000 + 5_000 <= now_ms:
            self.now_ms += 5_000 - self.now_ms % 5_000
            self.tick()
        self.now_ms = now_ms

    def tick(self) -> None:
        latest = self.waiting / 5
        alpha = 1 - math.exp(-5 / 60)
        self.rate = latest if self.rate is None else self.rate + alpha * (latest - self.rate)
        self.waiting = 0


@given(start_ms=st.integers(0, 2**45), steps=EWMA_STEPS)
def test_equals_a_plain_loop(start_ms, steps):
    meter, awake, now_ms, total = EwmaMeter(start_ms), EverAwake(), 0, 0
    for pause_ms, events in steps:
        now_ms += pause_ms
        total += events
        meter = meter.mark(events, start_ms + now_ms)
        awake.sleep_until(now_ms)
        awake.waiting += events
        assert meter.per_second == pytest.approx(awake.rate or 0.0, rel=1e-9, abs=1e-9)
        assert (meter.count, meter.uncounted) == (total, awake.waiting)


@given(steps=st.lists(st.tuples(st.integers(-(10**12), 10**12), st.integers(0, 2**40)), min_size=1, max_size=40))
def test_whatever_the_clock_does_counts_are_kept_and_rates_are_rates(steps):
    meter, now_ms, seen = EwmaMeter(0), 0, 0
    for step_ms, events in steps:
        now_ms += step_ms
        seen += events
        meter = meter.mark(events, now_ms)
        assert meter.count == seen
        assert 0 <= meter.per_second <= max(count for _, count in steps) * len(steps) / 5
        assert 0 <= now_ms - meter.last_tick_ms < 5_000


@given(steps=EWMA_STEPS)
def test_meters_that_tick_together_add_up(steps):
    """What lets one meter be the difference of two."""
    whole, part, rest, now_ms = EwmaMeter(0), EwmaMeter(0), EwmaMeter(0), 0
    for pause_ms, events in steps:
        now_ms += pause_ms
        taken = events // 3
        whole, part = whole.mark(events, now_ms), part.mark(taken, now_ms)
        rest = rest.mark(events - taken, now_ms)
        assert part.per_second + rest.per_second == pytest.approx(whole.per_second, rel=1e-9, abs=1e-9)


# The quota window against an oracle that keeps every record and finds its samples anew for each answer.

ASK = None
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Span:
    """A sample of the oracle: when it began, and everything that was recorded in it as (time, value)."""

    begin_ms: int
    records: tuple[tuple[int, int], ...] = ()

    @property
    def last_ms(self) -> int:
        return self.records[-1][0] if self.records else self.begin_ms


@dataclass
class EveryRecord:
    """`history` is all that ever happened, as (time, value or ASK)."""

    samples: int
    sample_ms: int
    history: list[tuple[int, int | None]] = field(default_factory=list)

    def ask(self, now_ms: int) -> tuple[int, int]:
        """Bytes in the window and its length in ms."""
        self.history.append((now_ms, ASK))
        spans = self._spans()
        records = [value for span in spans for _, value in span.records]
        return sum(records), max(now_ms - min(span.begin_ms for span in spans), self.sample_ms)

    def _spans(self) -> list[Span]:
        """The newest `samples` + 1 of all spans that follow from the history."""
        spans: list[Span] = []
        recorded_ms = self.history[0][0]
        for now_ms, value in self.history:
            if now_ms > recorded_ms + HOUR_MS:
                spans, recorded_ms = [], now_ms
            if value is ASK:
                kept = [span if self._lasts(span, now_ms) else Span(now_ms) for span in spans[-self.samples - 1 :]]
                spans = kept or [Span(now_ms)]
            else:
                recorded_ms = now_ms
                if not spans or now_ms >= spans[-1].begin_ms + self.sample_ms:
                    spans = [*spans, Span(now_ms)]
                spans = [*spans[:-1], Span(spans[-1].begin_ms, (*spans[-1].records, (now_ms, value)))]
        return spans[-self.samples - 1 :]

    def _lasts(self, span: Span, now_ms: int) -> bool:
        return now_ms < span.last_ms + self.samples * self.sample_ms


SAMPLE_MS = st.sampled_from([1, 7, 1_000])
STEPS = st.one_of(
    st.integers(0, 3),
    st.integers(0, 3_000),
    st.integers(-20_000, 20_000),
    st.sampled_from([1_000, 10_999, 11_000, 60_999, 61_000, HOUR_MS, HOUR_MS + 1, -HOUR_MS]),
)
EVENTS = st.lists(st.tuples(STEPS, st.one_of(st.just(ASK), st.integers(0, 10_000))), max_size=40)


@given(samples=st.sampled_from([1, 2, 11, 61]), sample_ms=SAMPLE_MS, quota=st.integers(1, 5_000), events=EVENTS)
def test_every_answer_is_the_oracles(samples, sample_ms, quota, events):
    window, oracle = QuotaWindow(samples, sample_ms), EveryRecord(samples, sample_ms)
    now_ms = 1_700_000_000_000
    for step_ms, value in events:
        now_ms += step_ms
        if value is not ASK:
            window.record(value, now_ms)
            oracle.history.append((now_ms, value))
            continue
        recorded, elapsed_ms = oracle.ask(now_ms)
        rate = recorded / (elapsed_ms / 1000)
        assert window.rate(now_ms) == rate
        wait_ms = (rate - quota) / quota * elapsed_ms
        assert abs(window.throttle_ms(quota, now_ms) - max(wait_ms, 0)) <= 0.5
        assert (window.throttle_ms(quota, now_ms) > 0) is (wait_ms >= 0.5)


@given(records=st.lists(st.tuples(st.integers(0, 2_500), st.integers(0, 10_000)), min_size=1, max_size=60))
def test_asked_once_the_answer_follows_from_the_records_alone(records):
    """Eleven samples of a second, a clock that goes on: a sample is whatever comes within a second of its first."""
    window, now_ms = QuotaWindow(11, 1_000), 0
    groups: list[list[Any]] = []
    for step_ms, value in records:
        now_ms += step_ms
        window.record(value, now_ms)
        if not groups or now_ms - groups[-1][0][0] >= 1_000:
            groups.append([])
        groups[-1].append((now_ms, value))
    live = [group for group in groups[-12:] if now_ms - group[-1][0] < 11_000]
    seconds = max(now_ms - live[0][0][0], 1_000) / 1_000
    assert window.rate(now_ms) == sum(value for group in live for _, value in group) / seconds


# Processes that renew, stall, die and lose the ledger, in time that only the test moves. Each process is the real
# renewer and the real pacing over one ledger row; nothing sleeps. What a process may send at a moment is its rate
# while its lease lasts. The sum of that over all processes must never exceed the quota of any scope, nor, while one
# that fell has not reached every process yet, what the row says.

TOTAL, BROKER, TOPIC = copy_scopes(1, "orders")
QUOTA = 1_000_000
PART_OF_QUOTA = {TOTAL: 1.0, BROKER: 0.5, TOPIC: 0.25}
STREAMS = ((TOTAL,), (TOTAL, BROKER), (TOTAL, BROKER, TOPIC), (TOTAL, TOPIC))


class Unsteady:
    """A ledger that can be away before a change is stored, or fail to answer after it was."""

    def __init__(self) -> None:
        self.inner = MemoryLedgerStore()
        self.fails_before = self.fails_after = False

    def database_ms(self) -> int:
        return self.inner.database_ms()

    def exchange(self, change: LedgerRowChange) -> LedgerRow:
        if self.fails_before:
            raise MetadataUnavailableError("away")
        row = self.inner.exchange(change)
        if self.fails_after:
            raise MetadataUnavailableError("no answer")
        return row


class DemandingPacing(ProcessPacing):
    """Asks for what the test says instead of for what was used."""

    demand: float = UNLIMITED_DEMAND
    scopes: tuple[Scope, ...] = (TOTAL,)

    def demands(self) -> tuple[Demand, ...]:
        return (Demand(self.scopes, self.demand),)


@dataclass
class Process:
    clock: ManualClock
    ledger: Unsteady
    scopes: tuple[Scope, ...]
    pacing: DemandingPacing = field(init=False)
    renewer: AllocationRenewer = field(init=False)

    def __post_init__(self) -> None:
        self.pacing = DemandingPacing(self.clock)
        self.pacing.scopes = self.scopes
        self.renewer = AllocationRenewer(
            self.ledger,
            self.pacing,
            self.clock,
            worker_id=secrets.token_hex(4),
            stored_quotas=lambda: NO_QUOTAS,
        )

    def rate(self, scope: Scope) -> float:
        share = self.pacing.share(scope)
        assert share is not None
        return share


@dataclass
class World:
    clock: ManualClock = field(default_factory=ManualClock)
    ledger: Unsteady = field(default_factory=Unsteady)
    processes: list[Process] = field(default_factory=list)
    version: int = 0

    def set_quota(self, quota: int) -> None:
        self.version += 1
        quotas = {scope: round(quota * part) for scope, part in PART_OF_QUOTA.items()}
        AnnouncingLedger(self.ledger.inner, self.clock).announce(QuotasInForce(self.version, quotas))

    def join(self) -> None:
        self.processes.append(Process(self.clock, self.ledger, STREAMS[len(self.processes) % len(STREAMS)]))

    def quota(self, scope: Scope) -> float:
        return float(AnnouncingLedger(self.ledger.inner, self.clock).in_force().of(scope) or 0)

    def written(self, scope: Scope) -> float:
        """The sum of shares in the row: above the quota only while one that fell has not reached every process."""
        row = self.ledger.inner.exchange(lambda row: row)
        return sum(entry.allocations[scope].share for entry in row.workers.values() if scope in entry.allocations)

    def rates(self, scope: Scope) -> float:
        return sum(process.rate(scope) for process in self.processes if scope in process.scopes)


ACTIONS = {
    "round": (12, lambda random: (random.randrange(6),)),
    "advance": (8, lambda random: (random.choice([0.01, 0.1, 0.2, 0.3, 0.5, 0.9, 1.2]),)),
    "demand": (2, lambda random: (random.randrange(6), random.choice([0.0, 1000.0, 400_000.0, UNLIMITED_DEMAND]))),
    "away": (1, lambda random: (random.randrange(6),)),
    "no answer": (2, lambda random: (random.randrange(6),)),
    "quota": (1, lambda random: (random.randrange(1, 20),)),
    "wall clock": (1, lambda random: (random.choice([-3_600_000, 3_600_000]),)),
    "join": (1, lambda random: ()),
    "kill": (1, lambda random: (random.randrange(6),)),
}
"""Name, weight, arguments."""


@given(st.integers(0, 2**32))
def test_what_all_may_send_never_exceeds_the_quota(seed: int) -> None:
    random = Random(seed)
    names, weights = list(ACTIONS), [weight for weight, _ in ACTIONS.values()]
    world = World()
    world.set_quota(QUOTA)
    for _ in STREAMS:
        world.join()
    for name in random.choices(names, weights, k=200):
        arguments = ACTIONS[name][1](random)
        written = {scope: world.written(scope) for scope in PART_OF_QUOTA}
        _act(world, name, *arguments)
        for scope, before in written.items():
            fill, now = world.quota(scope) * FILL, world.written(scope)
            assert now <= max(fill, before) + 0.01, (name, arguments, scope)
            assert world.rates(scope) <= max(fill, now) + 0.01, (name, arguments, scope)
    _settle(world)
    for scope in PART_OF_QUOTA:
        assert world.rates(scope) <= world.quota(scope) * FILL + 0.01
    for process in world.processes:
        used_up = [world.rates(scope) >= world.quota(scope) * FILL * 0.999 for scope in process.scopes]
        assert any(used_up), "who is busy has used up the quota of one of its scopes, with others"


def _act(world: World, name: str, number: float = 0, demand: float = 0.0) -> None:
    process = world.processes[int(number) % len(world.processes)]
    if name == "join" and len(world.processes) < 6:
        world.join()
    elif name == "advance":
        world.clock.advance(number)
    elif name == "wall clock":
        world.clock.step(int(number))
    elif name == "quota":
        world.set_quota(int(number) * QUOTA // 10)
    elif name == "demand":
        process.pacing.demand = demand
    elif name == "kill" and len(world.processes) > 1:
        world.processes.remove(process)
    elif name in ("round", "away", "no answer"):
        world.ledger.fails_before, world.ledger.fails_after = name == "away", name == "no answer"
        try:
            process.renewer.round()
        except MetadataUnavailableError:
            assert name != "round"
        world.ledger.fails_before = world.ledger.fails_after = False


def _settle(world: World) -> None:
    """Everybody is busy for as long as a dead process may go unnoticed, and three rounds more."""
    for process in world.processes:
        process.pacing.demand = UNLIMITED_DEMAND
    for _ in range(int(SILENT_SECONDS / PERIOD_SECONDS) + 4):
        world.clock.advance(PERIOD_SECONDS)
        for process in world.processes:
            process.renewer.round()
