"""The order of partitions, admission by topic quotas, and work that was left."""

from dataclasses import dataclass, field

import pytest

from include.tiering.copying.plan import LeftBecause, left_work
from include.tiering.copying.scheduling import EXHAUSTED_SECONDS, PartitionScheduler, TopicAdmission
from include.tiering.errors import MetadataUnavailableError, QuotaExceededError
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.ownership import Fence
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.quotas.contract import copy_scopes
from include.tiering.quotas.topic_quotas import Admission, NoTopicQuotas
from include.tiering.runs.contract import (
    ALL_TOPICS,
    ANYWHERE,
    ClaimOrder,
    Lease,
    LeaseHolder,
    PlannedSegment,
    SegmentOutcome,
    WorkItem,
    WorkStore,
)
from tests.doubles.manual_clock import ManualClock
from tests.doubles.partial import Partial
from tests.doubles.present import present
from tests.doubles.segments import partition_of

# The partition scheduler over a store that returns what the test says and records its calls.

A, B = partition_of("a"), partition_of("b")
URGENCY, LONGEST_WAIT = ClaimOrder.URGENCY, ClaimOrder.LONGEST_WAIT
EXHAUSTED = EXHAUSTED_SECONDS
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
    passed_over: list[tuple[set[str], set[int]]] = field(default_factory=list)
    questions: list[set[TopicIdPartition]] = field(default_factory=list)

    def claim(self, run_id, batch_id, *, lease_ms, exclude, exclude_topics, exclude_brokers, placement, order):
        assert (run_id, batch_id, lease_ms, placement) == ("run", "run/0", 30_000, ANYWHERE)
        self.claims.append((order, set(exclude)))
        self.passed_over.append((set(exclude_topics), set(exclude_brokers)))
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


def test_scopes_whose_quota_is_exhausted_are_passed_over():
    work = Answers([A, B])
    total, broker, topic = copy_scopes(7, "a")
    scheduler_over(work).claim(NONE_EXCLUDED, frozenset({broker, topic}))
    scheduler_over(work).claim(NONE_EXCLUDED, frozenset({total}))
    assert work.passed_over == [({"a"}, {7}), (set(), set())]


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
    ("waited_seconds", "fairness"),
    [
        (0.0, True),
        (EXHAUSTED_SECONDS - 0.001, True),
        (EXHAUSTED, False),
    ],
    ids=["nothing waited", "hardly anything waited", "fairness is off"],
)
def test_without_an_exhausted_quota_or_with_fairness_off_the_store_is_not_even_asked(waited_seconds, fairness):
    work = Answers([A, B])
    scheduler = scheduler_over(work, fairness=fairness)
    assert not scheduler.hand_on(present(scheduler.claim(NONE_EXCLUDED)), waited_seconds, NONE_EXCLUDED)
    assert work.questions == []


def test_nobody_who_waits_longer_means_going_on():
    work = Answers([A, B], others_wait=False)
    scheduler = scheduler_over(work)
    assert not scheduler.hand_on(present(scheduler.claim(NONE_EXCLUDED)), EXHAUSTED, NONE_EXCLUDED)
    assert scheduler.claim(NONE_EXCLUDED) == lease_of(A)


# Back-offs of refused topics, on a clock that is moved by hand.

SEGMENT = PlannedSegment(100, 149, 4_000)


class ScriptedQuotas(NoTopicQuotas):
    """Refuses the topics of `refused`; remembers who asked and what was told."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.asked: list[tuple[int, str, int, int]] = []
        self.told: list[str] = []
        self.away = False

    def admit(self, broker_id: int, topic: str, *, size_bytes: int, records: int) -> Admission:
        self.asked.append((broker_id, topic, size_bytes, records))
        if topic in self.refused:
            raise QuotaExceededError(
                broker_id, topic, topic_rate=2, topic_threshold=1, total_rate=20, total_threshold=10
            )
        return super().admit(broker_id, topic, size_bytes=size_bytes, records=records)

    def accepted(self, admission: Admission) -> None:
        self.told.append(f"accepted {admission.topic}")

    def failed(self, admission: Admission) -> None:
        if self.away:
            raise MetadataUnavailableError("database away")
        self.told.append(f"failed {admission.topic}")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def quotas() -> ScriptedQuotas:
    return ScriptedQuotas()


@pytest.fixture
def admission(quotas: ScriptedQuotas, clock: ManualClock) -> TopicAdmission:
    return TopicAdmission(quotas, clock)


def replica(topic: str, partition: int = 0, broker_id: int = 1) -> ReplicaId:
    return ReplicaId(partition_of(topic, partition), broker_id, "directory")


def copy(admission: TopicAdmission, of: ReplicaId) -> bool:
    try:
        admission.admit(of, SEGMENT)
        return True
    except QuotaExceededError:
        return False


def test_asks_with_the_log_bytes_and_the_offsets_and_tells_how_it_ended(admission, quotas):
    assert copy(admission, replica("orders"))
    admission.failed(admission.admit(replica("clicks"), SEGMENT))
    assert quotas.asked == [(1, "orders", 4_000, 50), (1, "clicks", 4_000, 50)]
    assert quotas.told == ["failed clicks"]


def test_what_ended_a_copy_is_not_hidden_by_a_database_that_is_away(admission, quotas):
    quotas.away = True
    admission.failed(admission.admit(replica("clicks"), SEGMENT))


def test_back_offs_double_up_to_thirty_seconds(admission, quotas, clock):
    quotas.refused.add("orders")
    waited = []
    for _ in range(7):
        assert not copy(admission, replica("orders"))
        began = clock.monotonic()
        while admission.waiting():
            clock.advance(0.5)
        waited.append(clock.monotonic() - began)
    assert waited == [1, 2, 4, 8, 16, 30, 30]


def test_an_admission_ends_the_back_off(admission, quotas, clock):
    quotas.refused.add("orders")
    for _ in range(3):
        copy(admission, replica("orders"))
    quotas.refused.clear()
    assert copy(admission, replica("orders"))
    assert (admission.waiting(), admission.throttled()) == (frozenset(), {})
    quotas.refused.add("orders")
    copy(admission, replica("orders"))
    clock.advance(1.0)
    assert admission.waiting() == frozenset()


def test_the_topics_other_partitions_on_that_broker_wait_without_asking(admission, quotas, clock):
    quotas.refused.add("orders")
    copy(admission, replica("orders", 0))
    held = {
        name: admission.must_wait(of)
        for name, of in {
            "other partition": replica("orders", 1),
            "other broker": replica("orders", 2, broker_id=2),
            "other topic": replica("clicks"),
        }.items()
    }
    assert held == {"other partition": True, "other broker": False, "other topic": False}
    waiting = {partition_of("orders", 0), partition_of("orders", 1)}
    assert (admission.waiting(), set(admission.throttled())) == (waiting, waiting)
    clock.advance(1.0)
    assert not admission.must_wait(replica("orders", 1))
    assert (admission.waiting(), set(admission.throttled())) == (frozenset(), waiting)
    assert len(quotas.asked) == 1


# Every segment that a run left has one reason, the first that shows; without any it is a finding.

FIRST, SECOND = partition_of("a"), partition_of("b")
HOLDER = LeaseHolder("run-2", "batch-2", 1_700_000_000_000, 1_700_000_030_000, 5)
PLANNED, COPIED, FAILED = SegmentOutcome.PLANNED, SegmentOutcome.COPIED, SegmentOutcome.FAILED


def item(number: int, outcome: SegmentOutcome = PLANNED, partition=FIRST, *, supersedes: Uuid | None = None, **rest):
    return WorkItem(partition, PlannedSegment(10 * number, 10 * number + 9, 100, supersedes), outcome, **rest)


def reasons(*items: WorkItem, holder=None, highest=None, paused=(), ended_early=False) -> list[LeftBecause]:
    found = left_work(
        items,
        holder=lambda _: holder,
        highest_copied=lambda _: highest,
        paused=paused,
        ended_early=ended_early,
    )
    return [one.reason for one in found]


def test_what_has_an_outcome_is_not_left():
    assert reasons(item(0, COPIED), item(1, FAILED)) == []


@pytest.mark.parametrize(
    ("items", "given", "reason"),
    [
        ((item(0),), {}, LeftBecause.UNKNOWN),
        ((item(0),), {"paused": {"b"}}, LeftBecause.UNKNOWN),
        ((item(0),), {"ended_early": True}, LeftBecause.ENDED),
        ((item(0),), {"paused": {"a"}, "ended_early": True}, LeftBecause.PAUSED),
        ((item(0),), {"paused": {ALL_TOPICS}}, LeftBecause.PAUSED),
        ((item(0),), {"holder": HOLDER, "paused": {"a"}}, LeftBecause.HELD),
        ((item(0),), {"holder": HOLDER, "highest": 9}, LeftBecause.COPIED),
        ((item(0), item(1)), {"highest": 9}, LeftBecause.UNKNOWN),
        ((item(0, supersedes=Uuid(b"0123456789abcdef")),), {"highest": 9}, LeftBecause.UNKNOWN),
        ((item(0, error="QuotaExceededError", message="too much"),), {"holder": HOLDER}, LeftBecause.THROTTLED),
        ((item(0, FAILED), item(1)), {"holder": HOLDER}, LeftBecause.FAILED),
    ],
)
def test_the_first_reason_that_shows(items, given, reason):
    assert reasons(*items, **given) == [reason]


def test_each_partition_by_itself():
    left = left_work(
        [item(0), item(1), item(0, FAILED, SECOND), item(1, PLANNED, SECOND)],
        holder=lambda partition: HOLDER if partition == FIRST else None,
        highest_copied=lambda _: None,
        paused=(),
        ended_early=False,
    )
    assert [(one.topic_id_partition, one.segments, one.size_bytes, one.reason, one.is_explained) for one in left] == [
        (FIRST, 2, 200, LeftBecause.HELD, True),
        (SECOND, 1, 100, LeftBecause.FAILED, True),
    ]
    assert str(left[0]) == (
        "another batch holds the partition: batch-2 of run run-2, until 2023-11-14 22:13:50 UTC unless it renews"
    )
