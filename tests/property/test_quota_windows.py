"""Averages and windows of quotas, against plain models."""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.quotas.topic_quotas import EwmaMeter
from include.tiering.quotas.window import QuotaWindow

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
        assert window.is_exceeded(quota, now_ms) is (rate > quota)
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
