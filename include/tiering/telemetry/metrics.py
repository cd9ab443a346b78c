"""The recorder through which tasks and limiters report, into prometheus-client's registry.

Batches are short-lived processes: where prometheus-client's PROMETHEUS_MULTIPROC_DIR names a directory of this host
that outlives them, all of them add to the same values, and whatever serves that directory shows the sum, or what
`Across` says of a gauge.
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from include.tiering.audit.metrics import AUDIT_REMOVED_OBJECTS
from include.tiering.clock import Clock, SystemClock
from include.tiering.quotas.contract import UNLIMITED
from include.tiering.quotas.scopes import UNITS_PER_REQUEST, QuotaKind, QuotaLevel, Scope
from include.tiering.telemetry.catalogue import (
    COPY_BYTE_RATE,
    COPY_BYTES,
    COPY_ERRORS,
    COPY_ERRORS_BY_CLASS,
    COPY_REQUESTS,
    COPY_SENT_BYTES,
    COPY_THROTTLE_AVG,
    COPY_THROTTLE_MAX,
    DELETE_CALLS,
    DELETE_ERRORS,
    DELETE_MAX_RATE,
    DELETE_RATE,
    DELETE_REQUESTS,
    DELETE_THROTTLED_SECONDS,
    FETCH_BYTE_RATE,
    FETCH_THROTTLE_AVG,
    FETCH_THROTTLE_MAX,
    GRANTED_BYTES,
    METRICS,
    QUOTA,
    SUPERSEDED_HELD,
    THROTTLED_BYTES,
    THROTTLED_SECONDS,
    THROTTLES,
    TOPIC_BYTES_IN,
    TOPIC_RECORDS_IN,
    Metric,
    MetricKind,
)
from include.tiering.telemetry.publisher import Publisher
from include.tiering.telemetry.quota_tally import QuotaTally, TopicTally, WindowLength

_RATE: Final = {QuotaKind.COPY: COPY_BYTE_RATE, QuotaKind.FETCH: FETCH_BYTE_RATE}
_THROTTLE_AVG: Final = {QuotaKind.COPY: COPY_THROTTLE_AVG, QuotaKind.FETCH: FETCH_THROTTLE_AVG}
_THROTTLE_MAX: Final = {QuotaKind.COPY: COPY_THROTTLE_MAX, QuotaKind.FETCH: FETCH_THROTTLE_MAX}
_DEFAULT_ENTITY: Final = "<default>"
_PID: Final = re.compile(r"_(\d+)\.db$")


class PrometheusRecorder:
    """Keeps the metrics of this process in `registry`; make one per registry. It is a `QuotaObserver` too.

    What limiters report is counted at once and published once a second, in a thread of its own that ends when nothing
    has moved for a quota window: a gauge goes back to 0 although nobody reports.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, clock: Clock | None = None) -> None:
        self._counters = {m: Counter(m.name, m.sentence, m.labels, registry=registry) for m in _of(MetricKind.COUNTER)}
        self._gauges = {
            m: Gauge(m.name, m.sentence, m.labels, registry=registry, multiprocess_mode=m.across.value)
            for m in _of(MetricKind.GAUGE)
        }
        self._tally = QuotaTally(clock or SystemClock())
        self._publisher = Publisher(self._publish, "quota-metrics")

    def segment_copied(self, topic: str, *, log_bytes: int, sent_bytes: int) -> None:
        """One segment became FINISHED; `sent_bytes` counts all of its objects."""
        self._counters[COPY_REQUESTS].labels(topic).inc()
        self._counters[COPY_BYTES].labels(topic).inc(log_bytes)
        self._counters[COPY_SENT_BYTES].labels(topic).inc(sent_bytes)

    def copy_failed(self, topic: str, error: str) -> None:
        """A segment could not be copied; `error` is the class name of a TieringError."""
        self._counters[COPY_REQUESTS].labels(topic).inc()
        self._counters[COPY_ERRORS].labels(topic).inc()
        self._counters[COPY_ERRORS_BY_CLASS].labels(topic, error).inc()

    def segments_deleted(self, topic: str, *, deleted: int, failed: int) -> None:
        """So many segments are gone, or could not be deleted."""
        self._counters[DELETE_REQUESTS].labels(topic).inc(deleted + failed)
        self._counters[DELETE_ERRORS].labels(topic).inc(failed)

    def superseded_held(self, topic: str, segments: int) -> None:
        """So many superseded segments stay because the copy in their place is not proved."""
        self._counters[SUPERSEDED_HELD].labels(topic).inc(segments)

    def strays_removed(self, topic: str, objects: int) -> None:
        """So much that no metadata knew is gone."""
        self._counters[AUDIT_REMOVED_OBJECTS].labels(topic).inc(objects)

    def topic_brought_in(self, topic: str, meter: str, size_bytes: int, records: int) -> None:
        """One segment counted in one meter of topic quotas."""
        self._counters[TOPIC_BYTES_IN].labels(topic, meter).inc(size_bytes)
        self._counters[TOPIC_RECORDS_IN].labels(topic, meter).inc(records)

    def show(self, metric: Metric, values: Mapping[tuple[str, ...], float]) -> None:
        """Set a gauge, by the values of its labels."""
        for labels, value in values.items():
            gauge = self._gauges[metric]
            (gauge.labels(*labels) if labels else gauge).set(value)

    def granted(self, kind: QuotaKind, topic: str, size_bytes: int) -> None:
        """See `QuotaObserver`."""
        self._tally.granted(kind, topic, size_bytes)
        self._publisher.wake()

    def throttled(self, kind: QuotaKind, topic: str, size_bytes: int, seconds: float) -> None:
        """See `QuotaObserver`."""
        self._tally.throttled(kind, topic, size_bytes, seconds)
        self._publisher.wake()

    def in_force(self, scope: Scope, bytes_per_second: int | None) -> None:
        """See `QuotaObserver`."""
        if scope.kind is QuotaKind.DELETE:
            most = float("inf") if bytes_per_second in (None, UNLIMITED) else bytes_per_second / UNITS_PER_REQUEST
            self._gauges[DELETE_MAX_RATE].set(most)
            return
        entity = scope.name or ("" if scope.level is QuotaLevel.TOTAL else _DEFAULT_ENTITY)
        limit = float("inf") if bytes_per_second is None else bytes_per_second
        self._gauges[QUOTA].labels(scope.kind.value, scope.level.value, entity).set(limit)

    def measure_over(self, windows: Mapping[QuotaKind, WindowLength]) -> None:
        """Measure byte rates in new windows of these lengths, one for each kind; before, in those of KIP-956."""
        self._tally.measure_over(windows)

    def publish(self) -> None:
        """Publish now what limiters reported."""
        self._publisher.now()

    def settle(self) -> None:
        """Publish the last of it: this process moves nothing any more, and what a live gauge shows ends with it."""
        self._tally.clear_windows()
        self.publish()

    def _publish(self) -> bool:
        for (kind, topic), tally in self._tally.drain().items():
            if kind is QuotaKind.DELETE:
                self._publish_deletes(topic, tally)
                continue
            self._counters[GRANTED_BYTES].labels(kind.value, topic).inc(tally.granted_bytes)
            if tally.throttles:
                self._counters[THROTTLED_BYTES].labels(kind.value, topic).inc(tally.throttled_bytes)
                self._counters[THROTTLED_SECONDS].labels(kind.value, topic).inc(tally.throttled_seconds)
                self._counters[THROTTLES].labels(kind.value, topic).inc(tally.throttles)
        all_figures = {kind: self._tally.figures(kind) for kind in QuotaKind}
        self._gauges[DELETE_RATE].set(all_figures[QuotaKind.DELETE].bytes_per_second / UNITS_PER_REQUEST)
        for kind in _RATE:
            figures = all_figures[kind]
            self._gauges[_RATE[kind]].set(figures.bytes_per_second)
            self._gauges[_THROTTLE_AVG[kind]].set(figures.throttle_avg_ms)
            self._gauges[_THROTTLE_MAX[kind]].set(figures.throttle_max_ms)
        return not all(figures.is_idle for figures in all_figures.values())

    def _publish_deletes(self, topic: str, tally: TopicTally) -> None:
        self._counters[DELETE_CALLS].labels(topic).inc(tally.granted_bytes / UNITS_PER_REQUEST)
        self._counters[DELETE_THROTTLED_SECONDS].labels(topic).inc(tally.throttled_seconds)


@cache
def process_recorder() -> PrometheusRecorder:
    """The one recorder of this process, in prometheus-client's own registry."""
    directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if directory is not None:
        forget_ended_processes(Path(directory))
    return PrometheusRecorder()


def forget_ended_processes(directory: Path) -> None:
    """Take what processes of this host left in their live gauges out of the multi-process directory.

    Call it before the first metric is made: the process id of this one may have been another's.
    """
    for path in directory.glob("gauge_live*.db"):
        pid = _PID.search(path.name)
        if pid is not None and not _is_another_process(int(pid[1])):
            path.unlink(missing_ok=True)


def _is_another_process(pid: int) -> bool:
    return pid != os.getpid() and Path(f"/proc/{pid}").exists()


def _of(kind: MetricKind) -> list[Metric]:
    return [metric for metric in METRICS if metric.kind is kind]
