"""Runs that verify: which segments, why, how deep, and what became of each.

A plan only says what to read. It gives no right to anything and takes none: a segment that is deleted meanwhile is
GONE, and two runs may verify the same segment, which costs bytes and nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.model.ids import RemoteLogSegmentId
from include.tiering.model.segment_metadata import Depth
from include.tiering.segments.contract import QualityResult

KEPT_PLANS_MS: Final = 30 * 24 * 60 * 60 * 1000
"""Plans that are older are forgotten when the next one is stored."""


class VerificationReason(StrEnum):
    """Why a segment was chosen; the most urgent first."""

    NEVER = "never verified"
    FAILED = "failed before"
    EXPIRED = "verdict expired"
    EXPIRING = "verdict about to expire"
    OLD = "verdict older than asked for"
    SHARE = "its turn"
    ASKED = "asked for"


class VerificationOutcome(StrEnum):
    """What became of one planned segment. GONE: it was no longer FINISHED when it was to be read or judged."""

    PLANNED = "planned"
    PASSED = "passed"
    FAILED = "failed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class PlannedVerification:
    """One segment to verify. `planned_bytes` is an estimate of what has to be read."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    depth: Depth
    reason: VerificationReason
    planned_bytes: int


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """The outcome of one segment, any but PLANNED, and the bytes that were read for it."""

    segment_id: RemoteLogSegmentId
    outcome: VerificationOutcome
    read_bytes: int


@dataclass(frozen=True, slots=True)
class VerificationTotal:
    """Segments of a run with one outcome, and their bytes: planned and read."""

    outcome: VerificationOutcome
    segments: int
    planned_bytes: int
    read_bytes: int


class VerificationStore(Protocol):
    """Runs that verify, of one cluster.

    Every method may raise `MetadataUnavailableError`.
    """

    def save_plan(self, run_id: str, planned: Sequence[PlannedVerification]) -> None:
        """Store a plan, and forget those of longer ago than `KEPT_PLANS_MS`, by the database's clock.

        The same run id with the same plan is harmless.

        Raises:
            StateConflictError: the run has another plan.
        """
        ...

    def pending(self, run_id: str, *, at_most: int) -> Sequence[PlannedVerification]:
        """The first segments that are still PLANNED, by topic, partition and start offset."""
        ...

    def planned(self, run_id: str, outcome: VerificationOutcome) -> Sequence[PlannedVerification]:
        """All with this outcome, in the same order."""
        ...

    def broken_rules(self, run_id: str) -> Sequence[tuple[int, QualityResult]]:
        """Rules that segments of the run with an outcome break, as they stand now, whoever recorded them; each with the
        segment's start offset. In the same order, then by rule; of what is gone, none.
        """
        ...

    def record(self, run_id: str, results: Sequence[VerificationResult]) -> None:
        """Outcomes of planned segments, all or none of them. Repeating it is harmless; a later one replaces it.

        Raises:
            StateConflictError: the plan has no such segment.
        """
        ...

    def note_confirmed_losses(self, found: str, *, author: str) -> None:
        """Record as an event that `author` says of missing segments that they are lost; `found` says how many."""
        ...

    def totals(self, run_id: str) -> Sequence[VerificationTotal]:
        """Each outcome once, in the order of `VerificationOutcome`."""
        ...
