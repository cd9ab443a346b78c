"""Which segments belong to the log as it is today, and which to a branch that a leader change cut off.

Source: Kafka's remote log manager: the leader epoch filter of an expiration run, and the test whether a segment lies
within the leader's epochs.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

from include.tiering.model.leader_epochs import LeaderEpochEntry, LeaderEpochs
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata


def with_records(history: LeaderEpochs) -> LeaderEpochs:
    """Without the epochs that hold no record: of entries with one start offset the one with the highest epoch stays."""
    entries = history.entries
    kept = tuple(entry for entry, after in pairwise(entries) if entry.start_offset != after.start_offset)
    return LeaderEpochs(kept + entries[-1:])


@dataclass(frozen=True, slots=True)
class Lineage:
    """The epochs of one log, those without a record left out, and where that log ends.

    `log_end_offset` is exclusive. None asks nothing about the end: an archive must not call its own segments foreign
    because a broker lost its log.
    """

    leader_epochs: LeaderEpochs
    log_end_offset: int | None = None
    _places: dict[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places = {entry.epoch: place for place, entry in enumerate(self.leader_epochs)}
        object.__setattr__(self, "_places", places)

    @classmethod
    def of(cls, history: LeaderEpochs, *, log_start_offset: int, log_end_offset: int | None = None) -> Self:
        """The part of `history` from the log start (inclusive) on, as a leader's epoch cache would hold it."""
        return cls(with_records(history.truncated_from_start(log_start_offset)), log_end_offset)

    @property
    def first_epoch(self) -> int | None:
        """The epoch at the log start; None if nothing is known."""
        entries = self.leader_epochs.entries
        return entries[0].epoch if entries else None

    def holds(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether from the first offset of this lineage on, the segment's records were written under these epochs.

        What the segment holds before that offset is not compared: the history below a log start is forgotten, and a
        segment that overlaps it must still be expired (KAFKA-16511).
        """
        if self.log_end_offset is not None and segment.end_offset >= self.log_end_offset:
            return False
        if self.first_epoch is None:
            return False
        compared = [entry for entry in with_records(segment.segment_leader_epochs) if entry.epoch >= self.first_epoch]
        if not compared or not all(entry.epoch in self._places for entry in compared):
            return False
        return (
            not self._begins_too_early(compared[0])
            and all(self._next_of(entry) == after for entry, after in pairwise(compared))
            and not self._ends_too_late(compared[-1], segment.end_offset)
        )

    def _begins_too_early(self, entry: LeaderEpochEntry) -> bool:
        """The first epoch of a lineage may have begun before the log start: nothing is too early for it."""
        place = self._places[entry.epoch]
        return place > 0 and entry.start_offset < self.leader_epochs.entries[place].start_offset

    def _ends_too_late(self, entry: LeaderEpochEntry, end_offset: int) -> bool:
        after = self._next_of(entry)
        return after is not None and end_offset >= after.start_offset

    def _next_of(self, entry: LeaderEpochEntry) -> LeaderEpochEntry | None:
        place = self._places[entry.epoch] + 1
        return self.leader_epochs.entries[place] if place < len(self.leader_epochs) else None
