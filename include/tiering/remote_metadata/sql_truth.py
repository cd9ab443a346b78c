"""What is true of a partition's remote log, in its row: the log start, and the history of leader epochs."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, select, update

from include.tiering.database.clock import NowMs
from include.tiering.database.events import record_event
from include.tiering.database.partition_rows import in_partition, key_of, lock_or_create_partition
from include.tiering.database.schema import partitions
from include.tiering.model.epoch_history import Contradiction, merged
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.remote_metadata.contract import PartitionTruth
from include.tiering.remote_metadata.sql_rows import decode_leader_epochs, encode_leader_epochs

_OBSERVER: Final = "what brokers and segments say"
_TRUTH: Final = select(partitions.c.log_start_offset, partitions.c.leader_epochs).where(in_partition(partitions))
_CHANGE: Final = update(partitions).where(in_partition(partitions))


def truth_of(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> PartitionTruth:
    """See `RemoteLogMetadata.partition_truth`."""
    row = connection.execute(_TRUTH, key_of(cluster_id, partition)).one_or_none()
    return PartitionTruth() if row is None else PartitionTruth(row[0], decode_leader_epochs(row[1]))


def raise_log_start(
    connection: Connection,
    cluster_id: str,
    partition: TopicIdPartition,
    offset: int,
    *,
    reason: str,
    author: str,
    now_ms: int,
) -> int:
    """See `RemoteLogMetadata.raise_log_start`."""
    lock_or_create_partition(connection, cluster_id, partition)
    before = truth_of(connection, cluster_id, partition).log_start_offset
    if offset <= before:
        return before
    connection.execute(_CHANGE, key_of(cluster_id, partition) | {"log_start_offset": offset})
    detail = f"{before} -> {offset}: {reason}"
    record_event(connection, cluster_id, "log-start", _subject(partition), detail, author, now_ms)
    return offset


def learn_leader_epochs(
    connection: Connection,
    cluster_id: str,
    partition: TopicIdPartition,
    seen: LeaderEpochs,
    seen_log_start: int,
    now_ms: NowMs,
) -> Sequence[Contradiction]:
    """See `RemoteLogMetadata.merge_leader_epochs`. Mostly nothing is new: then one row is read and none is locked."""
    known = truth_of(connection, cluster_id, partition).leader_epochs
    found = merged(known, seen, seen_log_start)
    if found.history == known:
        return found.contradictions
    lock_or_create_partition(connection, cluster_id, partition)
    found = merged(truth_of(connection, cluster_id, partition).leader_epochs, seen, seen_log_start)
    learnt = {"leader_epochs": encode_leader_epochs(found.history)}
    connection.execute(_CHANGE, key_of(cluster_id, partition) | learnt)
    if found.contradictions:
        detail = "; ".join(map(str, found.contradictions))
        record_event(
            connection, cluster_id, "leader-epochs", _subject(partition), detail, _OBSERVER, now_ms(connection)
        )
    return found.contradictions


def _subject(partition: TopicIdPartition) -> str:
    return f"{partition} ({partition.topic_id})"
