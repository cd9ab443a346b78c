"""Which replica a copy may read."""

import pytest

from include.tiering.kafka.cluster.contract import PartitionMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.kafka.log_dirs.dirs import DirIdentity
from include.tiering.kafka.log_dirs.evaluate_replicas import refusals
from include.tiering.kafka.log_dirs.files import DirectoryState
from include.tiering.kafka.log_dirs.found_replica import FoundReplica
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.doubles.log_dirs import ORDERS, directory_id

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
    ],
    ids=["leader", "leader though behind", "leader elsewhere", "leader is believed"],
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
