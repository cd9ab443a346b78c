"""What arrived when, and how it compares with a quota. Pure: no sockets, no clock.

A trace counts payload bytes in buckets of 10 ms of the host's monotonic clock. Worker, sink and whoever changes a quota
share that clock, so that any event can be placed on the trace. Before its first and after its last bucket it is zero.

Every sliding window moves by one bucket, which is harder than by the 100 ms of a meter: what no window of 10 ms steps
shows, none of 100 ms steps does. Shares are of the quota: 1.0 is exactly the quota.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

BUCKETS_PER_SECOND: Final = 100
BUCKET_NS: Final = 1_000_000_000 // BUCKETS_PER_SECOND
MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """`counts[i]` bytes came in bucket `first_bucket + i`; bucket n begins n x 10 ms after the clock's zero."""

    first_bucket: int
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, counts: Iterable[int], *, begun_s: float = 0.0) -> Self:
        return cls(bucket_of(begun_s), np.fromiter(counts, dtype=np.int64))

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        return cls(document["first_bucket"], np.array(document["counts"], dtype=np.int64))

    def to_json(self) -> dict[str, Any]:
        return {"first_bucket": self.first_bucket, "bucket_ms": 10, "counts": self.counts.tolist()}

    @property
    def begun_s(self) -> float:
        return self.first_bucket / BUCKETS_PER_SECOND

    @property
    def ended_s(self) -> float:
        return (self.first_bucket + len(self.counts)) / BUCKETS_PER_SECOND

    @property
    def seconds(self) -> float:
        return len(self.counts) / BUCKETS_PER_SECOND

    @property
    def total_bytes(self) -> int:
        return int(self.counts.sum())

    @property
    def average(self) -> float:
        """Bytes a second over all of it."""
        return self.total_bytes / self.seconds if len(self.counts) else 0.0

    def part(self, begin_s: float, end_s: float) -> Self:
        """From the bucket that holds `begin_s` to the one before that of `end_s`."""
        begin, end = bucket_of(begin_s), bucket_of(end_s)
        counts = np.zeros(max(end - begin, 0), dtype=np.int64)
        known_begin, known_end = max(begin, self.first_bucket), min(end, self.first_bucket + len(self.counts))
        if known_begin < known_end:
            known = self.counts[known_begin - self.first_bucket : known_end - self.first_bucket]
            counts[known_begin - begin : known_end - begin] = known
        return type(self)(begin, counts)

    def checked(self, seconds: float) -> Self:
        """The first `seconds` from the first byte on."""
        return self.part(self.begun_s, self.begun_s + seconds)

    def sliding(self, window_s: float) -> NDArray[np.int64]:
        """Bytes of every window of this length that lies wholly inside, in order; none if it is longer."""
        width = round(window_s * BUCKETS_PER_SECOND)
        sums = np.concatenate(([0], np.cumsum(self.counts)))
        return sums[width:] - sums[:-width]


def bucket_of(seconds: float) -> int:
    # A time that was made from a bucket's number must give that number back.
    return int(np.floor(seconds * BUCKETS_PER_SECOND + 1e-6))


def minute_averages(trace: Trace) -> list[float]:
    """Bytes a second in each full minute, the first one beginning with the trace."""
    minutes = int(trace.seconds // MINUTE_S)
    starts = (trace.begun_s + number * MINUTE_S for number in range(minutes))
    return [trace.part(start, start + MINUTE_S).average for start in starts]


def worst_second(trace: Trace) -> int:
    """Most bytes in any second, the first included; all bytes of a trace that is shorter than that."""
    return int(max(trace.sliding(1.0), default=trace.total_bytes))


def slowest_second(trace: Trace) -> int:
    return int(min(trace.sliding(1.0), default=trace.total_bytes))


def largest_tenth(trace: Trace) -> int:
    """Most bytes in any 100 ms."""
    return int(max(trace.sliding(0.1), default=trace.total_bytes))


def longest_silence_s(trace: Trace) -> float:
    """The longest time without a byte, ends of the trace included."""
    return _longest_run(trace.counts == 0) / BUCKETS_PER_SECOND


def longest_burst_s(trace: Trace, rate: float, *, above: float = 1.10) -> float:
    """The longest stretch of which every 100 ms carried more than `above` times the rate."""
    run = _longest_run(trace.sliding(0.1) > rate * 0.1 * above)
    return run / BUCKETS_PER_SECOND + 0.09 if run else 0.0


def settled_after_s(trace: Trace, rate: float, *, within: float = 0.10, window_s: float = 0.5) -> float | None:
    """How long after its begin every window to the end of the trace is within this share of the rate; None if never.

    Cut the trace to where the event was, and to before the next one.
    """
    windows = trace.sliding(window_s) / window_s
    off = np.flatnonzero(np.abs(windows - rate) > within * rate)
    if not len(windows) or (len(off) and off[-1] == len(windows) - 1):
        return None
    return float(off[-1] + 1) / BUCKETS_PER_SECOND if len(off) else 0.0


def reached_after_s(trace: Trace, rate: float, *, window_s: float = 1.0) -> float | None:
    """How long after its begin the first window starts that carries this rate; None if none does."""
    reached = np.flatnonzero(trace.sliding(window_s) >= rate * window_s)
    return float(reached[0]) / BUCKETS_PER_SECOND if len(reached) else None


def last_byte_after_s(trace: Trace) -> float:
    """How long after its begin the last byte came."""
    seen = np.flatnonzero(trace.counts)
    return float(seen[-1] + 1) / BUCKETS_PER_SECOND if len(seen) else 0.0


def quota_at(quotas: Sequence[tuple[float, int]], seconds: float) -> int:
    """Of (time, quota) in ascending order: the one in force."""
    return [quota for time_s, quota in quotas if time_s <= seconds or time_s == quotas[0][0]][-1]


def farthest_ahead_bytes(trace: Trace, quotas: Sequence[tuple[float, float]]) -> float:
    """How many bytes more had come, at most, than the quotas allowed from the first one's time up to the same moment.

    `quotas` are (time, bytes a second) in ascending order. A machine that stands still makes bytes come late, which
    only lowers this: unlike averages and bursts it can be asserted anywhere.
    """
    ends_s = (trace.first_bucket + 1 + np.arange(len(trace.counts))) / BUCKETS_PER_SECOND
    allowed = np.zeros(len(ends_s))
    for (from_s, rate), (to_s, _) in zip(quotas, [*quotas[1:], (np.inf, 0)], strict=True):
        allowed += rate * np.clip(ends_s - from_s, 0.0, to_s - from_s)
    return float(np.max(np.cumsum(trace.counts) - allowed, initial=0.0))


def _longest_run(flags: NDArray[np.bool_]) -> int:
    edges = np.diff(np.concatenate(([0], flags.astype(np.int8), [0])))
    return int(max(np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1), default=0))
