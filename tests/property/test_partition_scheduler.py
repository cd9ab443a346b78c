"""No partition starves: batches claim partitions fairly over the real store, under an exhausted quota."""

from hypothesis import given, settings
from hypothesis import strategies as st

from include.tiering.copying.scheduling import EXHAUSTED_SECONDS, PartitionScheduler
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.contract import Lease
from include.tiering.runs.store import SqlWorkStore
from tests.doubles.databases import AdjustableNow, empty, memory_engine
from tests.doubles.segments import CLUSTER_ID, partition_of, planned

LEASE_MS = 1_000_000
NONE_EXCLUDED: frozenset[TopicIdPartition] = frozenset()


def rounds_of(urgencies: list[int], slots: int, rounds: int, *, fairness: bool = True) -> list[set[str]]:
    """Topics that get a segment in each round, in which every slot copies one. All of them have work without end."""
    empty(memory_engine())
    now = AdjustableNow()
    work = SqlWorkStore(memory_engine(), CLUSTER_ID, now_ms=now)
    work.save_plan("run", [planned(partition_of(f"t{n}"), urgency=urgency) for n, urgency in enumerate(urgencies)])
    schedulers = [
        PartitionScheduler(work, "run", f"run/{slot}", lease_ms=LEASE_MS, placement=None, fairness=fairness)
        for slot in range(slots)
    ]
    leases: list[Lease | None] = [None] * slots
    copied: list[set[str]] = []
    for _ in range(rounds):
        copied.append(set())
        for slot, scheduler in enumerate(schedulers):
            lease = leases[slot] or scheduler.claim(NONE_EXCLUDED)
            leases[slot] = lease
            now.advance(1)
            if lease is not None:
                copied[-1].add(lease.replica_id.topic_id_partition.topic)
                if scheduler.hand_on(lease, EXHAUSTED_SECONDS, NONE_EXCLUDED):
                    work.release(lease)
                    leases[slot] = None
    return copied


@settings(max_examples=10, deadline=None)
@given(urgencies=st.lists(st.integers(0, 3), min_size=1, max_size=5), slots=st.integers(1, 3))
def test_every_partition_gets_a_segment_within_two_rounds_for_each_partition(urgencies, slots):
    longest = 2 * len(urgencies)
    copied = rounds_of(urgencies, slots, rounds=2 * longest)
    for topic in {f"t{n}" for n in range(len(urgencies))}:
        for first in range(len(copied) - longest + 1):
            assert any(topic in round_ for round_ in copied[first : first + longest])


@settings(max_examples=5, deadline=None)
@given(others=st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_the_most_urgent_partition_keeps_every_second_segment_of_one_slot(others):
    copied = rounds_of([9, *others], slots=1, rounds=12)
    assert copied[::2] == [{"t0"}] * 6
    assert {"t0"} not in copied[1::2]


@settings(max_examples=10, deadline=None)
@given(urgencies=st.lists(st.integers(0, 3), min_size=2, max_size=5))
def test_with_fairness_off_one_partition_keeps_the_slot(urgencies):
    copied = rounds_of(urgencies, slots=1, rounds=10, fairness=False)
    assert copied == [{f"t{urgencies.index(max(urgencies))}"}] * 10
