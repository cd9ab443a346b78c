"""Rows of topics and partitions: created when first needed, locked before anything below them changes.

Statements that run for every segment are built once, with parameters, from `in_partition`: building one anew takes
several times as long as running it.
"""

from functools import lru_cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, and_, bindparam, select, update

from include.tiering.database.schema import partitions, topics
from include.tiering.database.statements import insert_if_absent
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.model.ownership import TopicOwner


def of_partition(table: Table, cluster_id: str, partition: TopicIdPartition) -> ColumnElement[bool]:
    """The condition on the three key columns that every table below a partition has."""
    return and_(
        table.c.cluster_id == cluster_id,
        table.c.topic_id == str(partition.topic_id),
        table.c.partition == partition.partition,
    )


def in_partition(table: Table) -> ColumnElement[bool]:
    """The same condition for a statement that is built once: its parameters are `key_of` the partition."""
    return and_(
        table.c.cluster_id == bindparam("of_cluster"),
        table.c.topic_id == bindparam("of_topic"),
        table.c.partition == bindparam("of_partition"),
    )


def key_of(cluster_id: str, partition: TopicIdPartition) -> dict[str, Any]:
    """The parameters of `in_partition`."""
    return {"of_cluster": cluster_id, "of_topic": str(partition.topic_id), "of_partition": partition.partition}


_STOPPED_REASON: Final = select(partitions.c.stopped_reason).where(in_partition(partitions))
_LOCK: Final = _STOPPED_REASON.with_for_update()


@lru_cache(maxsize=10_000)
def partition_from(topic_id: str, partition: int, name: str) -> TopicIdPartition:
    """The value that three columns mean. Remembered, because most rows share their partition with the row before."""
    return TopicIdPartition(Uuid.parse(topic_id), partition, name)


def ensure_topic(connection: Connection, cluster_id: str, topic_id: Uuid, name: str) -> None:
    """Register the topic without an owner, unless it is known."""
    values = {"cluster_id": cluster_id, "topic_id": str(topic_id), "name": name, "owner": TopicOwner.NONE}
    insert_if_absent(connection, topics, values)


def ensure_partition(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> None:
    """Register the partition and its topic, unless they are known."""
    ensure_topic(connection, cluster_id, partition.topic_id, partition.topic)
    values = {
        "cluster_id": cluster_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "log_start_offset": 0,
        "leader_epochs": "",
    }
    insert_if_absent(connection, partitions, values)


def lock_partition(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> str | None:
    """Lock the partition's row until the transaction ends; returns why the partition is stopped, None if it is not."""
    return connection.execute(_LOCK, key_of(cluster_id, partition)).scalar_one_or_none()


def lock_or_create_partition(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> None:
    """Lock the partition's row until the transaction ends; register it, and its topic, if they are not known."""
    key = key_of(cluster_id, partition)
    if connection.execute(_LOCK, key).one_or_none() is None:
        ensure_partition(connection, cluster_id, partition)
        connection.execute(_LOCK, key)


def set_stopped_reason(
    connection: Connection, cluster_id: str, partition: TopicIdPartition, reason: str | None
) -> None:
    condition = of_partition(partitions, cluster_id, partition)
    connection.execute(update(partitions).where(condition).values(stopped_reason=reason))


def stopped_reason_of(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> str | None:
    """Why the partition takes no FINISHED, None if it does or is not known."""
    return connection.execute(_STOPPED_REASON, key_of(cluster_id, partition)).scalar_one_or_none()
