"""What every implementation of `DeletionStore` does, over each database."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine, select

from include.tiering.database.schema import approvals, events, planned_deletions, planned_expirations
from include.tiering.errors import LeaseLostError, StateConflictError
from include.tiering.model.retention import DeletionReason
from include.tiering.remote_metadata.contract import LeaseRole
from include.tiering.work.contract import PartitionLease
from include.tiering.work.deletion_contract import (
    DeletionItem,
    DeletionOutcome,
    DeletionStore,
    PlannedExpiration,
    TopicTotals,
    plan_hash,
)
from include.tiering.work.sql import SqlWorkStore
from include.tiering.work.sql_deletions import SqlDeletionStore
from tests.doubles.databases import EVERY, AdjustableNow
from tests.doubles.expirations import expire_lease_of, planned_deletion, planned_expiration
from tests.doubles.segments import (
    CLUSTER_ID,
    DELETE_FINISHED,
    DELETE_STARTED,
    fence_of,
    finish,
    lease_of,
    partition_of,
    segment_of,
)

LEASE_MS = 10_000
WINDOW_MS = 1_000
A, B = partition_of("a"), partition_of("b")
AUTHOR = {"author": "me@host"}


@pytest.fixture(scope="module", params=EVERY)
def database_kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def store(engine: Engine, now: AdjustableNow) -> DeletionStore:
    return SqlDeletionStore(engine, CLUSTER_ID, now_ms=now)


def plan_of(partition=A, count: int = 2, number: int = 0) -> PlannedExpiration:
    segments = [segment_of(partition, number + n, 10 * n, 10 * n + 9) for n in range(count)]
    return planned_expiration(partition, *segments)


def released(store: DeletionStore, *plans: PlannedExpiration, run_id: str = "run") -> None:
    store.save_plan(run_id, plans)
    store.record_brake(run_id, needs_approval=False, detail="", author="brake")


def claim(store: DeletionStore, batch_id: str = "batch", run_id: str = "run", **options) -> PartitionLease | None:
    return store.claim(run_id, batch_id, lease_ms=LEASE_MS, **options)


class TestPlan:
    def test_comes_back_as_it_was(self, store):
        plans = [plan_of(B, 3, 10), plan_of(A)]
        run = store.save_plan("run", plans)
        assert store.plan("run") == sorted(plans, key=lambda one: one.topic_id_partition.topic)
        assert (run.plan_hash, run.needs_approval, run.approval, run.is_released) == (
            plan_hash(plans),
            None,
            None,
            False,
        )
        assert [item.outcome for item in store.items("run")] == [DeletionOutcome.PLANNED] * 5

    def test_saving_the_same_plan_again_is_harmless(self, store):
        released(store, plan_of())
        lease = claim(store)
        store.record_outcomes(lease, [DeletionItem(plan_of().deletions[0], DeletionOutcome.DELETED)])
        store.save_plan("run", [plan_of()])
        assert store.items("run")[0].outcome is DeletionOutcome.DELETED

    @pytest.mark.parametrize("other", [[], [plan_of(A, 1)], [plan_of(B)]])
    def test_another_plan_for_the_same_run_is_refused(self, store, other):
        store.save_plan("run", [plan_of()])
        with pytest.raises(StateConflictError, match="run"):
            store.save_plan("run", other)

    def test_a_run_that_copies_is_no_run_that_deletes(self, store, engine):
        lease_of(engine, A, "run")
        with pytest.raises(StateConflictError):
            store.save_plan("run", [])
        with pytest.raises(StateConflictError, match="no run run"):
            store.run("run")

    def test_the_hash_is_of_what_the_plan_does(self):
        plan, other = plan_of(), plan_of(B, 1, 5)
        same = replace(plan, deletions=tuple(replace(one, detail="age_ms 6") for one in plan.deletions))
        assert plan_hash([plan, other]) == plan_hash([other, same])
        first, *rest = plan.deletions
        changed = [
            replace(plan, deletions=(first,)),
            replace(plan, deletions=(*rest, first)),
            replace(plan, deletions=(replace(first, reason=DeletionReason.SIZE), *rest)),
            replace(plan, deletions=(replace(first, size_bytes=1), *rest)),
            replace(plan, log_start_offset=plan.log_start_offset + 1),
            plan_of(A, 2, 70),
        ]
        assert len({plan_hash([one]) for one in [plan, *changed]}) == len(changed) + 1


class TestRelease:
    def test_nothing_is_claimed_before_the_brake(self, store):
        store.save_plan("run", [plan_of()])
        assert claim(store) is None
        store.record_brake("run", needs_approval=False, detail="within the limits", author="brake")
        assert claim(store).fence.topic_id_partition == A

    def test_nor_before_an_approval_of_exactly_this_plan(self, store, engine, now):
        run = store.save_plan("run", [plan_of()])
        store.record_brake("run", needs_approval=True, detail="too much", author="brake")
        other = store.save_plan("other", [plan_of(B)])
        store.approve("other", other.plan_hash, **AUTHOR)
        assert claim(store) is None
        with pytest.raises(StateConflictError, match=run.plan_hash):
            store.approve("run", other.plan_hash, **AUTHOR)
        assert claim(store) is None
        approved = store.approve("run", run.plan_hash, **AUTHOR)
        assert approved.is_released
        assert (approved.approval.author, approved.approval.approved_at_ms) == ("me@host", now.now_ms)
        assert claim(store) is not None
        with engine.connect() as connection:
            kinds = connection.execute(select(events.c.kind, events.c.subject, events.c.author)).all()
            rows = connection.execute(select(approvals.c.run_id, approvals.c.plan_hash)).all()
        assert ("approval", "run run", "me@host") in [tuple(row) for row in kinds]
        assert ("run", run.plan_hash) in [tuple(row) for row in rows]

    def test_the_first_approval_stays(self, store, now):
        run = store.save_plan("run", [plan_of()])
        first = store.approve("run", run.plan_hash, **AUTHOR)
        now.advance(5)
        assert store.approve("run", run.plan_hash, author="somebody else") == first

    def test_an_unknown_run(self, store):
        with pytest.raises(StateConflictError):
            store.approve("run", "hash", **AUTHOR)


class TestWork:
    def test_each_partition_is_claimed_once_under_its_own_role(self, store, engine):
        released(store, plan_of(A), plan_of(B, 2, 10))
        leases = [claim(store, f"batch-{n}") for n in range(3)]
        assert [lease and str(lease.fence.topic_id_partition) for lease in leases] == ["a-0", "b-0", None]
        assert {lease.fence.role for lease in leases[:2]} == {LeaseRole.EXPIRE}
        assert lease_of(engine, A, "copy").fence.role is LeaseRole.COPY

    def test_partitions_with_begun_deletions_come_first(self, store):
        begun = plan_of(B, 2, 10)
        first, second = begun.deletions
        released(store, plan_of(A), replace(begun, deletions=(first, replace(second, state=DELETE_STARTED))))
        assert [claim(store, f"batch-{n}").fence.topic_id_partition for n in range(2)] == [B, A]

    def test_an_expired_lease_is_taken_over_with_a_higher_token(self, store, engine, now):
        released(store, plan_of())
        old = claim(store)
        now.advance(LEASE_MS + 1)
        new = claim(store, "other")
        assert new.fence.token > old.fence.token
        with pytest.raises(LeaseLostError):
            SqlWorkStore(engine, CLUSTER_ID, now_ms=now).renew(old, lease_ms=LEASE_MS)
        with pytest.raises(LeaseLostError):
            store.record_outcomes(old, [])

    def test_excluded_and_paused_partitions_are_passed_over(self, store, engine, now):
        released(store, plan_of(A), plan_of(B, 2, 10))
        assert claim(store, exclude=[A]).fence.topic_id_partition == B
        work = SqlWorkStore(engine, CLUSTER_ID, now_ms=now)
        work.pause("a", author="me")
        assert claim(store, "other") is None
        assert store.has_work("run")
        work.resume("a", author="me")
        work.pause(None, author="me")
        assert claim(store, "other") is None

    def test_a_run_that_a_restore_took_back_is_a_conflict(self, store, engine):
        """Found by simulation, seed 10732: the batch ended by an error that nobody expects."""
        released(store, plan_of(A, 3))
        lease = claim(store)
        with engine.begin() as connection:
            connection.execute(planned_deletions.delete())
            connection.execute(planned_expirations.delete())
        with pytest.raises(StateConflictError, match="run plans nothing of"):
            store.remaining(lease)

    def test_remaining_shrinks_by_outcomes_and_those_stay(self, store):
        released(store, plan_of(A, 3))
        lease = claim(store)
        first, second, third = plan_of(A, 3).deletions
        failed = DeletionItem(second, DeletionOutcome.FAILED, "RemoteStorageError", "key\x00 refused")
        store.record_outcomes(lease, [DeletionItem(first, DeletionOutcome.DELETED), failed])
        store.record_outcomes(lease, [DeletionItem(first, DeletionOutcome.FAILED, "late", "ignored")])
        assert store.remaining(lease) == replace(plan_of(A, 3), deletions=(third,))
        found = store.items("run")
        assert [item.outcome for item in found] == [
            DeletionOutcome.DELETED,
            DeletionOutcome.FAILED,
            DeletionOutcome.PLANNED,
        ]
        assert found[1].message == "key\\x00 refused"
        store.record_outcomes(lease, [DeletionItem(third, DeletionOutcome.SKIPPED)])
        assert not store.has_work("run")
        assert claim(store) is None

    def test_runs_with_work_are_those_of_which_something_is_left(self, store, engine, now):
        since_ms = store.now_ms()
        store.save_plan("empty", [])
        for run_id in ("second", "first", "done"):
            now.advance(1)
            released(store, plan_of(), run_id=run_id)
        lease_of(engine, B, "copies")
        lease = claim(store, run_id="done")
        store.record_outcomes(lease, [DeletionItem(one, DeletionOutcome.SKIPPED) for one in plan_of().deletions])
        assert store.runs_with_work(since_ms=since_ms) == ["second", "first"]
        assert store.runs_with_work(since_ms=since_ms + 2) == ["first"]
        assert store.runs_with_work(since_ms=since_ms + 3) == []


class TestTotals:
    def test_come_from_the_segments(self, store, metadata, engine, now):
        fence = fence_of(engine, A)
        old, gone, kept, leftover = (segment_of(A, n, 10 * n, 10 * n + 9, size_bytes=100 * (n + 1)) for n in range(4))
        old, gone, kept = (finish(metadata, one, fence) for one in (old, gone, kept))
        metadata.add_segment(leftover, fence=fence)
        expiring = expire_lease_of(engine, A, "earlier").fence
        metadata.advance_deletion([gone], DELETE_STARTED, event_timestamp_ms=0, fence=expiring)
        planned = planned_expiration(A, old)
        lies = replace(planned_deletion(old), size_bytes=1)
        store.save_plan("run", [replace(planned, deletions=(lies, planned_deletion(leftover)))])
        assert store.totals("run", window_ms=WINDOW_MS) == [
            TopicTotals(A.topic_id, "a", 2, 100, recent_bytes=200, remote_bytes=400, above_log_start=0)
        ]
        now.advance(WINDOW_MS + 1)
        (later,) = store.totals("run", window_ms=WINDOW_MS)
        assert later.recent_bytes == 0

    def test_a_tombstone_is_not_counted(self, store, metadata, engine):
        fence = fence_of(engine, A)
        segment = finish(metadata, segment_of(A, 1, 0, 9), fence)
        other = finish(metadata, segment_of(A, 2, 10, 19), fence)
        store.save_plan("run", [planned_expiration(A, segment, other)])
        expiring = expire_lease_of(engine, A, "earlier").fence
        begun = metadata.advance_deletion([segment], DELETE_STARTED, event_timestamp_ms=0, fence=expiring)
        metadata.advance_deletion(begun, DELETE_FINISHED, event_timestamp_ms=0, fence=expiring)
        (totals,) = store.totals("run", window_ms=WINDOW_MS)
        assert (totals.planned_segments, totals.planned_bytes) == (1, 1_000)

    def test_a_segment_beyond_the_planned_log_start_is_seen(self, store, metadata, engine):
        segment = finish(metadata, segment_of(A, 1, 0, 9), fence_of(engine, A))
        store.save_plan("run", [replace(planned_expiration(A, segment), log_start_offset=5)])
        (totals,) = store.totals("run", window_ms=WINDOW_MS)
        assert totals.above_log_start == 1

    def test_of_an_empty_plan(self, store):
        store.save_plan("run", [])
        assert store.totals("run", window_ms=WINDOW_MS) == []
