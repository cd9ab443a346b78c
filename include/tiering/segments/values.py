"""Stored values of a segment, a partition and a rule's result; and the conclusion from a verification.

`conclude` combines a verification with the stored results of earlier ones, without I/O, inside the store's transaction:

    stored result of a rule              the verification found     result afterwards
    any                                  it is broken               broken, with the new time
    broken                               nothing (not evaluated)    broken
    broken when the verification began   it holds                   passed
    broken, a warning                    it holds                   passed
    broken by a later verdict            it holds                   broken: the failed one of two verifications counts

A verdict and its results have the same time, and the times of a segment's verdicts ascend. A *later verdict* was
recorded after the verdict that the row had before the verification began (`Verification.before`); without `before`, no
stored result becomes passed. No clock is read.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import SegmentOrigin
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Uuid,
    Verdict,
)

CRITICAL: Final = "critical"
"""The level of a rule that fails a segment."""


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """A segment with what this platform stores beyond Kafka's metadata.

    Attributes:
        source_fingerprint: opaque text: equal texts mean the same source bytes.
        finished_at_ms: when the segment became FINISHED, by the database's clock; it stays when the segment is deleted.
            None if the segment was never FINISHED.
        verdict_at_ms: when the verdict was recorded, by the database's clock; for EXPIRED, when PASSED was recorded.
            None without a verdict.
        deep_passed_at_ms: time of the last verdict PASSED by a verification that read every byte; None if there was
            none since the segment last failed.
        superseded_by: id of the new copy of the same offsets that replaced the segment; None without such a copy.
        delete_started_at_ms: when the deletion began, by the database's clock; None before. In a broker's segment the
            times of its states are the broker's own, but none of them is in the future of the database's clock.
        broker_state: the segment's state by the records of the brokers' metadata topic; None if the current reading
            applied no record about it (yet).
        history: number of the history that the segment belongs to (`model.histories`): 0, or that of the divergence
            whose decision began the history.
    """

    metadata: RemoteLogSegmentMetadata
    verdict: Verdict
    log_crc32c: int | None
    verdict_detail: str = ""
    source_fingerprint: str | None = None
    finished_at_ms: int | None = None
    verdict_at_ms: int | None = None
    deep_passed_at_ms: int | None = None
    superseded_by: Uuid | None = None
    delete_started_at_ms: int | None = None
    origin: SegmentOrigin = SegmentOrigin.PLATFORM
    broker_state: RemoteLogSegmentState | None = None
    history: int = 0


@dataclass(frozen=True, slots=True)
class PartitionRetentionState:
    """Log start and leader epochs of a partition's remote log, as stored by the platform; brokers may have lost them.

    Nothing below `log_start_offset` is served; this offset only rises. See `model.leader_epochs` for the merging.
    """

    log_start_offset: int = 0
    leader_epochs: LeaderEpochs = field(default_factory=LeaderEpochs)


@dataclass(frozen=True, slots=True)
class QualityResult:
    """Result of one rule for one segment. `level` is the rule's severity, `message` is for a person."""

    segment_id: RemoteLogSegmentId
    rule: str
    level: str
    passed: bool
    message: str = ""

    @property
    def fails(self) -> bool:
        """Whether this result fails the segment."""
        return not self.passed and self.level == CRITICAL


@dataclass(frozen=True, slots=True)
class Verification:
    """Findings of one verification of a segment.

    `broken` are the rules that did not pass. All other rules count as passed, also rules that this version does not
    have, except those in `unevaluated`. `before` is the segment's row as read before the verification began; without
    this row the verification clears no rule. `is_deep` means that the verification read every byte.
    """

    segment_id: RemoteLogSegmentId
    broken: tuple[QualityResult, ...] = ()
    unevaluated: frozenset[str] = frozenset()
    before: SegmentRow | None = None
    is_deep: bool = False

    def clears(self, result: QualityResult, recorded_at_ms: int) -> bool:
        """Return whether this verification turns a stored failed result, which it did not find again, into passed."""
        if self.before is None or result.rule in self.unevaluated:
            return False
        seen_at_ms = self.before.verdict_at_ms
        return not result.fails or (seen_at_ms is not None and recorded_at_ms <= seen_at_ms)


@dataclass(frozen=True, slots=True)
class RecordedVerdict:
    """State of a segment after a verification: its verdict, and its broken rules, by rule."""

    verdict: Verdict
    broken: tuple[QualityResult, ...]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What to store after a verification. `verdict` is None if the stored verdict stays."""

    results: tuple[QualityResult, ...]
    verdict: Verdict | None
    broken: tuple[QualityResult, ...]

    @property
    def detail(self) -> str:
        """Why the segment fails; empty if it does not."""
        return "; ".join(f"{result.rule}: {result.message}" for result in self.broken if result.fails)


def conclude(verification: Verification, unresolved: Iterable[tuple[QualityResult, int]]) -> Conclusion:
    """Conclude from a verification; `unresolved` are the stored failed results, each with the time of its recording."""
    repeated = {result.rule for result in verification.broken}
    cleared, remaining = [], list(verification.broken)
    for result, recorded_at_ms in unresolved:
        if result.rule in repeated:
            continue
        if verification.clears(result, recorded_at_ms):
            cleared.append(replace(result, passed=True, message=""))
        else:
            remaining.append(result)
    broken = tuple(sorted(remaining, key=lambda result: result.rule))
    otherwise = None if verification.before is None else Verdict.PASSED
    verdict = Verdict.FAILED if any(result.fails for result in broken) else otherwise
    return Conclusion((*verification.broken, *cleared), verdict, broken)


def verdict_time_ms(known: SegmentRow, now_ms: int) -> int:
    """Return the time of a new verdict: later than the last verdict's, even if the clock was set back."""
    return now_ms if known.verdict_at_ms is None else max(now_ms, known.verdict_at_ms + 1)


def deep_passed_at_ms(known: SegmentRow, verdict: Verdict, at_ms: int, *, is_deep: bool) -> int | None:
    """Return the new value of the column `deep_passed_at_ms` after this verdict."""
    if verdict is Verdict.FAILED:
        return None
    return at_ms if is_deep and verdict is Verdict.PASSED else known.deep_passed_at_ms


def listing_order(row: SegmentRow) -> tuple[int, bool, int]:
    """Return the sort key of `RemoteLogMetadata.list_segments` in a partition, except for the order of recording."""
    segment = row.metadata
    return segment.start_offset, not segment.is_finished, -segment.end_offset if segment.is_finished else 0
