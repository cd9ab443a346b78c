"""The partition scheduler over a store that returns what the test says and records its calls."""

from dataclasses import dataclass, field

import pytest

from include.tiering.copying.copy_batch import EXHAUSTED_SECONDS, PartitionScheduler
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.ownership import Fence
from include.tiering.model.segments import TopicIdPartition
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.runs.contract import ANYWHERE, ClaimOrder, Lease, WorkStore
from tests.doubles.partial import Partial
from tests.doubles.present import present
from tests.doubles.segments import partition_of
from tests.doubles.storage_segments import CountingLimiter

A, B = partition_of("a"), partition_of("b")
URGENCY, LONGEST_WAIT = ClaimOrder.URGENCY, ClaimOrder.LONGEST_WAIT
EXHAUSTED = CountingLimiter(waited_seconds=EXHAUSTED_SECONDS)
NONE_EXCLUDED: frozenset[TopicIdPartition] = frozenset()


def lease_of(partition: TopicIdPartition) -> Lease:
    fence = Fence(partition, 1)
    return Lease(
        run_id="run", batch_id="run/0", replica_id=ReplicaId(partition, 1, "dir"), fence=fence, expires_at_ms=0
    )


@dataclass
class Answers(Partial):
    """The claim and fairness half of a `WorkStore`. `claimable` is what is left to claim, in order."""

    claimable: list[TopicIdPartition]
    others_wait: bool = True
    claims: list[tuple[ClaimOrder, set[TopicIdPartition]]] = field(default_factory=list)
    questions: list[set[TopicIdPartition]] = field(default_factory=list)

    def claim(self, run_id, batch_id, *, lease_ms, exclude, placement, order):
        assert (run_id, batch_id, lease_ms, placement) == ("run", "run/0", 30_000, ANYWHERE)
        self.claims.append((order, set(exclude)))
        return next((lease_of(partition) for partition in self.claimable if partition not in exclude), None)

    def waits_longer(self, lease, *, exclude, placement):
        assert placement == ANYWHERE
        self.questions.append(set(exclude))
        return self.others_wait


def scheduler_over(work: WorkStore, *, fairness: bool = True) -> PartitionScheduler:
    return PartitionScheduler(work, "run", "run/0", lease_ms=30_000, placement=ANYWHERE, fairness=fairness)


def test_turns_alternate_between_wait_and_urgency():
    work = Answers([A, B])
    scheduler = scheduler_over(work)
    for _ in range(4):
        assert scheduler.hand_on(present(scheduler.claim(NONE_EXCLUDED)), EXHAUSTED, NONE_EXCLUDED)
    assert work.claims == [(URGENCY, set()), (LONGEST_WAIT, {A}), (URGENCY, {B}), (LONGEST_WAIT, {A})]


def test_after_a_partition_that_was_finished_the_most_urgent_is_next():
    work = Answers([A, B])
    scheduler = scheduler_over(work)
    scheduler.hand_on(present(scheduler.claim(NONE_EXCLUDED)), EXHAUSTED, NONE_EXCLUDED)
    scheduler.claim(NONE_EXCLUDED)
    scheduler.claim(NONE_EXCLUDED)
    assert work.claims[-2:] == [(LONGEST_WAIT, {A}), (URGENCY, set())]


def test_what_was_handed_on_is_claimed_again_if_nothing_else_is_left():
    work = Answers([A])
    scheduler = scheduler_over(work)
    scheduler.hand_on(present(scheduler.claim(NONE_EXCLUDED)), EXHAUSTED, NONE_EXCLUDED)
    assert scheduler.claim(NONE_EXCLUDED) == lease_of(A)
    assert work.claims[-2:] == [(LONGEST_WAIT, {A}), (URGENCY, set())]


def test_what_the_batch_may_not_take_is_neither_claimed_nor_asked_for():
    work = Answers([A, B])
    scheduler = scheduler_over(work)
    scheduler.hand_on(present(scheduler.claim(NONE_EXCLUDED)), EXHAUSTED, frozenset({B}))
    assert scheduler.claim(frozenset({B})) == lease_of(A)
    assert work.questions == [{B}]
    assert work.claims[-2:] == [(LONGEST_WAIT, {A, B}), (URGENCY, {B})]


@pytest.mark.parametrize(
    ("limiter", "fairness"),
    [
        (UnlimitedBytes(), True),
        (CountingLimiter(waited_seconds=EXHAUSTED_SECONDS - 0.001), True),
        (EXHAUSTED, False),
    ],
    ids=["nothing waited", "hardly anything waited", "fairness is off"],
)
def test_without_an_exhausted_quota_or_with_fairness_off_the_store_is_not_even_asked(limiter, fairness):
    work = Answers([A, B])
    scheduler = scheduler_over(work, fairness=fairness)
    assert not scheduler.hand_on(present(scheduler.claim(NONE_EXCLUDED)), limiter, NONE_EXCLUDED)
    assert work.questions == []


def test_nobody_who_waits_longer_means_going_on():
    work = Answers([A, B], others_wait=False)
    scheduler = scheduler_over(work)
    assert not scheduler.hand_on(present(scheduler.claim(NONE_EXCLUDED)), EXHAUSTED, NONE_EXCLUDED)
    assert scheduler.claim(NONE_EXCLUDED) == lease_of(A)
