"""Deletions of topics in SQL: two columns of the topic's row."""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, Engine, and_, bindparam, select, update

from include.tiering.database.clock import NowMs, database_now_ms
from include.tiering.database.events import record_event
from include.tiering.database.partition_rows import ensure_topic
from include.tiering.database.schema import topics
from include.tiering.database.statements import stored_text
from include.tiering.database.transactions import reading, writing
from include.tiering.model.ids import Uuid
from include.tiering.segments.topic_deletions_contract import TopicDeletion

_KIND: Final = "topic-deletion"
_IS_TOPIC: Final = and_(topics.c.cluster_id == bindparam("of_cluster"), topics.c.topic_id == bindparam("of_topic"))
_ONE: Final = (
    select(topics.c.name, topics.c.deletion_seen_at_ms, topics.c.deletion_evidence).where(_IS_TOPIC).with_for_update()
)
_SET: Final = update(topics).where(_IS_TOPIC)
_ALL: Final = select(topics.c.topic_id, topics.c.name, topics.c.deletion_seen_at_ms, topics.c.deletion_evidence).where(
    topics.c.cluster_id == bindparam("of_cluster"), topics.c.deletion_seen_at_ms.is_not(None)
)


class SqlTopicDeletions:
    """`TopicDeletions` of one cluster over the platform's database. Every call is one transaction."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    def all(self) -> Mapping[Uuid, TopicDeletion]:
        with reading(self._engine) as connection:
            rows = connection.execute(_ALL, {"of_cluster": self._cluster_id}).all()
        return {Uuid.parse(topic_id): TopicDeletion(name, seen, evidence) for topic_id, name, seen, evidence in rows}

    def record(self, topic_id: Uuid, topic: str, *, evidence: str, author: str) -> TopicDeletion:
        with writing(self._engine) as connection:
            ensure_topic(connection, self._cluster_id, topic_id, topic)
            known = self._locked(connection, topic_id)
            if known is not None:
                return known
            found = TopicDeletion(topic, self._now_ms(connection), stored_text(evidence))
            self._set(connection, topic_id, found.seen_at_ms, found.evidence)
            self._say(connection, topic_id, topic, f"recorded: {evidence}", author)
            return found

    def withdraw(self, topic_id: Uuid, *, evidence: str, author: str) -> None:
        with writing(self._engine) as connection:
            known = self._locked(connection, topic_id)
            if known is not None:
                self._set(connection, topic_id, None, None)
                self._say(connection, topic_id, known.topic, f"withdrawn: {evidence}", author)

    def _locked(self, connection: Connection, topic_id: Uuid) -> TopicDeletion | None:
        row = connection.execute(_ONE, self._key_of(topic_id)).one_or_none()
        if row is None or row.deletion_seen_at_ms is None:
            return None
        return TopicDeletion(row.name, row.deletion_seen_at_ms, row.deletion_evidence)

    def _set(self, connection: Connection, topic_id: Uuid, seen_at_ms: int | None, evidence: str | None) -> None:
        values = {"deletion_seen_at_ms": seen_at_ms, "deletion_evidence": evidence}
        connection.execute(_SET, self._key_of(topic_id) | values)

    def _say(self, connection: Connection, topic_id: Uuid, topic: str, detail: str, author: str) -> None:
        subject, now_ms = f"{topic} ({topic_id})", self._now_ms(connection)
        record_event(connection, self._cluster_id, _KIND, subject, detail, author, now_ms)

    def _key_of(self, topic_id: Uuid) -> dict[str, str]:
        return {"of_cluster": self._cluster_id, "of_topic": str(topic_id)}
