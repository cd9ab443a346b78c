"""What is known of a segment, a partition and a rule about a segment; and what follows from a verification.

`conclude` decides, without I/O, inside the store's transaction, from a verification and the stored results of others:

    result of a rule, in the store       the verification says      afterwards
    anything                             it is broken               broken, as of now
    broken                               nothing (it is not asked)  broken
    broken when the verification began   it holds                   passed
    broken, a warning                    it holds                   passed
    broken by a verdict that came since  it holds                   broken: the failed one of two verifications counts

A verdict and the results that came with it have one time, and the times of a segment's verdicts ascend: what came since
is what was recorded later than the verdict that was seen before the verification began. No clock is asked.
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
    """A segment with what this platform knows beyond Kafka's metadata.

    `source_fingerprint` is opaque text: equal texts mean the same source bytes. `finished_at_ms` and `verdict_at_ms`
    are times of the database: None if it never was FINISHED, whatever its state is now, or has no verdict.
    `deep_passed_at_ms` is the time of the last verdict PASSED by a verification that read every byte, None if there was
    none since it failed. `superseded_by` is the new copy of the same offsets that took its place,
    `delete_started_at_ms` when its deletion began, by the database's clock; of a broker's segment the times of its
    states are the broker's own, none of them in the future. `broker_state` is what the brokers' metadata topic says of
    it, None if it does not (yet). `history` is 0, or the number of the divergence behind whose decision it was copied.
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
    """Log start and leader epochs of a partition's remote log as the platform stored them, whatever its broker forgets.

    Nothing below `log_start_offset` is served; it only rises. `leader_epochs` is the history merged over time.
    """

    log_start_offset: int = 0
    leader_epochs: LeaderEpochs = field(default_factory=LeaderEpochs)


@dataclass(frozen=True, slots=True)
class QualityResult:
    """What one rule said about one segment. `level` is the rule's severity, `message` for a person."""

    segment_id: RemoteLogSegmentId
    rule: str
    level: str
    passed: bool
    message: str = ""

    @property
    def fails(self) -> bool:
        """Whether the segment fails by it."""
        return not self.passed and self.level == CRITICAL


@dataclass(frozen=True, slots=True)
class Verification:
    """What one verification of a segment found.

    `broken` are the rules that did not pass. Any other rule holds, known to this code or not, but those whose ids are
    in `unevaluated`. `before` is the segment's row as it was read before the verification began; without one the
    verification clears no rule. `is_deep`: it read every byte.
    """

    segment_id: RemoteLogSegmentId
    broken: tuple[QualityResult, ...] = ()
    unevaluated: frozenset[str] = frozenset()
    before: SegmentRow | None = None
    is_deep: bool = False

    def clears(self, result: QualityResult, recorded_at_ms: int) -> bool:
        """Whether a result that did not pass, and that this verification does not repeat, is passed now."""
        if self.before is None or result.rule in self.unevaluated:
            return False
        seen_at_ms = self.before.verdict_at_ms
        return not result.fails or (seen_at_ms is not None and recorded_at_ms <= seen_at_ms)


@dataclass(frozen=True, slots=True)
class RecordedVerdict:
    """What holds of a segment after a verification: its verdict, and what it breaks, by rule."""

    verdict: Verdict
    broken: tuple[QualityResult, ...]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What is to be stored, and what holds then. No verdict is stored where the verification says nothing about one."""

    results: tuple[QualityResult, ...]
    verdict: Verdict | None
    broken: tuple[QualityResult, ...]

    @property
    def detail(self) -> str:
        """Why it fails; nothing if it does not."""
        return "; ".join(f"{result.rule}: {result.message}" for result in self.broken if result.fails)


def conclude(verification: Verification, unresolved: Iterable[tuple[QualityResult, int]]) -> Conclusion:
    """`unresolved` are the stored results of the segment that did not pass, each with the time of its recording."""
    repeated = {one.rule for one in verification.broken}
    cleared, remaining = [], list(verification.broken)
    for result, recorded_at_ms in unresolved:
        if result.rule in repeated:
            continue
        if verification.clears(result, recorded_at_ms):
            cleared.append(replace(result, passed=True, message=""))
        else:
            remaining.append(result)
    broken = tuple(sorted(remaining, key=lambda one: one.rule))
    otherwise = None if verification.before is None else Verdict.PASSED
    verdict = Verdict.FAILED if any(one.fails for one in broken) else otherwise
    return Conclusion((*verification.broken, *cleared), verdict, broken)


def verdict_time_ms(known: SegmentRow, now_ms: int) -> int:
    """The time of a verdict that is given now: above the last one's, whatever the clock says."""
    return now_ms if known.verdict_at_ms is None else max(now_ms, known.verdict_at_ms + 1)


def deep_passed_at_ms(known: SegmentRow, verdict: Verdict, at_ms: int, *, is_deep: bool) -> int | None:
    """The column of that name, once this verdict is given."""
    if verdict is Verdict.FAILED:
        return None
    return at_ms if is_deep and verdict is Verdict.PASSED else known.deep_passed_at_ms
