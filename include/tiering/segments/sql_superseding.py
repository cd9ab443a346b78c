"""A new copy takes the place of a failed one: what must hold, and what is told about it.

Both states change in the transaction that makes the new copy FINISHED, behind the lock of the partition's row, which a
verdict and an expiration take too. Whoever comes first has decided: a segment that passed meanwhile, or whose deletion
began, is superseded by nobody.
"""

from sqlalchemy import Connection

from include.tiering.database.events import record_event
from include.tiering.errors import StateConflictError
from include.tiering.model.lineage import with_records
from include.tiering.model.verdict import Verdict
from include.tiering.segments.values import SegmentRow

_KIND = "superseded"


def require_supersedable(old: SegmentRow, new: SegmentRow) -> None:
    """Raises StateConflictError unless `old` is FINISHED and FAILED, and `new` has its offsets and leader epochs.

    Epochs without a record are not compared: the replica that led once knows of some that no other one does.
    """
    before, after = old.metadata, new.metadata
    old_id, new_id = before.remote_log_segment_id, after.remote_log_segment_id
    if before.topic_id_partition != after.topic_id_partition:
        raise StateConflictError(f"{new_id} may not supersede {old_id}: it is of another partition")
    if not before.is_finished or old.verdict is not Verdict.FAILED:
        state = f"{before.state.name} and {old.verdict}"
        raise StateConflictError(f"{old_id} is {state}: only a FINISHED segment that failed is superseded")
    if (before.start_offset, before.end_offset) != (after.start_offset, after.end_offset):
        offsets = f"{after.start_offset}..{after.end_offset}"
        raise StateConflictError(
            f"{old_id} has other offsets than {offsets}, {before.start_offset}..{before.end_offset}"
        )
    if with_records(before.segment_leader_epochs) != with_records(after.segment_leader_epochs):
        raise StateConflictError(f"{old_id} has other leader epochs than {new_id}: the records are not the same")


def record_superseding(
    connection: Connection, cluster_id: str, old: SegmentRow, new: SegmentRow, *, author: str, now_ms: int
) -> None:
    """With both checksums of the log: where they differ the first copy was of other bytes than the source has now."""
    partition = new.metadata.topic_id_partition
    offsets = f"{new.metadata.start_offset}..{new.metadata.end_offset}"
    detail = (
        f"{offsets}: {old.metadata.remote_log_segment_id.id} by {new.metadata.remote_log_segment_id.id}; "
        f"CRC-32C of the log {_crc(old)}, now {_crc(new)}; {old.verdict_detail}"
    )
    subject = f"{partition} ({partition.topic_id})"
    record_event(connection, cluster_id, _KIND, subject, detail, author, now_ms)


def _crc(row: SegmentRow) -> str:
    return "unknown" if row.log_crc32c is None else f"{row.log_crc32c:08x}"
