"""Decisions to go on without offsets, in SQL.

Recording one is a transaction: owner read, partition locked, compared with what is copied and decided, row and event
written. A crash before the commit leaves nothing, one after it the decision; the same call again finds it.

No lease is taken. FINISHED locks the same partition row, so the comparison is with a settled end. A copy that goes on
meanwhile may still finish offsets of the hole that it holds open: then they are there, and the decision is about
nothing. It never makes anybody leave out what a source has, so it cannot come too early for a copy.
"""

from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, bindparam, insert, select

from include.tiering.database.partitions import ensure_partition, in_partition, key_of, lock_partition
from include.tiering.database.schema import segments, skipped_offsets, topics
from include.tiering.database.transactions import record_event, stored_text
from include.tiering.errors import StateConflictError
from include.tiering.model.histories import OffsetRange, SkippedOffsets, not_skipped
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segment_metadata import RemoteLogSegmentState
from include.tiering.segments.sql_partitions import highest_finished_offset

_KIND: Final = "skipped-offsets"
_OF_PARTITION: Final = (
    select(skipped_offsets).where(in_partition(skipped_offsets)).order_by(skipped_offsets.c.first_offset)
)
_HELD: Final = (
    select(segments.c.start_offset, segments.c.end_offset)
    .where(in_partition(segments), segments.c.state == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED))
    .where(segments.c.start_offset <= bindparam("of_last"), segments.c.end_offset >= bindparam("of_first"))
    .order_by(segments.c.start_offset)
    .limit(1)
)
_OWNER: Final = (
    select(topics.c.owner)
    .where(topics.c.cluster_id == bindparam("of_cluster"), topics.c.topic_id == bindparam("of_topic"))
    .with_for_update(read=True)
)


def skipped_of(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> list[SkippedOffsets]:
    """See `RemoteLogMetadata.skipped_offsets`."""
    return [
        SkippedOffsets(OffsetRange(row.first_offset, row.last_offset), row.reason, row.author, row.recorded_at_ms)
        for row in connection.execute(_OF_PARTITION, key_of(cluster_id, partition))
    ]


def skip(
    connection: Connection,
    cluster_id: str,
    partition: TopicIdPartition,
    decision: SkippedOffsets,
    *,
    may_be_first: bool = False,
) -> SkippedOffsets:
    """See `RemoteLogMetadata.skip_offsets`."""
    offsets, owner = decision.offsets, owner_of(connection, cluster_id, partition)
    if may_be_first:
        ensure_partition(connection, cluster_id, partition)
    lock_partition(connection, cluster_id, partition)
    known = skipped_of(connection, cluster_id, partition)
    for before in known:
        if before.offsets == offsets:
            return before
    if owner is not TopicOwner.PLATFORM:
        raise StateConflictError(f"{partition}: its owner is {owner}: nothing of it is skipped here")
    highest = highest_finished_offset(connection, cluster_id, partition)
    if highest is None and may_be_first:
        highest = offsets.first - 1
    if highest is None:
        raise StateConflictError(
            f"{partition}: nothing of it was ever copied: a first copy begins where the source does"
        )
    missing = not_skipped(highest + 1, offsets.last, known)
    if offsets.last <= highest:
        _require_hole(connection, cluster_id, partition, offsets, known)
    elif not missing or missing[0].first != offsets.first:
        raise StateConflictError(f"{partition}: offsets {offsets} are not the next ones: {_where(highest, known)}")
    decision = store_decision(connection, cluster_id, partition, decision)
    subject, detail = f"{partition} ({partition.topic_id})", f"{offsets}: {decision.reason}"
    record_event(connection, cluster_id, _KIND, subject, detail, decision.author, decision.recorded_at_ms)
    return decision


def _require_hole(
    connection: Connection,
    cluster_id: str,
    partition: TopicIdPartition,
    offsets: OffsetRange,
    known: list[SkippedOffsets],
) -> None:
    """Raises StateConflictError if a FINISHED segment holds some of the offsets, or a decision covers some."""
    key = key_of(cluster_id, partition) | {"of_first": offsets.first, "of_last": offsets.last}
    held = connection.execute(_HELD, key).one_or_none()
    if held is not None:
        raise StateConflictError(
            f"{partition}: offsets {offsets} are not missing: {held.start_offset}..{held.end_offset} are copied"
        )
    if not_skipped(*offsets, known) != (offsets,):
        raise StateConflictError(f"{partition}: some of the offsets {offsets} are skipped already")


def owner_of(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> TopicOwner:
    """Locked against a change until the transaction ends; ask before the partition is locked."""
    key = key_of(cluster_id, partition)
    owner = connection.execute(_OWNER, {name: key[name] for name in ("of_cluster", "of_topic")}).scalar_one_or_none()
    return TopicOwner(owner or TopicOwner.NONE)


def store_decision(
    connection: Connection, cluster_id: str, partition: TopicIdPartition, decision: SkippedOffsets
) -> SkippedOffsets:
    """The decision as it is kept. No other one may begin at its first offset."""
    decision = replace(decision, reason=stored_text(decision.reason), author=stored_text(decision.author))
    values = {
        "cluster_id": cluster_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "first_offset": decision.offsets.first,
        "last_offset": decision.offsets.last,
        "reason": decision.reason,
        "author": decision.author,
        "recorded_at_ms": decision.recorded_at_ms,
    }
    connection.execute(insert(skipped_offsets).values(**values))
    return decision


def _where(highest: int, known: list[SkippedOffsets]) -> str:
    copied = f"offsets up to {highest} are copied"
    return f"{copied}, {', '.join(str(one.offsets) for one in known)} are skipped" if known else copied
