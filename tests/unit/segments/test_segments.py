"""Rows of segments and of topics: cost of statements, metrics, values, and owners."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, event, text

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.errors import ClusterMetadataError
from include.tiering.kafka.cluster.contract import TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, ScanReport
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Uuid
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.failed_copies import FAILED_SEGMENTS, LOST_OFFSETS, FailedCopy, publish_failed_copies
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_rows import decode_leader_epochs, encode_leader_epochs
from include.tiering.segments.topics import SeenOwners, owner_seen, register_owners
from tests.doubles.memory_source import MemorySource
from tests.doubles.partial import Partial
from tests.doubles.segments import CLUSTER_ID, FINISHED, fence_of, finish, partition_of, segment_of

# Rows of segments: cost of statements, metrics, and how values are stored.

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
    return _plans_of(engine, lambda: question(SqlRemoteLogMetadata(engine, CLUSTER_ID)))


def _plans_of(engine: Engine, ask: Callable[[], object]) -> list[list[str]]:
    """For each SELECT of the question, the steps of SQLite's plan."""
    asked: list[tuple[str, Any]] = []

    def record_statement(_connection, _cursor, statement: str, parameters: Any, _context, _many) -> None:
        asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", record_statement)
    ask()
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


def test_running_batches_are_found_by_the_time_of_their_report(engine: Engine):
    """A deployment of years has many batches that ended."""
    (steps,) = [
        plan for plan in _plans_of(engine, SqlWorkStore(engine, CLUSTER_ID).running_batches) if "batches" in plan[0]
    ]
    assert "ix_batches_updated (cluster_id=? AND updated_at_ms>? AND updated_at_ms<?)" in steps[0]


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


# The owner of a topic follows from what is asked for and from what the broker does.

NONE, PLATFORM, HANDING_OVER, BROKER = TopicOwner


def replica(*, broker_tiers: bool = False, eligible: bool = True, chosen: bool = True):
    source = MemorySource()
    made = source.replicas[source.add("orders")]
    reason = None if eligible else IneligibleReason.COMPACTED
    segments = tuple(replace(segment, reason=reason) for segment in made.segments)
    return replace(made, owner_is_broker=broker_tiers, segments=segments, chosen=chosen)


@pytest.mark.parametrize(
    ("before", "broker_tiers", "after"),
    [
        (NONE, False, PLATFORM),
        (NONE, True, BROKER),
        (PLATFORM, False, PLATFORM),
        (PLATFORM, True, BROKER),
        (HANDING_OVER, False, HANDING_OVER),
        (HANDING_OVER, True, HANDING_OVER),
        (BROKER, False, BROKER),
        (BROKER, True, BROKER),
    ],
)
def test_owner_seen(before, broker_tiers, after):
    assert owner_seen(replica(broker_tiers=broker_tiers), before) is after


def test_a_topic_that_may_never_be_copied_gets_no_owner():
    assert owner_seen(replica(eligible=False), NONE) is NONE


class Registry(Partial):
    def __init__(self) -> None:
        self.changes: list[tuple[str, TopicOwner, TopicOwner]] = []

    def owner(self, topic_id: Uuid) -> TopicOwner:
        return self.changes[-1][2] if self.changes else NONE

    def set_owner(self, topic_id: Uuid, name: str, owner: TopicOwner, *, expected: TopicOwner, author: str) -> None:
        self.changes.append((name, expected, owner))


def test_only_changes_of_chosen_replicas_are_recorded():
    registry = Registry()
    register_owners(ScanReport("c", (replica(chosen=False), replica(), replica()), ()), registry)
    assert registry.changes == [("orders", NONE, PLATFORM)]


class ClusterMetadataDouble:
    """Topic 1 is tiered by brokers. `answers` False: the metadata log cannot be read."""

    def __init__(self, cluster_id: str = "c", *, answers: bool = True) -> None:
        self._cluster_id = cluster_id
        self._answers = answers

    def refresh(self) -> None:
        if not self._answers:
            raise ClusterMetadataError("no snapshot")

    def cluster_id(self) -> str:
        return self._cluster_id

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        return TopicMetadata("orders", topic_id, {"remote.storage.enable": "true"}, {}) if topic_id == TIERED else None


class Recorded:
    def __init__(self, owner: TopicOwner) -> None:
        self._owner = owner

    def owner(self, _topic_id: Uuid) -> TopicOwner:
        return self._owner


TIERED, OTHER = Uuid(b"1" * 16), Uuid(b"2" * 16)


@pytest.mark.parametrize(
    ("recorded", "topic_id", "cluster_metadata", "seen"),
    [
        (PLATFORM, TIERED, ClusterMetadataDouble(), BROKER),
        (NONE, TIERED, ClusterMetadataDouble(), BROKER),
        (HANDING_OVER, TIERED, ClusterMetadataDouble(), HANDING_OVER),
        (PLATFORM, OTHER, ClusterMetadataDouble(), PLATFORM),
        (PLATFORM, TIERED, ClusterMetadataDouble("another"), PLATFORM),
        (PLATFORM, TIERED, ClusterMetadataDouble(answers=False), PLATFORM),
    ],
)
def test_what_brokers_tier_is_theirs_before_a_plan_has_recorded_it(recorded, topic_id, cluster_metadata, seen):
    assert SeenOwners(Recorded(recorded), cluster_metadata, "c").owner(topic_id) is seen
