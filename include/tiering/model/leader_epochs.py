"""The leader epoch history of a partition: which epoch wrote from which offset on."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self


class LeaderEpochEntry(NamedTuple):
    """From `start_offset` (inclusive) on, records were appended under `epoch`."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class LeaderEpochs:
    """Entries with ascending epochs and start offsets that never fall.

    Two entries may share a start offset: the earlier epoch then holds no record.
    """

    entries: tuple[LeaderEpochEntry, ...] = ()

    def __post_init__(self) -> None:
        for epoch, start_offset in self.entries:
            if epoch < 0 or start_offset < 0:
                raise ValueError(f"leader epoch entry ({epoch}, {start_offset}) is negative")
        for before, after in pairwise(self.entries):
            if after.epoch <= before.epoch or after.start_offset < before.start_offset:
                raise ValueError(f"leader epochs do not ascend: {tuple(before)} then {tuple(after)}")

    @classmethod
    def of(cls, entries: Iterable[tuple[int, int]]) -> Self:
        """From (epoch, start offset) pairs. Raises ValueError if they do not ascend."""
        return cls(tuple(LeaderEpochEntry(epoch, start) for epoch, start in entries))

    def __iter__(self) -> Iterator[LeaderEpochEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def epoch_for(self, offset: int) -> int | None:
        """The epoch that wrote `offset`, or None if it lies before the history."""
        found = None
        for epoch, start_offset in self.entries:
            if start_offset > offset:
                break
            found = epoch
        return found

    def end_offset_of(self, epoch: int, log_end_offset: int) -> int | None:
        """First offset after `epoch` (exclusive): the next entry's start or the log end; None if unknown."""
        for entry, after in pairwise(self.entries):
            if entry.epoch == epoch:
                return after.start_offset
        return log_end_offset if self.entries and self.entries[-1].epoch == epoch else None

    def range(self, start_offset: int, end_offset: int) -> "LeaderEpochs":
        """The part for [start_offset, end_offset): what segment metadata carries.

        A negative start means "from the beginning of the history" (what the LEADER_EPOCH object carries).
        Source: Kafka's LeaderEpochFileCache, truncation from the start and from the end.
        """
        kept = self._from(start_offset) if start_offset >= 0 else self.entries
        return LeaderEpochs(tuple(entry for entry in kept if entry.start_offset < end_offset))

    def truncated_from_start(self, log_start_offset: int) -> "LeaderEpochs":
        """Entries at or before `log_start_offset` shrink to one: the last of them, moved to that offset."""
        return LeaderEpochs(self._from(log_start_offset))

    def _from(self, log_start_offset: int) -> tuple[LeaderEpochEntry, ...]:
        before = bisect_right(self.entries, log_start_offset, key=lambda entry: entry.start_offset)
        if not before:
            return self.entries
        return LeaderEpochEntry(self.entries[before - 1].epoch, log_start_offset), *self.entries[before:]
