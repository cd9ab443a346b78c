"""Waiting for what has to come, however slow or busy the machine is."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")
PATIENCE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.05


def eventually(
    look: Callable[[], T],
    what: str,
    *,
    seconds: float = PATIENCE_SECONDS,
    pause_seconds: float = _PAUSE_SECONDS,
) -> T:
    """The first answer of `look` that is true. AssertionError with `what` and the last answer if none came.

    It is the pauses between looks that are counted, not the clock: a machine that stands still uses up no patience.
    """
    for _ in range(max(1, round(seconds / pause_seconds))):
        answer = look()
        if answer:
            return answer
        time.sleep(pause_seconds)
    answer = look()
    assert answer, f"not within {seconds:g} s: {what}; at last {answer!r}"
    return answer
