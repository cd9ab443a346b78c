"""What every implementation of `VerificationStore` does, over each database."""

import dataclasses

import pytest
from sqlalchemy import Engine, func, select

from include.tiering.database.schema import planned_verifications, runs
from include.tiering.errors import StateConflictError
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Depth, RemoteLogSegmentId
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.contract import QualityResult, Verification
from include.tiering.segments.sql_topics import SqlTopicRegistry
from include.tiering.verification.plan import (
    KEPT_PLANS_MS,
    PlannedVerification,
    PlanShare,
    VerificationOutcome,
    VerificationReason,
    VerificationResult,
    VerificationStore,
    VerificationTotal,
)
from include.tiering.verification.sql_verifications import SqlVerificationStore
from tests.doubles.databases import AdjustableNow
from tests.doubles.segments import CLUSTER_ID, fence_of, finish, partition_of, planned, segment_of, uuid

PASSED, FAILED, GONE = VerificationOutcome.PASSED, VerificationOutcome.FAILED, VerificationOutcome.GONE
RUN = "verify-1"


@pytest.fixture
def store(engine: Engine, now: AdjustableNow) -> VerificationStore:
    registry = SqlTopicRegistry(engine, CLUSTER_ID)
    for topic in map(partition_of, ("orders", "audit")):
        registry.set_owner(topic.topic_id, topic.topic, TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="test")
    return SqlVerificationStore(engine, CLUSTER_ID, now_ms=now)


def verification(topic: str, number: int, *, partition: int = 0) -> PlannedVerification:
    segment_id = RemoteLogSegmentId(partition_of(topic, partition), uuid(2_000_000 + number))
    depth = Depth.DEEP if number % 2 else Depth.SHALLOW
    return PlannedVerification(segment_id, 100 * number, depth, VerificationReason.SHARE, 1_000 + number)


PLAN = [verification("orders", 3), verification("orders", 1), verification("audit", 2), verification("orders", 0)]
IN_ORDER = [PLAN[2], PLAN[3], PLAN[1], PLAN[0]]


def result(planned: PlannedVerification, outcome: VerificationOutcome, read_bytes: int = 7) -> VerificationResult:
    return VerificationResult(planned.segment_id, outcome, read_bytes)


def test_a_plan_keeps_every_value_and_comes_back_in_order(store):
    store.save_plan(RUN, PLAN)
    assert list(store.pending(RUN, at_most=10)) == IN_ORDER
    assert list(store.pending(RUN, at_most=2)) == IN_ORDER[:2]
    assert list(store.pending("another", at_most=10)) == []


def test_saving_the_same_plan_again_is_harmless_and_another_is_refused(store):
    store.save_plan(RUN, PLAN)
    store.record(RUN, [result(PLAN[0], PASSED)])
    store.save_plan(RUN, PLAN)
    assert len(store.pending(RUN, at_most=10)) == len(PLAN) - 1
    with pytest.raises(StateConflictError, match="another plan"):
        store.save_plan(RUN, PLAN[1:])
    with pytest.raises(StateConflictError, match="another plan"):
        store.save_plan(RUN, [dataclasses.replace(PLAN[0], depth=Depth.SHALLOW), *PLAN[1:]])


def test_the_id_of_a_run_that_copies_is_taken(store, engine):
    SqlWorkStore(engine, CLUSTER_ID).save_plan("copy-1", [planned(partition_of("orders"))])
    with pytest.raises(StateConflictError):
        store.save_plan("copy-1", PLAN)


def test_an_empty_plan_is_one(store):
    store.save_plan(RUN, [])
    assert [total.segments for total in store.totals(RUN)] == [0] * len(VerificationOutcome)


def test_what_has_an_outcome_is_not_pending(store):
    store.save_plan(RUN, PLAN)
    store.record(RUN, [result(IN_ORDER[0], PASSED), result(IN_ORDER[2], FAILED)])
    assert list(store.pending(RUN, at_most=10)) == [IN_ORDER[1], IN_ORDER[3]]
    assert list(store.planned(RUN, FAILED)) == [IN_ORDER[2]]
    assert list(store.planned(RUN, GONE)) == []


@pytest.mark.parametrize("of", [1, 2, 3, 4, 5])
def test_parts_of_a_plan_are_all_of_it_and_stay_the_same(store, of):
    store.save_plan(RUN, PLAN)
    store.save_plan("verify-2", PLAN[:1])

    def parts():
        return [list(store.pending(RUN, at_most=10, share=PlanShare(number, of))) for number in range(of)]

    before = parts()
    assert [each for part in before for each in part] == IN_ORDER
    assert {len(part) for part in before} <= {len(PLAN) // of, -(-len(PLAN) // of)}
    store.record(RUN, [result(IN_ORDER[0], PASSED), result(IN_ORDER[2], VerificationOutcome.MISSING)])
    assert parts() == [[each for each in part if each in (IN_ORDER[1], IN_ORDER[3])] for part in before]
    assert list(store.pending(RUN, at_most=1, share=PlanShare(0, 1))) == [IN_ORDER[1]]
    assert list(store.planned(RUN, VerificationOutcome.MISSING)) == [IN_ORDER[2]]


def test_totals_by_outcome(store):
    store.save_plan(RUN, PLAN)
    store.save_plan("verify-2", PLAN[:1])
    store.record(RUN, [result(IN_ORDER[0], PASSED, 10), result(IN_ORDER[1], PASSED, 20), result(IN_ORDER[2], GONE, 0)])
    assert list(store.totals(RUN)) == [
        VerificationTotal(VerificationOutcome.PLANNED, 1, 1_003, 0),
        VerificationTotal(PASSED, 2, 2_002, 30),
        VerificationTotal(FAILED, 0, 0, 0),
        VerificationTotal(GONE, 1, 1_001, 0),
        VerificationTotal(VerificationOutcome.MISSING, 0, 0, 0),
        VerificationTotal(VerificationOutcome.LOCKED, 0, 0, 0),
    ]


def test_a_later_outcome_replaces_an_earlier_one(store):
    store.save_plan(RUN, PLAN)
    for outcome in (FAILED, FAILED, PASSED):
        store.record(RUN, [result(PLAN[0], outcome, 5)])
    assert list(store.planned(RUN, FAILED)) == []
    assert store.totals(RUN)[1] == VerificationTotal(PASSED, 1, 1_003, 5)


@pytest.mark.parametrize("noted", [VerificationOutcome.MISSING, VerificationOutcome.LOCKED])
@pytest.mark.parametrize("decided", [PASSED, FAILED, GONE])
def test_a_noted_segment_that_was_decided_stays_decided(store, decided, noted):
    """A late batch, which another driver has replaced, notes what it found missing after the decision about it."""
    store.save_plan(RUN, PLAN)
    late = [result(each, noted, 9) for each in PLAN[:2]]
    store.record(RUN, [result(PLAN[0], decided, 5)])
    store.record(RUN, late)
    store.record(RUN, late)
    assert list(store.planned(RUN, decided)) == [PLAN[0]]
    assert list(store.planned(RUN, noted)) == [PLAN[1]]
    assert next(total.read_bytes for total in store.totals(RUN) if total.outcome is decided) == 5
    stranger = verification("orders", 99)
    with pytest.raises(StateConflictError, match=str(stranger.segment_id.id)):
        store.record(RUN, [result(stranger, noted)])


def test_all_outcomes_of_a_call_are_recorded_or_none(store):
    store.save_plan(RUN, PLAN)
    stranger = verification("orders", 99)
    with pytest.raises(StateConflictError, match=str(stranger.segment_id.id)):
        store.record(RUN, [result(PLAN[0], PASSED), result(stranger, PASSED)])
    assert len(store.pending(RUN, at_most=10)) == len(PLAN)


def test_rules_that_verified_segments_break_come_in_order(store, metadata, engine):
    orders = partition_of("orders")
    fence = fence_of(engine, orders)
    copied = [
        finish(metadata, segment_of(orders, 1_000_000 + number, 100 * number, 100 * number + 99), fence)
        for number in (0, 1, 3)
    ]
    for segment_id in (segment.remote_log_segment_id for segment in copied):
        for broken in ([("Q3", "critical")], [("Q2", "critical"), ("Q1", "warning")]):
            results = tuple(QualityResult(segment_id, rule, level, False, "why") for rule, level in broken)
            metadata.record_verification(Verification(segment_id, results, before=metadata.segment(segment_id)))
    store.save_plan(RUN, PLAN)
    store.record(RUN, [result(PLAN[1], PASSED), result(PLAN[0], FAILED)])
    found = [(start, r.segment_id, r.rule, r.level, r.message) for start, r in store.broken_rules(RUN)]
    assert found == [
        (start, planned.segment_id, rule, level, "why")
        for start, planned in ((100, PLAN[1]), (300, PLAN[0]))
        for rule, level in (("Q1", "warning"), ("Q2", "critical"))
    ]
    store.record(RUN, [result(PLAN[0], GONE)])
    assert {start for start, _ in store.broken_rules(RUN)} == {100}
    assert list(store.broken_rules("another")) == []


def test_plans_are_forgotten_after_a_month_and_other_runs_stay(store, engine, now):
    SqlWorkStore(engine, CLUSTER_ID, now_ms=now).save_plan("copy-1", [planned(partition_of("orders"))])
    store.save_plan(RUN, PLAN)
    now.advance(KEPT_PLANS_MS)
    store.save_plan("verify-2", PLAN)
    assert store.totals(RUN)[0].segments == len(PLAN)
    now.advance(1)
    store.save_plan("verify-3", PLAN)
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(planned_verifications)).scalar_one() == 2 * len(PLAN)
        kept = set(connection.execute(select(runs.c.run_id)).scalars())
    assert {"copy-1", "verify-2", "verify-3"} <= kept
    assert RUN not in kept
