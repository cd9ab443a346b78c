"""Owners of topics in SQL."""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Engine, and_, bindparam, exists, or_, select, update

from include.tiering.database.clock import NowMs, database_now_ms
from include.tiering.database.events import record_event
from include.tiering.database.partition_rows import ensure_topic
from include.tiering.database.schema import PARTITION_TOTAL, size_counters, topics
from include.tiering.database.transactions import reading, writing
from include.tiering.errors import StateConflictError
from include.tiering.model.ids import Uuid
from include.tiering.model.topic_owner import TopicOwner

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


class SqlTopicRegistry:
    """`TopicRegistry` of one cluster over the platform's database."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    def owner(self, topic_id: Uuid) -> TopicOwner:
        with reading(self._engine) as connection:
            owner = connection.execute(_OWNER, self._key_of(topic_id)).scalar_one_or_none()
        return TopicOwner.NONE if owner is None else TopicOwner(owner)

    def recorded_name(self, topic_id: Uuid) -> str | None:
        with reading(self._engine) as connection:
            return connection.execute(_NAME, self._key_of(topic_id)).scalar_one_or_none()

    def names_in_use(self) -> Mapping[Uuid, str]:
        with reading(self._engine) as connection:
            rows = connection.execute(_NAMES_IN_USE, {"of_cluster": self._cluster_id}).all()
        return {Uuid.parse(row.topic_id): row.name for row in rows}

    def set_owner(self, topic_id: Uuid, name: str, owner: TopicOwner, *, expected: TopicOwner, author: str) -> None:
        key = self._key_of(topic_id)
        with writing(self._engine) as connection:
            ensure_topic(connection, self._cluster_id, topic_id, name)
            found = TopicOwner(connection.execute(_LOCKED_OWNER, key).scalar_one())
            if found is owner:
                return
            if found is not expected:
                raise StateConflictError(f"topic {name} ({topic_id}) has the owner {found}, not {expected}")
            connection.execute(_SET_OWNER, key | {"owner": owner, "name": name})
            change, now_ms = f"{found} -> {owner}", self._now_ms(connection)
            record_event(connection, self._cluster_id, "owner", f"{name} ({topic_id})", change, author, now_ms)

    def _key_of(self, topic_id: Uuid) -> dict[str, str]:
        return {"of_cluster": self._cluster_id, "of_topic": str(topic_id)}
