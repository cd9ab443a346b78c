"""Segments that failed the quality gate, what is found out about them, and what somebody decides."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.skipped_offsets import SkippedOffsets
from include.tiering.segments.failed_copies import FailedCopy


class FailedCopies(Protocol):
    """Of one cluster."""

    def all(self) -> Sequence[FailedCopy]:
        """Every FINISHED segment that failed, given up or not, by topic, partition and start offset."""
        ...

    def failed_by(self, rule: str) -> Mapping[TopicIdPartition, int]:
        """How many segments of each partition are FINISHED, failed and break this rule, without those that were given
        up. Partitions without any are left out."""
        ...

    def note_losses(self, partition: TopicIdPartition, losses: Mapping[RemoteLogSegmentId, str]) -> None:
        """Remember which failed segments of the partition no source can replace, and why; of the others, that nothing
        says so any more. What somebody gave up, and what has not failed, stays as it is.

        The stop of the partition tells it from then on. An event says which loss is new. Repeating a call is harmless.
        """
        ...

    def give_up(self, segment_id: RemoteLogSegmentId, *, reason: str, author: str) -> Sequence[SkippedOffsets]:
        """Record that the archive goes on without what a failed segment holds, with an event: its offsets join those
        that were skipped, and it stops its partition no longer. It stays as it is, FINISHED and not served; a verdict
        PASSED takes the decision about the segment back.

        Returns the decisions that were recorded: none for offsets that one covers already. Repeating it is harmless.

        Raises:
            UnknownSegmentError
            StateConflictError: it is not FINISHED or has not failed, a decision left its history, or the platform does
                not own the topic.
        """
        ...
