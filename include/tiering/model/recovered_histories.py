"""Separate the copies of one partition by history, when no decision about them is stored.

Two copies contradict each other if they have different leader epochs for an offset, or if one has a later epoch than
the other has at a higher offset: leader epochs never fall along a log. Only an unclean leader election replaces
committed records, and its leader has a later epoch than all leaders before. So among contradicting copies those with
the latest epoch are the current log, and the copies that they contradict belong to a history that it replaced. That
history may have replaced an older one itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.model.histories import (
    FIRST_HISTORY,
    Divergence,
    Followed,
    OffsetRange,
    SeenBy,
    SeenDivergence,
    epochs_of,
    other_history,
    part_of_history,
    without,
    written,
)
from include.tiering.model.leader_epochs import LeaderEpochs, merged
from include.tiering.model.segments import RemoteLogSegmentMetadata

NOTHING_KNOWN: Final = LeaderEpochs()


@dataclass(frozen=True, slots=True)
class RecoveredHistory:
    """The beginning of a later history, which is followed from `from_offset` (inclusive) on.

    Attributes:
        number: ascending, 1 or above; `FIRST_HISTORY` is the one before any divergence.
        from_offset: first offset (inclusive) that belongs to it.
        seen: what it replaced of earlier histories.
        missing: replaced offsets from `from_offset` on that no copy of earlier histories holds, ascending. A reader
            that names their leader epoch gets nothing. These offsets are no hole, because they belong to the later
            history.
    """

    number: int
    from_offset: int
    seen: SeenDivergence
    missing: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoveredHistories:
    """Every copy by the number of its history. For `decided` and `contradicting` see `RecoveredLog`."""

    copies: Mapping[int, Sequence[RemoteLogSegmentMetadata]]
    decided: tuple[RecoveredHistory, ...] = ()
    contradicting: tuple[RemoteLogSegmentMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class _Log:
    """Copies that agree with each other, and their merged leader epochs."""

    copies: list[RemoteLogSegmentMetadata]
    leader_epochs: LeaderEpochs


def recovered_histories(
    copies: Iterable[RemoteLogSegmentMetadata], carried: LeaderEpochs = NOTHING_KNOWN
) -> RecoveredHistories:
    """Separate these copies of one partition by history.

    Args:
        copies: the complete copies.
        carried: the leader epoch checkpoint stored with the copy of the latest epoch; empty if unknown. It may have
            epochs of which no segment is left.
    """
    decided: list[RecoveredHistory] = []
    contradicting: dict[RemoteLogSegmentMetadata, None] = {}
    numbered: dict[int, list[RemoteLogSegmentMetadata]] = {}
    for number, log in enumerate(_logs(sorted(copies, key=lateness, reverse=True), carried), FIRST_HISTORY):
        replaced = dict(_replaced_by(log, numbered, divergences_of(decided)))
        if replaced:
            decided.append(_history(number, log, replaced, [copy for copies in numbered.values() for copy in copies]))
            contradicting |= dict.fromkeys([*replaced, *_beginning_epochs(log)])
        for copy in log.copies:
            numbered.setdefault(_number(copy, number, decided), []).append(copy)
    return RecoveredHistories(numbered, tuple(decided), tuple(contradicting))


def is_odd(segment: RemoteLogSegmentMetadata, carried: LeaderEpochs) -> bool:
    """Return whether a copy's manifest contradicts the leader epoch checkpoint that is stored with it."""
    return bool(
        other_history(segment.segment_leader_epochs, OffsetRange(segment.start_offset, segment.end_offset), carried)
    )


def divergences_of(decided: Iterable[RecoveredHistory]) -> tuple[Divergence, ...]:
    """Convert to divergences with a decision that has no author and the time 0."""
    return tuple(
        Divergence(divergence.number, divergence.seen, 0, Followed(divergence.from_offset, "", "", 0))
        for divergence in decided
    )


def lateness(segment: RemoteLogSegmentMetadata) -> tuple[int, int, int, int, bytes]:
    """Return a sort key by last leader epoch, then by end: the greatest is of the newest history."""
    entries = segment.segment_leader_epochs.entries
    began_ms = segment.event_timestamp_ms
    return (
        entries[-1].epoch,
        segment.end_offset,
        segment.start_offset,
        began_ms,
        segment.remote_log_segment_id.id.value,
    )


def _logs(latest_first: Sequence[RemoteLogSegmentMetadata], carried: LeaderEpochs) -> list[_Log]:
    """Return groups of agreeing copies, oldest first.

    Each group has the copy with the latest epoch among the copies without a group, and all copies that agree with the
    group. The newest group has only copies that agree with `carried`, too; the others form older groups.
    """
    logs: list[_Log] = []
    left, known = list(latest_first), carried
    while left:
        agreeing, others = [], []
        for segment in left:
            if _agrees(segment, known):
                agreeing.append(segment)
                known = merged(known, segment.segment_leader_epochs, segment.start_offset).history
            else:
                others.append(segment)
        if agreeing:
            logs.append(_Log(agreeing, known))
        left, known = others, NOTHING_KNOWN
    return logs[::-1]


def _agrees(segment: RemoteLogSegmentMetadata, known: LeaderEpochs) -> bool:
    """Return whether a copy agrees with the epochs of copies whose latest epoch is not earlier than its own."""
    own = segment.segment_leader_epochs
    if other_history(own, OffsetRange(segment.start_offset, segment.end_offset), known):
        return False
    return not known.entries or known.entries[0].start_offset <= segment.end_offset or _is_before(own, known)


def _is_before(own: LeaderEpochs, known: LeaderEpochs) -> bool:
    return own.entries[-1].epoch <= known.entries[0].epoch


def _replaced_by(
    log: _Log, earlier: Mapping[int, Sequence[RemoteLogSegmentMetadata]], divergences: Sequence[Divergence]
) -> Iterator[tuple[RemoteLogSegmentMetadata, int]]:
    """Yield copies that contradict a log in offsets of their earlier history, each with the first such offset."""
    for number, copies in earlier.items():
        for copy in copies:
            part = part_of_history(copy, number, divergences)
            offset = None if part is None else _replaced_from(copy, part, log)
            if offset is not None:
                yield copy, offset


def _replaced_from(segment: RemoteLogSegmentMetadata, part: OffsetRange, log: _Log) -> int | None:
    """Return the first offset of a part of a copy that contradicts this log; None if none does.

    The log has replaced an offset if it has a later epoch there, or an earlier epoch there or at a higher offset.
    """
    for epoch, offsets in written(segment.segment_leader_epochs, part):
        if any(_falls_below(epoch, offsets.first, each) for each in log.copies):
            return offsets.first
        for other, same in written(log.leader_epochs, offsets):
            if other > epoch:
                return same.first
    return None


def _falls_below(epoch: int, offset: int, segment: RemoteLogSegmentMetadata) -> bool:
    """Return whether a copy has an earlier epoch at the offset or above it."""
    return segment.end_offset >= offset and _epoch_at(segment, max(segment.start_offset, offset)) < epoch


def _history(
    number: int,
    log: _Log,
    replaced: Mapping[RemoteLogSegmentMetadata, int],
    earlier: Iterable[RemoteLogSegmentMetadata],
) -> RecoveredHistory:
    """Return the history that begins where the log differs, or where its first copy after that begins."""
    first, last = min(replaced.values()), max(segment.end_offset for segment in replaced)
    earliest = min(_epoch_at(copy, offset) for copy, offset in replaced.items())
    differs = min([first, *(entry.start_offset for entry in log.leader_epochs if entry.epoch > earliest)])
    begin = min((copy.start_offset for copy in log.copies if copy.end_offset >= differs), default=differs)
    offsets = OffsetRange(first, last)
    archived = sorted({epoch for segment in replaced for epoch in epochs_of(segment.segment_leader_epochs, offsets)})
    seen = SeenDivergence(offsets, tuple(archived), epochs_of(log.leader_epochs, offsets), SeenBy.REBUILD)
    held = [OffsetRange(segment.start_offset, segment.end_offset) for segment in earlier]
    from_offset = max(differs, begin)
    return RecoveredHistory(number, from_offset, seen, without(OffsetRange(from_offset, last), held))


def _epoch_at(segment: RemoteLogSegmentMetadata, offset: int) -> int:
    """Return the leader epoch at an offset.

    Offsets before the first entry have its epoch: a broker that raised its log start truncated its history there.
    """
    found = segment.segment_leader_epochs.epoch_for(offset)
    return segment.segment_leader_epochs.entries[0].epoch if found is None else found


def _beginning_epochs(log: _Log) -> Iterable[RemoteLogSegmentMetadata]:
    """Return the copy with the lowest offset of each leader epoch."""
    first: dict[int, tuple[int, RemoteLogSegmentMetadata]] = {}
    for copy in log.copies:
        for epoch, offset in copy.segment_leader_epochs:
            if epoch not in first or offset < first[epoch][0]:
                first[epoch] = offset, copy
    return [copy for _, copy in first.values()]


def _number(segment: RemoteLogSegmentMetadata, number: int, decided: Iterable[RecoveredHistory]) -> int:
    """Return the number of the newest history, up to `number`, that the copy has offsets of."""
    begun = (each.number for each in decided if each.number <= number and each.from_offset <= segment.end_offset)
    return max(begun, default=FIRST_HISTORY)
