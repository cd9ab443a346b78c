"""Topics in SQL: their owners, their names, and the recorded deletions of topics in the cluster."""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, and_, bindparam, exists, or_, select, update

from include.tiering.database.event_log import EventKind, record_event, topic_subject
from include.tiering.database.schema import PARTITION_TOTAL, size_counters, topics
from include.tiering.database.transactions import ClusterStore, ensure_topic, reading, stored_text, writing
from include.tiering.errors import StateConflictError
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Uuid
from include.tiering.segments.topics import TopicDeletion

_IS_TOPIC: Final = and_(topics.c.cluster_id == bindparam("of_cluster"), topics.c.topic_id == bindparam("of_topic"))
_OWNER: Final = select(topics.c.owner).where(_IS_TOPIC)
_NAME: Final = select(topics.c.name).where(_IS_TOPIC)
_LOCKED_OWNER: Final = _OWNER.with_for_update()
_HAS_SEGMENTS: Final = exists().where(
    size_counters.c.cluster_id == topics.c.cluster_id,
    size_counters.c.topic_id == topics.c.topic_id,
    size_counters.c.leader_epoch == PARTITION_TOTAL,
    size_counters.c.segments > 0,
)
_IS_OWNED: Final = and_(topics.c.owner != str(TopicOwner.NONE), topics.c.deletion_seen_at_ms.is_(None))
_NAMES_IN_USE: Final = (
    select(topics.c.topic_id, topics.c.name)
    .where(topics.c.cluster_id == bindparam("of_cluster"), or_(_HAS_SEGMENTS, _IS_OWNED))
    .order_by(topics.c.name, topics.c.topic_id)
)
_SET_OWNER: Final = update(topics).where(_IS_TOPIC)


class SqlTopicRegistry(ClusterStore):
    """`TopicRegistry` of one cluster over the platform's database."""

    def owner(self, topic_id: Uuid) -> TopicOwner:
        """Return the topic's owner; NONE for a topic that is not registered."""
        with reading(self._engine) as connection:
            owner = connection.execute(_OWNER, self._key_of(topic_id)).scalar_one_or_none()
        return TopicOwner.NONE if owner is None else TopicOwner(owner)

    def recorded_name(self, topic_id: Uuid) -> str | None:
        """Return the recorded name of the topic, even if no segment of it is left; None if it was never recorded."""
        with reading(self._engine) as connection:
            return connection.execute(_NAME, self._key_of(topic_id)).scalar_one_or_none()

    def names_in_use(self) -> Mapping[Uuid, str]:
        """Return the names of all topics that may still exist, by topic id."""
        with reading(self._engine) as connection:
            rows = connection.execute(_NAMES_IN_USE, {"of_cluster": self._cluster_id}).all()
        return {Uuid.parse(row.topic_id): row.name for row in rows}

    def set_owner(self, topic_id: Uuid, name: str, owner: TopicOwner, *, expected: TopicOwner, author: str) -> None:
        """Compare and set the owner, with an event. Idempotent."""
        key = self._key_of(topic_id)
        with writing(self._engine) as connection:
            ensure_topic(connection, self._cluster_id, topic_id, name)
            found = TopicOwner(connection.execute(_LOCKED_OWNER, key).scalar_one())
            if found is owner:
                return
            if found is not expected:
                raise StateConflictError(f"topic {name} ({topic_id}) has the owner {found}, not {expected}")
            connection.execute(_SET_OWNER, key | {"owner": owner, "name": name})
            subject, now_ms = topic_subject(name, topic_id), self._now_ms(connection)
            record_event(connection, self._cluster_id, EventKind.OWNER, subject, f"{found} -> {owner}", author, now_ms)

    def _key_of(self, topic_id: Uuid) -> dict[str, str]:
        return {"of_cluster": self._cluster_id, "of_topic": str(topic_id)}


_LOCKED_DELETION: Final = (
    select(topics.c.name, topics.c.deletion_seen_at_ms, topics.c.deletion_evidence).where(_IS_TOPIC).with_for_update()
)
_SET_DELETION: Final = update(topics).where(_IS_TOPIC)
_DELETED: Final = select(
    topics.c.topic_id, topics.c.name, topics.c.deletion_seen_at_ms, topics.c.deletion_evidence
).where(topics.c.cluster_id == bindparam("of_cluster"), topics.c.deletion_seen_at_ms.is_not(None))


class SqlTopicDeletions(ClusterStore):
    """`TopicDeletions` of one cluster over the platform's database. Every call is one transaction."""

    def all(self) -> Mapping[Uuid, TopicDeletion]:
        """Return every recorded deletion that was not withdrawn."""
        with reading(self._engine) as connection:
            rows = connection.execute(_DELETED, {"of_cluster": self._cluster_id}).all()
        return {Uuid.parse(topic_id): TopicDeletion(name, seen, evidence) for topic_id, name, seen, evidence in rows}

    def record(self, topic_id: Uuid, topic: str, *, evidence: str, author: str) -> TopicDeletion:
        """Record a deletion, with an event. Idempotent: the first record stays."""
        with writing(self._engine) as connection:
            ensure_topic(connection, self._cluster_id, topic_id, topic)
            known = self._locked(connection, topic_id)
            if known is not None:
                return known
            found = TopicDeletion(topic, self._now_ms(connection), stored_text(evidence))
            self._set(connection, topic_id, found.seen_at_ms, found.evidence)
            self._record_event(connection, topic_id, topic, f"recorded: {evidence}", author)
            return found

    def withdraw(self, topic_id: Uuid, *, evidence: str, author: str) -> None:
        """Remove a recorded deletion that was wrong, with an event. Without a record, do nothing."""
        with writing(self._engine) as connection:
            known = self._locked(connection, topic_id)
            if known is not None:
                self._set(connection, topic_id, None, None)
                self._record_event(connection, topic_id, known.topic, f"withdrawn: {evidence}", author)

    def _locked(self, connection: Connection, topic_id: Uuid) -> TopicDeletion | None:
        row = connection.execute(_LOCKED_DELETION, self._key_of(topic_id)).one_or_none()
        if row is None or row.deletion_seen_at_ms is None:
            return None
        return TopicDeletion(row.name, row.deletion_seen_at_ms, row.deletion_evidence)

    def _set(self, connection: Connection, topic_id: Uuid, seen_at_ms: int | None, evidence: str | None) -> None:
        values = {"deletion_seen_at_ms": seen_at_ms, "deletion_evidence": evidence}
        connection.execute(_SET_DELETION, self._key_of(topic_id) | values)

    def _record_event(self, connection: Connection, topic_id: Uuid, topic: str, detail: str, author: str) -> None:
        subject, now_ms = topic_subject(topic, topic_id), self._now_ms(connection)
        record_event(connection, self._cluster_id, EventKind.TOPIC_DELETION, subject, detail, author, now_ms)

    def _key_of(self, topic_id: Uuid) -> dict[str, str]:
        return {"of_cluster": self._cluster_id, "of_topic": str(topic_id)}
