"""Whether segments that a verification does not find are lost, or the store is not the one it seems.

Objects are lost singly: one is deleted by hand, one was never written. Where everything is missing that a run looked
at, or much of one partition, the place is wrong more often than the objects are gone: a disk that is not mounted, a
prefix, a layout. A FAILED verdict would have all of it copied again there, and deleted where it is. So a verdict about
a missing segment waits until the whole run is known, and it is never stored of a run that is not believable.

`doubt_of` decides, from counts alone. `MissingSegments` holds the measures back, for verifications of one process and
for planned ones wherever they measure. What is held is lost with the process: the next try measures it again.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import StoreInDoubtError
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.verdict import Verdict
from include.tiering.quality.measures import SegmentMeasure
from include.tiering.remote_metadata.contract import RemoteLogMetadata
from include.tiering.tasks.record_verdicts import Subject

MAX_MISSING_SEGMENTS: Final = 3
_MOST_NAMED: Final = 3
_WAY_OUT: Final = (
    "No verdict is stored of what is missing. Is the store's disk mounted, and are remote_storage.url, layout and"
    " key_prefix right? If the objects are really lost: ./tiering verify --missing-is-real"
)

Measured = tuple[Subject, SegmentMeasure]


@dataclass(frozen=True, slots=True)
class PartitionLooks:
    """What a run saw of one partition's segments. One that had failed before and is missing is not counted: it says
    nothing new.

    Attributes:
        found: looked at, and there.
        missing: looked at, and not there.
        stored: FINISHED without having failed, looked at or not.
    """

    partition: TopicIdPartition
    found: int
    missing: int
    stored: int

    @property
    def is_whole(self) -> bool:
        """Whether more than one is missing, and with them all that the partition has."""
        return self.missing > 1 and self.missing >= self.stored


@dataclass(frozen=True, slots=True)
class LossLimits:
    """How much is believed to be lost.

    Attributes:
        max_missing_segments: so many missing ones of one partition, no more.
        confirm: gets what speaks against it, and says whether a person knows that it is lost; None: nobody is asked.
        doubt_of_one: gets the only segment that was looked at, if it is missing, and says what speaks against it, or
            None; see `store_witness`.
    """

    max_missing_segments: int = MAX_MISSING_SEGMENTS
    confirm: Callable[[str], bool] | None = None
    doubt_of_one: Callable[[RemoteLogSegmentMetadata], str | None] = lambda _: None


LOSS_LIMITS: Final = LossLimits()
"""Nobody is asked, neither a person nor another segment."""


def doubt_of(looks: Sequence[PartitionLooks], *, found_before: int = 0, max_missing_segments: int) -> str | None:
    """What speaks against the missing segments of a run being lost; None if they are so few that they may be.

    Args:
        looks: one for each partition of which a segment was looked at.
        found_before: segments that earlier tries of the same run found.
        max_missing_segments: so many of one partition may be lost singly.
    """
    missing = sum(one.missing for one in looks)
    looked = missing + found_before + sum(one.found for one in looks)
    is_all = missing > 1 and missing == looked
    suspects = [one for one in looks if one.missing > max_missing_segments or one.is_whole]
    if not suspects and not is_all:
        return None
    named = sorted(suspects or looks, key=lambda one: (-one.missing, str(one.partition)))
    parts = [f"{one.partition}: {one.missing} of {one.missing + one.found}" for one in named[:_MOST_NAMED]]
    more = [f"and {len(named) - _MOST_NAMED} more partitions"] if len(named) > _MOST_NAMED else []
    return (
        f"{missing} of {looked} segments that were looked at are not in the store ({'; '.join(parts + more)};"
        f" at most {max_missing_segments} of a partition, and not all of it, are believed to be lost singly)"
    )


class MissingSegments:
    """Measures of missing segments of one run, held back until all of it was looked at."""

    def __init__(self, metadata: RemoteLogMetadata, limits: LossLimits, *, found_before: int = 0) -> None:
        self._metadata = metadata
        self._limits = limits
        self._found_before = found_before
        self._found: Counter[TopicIdPartition] = Counter()
        self._missing: Counter[TopicIdPartition] = Counter()
        self._held: list[Measured] = []

    def sift(self, measured: Sequence[Measured]) -> list[Measured]:
        """Those of a group that can be judged now; the others are held.

        Raises:
            StoreInDoubtError: too many of a partition are missing already, and nobody is to be asked.
        """
        ready: list[Measured] = []
        for subject, measure in measured:
            partition = subject.segment_id.topic_id_partition
            if not measure.is_missing:
                self._found[partition] += 1
            elif subject.row.verdict is not Verdict.FAILED:
                self._missing[partition] += 1
                self._held.append((subject, measure))
                continue
            ready.append((subject, measure))
        if self._limits.confirm is None and max(self._missing.values(), default=0) > self._limits.max_missing_segments:
            self._require_belief()
        return ready

    def release(self) -> list[Measured]:
        """All that was held, when the run has looked at everything.

        Raises:
            StoreInDoubtError: it is not believable that they are lost, and nobody says that they are.
        """
        self._require_belief()
        return self._held

    def _require_belief(self) -> None:
        doubt = self._doubt()
        if doubt is None or (self._limits.confirm is not None and self._limits.confirm(doubt)):
            return
        raise StoreInDoubtError(f"this is not the store that it seems to be: {doubt}. {_WAY_OUT}")

    def _doubt(self) -> str | None:
        if len(self._held) == 1 and not self._found and not self._found_before:
            return self._limits.doubt_of_one(self._held[0][0].row.metadata)
        looks = [
            PartitionLooks(one, self._found[one], self._missing[one], self._stored(one))
            for one in {**self._found, **self._missing}
        ]
        return doubt_of(looks, found_before=self._found_before, max_missing_segments=self._limits.max_missing_segments)

    def _stored(self, partition: TopicIdPartition) -> int:
        """Counted where it matters alone."""
        if self._missing[partition] <= 1 or self._found[partition]:
            return self._missing[partition] + self._found[partition]
        rows = self._metadata.list_segments(partition)
        return sum(row.metadata.is_finished and row.verdict is not Verdict.FAILED for row in rows)
