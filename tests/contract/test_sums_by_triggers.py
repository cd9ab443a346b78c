"""The triggers of the database keep the size of a partition's FINISHED segments, whoever changes the rows."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, Engine, bindparam, delete, event, func, insert, select, text, update

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import migration_config, upgrade
from include.tiering.database.schema import PARTITION_TOTAL, partitions, segments, size_counters, topics
from include.tiering.model.ownership import Fence
from include.tiering.model.segments import TopicIdPartition
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.sql_rows import values_of
from tests.doubles.databases import POSTGRESQL, SQLITE_FILE, new_name
from tests.doubles.segments import CLUSTER_ID, FINISHED, STARTED, finish, partition_of, segment_of
from tests.doubles.segments import delete as delete_segment

SIZE = 1_000
OTHER = partition_of("orders", 4)
AT_BIRTH = {"verdict": "none", "verdict_detail": "", "fencing_token": 1, "started_at_ms": 1}


def kept(engine: Engine) -> dict[int, int]:
    """The sums of the triggers, by number of the partition."""
    with engine.connect() as connection:
        return dict(connection.execute(select(partitions.c.partition, partitions.c.finished_bytes)).tuples().all())


def added_up(engine: Engine) -> dict[int, int]:
    """The same by the rows; partitions without FINISHED segments have 0."""
    is_finished = segments.c.state == int(FINISHED)
    sums = select(segments.c.partition, func.sum(segments.c.size_bytes)).where(is_finished)
    with engine.connect() as connection:
        of_rows = dict(connection.execute(sums.group_by(segments.c.partition)).tuples().all())
    return dict.fromkeys(kept(engine), 0) | of_rows


@pytest.fixture
def archived(metadata: RemoteLogMetadata, partition: TopicIdPartition, fence: Fence) -> RemoteLogMetadata:
    """Five segments: three FINISHED, one begun, one a tombstone."""
    for number in range(5):
        segment = segment_of(partition, number, number * 100, number * 100 + 99, size_bytes=SIZE + number)
        metadata.add_segment(segment, fence=fence)
        if number < 4:
            finish(metadata, segment, fence)
        if number == 0:
            delete_segment(metadata, segment, fence)
    return metadata


def insert_another(connection: Connection) -> None:
    segment = segment_of(partition_of("orders", 3), 9, 900, 999, size_bytes=77, state=FINISHED)
    connection.execute(insert(segments).values(**values_of(CLUSTER_ID, segment), **AT_BIRTH))


def move_to_another_partition(connection: Connection) -> None:
    connection.execute(insert(partitions).from_select(list(_PLACE), select(*_PLACE.values())))
    connection.execute(update(segments).where(segments.c.start_offset == 100).values(partition=OTHER.partition))


_PLACE = {
    "cluster_id": partitions.c.cluster_id,
    "topic_id": partitions.c.topic_id,
    "partition": bindparam("number", OTHER.partition),
    "log_start_offset": partitions.c.log_start_offset,
    "leader_epochs": partitions.c.leader_epochs,
}
BY_HAND: dict[str, Callable[[Connection], Any]] = {
    "insert": insert_another,
    "state": lambda connection: connection.execute(update(segments).values(state=int(FINISHED))),
    "no longer finished": lambda connection: connection.execute(update(segments).values(state=int(STARTED))),
    "size": lambda connection: connection.execute(update(segments).values(size_bytes=segments.c.size_bytes * 3)),
    "delete": lambda connection: connection.execute(delete(segments).where(segments.c.start_offset >= 200)),
    "delete all": lambda connection: connection.execute(delete(segments)),
    "partition": move_to_another_partition,
}


@pytest.mark.usefixtures("archived")
def test_the_platform_s_own_changes_are_counted(engine: Engine) -> None:
    assert kept(engine) == added_up(engine) == {3: 3 * SIZE + 1 + 2 + 3}


@pytest.mark.usefixtures("archived")
@pytest.mark.parametrize("change", BY_HAND.values(), ids=BY_HAND)
def test_changes_by_hand_are_counted(engine: Engine, change: Callable[[Connection], Any]) -> None:
    before = kept(engine)
    with engine.begin() as connection:
        change(connection)
    assert kept(engine) == added_up(engine) != before


@pytest.mark.usefixtures("archived")
def test_what_is_rolled_back_is_not_counted(engine: Engine) -> None:
    before = kept(engine)
    with engine.connect() as connection:
        connection.execute(delete(segments))
        connection.rollback()
    assert kept(engine) == added_up(engine) == before


@pytest.mark.usefixtures("archived")
def test_who_writes_on_postgresql_may_truncate_and_need_not_have_the_search_path(
    engine: Engine, database_kind: str
) -> None:
    if database_kind != POSTGRESQL:
        pytest.skip("SQLite has neither")
    with engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL search_path = pg_catalog")
        connection.exec_driver_sql("DELETE FROM public.segments WHERE start_offset = 100")
    assert kept(engine) == added_up(engine) == {3: 2 * SIZE + 2 + 3}
    with engine.begin() as connection:
        connection.exec_driver_sql("TRUNCATE segments CASCADE")
    assert kept(engine) == added_up(engine) == {3: 0}


@pytest.fixture
def sums_of_rows(engine: Engine) -> Iterator[list[str]]:
    """The statements that add up rows."""
    executed: list[str] = []

    def record(_connection, _cursor, statement: str, *_: Any) -> None:
        if "sum(segments.size_bytes)" in statement:
            executed.append(statement)

    event.listen(engine, "before_cursor_execute", record)
    yield executed
    event.remove(engine, "before_cursor_execute", record)


def test_counters_that_are_right_are_believed_without_a_look_at_the_rows(
    archived: RemoteLogMetadata, partition: TopicIdPartition, sums_of_rows: list[str]
) -> None:
    assert archived.selected.counters_agree(partition)
    assert archived.selected.counters_agree(OTHER)  # it has no row
    assert len(sums_of_rows) == 1


TOTAL = (size_counters.c.leader_epoch == PARTITION_TOTAL) & (size_counters.c.state == int(FINISHED))


@pytest.mark.parametrize(
    "change",
    [
        update(size_counters).where(TOTAL).values(size_bytes=size_counters.c.size_bytes + 1),
        delete(segments).where(segments.c.start_offset == 300),
        update(segments).where(segments.c.start_offset == 300).values(size_bytes=1),
    ],
    ids=["counter", "row deleted", "row changed"],
)
def test_counters_that_are_wrong_are_found_to_be(
    archived: RemoteLogMetadata,
    engine: Engine,
    partition: TopicIdPartition,
    change: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with engine.begin() as connection:
        connection.execute(change)
    with caplog.at_level(logging.WARNING):
        assert not archived.selected.counters_agree(partition)
    assert str(partition) in caplog.text


def test_rows_decide_if_the_sum_of_the_triggers_is_wrong(
    archived: RemoteLogMetadata, engine: Engine, partition: TopicIdPartition, sums_of_rows: list[str]
) -> None:
    with engine.begin() as connection:
        connection.execute(update(partitions).values(finished_bytes=5))
    assert archived.selected.counters_agree(partition)
    assert sums_of_rows


def test_a_database_from_before_the_triggers_gets_its_sums(
    database_kind: str, request: pytest.FixtureRequest, tmp_path
) -> None:
    url = "sqlite://"
    if database_kind == SQLITE_FILE:
        url = f"sqlite:///{tmp_path / 'before.db'}"
    if database_kind == POSTGRESQL:
        url = request.getfixturevalue("create_postgresql_database")(new_name())
    old = open_engine(url)
    with old.begin() as connection:
        config = migration_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "r0103")
        key = {"cluster_id": CLUSTER_ID, "topic_id": str(OTHER.topic_id)}
        connection.execute(insert(topics).values(**key, name="orders", owner="platform"))
        for number in (3, OTHER.partition, 5):
            connection.execute(insert(partitions).values(**key, partition=number, log_start_offset=0, leader_epochs=""))
        for number in range(6):
            state = FINISHED if number < 4 else STARTED
            partition = partition_of("orders", 3 + number % 2)
            segment = segment_of(partition, number, number, number, size_bytes=SIZE + number, state=state)
            connection.execute(insert(segments).values(**values_of(CLUSTER_ID, segment), **AT_BIRTH))
    upgrade(old)
    assert kept(old) == added_up(old) == {3: 2 * SIZE + 2, 4: 2 * SIZE + 4, 5: 0}
    with old.begin() as connection:
        connection.execute(text("DELETE FROM segments WHERE partition = 3"))
    assert kept(old) == added_up(old)
    old.dispose()
