"""Quality results. A verdict is separate from a segment's state."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Served: FINISHED and (passed or expired). Counted as safe and published: FINISHED and passed only."""

    NONE = "none"
    PASSED = "passed"
    FAILED = "failed"
    EXPIRED = "expired"

    @property
    def is_served(self) -> bool:
        return self in (Verdict.PASSED, Verdict.EXPIRED)

    @property
    def is_safe(self) -> bool:
        return self is Verdict.PASSED


@dataclass(frozen=True, slots=True)
class VerdictTotal:
    """FINISHED segments with one verdict. `oldest_age_ms` is the time since the oldest of them was given.

    None: there is no segment, or the verdict is NONE, which nobody gave.
    """

    verdict: Verdict
    segments: int
    size_bytes: int
    oldest_age_ms: int | None
