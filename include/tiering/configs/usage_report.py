"""JSON documents and tables of Airflow's pools and their batches, and of topic quotas and what is copied of topics."""

from fractions import Fraction
from typing import Any, Final, TypedDict

from include.tiering.configs.pools import UNLIMITED_SLOTS, PoolsStatus, PoolStatus
from include.tiering.presentation import Presentation, Table, count
from include.tiering.quotas.topic_quotas import BrokerUsage, TopicMeters, TopicQuotaReport, TopicUsage
from include.tiering.units import format_bytes


class PoolDocument(TypedDict):
    """A pool of Airflow; what is not known is null, and unlimited `slots` are -1.

    `queued` counts the slots of queued and of scheduled tasks.
    """

    name: str
    config: str
    slots: int | None
    running: int | None
    queued: int | None
    deferred: int | None
    live_batches: list[str]
    source: str
    seen_at_ms: int | None


class PoolsMember(TypedDict):
    """The member `pools` of a document."""

    pools: list[PoolDocument]


class PoolsDocument(PoolsMember):
    """The pools that batches run in; `airflow` says whether Airflow answers, or why not."""

    airflow: str


class MeterDocument(TypedDict):
    """Counts since the database has had this meter, and present rates a second."""

    bytes: int
    records: int
    bytes_per_second: float
    records_per_second: float


class TopicUsageDocument(TypedDict):
    """How much of a topic is copied from a broker now, and its threshold, in bytes a second.

    `threshold_is` is `explicit` if the threshold was set for the topic. It is `shared` if the threshold is an equal
    share of what the explicit thresholds leave of the broker's total, and null if there is no threshold.
    """

    topic: str
    bytes_in_per_second: float
    threshold: float | None
    threshold_is: str | None
    meters: dict[str, MeterDocument]


class BrokerUsageDocument(TypedDict):
    """How much of all topics is copied from a broker now, and the threshold of their sum, in bytes a second."""

    broker_id: int
    bytes_in_per_second: float
    threshold: float | None
    meters: dict[str, MeterDocument]
    topics: list[TopicUsageDocument]


class TopicQuotasDocument(TypedDict):
    """Topic quotas and their use, in bytes a second.

    `total_thresholds` are by broker, for all its topics together. `topic_thresholds` are by topic, on each broker.
    """

    enabled: bool
    total_thresholds: dict[str, Any]
    topic_thresholds: dict[str, Any]
    brokers: list[BrokerUsageDocument]


class TopicQuotasMember(TypedDict):
    """The member `topic_quotas` of a document."""

    topic_quotas: TopicQuotasDocument


FROM_AIRFLOW: Final = "Airflow pool"
FROM_MIRROR: Final = "Airflow pool, as seen last"
NEVER_SEEN: Final = "never seen"


def present_pools(status: PoolsStatus) -> Presentation:
    """Present pools. The result is `ok` even if Airflow could not be read, because batches use the mirror."""
    live = sum(len(pool.live_batches) for pool in status.pools)
    summary = f"{count(len(status.pools), 'pool')}, {count(live, 'live batch', 'live batches')}"
    if status.stopped:
        summary += f"; 0 slots, so nothing of it begins: {', '.join(status.stopped)}"
    if status.unavailable is not None:
        summary += f"; Airflow was not read, sizes are the last known: {status.unavailable}"
    return Presentation(
        lambda: PoolsDocument(pools=pools_document(status)["pools"], airflow=status.unavailable or "answers"),
        lambda: (pools_table(status),),
        summary,
    )


def pools_document(status: PoolsStatus) -> PoolsMember:
    """Return the document of pools: figures that are not known are null; unlimited `slots` are -1, as in Airflow."""
    return {"pools": list(map(_pool_document, status.pools))}


def pools_table(status: PoolsStatus) -> Table:
    heads = ("pool", "slots>", "running>", "queued>", "live batches>", "from")
    return Table("pools", heads, tuple(map(_pool_row, status.pools)))


def slots_words(slots: int | None) -> str:
    if slots is None:
        return "not known"
    return "unlimited" if slots == UNLIMITED_SLOTS else str(slots)


def source_of(pool: PoolStatus) -> str:
    """Return where the shown size of a pool comes from: Airflow, the mirror, or nowhere."""
    if pool.usage is not None:
        return FROM_AIRFLOW
    return NEVER_SEEN if pool.seen is None else FROM_MIRROR


def _pool_document(pool: PoolStatus) -> PoolDocument:
    usage = pool.usage
    return {
        "name": pool.spec.name,
        "config": pool.spec.config_name,
        "slots": -1 if pool.slots == UNLIMITED_SLOTS else pool.slots,
        "running": None if usage is None else usage.running,
        "queued": None if usage is None else usage.queued + usage.scheduled,
        "deferred": None if usage is None else usage.deferred,
        "live_batches": list(pool.live_batches),
        "source": source_of(pool),
        "seen_at_ms": None if pool.seen is None else pool.seen.seen_at_ms,
    }


def _pool_row(pool: PoolStatus) -> tuple[str, ...]:
    usage = pool.usage
    in_use = ("", "") if usage is None else (str(usage.running), str(usage.queued + usage.scheduled))
    return (pool.spec.name, slots_words(pool.slots), *in_use, str(len(pool.live_batches)), source_of(pool))


def topic_quotas_document(report: TopicQuotaReport) -> TopicQuotasMember:
    """Return the document of topic quotas.

    Thresholds are in bytes a second. Each kind of meter (see `quotas.topic_quotas`) has counts since the database has
    had it, and rates in bytes or records a second.
    """
    return {
        "topic_quotas": {
            "enabled": report.enabled,
            "total_thresholds": dict(report.totals),
            "topic_thresholds": dict(report.explicit),
            "brokers": [_broker_document(usage) for usage in report.brokers],
        }
    }


def topic_quotas_table(report: TopicQuotaReport) -> tuple[Table, ...]:
    """Return the table of topic quotas; no table if topic quotas are off, or if no segment was ever counted."""
    if not report.enabled or not report.brokers:
        return ()
    rows = [row for usage in report.brokers for row in _topic_quota_rows(usage)]
    return (Table("topic quotas", ("broker", "topic", "bytes in/s>", "threshold/s>", "which is"), tuple(rows)),)


def _broker_document(usage: BrokerUsage) -> BrokerUsageDocument:
    return {
        "broker_id": usage.broker_id,
        "bytes_in_per_second": round(usage.meters.bytes_in_per_second, 3),
        "threshold": usage.threshold,
        "meters": _meters_document(usage.meters),
        "topics": [_topic_document(topic) for topic in usage.topics],
    }


def _topic_document(usage: TopicUsage) -> TopicUsageDocument:
    return {
        "topic": usage.topic,
        "bytes_in_per_second": round(usage.meters.bytes_in_per_second, 3),
        "threshold": None if usage.threshold is None else round(float(usage.threshold), 3),
        "threshold_is": _kind_of_threshold(usage),
        "meters": _meters_document(usage.meters),
    }


def _meters_document(meters: TopicMeters) -> dict[str, MeterDocument]:
    return {
        str(kind): {
            "bytes": meter.bytes.count,
            "records": meter.records.count,
            "bytes_per_second": round(meter.bytes.per_second, 3),
            "records_per_second": round(meter.records.per_second, 3),
        }
        for kind, meter in meters.kinds.items()
    }


def _topic_quota_rows(usage: BrokerUsage) -> list[tuple[str, ...]]:
    def row(topic: str, meters: TopicMeters, threshold: Fraction | int | None, kind: str) -> tuple[str, ...]:
        limit = "none" if threshold is None else format_bytes(int(threshold))
        return (str(usage.broker_id), topic, format_bytes(round(meters.bytes_in_per_second)), limit, kind)

    return [
        row("all topics", usage.meters, usage.threshold, "the total" if usage.threshold is not None else ""),
        *(row(topic.topic, topic.meters, topic.threshold, _kind_of_threshold(topic) or "") for topic in usage.topics),
    ]


def _kind_of_threshold(usage: TopicUsage) -> str | None:
    if usage.threshold is None:
        return None
    return "explicit" if usage.explicit else "shared"
