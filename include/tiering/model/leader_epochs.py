"""The leader epoch history of a partition: which epoch wrote from which offset on, and what an archive has stored of
it.

A broker forgets the beginning of its history when its log start moves, and learns new epochs at the end. An archive
outlives both, so it keeps what anyone ever saw. Where two entries cannot both be true, one rule settles it, whatever
the order in which they were seen:

- *One epoch, two starts*: the lower one is kept. Usually the other side had forgotten the beginning of that epoch, and
  nothing contradicts.
- *A later epoch with a lower start*: the later epoch is kept. Records were truncated and their offsets written again
  under it, and that is what consumers read today. This is a contradiction: the earlier entry leaves the history, and
  what was archived under it is foreign from then on. It is kept, and no longer counts in the total.

What remains are the entries that give way to no other. Therefore merging is commutative, associative and idempotent,
and an epoch that a broker has forgotten never leaves the history. Nothing is deleted because of any of this.

One thing takes epochs away: a decision to follow another history (`model.histories`). An older replica that is elected
again brings back what a later epoch had replaced, under an epoch that is later still: `followed` gives up the one
between, which no merging does.
"""

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


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two entries that cannot both be true. `kept` says whether `entry` is part of the history all the same."""

    entry: LeaderEpochEntry
    by: LeaderEpochEntry
    kept: bool

    def __str__(self) -> str:
        what = "is kept" if self.kept else "left the history"
        return (
            f"epoch {self.entry.epoch} from offset {self.entry.start_offset} {what}, contradicted by epoch"
            f" {self.by.epoch} from offset {self.by.start_offset}"
        )


@dataclass(frozen=True, slots=True)
class MergedHistory:
    """The history to store, and what is a finding for a person, by falling epoch."""

    history: LeaderEpochs
    contradictions: tuple[Contradiction, ...] = ()


def merged(known: LeaderEpochs, seen: LeaderEpochs, seen_log_start: int) -> MergedHistory:
    """`known`, completed by what a leader's epoch cache, or the metadata of a copied segment, says.

    Pass only entries of `seen` that start below the high watermark (`seen.range(-1, high_watermark)`): above it a tail
    may yet be cut off by an election that loses nothing.

    Args:
        known: what is stored; empty at first.
        seen: entries of one source. Its first one may begin before it is said to: the log start has moved.
        seen_log_start: offset (inclusive) from which on that source knows every epoch; of a segment its start offset.

    A contradiction is reported as often as it is seen. It is one of:

    - a later epoch with a lower start, as above;
    - an epoch that starts in the midst of `seen` although it is known from a lower offset on: the lower start is kept
      (the other way round says nothing: what is known may once have come from a cut cache);
    - an epoch with records from `seen_log_start` on that `seen` does not have although it goes on to a later one:
      it is kept, because somebody saw it.
    """
    history: list[LeaderEpochEntry] = []
    contradictions: list[Contradiction] = []
    exact = {*seen.entries[1:]}
    for entry in sorted({*known, *seen}, key=lambda segment: (-segment.epoch, segment.start_offset)):
        by = history[-1] if history else None
        if by is None or (entry.epoch < by.epoch and entry.start_offset <= by.start_offset):
            history.append(entry)
        elif entry.epoch < by.epoch or entry in exact:
            contradictions.append(Contradiction(entry, by, kept=False))
    result = LeaderEpochs(tuple(reversed(history)))
    contradictions.extend(_denied(result, seen, seen_log_start))
    return MergedHistory(
        result, tuple(sorted(contradictions, key=lambda contradiction: contradiction.entry, reverse=True))
    )


def followed(known: LeaderEpochs, source: LeaderEpochs, from_offset: int) -> LeaderEpochs:
    """`known` after a decision to go on with `source` from an offset (inclusive) on.

    The source says all of its history from its first entry on, and below the offset the archive has it too: what was
    replaced there for a while, and is back, counts again. Where the source has lost its beginning, nothing is known
    from the offset up to there: what is adopted of the store says it.

    Pass only entries of `source` that start below the high watermark.
    """
    if not source.entries:
        return known
    first, last = source.entries[0], source.entries[-1]
    begin = min(from_offset, first.start_offset)
    kept = (
        entry
        for entry in known
        if entry.epoch > last.epoch or (entry.start_offset < begin and entry.epoch <= first.epoch)
    )
    return merged(LeaderEpochs(tuple(kept)), source, from_offset).history


def without_left(known: LeaderEpochs, source: LeaderEpochs, from_offset: int) -> LeaderEpochs:
    """What of `known` may be of the history that `source` is of, when that one is followed from an offset (inclusive)
    on: what begins below it with no later epoch than is there, and what is later than all that the source knows.

    What the source has from the offset on is left out too: it says that itself.
    """
    if not source.entries:
        return known
    first, last = source.entries[0], source.entries[-1]
    begin = max(from_offset, first.start_offset)
    epoch = source.epoch_for(begin)
    return LeaderEpochs(
        tuple(
            entry
            for entry in known
            if entry.epoch > last.epoch or (entry.start_offset < begin and (epoch is None or entry.epoch <= epoch))
        )
    )


def of_followed(seen: LeaderEpochs, known: LeaderEpochs, from_offset: int) -> LeaderEpochs:
    """What of `seen` may be of the history `known` that is followed from an offset (inclusive) on.

    An epoch begins at one offset. So one that is known is of that history wherever `seen` lets it begin: where the
    source had lost its beginning, a copy of before may know it.
    """
    kept = {*without_left(seen, known, from_offset)}
    epochs = {entry.epoch for entry in known}
    return LeaderEpochs(tuple(entry for entry in seen if entry in kept or entry.epoch in epochs))


def _denied(history: LeaderEpochs, seen: LeaderEpochs, seen_log_start: int) -> Iterator[Contradiction]:
    """Epochs with records where `seen` knows every epoch, and knows another one."""
    if not seen.entries:
        return
    from_offset = max(seen_log_start, seen.entries[0].start_offset)
    epochs = {entry.epoch for entry in seen}
    for entry, after in pairwise(history):
        offset = max(entry.start_offset, from_offset)
        if entry.epoch not in epochs and entry.epoch < seen.entries[-1].epoch and offset < after.start_offset:
            by = [segment for segment in seen if segment.start_offset <= offset][-1]
            yield Contradiction(entry, by, kept=True)
