"""Average and maximum of recent throttle times, as Kafka's `Avg` and `Max` measure them. Pure, no clock."""

from typing import Final

from include.tiering.quotas.sampled_stat import SampledStat

SAMPLES: Final = 2
SAMPLE_MS: Final = 30_000
"""Kafka's `metrics.num.samples` and `metrics.sample.window.ms`."""


class ThrottleTimes:
    """Throttle times of one kind of traffic. Times are milliseconds of any one clock.

    After `SAMPLES` x `SAMPLE_MS` without a throttle there is no value, where Kafka says NaN.
    """

    def __init__(self, samples: int = SAMPLES, sample_ms: int = SAMPLE_MS) -> None:
        self._stat = SampledStat(samples, sample_ms)

    def record(self, throttle_ms: float, now_ms: int) -> None:
        """Somebody has to wait, or had to."""
        self._stat.record(throttle_ms, now_ms)

    def average_ms(self, now_ms: int) -> float | None:
        """The mean of what the window holds, each throttle counting once."""
        samples = self._stat.measured(now_ms)
        events = sum(sample.events for sample in samples)
        return sum(sample.total for sample in samples) / events if events else None

    def max_ms(self, now_ms: int) -> float | None:
        """The longest of what the window holds."""
        samples = self._stat.measured(now_ms)
        return max(sample.largest for sample in samples) if any(sample.events for sample in samples) else None
