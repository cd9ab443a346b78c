"""Checks right before a deletion: whether the plan still holds, and for some segments whether other copies exist.

Ages depend on the database's clock. `runs/database_clock.py` checks that clock.

**The plan.** Hours may pass between a plan, its approval and its deletions. Segments that expired meanwhile are not in
the plan and wait for the next one. The opposite matters: the log start, leader epochs, retention, the owner of the
topic, and the clock may have changed so that a planned segment has to stay. So the plan is checked before an approval
counts, and each batch checks its partition when it takes it and after each pause (`./tiering pause`).

**The new copy.** A segment that fails its verification is copied again. Once the new copy is finished, the old segment
is *superseded*: its deletion is started, and its objects are kept for a while (`tiering.superseded.hold.ms`). If the
verification was misled (another disk, another prefix, a store that returned wrong data), the superseded objects may be
the only intact ones. So before they are deleted, the new copy is checked once more: its row has to exist, its verdict
has to be passed, and its objects have to be whole and correct (`WholeCopy`). Without this proof the old objects stay,
at the cost of storage. Only a superseded segment that is wholly below the log start is deleted without the check.

**Abandoned copies.** A copy that was begun, was not finished, and that no worker continues, is *abandoned*. A copy may
look abandoned although it was finished: if the database was restored from a backup, the copy may have been finished
after that backup, and may be the only copy of its offsets. So a copy that expires as abandoned is deleted only if
`ReplacementCheck.require_covered` allows it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.errors import StoreInDoubtError, UnprovedReplacementError
from include.tiering.expiration.plan import ExpirationPlan
from include.tiering.model.histories import FIRST_HISTORY, OffsetRange, without
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Uuid,
    Verdict,
)
from include.tiering.runs.deletion_run import PlannedDeletion, PlannedExpiration
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.segments.stored_copies import StoreWitness, WholeCopy

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_BEGUN = RemoteLogSegmentState.DELETE_SEGMENT_STARTED

WOULD_STAY = "it stays by the settings that hold now"
"""Message of a planned deletion that would not be planned any more."""


@dataclass(frozen=True, slots=True)
class StillPlanned:
    """The part of a partition's plan that still holds, and the part that does not.

    `planned` holds the deletions that are still planned; its log start is lowered to the one that is due now, if that
    is lower. `kept` are the deletions that are not planned any more; `why` tells a person the reason. `history` is the
    number of the partition's newest history (see `model/histories.py`), read before the rest of the current state.
    """

    planned: PlannedExpiration
    kept: tuple[PlannedDeletion, ...] = ()
    why: str = WOULD_STAY
    history: int = FIRST_HISTORY


PlanCheck = Callable[[PlannedExpiration], StillPlanned]
"""Compares the plan of one partition with the current state."""


def still_planned(
    planned: PlannedExpiration,
    now: PlannedExpiration | None,
    metadata: RemoteLogMetadata,
    *,
    history: int,
    waits: str = "",
) -> StillPlanned:
    """Compare the rest of a partition's plan with what would be planned now.

    A begun deletion continues, because readers no longer get its records, and nothing restores them. The exception is a
    superseded segment, which is DELETE_SEGMENT_STARTED before any plan: it is kept if it would not be planned now.
    Segments that are already deleted stay in `planned`; the caller records them as deleted.

    Args:
        planned: the rest of the partition's plan.
        now: the result of `ExpirationPlanner.plan_again`; None if nothing of the partition may expire here now.
        metadata: holds the current states of the partition's segments.
        history: number of the newest history before `now` was planned.
        waits: why the partition does not expire now; empty if it does.
    """
    due = {deletion.segment_id: deletion.reason for deletion in (() if now is None else now.deletions)}
    doubtful = [
        deletion
        for deletion in planned.deletions
        if deletion.reason != DeletionReason.UNFINISHED_DELETE
        and not _is_due(deletion.reason, due.get(deletion.segment_id))
    ]
    if doubtful:
        found = metadata.selected.segments_with_ids(planned.topic_id_partition, _ids_of(doubtful))
        rows = {row.metadata.remote_log_segment_id: row for row in found}
        doubtful = [deletion for deletion in doubtful if _may_stay(rows.get(deletion.segment_id))]
    kept = set(doubtful)
    return StillPlanned(
        replace(
            planned,
            log_start_offset=min(planned.log_start_offset, 0 if now is None else now.log_start_offset),
            deletions=tuple(deletion for deletion in planned.deletions if deletion not in kept),
        ),
        tuple(doubtful),
        f"{WOULD_STAY}: {waits}" if waits else WOULD_STAY,
        history,
    )


def _ids_of(deletions: Iterable[PlannedDeletion]) -> list[Uuid]:
    return [deletion.segment_id.id for deletion in deletions]


def _is_due(planned: str, now: str | None) -> bool:
    """Return whether a deletion planned for one reason is still due for the reason `now`.

    An abandoned copy is deleted only after a proof (`ReplacementCheck.require_covered`), which a batch requires only if
    the plan has the reason ABANDONED_COPY. So a segment that was planned for another reason and is now due as an
    abandoned copy waits for the next plan. So does one that is now due because its topic was deleted: this reason needs
    an approval of its own.
    """
    return now == planned or now not in (None, DeletionReason.ABANDONED_COPY, DeletionReason.TOPIC_DELETED)


def _may_stay(row: SegmentRow | None) -> bool:
    """Return whether the segment exists and may be kept: its deletion has not begun, or it is superseded."""
    return row is not None and (row.metadata.state is not _BEGUN or row.superseded_by is not None)


def withdrawn(
    approved: Iterable[PlannedExpiration], now: ExpirationPlan, metadata: RemoteLogMetadata
) -> list[PlannedDeletion]:
    """Return the approved deletions that would not be planned any more, in the order of the plan.

    These are deletions of segments that were FINISHED when they were planned, are FINISHED still, and are not in `now`,
    the plan that would be made now. Segments in other states are not returned: a batch checks those again, and deleted
    segments do not matter any more.
    """
    due = {deletion.segment_id for planned in now.expirations for deletion in planned.deletions}
    kept: list[PlannedDeletion] = []
    for planned in approved:
        doubtful = [
            deletion for deletion in planned.deletions if deletion.state is _FINISHED and deletion.segment_id not in due
        ]
        if doubtful:
            rows = metadata.selected.segments_with_ids(planned.topic_id_partition, _ids_of(doubtful))
            finished = {row.metadata.remote_log_segment_id for row in rows if row.metadata.state is _FINISHED}
            kept += [deletion for deletion in doubtful if deletion.segment_id in finished]
    return kept


_MOST_COPIES: Final = 1_000
"""Upper limit of a chain of new copies; a longer chain means that the metadata is damaged."""


@dataclass(frozen=True, slots=True)
class ReplacementCheck:
    """Checks that other copies have the offsets of a superseded segment or of an abandoned copy."""

    metadata: RemoteLogMetadata
    whole: WholeCopy

    def require(self, superseded: RemoteLogSegmentId) -> None:
        """Check that the last new copy of a superseded segment is whole, correct and passed.

        Nothing is checked if the superseded segment is wholly below the log start: its offsets have expired.

        Raises:
            UnprovedReplacementError: the last new copy is not in the metadata, is not FINISHED, or has not passed; or
                its objects are missing, differ, or cannot be compared.
            RemoteStorageUnavailableError: the store does not answer (retriable).
        """
        old = self.metadata.segment(superseded)
        partition = superseded.topic_id_partition
        if old is None or self.metadata.retention_state(partition).log_start_offset > old.metadata.end_offset:
            return
        new = self._last_copy(old)
        if not new.metadata.is_finished:
            raise _unproved(old, new, f"is {new.metadata.state.name}, and the log start has not passed its offsets")
        if not new.verdict.is_served:
            raise _unproved(old, new, f"has not passed verification: {new.verdict}")
        fault = self.whole.fault(new)
        if fault is not None:
            raise _unproved(old, new, fault)

    def require_covered(self, abandoned: RemoteLogSegmentMetadata) -> None:
        """Check that the objects of an unfinished copy may be deleted.

        They may in three cases. The copy is wholly below the log start. Or the store has no object of the copy, and
        `_require_witness` finds no reason to doubt the store. Or each offset of the copy is in a segment that passed
        verification, or a person's recorded decision skips it; then the segments that have such offsets must be whole
        and correct.

        Raises:
            UnprovedReplacementError: some offset of the copy neither was skipped nor is in a segment that passed; or
                such a segment is not whole or not correct; or the copy has no objects and the store may be wrong.
            RemoteStorageError: the store cannot be read, or is not this database's.
        """
        segment_id, partition = abandoned.remote_log_segment_id, abandoned.topic_id_partition
        if self.metadata.retention_state(partition).log_start_offset > abandoned.end_offset:
            return
        if not self.whole.storage.stat_log_segment(abandoned):
            self._require_witness(abandoned)
            return
        wanted = OffsetRange(abandoned.start_offset, abandoned.end_offset)
        rows = self.metadata.selected.finished_from(partition, wanted.first)
        covering = [row for row in rows if _overlaps(row.metadata, wanted) and row.verdict.is_served]
        decided = [skipped_offset.offsets for skipped_offset in self.metadata.skipped_offsets(partition)]
        copied = [OffsetRange(row.metadata.start_offset, row.metadata.end_offset) for row in covering]
        if nowhere := without(wanted, [*decided, *copied]):
            raise UnprovedReplacementError(
                f"{segment_id} is kept: its copy was not finished, and no other copy that passed verification has"
                f" offsets {nowhere[0]}; if all of its objects are in the store, the next copy run can finish it, or"
                " ./tiering adopt if the source lost the whole partition"
            )
        for row in covering:
            if (fault := self.whole.fault(row)) is not None:
                raise UnprovedReplacementError(f"{segment_id} is kept: {row.metadata.remote_log_segment_id.id} {fault}")

    def _require_witness(self, missing: RemoteLogSegmentMetadata) -> None:
        """Check, by finished segments of the database, that this is the right store.

        A wrong store lacks the objects of the copy, too, and a deletion that is recorded because of that is never
        undone. The last finished segment of the partition that did not fail must not be in the store in parts, the
        store's marker must be this database's, and a segment that passed must be whole (`StoreWitness`). Without such
        segments only the marker is checked.
        """
        rows = self.metadata.list_segments(missing.topic_id_partition)
        finished = [row for row in rows if row.metadata.is_finished and row.verdict is not Verdict.FAILED]
        if finished and self.whole.is_in_parts(finished[-1]):
            other = finished[-1].metadata.remote_log_segment_id
            raise UnprovedReplacementError(
                f"{missing.remote_log_segment_id} is kept: it has no objects in the store, and the finished"
                f" segment {other.id} is not whole there: is it the right store?"
            )
        try:
            StoreWitness(self.metadata, lambda: self.whole.storage).require(missing)
        except StoreInDoubtError as error:
            raise UnprovedReplacementError(f"{missing.remote_log_segment_id} is kept: {error}") from error

    def _last_copy(self, old: SegmentRow) -> SegmentRow:
        """Return the end of the chain of new copies: a new copy may have failed and have been superseded itself."""
        row = old
        for _ in range(_MOST_COPIES):
            if row.superseded_by is None:
                return row
            new_id = RemoteLogSegmentId(old.metadata.topic_id_partition, row.superseded_by)
            found = self.metadata.segment(new_id)
            if found is None:
                break
            row = found
        raise UnprovedReplacementError(
            f"{old.metadata.remote_log_segment_id} is kept: the metadata does not have its new copy {row.superseded_by}"
        )


def _overlaps(segment: RemoteLogSegmentMetadata, offsets: OffsetRange) -> bool:
    return segment.start_offset <= offsets.last and offsets.first <= segment.end_offset


def _unproved(old: SegmentRow, new: SegmentRow, why: str) -> UnprovedReplacementError:
    return UnprovedReplacementError(
        f"{old.metadata.remote_log_segment_id} is kept: its new copy {new.metadata.remote_log_segment_id.id} {why}"
    )
