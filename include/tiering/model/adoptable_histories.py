"""Which history the copies are of that a store has and the metadata does not know: told before any is adopted.

A database that was set back has forgotten decisions, and the election behind them. Copies of the later history name it
by their leader epochs, however far the source's log start has moved on: what they contradict was replaced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from include.tiering.model.divergence import (
    FIRST_HISTORY,
    Divergence,
    SeenBy,
    SeenDivergence,
    epochs_of,
    newest_history,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.recovered_histories import RecoveredHistories, RecoveredHistory, recovered_histories
from include.tiering.model.recovered_log import Obstacle
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.skipped_offsets import OffsetRange

_Segments = Sequence[RemoteLogSegmentMetadata]


@dataclass(frozen=True, slots=True)
class StoredHistories:
    """`known` are FINISHED segments of the newest history, `copies` what the metadata does not know, `carried` the
    leader epochs that the latest of all carries."""

    known: _Segments
    copies: _Segments
    carried: LeaderEpochs

    def diverging(self) -> SeenDivergence | None:
        """What of the known segments is replaced by a history of which the store has copies."""
        told = recovered_histories([*self.known, *self.copies], self.carried)
        later = [one for one in self.copies if one not in told.copies.get(FIRST_HISTORY, ())]
        found = recovered_histories([*self.known, *later], self.carried)
        return _replaced(found, self.known, later)

    def mixes(self, taken: _Segments) -> bool:
        """Whether some of what is taken is replaced by what else is taken."""
        told = recovered_histories([*self.known, *self.copies], self.carried)
        numbers = _numbers(told)
        return any(
            _gone(told, numbers, each, taken) and any(numbers[one] >= each.number for one in taken)
            for each in told.decided
        )

    def of_first_history(self) -> _Segments:
        """The copies that no later history has to be followed for."""
        told = recovered_histories([*self.known, *self.copies], self.carried)
        first = set(told.copies.get(FIRST_HISTORY, ()))
        return [one for one in self.copies if one in first]


def newest_decision(divergences: Sequence[Divergence]) -> Divergence | None:
    """The one that began the history which is copied now."""
    newest = newest_history(divergences)
    return next((one for one in divergences if one.followed is not None and one.number == newest), None)


def not_followed(one: RemoteLogSegmentMetadata, decision: Divergence) -> Obstacle | None:
    """Why a copy is none of the history that a decision began: an unclean leader has a later epoch than any before."""
    if decision.followed is None or one.end_offset < decision.followed.from_offset:
        return Obstacle.BEFORE_HISTORY
    answers = OffsetRange(max(one.start_offset, decision.followed.from_offset), one.end_offset)
    own = epochs_of(one.segment_leader_epochs, answers)
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
    offsets = OffsetRange(first, max(one.end_offset for one in segments))
    archived = {epoch for one in segments for epoch in epochs_of(one.segment_leader_epochs, offsets)}
    source = {epoch for each in found.decided for epoch in each.seen.source_epochs} - archived
    is_whole = len(found.decided) == 1 and found.decided[0].from_offset == first
    seen_by = SeenBy.STORE if is_whole else SeenBy.ADOPTION
    return SeenDivergence(offsets, tuple(sorted(archived)), tuple(sorted(source)), seen_by)


def _numbers(found: RecoveredHistories) -> Mapping[RemoteLogSegmentMetadata, int]:
    return {one: number for number, copies in found.copies.items() for one in copies}


def _gone(
    found: RecoveredHistories, numbers: Mapping[RemoteLogSegmentMetadata, int], by: RecoveredHistory, among: _Segments
) -> _Segments:
    """What of these segments a history replaces: of an earlier one, and contradicting from where it differs on."""
    first, contradicting = by.seen.offsets.first, set(found.contradicting)
    return [one for one in among if one in contradicting and numbers[one] < by.number and one.end_offset >= first]
