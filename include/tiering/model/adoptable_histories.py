"""Which history the copies are of that a store has and the metadata does not know: told before any is adopted.

A database that was set back has forgotten decisions, and the election behind them. Copies of the later history name it
by their leader epochs, however far the source's log start has moved on: what they contradict was replaced.
"""

from collections.abc import Sequence
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
from include.tiering.model.recovered_histories import RecoveredHistories, recovered_histories
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
        """Whether what is taken is of more than one history, though what is known is of one."""
        if recovered_histories(self.known).decided:
            return False
        return bool(recovered_histories([*self.known, *taken], self.carried).decided)

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
    numbers = {one: number for number, copies in found.copies.items() for one in copies}
    contradicting = set(found.contradicting)
    for history in found.decided:
        first, number = history.seen.offsets.first, history.number
        gone = [one for one in known if one in contradicting and numbers[one] < number and one.end_offset >= first]
        if not gone or not any(numbers[one] >= number for one in later):
            continue
        offsets = OffsetRange(first, max(one.end_offset for one in gone))
        archived = {epoch for one in gone for epoch in epochs_of(one.segment_leader_epochs, offsets)}
        source = {epoch for each in found.decided for epoch in each.seen.source_epochs} - archived
        is_whole = history.from_offset == first and len(found.decided) == 1
        seen_by = SeenBy.STORE if is_whole else SeenBy.ADOPTION
        return SeenDivergence(offsets, tuple(sorted(archived)), tuple(sorted(source)), seen_by)
    return None
