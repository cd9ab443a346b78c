"""Which replica is chosen, and which of its segments are eligible."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.kafka.cluster.contract import PartitionMetadata, TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.kafka.log_dirs.dirs import DirIdentity
from include.tiering.kafka.log_dirs.evaluate_replicas import refusals
from include.tiering.kafka.log_dirs.files import DirectoryState
from include.tiering.kafka.log_dirs.found_replica import FoundReplica
from include.tiering.kafka.log_dirs.rules import (
    INTERNAL_TOPICS,
    Candidate,
    ReplicaBounds,
    is_replicated,
    segment_reasons,
    topic_refusal,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.doubles.log_dirs import ORDERS, directory_id

# Which segments may be copied: each reason, their order, and an oracle that is written another way round.

TOPIC_ID = Uuid(bytes(range(16)))
OPEN = ReplicaBounds(0, 1000, 1000, 1000, is_replicated=False)
GOOD = Candidate(100, 200, 5_000, active=False, has_leader_epoch=True, has_producer_snapshot=True)


def _topic_metadata(**configs: str) -> TopicMetadata:
    return TopicMetadata("orders", TOPIC_ID, {key.replace("_", "."): value for key, value in configs.items()})


def _reason(candidate: Candidate, bounds: ReplicaBounds = OPEN) -> IneligibleReason | None:
    return segment_reasons([candidate], bounds, None)[0]


def test_a_good_segment_is_eligible() -> None:
    assert _reason(GOOD) is None


@pytest.mark.parametrize(
    ("candidate", "bounds", "reason"),
    [
        (replace(GOOD, active=True), OPEN, IneligibleReason.ACTIVE),
        (GOOD, replace(OPEN, log_start_offset=200), IneligibleReason.BELOW_LOG_START),
        (GOOD, replace(OPEN, high_watermark=199), IneligibleReason.ABOVE_HIGH_WATERMARK),
        (GOOD, replace(OPEN, last_stable_offset=199), IneligibleReason.ABOVE_LAST_STABLE_OFFSET),
        (GOOD, replace(OPEN, recovery_point=199), IneligibleReason.NOT_FLUSHED),
        (GOOD, replace(OPEN, retention_cut_off_ms=5_001), IneligibleReason.PAST_RETENTION),
        (replace(GOOD, is_old_magic=True), OPEN, IneligibleReason.OLD_MAGIC),
        (replace(GOOD, has_leader_epoch=False), OPEN, IneligibleReason.NO_LEADER_EPOCH),
        (replace(GOOD, has_producer_snapshot=False), OPEN, IneligibleReason.NO_PRODUCER_SNAPSHOT),
        (replace(GOOD, is_unreadable=True, is_corrupt=True), OPEN, IneligibleReason.UNREADABLE),
        (replace(GOOD, is_corrupt=True), OPEN, IneligibleReason.CORRUPT),
        (replace(GOOD, is_compacted=True), OPEN, IneligibleReason.COMPACTED_SEGMENT),
        (
            replace(GOOD, is_compacted=True, has_leader_epoch=False, has_producer_snapshot=False),
            OPEN,
            IneligibleReason.COMPACTED_SEGMENT,
        ),
    ],
)
def test_each_reason(candidate: Candidate, bounds: ReplicaBounds, reason: IneligibleReason) -> None:
    assert _reason(candidate, bounds) is reason


@pytest.mark.parametrize(
    "bounds",
    [
        ReplicaBounds(199, 200, 200, 200, is_replicated=False),
        ReplicaBounds(0, 200, 200, 0, is_replicated=True),
        ReplicaBounds(0, 200, 200, 200, is_replicated=False, retention_cut_off_ms=5_000),
    ],
    ids=["touching all bounds", "not flushed but replicated", "as old as retention"],
)
def test_just_inside(bounds: ReplicaBounds) -> None:
    assert _reason(GOOD, bounds) is None


def test_an_unknown_timestamp_is_not_past_retention() -> None:
    assert _reason(replace(GOOD, max_timestamp_ms=-1), replace(OPEN, retention_cut_off_ms=10**15)) is None


def test_a_corrupt_segment_stops_all_behind_it() -> None:
    chain = [
        replace(GOOD, base_offset=base, next_base_offset=base + 100, is_corrupt=base == 200, active=base == 500)
        for base in range(0, 600, 100)
    ]
    assert segment_reasons(chain, OPEN, None) == [
        None,
        None,
        IneligibleReason.CORRUPT,
        IneligibleReason.AFTER_CORRUPT,
        IneligibleReason.AFTER_CORRUPT,
        IneligibleReason.ACTIVE,
    ]


def test_a_corrupt_segment_below_the_log_start_stops_nothing() -> None:
    chain = [replace(GOOD, base_offset=0, next_base_offset=100, is_corrupt=True), GOOD]
    assert segment_reasons(chain, replace(OPEN, log_start_offset=100), None) == [IneligibleReason.BELOW_LOG_START, None]


def test_a_compacted_segment_stops_itself_alone() -> None:
    bases = range(0, 500, 100)
    chain = [
        replace(
            GOOD, base_offset=base, next_base_offset=base + 100, is_compacted=base in (0, 100), is_corrupt=base == 300
        )
        for base in bases
    ]
    assert segment_reasons(chain, replace(OPEN, log_start_offset=100), None) == [
        IneligibleReason.BELOW_LOG_START,
        IneligibleReason.COMPACTED_SEGMENT,
        None,
        IneligibleReason.CORRUPT,
        IneligibleReason.AFTER_CORRUPT,
    ]


def test_a_refusal_of_the_replica_comes_first() -> None:
    chain = [replace(GOOD, is_corrupt=True), replace(GOOD, active=True)]
    assert segment_reasons(chain, OPEN, IneligibleReason.NOT_LEADER) == [IneligibleReason.NOT_LEADER] * 2


@st.composite
def _logs(draw: st.DrawFn) -> list[Candidate]:
    bases = sorted(draw(st.sets(st.integers(0, 30), min_size=2, max_size=7)))
    return [
        Candidate(
            base,
            next_base,
            draw(st.integers(-1, 10)),
            active=next_base == bases[-1],
            has_leader_epoch=draw(st.booleans()),
            has_producer_snapshot=draw(st.booleans()),
            is_unreadable=draw(st.booleans()),
            is_corrupt=draw(st.booleans()),
            is_old_magic=draw(st.booleans()),
        )
        for base, next_base in pairwise(bases)
    ]


_bounds = st.builds(
    ReplicaBounds,
    st.integers(0, 31),
    st.integers(0, 31),
    st.integers(0, 31),
    st.integers(0, 31),
    is_replicated=st.booleans(),
    retention_cut_off_ms=st.none() | st.integers(0, 10),
)


@given(_logs(), _bounds)
def test_eligible_is_exactly_what_the_rule_says(log: list[Candidate], bounds: ReplicaBounds) -> None:
    """Offset by offset: the rule about the last record of a segment, instead of about bounds."""
    for number, reason in enumerate(segment_reasons(log, bounds, None)):
        segment, last_offset = log[number], log[number].next_base_offset - 1
        damaged = [
            c
            for c in log[: number + 1]
            if (c.is_corrupt or c.is_unreadable) and c.next_base_offset - 1 >= bounds.log_start_offset
        ]
        expired = (
            bounds.retention_cut_off_ms is not None and 0 <= segment.max_timestamp_ms < bounds.retention_cut_off_ms
        )
        assert (reason is None) == (
            segment is not log[-1]
            and last_offset >= bounds.log_start_offset
            and last_offset < min(bounds.high_watermark, bounds.last_stable_offset)
            and (last_offset < bounds.recovery_point or bounds.is_replicated)
            and not expired
            and not segment.is_old_magic
            and segment.has_leader_epoch
            and segment.has_producer_snapshot
            and not damaged
        )


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_internal_topics_are_never_copied(topic: str) -> None:
    assert (
        topic_refusal(topic, _topic_metadata(), removed=False, named=True, cleaned=False)
        is IneligibleReason.INTERNAL_TOPIC
    )


@pytest.mark.parametrize(
    ("topic_metadata", "flags", "reason"),
    [
        (_topic_metadata(), {}, None),
        (_topic_metadata(cleanup_policy="delete"), {}, None),
        (_topic_metadata(cleanup_policy="compact"), {}, IneligibleReason.COMPACTED),
        (_topic_metadata(cleanup_policy="delete, compact"), {}, IneligibleReason.COMPACTED),
        (_topic_metadata(cleanup_policy="compact"), {"named": True}, IneligibleReason.COMPACTED),
        (_topic_metadata(remote_storage_enable="true"), {}, IneligibleReason.BROKER_TIERED),
        (_topic_metadata(remote_storage_enable="true"), {"named": True}, IneligibleReason.BROKER_TIERED),
        # Without a policy of its own the topic has the broker's static default: a cleaner checkpoint gives it away.
        (_topic_metadata(), {"cleaned": True}, IneligibleReason.COMPACTED),
        (_topic_metadata(cleanup_policy="delete"), {"cleaned": True}, None),
        (None, {}, IneligibleReason.TOPIC_UNKNOWN),
        (None, {"named": True}, None),
        (None, {"named": True, "cleaned": True}, IneligibleReason.COMPACTED),
        (None, {"named": True, "removed": True}, IneligibleReason.TOPIC_REMOVED),
    ],
)
def test_topics(topic_metadata: TopicMetadata | None, flags: dict[str, bool], reason: IneligibleReason | None) -> None:
    wanted = {"removed": False, "named": False, "cleaned": False} | flags
    assert topic_refusal("orders", topic_metadata, **wanted) is reason


@pytest.mark.parametrize(
    ("demanded", "isr", "replicated"),
    [("2", (1, 2), True), ("2", (1,), False), ("1", (1, 2), False), (None, (1, 2), False), ("x", (1, 2), False)],
)
def test_replicated_by_configuration_and_right_now(
    demanded: str | None, isr: tuple[int, ...], replicated: bool
) -> None:
    topic_metadata = _topic_metadata() if demanded is None else _topic_metadata(min_insync_replicas=demanded)
    assert is_replicated(topic_metadata, PartitionMetadata(0, 1, 0, (1, 2), isr)) is replicated
    assert not is_replicated(None, None)


# Which replica a copy may read.

NOT_LEADER = IneligibleReason.NOT_LEADER
AMBIGUOUS = IneligibleReason.AMBIGUOUS_REPLICA
UNASSIGNED = Uuid(bytes(15) + b"\x02")


def _replica(
    broker: int,
    *,
    directory: int | None = None,
    epoch: int = 3,
    end: int = 100,
    state: DirectoryState = DirectoryState.LIVE,
) -> FoundReplica:
    return FoundReplica(
        identity=DirIdentity("/d", "c", broker, str(directory_id(directory or broker))),
        directory_name="orders-0",
        state=state,
        topic_id_partition=TopicIdPartition(ORDERS, 0, "orders"),
        leader_epochs=LeaderEpochs.of([(epoch, 0)]) if epoch >= 0 else LeaderEpochs(),
        log_start_offset=0,
        log_end_offset=end,
        high_watermark=end,
        last_stable_offset=end,
        recovery_point=end,
        checkpointed_log_start=None,
        cleaned=False,
        segments=(),
    )


def _partition_metadata(
    leader: int, *, replicas: tuple[int, ...] = (1, 2), isr: tuple[int, ...] = (), directories: tuple[Uuid, ...] = ()
) -> PartitionMetadata:
    return PartitionMetadata(0, leader, 7, replicas, isr, directories)


@pytest.mark.parametrize(
    ("replicas", "partition_metadata", "expected"),
    [
        ([_replica(1), _replica(2)], _partition_metadata(2), [NOT_LEADER, None]),
        ([_replica(1), _replica(2, epoch=1, end=5)], _partition_metadata(2), [NOT_LEADER, None]),
        ([_replica(1)], _partition_metadata(2), [NOT_LEADER]),
        ([_replica(3)], _partition_metadata(3, replicas=(1, 2)), [None]),
        (
            [_replica(0, epoch=1, end=5), _replica(1)],
            _partition_metadata(0, replicas=(0, 1)),
            [None, NOT_LEADER],
        ),
    ],
    ids=["leader", "leader though behind", "leader elsewhere", "leader is believed", "leader is broker 0"],
)
def test_the_leader_of_the_metadata(
    replicas: list[FoundReplica], partition_metadata: PartitionMetadata, expected: list[object]
) -> None:
    assert refusals(replicas, partition_metadata) == expected


@pytest.mark.parametrize(
    ("replicas", "partition_metadata", "expected"),
    [
        ([_replica(1, epoch=3, end=90), _replica(2, epoch=2, end=99)], _partition_metadata(-1), [None, NOT_LEADER]),
        ([_replica(1, end=90), _replica(2, end=99)], _partition_metadata(-1), [NOT_LEADER, None]),
        ([_replica(1), _replica(2)], _partition_metadata(-1, replicas=(2, 1)), [NOT_LEADER, None]),
        ([_replica(1, end=200), _replica(2)], _partition_metadata(-1, isr=(2,)), [NOT_LEADER, None]),
        ([_replica(3, end=999), _replica(1)], _partition_metadata(-1), [NOT_LEADER, None]),
        ([_replica(1, epoch=-1), _replica(2, epoch=0)], _partition_metadata(-1), [NOT_LEADER, None]),
        ([_replica(3)], _partition_metadata(-1), [NOT_LEADER]),
    ],
    ids=["epoch first", "then log end", "then replica order", "in sync only", "assigned only", "no epoch", "none"],
)
def test_without_a_leader(
    replicas: list[FoundReplica], partition_metadata: PartitionMetadata, expected: list[object]
) -> None:
    assert refusals(replicas, partition_metadata) == expected


def test_without_metadata_the_most_advanced_is_taken() -> None:
    assert refusals([_replica(1), _replica(2), _replica(3, end=50)], None) == [None, NOT_LEADER, NOT_LEADER]
    assert refusals([_replica(1), _replica(2, end=101)], None) == [NOT_LEADER, None]


@pytest.mark.parametrize(
    ("directories", "expected"),
    [
        ((directory_id(1), directory_id(9)), [AMBIGUOUS, None]),
        ((directory_id(1), directory_id(5)), [AMBIGUOUS, AMBIGUOUS]),
        ((directory_id(1), UNASSIGNED), [AMBIGUOUS, AMBIGUOUS]),
        ((), [AMBIGUOUS, AMBIGUOUS]),
    ],
    ids=["decided", "neither", "unassigned", "unknown"],
)
def test_two_directories_of_the_leader(directories: tuple[Uuid, ...], expected: list[object]) -> None:
    twins = [_replica(2, directory=8), _replica(2, directory=9)]
    assert refusals(twins, _partition_metadata(2, directories=directories)) == expected


def test_two_directories_without_metadata_are_refused() -> None:
    assert refusals([_replica(2, directory=8), _replica(2, directory=9)], None) == [AMBIGUOUS, AMBIGUOUS]


def test_a_replica_that_the_cluster_has_in_another_directory_is_not_the_leaders() -> None:
    assert refusals(
        [_replica(2, directory=8)], _partition_metadata(2, directories=(directory_id(1), directory_id(9)))
    ) == [NOT_LEADER]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (DirectoryState.DELETE, IneligibleReason.BEING_DELETED),
        (DirectoryState.STRAY, IneligibleReason.BEING_DELETED),
        (DirectoryState.FUTURE, IneligibleReason.BEING_MOVED),
    ],
)
def test_leaving_directories_are_neither_chosen_nor_in_the_way(state: DirectoryState, reason: IneligibleReason) -> None:
    replicas = [_replica(2, end=999, state=state), _replica(2, directory=9)]
    assert refusals(replicas, _partition_metadata(2)) == [reason, None]


def test_what_waiting_may_help_and_what_only_a_person_can() -> None:
    needs_a_person = {
        "ambiguous-replica",
        "old-magic",
        "no-leader-epoch",
        "no-producer-snapshot",
        "corrupt",
        "after-corrupt",
        "compacted-segment",
    }
    waits = {
        "internal-topic",
        "compacted",
        "broker-tiered",
        "topic-unknown",
        "topic-removed",
        "topic-contradicted",
        "not-leader",
        "being-deleted",
        "being-moved",
        "offsets-unknown",
        "stale-log-dir",
        "high-watermark-above-log-end",
        "recovery-point-above-log-end",
        "log-start-above-log-end",
        "checkpoint-older-than-log",
        "active",
        "below-log-start",
        "above-high-watermark",
        "above-last-stable-offset",
        "not-flushed",
        "past-retention",
        "copy-delayed",
        "unreadable",
    }
    assert {reason.code for reason in IneligibleReason if not reason.retriable} == needs_a_person
    assert {reason.code for reason in IneligibleReason if reason.retriable} == waits
