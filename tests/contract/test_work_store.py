"""What every implementation of `WorkStore` does, over each database."""

import secrets
from dataclasses import replace
from itertools import pairwise

import pytest
from sqlalchemy import select

from include.tiering.configs.sql_configs import SqlPoolMirror
from include.tiering.database.schema import events, leases
from include.tiering.database.transactions import LEASE_MARGIN_MS
from include.tiering.errors import LeaseLostError, StateConflictError
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.ownership import LeaseRole
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.contract import (
    ALL_TOPICS,
    ANYWHERE,
    LIVE_BATCH_MS,
    BatchProgress,
    ClaimOrder,
    Lease,
    LeaseHolder,
    Placement,
    PlannedPartition,
    PlannedSegment,
    SegmentOutcome,
    WorkItem,
    WorkStore,
)
from include.tiering.runs.store import SqlWorkStore
from tests.doubles.present import present
from tests.doubles.segments import CLUSTER_ID, partition_of, planned

LEASE_MS, HOUR_MS, DAY_MS = 10_000, 3_600_000, 86_400_000
URGENCIES = (("b", 1.0), ("c", 0.5), ("urgent", 9.0))


def _claim(work: WorkStore, batch_id: str = "batch-1", run_id: str = "run-1", **options) -> Lease | None:
    return work.claim(run_id, batch_id, lease_ms=LEASE_MS, **options)


def _item(partition: TopicIdPartition, number: int, outcome: SegmentOutcome, **values) -> WorkItem:
    return WorkItem(partition, planned(partition, number + 1).segments[number], outcome, **values)


def _progress(batch_id: str, run_id: str = "run-1", **values) -> BatchProgress:
    report = BatchProgress(
        run_id=run_id,
        batch_id=batch_id,
        pool="remote_log_copier",
        host="worker",
        pid=5,
        partition="orders-0",
        done_bytes=1,
        planned_bytes=10,
        bytes_per_second=0.5,
        finished=False,
    )
    return replace(report, **values)


A, B, C, D = (partition_of(topic) for topic in "abcd")


class TestPlan:
    def test_items_begin_planned_in_order(self, work):
        work.save_plan("run-1", [planned(B, 2, urgency=9), planned(partition_of("a", 1)), planned(A)])
        items = work.items("run-1")
        assert [(str(one.topic_id_partition), one.segment.base_offset) for one in items] == [
            ("a-0", 0),
            ("a-1", 0),
            ("b-0", 0),
            ("b-0", 100),
        ]
        assert {one.outcome for one in items} == {SegmentOutcome.PLANNED}
        assert items[3] == WorkItem(B, PlannedSegment(100, 199, 1_000), SegmentOutcome.PLANNED)

    def test_saving_the_same_plan_again_is_harmless(self, work):
        work.save_plan("run-1", [planned(A)])
        lease = _claim(work)
        work.record_outcome(lease, _item(A, 0, SegmentOutcome.COPIED))
        work.save_plan("run-1", [planned(A)])
        assert [one.outcome for one in work.items("run-1")] == [SegmentOutcome.COPIED]

    @pytest.mark.parametrize("other", [[], [planned(A, 2)], [planned(B)], [planned(A, urgency=2.0)]])
    def test_another_plan_for_the_same_run_is_refused(self, work, other):
        work.save_plan("run-1", [planned(A)])
        with pytest.raises(StateConflictError, match="run-1"):
            work.save_plan("run-1", other)
        assert len(work.items("run-1")) == 1

    def test_an_empty_plan(self, work):
        work.save_plan("run-1", [])
        assert work.items("run-1") == []
        assert not work.has_work("run-1")
        assert _claim(work) is None

    def test_an_unknown_run_has_no_work(self, work):
        assert not work.has_work("run-9")
        assert work.items("run-9") == []
        assert _claim(work, run_id="run-9") is None

    def test_clusters_do_not_see_each_other(self, work, engine, now):
        work.save_plan("run-1", [planned(A)])
        other = SqlWorkStore(engine, "another-cluster", now_ms=now)
        assert other.items("run-1") == []
        assert _claim(other) is None
        other.save_plan("run-1", [planned(A)])
        assert _claim(work) is not None
        assert _claim(other) is not None


class TestClaim:
    def test_gives_the_replica_and_an_expiry(self, work, now):
        replica_id = ReplicaId(A, 7, "dir-b")
        work.save_plan("run-1", [PlannedPartition(replica_id, 1.0, planned(A).segments)])
        lease = _claim(work)
        assert (lease.run_id, lease.batch_id, lease.replica_id) == ("run-1", "batch-1", replica_id)
        assert lease.fence.topic_id_partition == A
        assert lease.replica_id.topic_id_partition.topic == "a"
        assert lease.expires_at_ms == now.now_ms + LEASE_MS

    def test_most_urgent_first_and_each_once(self, work):
        work.save_plan("run-1", [planned(A, urgency=1), planned(B, urgency=3), planned(C, urgency=2)])
        taken = [_claim(work, f"batch-{number}") for number in range(4)]
        assert [lease and lease.fence.topic_id_partition for lease in taken] == [B, C, A, None]

    def test_among_equals_the_one_that_waited_longest(self, work, now):
        work.save_plan("run-1", [planned(A), planned(B)])
        for expected in (A, B, A, B):
            lease = _claim(work)
            assert lease.fence.topic_id_partition == expected
            work.release(lease)
            now.advance(1)

    def test_more_partitions_taken_than_are_looked_at_at_once(self, work):
        partitions = [partition_of("many", number) for number in range(40)]
        work.save_plan("run-1", [planned(one) for one in partitions])
        work.save_plan("run-2", [planned(one) for one in reversed(partitions)])
        taken = [_claim(work, f"batch-{number}", "run-1") for number in range(39)]
        last = _claim(work, "batch-x", "run-2")
        assert {lease.fence.topic_id_partition for lease in [*taken, last]} == set(partitions)
        assert _claim(work, "batch-y", "run-2") is None

    def test_a_live_lease_of_another_run_holds(self, work, now):
        work.save_plan("run-1", [planned(A)])
        work.save_plan("run-2", [planned(A)])
        assert _claim(work, run_id="run-1") is not None
        assert _claim(work, run_id="run-2") is None
        now.advance(LEASE_MS - 1)
        assert _claim(work, run_id="run-2") is None
        now.advance(1)
        assert _claim(work, run_id="run-2") is not None

    def test_a_lease_that_ends_further_ahead_than_it_may_last_is_none(self, work, now):
        """It was taken while the clock was ahead: fenced, whoever holds it does no harm."""
        work.save_plan("run-1", [planned(A)])
        work.save_plan("run-2", [planned(A)])
        today_ms = now.now_ms
        now.advance(400 * DAY_MS)
        ahead = _claim(work, run_id="run-1")
        now.now_ms = today_ms
        assert work.holder(A, LeaseRole.COPY) is None
        lease = _claim(work, run_id="run-2")
        assert lease is not None
        assert lease.fence.token > ahead.fence.token
        with pytest.raises(LeaseLostError):
            work.renew(ahead, lease_ms=LEASE_MS)
        assert work.holder(A, LeaseRole.COPY).batch_id == lease.batch_id

    def test_those_that_are_none_are_named_until_another_batch_claims(self, work, now, engine):
        work.save_plan("run-1", [planned(A), planned(B)])
        today_ms = now.now_ms
        now.advance(400 * DAY_MS)
        (ahead,) = [lease for _ in "ab" if (lease := _claim(work)).fence.topic_id_partition == A]
        assert list(work.leases_ahead()) == []
        now.now_ms = today_ms
        (first, second) = work.leases_ahead()
        assert (first.topic_id_partition, first.role) == (A, LeaseRole.COPY)
        assert second.topic_id_partition == B
        assert (first.holder.batch_id, first.holder.expires_at_ms) == (ahead.batch_id, ahead.expires_at_ms)
        assert list(SqlWorkStore(engine, "another", now_ms=now).leases_ahead()) == []
        work.save_plan("run-2", [planned(A)])
        assert _claim(work, run_id="run-2") is not None
        assert [one.topic_id_partition for one in work.leases_ahead()] == [B]
        now.advance(401 * DAY_MS)
        assert list(work.leases_ahead()) == []

    def test_one_that_was_renewed_ahead_is_none_either_until_it_is_renewed_again(self, work, now):
        work.save_plan("run-1", [planned(A)])
        lease = _claim(work, run_id="run-1")
        today_ms = now.now_ms
        now.advance(400 * DAY_MS)
        work.renew(lease, lease_ms=LEASE_MS)
        now.now_ms = today_ms
        assert work.holder(A, LeaseRole.COPY) is None
        work.renew(lease, lease_ms=LEASE_MS)
        assert work.holder(A, LeaseRole.COPY) is not None

    def test_a_clock_that_is_set_back_a_little_ends_no_lease(self, work, now):
        work.save_plan("run-1", [planned(A)])
        work.save_plan("run-2", [planned(A)])
        assert _claim(work, run_id="run-1") is not None
        now.now_ms -= LEASE_MARGIN_MS
        assert _claim(work, run_id="run-2") is None
        assert work.holder(A, LeaseRole.COPY) is not None
        now.now_ms -= 1
        assert _claim(work, run_id="run-2") is not None

    def test_a_lease_may_be_longer_than_that_of_whoever_asks(self, work, now):
        """Each says how long it lasts itself."""
        work.save_plan("run-1", [planned(A)])
        work.save_plan("run-2", [planned(A)])
        assert work.claim("run-1", "batch-1", lease_ms=DAY_MS) is not None
        assert _claim(work, run_id="run-2") is None

    def test_of_a_lease_from_before_lengths_were_recorded_an_hour_is_believed(self, work, now, engine):
        work.save_plan("run-1", [planned(A)])
        assert work.claim("run-1", "batch-1", lease_ms=HOUR_MS) is not None
        for ahead_ms, is_held in ((HOUR_MS, True), (HOUR_MS + LEASE_MARGIN_MS + 1, False)):
            with engine.begin() as connection:
                connection.execute(leases.update().values(lease_ms=None, expires_at_ms=now.now_ms + ahead_ms))
            assert (work.holder(A, LeaseRole.COPY) is not None) is is_held

    def test_a_batch_that_reported_ahead_holds_no_slot(self, work, now):
        today_ms = now.now_ms
        now.advance(400 * DAY_MS)
        work.report_progress(_progress("batch-ahead"))
        now.now_ms = today_ms
        work.report_progress(_progress("batch-now"))
        assert list(work.live_batches("remote_log_copier")) == ["batch-now"]

    def test_tokens_ascend_whoever_claims(self, work, now):
        work.save_plan("run-1", [planned(A)])
        work.save_plan("run-2", [planned(A)])
        tokens = []
        for run_id, gives_back in [("run-1", True), ("run-2", False), ("run-1", True), ("run-2", True)]:
            lease = _claim(work, run_id=run_id)
            tokens.append(lease.fence.token)
            if gives_back:
                work.release(lease)
            else:
                now.advance(LEASE_MS)
        assert tokens == sorted(set(tokens))

    def test_no_token_is_given_again_after_a_restore_took_the_lease_back(self, work, engine, now):
        """Found by simulation, seed 1543: workers from before and after the restore held the same token."""
        work.save_plan("run-1", [planned(A)])
        before = _claim(work)
        with engine.begin() as connection:
            connection.execute(leases.delete())
        now.advance(1)
        assert _claim(work).fence.token > before.fence.token
        with pytest.raises(LeaseLostError):
            work.renew(before, lease_ms=LEASE_MS)

    def test_nor_after_the_clock_was_set_back_besides(self, work, engine, now, monkeypatch):
        """Found by simulation, seed 3000116: both lives of the database counted on from the same token."""
        drawn = iter((5, 6, 7))
        monkeypatch.setattr(secrets, "randbits", lambda _bits: next(drawn))
        work.save_plan("run-1", [planned(A)])
        backup = _claim(work)
        now.advance(-DAY_MS)
        before = _claim(work)
        with engine.begin() as connection:
            connection.execute(leases.update().values(token=backup.fence.token, expires_at_ms=backup.expires_at_ms))
        after = _claim(work)
        assert before.fence.token != after.fence.token
        assert backup.fence.token < min(before.fence.token, after.fence.token)
        with pytest.raises(LeaseLostError):
            work.renew(before, lease_ms=LEASE_MS)

    def test_a_token_of_an_earlier_version_is_followed_by_a_higher_one(self, work, engine, now):
        work.save_plan("run-1", [planned(A)])
        _claim(work)
        with engine.begin() as connection:
            connection.execute(leases.update().values(token=now.now_ms + HOUR_MS))
        assert _claim(work).fence.token > now.now_ms + HOUR_MS

    def test_a_restarted_batch_takes_over_its_own_lease(self, work):
        work.save_plan("run-1", [planned(A)])
        first = _claim(work)
        again = _claim(work)
        assert again.fence.token > first.fence.token
        with pytest.raises(LeaseLostError):
            work.renew(first, lease_ms=LEASE_MS)

    def test_passes_over_excluded_partitions(self, work):
        work.save_plan("run-1", [planned(A, urgency=2), planned(B)])
        assert _claim(work, exclude=[A]).fence.topic_id_partition == B
        assert _claim(work, "batch-2", exclude=[A, B]) is None

    def test_passes_over_excluded_topics_and_brokers(self, work):
        of_another = planned(B, urgency=2)
        of_another = replace(of_another, replica_id=replace(of_another.replica_id, broker_id=2))
        work.save_plan("run-1", [planned(A, urgency=3), of_another, planned(C)])
        assert _claim(work, exclude_topics={"a"}, exclude_brokers={2}).fence.topic_id_partition == C
        assert _claim(work, "batch-2", exclude_topics={"a", "b"}) is None
        assert _claim(work, "batch-2", exclude_topics={"a"}, exclude=[A]).fence.topic_id_partition == B
        assert _claim(work, "batch-3", exclude_brokers={1}) is None

    def test_passes_over_paused_topics(self, work):
        work.save_plan("run-1", [planned(A, urgency=2), planned(B)])
        work.pause("a", author="ops")
        assert _claim(work).fence.topic_id_partition == B
        work.resume("a", author="ops")
        assert _claim(work, "batch-2").fence.topic_id_partition == A

    def test_nothing_while_all_is_paused(self, work):
        work.save_plan("run-1", [planned(A)])
        work.pause(None, author="ops")
        assert _claim(work) is None
        assert work.has_work("run-1")

    def test_nothing_once_all_is_done(self, work):
        work.save_plan("run-1", [planned(A)])
        lease = _claim(work)
        work.record_outcome(lease, _item(A, 0, SegmentOutcome.SKIPPED))
        work.release(lease)
        assert _claim(work) is None
        assert not work.has_work("run-1")


class TestCouldClaim:
    """`could_claim` answers as the next `claim` would, and takes nothing."""

    def test_what_another_batch_holds_is_no_work_but_its_own_is(self, work, now):
        work.save_plan("run-1", [planned(A)])
        assert work.could_claim("run-1", "batch-2")
        lease = _claim(work)
        assert not work.could_claim("run-1", "batch-2")
        assert work.has_work("run-1")
        assert work.could_claim("run-1", "batch-1")
        now.advance(LEASE_MS)
        assert work.could_claim("run-1", "batch-2")
        assert work.holder(A, LeaseRole.COPY) is None
        work.record_outcome(lease, _item(A, 0, SegmentOutcome.COPIED))
        assert not work.could_claim("run-1", "batch-1")

    def test_of_its_placement_and_of_what_is_not_paused(self, work):
        work.save_plan("run-1", [planned(A), replace(planned(B), placement=Placement("rack-a"))])
        assert work.could_claim("run-1", "batch-1", Placement("rack-a"))
        assert not work.could_claim("run-1", "batch-1", Placement("rack-b"))
        work.pause(None, author="ops")
        assert not work.could_claim("run-1", "batch-1")

    def test_an_unknown_run_has_nothing_to_claim(self, work):
        assert not work.could_claim("run-9", "batch-1")


class TestFairness:
    def test_a_partition_never_claimed_waits_longer_than_one_that_is(self, work, now):
        work.save_plan("run-1", [planned(partition_of("a"), urgency=9.0), planned(partition_of("b"))])
        lease = _claim(work)
        assert work.waits_longer(lease)
        assert not work.waits_longer(lease, exclude=[partition_of("b")])

    def test_the_last_claim_counts_not_the_first(self, work, now):
        work.save_plan("run-1", [planned(partition_of("a")), planned(partition_of("b"))])
        for expected in ("a", "b", "a", "b"):
            lease = _claim(work)
            assert lease.replica_id.topic_id_partition == partition_of(expected)
            assert work.waits_longer(lease)
            work.release(lease)
            now.advance(1)

    def test_a_partition_claimed_in_the_same_millisecond_does_not_wait_longer(self, work):
        work.save_plan("run-1", [planned(partition_of("a")), planned(partition_of("b"))])
        work.release(_claim(work))
        lease = _claim(work)
        assert not work.waits_longer(lease)

    @pytest.mark.parametrize("outcome", [SegmentOutcome.FAILED, SegmentOutcome.COPIED])
    def test_what_has_stopped_or_is_done_does_not_wait(self, work, now, outcome):
        work.save_plan("run-1", [planned(partition_of("a")), planned(partition_of("b"), 1)])
        other = _claim(work, exclude=[partition_of("a")])
        work.record_outcome(other, _item(partition_of("b"), 0, outcome))
        work.release(other)
        now.advance(1)
        assert not work.waits_longer(_claim(work))

    @pytest.mark.parametrize("topic", ["b", None])
    def test_what_is_paused_does_not_wait(self, work, topic):
        work.save_plan("run-1", [planned(partition_of("a"), urgency=9.0), planned(partition_of("b"))])
        lease = _claim(work)
        work.pause(topic, author="ops")
        assert not work.waits_longer(lease)
        work.resume(topic, author="ops")
        assert work.waits_longer(lease)

    def test_what_another_batch_holds_waits_once_its_lease_has_expired(self, work, now):
        work.save_plan("run-1", [planned(partition_of("a")), planned(partition_of("b"))])
        assert _claim(work, "batch-2", exclude=[partition_of("a")]) is not None
        now.advance(1)
        lease = _claim(work)
        assert not work.waits_longer(lease)
        now.advance(LEASE_MS)
        assert work.waits_longer(lease)

    def test_another_run_and_another_placement_do_not_wait(self, work):
        elsewhere = Placement("elsewhere")
        placed = replace(planned(partition_of("b")), placement=elsewhere)
        work.save_plan("run-1", [planned(partition_of("a"), urgency=9.0), placed])
        work.save_plan("run-2", [planned(partition_of("c"))])
        lease = _claim(work)
        assert not work.waits_longer(lease, placement=ANYWHERE)
        assert work.waits_longer(lease, placement=elsewhere)
        assert not work.waits_longer(lease, exclude=[partition_of("b")])

    def test_a_lost_lease_is_fair_already(self, work, now):
        work.save_plan("run-1", [planned(partition_of("a")), planned(partition_of("b"))])
        lease = _claim(work)
        now.advance(LEASE_MS)
        assert _claim(work, "batch-2", exclude=[partition_of("b")]) is not None
        assert not work.waits_longer(lease)

    def test_the_longest_wait_may_be_claimed_before_the_most_urgent(self, work, now):
        work.save_plan("run-1", [planned(partition_of(name), urgency=urgency) for name, urgency in URGENCIES])
        claimed = []
        for _ in range(5):
            lease = _claim(work, order=ClaimOrder.LONGEST_WAIT)
            claimed.append(lease.replica_id.topic_id_partition.topic)
            work.release(lease)
            now.advance(1)
        assert claimed == ["urgent", "b", "c", "urgent", "b"]


class TestRenewAndRelease:
    def test_renewing_prolongs(self, work, now):
        work.save_plan("run-1", [planned(A)])
        lease = present(_claim(work))
        now.advance(LEASE_MS - 1)
        renewed = work.renew(lease, lease_ms=LEASE_MS)
        assert renewed == replace(lease, expires_at_ms=now.now_ms + LEASE_MS)
        now.advance(LEASE_MS - 1)
        assert _claim(work, "batch-2") is None

    def test_who_holds_a_live_lease(self, work, now):
        work.save_plan("run-1", [planned(A)])
        assert work.holder(A, LeaseRole.COPY) is None
        lease = _claim(work)
        holder = LeaseHolder("run-1", lease.batch_id, now.now_ms, lease.expires_at_ms, lease.fence.token)
        assert work.holder(A, LeaseRole.COPY) == holder
        assert work.holder(A, LeaseRole.EXPIRE) is None
        assert work.holder(B, LeaseRole.COPY) is None
        now.now_ms = lease.expires_at_ms
        assert work.holder(A, LeaseRole.COPY) is None
        work.release(_claim(work))
        assert work.holder(A, LeaseRole.COPY) is None

    def test_an_expired_lease_is_renewed_if_nobody_claimed(self, work, now):
        work.save_plan("run-1", [planned(A)])
        lease = _claim(work)
        now.advance(5 * LEASE_MS)
        assert work.renew(lease, lease_ms=LEASE_MS).expires_at_ms == now.now_ms + LEASE_MS

    def test_a_lease_that_was_taken_over_is_lost(self, work, now):
        work.save_plan("run-1", [planned(A)])
        lease = _claim(work)
        now.advance(LEASE_MS)
        new = _claim(work, "batch-2")
        with pytest.raises(LeaseLostError):
            work.renew(lease, lease_ms=LEASE_MS)
        with pytest.raises(LeaseLostError):
            work.record_outcome(lease, _item(A, 0, SegmentOutcome.COPIED))
        work.release(lease)
        assert work.renew(new, lease_ms=LEASE_MS).fence == new.fence

    def test_a_lease_that_was_given_back_is_lost(self, work):
        work.save_plan("run-1", [planned(A)])
        lease = _claim(work)
        work.release(lease)
        work.release(lease)
        with pytest.raises(LeaseLostError):
            work.renew(lease, lease_ms=LEASE_MS)
        with pytest.raises(LeaseLostError):
            work.record_outcome(lease, _item(A, 0, SegmentOutcome.COPIED))


class TestOutcomes:
    def test_remaining_shrinks(self, work):
        work.save_plan("run-1", [planned(A, 3)])
        lease = _claim(work)
        work.record_outcome(lease, _item(A, 0, SegmentOutcome.COPIED, segment_id="x" * 22))
        assert [one.base_offset for one in work.remaining(lease)] == [100, 200]
        assert work.items("run-1")[0].segment_id == "x" * 22

    def test_a_failed_segment_stops_its_partition_in_this_run(self, work):
        for run_id in ("run-1", "run-2"):
            work.save_plan(run_id, [planned(A, 2)])
        lease = _claim(work)
        failed = _item(
            A, 0, SegmentOutcome.FAILED, path="/logs/a-0/0.log", position=2**40, error="CorruptFileError", message="bad"
        )
        work.record_outcome(lease, failed)
        work.release(lease)
        assert work.items("run-1")[0] == failed
        assert not work.has_work("run-1")
        assert _claim(work) is None
        assert _claim(work, run_id="run-2") is not None

    def test_repeating_an_outcome_is_harmless_changing_it_is_not(self, work):
        work.save_plan("run-1", [planned(A)])
        lease = _claim(work)
        work.record_outcome(lease, _item(A, 0, SegmentOutcome.COPIED, segment_id="x" * 22))
        work.record_outcome(lease, _item(A, 0, SegmentOutcome.COPIED, segment_id="x" * 22))
        with pytest.raises(StateConflictError, match="copied already"):
            work.record_outcome(lease, _item(A, 0, SegmentOutcome.FAILED))
        assert work.items("run-1")[0].outcome is SegmentOutcome.COPIED

    def test_what_is_left_says_why_until_it_has_an_outcome(self, work):
        work.save_plan("run-1", [planned(A, 3), planned(B)])
        lease = _claim(work)
        work.record_outcome(lease, _item(A, 0, SegmentOutcome.COPIED))
        work.record_left_reason("run-1", A, error="QuotaExceededError", message="too\nmuch")
        work.record_left_reason("run-9", B, error="QuotaExceededError", message="of another run")
        assert [(one.outcome, one.error, one.message) for one in work.items("run-1")] == [
            (SegmentOutcome.COPIED, None, None),
            (SegmentOutcome.PLANNED, "QuotaExceededError", "too\\nmuch"),
            (SegmentOutcome.PLANNED, "QuotaExceededError", "too\\nmuch"),
            (SegmentOutcome.PLANNED, None, None),
        ]
        work.record_outcome(lease, _item(A, 1, SegmentOutcome.COPIED))
        assert work.items("run-1")[1].error is None
        assert len(work.remaining(lease)) == 1

    def test_a_segment_that_was_not_planned(self, work):
        work.save_plan("run-1", [planned(A)])
        with pytest.raises(StateConflictError, match="no segment 100"):
            work.record_outcome(_claim(work), _item(A, 1, SegmentOutcome.COPIED))

    def test_hostile_text_is_stored_printable_and_bounded(self, work):
        work.save_plan("run-1", [planned(A)])
        lease = _claim(work)
        hostile = _item(A, 0, SegmentOutcome.FAILED, path="a\udcff\x00\x1b[2J", message="m" * 100_000)
        work.record_outcome(lease, hostile)
        work.record_outcome(lease, hostile)
        (item,) = work.items("run-1")
        assert item.path == "a\\udcff\\x00\\x1b[2J"
        assert len(item.message) == 2_000


class TestProgress:
    def test_the_last_report_of_each_batch_in_order_of_begin(self, work, now):
        began_ms = now.now_ms
        work.report_progress(_progress("late", done_bytes=1, updated_at_ms=5))
        now.advance(10)
        work.report_progress(_progress("early"))
        now.advance(10)
        work.report_progress(_progress("late", done_bytes=7, bytes_per_second=2.5, finished=True, partition="b-1"))
        late, early = work.progress("run-1")
        assert late == _progress(
            "late",
            done_bytes=7,
            bytes_per_second=2.5,
            finished=True,
            partition="b-1",
            started_at_ms=began_ms,
            updated_at_ms=now.now_ms,
        )
        assert early.batch_id == "early"
        assert work.progress("run-2") == []

    def test_live_are_those_that_reported_lately_oldest_first(self, work, now):
        for batch_id in ("b", "a", "c"):
            work.report_progress(_progress(batch_id, run_id=f"run-of-{batch_id}"))
            now.advance(1)
        assert work.live_batches("remote_log_copier") == ["b", "a", "c"]
        work.report_progress(_progress("a", run_id="run-of-a", finished=True))
        assert work.live_batches("remote_log_copier") == ["b", "c"]
        now.advance(LIVE_BATCH_MS - 3)
        assert work.live_batches("remote_log_copier") == ["b", "c"]
        now.advance(1)
        assert work.live_batches("remote_log_copier") == ["c"]
        work.report_progress(_progress("b", run_id="run-of-b"))
        assert work.live_batches("remote_log_copier") == ["b", "c"]

    def test_live_by_pool(self, work):
        work.report_progress(_progress("copier"))
        work.report_progress(_progress("reader", pool="remote_log_reader"))
        work.report_progress(_progress("inline", pool=None))
        assert work.live_batches("remote_log_reader") == ["reader"]
        assert work.live_batches("remote_log_copier") == ["copier"]
        assert [(report.batch_id, report.pool) for report in work.running_batches()] == [
            ("copier", "remote_log_copier"),
            ("inline", None),
            ("reader", "remote_log_reader"),
        ]
        work.report_progress(_progress("inline", pool=None, finished=True))
        assert [report.batch_id for report in work.running_batches()] == ["copier", "reader"]


class TestSwitches:
    def test_pauses_are_lifted_one_by_one(self, work):
        assert work.paused_topics() == frozenset()
        for topic in ("a", None, "b", "a"):
            work.pause(topic, author="ops")
        assert work.paused_topics() == {"a", "b", ALL_TOPICS}
        work.resume(None, author="ops")
        assert work.paused_topics() == {"a", "b"}
        work.resume("a", author="ops")
        work.resume("never paused", author="ops")
        assert work.paused_topics() == {"b"}

    def test_the_size_of_a_pool_is_the_one_that_was_seen_last(self, work, engine):
        assert work.pool_size("remote_log_copier") is None
        mirror = SqlPoolMirror(engine, CLUSTER_ID)
        for seen, slots in pairwise((None, 2, 0, 10)):
            mirror.record("remote_log_copier", present(slots), seen=seen, author="x")
            assert work.pool_size("remote_log_copier") == slots

    def test_events_name_what_was_done_by_whom(self, work, engine, now):
        work.pause("a", author="ops")
        work.pause("a", author="somebody else")
        work.resume("a", author="ops\n")
        with engine.connect() as connection:
            found = connection.execute(select(events).order_by(events.c.event_id)).all()
        assert [(row.kind, row.subject, row.detail, row.author) for row in found] == [
            ("pause", "a", "", "ops"),
            ("resume", "a", "", "ops\\n"),
        ]
        assert {row.occurred_at_ms for row in found} == {now.now_ms}


def test_without_a_clock_given_leases_follow_the_database(engine):
    work = SqlWorkStore(engine, CLUSTER_ID)
    work.save_plan("run-1", [planned(A)])
    assert work.claim("run-1", "batch-1", lease_ms=0) is not None
    assert work.claim("run-1", "batch-2", lease_ms=3_600_000) is not None
    assert work.claim("run-1", "batch-3", lease_ms=3_600_000) is None


RACK_A, RACK_B, FAST = Placement("rack-a"), Placement("rack-b"), Placement("rack-a", "local_disk")


class TestPlacement:
    @pytest.fixture(autouse=True)
    def _planned(self, work):
        """One partition of each placement, the most urgent of them in rack b."""
        placed = {A: ANYWHERE, B: RACK_A, C: RACK_B, D: FAST}
        work.save_plan(
            "run-1",
            [replace(planned(one, urgency=2 if one == C else 1), placement=where) for one, where in placed.items()],
        )

    @pytest.mark.parametrize(("placement", "expected"), [(ANYWHERE, A), (RACK_A, B), (RACK_B, C), (FAST, D)])
    def test_a_batch_gets_partitions_of_its_placement_alone(self, work, placement, expected):
        lease = _claim(work, placement=placement)
        assert lease.replica_id.topic_id_partition == expected
        assert _claim(work, "batch-2", placement=placement) is None
        assert _claim(work, "batch-2", placement=Placement("rack-c")) is None

    def test_without_a_placement_all_are_claimed_in_order_of_urgency(self, work):
        leases = [_claim(work, f"batch-{number}") for number in range(4)]
        assert [lease.replica_id.topic_id_partition for lease in leases] == [C, A, B, D]
        assert _claim(work, "batch-5") is None

    def test_work_is_asked_for_by_placement(self, work):
        assert work.has_work("run-1", RACK_B)
        assert not work.has_work("run-1", Placement("rack-b", "local_disk"))
        lease = _claim(work, placement=RACK_B)
        work.record_outcome(lease, _item(C, 0, SegmentOutcome.COPIED))
        assert not work.has_work("run-1", RACK_B)
        assert work.has_work("run-1")

    def test_another_placement_is_another_plan(self, work):
        work.save_plan("run-2", [planned(A)])
        with pytest.raises(StateConflictError, match="run-2"):
            work.save_plan("run-2", [replace(planned(A), placement=RACK_A)])
