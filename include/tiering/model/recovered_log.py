"""Which of the complete copies that a store holds of one partition make up its log, when nothing else remembers.

A manifest is written last, so whatever has one and all its objects is a whole copy of records that passed their check.
It does not say whether that copy ever was FINISHED, was given up, or was about to be deleted. What decides instead:

- *Two copies of the same offsets* (one took the place of another, or was begun anew): the one of the later lineage, of
  one lineage the one that was begun last. Whatever makes a copy superfluous was begun after it.
- *Offsets that overlap* (a new leader's segment is taken whole): the leader epoch and the offset name a record. Where
  both copies say the same epochs they hold the same records, and both are taken; where they do not, the later lineage
  is what consumers read, and a copy of an older one with a higher end is left out.
- *Leader epochs never fall* along a log. Where they do, the largest set of copies that agree is taken, so that one odd
  manifest never takes the others with it.
- *A hole* stays a hole. It is named, never closed by a guess.

Whatever is left out is named with its reason and stays where it is. Ends of what is taken ascend, as those of FINISHED
segments do.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, pairwise

from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.skipped_offsets import OffsetRange, SkippedOffsets, not_skipped


class Obstacle(StrEnum):
    """Why a complete copy is not taken."""

    SAME_OFFSETS = "another copy of the same offsets was begun later"
    COVERED = "another copy that reaches the same end is taken"
    FALLING_EPOCHS = "its leader epochs contradict those of more other segments"
    OLDER_LINEAGE = "another copy holds some of its offsets under a later leader epoch"
    OVERLAP = "it does not begin behind the last offset that was copied"
    GAP = "offsets before it are missing, and nobody decided to go on without them"
    BELOW_LOG_START = "its offsets lie below the log start: they were given up"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A complete copy that is not taken; `beside` is the one that it gives way to, if it is one."""

    segment: RemoteLogSegmentMetadata
    obstacle: Obstacle
    beside: RemoteLogSegmentMetadata | None = None


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """`segments` by ascending end, `left_out` by offset.

    `holes` lie between a segment and the one before it, ascending; a later one that overlaps may hold them after all.
    """

    segments: tuple[RemoteLogSegmentMetadata, ...]
    left_out: tuple[LeftOut, ...] = ()
    holes: tuple[OffsetRange, ...] = ()


def recovered_log(copies: Iterable[RemoteLogSegmentMetadata]) -> RecoveredLog:
    """The log that these complete copies of one partition make up, as far as they go."""
    left_out: list[LeftOut] = []
    agreeing = _of_one_lineage(_newest_of_each(copies, left_out), left_out)
    taken: list[RemoteLogSegmentMetadata] = []
    for _, same_end in groupby(agreeing, key=lambda one: one.end_offset):
        following = (taken[-1].end_offset + 1) if taken else None
        chosen: RemoteLogSegmentMetadata | None = None
        for one in sorted(same_end, key=lambda one: (one.start_offset != following, one.start_offset)):
            denied_by = next((before for before in _overlapped(taken, one) if _is_older(one, before)), None)
            if chosen is not None:
                left_out.append(LeftOut(one, Obstacle.COVERED, chosen))
            elif denied_by is not None:
                left_out.append(LeftOut(one, Obstacle.OLDER_LINEAGE, denied_by))
            else:
                chosen = one
        if chosen is not None:
            taken.append(chosen)
    return RecoveredLog(tuple(taken), _by_offset(left_out), tuple(_holes(taken)))


def continued_log(
    last: RemoteLogSegmentMetadata | None,
    highest_copied_offset: int | None,
    copies: Iterable[RemoteLogSegmentMetadata],
    *,
    decisions: Sequence[SkippedOffsets] = (),
    log_start_offset: int = 0,
    begun_offset: int | None = None,
) -> RecoveredLog:
    """What of these complete copies may follow a log that is known: without overlap, without a new hole, in order.

    Args:
        last: the FINISHED segment with the highest end, if there is one.
        highest_copied_offset: inclusive, ever FINISHED; None if nothing ever was, then the first copy begins anywhere
            up to `begun_offset`.
        decisions: offsets to go on without.
        log_start_offset: nothing wholly below it is taken.
        begun_offset: where a copy begins that is known and not FINISHED, if there is one: it would be left out.
    """
    left_out: list[LeftOut] = []
    taken: list[RemoteLogSegmentMetadata] = []
    for one in _newest_of_each(copies, left_out):
        if highest_copied_offset is None and begun_offset is not None and one.start_offset > begun_offset:
            obstacle: Obstacle | None = Obstacle.GAP
        else:
            obstacle = _obstacle(one, last, highest_copied_offset, decisions, log_start_offset)
        if obstacle is None:
            taken.append(one)
            last, highest_copied_offset = one, one.end_offset
        else:
            left_out.append(LeftOut(one, obstacle, last))
    return RecoveredLog(tuple(taken), _by_offset(left_out), tuple(_holes(taken)))


def _obstacle(
    one: RemoteLogSegmentMetadata,
    last: RemoteLogSegmentMetadata | None,
    highest_copied_offset: int | None,
    decisions: Sequence[SkippedOffsets],
    log_start_offset: int,
) -> Obstacle | None:
    if one.end_offset < log_start_offset:
        return Obstacle.BELOW_LOG_START
    if highest_copied_offset is None:
        return None
    if one.start_offset <= highest_copied_offset:
        return Obstacle.OVERLAP
    if not_skipped(highest_copied_offset + 1, one.start_offset - 1, decisions):
        return Obstacle.GAP
    if last is not None and one.segment_leader_epochs.entries[0].epoch < _last_epoch(last):
        return Obstacle.FALLING_EPOCHS
    return None


def _newest_of_each(
    copies: Iterable[RemoteLogSegmentMetadata], left_out: list[LeftOut]
) -> list[RemoteLogSegmentMetadata]:
    """One copy of each pair of offsets, by end and start."""
    newest = []
    for _, same in groupby(sorted(copies, key=_offsets_and_age), key=lambda one: (one.end_offset, one.start_offset)):
        *older, last = same
        left_out += [LeftOut(one, Obstacle.SAME_OFFSETS, last) for one in older]
        newest.append(last)
    return newest


def _offsets_and_age(one: RemoteLogSegmentMetadata) -> tuple[int, int, int, int, bytes]:
    began_ms = one.event_timestamp_ms
    return (one.end_offset, one.start_offset, _last_epoch(one), began_ms, one.remote_log_segment_id.id.value)


def _of_one_lineage(
    by_end: Sequence[RemoteLogSegmentMetadata], left_out: list[LeftOut]
) -> list[RemoteLogSegmentMetadata]:
    """The longest subsequence whose last leader epochs do not fall: all, unless a manifest is odd."""
    if all(_last_epoch(before) <= _last_epoch(after) for before, after in pairwise(by_end)):
        return list(by_end)
    tails: list[int] = []
    """At n the lowest epoch in which n + 1 copies that agree can end, and which copy that is."""
    tail_positions: list[int] = []
    previous: list[int | None] = []
    for position, one in enumerate(by_end):
        length = bisect_right(tails, _last_epoch(one))
        previous.append(tail_positions[length - 1] if length else None)
        tails[length : length + 1] = [_last_epoch(one)]
        tail_positions[length : length + 1] = [position]
    kept: set[int] = set()
    follow: int | None = tail_positions[-1]
    while follow is not None:
        kept.add(follow)
        follow = previous[follow]
    left_out += [LeftOut(one, Obstacle.FALLING_EPOCHS) for n, one in enumerate(by_end) if n not in kept]
    return [one for n, one in enumerate(by_end) if n in kept]


def _overlapped(
    taken: Sequence[RemoteLogSegmentMetadata], one: RemoteLogSegmentMetadata
) -> Iterator[RemoteLogSegmentMetadata]:
    for before in reversed(taken):
        if before.end_offset < one.start_offset:
            return
        yield before


def _is_older(one: RemoteLogSegmentMetadata, before: RemoteLogSegmentMetadata) -> bool:
    """Whether `one` holds an offset of `before` under an earlier leader epoch."""
    first = max(one.start_offset, before.start_offset)
    changes = (entry.start_offset for each in (one, before) for entry in each.segment_leader_epochs)
    return any(
        _epoch_at(one, offset) < _epoch_at(before, offset)
        for offset in {first, *(change for change in changes if first < change <= before.end_offset)}
    )


def _epoch_at(one: RemoteLogSegmentMetadata, offset: int) -> int:
    """The first epoch holds for whatever lies before it: a broker that moved its log start cut its history there."""
    found = one.segment_leader_epochs.epoch_for(offset)
    return one.segment_leader_epochs.entries[0].epoch if found is None else found


def _last_epoch(one: RemoteLogSegmentMetadata) -> int:
    return one.segment_leader_epochs.entries[-1].epoch


def _holes(by_end: Iterable[RemoteLogSegmentMetadata]) -> Iterator[OffsetRange]:
    for before, after in pairwise(by_end):
        if after.start_offset > before.end_offset + 1:
            yield OffsetRange(before.end_offset + 1, after.start_offset - 1)


def _by_offset(left_out: Iterable[LeftOut]) -> tuple[LeftOut, ...]:
    return tuple(sorted(left_out, key=lambda one: (one.segment.start_offset, one.segment.end_offset)))
