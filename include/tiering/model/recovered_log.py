"""Select the complete copies in a store that make up a partition's log, when no metadata is left.

A manifest is written last, so a copy that has a manifest, and all objects that the manifest names, is complete. The
objects do not show whether the copy was ever FINISHED, was given up, or was about to be deleted. These rules decide
instead:

- *Contradicting leader epochs* belong to several histories, which `recovered_histories` separates. The newest history
  is followed, and segments that it replaced stay remote under their own leader epochs, as after a decision
  (`model.histories`).
- *Two copies of the same offsets* in one history (a copy replaced another, or was started again): the copy with the
  later last leader epoch is taken; if both have the same, the copy that was begun last.
- *Overlapping offsets* (a new leader's segment is copied whole): leader epoch and offset identify a record, so both
  copies hold the same records, and both are taken. Of copies with the same end only one is taken: the copy that begins
  right after the previous one, otherwise the copy with the lowest start. (`continued_log` takes no copy that overlaps
  an earlier one, except the first of a followed history.)
- *A hole*, which is a range of offsets that no copy holds, stays a hole, and the report names it.

Copies that are left out are reported with the reason and stay in the store. Ends of the taken copies ascend within a
history, as those of FINISHED segments do.

`StoredHistories` finds the histories of copies that are not in the metadata, before any of them is adopted. A database
that was restored from a backup lacks later decisions, and any trace of the leader election that led to them. The leader
epochs of the later history's copies still prove the election, however far the source's log start has moved on: segments
that contradict these epochs were replaced.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from include.tiering.model.histories import (
    FIRST_HISTORY,
    Divergence,
    OffsetRange,
    SeenBy,
    SeenDivergence,
    SkippedOffsets,
    epochs_of,
    newest_history,
    not_skipped,
    part_of_history,
    without,
)
from include.tiering.model.leader_epochs import LeaderEpochs, followed, merged
from include.tiering.model.reasons import Reason
from include.tiering.model.recovered_histories import (
    NOTHING_KNOWN,
    RecoveredHistories,
    RecoveredHistory,
    divergences_of,
    lateness,
    recovered_histories,
)
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata


class Obstacle(Reason):
    """Why a complete copy is not taken."""

    SAME_OFFSETS = "same-offsets", "another copy of the same offsets has a later leader epoch or was begun later"
    COVERED = "covered", "another copy that ends at the same offset is taken"
    FALLING_EPOCHS = "falling-epochs", "its first leader epoch is earlier than the last of the segment that it follows"
    ODD_EPOCHS = "odd-epochs", "its manifest has other leader epochs than its stored leader epoch checkpoint"
    OVERLAP = "overlap", "it does not begin after the last offset that was copied"
    GAP = "gap", "offsets before it are missing, and no decision skips them"
    BELOW_LOG_START = "below-log-start", "all its offsets are below the archive's log start"
    BEFORE_HISTORY = (
        "before-history",
        "it ends below the offset from which the source is followed; ./tiering rebuild into an empty database takes it",
    )
    LEFT_HISTORY = (
        "left-history",
        "a decision replaced the history of its leader epochs; ./tiering rebuild into an empty database takes it",
    )
    LATER_HISTORY = (
        "later-history",
        "it is of a later history than the others: run ./tiering adopt again after the others are adopted",
    )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A complete copy that is not taken.

    `beside` is the segment that was taken instead of it, or the last segment before it, if any.
    """

    segment: RemoteLogSegmentMetadata
    obstacle: Obstacle
    beside: RemoteLogSegmentMetadata | None = None


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """A selection of copies.

    Attributes:
        segments: the taken copies, by history and ascending end.
        left_out: the other copies, by offset.
        holes: offsets between the lowest and the highest held offset that no copy of their history holds, ascending.
        decided: where later histories begin; `divergences_of` converts them to decisions.
        histories: number of the history of each segment that is not of the first history.
        contradicting: copies whose leader epochs prove that there is more than one history: those that begin a leader
            epoch of a later history, and those that this history replaces.
    """

    segments: tuple[RemoteLogSegmentMetadata, ...]
    left_out: tuple[LeftOut, ...] = ()
    holes: tuple[OffsetRange, ...] = ()
    decided: tuple[RecoveredHistory, ...] = ()
    histories: Mapping[RemoteLogSegmentId, int] = field(default_factory=dict)
    contradicting: tuple[RemoteLogSegmentMetadata, ...] = ()


def recovered_log(copies: Iterable[RemoteLogSegmentMetadata], carried: LeaderEpochs = NOTHING_KNOWN) -> RecoveredLog:
    """Select the log from all complete copies of one partition.

    Args:
        copies: the complete copies.
        carried: the leader epoch checkpoint stored with the copy of the latest leader epoch; empty if unknown.
    """
    left_out: list[LeftOut] = []
    found = recovered_histories(copies, carried)
    numbered = sorted(
        ((number, copy) for number, copies in found.copies.items() for copy in _in_order(copies, left_out)),
        key=lambda each: (each[0], each[1].end_offset),
    )
    divergences = divergences_of(found.decided)
    parts = (part_of_history(segment, number, divergences) for number, segment in numbered)
    return RecoveredLog(
        tuple(segment for _, segment in numbered),
        by_offset(left_out),
        _holes([part for part in parts if part is not None]),
        found.decided,
        {segment.remote_log_segment_id: number for number, segment in numbered if number != FIRST_HISTORY},
        found.contradicting,
    )


def followed_epochs(log: RecoveredLog, carried: LeaderEpochs = NOTHING_KNOWN) -> LeaderEpochs:
    """Return the leader epochs to store for a log that has segments.

    They are those of the checkpoint stored with the latest copy (`carried`), merged with the epochs of each segment.
    Each later history is followed from its beginning, as after a decision.
    """
    begins = {divergence.number: divergence.from_offset for divergence in log.decided}
    latest = max(log.segments, key=lateness)
    epochs = NOTHING_KNOWN
    for number, copies in groupby(
        log.segments, key=lambda segment: log.histories.get(segment.remote_log_segment_id, 0)
    ):
        held = list(copies)
        said = carried if latest in held else NOTHING_KNOWN
        for segment in held:
            said = merged(said, segment.segment_leader_epochs, segment.start_offset).history
        epochs = followed(epochs, said, begins[number]) if number in begins else merged(epochs, said, 0).history
    return epochs


def _in_order(
    copies: Iterable[RemoteLogSegmentMetadata], left_out: list[LeftOut]
) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield copies of one history with ascending ends, one for each end; add the others to `left_out`.

    Among equal ends, the copy that continues the previous copy is chosen, otherwise the copy with the lowest start.
    """
    following: int | None = None
    for _, same_end in groupby(_newest_of_each(copies, left_out), key=lambda segment: segment.end_offset):
        chosen, *others = sorted(
            same_end, key=lambda segment: (segment.start_offset != following, segment.start_offset)
        )
        left_out += [LeftOut(other, Obstacle.COVERED, chosen) for other in others]
        following = chosen.end_offset + 1
        yield chosen


def continued_log(
    last: RemoteLogSegmentMetadata | None,
    highest_copied_offset: int | None,
    copies: Iterable[RemoteLogSegmentMetadata],
    *,
    decisions: Sequence[SkippedOffsets] = (),
    log_start_offset: int = 0,
    begun_offset: int | None = None,
    followed_from: int | None = None,
) -> RecoveredLog:
    """Select the complete copies that continue an existing log in order, without new holes.

    No taken copy overlaps an earlier one, except the first of a followed history.

    Args:
        last: the FINISHED segment of the newest history with the highest end, if any.
        highest_copied_offset: the highest offset (inclusive) that ever was FINISHED. None if nothing ever was: then the
            first copy may begin at any offset, or at most at `begun_offset` if that is not None.
        copies: the complete copies.
        decisions: offsets that may be skipped.
        log_start_offset: copies wholly below it are not taken.
        begun_offset: start of a copy in the metadata that is not FINISHED, if any. A first copy with a later start
            would leave out the offsets of that copy.
        followed_from: first offset of the newest history, if nothing of it is FINISHED yet: its first segment must hold
            this offset.
    """
    left_out: list[LeftOut] = []
    taken: list[RemoteLogSegmentMetadata] = []
    for segment in _newest_of_each(copies, left_out):
        if highest_copied_offset is None and begun_offset is not None and segment.start_offset > begun_offset:
            obstacle: Obstacle | None = Obstacle.GAP
        elif _begins_history(segment, followed_from, highest_copied_offset):
            obstacle = None
        else:
            obstacle = _obstacle(segment, last, highest_copied_offset, decisions, log_start_offset)
        if obstacle is None:
            taken.append(segment)
            last, highest_copied_offset, followed_from = segment, segment.end_offset, None
        else:
            left_out.append(LeftOut(segment, obstacle, last))
    held = [OffsetRange(segment.start_offset, segment.end_offset) for segment in taken]
    return RecoveredLog(tuple(taken), by_offset(left_out), _holes(held))


def _begins_history(
    segment: RemoteLogSegmentMetadata, followed_from: int | None, highest_copied_offset: int | None
) -> bool:
    """Return whether a copy run would begin the followed history with this copy."""
    if followed_from is None or highest_copied_offset is None:
        return False
    return highest_copied_offset + 1 == followed_from and segment.start_offset <= followed_from <= segment.end_offset


def _obstacle(
    segment: RemoteLogSegmentMetadata,
    last: RemoteLogSegmentMetadata | None,
    highest_copied_offset: int | None,
    decisions: Sequence[SkippedOffsets],
    log_start_offset: int,
) -> Obstacle | None:
    if segment.end_offset < log_start_offset:
        return Obstacle.BELOW_LOG_START
    if highest_copied_offset is None:
        return None
    if segment.start_offset <= highest_copied_offset:
        return Obstacle.OVERLAP
    if not_skipped(highest_copied_offset + 1, segment.start_offset - 1, decisions):
        return Obstacle.GAP
    if last is not None and segment.segment_leader_epochs.entries[0].epoch < _last_epoch(last):
        return Obstacle.FALLING_EPOCHS
    return None


def _newest_of_each(
    copies: Iterable[RemoteLogSegmentMetadata], left_out: list[LeftOut]
) -> list[RemoteLogSegmentMetadata]:
    """Return the newest copy of each (end, start) pair of offsets, in this order."""
    newest = []
    for _, same in groupby(sorted(copies, key=_offsets_and_age), key=lambda copy: (copy.end_offset, copy.start_offset)):
        *older, last = same
        left_out += [LeftOut(copy, Obstacle.SAME_OFFSETS, last) for copy in older]
        newest.append(last)
    return newest


def _offsets_and_age(segment: RemoteLogSegmentMetadata) -> tuple[int, int, int, int, bytes]:
    began_ms = segment.event_timestamp_ms
    return (
        segment.end_offset,
        segment.start_offset,
        _last_epoch(segment),
        began_ms,
        segment.remote_log_segment_id.id.value,
    )


def _last_epoch(segment: RemoteLogSegmentMetadata) -> int:
    return segment.segment_leader_epochs.entries[-1].epoch


def _holes(held: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Return the offsets between the first and the last held one that are not held."""
    return without(OffsetRange(min(held).first, max(part.last for part in held)), held) if held else ()


def by_offset(left_out: Iterable[LeftOut]) -> tuple[LeftOut, ...]:
    return tuple(sorted(left_out, key=lambda left: (left.segment.start_offset, left.segment.end_offset)))


_Segments = Sequence[RemoteLogSegmentMetadata]


@dataclass(frozen=True, slots=True)
class StoredHistories:
    """Histories of stored copies.

    `known` are FINISHED segments of the newest history, `copies` are copies that are not in the metadata, `carried` is
    the leader epoch checkpoint that is stored with the latest of all these copies.
    """

    known: _Segments
    copies: _Segments
    carried: LeaderEpochs

    def diverging(self) -> SeenDivergence | None:
        """Return which offsets of `known` a history of some of `copies` replaces; None if it replaces none."""
        histories = recovered_histories([*self.known, *self.copies], self.carried)
        later = [copy for copy in self.copies if copy not in histories.copies.get(FIRST_HISTORY, ())]
        found = recovered_histories([*self.known, *later], self.carried)
        return _replaced(found, self.known, later)

    def mixes(self, taken: _Segments) -> bool:
        """Return whether a history of some of the taken copies replaces others of them."""
        histories = recovered_histories([*self.known, *self.copies], self.carried)
        numbers = _numbers(histories)
        return any(
            _gone(histories, numbers, each, taken) and any(numbers[copy] >= each.number for copy in taken)
            for each in histories.decided
        )

    def of_first_history(self) -> _Segments:
        """Return the copies that can be adopted without following a later history."""
        histories = recovered_histories([*self.known, *self.copies], self.carried)
        first = set(histories.copies.get(FIRST_HISTORY, ()))
        return [copy for copy in self.copies if copy in first]


def newest_decision(divergences: Sequence[Divergence]) -> Divergence | None:
    """Return the decided divergence that began the current history, if any."""
    newest = newest_history(divergences)
    return next(
        (divergence for divergence in divergences if divergence.followed is not None and divergence.number == newest),
        None,
    )


def not_followed(segment: RemoteLogSegmentMetadata, decision: Divergence) -> Obstacle | None:
    """Return why a copy is not of the history that a decision began; None if it is.

    Leader epochs show it, because an unclean leader has a later epoch than all leaders before it.
    """
    if decision.followed is None or segment.end_offset < decision.followed.from_offset:
        return Obstacle.BEFORE_HISTORY
    answers = OffsetRange(max(segment.start_offset, decision.followed.from_offset), segment.end_offset)
    own = epochs_of(segment.segment_leader_epochs, answers)
    is_left = min(own, default=-1) <= max(decision.seen.archive_epochs, default=-1)
    return Obstacle.LEFT_HISTORY if is_left else None


def _replaced(found: RecoveredHistories, known: _Segments, later: _Segments) -> SeenDivergence | None:
    numbers = _numbers(found)
    begun = [each for each in found.decided if any(numbers[copy] >= each.number for copy in later)]
    replaced_by = [(each, gone) for each in begun if (gone := _gone(found, numbers, each, known))]
    if not replaced_by:
        return None
    first = min(each.seen.offsets.first for each, _ in replaced_by)
    segments = {segment for _, gone in replaced_by for segment in gone}
    offsets = OffsetRange(first, max(segment.end_offset for segment in segments))
    archived = {epoch for segment in segments for epoch in epochs_of(segment.segment_leader_epochs, offsets)}
    source = {epoch for each in found.decided for epoch in each.seen.source_epochs} - archived
    is_whole = len(found.decided) == 1 and found.decided[0].from_offset == first
    seen_by = SeenBy.STORE if is_whole else SeenBy.ADOPTION
    return SeenDivergence(offsets, tuple(sorted(archived)), tuple(sorted(source)), seen_by)


def _numbers(found: RecoveredHistories) -> Mapping[RemoteLogSegmentMetadata, int]:
    return {copy: number for number, copies in found.copies.items() for copy in copies}


def _gone(
    found: RecoveredHistories, numbers: Mapping[RemoteLogSegmentMetadata, int], by: RecoveredHistory, among: _Segments
) -> _Segments:
    """Return the segments of earlier histories that a history replaces: they contradict it from its first offset on."""
    first, contradicting = by.seen.offsets.first, set(found.contradicting)
    return [
        segment
        for segment in among
        if segment in contradicting and numbers[segment] < by.number and segment.end_offset >= first
    ]
