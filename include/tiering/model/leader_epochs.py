"""The leader epoch history of a partition: which epoch wrote from which offset on, and how an archive merges it.

A broker deletes the beginning of its history when its log start moves, and adds new epochs at the end. An archive
keeps entries that brokers have deleted. If two entries contradict each other, these rules decide, in whatever order the
entries were seen:

- *One epoch, two starts*: the lower start is kept. Usually the other source had deleted the beginning of that epoch,
  which is no contradiction.
- *A later epoch with a lower start*: the later epoch is kept. Records were truncated and their offsets were written
  again under it, and consumers read these records today. This is a contradiction: the earlier entry leaves the history,
  and segments archived under it are outside the lineage from then on. They no longer expire by age or size, nor
  count in the size that is compared with retention.bytes.

The merged history consists of the entries that no other entry displaces. Therefore merging is commutative, associative
and idempotent, and an epoch does not leave the history because a broker has deleted it. Merging deletes no segment.

Apart from such contradictions, only a decision to follow another history (`model.histories`) removes epochs. When an
older replica is elected leader again, in a still later epoch, the log has records again that an epoch in between had
replaced: `followed` removes the epoch in between, which merging never does.
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
    """Entries with ascending epochs and non-descending start offsets.

    Two entries may share a start offset: the earlier epoch then has no record.
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
        """Return the history of (epoch, start offset) pairs.

        Raises:
            ValueError: they do not ascend.
        """
        return cls(tuple(LeaderEpochEntry(epoch, start) for epoch, start in entries))

    def __iter__(self) -> Iterator[LeaderEpochEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def epoch_for(self, offset: int) -> int | None:
        """Return the epoch that wrote `offset`; None if it is before the history."""
        found = None
        for epoch, start_offset in self.entries:
            if start_offset > offset:
                break
            found = epoch
        return found

    def end_offset_of(self, epoch: int, log_end_offset: int) -> int | None:
        """Return the end offset (exclusive) of `epoch`: the next start, or the log end; None without the epoch."""
        for entry, after in pairwise(self.entries):
            if entry.epoch == epoch:
                return after.start_offset
        return log_end_offset if self.entries and self.entries[-1].epoch == epoch else None

    def range(self, start_offset: int, end_offset: int) -> "LeaderEpochs":
        """Return the part for [start_offset, end_offset), as in segment metadata.

        A negative start means "from the beginning of the history", as in the leader epoch index of a remote segment.
        Source: Kafka's LeaderEpochFileCache, truncation from the start and from the end.
        """
        kept = self._from(start_offset) if start_offset >= 0 else self.entries
        return LeaderEpochs(tuple(entry for entry in kept if entry.start_offset < end_offset))

    def truncated_from_start(self, log_start_offset: int) -> "LeaderEpochs":
        """Return the history from `log_start_offset` on.

        Entries at or before the offset are left out, except the last of them, which is moved to the offset.
        """
        return LeaderEpochs(self._from(log_start_offset))

    def _from(self, log_start_offset: int) -> tuple[LeaderEpochEntry, ...]:
        before = bisect_right(self.entries, log_start_offset, key=lambda entry: entry.start_offset)
        if not before:
            return self.entries
        return LeaderEpochEntry(self.entries[before - 1].epoch, log_start_offset), *self.entries[before:]


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two entries that contradict each other. `kept` says whether `entry` nevertheless stays in the history."""

    entry: LeaderEpochEntry
    by: LeaderEpochEntry
    kept: bool

    def __str__(self) -> str:
        what = "is kept" if self.kept else "is not in the history"
        return (
            f"epoch {self.entry.epoch} from offset {self.entry.start_offset} {what}, contradicted by epoch"
            f" {self.by.epoch} from offset {self.by.start_offset}"
        )


@dataclass(frozen=True, slots=True)
class MergedHistory:
    """The history to store, and the contradictions to report; these are ordered by descending epoch."""

    history: LeaderEpochs
    contradictions: tuple[Contradiction, ...] = ()


def merged(known: LeaderEpochs, seen: LeaderEpochs, seen_log_start: int) -> MergedHistory:
    """Merge a leader's epoch cache, or the epochs of a copied segment, into the known history.

    Pass only entries of `seen` that start below the high watermark (`seen.range(-1, high_watermark)`): even an election
    that loses no committed record may truncate the log above it.

    Args:
        known: the stored history; empty at first.
        seen: entries of one source. The epoch of the first entry may really begin earlier, because the log start has
            moved.
        seen_log_start: offset (inclusive) from which on that source has every epoch; for a segment, its start offset.

    A contradiction is reported each time it is seen. It is one of:

    - a later epoch with a lower start, as above;
    - an epoch that is not the first of `seen` and starts there above the known start: the lower start is kept (a start
      in `seen` below the known start is no contradiction: the known entry may come from a truncated cache);
    - a known epoch that has records where `seen` is complete and is missing in `seen`, although `seen` has a later
      epoch: the known epoch is kept, because another source has had it.
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
    """Return the known history after a decision to follow `source` from an offset (inclusive) on.

    The source's history is complete from its first entry on. Below `from_offset` the archive has the source's records,
    so epochs of the source that a later epoch had replaced there are in the history again. If the source has lost the
    beginning of its history, the epochs from `from_offset` up to its first entry are unknown until copies in the store
    are adopted.

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
    """Return the known entries that may belong to the source's history, followed from an offset (inclusive) on.

    Let the limit be `from_offset`, or the source's first offset if that is higher. The result has the entries that
    begin below the limit and whose epoch is not later than the source's epoch at the limit, and the entries whose epoch
    is later than all epochs of the source. The caller takes the entries from the limit on from the source.
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
    """Return the entries of `seen` that may belong to the history `known`, followed from an offset (inclusive) on.

    An epoch begins at one offset only. So every entry of `seen` whose epoch is in `known` belongs to that history, at
    any offset: the source may have lost the real beginning of an epoch, and an earlier copy may have it.
    """
    kept = {*without_left(seen, known, from_offset)}
    epochs = {entry.epoch for entry in known}
    return LeaderEpochs(tuple(entry for entry in seen if entry in kept or entry.epoch in epochs))


def _denied(history: LeaderEpochs, seen: LeaderEpochs, seen_log_start: int) -> Iterator[Contradiction]:
    """Yield the epochs of `history` that have records at offsets where `seen` is complete and has another epoch."""
    if not seen.entries:
        return
    from_offset = max(seen_log_start, seen.entries[0].start_offset)
    epochs = {entry.epoch for entry in seen}
    for entry, after in pairwise(history):
        offset = max(entry.start_offset, from_offset)
        if entry.epoch not in epochs and entry.epoch < seen.entries[-1].epoch and offset < after.start_offset:
            by = [segment for segment in seen if segment.start_offset <= offset][-1]
            yield Contradiction(entry, by, kept=True)
