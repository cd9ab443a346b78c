"""Divergences and the decisions about them, in SQL.

Recording a divergence and recording a decision are one transaction each: the owner is read, the partition is locked,
the stored state is compared, rows and event are written. A crash before the commit leaves nothing, a crash after it the
whole change; if the call is repeated, it finds that change.

No lease is taken. The change of a segment to FINISHED locks the same partition row. This change is refused while a
divergence is open, and if the segment is not of the newest history. A segment that supersedes a failed one is exempt.

`is_continued` runs before each copy of a segment, so it is a single statement.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, exists, func, insert, or_, select, update

from include.tiering.database.event_log import EventKind, record_event
from include.tiering.database.schema import (
    PARTITION_TOTAL,
    divergences,
    partitions,
    segment_epochs,
    segments,
    size_counters,
)
from include.tiering.database.transactions import (
    ClusterStore,
    in_partition,
    key_of,
    lock_partition,
    reading,
    stored_text,
    writing,
)
from include.tiering.errors import HistoryChangedError, StateConflictError
from include.tiering.model.histories import (
    FIRST_HISTORY,
    Divergence,
    Followed,
    OffsetRange,
    SeenBy,
    SeenDivergence,
    SkippedOffsets,
    newest_history,
    not_skipped,
    open_divergence,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition
from include.tiering.segments.sql_rows import (
    follow_leader_epochs,
    highest_finished_offset,
    owner_of,
    skipped_of,
    store_decision,
)
from include.tiering.segments.sql_verdicts import refresh_stop

_FINISHED: Final = segments.c.state == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_OF_HISTORY: Final = segments.c.history == bindparam("of_history")
_OF_PARTITION: Final = select(divergences).where(in_partition(divergences)).order_by(divergences.c.number)
NEWEST_HISTORY: Final = (
    select(func.coalesce(func.max(divergences.c.number), FIRST_HISTORY))
    .where(in_partition(divergences), divergences.c.followed_from.is_not(None))
    .scalar_subquery()
)
"""Selects the number of the history to which a copy belongs that begins now."""
_LOG_START: Final = select(partitions.c.log_start_offset).where(in_partition(partitions)).scalar_subquery()
_FROM_BEFORE: Final = (
    select(segments.c.segment_key)
    .where(in_partition(segments), _FINISHED, _OF_HISTORY)
    .where(segments.c.end_offset >= bindparam("of_first"), segments.c.end_offset <= bindparam("of_last"))
    .where(segments.c.end_offset >= _LOG_START)
    .limit(1)
)
_OF_LEFT: Final = (
    select(segments.c.segment_key)
    .where(in_partition(segments), _FINISHED, _OF_HISTORY)
    .where(segments.c.end_offset >= bindparam("of_first"), segments.c.start_offset <= bindparam("of_last"))
    .where(segments.c.end_offset >= _LOG_START, bindparam("of_last") >= _LOG_START)
    .limit(1)
)
"""Selects a FINISHED segment of a replaced history with any offset from `of_first` to `of_last`.

Only offsets from the log start on count. `of_last` is at most the last offset that belongs to that history. New
copies continue the newest history only."""
_COPIED_SINCE: Final = select(func.min(segments.c.start_offset)).where(
    in_partition(segments), _FINISHED, _OF_HISTORY, segments.c.end_offset > bindparam("of_last")
)
_ONE: Final = update(divergences).where(in_partition(divergences), divergences.c.number == bindparam("of_number"))
_TO_NEW_HISTORY: Final = update(segments).where(
    in_partition(segments), _OF_HISTORY, segments.c.end_offset > bindparam("of_last")
)
_HIGHEST: Final = update(size_counters).where(
    in_partition(size_counters),
    size_counters.c.leader_epoch == PARTITION_TOTAL,
    size_counters.c.state == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED),
)
_LATEST_OF_SEGMENT: Final = (
    select(func.max(segment_epochs.c.leader_epoch))
    .where(segment_epochs.c.segment_key == segments.c.segment_key)
    .scalar_subquery()
)
_HISTORY_THERE: Final = (
    select(func.coalesce(func.max(divergences.c.number), FIRST_HISTORY))
    .where(in_partition(divergences), divergences.c.followed_from <= bindparam("of_last"))
    .scalar_subquery()
)
_IN_HISTORY_THERE: Final = exists().where(
    in_partition(segments),
    _FINISHED,
    segments.c.end_offset == bindparam("of_last"),
    segments.c.history == _HISTORY_THERE,
    bindparam("of_epoch") == _LATEST_OF_SEGMENT,
)
"""Whether a FINISHED segment of the history at this offset ends there, with this epoch as its last one.

The counters cannot tell, because they do not distinguish histories: a replaced history may end at the same offset under
the same epoch."""
_CONTINUED: Final = select(size_counters.c.leader_epoch).where(
    in_partition(size_counters),
    size_counters.c.leader_epoch == bindparam("of_epoch"),
    size_counters.c.state == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED),
    size_counters.c.highest_offset == bindparam("of_last"),
    ~exists().where(in_partition(divergences), divergences.c.followed_from.is_(None)),
    or_(~exists().where(in_partition(divergences)), _IN_HISTORY_THERE),
)


class SqlDivergences(ClusterStore):
    """The part of `RemoteLogMetadata` about divergences: `contract.Divergences`."""

    def divergences(self, partition: TopicIdPartition) -> Sequence[Divergence]:
        """Return every divergence recorded for this partition, decided or not, ordered by number."""
        with reading(self._engine) as connection:
            return divergences_of(connection, self._cluster_id, partition)

    def is_continued(self, partition: TopicIdPartition, leader_epoch: int, highest_copied: int) -> bool:
        """Return whether a source, in which `highest_copied` has this leader epoch, continues the remote segments."""
        # An undecided divergence counts, even if none of its offsets is remote any more.
        key = key_of(self._cluster_id, partition) | {"of_epoch": leader_epoch, "of_last": highest_copied}
        with reading(self._engine) as connection:
            return connection.execute(_CONTINUED, key).one_or_none() is not None

    def record_divergence(
        self, partition: TopicIdPartition, seen: SeenDivergence, *, history: int
    ) -> Divergence | None:
        """Record a divergence, or extend the open one; each change is an event. Idempotent."""
        cluster_id = self._cluster_id
        with writing(self._engine) as connection:
            now_ms = self._now_ms(connection)
            if owner_of(connection, cluster_id, partition) not in (TopicOwner.PLATFORM, TopicOwner.NONE):
                return None
            lock_partition(connection, cluster_id, partition)
            known = divergences_of(connection, cluster_id, partition)
            if newest_history(known) != history:
                return None
            before = open_divergence(known)
            wider = seen if before is None else _both(before.seen, seen)
            if before is not None and wider == before.seen:
                return before
            values = _values(wider)
            if before is not None:
                connection.execute(_ONE, key_of(cluster_id, partition) | {"of_number": before.number} | values)
            else:
                where = _key(
                    cluster_id, partition, max((divergence.number for divergence in known), default=FIRST_HISTORY) + 1
                )
                connection.execute(insert(divergences).values(**where, **values, seen_at_ms=now_ms))
            record_event(connection, cluster_id, EventKind.DIVERGENCE, partition, str(wider), str(seen.seen_by), now_ms)
            return open_divergence(divergences_of(connection, cluster_id, partition))

    def follow_source(
        self,
        partition: TopicIdPartition,
        number: int,
        from_offset: int,
        *,
        source_epochs: LeaderEpochs,
        reason: str,
        author: str,
    ) -> Divergence:
        """Decide about an open divergence, with an event: the archive follows the source. Deletes nothing."""
        cluster_id = self._cluster_id
        with writing(self._engine) as connection:
            followed = Followed(from_offset, reason, author, self._now_ms(connection))
            owner = owner_of(connection, cluster_id, partition)
            lock_partition(connection, cluster_id, partition)
            known = divergences_of(connection, cluster_id, partition)
            found = {divergence.number: divergence for divergence in known}.get(number)
            if found is not None and found.followed is not None and found.followed.from_offset == from_offset:
                return found
            if found is None or not found.is_open:
                raise StateConflictError(f"{partition}: there is no divergence {number} to decide about: {found}")
            if owner is not TopicOwner.PLATFORM:
                raise StateConflictError(f"{partition}: its owner is {owner}, so no decision is recorded here")
            if found.copied_from not in (None, from_offset):
                raise StateConflictError(
                    f"{partition}: the source's history is copied from offset {found.copied_from} on, not {from_offset}"
                )
            key, last = key_of(cluster_id, partition), found.seen.offsets.last
            if found.copied_from is not None:
                of_newest = key | {"of_last": last, "of_history": newest_history(known)}
                connection.execute(_TO_NEW_HISTORY, of_newest | {"history": number})
            else:
                _go_back(connection, cluster_id, partition, followed)
            follow_leader_epochs(connection, cluster_id, partition, source_epochs, from_offset)
            connection.execute(_ONE, key | {"of_number": number} | _decision(followed))
            refresh_stop(connection, cluster_id, partition)
            detail = f"{found.seen}: from offset {from_offset} on the source is followed: {reason}"
            record_event(
                connection, cluster_id, EventKind.DIVERGENCE, partition, detail, author, followed.decided_at_ms
            )
            return {divergence.number: divergence for divergence in divergences_of(connection, cluster_id, partition)}[
                number
            ]


def divergences_of(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> list[Divergence]:
    """Read every divergence of the partition; see `Divergences.divergences`."""
    key = key_of(cluster_id, partition)
    rows = connection.execute(_OF_PARTITION, key).all()
    decided = {row.number: row.followed_from for row in rows if row.followed_from is not None}
    return [_divergence(connection, key, row, decided) for row in rows]


def require_one_history(connection: Connection, cluster_id: str, partition: TopicIdPartition, history: int) -> None:
    """Check that no divergence is open and that this history is the newest.

    Raises:
        StateConflictError: a divergence is open, or a newer history is followed.
    """
    found = divergences_of(connection, cluster_id, partition)
    undecided = open_divergence(found)
    if undecided is not None:
        raise StateConflictError(f"{partition}: {undecided}")
    if history != newest_history(found):
        raise StateConflictError(f"{partition}: after this copy began, a person decided to follow another history")


def require_history(connection: Connection, cluster_id: str, partition: TopicIdPartition, history: int) -> None:
    """Lock the partition until the transaction ends, so that no decision is recorded; check that `history` is newest.

    Raises:
        HistoryChangedError: a newer history than `history` is followed.
    """
    lock_partition(connection, cluster_id, partition)
    newest = newest_history(divergences_of(connection, cluster_id, partition))
    if newest != history:
        raise HistoryChangedError(
            f"{partition}: after the plan was checked, a person decided to follow another history (number {newest}, not"
            f" {history}): the next try checks the plan again"
        )


def add_decided(
    connection: Connection,
    cluster_id: str,
    partition: TopicIdPartition,
    number: int,
    seen: SeenDivergence,
    followed: Followed,
) -> None:
    """Store a divergence and its decision, with an event; lower the archive's end below the decision's offset.

    The caller has locked the partition, and adds the segments of the new history afterwards.
    """
    values = _values(seen) | _decision(followed) | {"seen_at_ms": followed.decided_at_ms}
    connection.execute(insert(divergences).values(**_key(cluster_id, partition, number), **values))
    lower_highest(connection, cluster_id, partition, followed.from_offset - 1)
    detail = f"{seen}: from offset {followed.from_offset} on the later one is followed: {followed.reason}"
    record_event(
        connection, cluster_id, EventKind.DIVERGENCE, partition, detail, followed.author, followed.decided_at_ms
    )


def _go_back(connection: Connection, cluster_id: str, partition: TopicIdPartition, followed: Followed) -> None:
    """Let the next copy begin at the decision's offset.

    If the archive reaches that offset, lower its end below it; else record as skipped what the source lacks in between.
    """
    highest = highest_finished_offset(connection, cluster_id, partition)
    if highest is not None and followed.from_offset <= highest:
        lower_highest(connection, cluster_id, partition, followed.from_offset - 1)
        return
    known = skipped_of(connection, cluster_id, partition)
    for gone in not_skipped((-1 if highest is None else highest) + 1, followed.from_offset - 1, known):
        skipped = SkippedOffsets(gone, followed.reason, followed.author, followed.decided_at_ms)
        store_decision(connection, cluster_id, partition, skipped)


def lower_highest(connection: Connection, cluster_id: str, partition: TopicIdPartition, offset: int) -> None:
    """Lower the end of the archive to this offset (inclusive). The caller has locked the partition."""
    lowered = _HIGHEST.where(size_counters.c.highest_offset > offset)
    connection.execute(lowered, key_of(cluster_id, partition) | {"highest_offset": offset})


def _divergence(connection: Connection, key: dict[str, Any], row: Row[Any], decided: Mapping[int, int]) -> Divergence:
    """Return a row's divergence. `decided` has, by number, the first offset of each history that a decision began."""
    offsets = OffsetRange(row.first_offset, row.last_offset)
    seen = SeenDivergence(offsets, _epochs(row.archive_epochs), _epochs(row.source_epochs), SeenBy(row.seen_by))
    if row.followed_from is not None:
        followed = Followed(row.followed_from, row.reason, row.author, row.decided_at_ms)
        return Divergence(row.number, seen, row.seen_at_ms, followed)
    key = key | {"of_first": offsets.first, "of_last": offsets.last}
    of_newest = key | {"of_history": max(decided, default=FIRST_HISTORY)}
    is_remote = connection.execute(_FROM_BEFORE, of_newest).one_or_none() is not None
    is_remote = is_remote or _still_serves(connection, key, decided)
    since = connection.execute(_COPIED_SINCE, of_newest).scalar_one()
    copied_from = None if since is None else max(since, offsets.first)
    return Divergence(row.number, seen, row.seen_at_ms, is_remote=is_remote, copied_from=copied_from)


def _still_serves(connection: Connection, key: dict[str, Any], decided: Mapping[int, int]) -> bool:
    """Return whether FINISHED segments of a replaced history have some of these offsets, below all later histories."""
    for history in sorted({FIRST_HISTORY, *decided} - {max(decided, default=FIRST_HISTORY)}):
        last = min(begin for number, begin in decided.items() if number > history) - 1
        of_left = key | {"of_history": history, "of_last": min(last, key["of_last"])}
        if of_left["of_last"] >= key["of_first"] and connection.execute(_OF_LEFT, of_left).one_or_none() is not None:
            return True
    return False


def _both(seen_divergence: SeenDivergence, other: SeenDivergence) -> SeenDivergence:
    """Combine the divergence as first seen with a later observation.

    If an observer is the store, `seen_by` is the observer of the lower first offset; for equal offsets it is the store,
    because the store has copies from there on. Otherwise `seen_by` is the first observer.
    """
    first_seen = min(seen_divergence, other, key=lambda each: (each.offsets.first, each.seen_by is not SeenBy.STORE))
    return SeenDivergence(
        OffsetRange(
            min(seen_divergence.offsets.first, other.offsets.first),
            max(seen_divergence.offsets.last, other.offsets.last),
        ),
        tuple(sorted({*seen_divergence.archive_epochs, *other.archive_epochs})),
        tuple(sorted({*seen_divergence.source_epochs, *other.source_epochs})),
        first_seen.seen_by if SeenBy.STORE in (seen_divergence.seen_by, other.seen_by) else seen_divergence.seen_by,
    )


def _key(cluster_id: str, partition: TopicIdPartition, number: int) -> dict[str, Any]:
    return {
        "cluster_id": cluster_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "number": number,
    }


def _values(seen: SeenDivergence) -> dict[str, Any]:
    return {
        "first_offset": seen.offsets.first,
        "last_offset": seen.offsets.last,
        "archive_epochs": _text(seen.archive_epochs),
        "source_epochs": _text(seen.source_epochs),
        "seen_by": str(seen.seen_by),
    }


def _decision(followed: Followed) -> dict[str, Any]:
    return {
        "followed_from": followed.from_offset,
        "reason": stored_text(followed.reason),
        "author": stored_text(followed.author),
        "decided_at_ms": followed.decided_at_ms,
    }


def _text(epochs: Sequence[int]) -> str:
    return ",".join(map(str, epochs))


def _epochs(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()
