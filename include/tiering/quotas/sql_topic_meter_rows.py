"""Meters of topics as rows: one per broker, topic and kind."""

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, Executable, Row, func, select

from include.tiering.database.schema import topic_meters
from include.tiering.database.statements import insert_for
from include.tiering.quotas.ewma import EwmaMeter
from include.tiering.quotas.topic_meters import MeterKind, SizedMeter, TopicMeters

ALL_TOPICS_OF_BROKER: Final = ""
_KEY: Final = ("cluster_id", "broker_id", "kind", "topic")


def read_meters(
    connection: Connection, cluster_id: str, broker_id: int, topics: Collection[str]
) -> dict[str, TopicMeters]:
    """Of those topics that have meters, by name."""
    query = select(topic_meters).where(
        topic_meters.c.cluster_id == cluster_id,
        topic_meters.c.broker_id == broker_id,
        topic_meters.c.kind.in_([kind.value for kind in MeterKind]),
        topic_meters.c.topic.in_(topics),
    )
    return {topic: meters for (_, topic), meters in _grouped(connection, query).items()}


def read_all_meters(connection: Connection, cluster_id: str) -> dict[tuple[int, str], TopicMeters]:
    """By broker id and topic."""
    order = (topic_meters.c.broker_id, topic_meters.c.topic)
    return _grouped(connection, select(topic_meters).where(topic_meters.c.cluster_id == cluster_id).order_by(*order))


def write_meters(connection: Connection, cluster_id: str, broker_id: int, by_topic: Mapping[str, TopicMeters]) -> None:
    """Insert or replace all kinds of these topics."""
    rows = [
        {"cluster_id": cluster_id, "broker_id": broker_id, "kind": kind.value, "topic": topic, **_values(meter)}
        for topic, meters in by_topic.items()
        for kind, meter in meters.kinds.items()
    ]
    connection.execute(_write(connection.dialect.name), rows)


def count_sharers(
    connection: Connection, cluster_id: str, broker_id: int, *, since_ms: int, without: Collection[str]
) -> int:
    """Topics of a broker that asked for admission at or after `since_ms`, those of `without` left out."""
    query = select(func.count()).where(
        topic_meters.c.cluster_id == cluster_id,
        topic_meters.c.broker_id == broker_id,
        topic_meters.c.kind == MeterKind.IO.value,
        topic_meters.c.topic.not_in([ALL_TOPICS_OF_BROKER, *without]),
        topic_meters.c.marked_at_ms >= since_ms,
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
