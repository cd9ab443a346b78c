"""The meter in closed form against one that is awake at every tick."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.quotas.topic_quotas import EwmaMeter

STEPS = st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 2**40)), max_size=40)


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


@given(start_ms=st.integers(0, 2**45), steps=STEPS)
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


@given(steps=STEPS)
def test_meters_that_tick_together_add_up(steps):
    """What lets one meter be the difference of two."""
    whole, part, rest, now_ms = EwmaMeter(0), EwmaMeter(0), EwmaMeter(0), 0
    for pause_ms, events in steps:
        now_ms += pause_ms
        taken = events // 3
        whole, part = whole.mark(events, now_ms), part.mark(taken, now_ms)
        rest = rest.mark(events - taken, now_ms)
        assert part.per_second + rest.per_second == pytest.approx(whole.per_second, rel=1e-9, abs=1e-9)
