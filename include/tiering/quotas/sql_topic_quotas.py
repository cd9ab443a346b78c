"""Topic quotas over meters in SQL, shared by all workers of all hosts.

Every decision is one transaction that locks all meters of a broker. It applies the ticks that have passed by the
database's clock, decides, and counts the segment for its topic and for the broker. So concurrent processes lose no
counts. A topic that is gone keeps its counts, but has no share of a broker's total.

| a worker dies                                  | what it leaves                                                |
|------------------------------------------------|---------------------------------------------------------------|
| before `admit` is committed                    | nothing                                                       |
| after that, before `accepted` or `failed` is   | the segment is counted only as io; the rates decay in minutes |

Commits do not wait for the disk, so a power failure may lose the last counts.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import groupby
from typing import Any, Final

from sqlalchemy import Connection, Engine, Executable, Row, func, select

from include.tiering.database.schema import topic_meters
from include.tiering.database.transactions import (
    NowMs,
    database_now_ms,
    insert_for,
    reading,
    serialise_writers,
    writing,
)
from include.tiering.errors import QuotaExceededError
from include.tiering.quotas.topic_quotas import (
    GIVES_WAY,
    Admission,
    BrokerUsage,
    CurrentTopicQuotaConfigs,
    EwmaMeter,
    MeterKind,
    SizedMeter,
    TopicMeters,
    TopicQuotaConfigs,
    TopicQuotaReport,
    TopicUsage,
    is_refused,
    shared_threshold,
    thresholds,
)

ALL_TOPICS_OF_BROKER: Final = ""
_KEY: Final = ("cluster_id", "broker_id", "kind", "topic")


def read_meters(
    connection: Connection, cluster_id: str, broker_id: int, topics: Collection[str]
) -> dict[str, TopicMeters]:
    """Return the meters of these topics of a broker, by topic; topics without meters are absent."""
    query = select(topic_meters).where(
        topic_meters.c.cluster_id == cluster_id,
        topic_meters.c.broker_id == broker_id,
        topic_meters.c.kind.in_([kind.value for kind in MeterKind]),
        topic_meters.c.topic.in_(topics),
    )
    return {topic: meters for (_, topic), meters in _grouped(connection, query).items()}


def read_all_meters(connection: Connection, cluster_id: str) -> dict[tuple[int, str], TopicMeters]:
    """Return all meters of the cluster, by broker id and topic."""
    order = (topic_meters.c.broker_id, topic_meters.c.topic)
    return _grouped(connection, select(topic_meters).where(topic_meters.c.cluster_id == cluster_id).order_by(*order))


def write_meters(connection: Connection, cluster_id: str, broker_id: int, by_topic: Mapping[str, TopicMeters]) -> None:
    """Insert or replace all kinds of meters of these topics."""
    rows = [
        {"cluster_id": cluster_id, "broker_id": broker_id, "kind": kind.value, "topic": topic, **_values(meter)}
        for topic, meters in by_topic.items()
        for kind, meter in meters.kinds.items()
    ]
    connection.execute(_write(connection.dialect.name), rows)


def count_sharers(connection: Connection, cluster_id: str, broker_id: int, *, without: Collection[str]) -> int:
    """Count the topics of a broker, other than `without`, for which `admit` was ever called."""
    query = select(func.count()).where(
        topic_meters.c.cluster_id == cluster_id,
        topic_meters.c.broker_id == broker_id,
        topic_meters.c.kind == MeterKind.IO.value,
        topic_meters.c.topic.not_in([ALL_TOPICS_OF_BROKER, *without]),
    )
    return connection.execute(query).scalar_one()


@cache
def _write(dialect_name: str) -> Executable:
    statement = insert_for(dialect_name, topic_meters)
    changed = {column.name: statement.excluded[column.name] for column in topic_meters.c if column.name not in _KEY}
    return statement.on_conflict_do_update(index_elements=list(_KEY), set_=changed)


def _grouped(connection: Connection, query: Executable) -> dict[tuple[int, str], TopicMeters]:
    kinds: dict[tuple[int, str], dict[MeterKind, SizedMeter]] = {}
    for row in connection.execute(query):
        kinds.setdefault((row.broker_id, row.topic), {})[MeterKind(row.kind)] = _meter_of(row)
    return {key: TopicMeters(of_topic) for key, of_topic in kinds.items()}


def _meter_of(row: Row[Any]) -> SizedMeter:
    return SizedMeter(
        EwmaMeter(row.last_tick_ms, row.bytes, row.uncounted_bytes, row.bytes_per_second),
        EwmaMeter(row.last_tick_ms, row.records, row.uncounted_records, row.records_per_second),
        row.marked_at_ms,
    )


def _values(meter: SizedMeter) -> dict[str, Any]:
    return {
        "bytes": meter.bytes.count,
        "records": meter.records.count,
        "uncounted_bytes": meter.bytes.uncounted,
        "uncounted_records": meter.records.uncounted,
        "bytes_per_second": meter.bytes.rate,
        "records_per_second": meter.records.rate,
        "last_tick_ms": meter.bytes.last_tick_ms,
        "marked_at_ms": meter.marked_at_ms,
    }


class SqlTopicQuotas:
    """`TopicQuotas` of one cluster."""

    def __init__(
        self,
        engine: Engine,
        cluster_id: str,
        configs: CurrentTopicQuotaConfigs,
        *,
        now_ms: NowMs = database_now_ms,
    ) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._configs = configs
        self._now_ms = now_ms

    def admit(self, broker_id: int, topic: str, *, size_bytes: int, records: int) -> Admission:
        """Implement `TopicQuotas.admit`."""
        configs = self._configs.current()
        admission = Admission(broker_id, topic, size_bytes, records, metered=configs.enabled)
        if not admission.metered:
            return admission
        with self._opened(broker_id, topic) as opened:
            refusal = self._refusal(opened, configs, broker_id, topic)
            opened.mark(MeterKind.IO, admission)
            if refusal is not None:
                opened.mark(MeterKind.THROTTLED, admission)
        if refusal is not None:
            raise refusal
        return admission

    def accepted(self, admission: Admission) -> None:
        """Implement `TopicQuotas.accepted`."""
        self._mark(MeterKind.ACCEPTED, admission)

    def failed(self, admission: Admission) -> None:
        """Implement `TopicQuotas.failed`."""
        self._mark(MeterKind.ERROR, admission)

    def report(self) -> TopicQuotaReport:
        """Implement `TopicQuotas.report`."""
        configs = self._configs.current()
        with reading(self._engine) as connection:
            now_ms = self._now_ms(connection)
            rows = read_all_meters(connection, self._cluster_id)
        by_broker = groupby(rows.items(), key=lambda item: item[0][0])
        brokers = [
            _usage(broker_id, {topic: meters.at(now_ms) for (_, topic), meters in items}, configs)
            for broker_id, items in by_broker
        ]
        return TopicQuotaReport(configs.enabled, tuple(brokers), configs.totals, configs.explicit)

    def _mark(self, kind: MeterKind, admission: Admission) -> None:
        if admission.metered:
            with self._opened(admission.broker_id, admission.topic) as opened:
                opened.mark(kind, admission)

    @contextmanager
    def _opened(self, broker_id: int, topic: str) -> Iterator["_OpenMeters"]:
        """Yield the meters of the broker and of the topic, with all ticks up to now, and write them at the end.

        Other transactions that change meters of this broker wait meanwhile.
        """
        with writing(self._engine, durable=False) as connection:
            serialise_writers(connection, f"topic meters of broker {broker_id} of {self._cluster_id}")
            now_ms = self._now_ms(connection)
            known = read_meters(connection, self._cluster_id, broker_id, (ALL_TOPICS_OF_BROKER, topic))
            opened = _OpenMeters(
                connection,
                now_ms,
                {name: known.get(name, TopicMeters.new(now_ms)).at(now_ms) for name in (ALL_TOPICS_OF_BROKER, topic)},
            )
            yield opened
            write_meters(connection, self._cluster_id, broker_id, opened.meters)

    def _refusal(
        self, opened: "_OpenMeters", configs: TopicQuotaConfigs, broker_id: int, topic: str
    ) -> QuotaExceededError | None:
        total = configs.total(broker_id)
        total_rate = opened.meters[ALL_TOPICS_OF_BROKER].compared_bytes_per_second
        topic_rate = opened.meters[topic].compared_bytes_per_second
        gives_way = configs.explicit.get(topic) == GIVES_WAY
        # The topic's threshold is computed only if the total is exceeded and the topic's rate is above 0.
        if total is None or not is_refused(total_rate, total, topic_rate, 0, gives_way=gives_way):
            return None
        threshold = self._threshold(opened, configs, total, broker_id, topic)
        if not is_refused(total_rate, total, topic_rate, threshold, gives_way=gives_way):
            return None
        return QuotaExceededError(
            broker_id,
            topic,
            topic_rate=topic_rate,
            topic_threshold=float(threshold),
            total_rate=total_rate,
            total_threshold=total,
        )

    def _threshold(
        self, opened: "_OpenMeters", configs: TopicQuotaConfigs, total: int, broker_id: int, topic: str
    ) -> Fraction | int:
        if topic in configs.explicit:
            return configs.explicit[topic]
        others = count_sharers(
            opened.connection,
            self._cluster_id,
            broker_id,
            without=[topic, *configs.explicit, *configs.gone],
        )
        return shared_threshold(total, configs.explicit, others + 1)


@dataclass(slots=True)
class _OpenMeters:
    """Meters within a transaction, by topic; the empty name has the meters of the whole broker."""

    connection: Connection
    now_ms: int
    meters: dict[str, TopicMeters]

    def mark(self, kind: MeterKind, admission: Admission) -> None:
        for topic, meters in self.meters.items():
            self.meters[topic] = meters.mark(kind, admission.size_bytes, admission.records, self.now_ms)


def _usage(broker_id: int, by_topic: dict[str, TopicMeters], configs: TopicQuotaConfigs) -> BrokerUsage:
    total = configs.total(broker_id)
    all_topics = by_topic.pop(ALL_TOPICS_OF_BROKER)
    known = thresholds(total, configs.explicit, {*by_topic, *configs.explicit} - configs.gone)
    topics = tuple(
        TopicUsage(topic, meters, known.get(topic), topic in configs.explicit) for topic, meters in by_topic.items()
    )
    return BrokerUsage(broker_id, all_topics, total, topics)
