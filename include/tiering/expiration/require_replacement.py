"""Before objects go that retention has not decided about: what has their offsets is there, whole, right, and passed.

A failed segment was superseded because of what a verification saw. If that was the mistake (another disk, another
prefix, a store that lied), the superseded objects are the real ones, and the row that is FINISHED refers to nothing. So
the new copy is looked at once more, at the last moment. What cannot be proved keeps the old objects: they cost storage.

A copy that never was finished is one for this database alone: if that was set back, the copy may have been finished
since, and be all that there is of its offsets.
"""

from dataclasses import dataclass
from typing import Final

from include.tiering.errors import StoreInDoubtError, UnprovedReplacementError
from include.tiering.model.histories import OffsetRange, without
from include.tiering.model.ids import RemoteLogSegmentId
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata, Verdict
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.segments.stored_copies import StoreWitness, WholeCopy

_MOST_COPIES: Final = 1_000
"""No segment was ever copied so often: a longer chain is damage."""


@dataclass(frozen=True, slots=True)
class ReplacementCheck:
    """Looks at the copies that have the offsets of a superseded segment, or of an unfinished copy."""

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
        if old is None or self.metadata.partition_truth(partition).log_start_offset > old.metadata.end_offset:
            return
        new = self._last_copy(old)
        if not new.metadata.is_finished:
            raise _unproved(old, new, f"is {new.metadata.state.name}, and the log start has not passed its offsets")
        if not new.verdict.is_served:
            raise _unproved(old, new, f"has not passed verification: {new.verdict}")
        fault = self.whole.fault(new)
        if fault is not None:
            raise _unproved(old, new, fault)

    def require_covered(self, unfinished: RemoteLogSegmentMetadata) -> None:
        """Return if the objects of a copy that was never finished may go: it is below the log start, or there are none
        in a store that shows others, or passed segments or recorded decisions cover its offsets.

        Raises:
            UnprovedReplacementError: offsets of it are nowhere else, or what has them is not whole.
            RemoteStorageUnavailableError: the store does not answer (retriable).
        """
        segment_id, partition = unfinished.remote_log_segment_id, unfinished.topic_id_partition
        if self.metadata.partition_truth(partition).log_start_offset > unfinished.end_offset:
            return
        if not self.whole.storage.stat_log_segment(unfinished):
            self._require_witness(unfinished)
            return
        wanted = OffsetRange(unfinished.start_offset, unfinished.end_offset)
        rows = [row for row in self.metadata.list_segments(partition) if row.metadata.is_finished]
        covering = [row for row in rows if _overlaps(row.metadata, wanted) and row.verdict.is_served]
        decided = [one.offsets for one in self.metadata.skipped_offsets(partition)]
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
