"""Databases with many segments, made by the database itself: no row passes through Python.

Segment i belongs to partition i modulo the number of partitions and holds the next 1,000 offsets there. Each partition
has five leader epochs; the segment in which one ends and the next begins lists both. Two in a hundred are in each of
the states beside FINISHED.
"""

from enum import StrEnum
from typing import Any, Final

from sqlalchemy import Column, Connection, Engine, MetaData, Table, text
from sqlalchemy.schema import CreateTable, DropTable

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.database.schema import segments as segments_table
from include.tiering.database.store_identity import StoreIdentities
from include.tiering.model.segments import TopicIdPartition, Uuid

CLUSTER_ID: Final = "Yl6WqUHwTuy6EGbNGUOwhg"
PARTITIONS_PER_TOPIC: Final = 10
EPOCHS: Final = 5


class Shape(StrEnum):
    """How segments lie: partitions of equal length, the same with overlaps, or nine tenths in one partition."""

    EVEN = "even"
    OVERLAPPING = "overlapping"
    SKEWED = "skewed"


def topic_id(number: int) -> Uuid:
    return Uuid.parse(f"{number + 1:021d}A")


def partition_number(number: int) -> TopicIdPartition:
    """Of all partitions of a scene."""
    topic = number // PARTITIONS_PER_TOPIC
    return TopicIdPartition(topic_id(topic), number % PARTITIONS_PER_TOPIC, f"topic-{topic}")


def build(
    url: str,
    segments: int,
    partitions: int,
    *,
    for_scans: bool = False,
    shape: Shape = Shape.EVEN,
    all_finished: bool = False,
) -> None:
    """Segments, their epochs and counters.

    `for_scans` (SQLite) leaves out what a scan of all rows does not need. With `all_finished` no segment is in another
    state, all have the same size, and the partitions have their leader epochs, as long as the shape is even.
    """
    engine = open_engine(url)
    upgrade(engine)
    StoreIdentities(engine, CLUSTER_ID).create(Uuid.random(lambda size: bytes(range(size))))
    sqlite = engine.dialect.name == "sqlite"
    with engine.connect() as connection:
        if sqlite:
            driver: Any = connection.connection.driver_connection  # a pragma takes no effect inside a transaction
            driver.execute("PRAGMA foreign_keys = OFF")
            driver.execute("PRAGMA synchronous = OFF")
        else:
            connection.exec_driver_sql("SET statement_timeout = 0")
            connection.exec_driver_sql("SET maintenance_work_mem = '1GB'")
            connection.exec_driver_sql("SET session_replication_role = replica")  # no look at foreign keys, row by row
            connection.commit()
        if for_scans:
            connection.execute(DropTable(segments_table))
            connection.execute(CreateTable(_without_indexes(segments_table)))
            connection.commit()
            later: list[str] = []
        else:
            later = _taken_away(connection)
        for statement in [*_statements(sqlite, segments, partitions, for_scans, shape, all_finished), *later]:
            connection.execute(text(statement))
            connection.commit()
    _settle(engine)
    engine.dispose()


def _without_indexes(table: Table) -> Table:
    """Its columns and its key."""
    columns = (
        Column(c.name, c.type, primary_key=c.primary_key, nullable=c.nullable, server_default=c.server_default)
        for c in table.columns
    )
    return Table(table.name, MetaData(), *columns)


_INDEXES_AND_TRIGGERS: Final = {
    "sqlite": """
        SELECT type, name, sql FROM sqlite_master
        WHERE type IN ('index', 'trigger') AND sql IS NOT NULL AND tbl_name IN ('segments', 'segment_epochs')
        ORDER BY rowid""",
    "postgresql": """
        SELECT 'index', indexname, indexdef FROM pg_indexes
        WHERE indexname LIKE 'ix%%' AND tablename IN ('segments', 'segment_epochs')""",
}
"""On PostgreSQL without the triggers: the role of the session switches them off."""


def _taken_away(connection: Connection) -> list[str]:
    """Drop what would be kept up row by row; return the statements that create it again, in the order of the migrations
    (of two indexes that look as good to it, SQLite takes the newer one)."""
    found = connection.exec_driver_sql(_INDEXES_AND_TRIGGERS[connection.dialect.name]).all()
    for kind, name, _ in found:
        connection.exec_driver_sql(f"DROP {kind} {name}")
    connection.commit()
    return [created for _, _, created in found]


def _settle(engine: Engine) -> None:
    """On PostgreSQL statistics and clean pages: a question should not pay for what building left.

    SQLite gets no statistics, because the platform makes none.
    """
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")


def _statements(
    sqlite: bool, segments: int, partitions: int, for_scans: bool, shape: Shape, all_finished: bool
) -> list[str]:
    topics = -(-partitions // PARTITIONS_PER_TOPIC)
    size_bytes = "500000" if all_finished else "500000 + i % 500000"
    state = "1" if all_finished else "CASE i % 100 WHEN 7 THEN 0 WHEN 8 THEN 2 WHEN 9 THEN 3 ELSE 1 END"
    per_partition = max(1, segments // partitions)
    # Segment j of a partition: its epoch, and whether the next one begins in it.
    in_one = segments * 9 // 10 if shape is Shape.SKEWED else 0
    partition_of = f"CASE WHEN i < {in_one} THEN 0 ELSE i % {partitions} END"
    place = f"CASE WHEN i < {in_one} THEN i ELSE i / {partitions} END"
    held = 1000 if shape is Shape.EVEN else 1200
    epoch = f"(CASE WHEN j >= {per_partition} THEN {EPOCHS - 1} ELSE j * {EPOCHS} / {per_partition} END)"
    spans = f"(((j + 1) * {EPOCHS}) / {per_partition} > {epoch} AND {epoch} < {EPOCHS - 1})"
    generated = f"""
        SELECT i + 1 AS segment_key, {_id("p / 10 + 1", sqlite)} AS topic_id, p % 10 AS partition, i, j,
               {state} AS state,
               {size_bytes} AS size_bytes, j * 1000 AS start_offset, j * 1000 + {held - 1} AS end_offset,
               {epoch} AS epoch, {spans} AS spans
        FROM (SELECT i, {partition_of} AS p, {place} AS j FROM ({_numbers(segments, sqlite)}) AS numbers)
             AS placed"""
    epochs = f"""
        SELECT segment_key, topic_id, partition, state, size_bytes, epoch AS leader_epoch, start_offset,
               CASE WHEN spans THEN start_offset + 499 ELSE end_offset END AS end_offset FROM ({generated}) AS g
        UNION ALL
        SELECT segment_key, topic_id, partition, state, size_bytes, epoch + 1, start_offset + 500, end_offset
        FROM ({generated}) AS g WHERE spans"""
    counted = "sum(size_bytes), count(*), max(end_offset)"
    into_counters = (
        "INSERT INTO size_counters (cluster_id, topic_id, partition, leader_epoch, state, size_bytes, segments,"
        " highest_offset)"
    )
    statements = [
        f"""INSERT INTO topics (cluster_id, topic_id, name, owner)
            SELECT '{CLUSTER_ID}', {_id("i + 1", sqlite)}, 'topic-' || i, 'platform'
            FROM ({_numbers(topics, sqlite)}) AS numbers""",
        f"""INSERT INTO partitions (cluster_id, topic_id, partition, log_start_offset, leader_epochs)
            SELECT '{CLUSTER_ID}', {_id("i / 10 + 1", sqlite)}, i % 10, 0, ''
            FROM ({_numbers(topics * PARTITIONS_PER_TOPIC, sqlite)}) AS numbers""",
        f"""INSERT INTO segments (segment_key, cluster_id, topic_id, partition, segment_id, start_offset, end_offset,
                max_timestamp_ms, broker_id, event_timestamp_ms, size_bytes, leader_epochs, txn_index_empty, state,
                verdict, verdict_detail, verdict_at_ms, fencing_token, started_at_ms, finished_at_ms)
            SELECT segment_key, '{CLUSTER_ID}', topic_id, partition, {_id("i", sqlite)}, start_offset, end_offset,
                1700000000000 + i, 1, 1700000000000 + i, size_bytes,
                epoch || ':' || start_offset
                    || CASE WHEN spans THEN ',' || (epoch + 1) || ':' || (start_offset + 500) ELSE '' END,
                {"1" if sqlite else "true"}, state, 'passed', '', 1700000000000 + i, 1, 1700000000000,
                1700000000000 + i
            FROM ({generated}) AS g""",
        f"""{into_counters} SELECT '{CLUSTER_ID}', topic_id, partition, -1, state, {counted}
            FROM ({generated}) AS g WHERE state <> 3 GROUP BY topic_id, partition, state""",
        f"""{into_counters} SELECT '{CLUSTER_ID}', topic_id, partition, leader_epoch, state, {counted}
            FROM ({epochs}) AS e WHERE state <> 3 GROUP BY topic_id, partition, leader_epoch, state""",
    ]
    is_total = "leader_epoch = -1 AND state = 1"
    of_partition = "c.topic_id = partitions.topic_id AND c.partition = partitions.partition"
    total = f"SELECT sum(size_bytes) FROM size_counters AS c WHERE {is_total} AND {of_partition}"
    statements.append(f"UPDATE partitions SET finished_bytes = coalesce(({total}), 0)")
    if not for_scans:
        statements.append(
            f"""INSERT INTO segment_epochs (segment_key, leader_epoch, cluster_id, topic_id, partition, start_offset,
                    end_offset)
                SELECT segment_key, leader_epoch, '{CLUSTER_ID}', topic_id, partition, start_offset, end_offset
                FROM ({epochs}) AS e"""
        )
    if all_finished:
        pairs = "leader_epoch || ':' || lowest"
        joined = f"group_concat({pairs}, ',')" if sqlite else f"string_agg({pairs}, ',' ORDER BY leader_epoch)"
        lowest = f"""SELECT leader_epoch, min(start_offset) AS lowest FROM segment_epochs
                     WHERE topic_id = {_id("1", sqlite)} AND partition = 0
                     GROUP BY leader_epoch ORDER BY leader_epoch"""
        statements.append(f"UPDATE partitions SET leader_epochs = (SELECT {joined} FROM ({lowest}) AS begins)")
    if not sqlite:
        statements.append(
            "SELECT setval(pg_get_serial_sequence('segments', 'segment_key'), max(segment_key)) FROM segments"
        )
    return statements


def _numbers(count: int, sqlite: bool) -> str:
    if sqlite:
        return f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {count}) SELECT i FROM n"
    return f"SELECT i FROM generate_series(0::bigint, {count - 1}) AS n(i)"


def _id(number: str, sqlite: bool) -> str:
    """22 characters that are a Uuid as Kafka prints it; a colon would be a parameter to SQLAlchemy."""
    return f"printf('%021dA', {number})" if sqlite else f"lpad(CAST({number} AS text), 21, '0') || 'A'"
