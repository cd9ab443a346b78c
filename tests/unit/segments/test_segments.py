"""Rows of segments: cost of statements, metrics, and how values are stored."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, event, text

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.segments.failed_copies import FAILED_SEGMENTS, LOST_OFFSETS, FailedCopy, publish_failed_copies
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_rows import decode_leader_epochs, encode_leader_epochs
from tests.doubles.partial import Partial
from tests.doubles.segments import CLUSTER_ID, FINISHED, fence_of, finish, partition_of, segment_of

# Answers that must not cost more with more segments: counted in statements and by the plan, not in seconds.

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


# What failed and what is lost, by topic; what is over is shown as 0.


class Shown(Partial):
    """Stands for the recorder."""

    def __init__(self) -> None:
        self.values: dict[str, dict[tuple[str, ...], float]] = {}

    def show(self, metric, values) -> None:
        self.values[metric.name] = values


def copy(topic: str, number: int, **rest) -> FailedCopy:
    segment = segment_of(partition_of(topic), number, 100 * number, 100 * number + 99, state=FINISHED)
    return FailedCopy(segment, "Q102", **rest)


def test_failed_lost_and_decided_are_counted_apart():
    shown = Shown()
    copies = [
        copy("orders", 0),
        copy("orders", 1, lost_because="gone"),
        copy("orders", 2, lost_because="gone", given_up=True),
        copy("payments", 3, given_up=True),
        copy("orders", 4, was_left=True),
    ]
    publish_failed_copies(shown, copies, {"orders", "quiet"})
    assert shown.values == {
        FAILED_SEGMENTS.name: {("orders",): 2, ("quiet",): 0},
        LOST_OFFSETS.name: {
            ("orders", "no"): 100,
            ("orders", "yes"): 100,
            ("payments", "yes"): 100,
            ("quiet", "no"): 0,
            ("quiet", "yes"): 0,
        },
    }


# Leader epochs as text.


def test_golden_text():
    assert encode_leader_epochs(LeaderEpochs.of([(0, 0), (3, 2**63 - 1)])) == "0:0,3:9223372036854775807"
    assert encode_leader_epochs(LeaderEpochs()) == ""


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), unique_by=lambda entry: entry[0]))
def test_round_trip(entries: list[tuple[int, int]]):
    starts = sorted(start for _, start in entries)
    history = LeaderEpochs.of(zip(sorted(epoch for epoch, _ in entries), starts, strict=True))
    assert decode_leader_epochs(encode_leader_epochs(history)) == history


@pytest.mark.parametrize("text", ["0", "0:", "a:b", "0:0,", "0:0:0", "1:0,0:5", ";"])
def test_other_text_is_refused(text: str):
    with pytest.raises(ValueError):
        decode_leader_epochs(text)
