"""A look at a segment, and what follows from it beside what others found: pure, decided in the store's transaction.

    result of a rule, in the store       the look says              afterwards
    anything                             it is broken               broken, as of now
    broken                               nothing (it is not asked)  broken
    broken when the look began           it holds                   passed
    broken, a warning                    it holds                   passed
    broken by a verdict that came since  it holds                   broken: of two looks the one that convicts is heard

A verdict and the results that came with it have one time, and the times of a segment's verdicts ascend: what came since
is what was recorded later than the verdict that was seen before the look began. No clock is asked.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from include.tiering.model.ids import RemoteLogSegmentId
from include.tiering.model.verdict import Verdict
from include.tiering.segments.values import QualityResult, SegmentRow


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a segment found.

    `broken` are the rules that did not pass. Any other rule holds, known to this code or not, but those whose ids are
    in `unjudged`. `before` is the segment's row as it was read before the look began; without one the look acquits of
    nothing. `is_deep`: it read every byte.
    """

    segment_id: RemoteLogSegmentId
    broken: tuple[QualityResult, ...] = ()
    unjudged: frozenset[str] = frozenset()
    before: SegmentRow | None = None
    is_deep: bool = False

    def acquits(self, result: QualityResult, recorded_at_ms: int) -> bool:
        """Of a result that did not pass, and that this look does not repeat."""
        if self.before is None or result.rule in self.unjudged:
            return False
        seen_at_ms = self.before.verdict_at_ms
        return not result.fails or (seen_at_ms is not None and recorded_at_ms <= seen_at_ms)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What holds of a segment after a look: its verdict, and what it breaks, by rule."""

    verdict: Verdict
    broken: tuple[QualityResult, ...]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What is to be stored, and what holds then. No verdict is stored where the look says nothing about one."""

    results: tuple[QualityResult, ...]
    verdict: Verdict | None
    broken: tuple[QualityResult, ...]

    @property
    def detail(self) -> str:
        """Why it fails; nothing if it does not."""
        return "; ".join(f"{one.rule}: {one.message}" for one in self.broken if one.fails)


def conclude(look: Look, unresolved: Iterable[tuple[QualityResult, int]]) -> Conclusion:
    """`unresolved` are the stored results of the segment that did not pass, each with the time of its recording."""
    repeated = {one.rule for one in look.broken}
    acquitted, standing = [], list(look.broken)
    for result, recorded_at_ms in unresolved:
        if result.rule in repeated:
            continue
        if look.acquits(result, recorded_at_ms):
            acquitted.append(replace(result, passed=True, message=""))
        else:
            standing.append(result)
    broken = tuple(sorted(standing, key=lambda one: one.rule))
    otherwise = None if look.before is None else Verdict.PASSED
    verdict = Verdict.FAILED if any(one.fails for one in broken) else otherwise
    return Conclusion((*look.broken, *acquitted), verdict, broken)


def verdict_time_ms(known: SegmentRow, now_ms: int) -> int:
    """The time of a verdict that is given now: above the last one's, whatever the clock says."""
    return now_ms if known.verdict_at_ms is None else max(now_ms, known.verdict_at_ms + 1)


def deep_passed_at_ms(known: SegmentRow, verdict: Verdict, at_ms: int, *, is_deep: bool) -> int | None:
    """The column of that name, once this verdict is given."""
    if verdict is Verdict.FAILED:
        return None
    return at_ms if is_deep and verdict is Verdict.PASSED else known.deep_passed_at_ms
