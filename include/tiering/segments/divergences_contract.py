"""What the metadata remembers of divergences: where sources stopped to continue what was archived."""

from collections.abc import Sequence
from typing import Protocol

from include.tiering.model.divergence import Divergence, SeenDivergence
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.leader_epochs import LeaderEpochs


class Divergences(Protocol):
    """Part of `RemoteLogMetadata`. While one is open, nothing of its partition becomes FINISHED for the first time."""

    def divergences(self, partition: TopicIdPartition) -> Sequence[Divergence]:
        """Every one that was ever recorded of this partition, by number, decided or not."""
        ...

    def is_continued(self, partition: TopicIdPartition, leader_epoch: int, highest_copied: int) -> bool:
        """Whether a source continues what is remote, of which `highest_copied` is under this leader epoch: that is the
        epoch's `highest_offset_for_epoch`, and no divergence waits for a decision. One read. False says nothing yet:
        `divergences` and the segments do.
        """
        ...

    def record_divergence(
        self, partition: TopicIdPartition, seen: SeenDivergence, *, history: int
    ) -> Divergence | None:
        """Record it, with an event, or what it adds to the one that is open. Repeating a call is harmless.

        Args:
            history: `newest_history` when it was seen.

        Returns:
            The one that is open now; None, and records nothing, if somebody decided since, or somebody else owns the
            topic.
        """
        ...

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
        """Decide about an open divergence, with an event: from `from_offset` (inclusive) on the archive follows the
        source. Nothing is deleted. Repeating a call is harmless.

        `highest_copied_offset` becomes the offset before, whatever is remote above it. If it lies below already, what
        is between is recorded as skipped. What was copied from the source before the divergence was noticed begins the
        new history. The partition's history of leader epochs becomes the source's from there on
        (`epoch_history.followed`).

        Args:
            source_epochs: the source's, up to its high watermark.

        Raises:
            StateConflictError: it is not open, was decided otherwise, or what was copied since begins at another
                offset; or the platform does not own the topic.
        """
        ...
