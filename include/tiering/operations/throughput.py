"""What all processes sent, read and deleted minute by minute, and the total copy quota over the same time.

`./tiering throughput` and the page *Tiering* show it. Minutes are whole and settled, see `monitoring`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypedDict

from include.tiering.clock import Clock
from include.tiering.configs.config_catalogue import TOTAL_COPY_QUOTA, all_configs
from include.tiering.configs.config_store import ALL_BROKERS, ConfigChange, ConfigStore
from include.tiering.database.metric_series import MetricSeries
from include.tiering.operations.monitoring import TRAFFIC_FROM, newest_minute
from include.tiering.presentation import Presentation, Table, count
from include.tiering.quotas.contract import UNLIMITED, QuotaKind
from include.tiering.quotas.metrics import DELETE_CALLS, GRANTED_BYTES, THROTTLED_SECONDS
from include.tiering.telemetry.metrics import MINUTE_MS, Metric
from include.tiering.units import format_bytes, format_duration, format_utc

MOST_HOURS: Final = 14 * 24
_LIMITS: Final = {config.name: config.unit for config in all_configs() if config.quota is not None or config.pool}


@dataclass(frozen=True, slots=True)
class MinuteTraffic:
    """What all processes did in the minute that began at `began_ms`."""

    began_ms: int
    copied_bytes: int = 0
    copy_throttled_seconds: float = 0.0
    fetched_bytes: int = 0
    fetch_throttled_seconds: float = 0.0
    delete_requests: int = 0


@dataclass(frozen=True, slots=True)
class QuotaStep:
    """The total copy quota from `from_ms` on; None is no quota."""

    from_ms: int
    bytes_per_second: int | None


@dataclass(frozen=True, slots=True)
class Throughput:
    """Minutes without traffic are absent; `changes` are those of quotas and sizes of pools, the oldest first.

    The time is from `since_ms` (inclusive) to `until_ms` (exclusive), but changes and steps reach until now.
    """

    since_ms: int
    until_ms: int
    minutes: tuple[MinuteTraffic, ...]
    total_copy_quota: tuple[QuotaStep, ...]
    changes: tuple[ConfigChange, ...]


def by_minute(sums: Mapping[tuple[str, str | None], Mapping[int, float]]) -> tuple[MinuteTraffic, ...]:
    """Return the traffic by minute, the oldest first.

    Args:
        sums: by metric of `TRAFFIC_FROM` and kind of quota, then by minute since 1970.
    """

    def of(metric: Metric, kind: QuotaKind) -> Mapping[int, float]:
        return sums.get((metric.name, kind.value), {})

    copied, copies_waited = of(GRANTED_BYTES, QuotaKind.COPY), of(THROTTLED_SECONDS, QuotaKind.COPY)
    fetched, fetches_waited = of(GRANTED_BYTES, QuotaKind.FETCH), of(THROTTLED_SECONDS, QuotaKind.FETCH)
    deletions = [values for (metric, _), values in sums.items() if metric == DELETE_CALLS.name]
    return tuple(
        MinuteTraffic(
            minute * MINUTE_MS,
            round(copied.get(minute, 0)),
            copies_waited.get(minute, 0.0),
            round(fetched.get(minute, 0)),
            fetches_waited.get(minute, 0.0),
            round(sum(values.get(minute, 0.0) for values in deletions)),
        )
        for minute in sorted({minute for values in sums.values() for minute in values})
    )


def quota_steps(changes: Iterable[ConfigChange], now: str | None, since_ms: int) -> tuple[QuotaStep, ...]:
    """Return the total copy quota since a time, as steps: the first begins at `since_ms`.

    Args:
        changes: changes of any configs, the oldest first.
        now: the present value as it is stored; None without one.
        since_ms: UTC milliseconds.
    """
    own = [change for change in changes if (change.entity, change.name) == (ALL_BROKERS, TOTAL_COPY_QUOTA)]
    later = [change for change in own if change.changed_at_ms > since_ms]
    first = later[0].old_value if later else now
    steps = [QuotaStep(since_ms, _quota(first))]
    return (*steps, *(QuotaStep(change.changed_at_ms, _quota(change.new_value)) for change in later))


def _quota(stored: str | None) -> int | None:
    return None if stored is None or int(stored) == UNLIMITED else int(stored)


class ThroughputService:
    """Reads the throughput with three statements. Their cost grows with topics and hours, not with the archive."""

    def __init__(self, *, series: Callable[[], MetricSeries], configs: ConfigStore, clock: Clock) -> None:
        self._series = series
        self._configs = configs
        self._clock = clock

    def last_hours(self, hours: int) -> Throughput:
        """Return the throughput of the newest `hours`, at most `MOST_HOURS`. Raises MetadataUnavailableError."""
        newest = newest_minute(self._clock.now_ms())
        since = newest - min(hours, MOST_HOURS) * 60 + 1
        since_ms = since * MINUTE_MS
        changes = self._configs.history(since_ms=since_ms)
        of_limits = tuple(change for change in changes if change.name in _LIMITS and change.changed_at_ms >= since_ms)
        return Throughput(
            since_ms,
            (newest + 1) * MINUTE_MS,
            by_minute(self._series().minute_sums(TRAFFIC_FROM, by="kind", since_minute=since)),
            quota_steps(changes, self._configs.of_entity(ALL_BROKERS).get(TOTAL_COPY_QUOTA), since_ms),
            of_limits,
        )


class MinuteDocument(TypedDict):
    """What all processes did in one minute; the throttled seconds are summed over all streams."""

    began_ms: int
    copied_bytes: int
    copy_throttled_seconds: float
    fetched_bytes: int
    fetch_throttled_seconds: float
    delete_requests: int


class QuotaStepDocument(TypedDict):
    """The total copy quota from a time on; null is no quota."""

    from_ms: int
    bytes_per_second: int | None


class LimitChangeDocument(TypedDict):
    """A change of a quota or of the size of a pool, as stored, in `unit`; null is no value."""

    changed_at_ms: int
    entity: str
    name: str
    unit: str | None
    old_value: str | None
    new_value: str | None
    author: str


class ThroughputDocument(TypedDict):
    """Traffic by minute, without minutes that had none; `until_ms` is the exclusive end of the newest whole minute."""

    since_ms: int
    until_ms: int
    minutes: list[MinuteDocument]
    total_copy_quota: list[QuotaStepDocument]
    changes: list[LimitChangeDocument]


def present_throughput(throughput: Throughput) -> Presentation:
    """Present the throughput."""
    copied = sum(minute.copied_bytes for minute in throughput.minutes)
    summary = f"{format_bytes(copied)} sent by copies in {count(len(throughput.minutes), 'minute')} with traffic"
    return Presentation(lambda: throughput_document(throughput), lambda: (_table(throughput.minutes),), summary)


def throughput_document(throughput: Throughput) -> ThroughputDocument:
    """Return the JSON of the throughput."""
    return {
        "since_ms": throughput.since_ms,
        "until_ms": throughput.until_ms,
        "minutes": [
            {
                "began_ms": minute.began_ms,
                "copied_bytes": minute.copied_bytes,
                "copy_throttled_seconds": round(minute.copy_throttled_seconds, 3),
                "fetched_bytes": minute.fetched_bytes,
                "fetch_throttled_seconds": round(minute.fetch_throttled_seconds, 3),
                "delete_requests": minute.delete_requests,
            }
            for minute in throughput.minutes
        ],
        "total_copy_quota": [
            {"from_ms": step.from_ms, "bytes_per_second": step.bytes_per_second} for step in throughput.total_copy_quota
        ],
        "changes": [
            {
                "changed_at_ms": change.changed_at_ms,
                "entity": str(change.entity),
                "name": change.name,
                "unit": _LIMITS[change.name],
                "old_value": change.old_value,
                "new_value": change.new_value,
                "author": change.author,
            }
            for change in throughput.changes
        ],
    }


def _table(minutes: Sequence[MinuteTraffic]) -> Table:
    heads = ("minute", "sent by copies>", "a second>", "waited>", "read>", "waited>", "delete requests>")
    rows = tuple(
        (
            format_utc(minute.began_ms),
            format_bytes(minute.copied_bytes),
            format_bytes(minute.copied_bytes // 60),
            format_duration(minute.copy_throttled_seconds),
            format_bytes(minute.fetched_bytes),
            format_duration(minute.fetch_throttled_seconds),
            str(minute.delete_requests),
        )
        for minute in minutes
    )
    return Table("throughput by minute, all processes", heads, rows)
