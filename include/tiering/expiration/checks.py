"""What is asked once more before anything is deleted: the plan, and the copy in a segment's place.

The clock that both go by is asked too: see `runs/database_clock.py`.

*The plan.* Hours may lie between a plan, its approval and its deletion. Meanwhile more may have expired, which is not
part of the plan and waits for the next one. What matters is the other direction: a segment that stays by the log
start, leader epochs, retention, owner and clock that hold now must not go because they were others when it was
planned. So the plan is asked about before an approval counts, and each batch asks about its partition when it takes it
and when it comes out of a pause.

*The copy in its place.* A failed segment was superseded because of what a verification saw. If that was the mistake
(another disk, another prefix, a store that lied), the superseded objects are the real ones, and the row that is
FINISHED refers to nothing. So before objects go that retention has not decided about, the new copy is looked at once
more: it has to be there, whole, right, and passed. What cannot be proved keeps the old objects: they cost storage. A
copy that never was finished is one for this database alone: if that was set back, the copy may have been finished
since, and be all that there is of its offsets.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.errors import StoreInDoubtError, UnprovedReplacementError
from include.tiering.expiration.plan import ExpirationPlan
from include.tiering.model.histories import FIRST_HISTORY, OffsetRange, without
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState, Verdict
from include.tiering.runs.deletion_run import PlannedDeletion, PlannedExpiration
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.segments.stored_copies import StoreWitness, WholeCopy

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_BEGUN = RemoteLogSegmentState.DELETE_SEGMENT_STARTED

WOULD_STAY = "it stays by the settings that hold now"
"""What the outcome of a planned deletion says that would not be planned any more."""


@dataclass(frozen=True, slots=True)
class StillPlanned:
    """What of a partition's plan goes on: `planned` with a log start that leaves what stays, and what is `kept`, `why`
    for a person. `history` is the newest one that was followed before anything was read.
    """

    planned: PlannedExpiration
    kept: tuple[PlannedDeletion, ...] = ()
    why: str = WOULD_STAY
    history: int = FIRST_HISTORY


PlanCheck = Callable[[PlannedExpiration], StillPlanned]
"""Asks whether the plan of one partition still holds, by everything that holds now."""


def still_planned(
    planned: PlannedExpiration,
    now: PlannedExpiration | None,
    metadata: RemoteLogMetadata,
    *,
    history: int,
    waits: str = "",
) -> StillPlanned:
    """Compare the rest of a partition's plan with what would be planned `now`; None: nothing of it.

    A deletion that was begun goes on: its records are hidden, and nothing brings them back. What is gone is left to the
    caller, who finds it gone.

    Args:
        planned: the rest of a partition's plan.
        now: what would be planned of the partition; None: nothing of it.
        metadata: where its segments are.
        history: the newest one that was followed before `now` was planned.
        waits: why the partition waits to expire now, if it does.
    """
    due = {one.segment_id: one.reason for one in (() if now is None else now.deletions)}
    doubtful = [
        deletion
        for deletion in planned.deletions
        if deletion.reason != DeletionReason.UNFINISHED_DELETE
        and not _is_due(deletion.reason, due.get(deletion.segment_id))
    ]
    if doubtful:
        rows = {row.metadata.remote_log_segment_id: row for row in metadata.list_segments(planned.topic_id_partition)}
        doubtful = [one for one in doubtful if _may_stay(rows.get(one.segment_id))]
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


def _is_due(planned: str, now: str | None) -> bool:
    """An abandoned copy goes only after a proof that its offsets are elsewhere, which is asked for where a plan names
    it as one. What was planned for another reason and is due only as an abandoned copy now waits for the next plan.
    """
    return now is not None and (now != DeletionReason.ABANDONED_COPY or planned == DeletionReason.ABANDONED_COPY)


def _may_stay(row: SegmentRow | None) -> bool:
    """Not what is gone, and not what a run began to delete: of a superseded segment nothing was begun yet."""
    return row is not None and (row.metadata.state is not _BEGUN or row.superseded_by is not None)


def withdrawn(
    approved: Iterable[PlannedExpiration], now: ExpirationPlan, metadata: RemoteLogMetadata
) -> list[PlannedDeletion]:
    """Approved deletions of FINISHED segments that are FINISHED still and that `now` does not name, in their order.

    Segments in other states are left to the batch, which looks at each again; one that is gone is nobody's loss.
    """
    due = {deletion.segment_id for planned in now.expirations for deletion in planned.deletions}
    kept: list[PlannedDeletion] = []
    for planned in approved:
        doubtful = [one for one in planned.deletions if one.state is _FINISHED and one.segment_id not in due]
        if doubtful:
            rows = metadata.list_segments(planned.topic_id_partition)
            there = {row.metadata.remote_log_segment_id for row in rows if row.metadata.state is _FINISHED}
            kept += [one for one in doubtful if one.segment_id in there]
    return kept


_MOST_COPIES: Final = 1_000
"""No segment was ever copied so often: a longer chain is damage."""


@dataclass(frozen=True, slots=True)
class ReplacementCheck:
    """Looks at the copies that have the offsets of a superseded segment, or of an abandoned copy."""

    metadata: RemoteLogMetadata
    whole: WholeCopy

    def require(self, superseded: RemoteLogSegmentId) -> None:
        """Return if the objects of this segment may go as far as its replacement is concerned.

        Nothing is asked for below the log start: retention has decided about these offsets.

        Raises:
            UnprovedReplacementError: of the last copy in its place something is missing, other, or not known.
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
        """Return if the objects of a copy that was never finished may go: it is below the log start, or there are none
        in a store that shows others, or passed segments or recorded decisions cover its offsets.

        Raises:
            UnprovedReplacementError: offsets of it are nowhere else, or what has them is not whole.
            RemoteStorageUnavailableError: the store does not answer (retriable).
        """
        segment_id, partition = abandoned.remote_log_segment_id, abandoned.topic_id_partition
        if self.metadata.retention_state(partition).log_start_offset > abandoned.end_offset:
            return
        if not self.whole.storage.stat_log_segment(abandoned):
            self._require_witness(abandoned)
            return
        wanted = OffsetRange(abandoned.start_offset, abandoned.end_offset)
        rows = [row for row in self.metadata.list_segments(partition) if row.metadata.is_finished]
        covering = [row for row in rows if _overlaps(row.metadata, wanted) and row.verdict.is_served]
        decided = [skipped_offset.offsets for skipped_offset in self.metadata.skipped_offsets(partition)]
        copied = [OffsetRange(row.metadata.start_offset, row.metadata.end_offset) for row in covering]
        if nowhere := without(wanted, [*decided, *copied]):
            raise UnprovedReplacementError(
                f"{segment_id} is kept: its copy was not finished, and no other that passed verification has offsets"
                f" {nowhere[0]}; a copy run finishes it if all of it is there, ./tiering adopt if its source is gone"
            )
        for row in covering:
            if (fault := self.whole.fault(row)) is not None:
                raise UnprovedReplacementError(f"{segment_id} is kept: {row.metadata.remote_log_segment_id.id} {fault}")

    def _require_witness(self, missing: RemoteLogSegmentMetadata) -> None:
        """A deletion that is recorded now is not taken back when the right store is there again."""
        rows = self.metadata.list_segments(missing.topic_id_partition)
        finished = [row for row in rows if row.metadata.is_finished and row.verdict is not Verdict.FAILED]
        if finished and self.whole.is_in_parts(finished[-1]):
            other = finished[-1].metadata.remote_log_segment_id
            raise UnprovedReplacementError(
                f"{missing.remote_log_segment_id} is kept: nothing of it is in the store, and {other.id}, which was"
                " finished, is not whole there: is it the right store?"
            )
        try:
            StoreWitness(self.metadata, lambda: self.whole.storage).require(missing)
        except StoreInDoubtError as error:
            raise UnprovedReplacementError(f"{missing.remote_log_segment_id} is kept: {error}") from error

    def _last_copy(self, old: SegmentRow) -> SegmentRow:
        """The end of the chain: a new copy may have failed and have been superseded itself."""
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
            f"{old.metadata.remote_log_segment_id} is kept: no metadata has {row.superseded_by}, the copy in its place"
        )


def _overlaps(segment: RemoteLogSegmentMetadata, offsets: OffsetRange) -> bool:
    return segment.start_offset <= offsets.last and offsets.first <= segment.end_offset


def _unproved(old: SegmentRow, new: SegmentRow, why: str) -> UnprovedReplacementError:
    return UnprovedReplacementError(
        f"{old.metadata.remote_log_segment_id} is kept: {new.metadata.remote_log_segment_id.id}, the copy in its place,"
        f" {why}"
    )
