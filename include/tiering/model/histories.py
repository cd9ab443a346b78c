"""Skipped offsets, lineage, log divergences and histories: which offsets an archive holds, and of which history.

*Skipped offsets* are offsets that a decision allows to be missing from the archive; they may be archived nevertheless.

*Lineage* distinguishes segments of the current log from segments of a branch that a leader change truncated.
Source: Kafka's remote log manager: the leader epoch filter of an expiration run, and the test whether a segment lies
within the leader's epochs.

*Divergence*: the source's log no longer continues what was archived. After an unclean leader election the source has
other records at offsets that are remote already. A divergence is a property of the archive and stays true after the
source has deleted those offsets. So it is recorded when it is first seen. While any of these offsets are remote, the
partition waits until a person decides from which offset on the archive follows the source. From that offset on, the
history that was followed before is the *replaced* history: the decision replaced it by the source's.

Each decision begins a *history*: history 0 was archived before any decision, the others have the number of their
divergence. An offset belongs to the newest history that begins at or below it. From the beginning of a newer history
on, segments of an older history stay remote under their leader epochs and are returned only to readers that name one of
these epochs.

The last three functions compare a segment with the previous one of its partition.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple, Self

from include.tiering.model.leader_epochs import LeaderEpochEntry, LeaderEpochs
from include.tiering.model.segments import RemoteLogSegmentMetadata


class OffsetRange(NamedTuple):
    """A range of offsets, both ends inclusive."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}..{self.last}"

    @property
    def size(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class SkippedOffsets:
    """A decision to skip offsets of a partition. `recorded_at_ms` is by the database's clock.

    Raises:
        ValueError: an offset is negative, or the range is empty.
    """

    offsets: OffsetRange
    reason: str
    author: str
    recorded_at_ms: int

    def __post_init__(self) -> None:
        if not 0 <= self.offsets.first <= self.offsets.last:
            raise ValueError(f"offsets {self.offsets} are not a range")


def not_skipped(first_offset: int, last_offset: int, decisions: Sequence[SkippedOffsets]) -> tuple[OffsetRange, ...]:
    """Return the parts of the offsets from first to last, both inclusive, that no decision covers, ascending.

    Decisions may come in any order, and overlap.
    """
    return without(OffsetRange(first_offset, last_offset), [decision.offsets for decision in decisions])


def without(offsets: OffsetRange, holes: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Return the parts of the range outside the holes, ascending. Holes may come in any order, and overlap."""
    first_offset, last_offset = offsets
    left = []
    for hole in sorted(holes):
        if hole.first > first_offset:
            left.append(OffsetRange(first_offset, min(hole.first - 1, last_offset)))
        first_offset = max(first_offset, hole.last + 1)
    left.append(OffsetRange(first_offset, last_offset))
    return tuple(part for part in left if part.first <= part.last)


def decision_about(offset: int, decisions: Sequence[SkippedOffsets]) -> SkippedOffsets | None:
    """Return the decision that covers this offset, if any."""
    return next((decision for decision in decisions if decision.offsets.first <= offset <= decision.offsets.last), None)


def with_records(history: LeaderEpochs) -> LeaderEpochs:
    """Return the history with only the highest epoch of each start offset: the others have no record."""
    entries = history.entries
    kept = tuple(entry for entry, after in pairwise(entries) if entry.start_offset != after.start_offset)
    return LeaderEpochs(kept + entries[-1:])


@dataclass(frozen=True, slots=True)
class Lineage:
    """The epochs of one log, without epochs that have no record, and the end of that log.

    `log_end_offset` is exclusive. With None the end is not compared: a broker that lost its log must not put archived
    segments outside the lineage.
    """

    leader_epochs: LeaderEpochs
    log_end_offset: int | None = None
    _places: dict[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places = {entry.epoch: place for place, entry in enumerate(self.leader_epochs)}
        object.__setattr__(self, "_places", places)

    @classmethod
    def of(cls, history: LeaderEpochs, *, log_start_offset: int, log_end_offset: int | None = None) -> Self:
        """Return the lineage of a history from the log start (inclusive) on, without epochs that have no record."""
        return cls(with_records(history.truncated_from_start(log_start_offset)), log_end_offset)

    @property
    def first_epoch(self) -> int | None:
        """The epoch at the log start; None without any epoch."""
        entries = self.leader_epochs.entries
        return entries[0].epoch if entries else None

    def holds(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Return whether the segment ends below the log end, and its records were written under these epochs.

        Epochs of the segment that are earlier than the lineage's first epoch are not compared: a broker deletes the
        epochs below its log start, and a segment that overlaps the log start must still expire (KAFKA-16511). A segment
        that has only such epochs is not held.
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
        """Return whether the epoch begins earlier than in the lineage.

        The lineage's first epoch may have begun before the log start, so it is not compared.
        """
        place = self._places[entry.epoch]
        return place > 0 and entry.start_offset < self.leader_epochs.entries[place].start_offset

    def _ends_too_late(self, entry: LeaderEpochEntry, end_offset: int) -> bool:
        after = self._next_of(entry)
        return after is not None and end_offset >= after.start_offset

    def _next_of(self, entry: LeaderEpochEntry) -> LeaderEpochEntry | None:
        place = self._places[entry.epoch] + 1
        return self.leader_epochs.entries[place] if place < len(self.leader_epochs) else None


FIRST_HISTORY = 0
"""Number of the history that was archived before any decision."""


class SeenBy(StrEnum):
    """What found a divergence first."""

    PLAN = "plan"
    COPY = "copy"
    VERIFICATION = "verification"
    REBUILD = "rebuild"
    ADOPTION = "adoption"
    STORE = "store"
    """Also an adoption; the store has copies of the source's history from the first differing offset on."""


@dataclass(frozen=True, slots=True)
class SeenDivergence:
    """A divergence as one comparison found it.

    `offsets`, both ends inclusive, are remote under `archive_epochs`; the source has or had other records there, under
    `source_epochs`, which may include epochs of higher offsets.
    """

    offsets: OffsetRange
    archive_epochs: tuple[int, ...]
    source_epochs: tuple[int, ...]
    seen_by: SeenBy

    @property
    def epochs(self) -> str:
        """A text such as `epochs 0, 4; source: epoch 6`."""
        return f"{_epochs(self.archive_epochs)}; source: {_epochs(self.source_epochs)}"

    def __str__(self) -> str:
        return f"offsets {self.offsets} are remote under other leader epochs than the source has ({self.epochs})"


@dataclass(frozen=True, slots=True)
class Followed:
    """A decision to follow the source from `from_offset` (inclusive) on.

    `decided_at_ms` is by the database's clock.
    """

    from_offset: int
    reason: str
    author: str
    decided_at_ms: int


@dataclass(frozen=True, slots=True)
class Divergence:
    """A recorded divergence of a partition.

    Attributes:
        number: the number of the history that a decision about this divergence begins; ascending.
        seen: what differs.
        seen_at_ms: when it was recorded first, by the database's clock.
        followed: the decision; None before it.
        is_remote: before a decision, whether older segments with some of `seen.offsets` are still remote (if not,
            nothing diverges any more); True after a decision.
        copied_from: the lowest offset of segments that were copied from the source's history before the divergence was
            found, but at least the first offset that diverges; None without such segments, and after a decision.
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
        """Return whether an adoption found copies of the source's history from this offset on, without metadata."""
        return self.seen.seen_by is SeenBy.STORE and self.seen.offsets.first == offset

    def begins_in_store(self, offset: int) -> bool:
        """Return whether the history that a decision began at this offset was stored before the decision."""
        return self.followed is not None and self.followed.from_offset == offset and self.is_stored_from(offset)

    def __str__(self) -> str:
        if self.followed is None:
            return f"{self.seen}; no decision about it is recorded"
        start, by = self.followed.from_offset, f"{self.followed.author} ({self.followed.reason})"
        return f"{self.seen}; from offset {start} on the source is followed by decision of {by}"


def open_divergence(divergences: Iterable[Divergence]) -> Divergence | None:
    """Return the divergence that awaits a decision; there is at most one."""
    return next((divergence for divergence in divergences if divergence.is_open), None)


def history_at(offset: int, divergences: Iterable[Divergence]) -> int:
    """Return the number of the history that the offset belongs to."""
    begun = (
        divergence.number
        for divergence in divergences
        if divergence.followed is not None and divergence.followed.from_offset <= offset
    )
    return max(begun, default=FIRST_HISTORY)


def newest_history(divergences: Iterable[Divergence]) -> int:
    """Return the number of the history that is copied now."""
    return max(
        (divergence.number for divergence in divergences if divergence.followed is not None), default=FIRST_HISTORY
    )


def last_offset_of(history: int, divergences: Iterable[Divergence]) -> int | None:
    """Return the last offset (inclusive) that may belong to a history; None if it has no end yet."""
    later = [
        divergence.followed.from_offset
        for divergence in divergences
        if divergence.followed is not None and divergence.number > history
    ]
    return min(later) - 1 if later else None


def part_of_history(
    segment: RemoteLogSegmentMetadata, history: int, divergences: Sequence[Divergence]
) -> OffsetRange | None:
    """Return the part of a segment of this history that is below the start of later histories; None if there is none.

    The part may begin below the history itself: after a leader change a segment is copied whole.
    """
    last = last_offset_of(history, divergences)
    if last is None:
        return OffsetRange(segment.start_offset, segment.end_offset)
    return OffsetRange(segment.start_offset, min(segment.end_offset, last)) if segment.start_offset <= last else None


def same_before(history: int, later: int, divergences: Iterable[Divergence]) -> int:
    """Return the offset (exclusive) below which a segment of the later history has the same records as this history.

    The divergences between both histories are at or above this offset. Divergences without a decision do not count; the
    result is 0 if no other is between both histories.
    """
    between = (
        divergence
        for divergence in divergences
        if divergence.followed is not None and history < divergence.number <= later
    )
    return min((divergence.seen.offsets.first for divergence in between), default=0)


def is_left(segment: RemoteLogSegmentMetadata, history: int, divergences: Iterable[Divergence]) -> bool:
    """Return whether a segment of this history reaches into the offsets of a later history."""
    last = last_offset_of(history, divergences)
    return last is not None and segment.end_offset > last


def said_of(offsets: OffsetRange, history: int, divergences: Iterable[Divergence]) -> tuple[str, ...]:
    """Return notes for a reader of these offsets of this history; empty if no other history concerns them.

    Each offset of a history is replaced once: later divergences about it concern the history that replaced this one.
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
        f"from offset {decision.from_offset} on the source's history is followed by decision of {decision.author}"
        f" ({decision.reason}); it replaced offsets {divergence.seen.offsets} ({divergence.seen.epochs})"
    )


def _said_of_replaced(replaced: OffsetRange, divergence: Divergence) -> str:
    if divergence.followed is None:
        return str(replace(divergence, seen=replace(divergence.seen, offsets=replaced)))
    return (
        f"offsets {replaced} are of the history that the source has replaced ({divergence.seen.epochs}); from offset"
        f" {divergence.followed.from_offset} on the source is followed"
        f" by decision of {divergence.followed.author} ({divergence.followed.reason})"
    )


def remote_ends(parts: Iterable[tuple[RemoteLogSegmentMetadata, OffsetRange]]) -> Mapping[int, int]:
    """Return the highest offset (inclusive) by leader epoch in the given parts of these segments."""
    ends: dict[int, int] = {}
    for segment, part in parts:
        for epoch, offsets in written(segment.segment_leader_epochs, part):
            ends[epoch] = max(offsets.last, ends.get(epoch, -1))
    return ends


def other_history(segment_epochs: LeaderEpochs, part: OffsetRange, history: LeaderEpochs) -> tuple[OffsetRange, ...]:
    """Return the offsets of `part` whose leader epoch in the segment differs from that in the history, ascending.

    Offsets without an epoch in the segment or in the history do not differ.
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
    """Return the offsets of a segment whose epochs contradict `leader_epochs` without a decision, ascending.

    Offsets of the segment from the beginning of a later history on are not compared.
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
    """Yield each leader epoch with those of the offsets that were written under it; epochs without any are left out."""
    entries = history.entries
    for place, (epoch, start_offset) in enumerate(entries):
        following = entries[place + 1].start_offset if place + 1 < len(entries) else offsets.last + 1
        part = OffsetRange(max(start_offset, offsets.first), min(following - 1, offsets.last))
        if part.first <= part.last:
            yield epoch, part


def epochs_of(history: LeaderEpochs, offsets: OffsetRange) -> tuple[int, ...]:
    """Return the leader epochs that wrote these offsets, ascending."""
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
    """Return the offsets between `previous` and `current` that no decision skips; none without `previous`."""
    if previous is None:
        return ()
    return not_skipped(previous.end_offset + 1, current.start_offset - 1, decisions)


def unexplained_overlap(previous: RemoteLogSegmentMetadata | None, current: RemoteLogSegmentMetadata) -> int:
    """Return the number of offsets that both segments hold; 0 if a leader change explains them.

    Replicas roll at different offsets: the first segment copied from a new leader is copied whole and may begin before
    the previous one's end. The new segment has another broker id or a later leader epoch, and it has new offsets.
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
    """Return by how much the leader epoch falls at the first offset after `previous`; 0 if it does not."""
    if previous is None:
        return 0
    first_new = min(max(current.start_offset, previous.end_offset + 1), current.end_offset)
    epochs = current.segment_leader_epochs
    epoch = epochs.epoch_for(first_new)
    continued = epochs.entries[0].epoch if epoch is None else epoch
    return max(0, previous.segment_leader_epochs.entries[-1].epoch - continued)
