"""Kafka's sampled statistic, and the rate of a quota window and its throttle time. No clock.

Results equal those of Kafka's brokers to the millisecond, apart from `INACTIVE_MS`.

**`SampledStat`** is a ring of samples. A recorded value goes into the current sample; when that
is `sample_ms` old or older, the next place of the ring becomes the current sample and begins empty. The ring has
`samples` + 1 places: the additional sample overlaps the far end of the window. Before a measurement, a sample without
an event for `samples` x `sample_ms` is reset, whatever its content, and counts as begun now. So a result depends on the
times of earlier measurements, as it does in Kafka.

A clock that steps back has the same effect as in Kafka. The current sample continues to be filled, even at a negative
age, and its last event gets the earlier time. No measurement resets a sample until the clock is a whole window past the
sample's last event. After a step forward by the window or more, the next measurement resets all earlier samples. Not
thread-safe.

**`QuotaWindow`** is `RLMQuotaManager` of Kafka 3.9 and later: its rate is the sum of the samples, divided by the time
since the oldest of them began, which counts as at least `sample_ms`. The window is not padded to its full length: with
samples of 1 s, ten bytes in the first millisecond are ten bytes a second. The throttle time is how much longer that
time would have to be for the rate to equal the quota. Unlike a limiter, the window enforces no rate, and after a
throttle time the rate need not be within the quota:

* a sample is reset one window after its last event, whatever its content, so a segment larger than quota x window
  delays later ones for one window only;
* for a window younger than one sample, the throttle time is computed as if the window were one sample old, so that the
  rate is still above the quota when the throttle time has passed;
* when an old sample is reset, the rest is divided by less time: the rate may rise although no byte was sent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self


@dataclass(slots=True)
class Sample:
    """What was recorded from `started_ms` on."""

    started_ms: int
    last_event_ms: int
    total: float = 0

    def begin(self, now_ms: int) -> None:
        """Reset the sample."""
        self.started_ms = self.last_event_ms = now_ms
        self.total = 0


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
        """Count one event with this value."""
        if not self._ring:
            self._ring.append(Sample(now_ms, now_ms))
        if now_ms - self._ring[self._current].started_ms >= self.sample_ms:
            self._advance(now_ms)
        sample = self._ring[self._current]
        sample.total += value
        sample.last_event_ms = now_ms

    def measured(self, now_ms: int) -> Sequence[Sample]:
        """Reset samples without an event in the window; return all: none before the first `record` or `age_ms`."""
        for sample in self._ring:
            if now_ms - sample.last_event_ms >= self._expire_ms:
                sample.begin(now_ms)
        return self._ring

    def age_ms(self, now_ms: int) -> int:
        """Return the time since the oldest sample began; begin a sample now if there is none.

        After a step back of the clock it may be negative.
        """
        if not self._ring:
            self._ring.append(Sample(now_ms, now_ms))
        return now_ms - min(sample.started_ms for sample in self._ring)

    @property
    def state(self) -> tuple[int, tuple[tuple[int, int, float], ...]]:
        """The place of the current sample, and begin, last event and total of each sample."""
        return self._current, tuple((one.started_ms, one.last_event_ms, one.total) for one in self._ring)

    def restore(self, current: int, samples: Sequence[tuple[int, int, float]]) -> None:
        """Continue from a `state`; a state with more samples than this ring can have is ignored."""
        if len(samples) <= self._most and current < len(samples):
            self._ring = [Sample(started_ms, last_ms, total=total) for started_ms, last_ms, total in samples]
            self._current = current

    def _advance(self, now_ms: int) -> None:
        self._current = (self._current + 1) % self._most
        if self._current == len(self._ring):
            self._ring.append(Sample(now_ms, now_ms))
        else:
            self._ring[self._current].begin(now_ms)


INACTIVE_MS: Final = 3_600_000
"""A window without a record for longer than this is reset at its next use. Kafka removes it up to 30 s later."""


@dataclass(frozen=True, slots=True)
class WindowState:
    """A `QuotaWindow` that has recorded bytes, as a value: the time of its last record, and `SampledStat.state`."""

    last_record_ms: int
    current: int
    samples: tuple[tuple[int, int, float], ...]

    @classmethod
    def parse(cls, last_record_ms: int, current: int, samples: Sequence[tuple[int, int, float]]) -> Self:
        """Return the state from its values as JSON has them. Raises TypeError or ValueError for any other values."""
        read = tuple((int(begun), int(last), float(total)) for begun, last, total in samples)
        return cls(int(last_record_ms), int(current), read)


class QuotaWindow:
    """Bytes in a sampled window. Times are milliseconds of any one clock.

    A quota is in bytes a second, 1 or more; None stands for no limit, as `contract.UNLIMITED` does.
    """

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._samples = samples
        self._sample_ms = sample_ms
        self._stat = SampledStat(samples, sample_ms)
        self._last_record_ms: int | None = None

    @classmethod
    def of(cls, samples: int, sample_ms: int, state: WindowState) -> Self:
        """Return a window that continues from a state. If the state has more samples than fit, all are ignored."""
        window = cls(samples, sample_ms)
        window._stat.restore(state.current, state.samples)
        window._last_record_ms = state.last_record_ms
        return window

    @property
    def state(self) -> WindowState:
        """The window as a value. Raises ValueError if nothing was recorded."""
        if self._last_record_ms is None:
            raise ValueError("a window without a record has no state")
        return WindowState(self._last_record_ms, *self._stat.state)

    def record(self, value: int, now_ms: int) -> None:
        """Count bytes, whether they are within a quota or not."""
        self._active_stat(now_ms).record(value, now_ms)
        self._last_record_ms = now_ms

    def rate(self, now_ms: int) -> float:
        """Return the bytes a second in the window."""
        recorded, elapsed_ms = self._measure(now_ms)
        return recorded / (elapsed_ms / 1000)

    def throttle_ms(self, quota: int | None, now_ms: int) -> int:
        """Return Kafka's throttle time in ms, rounded half up; 0 without a quota or for a rate of at most the quota."""
        recorded, elapsed_ms = self._measure(now_ms)
        rate = recorded / (elapsed_ms / 1000)
        if quota is None or rate <= _valid(quota):
            return 0
        return _rounded((rate - quota) / quota * elapsed_ms)

    def _measure(self, now_ms: int) -> tuple[float, int]:
        """Return the bytes in the window, and the milliseconds by which they are divided."""
        stat = self._active_stat(now_ms)
        recorded = sum(sample.total for sample in stat.measured(now_ms))
        return recorded, max(stat.age_ms(now_ms), self._sample_ms)

    def _active_stat(self, now_ms: int) -> SampledStat:
        if self._last_record_ms is None:
            self._last_record_ms = now_ms
        elif now_ms - self._last_record_ms > INACTIVE_MS:
            self._stat = SampledStat(self._samples, self._sample_ms)
            self._last_record_ms = now_ms
        return self._stat


def _valid(quota: int) -> int:
    if quota < 1:
        raise ValueError(f"a quota is at least 1 byte a second, not {quota}")
    return quota


def _rounded(value: float) -> int:
    """Round half up, exactly at the half, like Java's `Math.round`."""
    whole = math.floor(value)
    return whole + (value - whole >= 0.5)
