"""The shortest story of a failure: fewer and quieter decisions that still break the same invariant."""

from collections.abc import Sequence

from tests.simulation.schedule import Outcome, run_schedule

MOST_RUNS = 800
_LENGTHS = (16, 8, 4, 2, 1)


class _Shrinking:
    """Keeps the best schedule so far."""

    def __init__(self, found: Outcome, runs: int) -> None:
        assert found.violation is not None
        self._seed = found.seed
        self._invariant = found.violation.invariant
        self._left = runs
        self.best = _stripped(found.taken)

    def try_with(self, candidate: Sequence[int]) -> bool:
        """Whether it still fails in the same way; then it is the best."""
        tried = _stripped(candidate)
        if self._left <= 0 or tried == self.best:
            return False
        self._left -= 1
        outcome = run_schedule(self._seed, replay=tried)
        if outcome.violation is None or outcome.violation.invariant != self._invariant:
            return False
        used = _stripped(outcome.taken)
        self.best = used if _weight(used) <= _weight(tried) else tried
        return True

    @property
    def is_over(self) -> bool:
        return self._left <= 0


def shrink(found: Outcome, *, runs: int = MOST_RUNS) -> list[int]:
    """Decisions to replay under the same seed. What follows them is quiet."""
    shrinking = _Shrinking(found, runs)
    _cut_the_end(shrinking)
    while not shrinking.is_over and (_remove(shrinking) or _silence(shrinking)):
        _cut_the_end(shrinking)
    return shrinking.best


def _remove(shrinking: _Shrinking) -> bool:
    """Decisions go, with those that belong to them; whether any did."""
    any_went = False
    for length in _LENGTHS:
        start = 0
        while start < len(shrinking.best) and not shrinking.is_over:
            best = shrinking.best
            quiet = [0, *best[start + length :]] if length > 1 else best[start + 1 :]
            if any(best[start : start + length]) and shrinking.try_with([*best[:start], *quiet]):
                any_went = True
            else:
                start += max(1, length // 2)
    return any_went


def _cut_the_end(shrinking: _Shrinking) -> None:
    size = len(shrinking.best) // 2
    while size > 0 and not shrinking.is_over:
        if not shrinking.try_with(shrinking.best[:-size]):
            size //= 2


def _silence(shrinking: _Shrinking) -> bool:
    """Decisions become 0, many at once where that goes; whether any did."""
    any_went = False
    size = max(1, len(_loud(shrinking.best)) // 2)
    while size > 0 and not shrinking.is_over:
        start = 0
        while start < len(loud := _loud(shrinking.best)) and not shrinking.is_over:
            silenced = set(loud[start : start + size])
            quieter = [0 if place in silenced else value for place, value in enumerate(shrinking.best)]
            if shrinking.try_with(quieter):
                any_went = True
            else:
                start += size
        size //= 2
    return any_went


def _loud(choices: Sequence[int]) -> list[int]:
    return [place for place, value in enumerate(choices) if value]


def _weight(choices: Sequence[int]) -> tuple[int, int]:
    return len(_loud(choices)), len(choices)


def _stripped(choices: Sequence[int]) -> list[int]:
    """Without zeros at the end, which say nothing."""
    end = len(choices)
    while end and not choices[end - 1]:
        end -= 1
    return list(choices[:end])
