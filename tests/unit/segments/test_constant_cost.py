"""Answers that must not cost more with more segments: counted in statements and by the plan, not in seconds."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.segments.sql import SqlRemoteLogMetadata
from tests.doubles.segments import CLUSTER_ID, fence_of, finish, partition_of, segment_of

PARTITION = partition_of("orders", 0)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = open_engine("sqlite://")
    upgrade(engine)
    metadata, fence = SqlRemoteLogMetadata(engine, CLUSTER_ID), fence_of(engine, PARTITION)
    for number in range(50):
        finish(metadata, segment_of(PARTITION, number, 100 * number, 100 * number + 99), fence)
    yield engine
    engine.dispose()


def _plans(engine: Engine, question: Callable[[SqlRemoteLogMetadata], object]) -> list[list[str]]:
    """For each SELECT of the question, the steps of SQLite's plan."""
    asked: list[tuple[str, Any]] = []

    def record_statement(_connection, _cursor, statement: str, parameters: Any, _context, _many) -> None:
        asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", record_statement)
    question(SqlRemoteLogMetadata(engine, CLUSTER_ID))
    event.remove(engine, "before_cursor_execute", record_statement)
    plans = []
    with engine.connect() as connection:
        for statement, parameters in asked:
            if statement.startswith("SELECT"):
                steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
                plans.append([row.detail for row in steps])
    return plans


@pytest.mark.parametrize(
    "question",
    [
        lambda metadata: metadata.remote_log_size(PARTITION, 0),
        lambda metadata: metadata.highest_offset_for_epoch(PARTITION, 0),
        lambda metadata: metadata.highest_copied_offset(PARTITION),
    ],
)
def test_one_row_by_its_whole_key(engine: Engine, question: Callable[[SqlRemoteLogMetadata], object]):
    ((step,),) = _plans(engine, question)
    assert step.startswith("SEARCH size_counters USING")
    assert step.endswith("(cluster_id=? AND topic_id=? AND partition=? AND leader_epoch=? AND state=?)")


def test_the_counter_row_is_one(engine: Engine):
    with engine.connect() as connection:
        counted = connection.execute(
            text("SELECT leader_epoch, segments FROM size_counters WHERE state = 1 ORDER BY leader_epoch")
        ).all()
    assert counted == [(-1, 50), (0, 50)]


def test_a_lookup_searches_by_index(engine: Engine):
    (steps,) = _plans(engine, lambda metadata: metadata.segment_for_offset(PARTITION, 0, 2_550))
    assert not [step for step in steps if step.startswith("SCAN")]
    assert any("ix_segment_epochs_offset" in step for step in steps)


def test_a_list_searches_by_index(engine: Engine):
    (steps,) = _plans(engine, lambda metadata: metadata.list_segments(PARTITION))
    assert not [step for step in steps if step.startswith("SCAN")]


def test_the_list_of_partitions_looks_at_no_segment(engine: Engine):
    (steps,) = _plans(engine, lambda metadata: metadata.partitions())
    assert any("size_counters" in step for step in steps)
    assert not [step for step in steps if " segments" in step]


def test_tombstones_are_found_by_their_index(engine: Engine):
    steps = _plans(engine, lambda metadata: metadata.forget_tombstones(1, at_most=10))[0]
    assert any("ix_segments_tombstones" in step for step in steps)
    assert not [step for step in steps if step.startswith("SCAN")]
