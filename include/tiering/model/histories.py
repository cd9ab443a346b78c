"""Which offsets an archive holds, of which history they are, and which it goes on without.

*Skipped offsets* are offsets that the source lost before they were copied. A decision permits the gap; it does not say
that there is one. What the source has after all is copied, and then answers.

*Lineage* tells which segments belong to the log as it is today, and which to a branch that a leader change cut off.
Source: Kafka's remote log manager: the leader epoch filter of an expiration run, and the test whether a segment lies
within the leader's epochs.

*Divergence*: where the source's log stopped to continue what was archived. After an unclean leader election the source
has other records under offsets that are remote already. That is a property of the archive: it stays true when the
source forgets those offsets. So it is recorded when it is first seen, and the partition waits until a person decides
from which offset on the archive follows the source.

Each decision begins a *history*: history 0 is what was archived before any, the others have the number of their
divergence. An offset belongs to the newest history that begins at or below it. What an older history holds from there
on stays remote under its leader epochs and answers to nobody who does not ask for one of these.

At the end: how a segment follows the one before it in its partition.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple, Self

from include.tiering.model.leader_epochs import LeaderEpochEntry, LeaderEpochs
from include.tiering.model.segments import RemoteLogSegmentMetadata


class OffsetRange(NamedTuple):
    """Both inclusive."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}..{self.last}"

    @property
    def size(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class SkippedOffsets:
    """One decision about a partition. `recorded_at_ms` is a time of the database.

    Raises:
        ValueError: a negative offset, or no offset at all.
    """

    offsets: OffsetRange
    reason: str
    author: str
    recorded_at_ms: int

    def __post_init__(self) -> None:
        if not 0 <= self.offsets.first <= self.offsets.last:
            raise ValueError(f"offsets {self.offsets} are no hole")


def not_skipped(first_offset: int, last_offset: int, decisions: Sequence[SkippedOffsets]) -> tuple[OffsetRange, ...]:
    """What of the offsets from first to last, both inclusive, no decision covers, ascending. Empty if all is covered.

    Decisions may come in any order, and overlap.
    """
    return without(OffsetRange(first_offset, last_offset), [decision.offsets for decision in decisions])


def without(offsets: OffsetRange, holes: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
    """What is left of the range without the holes, ascending. Holes may come in any order, and overlap."""
    first_offset, last_offset = offsets
    left = []
    for hole in sorted(holes):
        if hole.first > first_offset:
            left.append(OffsetRange(first_offset, min(hole.first - 1, last_offset)))
        first_offset = max(first_offset, hole.last + 1)
    left.append(OffsetRange(first_offset, last_offset))
    return tuple(part for part in left if part.first <= part.last)


def decision_about(offset: int, decisions: Sequence[SkippedOffsets]) -> SkippedOffsets | None:
    """The decision that covers this offset."""
    return next((decision for decision in decisions if decision.offsets.first <= offset <= decision.offsets.last), None)


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


FIRST_HISTORY = 0
"""The number of what was archived before any decision."""


class SeenBy(StrEnum):
    """Who met a divergence first."""

    PLAN = "plan"
    COPY = "copy"
    VERIFICATION = "verification"
    REBUILD = "rebuild"
    ADOPTION = "adoption"
    STORE = "store"
    """An adoption too, and the store has copies of the source's history from the first offset on that differs."""


@dataclass(frozen=True, slots=True)
class SeenDivergence:
    """What one look found: `offsets`, both inclusive, are remote under `archive_epochs`, and the source has or had
    other records there, under `source_epochs`.
    """

    offsets: OffsetRange
    archive_epochs: tuple[int, ...]
    source_epochs: tuple[int, ...]
    seen_by: SeenBy

    @property
    def epochs(self) -> str:
        """`epochs 0, 4; source: epoch 6`"""
        return f"{_epochs(self.archive_epochs)}; source: {_epochs(self.source_epochs)}"

    def __str__(self) -> str:
        return f"offsets {self.offsets} are remote under other leader epochs than the source has ({self.epochs})"


@dataclass(frozen=True, slots=True)
class Followed:
    """A decision: from `from_offset` (inclusive) on the archive follows the source. `decided_at_ms` is a time of the
    database.
    """

    from_offset: int
    reason: str
    author: str
    decided_at_ms: int


@dataclass(frozen=True, slots=True)
class Divergence:
    """One that is recorded of a partition.

    Attributes:
        number: of the history that a decision about it begins; ascending.
        seen_at_ms: a time of the database.
        followed: None as long as nobody decided.
        is_remote: whether something of `seen.offsets` is still remote from before it: else nothing diverges any more.
        copied_from: where what was copied from the source's history before it was noticed begins, the first offset that
            diverges or later; None if nothing was.
    """

    number: int
    seen: SeenDivergence
    seen_at_ms: int
    followed: Followed | None = None
    is_remote: bool = True
    copied_from: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether the partition waits for a decision about it."""
        return self.followed is None and self.is_remote

    def is_stored_from(self, offset: int) -> bool:
        """Whether the store has copies of the source's history from this offset on, which no metadata knows."""
        return self.seen.seen_by is SeenBy.STORE and self.seen.offsets.first == offset

    def begins_in_store(self, offset: int) -> bool:
        """Whether the history that a decision began at this offset was in the store before the decision."""
        return self.followed is not None and self.followed.from_offset == offset and self.is_stored_from(offset)

    def __str__(self) -> str:
        if self.followed is None:
            return f"{self.seen}; nobody decided about it"
        one = self.followed
        return f"{self.seen}; from offset {one.from_offset} on the source is followed, by {one.author} ({one.reason})"


def open_divergence(divergences: Iterable[Divergence]) -> Divergence | None:
    """The one that waits for a decision: there is at most one."""
    return next((divergence for divergence in divergences if divergence.is_open), None)


def history_at(offset: int, divergences: Iterable[Divergence]) -> int:
    """The number of the history that answers for the offset."""
    begun = (
        divergence.number
        for divergence in divergences
        if divergence.followed is not None and divergence.followed.from_offset <= offset
    )
    return max(begun, default=FIRST_HISTORY)


def newest_history(divergences: Iterable[Divergence]) -> int:
    """The number of the history that is copied now."""
    return max(
        (divergence.number for divergence in divergences if divergence.followed is not None), default=FIRST_HISTORY
    )


def last_offset_of(history: int, divergences: Iterable[Divergence]) -> int | None:
    """The last offset (inclusive) that a history may answer for; None: it has no end yet."""
    later = [
        divergence.followed.from_offset
        for divergence in divergences
        if divergence.followed is not None and divergence.number > history
    ]
    return min(later) - 1 if later else None


def part_of_history(
    segment: RemoteLogSegmentMetadata, history: int, divergences: Sequence[Divergence]
) -> OffsetRange | None:
    """What of a segment of this history lies below where a later one begins; None: nothing.

    It may begin below the history itself: after a change of the leader a segment is copied whole.
    """
    last = last_offset_of(history, divergences)
    if last is None:
        return OffsetRange(segment.start_offset, segment.end_offset)
    return OffsetRange(segment.start_offset, min(segment.end_offset, last)) if segment.start_offset <= last else None


def same_before(history: int, later: int, divergences: Iterable[Divergence]) -> int:
    """Below this offset (exclusive) a segment of the later history holds the same records as this one: all that
    decisions between them were about lies behind. 0: nothing says so.
    """
    between = (
        divergence
        for divergence in divergences
        if divergence.followed is not None and history < divergence.number <= later
    )
    return min((one.seen.offsets.first for one in between), default=0)


def is_left(segment: RemoteLogSegmentMetadata, history: int, divergences: Iterable[Divergence]) -> bool:
    """Whether a segment of this history reaches into what a later one answers for."""
    last = last_offset_of(history, divergences)
    return last is not None and segment.end_offset > last


def said_of(offsets: OffsetRange, history: int, divergences: Iterable[Divergence]) -> tuple[str, ...]:
    """What a reader of these offsets of this history must know; empty where there never was another one.

    An offset is replaced once: what a later divergence says of it is about the history that took its place.
    """
    said, left = [], [offsets]
    for divergence in divergences:
        if divergence.number < history or (divergence.followed is None and not divergence.is_remote):
            continue
        if divergence.number == history:
            if divergence.followed is not None and offsets.last >= divergence.followed.from_offset:
                said.append(_said_of_its_own(divergence, divergence.followed))
            continue
        replaced = (_both(part, divergence.seen.offsets) for part in left)
        said += [_said_of_replaced(part, divergence) for part in replaced if part is not None]
        left = [rest for part in left for rest in without(part, [divergence.seen.offsets])]
    return tuple(said)


def _said_of_its_own(divergence: Divergence, decision: Followed) -> str:
    return (
        f"from offset {decision.from_offset} on it is the history of the source, followed, by {decision.author}"
        f" ({decision.reason}); it has replaced offsets {divergence.seen.offsets} ({divergence.seen.epochs})"
    )


def _said_of_replaced(replaced: OffsetRange, divergence: Divergence) -> str:
    if divergence.followed is None:
        return str(replace(divergence, seen=replace(divergence.seen, offsets=replaced)))
    return (
        f"offsets {replaced} are of the history that the source has replaced ({divergence.seen.epochs}); from offset"
        f" {divergence.followed.from_offset} on the source is followed,"
        f" by {divergence.followed.author} ({divergence.followed.reason})"
    )


def remote_ends(parts: Iterable[tuple[RemoteLogSegmentMetadata, OffsetRange]]) -> Mapping[int, int]:
    """Highest offset (inclusive) by leader epoch of these segments, each as far as its part goes."""
    ends: dict[int, int] = {}
    for segment, part in parts:
        for epoch, offsets in written(segment.segment_leader_epochs, part):
            ends[epoch] = max(offsets.last, ends.get(epoch, -1))
    return ends


def other_history(segment_epochs: LeaderEpochs, part: OffsetRange, history: LeaderEpochs) -> tuple[OffsetRange, ...]:
    """What of `part` a segment holds under other leader epochs than the partition's history has there, ascending.

    Where either says nothing, nothing differs.
    """
    found: list[OffsetRange] = []
    for epoch, offsets in written(segment_epochs, part):
        for other, same in written(history, offsets):
            if other != epoch and found and found[-1].last + 1 == same.first:
                found[-1] = OffsetRange(found[-1].first, same.last)
            elif other != epoch:
                found.append(same)
    return tuple(found)


def unexplained(
    segment: RemoteLogSegmentMetadata, history: int, divergences: Sequence[Divergence], leader_epochs: LeaderEpochs
) -> tuple[OffsetRange, ...]:
    """What a segment of this history holds that is of another one than `leader_epochs` say, as far as it answers for it
    and no decision about a divergence explains it, ascending.
    """
    part = part_of_history(segment, history, divergences)
    if part is None:
        return ()
    decided = [
        divergence.seen.offsets
        for divergence in divergences
        if divergence.followed is not None and divergence.number > history
    ]
    others = other_history(segment.segment_leader_epochs, part, leader_epochs)
    return tuple(left for offsets in others for left in without(offsets, decided))


def written(history: LeaderEpochs, offsets: OffsetRange) -> Iterator[tuple[int, OffsetRange]]:
    """Which epoch wrote which of the offsets; epochs without a record are left out."""
    entries = history.entries
    for place, (epoch, start_offset) in enumerate(entries):
        following = entries[place + 1].start_offset if place + 1 < len(entries) else offsets.last + 1
        part = OffsetRange(max(start_offset, offsets.first), min(following - 1, offsets.last))
        if part.first <= part.last:
            yield epoch, part


def epochs_of(history: LeaderEpochs, offsets: OffsetRange) -> tuple[int, ...]:
    """The leader epochs that wrote these offsets, ascending."""
    return tuple(epoch for epoch, _ in written(history, offsets))


def _both(offsets: OffsetRange, other: OffsetRange) -> OffsetRange | None:
    both = OffsetRange(max(offsets.first, other.first), min(offsets.last, other.last))
    return both if both.first <= both.last else None


def _epochs(epochs: tuple[int, ...]) -> str:
    if not epochs:
        return "none known"
    return f"epoch {epochs[0]}" if len(epochs) == 1 else f"epochs {', '.join(map(str, epochs))}"


def missing_offsets(
    previous: RemoteLogSegmentMetadata | None,
    current: RemoteLogSegmentMetadata,
    decisions: Sequence[SkippedOffsets] = (),
) -> tuple[OffsetRange, ...]:
    """Offsets after `previous` and before `current`, which nobody holds and nobody decided to go on without.

    The first segment misses nothing.
    """
    if previous is None:
        return ()
    return not_skipped(previous.end_offset + 1, current.start_offset - 1, decisions)


def unexplained_overlap(previous: RemoteLogSegmentMetadata | None, current: RemoteLogSegmentMetadata) -> int:
    """Offsets that both hold, unless a change of the leader explains them.

    Replicas roll at different offsets: the first segment taken from a new leader is taken whole and begins before the
    previous one's end. It shows by another broker id or by a later leader epoch, and it brings new offsets.
    """
    if previous is None or current.start_offset > previous.end_offset:
        return 0
    led_by_another = (
        current.broker_id != previous.broker_id
        or current.segment_leader_epochs.entries[-1].epoch > previous.segment_leader_epochs.entries[-1].epoch
    )
    if led_by_another and current.end_offset > previous.end_offset:
        return 0
    return min(previous.end_offset, current.end_offset) - current.start_offset + 1


def leader_epochs_back(previous: RemoteLogSegmentMetadata | None, current: RemoteLogSegmentMetadata) -> int:
    """By how much the leader epoch falls at the first offset that `previous` does not hold."""
    if previous is None:
        return 0
    first_new = min(max(current.start_offset, previous.end_offset + 1), current.end_offset)
    epochs = current.segment_leader_epochs
    epoch = epochs.epoch_for(first_new)
    continued = epochs.entries[0].epoch if epoch is None else epoch
    return max(0, previous.segment_leader_epochs.entries[-1].epoch - continued)
