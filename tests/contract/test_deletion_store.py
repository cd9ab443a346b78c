"""What every implementation of `DeletionStore` does, over each database."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine, select

from include.tiering.database.event_log import EventKind, record_event
from include.tiering.database.schema import approvals, events, planned_deletions, planned_expirations
from include.tiering.errors import LeaseLostError, RunWithdrawnError, StateConflictError
from include.tiering.expiration.store import SqlDeletionStore
from include.tiering.model.ownership import LeaseRole, PartitionLease
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import Verdict
from include.tiering.runs.contract import WorkStore
from include.tiering.runs.deletion_run import (
    DeletionItem,
    DeletionOutcome,
    DeletionStore,
    PlannedExpiration,
    TopicTotals,
    plan_hash,
)
from include.tiering.runs.store import SqlWorkStore
from tests.doubles.databases import AdjustableNow
from tests.doubles.present import present
from tests.doubles.segments import (
    CLUSTER_ID,
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    STARTED,
    expire_lease_of,
    fence_of,
    finish,
    lease_of,
    partition_of,
    planned,
    planned_deletion,
    planned_expiration,
    segment_of,
    update_of,
)

LEASE_MS = 10_000
WINDOW_MS = 1_000
A, B = partition_of("a"), partition_of("b")
AUTHOR = {"author": "me@host"}


@pytest.fixture
def store(engine: Engine, now: AdjustableNow) -> DeletionStore:
    return SqlDeletionStore(engine, CLUSTER_ID, now_ms=now)


def plan_of(partition=A, count: int = 2, number: int = 0) -> PlannedExpiration:
    segments = [segment_of(partition, number + n, 10 * n, 10 * n + 9) for n in range(count)]
    return planned_expiration(partition, *segments)


def test_an_empty_plan_of_a_copy_is_not_that_of_a_deletion(store: DeletionStore, work: WorkStore) -> None:
    """Both have the same hash: nothing."""
    store.save_plan("run-1", [])
    with pytest.raises(StateConflictError, match="run run-1 has another plan already"):
        work.save_plan("run-1", [])


def test_the_newest_event_is_one_of_this_cluster_after_the_given_time(store, work, engine, now) -> None:
    assert store.newest_event_ms(0) is None
    now.advance(1_000)
    work.save_plan("run-1", [planned(A)])
    assert work.claim("run-1", "batch-1", lease_ms=LEASE_MS) is not None
    claimed_ms = now.now_ms
    assert store.newest_event_ms(0) == store.newest_event_ms(claimed_ms - 1) == claimed_ms
    assert store.newest_event_ms(claimed_ms) is None
    assert SqlDeletionStore(engine, "another", now_ms=now).newest_event_ms(0) is None
    now.advance(1_000)
    with engine.begin() as connection:
        record_event(connection, CLUSTER_ID, EventKind.LOG_START, A, "", "me", now.now_ms)
    assert store.newest_event_ms(claimed_ms) == now.now_ms
    assert store.newest_event_ms(now.now_ms) is None
    assert SqlDeletionStore(engine, "another", now_ms=now).newest_event_ms(0) is None


def released(store: DeletionStore, *plans: PlannedExpiration, run_id: str = "run") -> None:
    store.save_plan(run_id, plans)
    store.record_limit_check(run_id, needs_approval=False, detail="", author="limits")


def claim(store: DeletionStore, batch_id: str = "batch", run_id: str = "run", **options) -> PartitionLease | None:
    return store.claim(run_id, batch_id, lease_ms=LEASE_MS, **options)


def superseded(metadata, engine):
    """A failed segment whose place a new copy took."""
    fence = fence_of(engine, A)
    old = finish(metadata, segment_of(A, 1, 0, 9), fence)
    metadata.record_verdict(old.remote_log_segment_id, Verdict.FAILED)
    new = segment_of(A, 2, 0, 9)
    metadata.add_segment(new, fence=fence)
    old_id = old.remote_log_segment_id
    metadata.update_segment(update_of(new, FINISHED), expected=STARTED, fence=fence, supersedes=old_id)
    return metadata.segment(old_id).metadata


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
    def test_no_answer_is_recorded_of_a_run_that_is_not_known(self, store, engine):
        with pytest.raises(StateConflictError, match="no run run"):
            store.record_limit_check("run", needs_approval=False, detail="within the limits", author="limits")
        with engine.connect() as connection:
            assert connection.execute(select(events.c.kind)).all() == []

    def test_nothing_is_claimed_before_the_deletion_limit(self, store):
        store.save_plan("run", [plan_of()])
        assert claim(store) is None
        store.record_limit_check("run", needs_approval=False, detail="within the limits", author="limits")
        assert claim(store).fence.topic_id_partition == A

    def test_nor_before_an_approval_of_exactly_this_plan(self, store, engine, now):
        run = store.save_plan("run", [plan_of()])
        store.record_limit_check("run", needs_approval=True, detail="too much", author="limits")
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


class TestWithdrawal:
    def test_nothing_more_can_be_claimed_approved_or_changed(self, store, engine, now):
        run = store.save_plan("run", [plan_of(A), plan_of(B, 2, 10)])
        store.approve("run", run.plan_hash, **AUTHOR)
        lease = claim(store)
        store.record_outcomes(lease, [DeletionItem(plan_of().deletions[0], DeletionOutcome.DELETED)])
        now.advance(1)
        withdrawn = store.withdraw("run", author="you@host")
        assert (withdrawn.withdrawal.author, withdrawn.withdrawal.withdrawn_at_ms) == ("you@host", now.now_ms)
        assert not withdrawn.is_released
        assert claim(store, "other") is None
        assert not store.has_work("run")
        with pytest.raises(LeaseLostError):
            store.record_outcomes(lease, [DeletionItem(plan_of().deletions[1], DeletionOutcome.DELETED)])
        with pytest.raises(LeaseLostError):
            SqlWorkStore(engine, CLUSTER_ID, now_ms=now).renew(present(lease), lease_ms=LEASE_MS)
        with pytest.raises(RunWithdrawnError, match=r"withdrawn by you@host .* Plan again"):
            store.approve("run", run.plan_hash, **AUTHOR)
        store.record_limit_check("run", needs_approval=False, detail="", author="limits")
        assert not store.run("run").is_released
        assert [item.outcome for item in store.items("run")] == [
            DeletionOutcome.DELETED,
            *[DeletionOutcome.SKIPPED] * 3,
        ]
        assert {item.error for item in store.items("run")[1:]} == {"RunWithdrawnError"}
        with engine.connect() as connection:
            rows = connection.execute(select(events.c.subject, events.c.author).where(events.c.kind == "withdrawal"))
            assert [tuple(row) for row in rows] == [("run run", "you@host")]

    def test_the_first_withdrawal_stays_with_one_event(self, store, engine, now):
        store.save_plan("run", [plan_of()])
        first = store.withdraw("run", **AUTHOR)
        now.advance(1)
        assert store.withdraw("run", author="another person") == first
        with engine.connect() as connection:
            assert len(connection.execute(select(events).where(events.c.kind == "withdrawal")).all()) == 1

    def test_another_run_may_have_what_it_held(self, store):
        released(store, plan_of())
        released(store, plan_of(), run_id="next")
        claim(store)
        assert claim(store, run_id="next") is None
        store.withdraw("run", **AUTHOR)
        assert claim(store, run_id="next") is not None

    def test_what_had_begun_is_left_to_the_next_run(self, store, metadata, engine):
        fence = fence_of(engine, A)
        begun, kept = (finish(metadata, segment_of(A, n, 10 * n, 10 * n + 9), fence) for n in range(2))
        released(store, planned_expiration(A, begun, kept))
        lease = claim(store)
        metadata.advance_deletion([begun], DELETE_STARTED, event_timestamp_ms=0, fence=lease.fence)
        store.withdraw("run", **AUTHOR)
        assert [item.outcome for item in store.items("run")] == [DeletionOutcome.FAILED, DeletionOutcome.SKIPPED]
        with pytest.raises(LeaseLostError):
            metadata.advance_deletion([kept], DELETE_STARTED, event_timestamp_ms=0, fence=lease.fence)
        with pytest.raises(LeaseLostError):
            metadata.raise_log_start(A, 20, reason="run run", author="batch", fence=lease.fence)

    def test_an_unknown_run(self, store):
        with pytest.raises(StateConflictError):
            store.withdraw("run", **AUTHOR)


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
            SqlWorkStore(engine, CLUSTER_ID, now_ms=now).renew(present(old), lease_ms=LEASE_MS)
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
        old, gone, kept, abandoned = (segment_of(A, n, 10 * n, 10 * n + 9, size_bytes=100 * (n + 1)) for n in range(4))
        old, gone, kept = (finish(metadata, one, fence) for one in (old, gone, kept))
        metadata.add_segment(abandoned, fence=fence)
        expiring = expire_lease_of(engine, A, "earlier").fence
        metadata.advance_deletion([gone], DELETE_STARTED, event_timestamp_ms=0, fence=expiring)
        planned = planned_expiration(A, old)
        lies = replace(planned_deletion(old), size_bytes=1)
        store.save_plan("run", [replace(planned, deletions=(lies, planned_deletion(abandoned)))])
        # Every byte counts once: planned whatever the state, deleted lately, or stored beside both.
        assert store.totals("run", window_ms=WINDOW_MS) == [
            TopicTotals(
                A.topic_id,
                "a",
                2,
                500,
                recent_bytes=200,
                remote_bytes=800,
                above_log_start=0,
                unapproved_bytes=200,
                planned_finished=1,
                planned_finished_bytes=100,
                finished_segments=2,
                finished_bytes=400,
            )
        ]
        now.advance(WINDOW_MS + 1)
        (later,) = store.totals("run", window_ms=WINDOW_MS)
        assert later.recent_bytes == 0

    def test_superseded_bytes_are_planned_and_count_as_deleted_when_their_objects_went(
        self, store, metadata, engine, now
    ):
        old = superseded(metadata, engine)
        store.save_plan("run", [planned_expiration(A, old)])
        (totals,) = store.totals("run", window_ms=WINDOW_MS)
        assert (totals.planned_bytes, totals.recent_bytes, totals.remote_bytes) == (1_000, 0, 2_000)
        assert not totals.loses_everything
        expiring = expire_lease_of(engine, A, "earlier").fence
        now.advance(WINDOW_MS + 1)
        metadata.advance_deletion([old], DELETE_FINISHED, event_timestamp_ms=0, fence=expiring)
        (totals,) = store.totals("run", window_ms=WINDOW_MS)
        assert (totals.planned_bytes, totals.recent_bytes, totals.remote_bytes) == (0, 1_000, 1_000)

    @pytest.mark.parametrize("lately", [True, False], ids=["within the window", "before it"])
    def test_what_a_released_run_began_counted_there(self, store, metadata, engine, now, lately):
        fence = fence_of(engine, A)
        begun, _ = [finish(metadata, segment_of(A, n, 10 * n, 10 * n + 9), fence) for n in range(2)]
        released(store, planned_expiration(A, begun))
        lease = claim(store)
        (begun,) = metadata.advance_deletion([begun], DELETE_STARTED, event_timestamp_ms=0, fence=lease.fence)
        if not lately:
            now.advance(WINDOW_MS + 1)
        store.save_plan("next", [planned_expiration(A, begun)])
        (totals,) = store.totals("next", window_ms=WINDOW_MS)
        assert (totals.planned_bytes, totals.begun_bytes) == (1_000, 1_000)
        assert (totals.recent_bytes, totals.remote_bytes) == ((1_000, 1_000) if lately else (0, 2_000))

    def test_what_no_released_run_began_counts_as_planned(self, store, metadata, engine, now):
        fence = fence_of(engine, A)
        begun = finish(metadata, segment_of(A, 1, 0, 9), fence)
        expiring = expire_lease_of(engine, A, "earlier").fence
        (begun,) = metadata.advance_deletion([begun], DELETE_STARTED, event_timestamp_ms=0, fence=expiring)
        now.advance(WINDOW_MS + 1)
        store.save_plan("next", [planned_expiration(A, begun)])
        (totals,) = store.totals("next", window_ms=WINDOW_MS)
        assert (totals.planned_bytes, totals.begun_bytes, totals.remote_bytes) == (1_000, 0, 1_000)

    def test_of_copies_that_never_finished_what_expiration_deleted_counts(self, store, metadata, engine):
        fence = fence_of(engine, A)
        ours, copiers = (segment_of(A, n, 10 * n, 10 * n + 9) for n in range(2))
        for one in (ours, copiers):
            metadata.add_segment(one, fence=fence)
        released(store, planned_expiration(A, ours))
        lease = claim(store)
        for one in (ours, copiers):
            begun = metadata.advance_deletion([one], DELETE_STARTED, event_timestamp_ms=0, fence=lease.fence)
            metadata.advance_deletion(begun, DELETE_FINISHED, event_timestamp_ms=0, fence=lease.fence)
        store.record_outcomes(lease, [DeletionItem(planned_deletion(ours), DeletionOutcome.DELETED)])
        (totals,) = store.totals("run", window_ms=WINDOW_MS)
        assert totals.recent_bytes == 1_000

    def test_topics_that_lost_something_lately_are_there_and_what_was_approved_is_told(self, store, metadata, engine):
        for number, (partition, run_id) in enumerate([(A, "approved"), (B, "released")]):
            segment = finish(metadata, segment_of(partition, number, 0, 9), fence_of(engine, partition))
            run = store.save_plan(run_id, [planned_expiration(partition, segment)])
            store.record_limit_check(run_id, needs_approval=False, detail="", author="limits")
            if run_id == "approved":
                store.approve(run_id, run.plan_hash, **AUTHOR)
            lease = claim(store, run_id=run_id)
            metadata.advance_deletion([segment], DELETE_STARTED, event_timestamp_ms=0, fence=lease.fence)
        store.save_plan("next", [])
        found = store.totals("next", window_ms=WINDOW_MS)
        assert [(one.topic, one.recent_bytes, one.unapproved_bytes, one.loses_everything) for one in found] == [
            ("a", 1_000, 0, False),
            ("b", 1_000, 1_000, True),
        ]

    @pytest.mark.parametrize("doubt", ["withdrawn", "of another plan"])
    def test_an_approval_that_holds_no_more_does_not_count(self, store, metadata, engine, doubt):
        segment = finish(metadata, segment_of(A, 1, 0, 9), fence_of(engine, A))
        run = store.save_plan("run", [planned_expiration(A, segment)])
        store.approve("run", run.plan_hash, **AUTHOR)
        metadata.advance_deletion([segment], DELETE_STARTED, event_timestamp_ms=0, fence=claim(store).fence)
        if doubt == "withdrawn":
            store.withdraw("run", **AUTHOR)
        else:
            with engine.begin() as connection:
                connection.execute(approvals.update().values(plan_hash="of a plan that was set back"))
        store.save_plan("next", [])
        (totals,) = store.totals("next", window_ms=WINDOW_MS)
        assert (totals.recent_bytes, totals.unapproved_bytes) == (1_000, 1_000)

    @pytest.mark.parametrize(("other", "begun_bytes"), [("released", 1_000), ("withdrawn", 0), ("dry run", 0)])
    def test_begun_counts_only_for_a_run_that_is_released(self, store, metadata, engine, now, other, begun_bytes):
        segment = finish(metadata, segment_of(A, 1, 0, 9), fence_of(engine, A))
        store.save_plan("earlier", [planned_expiration(A, segment)])
        if other != "dry run":
            store.record_limit_check("earlier", needs_approval=False, detail="", author="limits")
        fence = expire_lease_of(engine, A, "worker").fence
        metadata.advance_deletion([segment], DELETE_STARTED, event_timestamp_ms=0, fence=fence)
        if other == "withdrawn":
            store.withdraw("earlier", **AUTHOR)
        now.advance(WINDOW_MS + 1)
        store.save_plan("run", [planned_expiration(A, segment)])
        (totals,) = store.totals("run", window_ms=WINDOW_MS)
        assert (totals.planned_bytes, totals.begun_bytes) == (1_000, begun_bytes)

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


class TestPlannedTopics:
    def test_are_what_each_plan_deletes_with_the_age_of_its_records(self, store, metadata, engine):
        own = [segment_of(partition_of("a", number), 10 * number, 0, 9 + number) for number in (0, 1)]
        for segment in own:
            finish(metadata, segment, fence_of(engine, segment.topic_id_partition))
        store.save_plan("first", [plan_of(B)])
        store.save_plan("second", [planned_expiration(segment.topic_id_partition, segment) for segment in own])
        found = store.planned_topics(["second", "first", "unknown"])
        assert [(one.run_id, one.topic, one.partitions, one.segments) for one in found] == [
            ("first", "b", 1, 2),
            ("second", "a", 2, 2),
        ]
        times = [segment.max_timestamp_ms for segment in own]
        assert [(one.oldest_ms, one.newest_ms) for one in found] == [(None, None), tuple(times)]
        assert found[0].size_bytes == sum(deletion.size_bytes for deletion in plan_of(B).deletions)
        assert store.planned_topics([]) == []
