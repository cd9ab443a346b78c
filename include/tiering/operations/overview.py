"""What `status` and the page *Tiering* show of the present: totals, work, limits, what waits and why, and alarms.

One `Overview` feeds both, so their numbers are the same. Totals of sizes, batches, pauses and pools are those of this
moment. What only a run can find out, such as lags and verdicts, is as of the run that published it, and says so.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final, TypedDict

from include.tiering.audit.report import HARMLESS
from include.tiering.clock import Clock
from include.tiering.configs.config_store import ConfigStore
from include.tiering.configs.pools import POOLS, PoolMirror, PoolsStatus, PoolStatus
from include.tiering.configs.rules import quotas_in_force
from include.tiering.configs.usage_report import PoolDocument, pools_document
from include.tiering.copying.metrics import HELD_BACK
from include.tiering.database.metric_series import MetricSeries, Series, SeriesSum
from include.tiering.database.transactions import reading_together
from include.tiering.model.sizes import PriceTable
from include.tiering.operations import monitoring
from include.tiering.operations.alarms import (
    ALARM_LABELS,
    ALARMS_ABOVE,
    MOST_OF_RULE,
    Alarm,
    AlarmDocument,
    MoreAlarmsDocument,
    alarm_document,
    alarms,
    more_alarms,
)
from include.tiering.operations.monitoring import Minutes, newest_minute, total_of
from include.tiering.operations.topic_list import LAG_BYTES, LAG_SECONDS, LAG_SEGMENTS, OUT_OF_SIGHT
from include.tiering.operations.waiting import Waiting, WaitingGroupDocument, unmeasured, waiting, waiting_document
from include.tiering.quotas.contract import UNLIMITED, QuotaKind, QuotaLevel, QuotasInForce, Scope
from include.tiering.quotas.metrics import DELETE_CALLS, GRANTED_BYTES, THROTTLED_SECONDS
from include.tiering.runs.contract import BatchProgress, WorkStore
from include.tiering.segments.sizes_contract import ArchiveSize, RemoteLogSizes

_VERDICT_BYTES: Final = "tiering_verdict_bytes"
_FINDINGS: Final = "tiering_audit_findings"
_FAILED: Final = "tiering_failed_segments"
_COST: Final = "tiering_storage_cost_per_month"
SUMS: Final = (LAG_BYTES, LAG_SEGMENTS, LAG_SECONDS, OUT_OF_SIGHT, _FAILED)
"""Names of the metrics with a series for each topic, of which an overview needs sums."""
GAUGES: Final = (_VERDICT_BYTES, _FINDINGS, _COST, HELD_BACK.name, monitoring.UNREADABLE)
"""Names of the metrics of which an overview needs each series. Those of other use cases are named by their text."""
_RATES_FROM: Final = (GRANTED_BYTES.name, THROTTLED_SECONDS.name, DELETE_CALLS.name)
_IN_USE: Final = 0.9


@dataclass(frozen=True, slots=True)
class AsOfRun:
    """A sum over series, and when the oldest of them was recorded; None if nothing was ever recorded."""

    value: float
    as_of_ms: int | None


@dataclass(frozen=True, slots=True)
class ArchiveTotals:
    """The whole archive in a few numbers.

    `safe_bytes` are the FINISHED bytes whose verdict is PASSED, of the `judged_bytes` that the last count found. The
    bytes, segments and seconds that wait are those of the last size run that looked at brokers' logs; the seconds are
    the age of the oldest segment that waits, by its newest record. They lack `unmeasured_partitions`, of which no run
    knows the bytes.
    `findings` lack those that are normal in a bucket that keeps versions.
    `gib_month` is the price that `cost` is of, which is storage alone.
    """

    topics: int
    segments: int
    finished_bytes: int
    stored_bytes: int
    judged_bytes: AsOfRun
    safe_bytes: AsOfRun
    waiting_bytes: AsOfRun
    waiting_segments: AsOfRun
    waiting_seconds: AsOfRun
    failed_segments: AsOfRun
    findings: AsOfRun
    cost: tuple[str, float] | None = None
    unmeasured_partitions: int = 0
    gib_month: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """A quota in force; `rate` is that of the newest whole minute, None if it is not known at this level.

    `limits` says whether grants waited in that minute and this quota was in use: by at least nine tenths, or, where the
    rate is not known, if no other quota of the kind was.
    """

    scope: Scope
    per_second: int
    rate: float | None
    limits: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """The present state of the platform, according to the database.

    Attributes:
        as_of_ms: when it was read, by this process' clock.
        totals: sizes, lags and findings.
        paused_topics: names of paused topics; `*` for all.
        pools: the last known sizes of the pools, with their running batches.
        batches: the last reports of the batches that run now, those of commands included.
        limits: quotas in force.
        waiting: why partitions wait, the most frequent reason first.
        alarms: alert rules that hold; of a rule the subjects with the highest values.
        more_alarms: by rule, for how many further subjects it holds.
        unreadable: log directories that the last size run could not read, by broker and path.
    """

    as_of_ms: int
    totals: ArchiveTotals
    paused_topics: Collection[str]
    pools: PoolsStatus
    batches: Sequence[BatchProgress] = ()
    limits: Sequence[Limit] = ()
    waiting: Sequence[Waiting] = ()
    alarms: Sequence[Alarm] = ()
    more_alarms: Mapping[str, int] = field(default_factory=dict)
    unreadable: Sequence[monitoring.UnreadableLogDir] = ()

    @property
    def stopped_pools(self) -> tuple[str, ...]:
        """Names of the pools with 0 slots: nothing of them begins."""
        return self.pools.stopped

    @property
    def alarms_in_all(self) -> int:
        """For how many subjects a rule holds."""
        return len(self.alarms) + sum(self.more_alarms.values())


class OverviewService:
    """Reads an overview with at most ten statements, whose cost does not grow with the number of segments.

    The database adds up the numbers of partitions and topics, so few rows pass through this process.
    """

    def __init__(
        self,
        *,
        sizes: RemoteLogSizes,
        work: WorkStore,
        mirror: PoolMirror,
        configs: ConfigStore,
        series: Callable[[], MetricSeries],
        prices: PriceTable,
        clock: Clock,
    ) -> None:
        self._prices = prices
        self._sizes = sizes
        self._work = work
        self._mirror = mirror
        self._configs = configs
        self._series = series
        self._clock = clock

    @reading_together()
    def now(self) -> Overview:
        """Return the present state. Raises MetadataUnavailableError."""
        now_ms, series = self._clock.now_ms(), self._series()
        newest = newest_minute(now_ms)
        gauges, minutes = series.latest(GAUGES), series.minutes(_RATES_FROM, since_minute=newest)
        sums = series.sums((*SUMS, *ALARMS_ABOVE))
        raised = {
            metric: value for metric, value in ALARMS_ABOVE.items() if metric in sums and sums[metric].highest > value
        }
        above = series.above(raised, labels=ALARM_LABELS, at_most=MOST_OF_RULE)
        held_back = gauges.get(HELD_BACK.name, ())
        batches, seen = self._work.running_batches(), self._mirror.seen()
        pools = PoolsStatus(
            tuple(
                PoolStatus(
                    spec,
                    None,
                    seen.get(spec.name),
                    tuple(batch.batch_id for batch in batches if batch.pool == spec.name),
                )
                for spec in POOLS
            )
        )
        return Overview(
            now_ms,
            replace(
                totals(self._sizes.archive_size(), sums, gauges, self._prices),
                unmeasured_partitions=self._unmeasured(series, sums, held_back),
            ),
            self._work.paused_topics(),
            pools,
            batches,
            limits(quotas_in_force(self._configs.snapshot()), minutes, newest),
            waiting(held_back),
            alarms({metric: found.series for metric, found in above.items()}, now_ms),
            more_alarms(above),
            monitoring.unreadable(gauges.get(monitoring.UNREADABLE, ())),
        )

    @staticmethod
    def _unmeasured(series: MetricSeries, sums: Mapping[str, SeriesSum], held_back: Sequence[Series]) -> int:
        """Return of how many partitions nobody knows what waits."""
        measured = series.topics(LAG_BYTES) if held_back else ()
        unseen = sums.get(OUT_OF_SIGHT)
        return (0 if unseen is None else round(unseen.total)) + sum(unmeasured(held_back, measured).values())


def totals(
    size: ArchiveSize, sums: Mapping[str, SeriesSum], gauges: Mapping[str, Sequence[Series]], prices: PriceTable
) -> ArchiveTotals:
    """Return the totals of the archive, of `SUMS`, and of `GAUGES` by metric; with the present price of the costs.

    Costs in another currency than that of `prices` are of a price that was set before: they have none.
    """
    cost = next(iter(gauges.get(_COST, ())), None)
    currency = None if cost is None else cost.key.label("currency")
    lag = sums.get(LAG_SECONDS)
    return ArchiveTotals(
        size.topics,
        size.segments,
        size.finished_bytes,
        size.stored_bytes,
        _sum(gauges, _VERDICT_BYTES),
        _sum(gauges, _VERDICT_BYTES, ("verdict", "passed")),
        _total(sums.get(LAG_BYTES)),
        _total(sums.get(LAG_SEGMENTS)),
        AsOfRun(0.0, None) if lag is None else AsOfRun(lag.highest, lag.oldest_at_ms),
        _total(sums.get(_FAILED)),
        _findings(gauges.get(_FINDINGS, ())),
        None if cost is None else (currency or "", cost.value),
        gib_month=prices.gib_month if currency == prices.currency else None,
    )


def _findings(series: Sequence[Series]) -> AsOfRun:
    """Return how many findings are open, without those that are normal in a bucket that keeps versions."""
    found = sum(each.value for each in series if each.key.label("kind") not in HARMLESS)
    return AsOfRun(found, _oldest(series))


def _total(found: SeriesSum | None) -> AsOfRun:
    return AsOfRun(0.0, None) if found is None else AsOfRun(found.total, found.oldest_at_ms)


def _sum(gauges: Mapping[str, Sequence[Series]], metric: str, label: tuple[str, str] | None = None) -> AsOfRun:
    found = [series for series in gauges.get(metric, ()) if label is None or label in series.key.labels]
    return AsOfRun(sum(series.value for series in found), _oldest(found))


def _oldest(series: Sequence[Series]) -> int | None:
    return min((each.updated_at_ms for each in series), default=None)


def limits(quotas: QuotasInForce, minutes: Minutes, newest: int) -> tuple[Limit, ...]:
    """Return the quotas that set a limit, ordered by kind, level and name.

    Args:
        quotas: the quotas in force.
        minutes: of granted bytes, throttled seconds and delete calls; at least the newest whole minute.
        newest: that minute.
    """
    found: list[Limit] = []
    for kind in QuotaKind:
        of_kind = sorted(
            (list(QuotaLevel).index(scope.level), scope.name, scope, quota // kind.units)
            for scope, quota in quotas.bytes_per_second.items()
            if scope.kind is kind and quota != UNLIMITED and quota >= kind.units
        )
        rates = {scope: _rate(scope, minutes, newest) for _, _, scope, _ in of_kind}
        waited = total_of(minutes, THROTTLED_SECONDS, newest, 1, kind) > 0
        in_use = {scope for _, _, scope, quota in of_kind if (rates[scope] or 0) >= _IN_USE * quota}
        for _, _, scope, quota in of_kind:
            is_unknown = rates[scope] is None and not in_use
            found.append(Limit(scope, quota, rates[scope], waited and (scope in in_use or is_unknown)))
    return tuple(found)


def _rate(scope: Scope, minutes: Minutes, newest: int) -> float | None:
    """Return the rate in the newest minute, for the default quota of topics the busiest topic's; None if not known."""
    if scope.kind is QuotaKind.DELETE:
        return total_of(minutes, DELETE_CALLS, newest, 1) / 60
    if scope.level is QuotaLevel.TOTAL:
        return total_of(minutes, GRANTED_BYTES, newest, 1, scope.kind) / 60
    if scope.level is not QuotaLevel.TOPIC:
        return None
    by_topic = {
        dict(key.labels)["topic"]: values.get(newest, 0.0) / 60
        for key, values in minutes.items()
        if key.metric == GRANTED_BYTES.name and ("kind", scope.kind.value) in key.labels
    }
    return by_topic.get(scope.name, 0.0) if scope.name else max(by_topic.values(), default=0.0)


class AsOfRunDocument(TypedDict):
    """A number as of the run that found it; both members are null if no run ever did."""

    value: float | None
    as_of_ms: int | None


class CostPerMonthDocument(TypedDict):
    """The estimated price of storing everything for a month, without requests, at `gib_month` for a GiB and month.

    `gib_month` is the present price, an exact decimal as text; the amount is as of the last size run.
    """

    currency: str
    amount: float
    gib_month: str | None


class TotalsDocument(TypedDict):
    """The whole archive; `topics` are those with FINISHED segments.

    `judged_bytes` are the FINISHED bytes at the last count of verdicts, `safe_bytes` those of them that passed. What
    waits is as of the last size run that looked at brokers' logs; `waiting_seconds` is the age of the oldest segment
    that waits, by its newest record, and no waiting time. Of `unmeasured_partitions` it is not known how much waits:
    they are in no readable log directory, or nothing of their topic was copied yet and the last plan held them back.
    """

    topics: int
    segments: int
    finished_bytes: int
    stored_bytes: int
    judged_bytes: AsOfRunDocument
    safe_bytes: AsOfRunDocument
    waiting_bytes: AsOfRunDocument
    waiting_segments: AsOfRunDocument
    waiting_seconds: AsOfRunDocument
    unmeasured_partitions: int
    failed_segments: AsOfRunDocument
    findings: AsOfRunDocument
    cost_per_month: CostPerMonthDocument | None


class BatchDocument(TypedDict):
    """The last report of a batch that runs; `seconds_left` is at the present rate, and null while nothing is sent.

    `partition` is a label: the partition that the batch works on, of several the first, and how many more.
    """

    run_id: str
    batch_id: str
    pool: str | None
    host: str
    pid: int
    partition: str
    done_bytes: int
    planned_bytes: int
    bytes_per_second: float
    seconds_left: float | None
    started_at_ms: int
    updated_at_ms: int


class QuotaLimitDocument(TypedDict):
    """A quota in force, in bytes a second, of the kind `delete` in requests a second.

    `rate` is that of the newest whole minute, null if it is not known at this level; `limits` says whether senders
    waited for this quota then. `entity` is empty for the total and for the default of a level.
    """

    kind: str
    level: str
    entity: str
    per_second: int
    rate: float | None
    limits: bool


class OverviewDocument(TypedDict):
    """The present state; `paused_topics` has `*` if all are paused.

    `stopped_pools` are the pools with 0 slots, of which nothing begins, whatever is paused.
    """

    as_of_ms: int
    totals: TotalsDocument
    paused_topics: list[str]
    stopped_pools: list[str]
    batches: list[BatchDocument]
    pools: list[PoolDocument]
    limits: list[QuotaLimitDocument]
    waiting: list[WaitingGroupDocument]
    unreadable_log_dirs: list[monitoring.UnreadableLogDirDocument]
    alarms: list[AlarmDocument]
    more_alarms: list[MoreAlarmsDocument]


def overview_document(overview: Overview) -> OverviewDocument:
    """Return the JSON of an overview: the page's, and a part of that of `status`."""
    return {
        "as_of_ms": overview.as_of_ms,
        "totals": _totals_document(overview.totals),
        "paused_topics": sorted(overview.paused_topics),
        "stopped_pools": list(overview.stopped_pools),
        "batches": [_batch_document(report) for report in overview.batches],
        "pools": pools_document(overview.pools)["pools"],
        "limits": [_limit_document(limit) for limit in overview.limits],
        "waiting": [waiting_document(group) for group in overview.waiting],
        "unreadable_log_dirs": [monitoring.unreadable_document(log_dir) for log_dir in overview.unreadable],
        "alarms": [alarm_document(alarm) for alarm in overview.alarms],
        "more_alarms": [{"alert": alert, "alarms": number} for alert, number in overview.more_alarms.items()],
    }


def seconds_left(report: BatchProgress) -> float | None:
    """Return the time left at the present rate; None while nothing is sent."""
    if report.bytes_per_second <= 0:
        return None
    return max(0, report.planned_bytes - report.done_bytes) / report.bytes_per_second


def _totals_document(found: ArchiveTotals) -> TotalsDocument:
    return {
        "topics": found.topics,
        "segments": found.segments,
        "finished_bytes": found.finished_bytes,
        "stored_bytes": found.stored_bytes,
        "judged_bytes": _measured(found.judged_bytes),
        "safe_bytes": _measured(found.safe_bytes),
        "waiting_bytes": _measured(found.waiting_bytes),
        "waiting_segments": _measured(found.waiting_segments),
        "waiting_seconds": _measured(found.waiting_seconds),
        "unmeasured_partitions": found.unmeasured_partitions,
        "failed_segments": _measured(found.failed_segments),
        "findings": _measured(found.findings),
        "cost_per_month": None
        if found.cost is None
        else {
            "currency": found.cost[0],
            "amount": found.cost[1],
            "gib_month": None if found.gib_month is None else f"{found.gib_month:f}",
        },
    }


def _measured(measured: AsOfRun) -> AsOfRunDocument:
    is_known = measured.as_of_ms is not None
    return {"value": measured.value if is_known else None, "as_of_ms": measured.as_of_ms}


def _batch_document(report: BatchProgress) -> BatchDocument:
    left = seconds_left(report)
    return {
        "run_id": report.run_id,
        "batch_id": report.batch_id,
        "pool": report.pool,
        "host": report.host,
        "pid": report.pid,
        "partition": report.partition,
        "done_bytes": report.done_bytes,
        "planned_bytes": report.planned_bytes,
        "bytes_per_second": round(report.bytes_per_second, 3),
        "seconds_left": None if left is None else round(left, 1),
        "started_at_ms": report.started_at_ms,
        "updated_at_ms": report.updated_at_ms,
    }


def _limit_document(limit: Limit) -> QuotaLimitDocument:
    return {
        "kind": limit.scope.kind.value,
        "level": limit.scope.level.value,
        "entity": limit.scope.name,
        "per_second": limit.per_second,
        "rate": None if limit.rate is None else round(limit.rate, 3),
        "limits": limit.limits,
    }
