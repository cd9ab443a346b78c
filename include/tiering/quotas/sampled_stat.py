"""Kafka's sampled statistic: a ring of samples that a clock wipes one by one. Pure, no clock.

A recorded value goes into the current sample; when that is `sample_ms` old or older, the next place of the ring becomes
the current one and begins empty. The ring has one place more than `samples`, for the sample that overlaps the far end
of the window. Before anything is measured, a sample without an event for `samples` x `sample_ms` is wiped, whatever it
holds, and counts as begun now. So what is measured depends on when it was measured before, as it does in Kafka.

A clock that steps back does no more than Kafka lets it: the current sample goes on to be filled (its age is negative,
so it is not old enough), its last event is the earlier time, and nothing is wiped until the clock is past the events
by a whole window again. A step forward by the window or more wipes everything.

Not for several threads at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Sample:
    """What was recorded from `started_ms` on. `largest` is 0 without an event."""

    started_ms: int
    last_event_ms: int
    events: int = 0
    total: float = 0
    largest: float = 0

    def begin(self, now_ms: int) -> None:
        """Forget everything."""
        self.started_ms = self.last_event_ms = now_ms
        self.events = 0
        self.total = self.largest = 0


class SampledStat:
    """At most `samples` + 1 samples of `sample_ms` each. Values are 0 or more."""

    def __init__(self, samples: int, sample_ms: int) -> None:
        if samples < 1 or sample_ms < 1:
            raise ValueError(f"a window has at least 1 sample of 1 ms, not {samples} of {sample_ms} ms")
        self.sample_ms = sample_ms
        self._most = samples + 1
        self._expire_ms = samples * sample_ms
        self._ring: list[Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Count one event."""
        if not self._ring:
            self._ring.append(Sample(now_ms, now_ms))
        if now_ms - self._ring[self._current].started_ms >= self.sample_ms:
            self._advance(now_ms)
        sample = self._ring[self._current]
        sample.events += 1
        sample.total += value
        sample.largest = max(sample.largest, value)
        sample.last_event_ms = now_ms

    def measured(self, now_ms: int) -> Sequence[Sample]:
        """All samples, those that are over wiped; none before the first record or `age_ms`."""
        for sample in self._ring:
            if now_ms - sample.last_event_ms >= self._expire_ms:
                sample.begin(now_ms)
        return self._ring

    def age_ms(self, now_ms: int) -> int:
        """Time since the oldest sample began, negative after a step back; a ring without a sample begins one now."""
        if not self._ring:
            self._ring.append(Sample(now_ms, now_ms))
        return now_ms - min(sample.started_ms for sample in self._ring)

    def _advance(self, now_ms: int) -> None:
        self._current = (self._current + 1) % self._most
        if self._current == len(self._ring):
            self._ring.append(Sample(now_ms, now_ms))
        else:
            self._ring[self._current].begin(now_ms)
