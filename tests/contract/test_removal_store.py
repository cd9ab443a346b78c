"""What every implementation of `RemovalStore` does, over each database."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine, select

from include.tiering.audit.finding import FindingKind
from include.tiering.audit.plan_removals import (
    PlannedRemoval,
    RemovalItem,
    RemovalOutcome,
    RemovalStore,
    RemovalTotals,
    removal_hash,
)
from include.tiering.audit.sql_removals import SqlRemovalStore
from include.tiering.database.schema import events
from include.tiering.errors import IllegalTransitionError, LeaseLostError, StateConflictError
from include.tiering.model.ownership import LeaseRole, PartitionLease
from include.tiering.runs.store import SqlWorkStore
from tests.doubles.databases import AdjustableNow
from tests.doubles.present import present
from tests.doubles.segments import CLUSTER_ID, delete, expire_lease_of, fence_of, finish, partition_of, segment_of

LEASE_MS = 10_000
A, B = partition_of("a"), partition_of("b")


@pytest.fixture
def store(engine: Engine, now: AdjustableNow) -> RemovalStore:
    return SqlRemovalStore(engine, CLUSTER_ID, now_ms=now)


def removal(partition=A, number: int = 1, suffix: str = "log", **changes) -> PlannedRemoval:
    segment_id = segment_of(partition, number, 0, 9).remote_log_segment_id
    key = f"{partition.topic}/{number}.{suffix}"
    return replace(PlannedRemoval(segment_id, FindingKind.ORPHAN, key, None, 100, 5), **changes)


def released(store: RemovalStore, *removals: PlannedRemoval, run_id: str = "run") -> None:
    run = store.save_plan(run_id, removals)
    store.record_limit_check(run_id, needs_approval=True, detail="always", author="limits")
    store.approve(run_id, run.plan_hash, author="me")


def claim(store: RemovalStore, batch_id: str = "batch", run_id: str = "run", **options) -> PartitionLease | None:
    return store.claim(run_id, batch_id, lease_ms=LEASE_MS, **options)


class TestPlan:
    def test_comes_back_in_its_order(self, store):
        removals = [removal(B), removal(A, suffix="indexes"), removal(A, token="v", kind=FindingKind.OLD_VERSION)]
        run = store.save_plan("run", removals)
        assert [(item.planned, item.outcome) for item in store.items("run")] == [
            (one, RemovalOutcome.PLANNED) for one in removals
        ]
        assert (run.plan_hash, run.needs_approval, run.is_released) == (removal_hash(removals), None, False)
        assert store.save_plan("run", removals) == run
        assert len(store.items("run")) == 3

    def test_one_plan_for_a_run(self, store):
        store.save_plan("run", [removal()])
        with pytest.raises(StateConflictError, match="another plan"):
            store.save_plan("run", [removal(number=2)])

    def test_an_empty_one(self, store):
        store.save_plan("run", [])
        assert (store.items("run"), store.has_work("run")) == ([], False)

    def test_an_unknown_run(self, store):
        with pytest.raises(StateConflictError, match="no run"):
            store.run("run")

    def test_a_run_to_expire_is_another_kind(self, store, engine):
        expire_lease_of(engine, A, "run")
        with pytest.raises(StateConflictError):
            store.run("run")

    @pytest.mark.parametrize(
        "changed",
        [{"key": "other"}, {"token": "t"}, {"size_bytes": 1}, {"last_modified_ms": 1}],
        ids=lambda one: next(iter(one)),
    )
    def test_the_hash_covers_what_goes(self, changed):
        assert removal_hash([removal(), removal(B)]) == removal_hash([removal(B), removal()])
        assert removal_hash([removal(**changed)]) != removal_hash([removal()])


class TestRelease:
    def test_no_answer_is_recorded_of_a_run_that_is_not_known(self, store):
        """The database may have been restored since the run was planned: then its plan is empty."""
        with pytest.raises(StateConflictError, match="no run run"):
            store.record_limit_check("run", needs_approval=False, detail="nothing to remove", author="limits")

    def test_nothing_is_claimed_before(self, store):
        run = store.save_plan("run", [removal()])
        assert claim(store) is None
        store.record_limit_check("run", needs_approval=True, detail="always", author="limits")
        assert claim(store) is None
        with pytest.raises(StateConflictError, match="approved was x"):
            store.approve("run", "x", author="me")
        assert store.approve("run", run.plan_hash, author="me").approval.author == "me"
        assert claim(store) is not None

    @pytest.mark.parametrize("needs_approval", [True, False])
    def test_what_the_limits_say_is_kept_with_the_run_and_in_the_history(self, store, engine, needs_approval):
        store.save_plan("run", [removal()])
        store.record_limit_check("run", needs_approval=needs_approval, detail="too much at once", author="limits")
        assert store.run("run").needs_approval is needs_approval
        with engine.connect() as connection:
            said = connection.execute(select(events.c.kind, events.c.subject, events.c.detail, events.c.author)).all()
        assert [tuple(row) for row in said] == [("brake", "run run", "too much at once", "limits")]

    def test_the_first_approval_stays(self, store):
        released(store, removal())
        assert store.approve("run", store.run("run").plan_hash, author="you").approval.author == "me"


class TestClaim:
    def test_partition_by_partition(self, store, engine, now):
        released(store, removal(B), removal(A), removal(A, 2))
        work = SqlWorkStore(engine, CLUSTER_ID, now_ms=now)
        first = present(claim(store))
        assert (first.fence.topic_id_partition, first.fence.role) == (A, LeaseRole.EXPIRE)
        assert store.remaining(first) == [removal(A), removal(A, 2)]
        second = claim(store, "other")
        assert second.fence.topic_id_partition == B
        assert claim(store, "third") is None
        work.release(first)
        assert claim(store, "third").fence.topic_id_partition == A
        assert claim(store, exclude=[A, B]) is None

    def test_beside_a_copy_and_not_beside_an_expiration(self, store, engine, now):
        fence_of(engine, A)
        expire_lease_of(engine, B, now_ms=now)
        released(store, removal(A), removal(B))
        assert claim(store).fence.topic_id_partition == A
        assert claim(store, "other") is None

    def test_not_while_paused(self, store, engine, now):
        released(store, removal(A), removal(B))
        work = SqlWorkStore(engine, CLUSTER_ID, now_ms=now)
        work.pause("a", author="me")
        assert claim(store).fence.topic_id_partition == B
        work.pause(None, author="me")
        assert claim(store, "other") is None

    def test_what_has_an_outcome_is_not_left(self, store):
        released(store, removal(), removal(suffix="indexes"))
        lease = claim(store)
        gone = RemovalItem(removal(), RemovalOutcome.GONE, "gone")
        store.record_outcomes(lease, [gone])
        store.record_outcomes(lease, [RemovalItem(removal(), RemovalOutcome.REMOVED)])
        assert store.remaining(lease) == [removal(suffix="indexes")]
        assert store.items("run")[0] == gone
        assert store.has_work("run")
        store.record_outcomes(lease, [RemovalItem(removal(suffix="indexes"), RemovalOutcome.REMOVED)])
        assert not store.has_work("run")
        assert claim(store) is None
        store.record_outcomes(lease, [])

    def test_outcomes_need_the_lease(self, store, now):
        released(store, removal())
        old = claim(store)
        now.advance(LEASE_MS)
        assert claim(store, "other") is not None
        with pytest.raises(LeaseLostError):
            store.record_outcomes(old, [RemovalItem(removal(), RemovalOutcome.REMOVED)])


class TestMarkForDeletion:
    def segment(self, number: int, partition=A):
        return segment_of(partition, number, 10 * number, 10 * number + 9)

    def ids(self, *numbers: int):
        return [self.segment(number).remote_log_segment_id for number in numbers]

    def marked(self, store, *numbers: int) -> set[int]:
        released(store, *(removal(number=number) for number in numbers))
        found = store.mark_for_deletion(claim(store), self.ids(*numbers))
        return {number for number in numbers if self.segment(number).remote_log_segment_id.id in found}

    def test_an_id_that_nobody_knows(self, store, engine, metadata):
        assert self.marked(store, 1, 2) == {1, 2}
        with pytest.raises(IllegalTransitionError, match="run removes"):
            metadata.add_segment(self.segment(1), fence=fence_of(engine, A))
        assert metadata.segment(self.segment(1).remote_log_segment_id) is None

    def test_not_what_metadata_knows(self, store, engine, metadata):
        fence = fence_of(engine, A)
        metadata.add_segment(self.segment(1), fence=fence)
        finish(metadata, self.segment(2), fence)
        delete(metadata, finish(metadata, self.segment(3), fence), fence)
        assert self.marked(store, 1, 2, 3, 4) == {3, 4}
        metadata.add_segment(self.segment(5), fence=fence)

    def test_of_one_partition_alone(self, store, engine, metadata):
        self.marked(store, 1)
        metadata.add_segment(self.segment(1, B), fence=fence_of(engine, B))

    def test_planned_is_not_marked_for_deletion(self, store, engine, metadata):
        released(store, removal(number=1))
        metadata.add_segment(self.segment(1), fence=fence_of(engine, A))
        assert store.mark_for_deletion(claim(store), self.ids(1)) == frozenset()

    def test_again_is_harmless(self, store):
        released(store, removal(number=1))
        lease = claim(store)
        assert store.mark_for_deletion(lease, self.ids(1)) == store.mark_for_deletion(lease, self.ids(1)) != frozenset()

    def test_more_than_a_statement_takes(self, store, monkeypatch):
        monkeypatch.setattr("include.tiering.audit.sql_removals._IDS_PER_STATEMENT", 2)
        assert self.marked(store, 1, 2, 3, 4, 5) == {1, 2, 3, 4, 5}

    def test_needs_the_lease(self, store, now):
        released(store, removal(number=1))
        old = claim(store)
        now.advance(LEASE_MS)
        claim(store, "other")
        with pytest.raises(LeaseLostError):
            store.mark_for_deletion(old, self.ids(1))


class TestForget:
    def test_settled_ones_and_their_ids(self, store, engine, metadata, now):
        released(store, removal(number=1), removal(number=2))
        lease = claim(store)
        store.mark_for_deletion(lease, [removal(number=number).segment_id for number in (1, 2)])
        store.record_outcomes(lease, [RemovalItem(removal(number=1), RemovalOutcome.REMOVED)])
        now.advance(1_000)
        assert store.forget(2_000) == 0
        assert store.forget(500) == 1
        assert [item.planned for item in store.items("run")] == [removal(number=2)]
        fence = fence_of(engine, A)
        metadata.add_segment(segment_of(A, 1, 0, 9), fence=fence)
        with pytest.raises(IllegalTransitionError):
            metadata.add_segment(segment_of(A, 2, 10, 19), fence=fence)


class TestTotals:
    def test_of_each_topic(self, store, engine, metadata, now):
        fence = fence_of(engine, A)
        finish(metadata, segment_of(A, 1, 0, 9, size_bytes=700), fence)
        delete(metadata, finish(metadata, segment_of(A, 2, 10, 19, size_bytes=30), fence), fence)
        released(store, removal(A, 9), run_id="earlier")
        lease = claim(store, run_id="earlier")
        store.record_outcomes(lease, [RemovalItem(removal(A, 9), RemovalOutcome.REMOVED)])
        store.save_plan("run", [removal(B, 5), removal(A, 1), removal(A, 3)])
        expected = [
            RemovalTotals(A.topic_id, "a", 2, 200, 1, 130, 700),
            RemovalTotals(B.topic_id, "b", 1, 100, 0, 0, 0),
        ]
        assert store.totals("run", window_ms=1_000) == expected
        now.advance(2_000)
        assert [one.recent_bytes for one in store.totals("run", window_ms=1_000)] == [0, 0]
