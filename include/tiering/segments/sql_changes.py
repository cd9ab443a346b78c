"""Changes of single remote log segments: new attempts, states, and new copies that replace failed ones.

Each change runs in one transaction of the caller and requires the partition's fence.

| step of a change                        | a crash after it leaves                      |
|-----------------------------------------|----------------------------------------------|
| fence held, partition locked            | nothing: the transaction is rolled back      |
| segment row, epochs, counters written   | nothing: the transaction is rolled back      |
| committed                               | the whole change; repeating it is harmless   |

FINISHED ends ascend per partition, until a person decides to follow another history: see `sql_divergences`. While a
divergence is open, only copies that replace failed segments become FINISHED.

A copy that replaces a failed segment has exactly the failed segment's offsets, which were FINISHED in order before, and
belongs to the same history. The states of both segments change in the transaction that makes the new copy FINISHED,
under the lock of the partition's row. A verdict and an expiration lock this row, too, and the first of them wins: a
segment that passed meanwhile, or whose deletion began, is not superseded.
"""

from dataclasses import replace
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, bindparam, insert, update
from sqlalchemy.sql.dml import ReturningInsert

from include.tiering.database.event_log import EventKind, record_event
from include.tiering.database.schema import segment_epochs, segments
from include.tiering.database.transactions import (
    NowMs,
    hold_fence,
    in_partition,
    insert_for,
    key_of,
    lock_or_create_partition,
    lock_partition,
    marked_for_deletion_by,
)
from include.tiering.errors import IllegalTransitionError, StateConflictError, UnknownSegmentError
from include.tiering.model.histories import with_records
from include.tiering.model.ownership import Fence, SegmentOrigin
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Verdict,
    is_legal_transition,
)
from include.tiering.segments.sql_divergences import NEWEST_HISTORY, lower_highest, require_one_history
from include.tiering.segments.sql_rows import (
    count_in,
    count_out,
    epoch_values_of,
    find_segment,
    highest_finished_offset,
    learn_leader_epochs,
    values_of,
)
from include.tiering.segments.sql_verdicts import refresh_stop
from include.tiering.segments.values import SegmentRow

TIME_OF_STATE: Final = {
    RemoteLogSegmentState.COPY_SEGMENT_STARTED: "started_at_ms",
    RemoteLogSegmentState.COPY_SEGMENT_FINISHED: "finished_at_ms",
    RemoteLogSegmentState.DELETE_SEGMENT_STARTED: "delete_started_at_ms",
    RemoteLogSegmentState.DELETE_SEGMENT_FINISHED: "deleted_at_ms",
}
_COMPARE_AND_SET: Final = update(segments).where(
    in_partition(segments),
    segments.c.segment_id == bindparam("of_segment"),
    segments.c.state == bindparam("of_state"),
)
_ADD_EPOCHS: Final = insert(segment_epochs)


class SegmentChanges:
    """Changes of one cluster's segments on one connection, inside one transaction, as `RemoteLogMetadata` says."""

    def __init__(self, connection: Connection, cluster_id: str, now_ms: NowMs) -> None:
        self._connection = connection
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    def add(
        self,
        metadata: RemoteLogSegmentMetadata,
        fence: Fence,
        log_crc32c: int | None,
        source_fingerprint: str | None,
    ) -> None:
        """Record a new attempt in COPY_SEGMENT_STARTED. Idempotent for equal arguments."""
        segment_id = metadata.remote_log_segment_id
        require_same_partition(segment_id, fence)
        if not is_legal_transition(None, metadata.state):
            raise IllegalTransitionError(f"{segment_id}: a new segment may not begin as {metadata.state.name}")
        holder = hold_fence(self._connection, self._cluster_id, fence)
        lock_or_create_partition(self._connection, self._cluster_id, metadata.topic_id_partition)
        if (run_id := marked_for_deletion_by(self._connection, self._cluster_id, segment_id)) is not None:
            raise IllegalTransitionError(f"{segment_id}: run {run_id} removes what is stored under this id")
        values = (
            values_of(self._cluster_id, metadata)
            | {
                "verdict": Verdict.NONE,
                "verdict_detail": "",
                "log_crc32c": log_crc32c,
                "source_fingerprint": source_fingerprint,
                "run_id": holder.run_id,
                "fencing_token": fence.token,
                "started_at_ms": self._now_ms(self._connection),
            }
            | key_of(self._cluster_id, metadata.topic_id_partition)
        )
        segment_key = self._connection.execute(_add(self._connection.dialect.name), values).scalar_one_or_none()
        if segment_key is None:
            known = self._known(segment_id)
            shown = (metadata, log_crc32c, source_fingerprint)
            if (known.metadata, known.log_crc32c, known.source_fingerprint) != shown:
                raise IllegalTransitionError(
                    f"{segment_id} exists as {known.metadata.state.name} and differs from the new segment"
                )
            return
        self._insert_epochs(segment_key, metadata)
        count_in(self._connection, self._cluster_id, metadata)

    def change_state(
        self,
        change: RemoteLogSegmentMetadataUpdate,
        expected: RemoteLogSegmentState,
        fence: Fence,
        supersedes: RemoteLogSegmentId | None,
    ) -> RemoteLogSegmentMetadata:
        """Compare and set the state; return the new metadata. Idempotent: repeating a stored change has no effect."""
        segment_id = change.remote_log_segment_id
        require_same_partition(segment_id, fence)
        if not expected.may_become(change.state):
            raise IllegalTransitionError(f"{segment_id}: {expected.name} may not become {change.state.name}")
        holder = hold_fence(self._connection, self._cluster_id, fence)
        stopped_reason = lock_partition(self._connection, self._cluster_id, segment_id.topic_id_partition)
        known = self._known(segment_id)
        if known.metadata.state is change.state and expected is not change.state:
            return known.metadata
        if known.metadata.state is not expected:
            raise StateConflictError(f"{segment_id} is {known.metadata.state.name}, not {expected.name}")
        if change.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED and expected is not change.state:
            if supersedes is not None:
                return self._take_place(self._known(supersedes), known, change, fence, holder.batch_id)
            self._require_next(known, stopped_reason)
            return self._finish(known, change, fence)
        return self._write(known, change, fence)

    def _known(self, segment_id: RemoteLogSegmentId) -> SegmentRow:
        known = find_segment(self._connection, self._cluster_id, segment_id)
        if known is None:
            raise UnknownSegmentError(f"no remote log segment {segment_id}")
        return known

    def _key_of(self, segment_id: RemoteLogSegmentId) -> dict[str, Any]:
        return key_of(self._cluster_id, segment_id.topic_id_partition) | {"of_segment": str(segment_id.id)}

    def _require_next(self, row: SegmentRow, stopped_reason: str | None) -> None:
        segment, partition = row.metadata, row.metadata.topic_id_partition
        if stopped_reason is not None:
            raise StateConflictError(f"{partition} is stopped: {stopped_reason}")
        require_one_history(self._connection, self._cluster_id, partition, row.history)
        highest = highest_finished_offset(self._connection, self._cluster_id, partition)
        if highest is not None and segment.end_offset <= highest:
            offsets = f"{segment.start_offset}..{segment.end_offset}"
            raise StateConflictError(f"{partition}: {offsets} may not finish, offsets up to {highest} did already")

    def _finish(
        self, known: SegmentRow, change: RemoteLogSegmentMetadataUpdate, fence: Fence
    ) -> RemoteLogSegmentMetadata:
        """Make the segment FINISHED as the newest one, and merge its leader epochs into the partition's."""
        written = self._write(known, change, fence)
        learn_leader_epochs(
            self._connection,
            self._cluster_id,
            written.topic_id_partition,
            written.segment_leader_epochs,
            written.start_offset,
            self._now_ms,
        )
        return written

    def _take_place(
        self, old: SegmentRow, new: SegmentRow, change: RemoteLogSegmentMetadataUpdate, fence: Fence, author: str
    ) -> RemoteLogSegmentMetadata:
        """Make the new copy FINISHED in the old segment's history, whose leader epochs were merged before.

        The end of the archive stays unchanged: after a decision to follow another history, that end may be below this
        segment.
        """
        partition = old.metadata.topic_id_partition
        highest = highest_finished_offset(self._connection, self._cluster_id, partition)
        self._supersede(old, new, change, fence, author)
        written = self._write(new, change, fence, history=old.history)
        if highest is not None:
            lower_highest(self._connection, self._cluster_id, partition, highest)
        return written

    def _supersede(
        self, old: SegmentRow, new: SegmentRow, change: RemoteLogSegmentMetadataUpdate, fence: Fence, author: str
    ) -> None:
        require_supersedable(old, new)
        deletion = replace(
            change,
            remote_log_segment_id=old.metadata.remote_log_segment_id,
            state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
            custom_metadata=old.metadata.custom_metadata,
        )
        self._write(old, deletion, fence, superseded_by=str(change.remote_log_segment_id.id))
        now_ms = self._now_ms(self._connection)
        record_superseding(self._connection, self._cluster_id, old, new, author=author, now_ms=now_ms)

    def _write(
        self, known: SegmentRow, change: RemoteLogSegmentMetadataUpdate, fence: Fence, **more: str | int
    ) -> RemoteLogSegmentMetadata:
        before, after = known.metadata, known.metadata.with_update(change)
        segment_id = change.remote_log_segment_id
        if known.origin is not SegmentOrigin.PLATFORM:
            raise StateConflictError(f"{segment_id} was begun by a broker, and only brokers change it")
        values: dict[str, Any] = {
            "state": int(after.state),
            "broker_id": after.broker_id,
            "event_timestamp_ms": after.event_timestamp_ms,
            "custom_metadata": after.custom_metadata,
            "fencing_token": fence.token,
            **more,
        }
        if after.state is not before.state:
            values[TIME_OF_STATE[after.state]] = self._now_ms(self._connection)
        values |= self._key_of(segment_id) | {"of_state": int(before.state)}
        if self._connection.execute(_COMPARE_AND_SET, values).rowcount != 1:
            raise StateConflictError(f"{segment_id} is no longer {before.state.name}")
        if after.state is not before.state:
            count_out(self._connection, self._cluster_id, before)
            count_in(self._connection, self._cluster_id, after)
            if known.verdict is Verdict.FAILED:
                refresh_stop(self._connection, self._cluster_id, segment_id.topic_id_partition)
        return after

    def _insert_epochs(self, segment_key: int, metadata: RemoteLogSegmentMetadata) -> None:
        self._connection.execute(_ADD_EPOCHS, epoch_values_of(self._cluster_id, segment_key, metadata))


@cache
def _add(dialect_name: str) -> ReturningInsert[int]:
    """Return the statement that inserts a segment; the statement returns no row if the id exists."""
    statement = insert_for(dialect_name, segments).values(history=NEWEST_HISTORY)
    statement = statement.on_conflict_do_nothing(index_elements=["cluster_id", "topic_id", "partition", "segment_id"])
    return statement.returning(segments.c.segment_key)


def require_same_partition(segment_id: RemoteLogSegmentId, fence: Fence) -> None:
    """Raise ValueError unless the fence is of the segment's partition."""
    if segment_id.topic_id_partition != fence.topic_id_partition:
        raise ValueError(f"a fence of {fence.topic_id_partition} does not hold for {segment_id}")


def require_supersedable(old: SegmentRow, new: SegmentRow) -> None:
    """Check that `old` is FINISHED and failed, and that `new` has the same partition, offsets and leader epochs.

    Epochs without a record are not compared: a former leader may have epochs without records that no other replica has.

    Raises:
        StateConflictError: one of these conditions is not met.
    """
    before, after = old.metadata, new.metadata
    old_id, new_id = before.remote_log_segment_id, after.remote_log_segment_id
    if before.topic_id_partition != after.topic_id_partition:
        raise StateConflictError(f"{new_id} may not supersede {old_id}: they are of different partitions")
    if not before.is_finished or old.verdict is not Verdict.FAILED:
        state = f"{before.state.name} and {old.verdict}"
        raise StateConflictError(f"{old_id} is {state}: only a FINISHED segment that failed is superseded")
    if (before.start_offset, before.end_offset) != (after.start_offset, after.end_offset):
        offsets = f"{after.start_offset}..{after.end_offset}"
        raise StateConflictError(f"{old_id} has offsets {before.start_offset}..{before.end_offset}, {new_id} {offsets}")
    if with_records(before.segment_leader_epochs) != with_records(after.segment_leader_epochs):
        raise StateConflictError(f"{old_id} has other leader epochs than {new_id}: the records are not the same")


def record_superseding(
    connection: Connection, cluster_id: str, old: SegmentRow, new: SegmentRow, *, author: str, now_ms: int
) -> None:
    """Record the event with the checksums of both logs, as far as known."""
    partition = new.metadata.topic_id_partition
    offsets = f"{new.metadata.start_offset}..{new.metadata.end_offset}"
    detail = (
        f"{offsets}: {old.metadata.remote_log_segment_id.id} by {new.metadata.remote_log_segment_id.id}; "
        f"CRC-32C of the log {_crc(old)}, now {_crc(new)}; {old.verdict_detail}"
    )
    record_event(connection, cluster_id, EventKind.SUPERSEDED, partition, detail, author, now_ms)


def _crc(row: SegmentRow) -> str:
    return "unknown" if row.log_crc32c is None else f"{row.log_crc32c:08x}"
