"""Quality results. A verdict is separate from a segment's state."""

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
