"""Leases of many batches against a plain model: claims, renewals, deaths, pauses and outcomes in any order."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from include.tiering.errors import LeaseLostError, TieringError
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.contract import ClaimOrder, Lease, PlannedPartition, SegmentOutcome, WorkItem
from include.tiering.runs.store import SqlWorkStore
from tests.doubles.databases import AdjustableNow, empty, memory_engine
from tests.doubles.segments import CLUSTER_ID, partition_of, planned

PARTITIONS = (partition_of("a"), partition_of("b"), partition_of("c"))
RUNS = ("run-1", "run-2")
BATCHES = ("batch-1", "batch-2", "batch-3")
LEASE_MS = 100
SEGMENTS = 3

runs, batches, partitions = st.sampled_from(RUNS), st.sampled_from(BATCHES), st.sampled_from(PARTITIONS)


@dataclass
class Held:
    """The last lease of a partition; `until_ms` is 0 once it was given back."""

    token: int = 0
    run_id: str = ""
    batch_id: str = ""
    until_ms: int = 0


@dataclass
class Planned:
    """One partition in one run."""

    plan: PlannedPartition
    outcomes: list[SegmentOutcome] = field(default_factory=lambda: [SegmentOutcome.PLANNED] * SEGMENTS)
    claimed_at_ms: int = 0

    @property
    def has_work(self) -> bool:
        return SegmentOutcome.PLANNED in self.outcomes and SegmentOutcome.FAILED not in self.outcomes


class Leases(RuleBasedStateMachine):
    """Each rule does what some batch may do, and expects what the model says."""

    leases: Bundle[Lease] = Bundle("leases")

    @initialize(urgencies=st.lists(st.integers(0, 2), min_size=6, max_size=6))
    def begin(self, urgencies: list[int]) -> None:
        empty(memory_engine())
        self.now = AdjustableNow()
        self.work = SqlWorkStore(memory_engine(), CLUSTER_ID, now_ms=self.now)
        self.held = {partition: Held() for partition in PARTITIONS}
        self.paused: set[str | None] = set()
        self.plans: dict[str, dict[TopicIdPartition, Planned]] = {}
        for run_id in RUNS:
            plans = [planned(partition, SEGMENTS, urgency=urgencies.pop()) for partition in PARTITIONS]
            self.work.save_plan(run_id, plans)
            self.plans[run_id] = {plan.replica_id.topic_id_partition: Planned(plan) for plan in plans}

    @rule(
        target=leases,
        run_id=runs,
        batch_id=batches,
        excluded=st.sets(partitions, max_size=1),
        order=st.sampled_from(ClaimOrder),
    )
    def claim(self, run_id: str, batch_id: str, excluded: set[TopicIdPartition], order: ClaimOrder) -> Any:
        lease = self.work.claim(run_id, batch_id, lease_ms=LEASE_MS, exclude=excluded, order=order)
        expected = self._first(run_id, batch_id, excluded, order)
        assert (None if lease is None else lease.fence.topic_id_partition) == expected
        if lease is None or expected is None:
            return None
        held = self.held[expected]
        assert lease.fence.token > held.token
        assert lease.expires_at_ms == self.now.now_ms + LEASE_MS
        self.held[expected] = Held(lease.fence.token, run_id, batch_id, lease.expires_at_ms)
        self.plans[run_id][expected].claimed_at_ms = self.now.now_ms
        return lease

    @rule(lease=leases, excluded=st.sets(partitions, max_size=1))
    def waits_longer(self, lease: Lease | None, excluded: set[TopicIdPartition]) -> None:
        if lease is None:
            return
        plans, held = self.plans[lease.run_id], self.held[lease.fence.topic_id_partition]
        waiting = any(
            plans[partition].claimed_at_ms < plans[lease.fence.topic_id_partition].claimed_at_ms
            for partition in self._claimable(lease.run_id, lease.batch_id, excluded)
        )
        expected = waiting and held.token == lease.fence.token
        assert self.work.waits_longer(lease, exclude=excluded) is expected

    @rule(lease=leases)
    def renew(self, lease: Lease | None) -> None:
        if lease is None:
            return
        if self._is_lost(lease):
            with pytest.raises(LeaseLostError):
                self.work.renew(lease, lease_ms=LEASE_MS)
            return
        renewed = self.work.renew(lease, lease_ms=LEASE_MS)
        self.held[lease.fence.topic_id_partition].until_ms = renewed.expires_at_ms
        assert renewed.expires_at_ms == self.now.now_ms + LEASE_MS

    @rule(lease=leases)
    def release(self, lease: Lease | None) -> None:
        if lease is None:
            return
        self.work.release(lease)
        if not self._is_lost(lease):
            self.held[lease.fence.topic_id_partition].until_ms = 0

    @rule(
        lease=leases,
        index=st.integers(0, SEGMENTS),
        outcome=st.sampled_from([SegmentOutcome.COPIED, SegmentOutcome.SKIPPED, SegmentOutcome.FAILED]),
    )
    def record(self, lease: Lease | None, index: int, outcome: SegmentOutcome) -> None:
        if lease is None:
            return
        partition = lease.fence.topic_id_partition
        item = WorkItem(partition, planned(partition, SEGMENTS + 1).segments[index], outcome)
        outcomes = self.plans[lease.run_id][partition].outcomes
        known = outcomes[index] if index < SEGMENTS else None
        if self._is_lost(lease) or known not in (SegmentOutcome.PLANNED, outcome):
            with pytest.raises(LeaseLostError if self._is_lost(lease) else TieringError):
                self.work.record_outcome(lease, item)
            return
        self.work.record_outcome(lease, item)
        outcomes[index] = outcome

    @rule(milliseconds=st.sampled_from([1, LEASE_MS - 1, LEASE_MS]))
    def time_passes(self, milliseconds: int) -> None:
        self.now.advance(milliseconds)

    @rule(topic=st.sampled_from(["a", "b", None]))
    def pause_or_resume(self, topic: str | None) -> None:
        if topic in self.paused:
            self.work.resume(topic, author="ops")
            self.paused.remove(topic)
        else:
            self.work.pause(topic, author="ops")
            self.paused.add(topic)

    @invariant()
    def outcomes_agree_with_the_model(self) -> None:
        for run_id, plans in self.plans.items():
            expected = [outcome for partition in PARTITIONS for outcome in plans[partition].outcomes]
            assert [item.outcome for item in self.work.items(run_id)] == expected
            assert self.work.has_work(run_id) is any(plan.has_work for plan in plans.values())

    def _is_lost(self, lease: Lease) -> bool:
        held = self.held[lease.fence.topic_id_partition]
        return held.token != lease.fence.token or held.until_ms == 0

    def _first(
        self, run_id: str, batch_id: str, excluded: set[TopicIdPartition], order: ClaimOrder
    ) -> TopicIdPartition | None:
        def place(partition: TopicIdPartition) -> tuple[float, float, str]:
            one = self.plans[run_id][partition]
            if order is ClaimOrder.URGENCY:
                return -one.plan.urgency, one.claimed_at_ms, partition.topic
            return one.claimed_at_ms, -one.plan.urgency, partition.topic

        return min(self._claimable(run_id, batch_id, excluded), key=place, default=None)

    def _claimable(self, run_id: str, batch_id: str, excluded: set[TopicIdPartition]) -> list[TopicIdPartition]:
        return [
            partition
            for partition, one in self.plans[run_id].items()
            if one.has_work
            and partition not in excluded
            and not {partition.topic, None} & self.paused
            and self._is_free(self.held[partition], run_id, batch_id)
        ]

    def _is_free(self, held: Held, run_id: str, batch_id: str) -> bool:
        return held.until_ms <= self.now.now_ms or (held.run_id, held.batch_id) == (run_id, batch_id)


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=25, stateful_step_count=30)
