"""Metrics of quotas: bytes that limiters granted and delayed, and bytes that topics brought in.

Limiters count at each grant, some hundred times a second (`QuotaTally`); the counts are published once a second. Topic
quotas are counted at each decision and each result of a copy (`CountedTopicQuotas`).
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from include.tiering.clock import Clock, SystemClock
from include.tiering.errors import QuotaExceededError
from include.tiering.quotas.contract import UNITS_PER_REQUEST, UNLIMITED, QuotaKind, QuotaLevel, Scope
from include.tiering.quotas.topic_quotas import Admission, MeterKind, TopicQuotaReport, TopicQuotas
from include.tiering.quotas.window import QuotaWindow, ThrottleTimes
from include.tiering.telemetry.metrics import (
    Across,
    Metric,
    MetricKind,
    MetricsPublisher,
    PrometheusRecorder,
    process_recorder,
)

WindowLength = tuple[int, int]
"""Samples, and milliseconds of a sample."""

KIP_956_WINDOWS: Final[Mapping[QuotaKind, WindowLength]] = {
    QuotaKind.COPY: (61, 1_000),
    QuotaKind.FETCH: (11, 1_000),
}
_WINDOWS: Final[Mapping[QuotaKind, WindowLength]] = {**KIP_956_WINDOWS, QuotaKind.DELETE: (11, 1_000)}


@dataclass(slots=True)
class TopicTally:
    """Bytes (kind DELETE: units) of one kind and topic since the last `drain`.

    The throttled bytes are granted bytes that had to wait. Bytes of refused reads are not among the granted.
    """

    granted_bytes: int = 0
    throttled_bytes: int = 0
    throttled_seconds: float = 0.0
    throttles: int = 0
    refused_bytes: int = 0
    refused_seconds: float = 0.0
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class KindFigures:
    """One kind of traffic now, as Kafka's metrics measure it. Times are 0 if none was recorded recently.

    `held_*` are how long the limiter held back segments or answers, `refused_*` the throttle times that readers got.
    """

    bytes_per_second: float
    held_avg_ms: float
    held_max_ms: float
    refused_avg_ms: float
    refused_max_ms: float

    @property
    def is_idle(self) -> bool:
        """Whether the rate and the times are all 0."""
        return self.bytes_per_second == self.held_max_ms == self.refused_max_ms == 0


class QuotaTally:
    """Counts grants. Thread-safe. Its windows use the monotonic clock: steps of the wall clock have no effect."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._by_topic: dict[tuple[QuotaKind, str], TopicTally] = {}
        self._lengths = _WINDOWS
        self.measure_over()

    def measure_over(self, windows: Mapping[QuotaKind, WindowLength] | None = None) -> None:
        """Set rates and throttle times to 0 until the next report; counts that were not drained stay.

        The kinds in `windows` get these lengths, other kinds their default length. Without it no length changes.
        """
        with self._lock:
            self._lengths = self._lengths if windows is None else {**_WINDOWS, **windows}
            self._windows = {kind: QuotaWindow(*length) for kind, length in self._lengths.items()}
            self._held_times = {kind: ThrottleTimes() for kind in QuotaKind}
            self._refused_times = ThrottleTimes()

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

    def held_back(self, kind: QuotaKind, seconds: float) -> None:
        """See `QuotaObserver.held_back`."""
        with self._lock:
            self._held_times[kind].record(seconds * 1000, self._now_ms())

    def refused(self, topic: str, size_bytes: int, seconds: float) -> None:
        """See `QuotaObserver.refused`."""
        with self._lock:
            tally = self._tally(QuotaKind.FETCH, topic)
            tally.refused_bytes += size_bytes
            tally.refused_seconds += seconds
            tally.refusals += 1
            self._refused_times.record(seconds * 1000, self._now_ms())

    def drain(self) -> Mapping[tuple[QuotaKind, str], TopicTally]:
        """Return the counts since the last call by kind and topic, and reset them."""
        with self._lock:
            drained, self._by_topic = self._by_topic, {}
            return drained

    def figures(self, kind: QuotaKind) -> KindFigures:
        """Return rate and throttle times of a kind now."""
        with self._lock:
            now_ms, held = self._now_ms(), self._held_times[kind]
            refused = self._refused_times if kind is QuotaKind.FETCH else ThrottleTimes()
            return KindFigures(
                self._windows[kind].rate(now_ms),
                held.average_ms(now_ms) or 0.0,
                held.max_ms(now_ms) or 0.0,
                refused.average_ms(now_ms) or 0.0,
                refused.max_ms(now_ms) or 0.0,
            )

    def _tally(self, kind: QuotaKind, topic: str) -> TopicTally:
        return self._by_topic.setdefault((kind, topic), TopicTally())

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


def _rate_gauge(name: str, sentence: str) -> Metric:
    """Return a gauge that several processes set, of which the sum is shown; `sentence` has no full stop."""
    return Metric(name, MetricKind.GAUGE, (), f"{sentence}; the sum of all processes.", Across.SUM)


def _throttle_gauge(name: str, sentence: str) -> Metric:
    """Return a gauge that several processes set, of which the highest value is shown."""
    return Metric(name, MetricKind.GAUGE, (), f"{sentence} Of several processes the highest.", Across.HIGHEST)


TOPIC_BYTES_IN: Final = Metric(
    "tiering_topic_bytes_in",
    MetricKind.COUNTER,
    ("topic", "meter"),
    "Bytes of the `.log` files of segments about which topic quotas decided (meter io), and of those with each result "
    "(meters accepted, error, throttled).",
)
TOPIC_RECORDS_IN: Final = Metric(
    "tiering_topic_records_in",
    MetricKind.COUNTER,
    ("topic", "meter"),
    "Offsets, end - base + 1, that the segments span whose bytes `tiering_topic_bytes_in` counts.",
)

COPY_BYTE_RATE: Final = _rate_gauge(
    "RLMCopy_byte_rate", "Bytes a second that uploads were granted, over the copy quota's window"
)
FETCH_BYTE_RATE: Final = _rate_gauge(
    "RLMFetch_byte_rate", "Bytes a second that reads were granted, over the fetch quota's window"
)
COPY_THROTTLE_AVG: Final = _throttle_gauge(
    "remote_copy_throttle_time_avg",
    "Milliseconds that quotas held back a segment that was copied, on average over the last 60 to 90 s; 0 if none was.",
)
COPY_THROTTLE_MAX: Final = _throttle_gauge(
    "remote_copy_throttle_time_max",
    "The longest time that quotas held back a segment that was copied, in the last 60 to 90 s, in milliseconds.",
)
FETCH_THROTTLE_AVG: Final = _throttle_gauge(
    "remote_fetch_throttle_time_avg",
    "The throttle time that the answer to a refused read contains, in milliseconds, on average over the last 60 to 90 "
    "s; 0 if none was refused.",
)
FETCH_THROTTLE_MAX: Final = _throttle_gauge(
    "remote_fetch_throttle_time_max",
    "The longest throttle time of a refused read in the last 60 to 90 s, in milliseconds; 0 if none was refused.",
)
FETCH_PACING_AVG: Final = _throttle_gauge(
    "tiering_fetch_pacing_time_avg",
    "Milliseconds that quotas held back an admitted read of a segment or of records, on average over the last 60 to "
    "90 s; 0 if none was held back.",
)
FETCH_PACING_MAX: Final = _throttle_gauge(
    "tiering_fetch_pacing_time_max",
    "The longest time that quotas held back an admitted read, in the last 60 to 90 s, in milliseconds.",
)
QUOTA: Final = Metric(
    "tiering_quota_bytes_per_second",
    MetricKind.GAUGE,
    ("kind", "level", "entity"),
    "Quota in force of a scope: +Inf if it was removed or sets no limit (2^63 - 1). The kind is `copy` or `fetch`, "
    "the level `total`, `broker`, `topic` or `client`; the entity `<default>` stands for each broker, topic or client "
    "without a quota of its own.",
)
GRANTED_BYTES: Final = Metric(
    "tiering_quota_granted_bytes",
    MetricKind.COUNTER,
    ("kind", "topic"),
    "Bytes that were charged to the quotas, retries included.",
)
THROTTLED_BYTES: Final = Metric(
    "tiering_quota_throttled_bytes",
    MetricKind.COUNTER,
    ("kind", "topic"),
    "Charged bytes that had to wait for a quota.",
)
THROTTLED_SECONDS: Final = Metric(
    "tiering_quota_throttled_seconds",
    MetricKind.COUNTER,
    ("kind", "topic"),
    "Seconds that grants waited for a quota, summed over all streams.",
)
THROTTLES: Final = Metric(
    "tiering_quota_throttles",
    MetricKind.COUNTER,
    ("kind", "topic"),
    "Grants that had to wait for a quota. A grant is a small part of a segment; how long whole segments and reads were "
    "held back is in the throttle and pacing times.",
)
REFUSED_BYTES: Final = Metric(
    "tiering_quota_refused_bytes",
    MetricKind.COUNTER,
    ("topic",),
    "Requested bytes of reads whose answer was a throttle time.",
)
REFUSED_SECONDS: Final = Metric(
    "tiering_quota_refused_seconds", MetricKind.COUNTER, ("topic",), "Throttle times of refused reads, summed."
)
REFUSALS: Final = Metric(
    "tiering_quota_refusals",
    MetricKind.COUNTER,
    ("topic",),
    "Reads whose answer was a throttle time. The increase of the refused seconds in any time, divided by the increase "
    "of this, is the average throttle time over all processes.",
)

DELETE_CALLS: Final = Metric(
    "tiering_delete_requests",
    MetricKind.COUNTER,
    ("topic",),
    "Requests of expiration and of orphan removal that delete objects, up to 999 objects each.",
)
DELETE_THROTTLED_SECONDS: Final = Metric(
    "tiering_delete_throttled_seconds",
    MetricKind.COUNTER,
    ("topic",),
    "Seconds that these requests waited for `tiering.delete.max.requests.per.second`.",
)
DELETE_RATE: Final = _rate_gauge("tiering_delete_request_rate", "Delete requests a second, over eleven seconds")
DELETE_MAX_RATE: Final = Metric(
    "tiering_delete_max_requests_per_second",
    MetricKind.GAUGE,
    (),
    "Limit in force of delete requests a second, +Inf without a limit.",
)

TOPIC_QUOTA_METRICS: Final = (TOPIC_BYTES_IN, TOPIC_RECORDS_IN)
QUOTA_METRICS: Final = (
    COPY_BYTE_RATE,
    FETCH_BYTE_RATE,
    COPY_THROTTLE_AVG,
    COPY_THROTTLE_MAX,
    FETCH_THROTTLE_AVG,
    FETCH_THROTTLE_MAX,
    FETCH_PACING_AVG,
    FETCH_PACING_MAX,
    QUOTA,
    GRANTED_BYTES,
    THROTTLED_BYTES,
    THROTTLED_SECONDS,
    THROTTLES,
    REFUSED_BYTES,
    REFUSED_SECONDS,
    REFUSALS,
)
DELETE_RATE_METRICS: Final = (DELETE_CALLS, DELETE_THROTTLED_SECONDS, DELETE_RATE, DELETE_MAX_RATE)

_RATE: Final = {QuotaKind.COPY: COPY_BYTE_RATE, QuotaKind.FETCH: FETCH_BYTE_RATE}
_HELD_AVG: Final = {QuotaKind.COPY: COPY_THROTTLE_AVG, QuotaKind.FETCH: FETCH_PACING_AVG}
_HELD_MAX: Final = {QuotaKind.COPY: COPY_THROTTLE_MAX, QuotaKind.FETCH: FETCH_PACING_MAX}
_DEFAULT_ENTITY: Final = "<default>"


def count_brought_in(recorder: PrometheusRecorder, topic: str, meter: str, size_bytes: int, records: int) -> None:
    """Count one segment in one meter of topic quotas."""
    recorder.add(TOPIC_BYTES_IN, size_bytes, topic, meter)
    recorder.add(TOPIC_RECORDS_IN, records, topic, meter)


class QuotaMetrics:
    """A `QuotaObserver` that sets the metrics of `recorder`; make one per recorder.

    Reports of limiters are counted at once. A thread publishes the counts once a second and ends when all rates and
    throttle times have gone back to 0, so the gauges go back to 0 without further reports; the next report starts it
    again.

    Attributes:
        tally: counts what limiters report; byte rates use the windows of KIP-956 unless `measure_over` changes them.
        publisher: publishes the counts.
    """

    def __init__(self, recorder: PrometheusRecorder, clock: Clock) -> None:
        recorder.register((*QUOTA_METRICS, *DELETE_RATE_METRICS))
        self._recorder = recorder
        self.tally = QuotaTally(clock)
        self.publisher = MetricsPublisher(self._publish, "quota-metrics")

    def granted(self, kind: QuotaKind, topic: str, size_bytes: int) -> None:
        """See `QuotaObserver`."""
        self.tally.granted(kind, topic, size_bytes)
        self.publisher.wake()

    def throttled(self, kind: QuotaKind, topic: str, size_bytes: int, seconds: float) -> None:
        """See `QuotaObserver`."""
        self.tally.throttled(kind, topic, size_bytes, seconds)
        self.publisher.wake()

    def held_back(self, kind: QuotaKind, seconds: float) -> None:
        """See `QuotaObserver`."""
        self.tally.held_back(kind, seconds)
        self.publisher.wake()

    def refused(self, topic: str, size_bytes: int, seconds: float) -> None:
        """See `QuotaObserver`."""
        self.tally.refused(topic, size_bytes, seconds)
        self.publisher.wake()

    def in_force(self, scope: Scope, bytes_per_second: int | None) -> None:
        """See `QuotaObserver`."""
        if scope.kind is QuotaKind.DELETE:
            most = float("inf") if bytes_per_second in (None, UNLIMITED) else bytes_per_second / UNITS_PER_REQUEST
            self._recorder.set(DELETE_MAX_RATE, most)
            return
        entity = scope.name or ("" if scope.level is QuotaLevel.TOTAL else _DEFAULT_ENTITY)
        limit = float("inf") if bytes_per_second in (None, UNLIMITED) else bytes_per_second
        self._recorder.set(QUOTA, limit, scope.kind.value, scope.level.value, entity)

    def settle(self) -> None:
        """Publish the last counts, and rates and throttle times of 0, before this process ends."""
        self.tally.measure_over()
        self.publisher.now()

    def _publish(self) -> bool:
        recorder = self._recorder
        for (kind, topic), tally in self.tally.drain().items():
            if kind is QuotaKind.DELETE:
                self._publish_deletes(topic, tally)
                continue
            recorder.add(GRANTED_BYTES, tally.granted_bytes, kind.value, topic)
            if tally.throttles:
                recorder.add(THROTTLED_BYTES, tally.throttled_bytes, kind.value, topic)
                recorder.add(THROTTLED_SECONDS, tally.throttled_seconds, kind.value, topic)
                recorder.add(THROTTLES, tally.throttles, kind.value, topic)
            if tally.refusals:
                recorder.add(REFUSED_BYTES, tally.refused_bytes, topic)
                recorder.add(REFUSED_SECONDS, tally.refused_seconds, topic)
                recorder.add(REFUSALS, tally.refusals, topic)
        all_figures = {kind: self.tally.figures(kind) for kind in QuotaKind}
        recorder.set(DELETE_RATE, all_figures[QuotaKind.DELETE].bytes_per_second / UNITS_PER_REQUEST)
        for kind in _RATE:
            figures = all_figures[kind]
            recorder.set(_RATE[kind], figures.bytes_per_second)
            recorder.set(_HELD_AVG[kind], figures.held_avg_ms)
            recorder.set(_HELD_MAX[kind], figures.held_max_ms)
        recorder.set(FETCH_THROTTLE_AVG, all_figures[QuotaKind.FETCH].refused_avg_ms)
        recorder.set(FETCH_THROTTLE_MAX, all_figures[QuotaKind.FETCH].refused_max_ms)
        return not all(figures.is_idle for figures in all_figures.values())

    def _publish_deletes(self, topic: str, tally: TopicTally) -> None:
        self._recorder.add(DELETE_CALLS, tally.granted_bytes / UNITS_PER_REQUEST, topic)
        self._recorder.add(DELETE_THROTTLED_SECONDS, tally.throttled_seconds, topic)


@cache
def process_quota_metrics() -> QuotaMetrics:
    """Return the observer of this process's limiters, over `process_recorder`."""
    return QuotaMetrics(process_recorder(), SystemClock())


class CountedTopicQuotas:
    """`TopicQuotas` that forward each call to other `TopicQuotas` and count the results in metrics."""

    def __init__(self, quotas: TopicQuotas, recorder: PrometheusRecorder) -> None:
        self._quotas = quotas
        self._recorder = recorder

    def admit(self, broker_id: int, topic: str, *, size_bytes: int, records: int) -> Admission:
        try:
            admission = self._quotas.admit(broker_id, topic, size_bytes=size_bytes, records=records)
        except QuotaExceededError:
            refused = Admission(broker_id, topic, size_bytes, records, metered=True)
            self._count(refused, MeterKind.IO, MeterKind.THROTTLED)
            raise
        self._count(admission, MeterKind.IO)
        return admission

    def accepted(self, admission: Admission) -> None:
        self._quotas.accepted(admission)
        self._count(admission, MeterKind.ACCEPTED)

    def failed(self, admission: Admission) -> None:
        self._quotas.failed(admission)
        self._count(admission, MeterKind.ERROR)

    def report(self) -> TopicQuotaReport:
        return self._quotas.report()

    def _count(self, admission: Admission, *kinds: MeterKind) -> None:
        if admission.metered:
            for kind in kinds:
                count_brought_in(self._recorder, admission.topic, str(kind), admission.size_bytes, admission.records)
