"""Metrics of quotas: bytes that limiters granted and delayed, and bytes that topics brought in.

Limiters record each grant, some hundred times a second. Topic quotas are counted at each decision and each result of a
copy (`CountedTopicQuotas`). Rates and throttle times are computed from minutes of all processes when they are shown,
see `operations.monitoring`.
"""

from collections.abc import Mapping
from typing import Final

from include.tiering.errors import QuotaExceededError
from include.tiering.quotas.contract import UNITS_PER_REQUEST, UNLIMITED, QuotaKind, QuotaLevel, Scope
from include.tiering.quotas.topic_quotas import Admission, MeterKind, TopicQuotaReport, TopicQuotas
from include.tiering.telemetry.metrics import Metric, MetricKind, MetricsRecorder

_MANAGER = "kafka.server:type=RemoteLogManager"

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

COPY_BYTE_RATE: Final = Metric(
    "RLMCopy_byte_rate",
    MetricKind.COMPUTED,
    (),
    "Bytes a second that uploads were granted, over the newest whole minutes of the copy quota's window; the sum of all"
    " processes.",
    mbean="kafka.server:type=RLMCopy (byte-rate)",
)
FETCH_BYTE_RATE: Final = Metric(
    "RLMFetch_byte_rate",
    MetricKind.COMPUTED,
    (),
    "Bytes a second that reads were granted, over the newest whole minutes of the fetch quota's window; the sum of all"
    " processes.",
    mbean="kafka.server:type=RLMFetch (byte-rate)",
)
HELD_SECONDS: Final = Metric(
    "tiering_quota_held_back_seconds",
    MetricKind.COUNTER,
    ("kind",),
    "Seconds that quotas held back segments that were copied, or admitted reads, each as a whole.",
    by_minute=True,
)
HELD: Final = Metric(
    "tiering_quota_held_back",
    MetricKind.COUNTER,
    ("kind",),
    "Segments that were copied, or admitted reads, that a quota held back. The increase of the held back seconds in "
    "any time, divided by the increase of this, is the average throttle time over all processes.",
    by_minute=True,
)
COPY_THROTTLE_AVG: Final = Metric(
    "remote_copy_throttle_time_avg",
    MetricKind.COMPUTED,
    (),
    "Milliseconds that quotas held back a segment that was copied, on average in the newest whole minute; 0 if none "
    "was.",
    mbean=f"{_MANAGER} (remote-copy-throttle-time-avg)",
)
COPY_THROTTLE_MAX: Final = Metric(
    "remote_copy_throttle_time_max",
    MetricKind.PEAK,
    (),
    "The longest time that quotas held back a segment that was copied, in the newest whole minute, in milliseconds.",
    mbean=f"{_MANAGER} (remote-copy-throttle-time-max)",
    by_minute=True,
)
FETCH_THROTTLE_AVG: Final = Metric(
    "remote_fetch_throttle_time_avg",
    MetricKind.COMPUTED,
    (),
    "The throttle time that the answer to a refused read contains, in milliseconds, on average in the newest whole "
    "minute; 0 if none was refused.",
    mbean=f"{_MANAGER} (remote-fetch-throttle-time-avg)",
)
FETCH_THROTTLE_MAX: Final = Metric(
    "remote_fetch_throttle_time_max",
    MetricKind.PEAK,
    (),
    "The longest throttle time of a refused read in the newest whole minute, in milliseconds; 0 if none was refused.",
    mbean=f"{_MANAGER} (remote-fetch-throttle-time-max)",
    by_minute=True,
)
FETCH_PACING_AVG: Final = Metric(
    "tiering_fetch_pacing_time_avg",
    MetricKind.COMPUTED,
    (),
    "Milliseconds that quotas held back an admitted read of a segment or of records, on average in the newest whole "
    "minute; 0 if none was held back.",
)
FETCH_PACING_MAX: Final = Metric(
    "tiering_fetch_pacing_time_max",
    MetricKind.PEAK,
    (),
    "The longest time that quotas held back an admitted read, in the newest whole minute, in milliseconds.",
    by_minute=True,
)
QUOTA: Final = Metric(
    "tiering_quota_bytes_per_second",
    MetricKind.GAUGE,
    ("kind", "level", "entity"),
    "Quota in force of a scope: absent if it has none, +Inf if it sets no limit (2^63 - 1). The kind is `copy` or "
    "`fetch`, the level `total`, `broker`, `topic` or `client`; the entity `<default>` stands for each broker, topic "
    "or client without a quota of its own.",
)
GRANTED_BYTES: Final = Metric(
    "tiering_quota_granted_bytes",
    MetricKind.COUNTER,
    ("kind", "topic"),
    "Bytes that were charged to the quotas, retries included.",
    by_minute=True,
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
    by_minute=True,
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
    "tiering_quota_refused_seconds",
    MetricKind.COUNTER,
    ("topic",),
    "Throttle times of refused reads, summed.",
    by_minute=True,
)
REFUSALS: Final = Metric(
    "tiering_quota_refusals",
    MetricKind.COUNTER,
    ("topic",),
    "Reads whose answer was a throttle time. The increase of the refused seconds in any time, divided by the increase "
    "of this, is the average throttle time over all processes.",
    by_minute=True,
)

DELETE_CALLS: Final = Metric(
    "tiering_delete_requests",
    MetricKind.COUNTER,
    ("topic",),
    "Requests of expiration and of orphan removal that delete objects, up to 999 objects each.",
    by_minute=True,
)
DELETE_THROTTLED_SECONDS: Final = Metric(
    "tiering_delete_throttled_seconds",
    MetricKind.COUNTER,
    ("topic",),
    "Seconds that these requests waited for `tiering.delete.max.requests.per.second`.",
)
DELETE_RATE: Final = Metric(
    "tiering_delete_request_rate",
    MetricKind.COMPUTED,
    (),
    "Delete requests a second, over the newest whole minute; the sum of all processes.",
)
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
    HELD_SECONDS,
    HELD,
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

_HELD_MAX: Final = {QuotaKind.COPY: COPY_THROTTLE_MAX, QuotaKind.FETCH: FETCH_PACING_MAX}
_DEFAULT_ENTITY: Final = "<default>"
_INF: Final = float("inf")


class QuotaMetrics:
    """A `QuotaObserver` that records metrics."""

    def __init__(self, recorder: MetricsRecorder) -> None:
        self._recorder = recorder

    def granted(self, kind: QuotaKind, topic: str, size_bytes: int) -> None:
        """See `QuotaObserver`."""
        if kind is QuotaKind.DELETE:
            self._recorder.add(DELETE_CALLS, size_bytes / UNITS_PER_REQUEST, topic)
        else:
            self._recorder.add(GRANTED_BYTES, size_bytes, kind.value, topic)

    def throttled(self, kind: QuotaKind, topic: str, size_bytes: int, seconds: float) -> None:
        """See `QuotaObserver`."""
        if kind is QuotaKind.DELETE:
            self._recorder.add(DELETE_THROTTLED_SECONDS, seconds, topic)
            return
        self._recorder.add(THROTTLED_BYTES, size_bytes, kind.value, topic)
        self._recorder.add(THROTTLED_SECONDS, seconds, kind.value, topic)
        self._recorder.add(THROTTLES, 1, kind.value, topic)

    def held_back(self, kind: QuotaKind, seconds: float) -> None:
        """See `QuotaObserver`."""
        if (longest := _HELD_MAX.get(kind)) is not None:
            self._recorder.add(HELD_SECONDS, seconds, kind.value)
            self._recorder.add(HELD, 1, kind.value)
            self._recorder.raise_to(longest, seconds * 1000)

    def refused(self, topic: str, size_bytes: int, seconds: float) -> None:
        """See `QuotaObserver`."""
        self._recorder.add(REFUSED_BYTES, size_bytes, topic)
        self._recorder.add(REFUSED_SECONDS, seconds, topic)
        self._recorder.add(REFUSALS, 1, topic)
        self._recorder.raise_to(FETCH_THROTTLE_MAX, seconds * 1000)

    def in_force(self, quotas: Mapping[Scope, int]) -> None:
        """See `QuotaObserver`."""
        most_units = UNLIMITED
        limits: dict[tuple[str, ...], float] = {}
        for scope, quota in quotas.items():
            if scope.kind is QuotaKind.DELETE:
                most_units = quota
            else:
                entity = scope.name or ("" if scope.level is QuotaLevel.TOTAL else _DEFAULT_ENTITY)
                limits[scope.kind.value, scope.level.value, entity] = _INF if quota == UNLIMITED else quota
        self._recorder.replace(QUOTA, limits)
        self._recorder.set(DELETE_MAX_RATE, _INF if most_units == UNLIMITED else most_units / UNITS_PER_REQUEST)


class CountedTopicQuotas:
    """`TopicQuotas` that forward each call to other `TopicQuotas` and record the results."""

    def __init__(self, quotas: TopicQuotas, recorder: MetricsRecorder) -> None:
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
                self._recorder.add(TOPIC_BYTES_IN, admission.size_bytes, admission.topic, str(kind))
                self._recorder.add(TOPIC_RECORDS_IN, admission.records, admission.topic, str(kind))
