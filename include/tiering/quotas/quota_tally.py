"""What the limiters of this process did: counted as it happens, some hundred times a second, and read once a second."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from include.tiering.clock import Clock
from include.tiering.quotas.scopes import QuotaKind
from include.tiering.quotas.throttle_times import ThrottleTimes
from include.tiering.quotas.window import QuotaWindow

WindowLength = tuple[int, int]
"""Samples, and milliseconds of a sample."""

KIP_956_WINDOWS: Final[Mapping[QuotaKind, WindowLength]] = {
    QuotaKind.COPY: (61, 1_000),
    QuotaKind.FETCH: (11, 1_000),
}
_WINDOWS: Final[Mapping[QuotaKind, WindowLength]] = {**KIP_956_WINDOWS, QuotaKind.DELETE: (11, 1_000)}


@dataclass(slots=True)
class TopicTally:
    """Bytes of one kind and topic since the last look. Throttled ones are granted ones too."""

    granted_bytes: int = 0
    throttled_bytes: int = 0
    throttled_seconds: float = 0.0
    throttles: int = 0


@dataclass(frozen=True, slots=True)
class KindFigures:
    """One kind of traffic now, as Kafka's metrics measure it. Throttle times are 0 if nothing was throttled lately."""

    bytes_per_second: float
    throttle_avg_ms: float
    throttle_max_ms: float

    @property
    def is_idle(self) -> bool:
        """Whether the windows have nothing in them any more."""
        return self.bytes_per_second == self.throttle_max_ms == 0


class QuotaTally:
    """Thread-safe. Its windows run on the monotonic clock: a step of the wall clock leaves no trace in them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._by_topic: dict[tuple[QuotaKind, str], TopicTally] = {}
        self.measure_over(_WINDOWS)

    def measure_over(self, windows: Mapping[QuotaKind, WindowLength]) -> None:
        """Begin with empty windows, of these lengths where a kind is named."""
        with self._lock:
            self._lengths = {**_WINDOWS, **windows}
            self._windows = {kind: QuotaWindow(*length) for kind, length in self._lengths.items()}
            self._throttle_times = {kind: ThrottleTimes() for kind in QuotaKind}

    def clear_windows(self) -> None:
        """Rates and throttle times are 0 until something moves again; what is not drained stays."""
        self.measure_over(self._lengths)

    def granted(self, kind: QuotaKind, topic: str, size_bytes: int) -> None:
        """See `QuotaObserver.granted`."""
        with self._lock:
            self._tally(kind, topic).granted_bytes += size_bytes
            self._windows[kind].record(size_bytes, self._now_ms())

    def throttled(self, kind: QuotaKind, topic: str, size_bytes: int, seconds: float) -> None:
        """See `QuotaObserver.throttled`."""
        with self._lock:
            tally = self._tally(kind, topic)
            tally.throttled_bytes += size_bytes
            tally.throttled_seconds += seconds
            tally.throttles += 1
            self._throttle_times[kind].record(seconds * 1000, self._now_ms())

    def drain(self) -> Mapping[tuple[QuotaKind, str], TopicTally]:
        """What was counted since the last call."""
        with self._lock:
            drained, self._by_topic = self._by_topic, {}
            return drained

    def figures(self, kind: QuotaKind) -> KindFigures:
        """Rate and throttle times of one kind now."""
        with self._lock:
            now_ms, times = self._now_ms(), self._throttle_times[kind]
            return KindFigures(
                self._windows[kind].rate(now_ms), times.average_ms(now_ms) or 0.0, times.max_ms(now_ms) or 0.0
            )

    def _tally(self, kind: QuotaKind, topic: str) -> TopicTally:
        return self._by_topic.setdefault((kind, topic), TopicTally())

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
