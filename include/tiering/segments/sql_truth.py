"""What is true of a partition's remote log, in its row: the log start, and the history of leader epochs."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, func, select, update

from include.tiering.database.clock import NowMs
from include.tiering.database.events import record_event
from include.tiering.database.partition_rows import in_partition, key_of, lock_or_create_partition
from include.tiering.database.schema import divergences, partitions
from include.tiering.model.epoch_history import Contradiction, MergedHistory, followed, merged, of_followed
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.segments.contract import PartitionTruth
from include.tiering.segments.sql_rows import decode_leader_epochs, encode_leader_epochs

_OBSERVER: Final = "what brokers and segments say"
_TRUTH: Final = select(partitions.c.log_start_offset, partitions.c.leader_epochs).where(in_partition(partitions))
_CHANGE: Final = update(partitions).where(in_partition(partitions))
_FIRST_BEGIN: Final = select(func.min(divergences.c.followed_from)).where(in_partition(divergences))
"""From where on somebody has decided which leader epochs hold; None: nobody has."""


def truth_of(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> PartitionTruth:
    """See `RemoteLogMetadata.partition_truth`."""
    row = connection.execute(_TRUTH, key_of(cluster_id, partition)).one_or_none()
    return PartitionTruth() if row is None else PartitionTruth(row[0], decode_leader_epochs(row[1]))


def raise_log_start(
    connection: Connection,
    cluster_id: str,
    partition: TopicIdPartition,
    offset: int,
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
    *,
    is_followed: bool = True,
) -> Sequence[Contradiction]:
    """See `RemoteLogMetadata.merge_leader_epochs`. Mostly nothing is new: then one row is read and none is locked.

    Args:
        is_followed: whether it is certain that what says it is of the history that is followed, as of a segment that
            becomes FINISHED.
    """
    known, found = learnt(connection, cluster_id, partition, seen, seen_log_start, is_followed=is_followed)
    if found.history == known:
        return found.contradictions
    lock_or_create_partition(connection, cluster_id, partition)
    _, found = learnt(connection, cluster_id, partition, seen, seen_log_start, is_followed=is_followed)
    _store(connection, cluster_id, partition, found.history)
    if found.contradictions:
        detail = "; ".join(map(str, found.contradictions))
        record_event(
            connection, cluster_id, "leader-epochs", _subject(partition), detail, _OBSERVER, now_ms(connection)
        )
    return found.contradictions


def learnt(
    connection: Connection,
    cluster_id: str,
    partition: TopicIdPartition,
    seen: LeaderEpochs,
    seen_log_start: int,
    *,
    is_followed: bool,
) -> tuple[LeaderEpochs, MergedHistory]:
    """What is known, and what it becomes.

    Behind a decision a source that is not as late as what is known is an old leader's directory: what it says from the
    first decision's offset on is known already, or of a history that was left. A segment says what nobody else may
    know: the store's copies of a history that is followed, where the source has lost its beginning.
    """
    known = truth_of(connection, cluster_id, partition).leader_epochs
    found = merged(known, seen, seen_log_start)
    if is_followed or found.history == known or not known.entries or seen.entries[-1].epoch > known.entries[-1].epoch:
        return known, found
    begin = connection.execute(_FIRST_BEGIN, key_of(cluster_id, partition)).scalar_one()
    if begin is None:
        return known, found
    return known, merged(known, of_followed(seen, known, begin), seen_log_start)


def follow_leader_epochs(
    connection: Connection, cluster_id: str, partition: TopicIdPartition, source: LeaderEpochs, from_offset: int
) -> None:
    """Go on with the source's leader epochs from the offset (inclusive) on. The caller holds the partition."""
    known = truth_of(connection, cluster_id, partition).leader_epochs
    _store(connection, cluster_id, partition, followed(known, source, from_offset))


def _store(connection: Connection, cluster_id: str, partition: TopicIdPartition, history: LeaderEpochs) -> None:
    connection.execute(_CHANGE, key_of(cluster_id, partition) | {"leader_epochs": encode_leader_epochs(history)})


def _subject(partition: TopicIdPartition) -> str:
    return f"{partition} ({partition.topic_id})"
