"""The state of partitions in SQL: log start, leader epochs, end of the copied offsets, sizes, and skipped offsets.

Recording a decision to skip offsets is one transaction: the owner is read, the partition is locked, the offsets are
compared with the copied and the skipped ones, row and event are written. A crash before the commit leaves nothing, a
crash after it the decision; if the call is repeated, it finds that decision.

No lease is taken. The change of a segment to FINISHED locks the same partition row, so the end of the archive cannot
move during the comparison. A copy under way may still finish offsets of the skipped range; then they are in the archive
and the decision has no effect on them. A decision never makes a copy leave out offsets that the source has, so it
cannot be recorded too early.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from sqlalchemy import Connection, and_, bindparam, select, update

from include.tiering.database.event_log import EventKind, record_event
from include.tiering.database.migrations import is_at_head
from include.tiering.database.schema import (
    partitions,
    segments,
    size_counters,
    stores,
    topics,
)
from include.tiering.database.transactions import (
    ClusterStore,
    ensure_partition,
    hold_fence,
    in_partition,
    key_of,
    lock_or_create_partition,
    lock_partition,
    of_partition,
    partition_from,
    reading,
    stopped_reason_of,
    writing,
)
from include.tiering.errors import MetadataUnavailableError, StateConflictError
from include.tiering.model.histories import OffsetRange, SkippedOffsets, not_skipped
from include.tiering.model.leader_epochs import Contradiction, LeaderEpochs
from include.tiering.model.ownership import Fence, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition
from include.tiering.model.sizes import EpochSize, PartitionSize
from include.tiering.segments.contract import PartitionRetentionState
from include.tiering.segments.sql_divergences import require_history
from include.tiering.segments.sql_metadata_topic import why_not_read
from include.tiering.segments.sql_rows import (
    highest_finished_offset,
    learn_leader_epochs,
    learnt,
    owner_of,
    retention_state_of,
    skipped_of,
    store_decision,
)

_OWNER: Final = select(topics.c.owner).where(
    topics.c.cluster_id == bindparam("of_cluster"), topics.c.topic_id == bindparam("of_topic")
)
_IS_REBUILDING: Final = (
    select(stores.c.cluster_id)
    .where(stores.c.cluster_id == bindparam("of_cluster"), stores.c.rebuilding_since_ms.is_not(None))
    .exists()
)
_READINESS: Final = select(_OWNER.scalar_subquery().label("owner"), _IS_REBUILDING.label("is_rebuilding"))
_FINISHED: Final = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_FINISHED_BYTES: Final = select(size_counters.c.size_bytes).where(
    in_partition(size_counters),
    size_counters.c.leader_epoch == bindparam("of_epoch"),
    size_counters.c.state == _FINISHED,
)
_RAISE: Final = update(partitions).where(in_partition(partitions))
_HELD: Final = (
    select(segments.c.start_offset, segments.c.end_offset)
    .where(in_partition(segments), segments.c.state == _FINISHED)
    .where(segments.c.start_offset <= bindparam("of_last"), segments.c.end_offset >= bindparam("of_first"))
    .order_by(segments.c.start_offset)
    .limit(1)
)


class SqlPartitionState(ClusterStore):
    """The part of `RemoteLogMetadata` about whole partitions, except divergences."""

    def retention_state(self, partition: TopicIdPartition) -> PartitionRetentionState:
        """Return log start and merged leader epochs; the defaults for a partition without stored state."""
        with reading(self._engine) as connection:
            return retention_state_of(connection, self._cluster_id, partition)

    def raise_log_start(
        self,
        partition: TopicIdPartition,
        offset: int,
        *,
        reason: str,
        author: str,
        fence: Fence | None = None,
        history: int | None = None,
    ) -> int:
        """Raise the log start offset of the archive, with an event; a lower or equal offset changes nothing."""
        cluster_id = self._cluster_id
        with writing(self._engine) as connection:
            if fence is not None:
                hold_fence(connection, cluster_id, fence)
            if history is not None:
                require_history(connection, cluster_id, partition, history)
            now_ms = self._now_ms(connection)
            lock_or_create_partition(connection, cluster_id, partition)
            before = retention_state_of(connection, cluster_id, partition).log_start_offset
            if offset <= before:
                return before
            connection.execute(_RAISE, key_of(cluster_id, partition) | {"log_start_offset": offset})
            detail = f"{before} -> {offset}: {reason}"
            record_event(connection, cluster_id, EventKind.LOG_START, partition, detail, author, now_ms)
            return offset

    def merge_leader_epochs(
        self, partition: TopicIdPartition, seen: LeaderEpochs, seen_log_start: int
    ) -> Sequence[Contradiction]:
        """Merge a leader's epoch cache into the partition's leader epochs; return every contradiction found."""
        with reading(self._engine) as connection:
            known, found = learnt(connection, self._cluster_id, partition, seen, seen_log_start, is_followed=False)
        if found.history == known:
            return found.contradictions
        with writing(self._engine) as connection:
            return learn_leader_epochs(
                connection, self._cluster_id, partition, seen, seen_log_start, self._now_ms, is_followed=False
            )

    def highest_offset_for_epoch(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        """Return the highest offset (inclusive) that was ever FINISHED under this epoch; None if there was none."""
        with reading(self._engine) as connection:
            return highest_finished_offset(connection, self._cluster_id, partition, leader_epoch)

    def highest_copied_offset(self, partition: TopicIdPartition) -> int | None:
        """Return the highest end offset (inclusive) that was ever FINISHED under any epoch; None if there was none."""
        with reading(self._engine) as connection:
            return highest_finished_offset(connection, self._cluster_id, partition)

    def remote_log_size(self, partition: TopicIdPartition, leader_epoch: int) -> int:
        """Return the bytes of the FINISHED segments that have this epoch, each counted whole (KIP-852)."""
        key = key_of(self._cluster_id, partition) | {"of_epoch": leader_epoch}
        with reading(self._engine) as connection:
            return connection.execute(_FINISHED_BYTES, key).scalar_one_or_none() or 0

    def partition_sizes(self, partition: TopicIdPartition | None = None) -> Sequence[PartitionSize]:
        """Return FINISHED sizes from the counters, of one partition or (None) of all that have FINISHED segments."""
        counters = size_counters.c
        same_topic = and_(topics.c.cluster_id == counters.cluster_id, topics.c.topic_id == counters.topic_id)
        query = (
            select(size_counters, topics.c.name)
            .join(topics, same_topic)
            .where(counters.cluster_id == self._cluster_id, counters.state == _FINISHED, counters.segments > 0)
            .order_by(topics.c.name, counters.topic_id, counters.partition, counters.leader_epoch)
        )
        if partition is not None:
            query = query.where(of_partition(size_counters, self._cluster_id, partition))
        with reading(self._engine) as connection:
            rows = connection.execute(query).all()
        sizes = []
        for (topic_id, number, name), grouped in groupby(rows, key=lambda row: (row.topic_id, row.partition, row.name)):
            total, *epochs = grouped  # the row with the total comes first: its epoch, -1, is the lowest
            sizes.append(
                PartitionSize(
                    partition_from(topic_id, number, name),
                    total.size_bytes,
                    total.segments,
                    tuple(EpochSize(row.leader_epoch, row.size_bytes, row.segments) for row in epochs),
                )
            )
        return sizes

    def stopped_reason(self, partition: TopicIdPartition) -> str | None:
        """Return which failed segment stops the partition, and why it failed; None if no segment stops it."""
        with reading(self._engine) as connection:
            return stopped_reason_of(connection, self._cluster_id, partition)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Return whether the metadata of this partition is complete (KIP-1105)."""
        try:
            if not is_at_head(self._engine):
                return False
            with reading(self._engine) as connection:
                return not_ready_reason(connection, self._cluster_id, partition) is None
        except MetadataUnavailableError:
            return False

    def skipped_offsets(self, partition: TopicIdPartition) -> Sequence[SkippedOffsets]:
        """Return every decision to skip offsets of this partition, ordered by offset."""
        with reading(self._engine) as connection:
            return skipped_of(connection, self._cluster_id, partition)

    def skip_offsets(
        self,
        partition: TopicIdPartition,
        offsets: OffsetRange,
        *,
        reason: str,
        author: str,
        may_be_first: bool = False,
    ) -> SkippedOffsets:
        """Record the decision to continue without these offsets, with an event. Idempotent."""
        cluster_id = self._cluster_id
        with writing(self._engine) as connection:
            decision = SkippedOffsets(offsets, reason, author, self._now_ms(connection))
            owner = owner_of(connection, cluster_id, partition)
            if may_be_first:
                ensure_partition(connection, cluster_id, partition)
            lock_partition(connection, cluster_id, partition)
            known = skipped_of(connection, cluster_id, partition)
            for before in known:
                if before.offsets == offsets:
                    return before
            if owner is not TopicOwner.PLATFORM and not (may_be_first and owner is TopicOwner.NONE):
                raise StateConflictError(f"{partition}: its owner is {owner}, so no offsets of it can be skipped here")
            highest = highest_finished_offset(connection, cluster_id, partition)
            if highest is None and may_be_first:
                highest = offsets.first - 1
            if highest is None:
                raise StateConflictError(
                    f"{partition}: nothing of it was ever copied, and a first copy may begin at any offset: there is"
                    " nothing to skip"
                )
            missing = not_skipped(highest + 1, offsets.last, known)
            if offsets.last <= highest:
                _require_hole(connection, cluster_id, partition, offsets, known)
            elif not missing or missing[0].first != offsets.first:
                raise StateConflictError(
                    f"{partition}: offsets {offsets} are not the next ones: {_where(highest, known)}"
                )
            decision = store_decision(connection, cluster_id, partition, decision)
            kind, detail, now_ms = EventKind.SKIPPED_OFFSETS, f"{offsets}: {decision.reason}", decision.recorded_at_ms
            record_event(connection, cluster_id, kind, partition, detail, decision.author, now_ms)
            return decision


def not_ready_reason(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> str | None:
    """Return why the metadata of a partition is not complete; None if it is. See `RemoteLogMetadata.is_ready`."""
    found = connection.execute(_READINESS, {"of_cluster": cluster_id, "of_topic": str(partition.topic_id)}).one()
    if found.is_rebuilding:
        return "the metadata are being rebuilt"
    return why_not_read(connection, cluster_id, partition) if found.owner == TopicOwner.BROKER else None


def _require_hole(
    connection: Connection,
    cluster_id: str,
    partition: TopicIdPartition,
    offsets: OffsetRange,
    known: list[SkippedOffsets],
) -> None:
    """Raise StateConflictError if a FINISHED segment or a decision holds some of the offsets."""
    key = key_of(cluster_id, partition) | {"of_first": offsets.first, "of_last": offsets.last}
    held = connection.execute(_HELD, key).one_or_none()
    if held is not None:
        raise StateConflictError(
            f"{partition}: offsets {offsets} are not missing: {held.start_offset}..{held.end_offset} are copied"
        )
    if not_skipped(*offsets, known) != (offsets,):
        raise StateConflictError(f"{partition}: some of the offsets {offsets} are skipped already")


def _where(highest: int, known: list[SkippedOffsets]) -> str:
    copied = f"offsets up to {highest} are copied"
    return f"{copied}, {', '.join(str(decision.offsets) for decision in known)} are skipped" if known else copied
