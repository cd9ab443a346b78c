"""Which of the complete copies that a store holds of one partition make up its log, when no metadata is left.

A manifest is written last, so whatever has one and all its objects is a whole copy of records that passed their check.
It does not say whether that copy ever was FINISHED, was given up, or was about to be deleted. What decides instead:

- *Leader epochs that contradict each other* are of several histories: `recovered_histories` tells them apart. The
  newest one is followed, and what it replaced stays remote under its own leader epochs, as after a decision
  (`model.histories`).
- *Two copies of the same offsets* of one history (one took the place of another, or was begun anew): the one that was
  begun last. Whatever makes a copy superfluous was begun after it.
- *Offsets that overlap* (a new leader's segment is taken whole): the leader epoch and the offset name a record. Both
  hold the same records, and both are taken.
- *A hole* stays a hole. It is named, never closed by a guess.

Whatever is left out is named with its reason and stays where it is. Ends of what is taken ascend within a history, as
those of FINISHED segments do.

`StoredHistories` tells of which history the copies are that the metadata does not know, before any is adopted. A
database that was set back has forgotten decisions, and the election behind them. Copies of the later history name it by
their leader epochs, however far the source's log start has moved on: what they contradict was replaced.
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

    SAME_OFFSETS = "same-offsets", "another copy of the same offsets was begun later"
    COVERED = "covered", "another copy that reaches the same end is taken"
    FALLING_EPOCHS = "falling-epochs", "its leader epochs lie before those of the segment that it would follow"
    ODD_EPOCHS = "odd-epochs", "its manifest says other leader epochs than the history that it carries"
    OVERLAP = "overlap", "it does not begin behind the last offset that was copied"
    GAP = "gap", "offsets before it are missing, and nobody decided to go on without them"
    BELOW_LOG_START = "below-log-start", "its offsets lie below the log start: they were given up"
    BEFORE_HISTORY = (
        "before-history",
        "it ends below the offset from which the source is followed; ./tiering rebuild into an empty database takes it",
    )
    LEFT_HISTORY = (
        "left-history",
        "its leader epochs are of a history that a decision left; ./tiering rebuild into an empty database takes it",
    )
    LATER_HISTORY = (
        "later-history",
        "it is of a later history than the others: ./tiering adopt again, when those are adopted",
    )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A complete copy that is not taken; `beside` is the one that it gives way to, if it is one."""

    segment: RemoteLogSegmentMetadata
    obstacle: Obstacle
    beside: RemoteLogSegmentMetadata | None = None


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """`segments` by history and ascending end, `left_out` by offset.

    Attributes:
        holes: offsets that no segment holds of the history which answers for them, between the first and the last one
            that is held, ascending.
        decided: where a later history begins; `divergences_of` says it as a decision.
        histories: numbers of the later histories, of the segments that are not of the first one.
        contradicting: copies by whose leader epochs there is more than one history: those that begin a leader epoch of
            a later one, and those that it replaces.
    """

    segments: tuple[RemoteLogSegmentMetadata, ...]
    left_out: tuple[LeftOut, ...] = ()
    holes: tuple[OffsetRange, ...] = ()
    decided: tuple[RecoveredHistory, ...] = ()
    histories: Mapping[RemoteLogSegmentId, int] = field(default_factory=dict)
    contradicting: tuple[RemoteLogSegmentMetadata, ...] = ()


def recovered_log(copies: Iterable[RemoteLogSegmentMetadata], carried: LeaderEpochs = NOTHING_KNOWN) -> RecoveredLog:
    """The log that these complete copies of one partition make up, as far as they go.

    Args:
        carried: the history of leader epochs that the copy with the latest one carries, if it is known.
    """
    left_out: list[LeftOut] = []
    found = recovered_histories(copies, carried)
    numbered = sorted(
        ((number, one) for number, copies in found.copies.items() for one in _in_order(copies, left_out)),
        key=lambda each: (each[0], each[1].end_offset),
    )
    divergences = divergences_of(found.decided)
    parts = (part_of_history(one, number, divergences) for number, one in numbered)
    return RecoveredLog(
        tuple(one for _, one in numbered),
        by_offset(left_out),
        _holes([part for part in parts if part is not None]),
        found.decided,
        {segment.remote_log_segment_id: number for number, segment in numbered if number != FIRST_HISTORY},
        found.contradicting,
    )


def followed_epochs(log: RecoveredLog, carried: LeaderEpochs = NOTHING_KNOWN) -> LeaderEpochs:
    """The history of leader epochs to store of a log that holds something: what the latest copy carries, completed
    by what each says of itself. Each later history is followed from where it begins, as by decision.
    """
    begins = {divergence.number: divergence.from_offset for divergence in log.decided}
    latest = max(log.segments, key=lateness)
    epochs = NOTHING_KNOWN
    for number, copies in groupby(
        log.segments, key=lambda segment: log.histories.get(segment.remote_log_segment_id, 0)
    ):
        held = list(copies)
        said = carried if latest in held else NOTHING_KNOWN
        for one in held:
            said = merged(said, one.segment_leader_epochs, one.start_offset).history
        epochs = followed(epochs, said, begins[number]) if number in begins else merged(epochs, said, 0).history
    return epochs


def _in_order(
    copies: Iterable[RemoteLogSegmentMetadata], left_out: list[LeftOut]
) -> Iterator[RemoteLogSegmentMetadata]:
    """Copies of one history with ascending ends; of several with one end the one that goes on from the last one."""
    following: int | None = None
    for _, same_end in groupby(_newest_of_each(copies, left_out), key=lambda segment: segment.end_offset):
        chosen, *others = sorted(
            same_end, key=lambda segment: (segment.start_offset != following, segment.start_offset)
        )
        left_out += [LeftOut(one, Obstacle.COVERED, chosen) for one in others]
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
    """What of these complete copies may follow a log that is known: without overlap, without a new hole, in order.

    Args:
        last: the FINISHED segment of the newest history with the highest end, if there is one.
        highest_copied_offset: inclusive, ever FINISHED; None if nothing ever was, then the first copy begins anywhere
            up to `begun_offset`.
        decisions: offsets to go on without.
        log_start_offset: nothing wholly below it is taken.
        begun_offset: where a copy begins that is known and not FINISHED, if there is one: it would be left out.
        followed_from: where the newest history begins, if nothing of it is FINISHED yet: its first segment holds this
            offset, whole.
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
    """Whether a copy is the one that a copy run would begin a followed history with."""
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
    """One copy of each pair of offsets, by end and start."""
    newest = []
    for _, same in groupby(sorted(copies, key=_offsets_and_age), key=lambda copy: (copy.end_offset, copy.start_offset)):
        *older, last = same
        left_out += [LeftOut(one, Obstacle.SAME_OFFSETS, last) for one in older]
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
    """What is not held between the first and the last offset that is."""
    return without(OffsetRange(min(held).first, max(part.last for part in held)), held) if held else ()


def by_offset(left_out: Iterable[LeftOut]) -> tuple[LeftOut, ...]:
    return tuple(sorted(left_out, key=lambda one: (one.segment.start_offset, one.segment.end_offset)))


_Segments = Sequence[RemoteLogSegmentMetadata]


@dataclass(frozen=True, slots=True)
class StoredHistories:
    """`known` are FINISHED segments of the newest history, `copies` what the metadata does not know, `carried` the
    leader epochs that the latest of all carries.
    """

    known: _Segments
    copies: _Segments
    carried: LeaderEpochs

    def diverging(self) -> SeenDivergence | None:
        """What of the known segments is replaced by a history of which the store has copies."""
        histories = recovered_histories([*self.known, *self.copies], self.carried)
        later = [copy for copy in self.copies if copy not in histories.copies.get(FIRST_HISTORY, ())]
        found = recovered_histories([*self.known, *later], self.carried)
        return _replaced(found, self.known, later)

    def mixes(self, taken: _Segments) -> bool:
        """Whether some of what is taken is replaced by what else is taken."""
        histories = recovered_histories([*self.known, *self.copies], self.carried)
        numbers = _numbers(histories)
        return any(
            _gone(histories, numbers, each, taken) and any(numbers[one] >= each.number for one in taken)
            for each in histories.decided
        )

    def of_first_history(self) -> _Segments:
        """The copies that no later history has to be followed for."""
        histories = recovered_histories([*self.known, *self.copies], self.carried)
        first = set(histories.copies.get(FIRST_HISTORY, ()))
        return [copy for copy in self.copies if copy in first]


def newest_decision(divergences: Sequence[Divergence]) -> Divergence | None:
    """The one that began the history which is copied now."""
    newest = newest_history(divergences)
    return next(
        (divergence for divergence in divergences if divergence.followed is not None and divergence.number == newest),
        None,
    )


def not_followed(segment: RemoteLogSegmentMetadata, decision: Divergence) -> Obstacle | None:
    """Why a copy is none of the history that a decision began: an unclean leader has a later epoch than any before."""
    if decision.followed is None or segment.end_offset < decision.followed.from_offset:
        return Obstacle.BEFORE_HISTORY
    answers = OffsetRange(max(segment.start_offset, decision.followed.from_offset), segment.end_offset)
    own = epochs_of(segment.segment_leader_epochs, answers)
    is_left = min(own, default=-1) <= max(decision.seen.archive_epochs, default=-1)
    return Obstacle.LEFT_HISTORY if is_left else None


def _replaced(found: RecoveredHistories, known: _Segments, later: _Segments) -> SeenDivergence | None:
    numbers = _numbers(found)
    begun = [each for each in found.decided if any(numbers[one] >= each.number for one in later)]
    replaced_by = [(each, gone) for each in begun if (gone := _gone(found, numbers, each, known))]
    if not replaced_by:
        return None
    first = min(each.seen.offsets.first for each, _ in replaced_by)
    segments = {one for _, gone in replaced_by for one in gone}
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
    """What of these segments a history replaces: of an earlier one, and contradicting from where it differs on."""
    first, contradicting = by.seen.offsets.first, set(found.contradicting)
    return [
        segment
        for segment in among
        if segment in contradicting and numbers[segment] < by.number and segment.end_offset >= first
    ]
