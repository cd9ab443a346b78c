"""The rate of a quota window and its throttle time, to the millisecond as Kafka's brokers answer. Pure, no clock.

Kafka 3.9 and later, `RLMQuotaManager`: the sum of the samples of a `SampledStat`, over the time since the oldest of
them began, at least one sample long. The window is not padded to its full length: ten bytes in the first millisecond
are ten bytes a second. The wait for a quota is how much longer that time had to be for the same sum to be the quota.

It answers and measures; it holds no rate, and its answers are not promises:

* a sample is wiped one window after its last event whatever it holds, so a segment larger than quota x window is waited
  for during one window only;
* the wait of a window younger than one sample counts from one sample: asked again after it, there is some left;
* where an old sample is wiped, the rest is divided by less time: the rate may jump up though nothing was sent.

Pacing is the limiter's work.
"""

import math
from typing import Final

from include.tiering.quotas.sampled_stat import SampledStat

INACTIVE_MS: Final = 3_600_000
"""A window without a record for longer than this begins anew. Kafka looks every 30 s and may be that much later."""

UNLIMITED: Final = 2**63 - 1
"""Kafka's value of a quota that limits nothing."""


class QuotaWindow:
    """Bytes of one kind of traffic. Times are milliseconds of any one clock; `SampledStat` says what its steps do.

    A quota is bytes a second, 1 or more; None and `UNLIMITED` are no limit.
    """

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._samples = samples
        self._sample_ms = sample_ms
        self._stat = SampledStat(samples, sample_ms)
        self._last_record_ms: int | None = None

    def record(self, value: int, now_ms: int) -> None:
        """Count bytes, without asking whether they are within a quota."""
        self._active_stat(now_ms).record(value, now_ms)
        self._last_record_ms = now_ms

    def rate(self, now_ms: int) -> float:
        """Bytes a second."""
        recorded, elapsed_ms = self._measure(now_ms)
        return recorded / (elapsed_ms / 1000)

    def is_exceeded(self, quota: int | None, now_ms: int) -> bool:
        """Whether the rate is above the quota; a rate that equals it is within."""
        return quota is not None and self.rate(now_ms) > _valid(quota)

    def throttle_ms(self, quota: int | None, now_ms: int) -> int:
        """Milliseconds for which Kafka would hold the next request, rounded half up; 0 within the quota."""
        recorded, elapsed_ms = self._measure(now_ms)
        rate = recorded / (elapsed_ms / 1000)
        if quota is None or rate <= _valid(quota):
            return 0
        return _rounded((rate - quota) / quota * elapsed_ms)

    def _measure(self, now_ms: int) -> tuple[float, int]:
        """Bytes in the window, and the time that they are divided by."""
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
    """Half up, exact at the half: what `Math.round` of Java does."""
    whole = math.floor(value)
    return whole + (value - whole >= 0.5)
