"""Topic quotas over meters in SQL, shared by all workers of all hosts.

Every answer is one transaction that holds all meters of one broker: it folds the ticks that have passed by the
database's clock, decides, and counts the segment for its topic and for the broker. So nothing is counted twice or lost
between processes. A topic that asked for nothing for an hour keeps its counts, but no share of the total.

| a worker dies                                  | what it leaves                                                |
|------------------------------------------------|---------------------------------------------------------------|
| before `admit` is committed                    | nothing                                                       |
| after it, before `accepted` or `failed` is     | the segment in io alone: the rates forget it within minutes   |

Commits do not wait for the disk: a power failure may take the last marks with it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Final

from sqlalchemy import Connection, Engine

from include.tiering.database.clock import NowMs, database_now_ms
from include.tiering.database.statements import serialise_writers
from include.tiering.database.transactions import reading, writing
from include.tiering.errors import QuotaExceededError
from include.tiering.quotas.sql_topic_meter_rows import (
    ALL_TOPICS_OF_BROKER,
    count_sharers,
    read_all_meters,
    read_meters,
    write_meters,
)
from include.tiering.quotas.topic_meters import MeterKind, TopicMeters
from include.tiering.quotas.topic_quota import Admission, BrokerUsage, TopicQuotaReport, TopicUsage
from include.tiering.quotas.topic_quota_configs import CurrentTopicQuotaConfigs, TopicQuotaConfigs
from include.tiering.quotas.topic_thresholds import is_refused, shared_threshold, thresholds

SHARING_MS: Final = 3_600_000


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
        self._mark(MeterKind.ACCEPTED, admission)

    def failed(self, admission: Admission) -> None:
        self._mark(MeterKind.ERROR, admission)

    def report(self) -> TopicQuotaReport:
        configs = self._configs.current()
        with reading(self._engine) as connection:
            now_ms = self._now_ms(connection)
            rows = read_all_meters(connection, self._cluster_id)
        by_broker = groupby(rows.items(), key=lambda item: item[0][0])
        brokers = [
            _usage(broker_id, {topic: meters.at(now_ms) for (_, topic), meters in items}, configs, now_ms)
            for broker_id, items in by_broker
        ]
        return TopicQuotaReport(configs.enabled, tuple(brokers), configs.totals, configs.explicit)

    def _mark(self, kind: MeterKind, admission: Admission) -> None:
        if admission.metered:
            with self._opened(admission.broker_id, admission.topic) as opened:
                opened.mark(kind, admission)

    @contextmanager
    def _opened(self, broker_id: int, topic: str) -> Iterator["_OpenMeters"]:
        """The meters of the broker and of the topic, ticked up to now; nobody else has this broker's until the end."""
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
        total_rate = opened.meters[ALL_TOPICS_OF_BROKER].bytes_in_per_second
        topic_rate = opened.meters[topic].bytes_in_per_second
        # Below the total nobody is refused: what the topic's threshold is need not be known.
        if total is None or not is_refused(total_rate, total, topic_rate, 0):
            return None
        threshold = self._threshold(opened, configs, total, broker_id, topic)
        if not is_refused(total_rate, total, topic_rate, threshold):
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
            since_ms=opened.now_ms - SHARING_MS,
            without=[topic, *configs.explicit],
        )
        return shared_threshold(total, configs.explicit, others + 1)


@dataclass(slots=True)
class _OpenMeters:
    """Within one transaction: by topic, the broker's own under the empty name."""

    connection: Connection
    now_ms: int
    meters: dict[str, TopicMeters]

    def mark(self, kind: MeterKind, admission: Admission) -> None:
        for topic, meters in self.meters.items():
            self.meters[topic] = meters.mark(kind, admission.size_bytes, admission.records, self.now_ms)


def _usage(broker_id: int, by_topic: dict[str, TopicMeters], configs: TopicQuotaConfigs, now_ms: int) -> BrokerUsage:
    total = configs.total(broker_id)
    all_topics = by_topic.pop(ALL_TOPICS_OF_BROKER)
    active = [
        topic for topic, meters in by_topic.items() if meters.kinds[MeterKind.IO].marked_at_ms >= now_ms - SHARING_MS
    ]
    known = thresholds(total, configs.explicit, {*active, *configs.explicit})
    topics = tuple(
        TopicUsage(topic, meters, known.get(topic), topic in configs.explicit) for topic, meters in by_topic.items()
    )
    return BrokerUsage(broker_id, all_topics, total, topics)
