"""`SegmentFacts` in SQL: every segment with the time of its last change, tombstones included."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sqlalchemy import Engine, func, literal, select

from include.tiering.audit.segment_facts import AuditedTopic, PartitionText, SegmentFact
from include.tiering.database.clock import NowMs, database_now_ms
from include.tiering.database.live_leases import is_live
from include.tiering.database.schema import leases, segments, topics
from include.tiering.database.transactions import reading
from include.tiering.model.ownership import TopicOwner
from include.tiering.segments.contract import KeyRange
from include.tiering.segments.sql_queries import pages_of, split_segments

_FACTS: Final = (
    segments.c.segment_id,
    segments.c.topic_id,
    segments.c.partition,
    segments.c.state,
    segments.c.start_offset,
    segments.c.end_offset,
    segments.c.size_bytes,
    # Each of these times is set once, when its state is entered, and kept: the last one that is set is the newest.
    func.coalesce(
        segments.c.deleted_at_ms,
        segments.c.delete_started_at_ms,
        segments.c.finished_at_ms,
        segments.c.started_at_ms,
    ),
    segments.c.segment_key,
    segments.c.leader_epochs,
)


class SqlSegmentFacts:
    """`SegmentFacts` of one cluster over the platform's database."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    def now_ms(self) -> int:
        with reading(self._engine) as connection:
            return self._now_ms(connection)

    def topics(self) -> Mapping[str, AuditedTopic]:
        query = select(topics.c.topic_id, topics.c.name, topics.c.owner).where(topics.c.cluster_id == self._cluster_id)
        with reading(self._engine) as connection:
            rows = connection.execute(query)
            return {topic_id: AuditedTopic(name, TopicOwner(owner)) for topic_id, name, owner in rows}

    def worked_on(self) -> frozenset[PartitionText]:
        with reading(self._engine) as connection:
            live = select(leases.c.topic_id, leases.c.partition).where(
                leases.c.cluster_id == self._cluster_id, is_live(literal(self._now_ms(connection)))
            )
            return frozenset((topic_id, partition) for topic_id, partition in connection.execute(live))

    def split(self, ranges: int) -> Sequence[KeyRange]:
        return split_segments(self._engine, self._cluster_id, ranges)

    def export(self, key_range: KeyRange) -> Iterator[Sequence[SegmentFact]]:
        for rows in pages_of(self._engine, select(*_FACTS), self._cluster_id, key_range):
            yield [SegmentFact(*row) for row in rows]
