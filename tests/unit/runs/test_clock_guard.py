"""When the database's clock is not believed: far from another clock, or before what it dated itself."""

import pytest

from include.tiering.errors import ClockBehindError, ClockDisagreesError
from include.tiering.runs.database_clock import ClockBounds, ClockReading, require_sound

NOW = 1_800_000_000_000
MINUTE = 60_000
BOUNDS = ClockBounds(max_difference_ms=5 * MINUTE)


def worker(now_ms: int) -> ClockReading:
    return ClockReading("this worker's says", now_ms)


@pytest.mark.parametrize("apart_ms", [0, 5 * MINUTE, -5 * MINUTE, 5 * MINUTE + 1_000])
def test_within_the_bound_and_a_second_of_rounding_it_is_believed(apart_ms: int) -> None:
    require_sound(NOW, [worker(NOW + apart_ms)], NOW, BOUNDS)


@pytest.mark.parametrize("apart_ms", [5 * MINUTE + 1_001, -5 * MINUTE - 1_001, 12 * 365 * 24 * 60 * MINUTE])
def test_farther_apart_it_is_not_and_both_clocks_are_named(apart_ms: int) -> None:
    with pytest.raises(ClockDisagreesError) as caught:
        require_sound(NOW, [worker(NOW), ClockReading("the store says", NOW + apart_ms)], None, BOUNDS)
    assert "the database's clock says 2027-01-15" in str(caught.value)
    assert "the store says 20" in str(caught.value)
    assert not caught.value.retriable


def test_what_cannot_be_compared_is_no_obstacle() -> None:
    require_sound(NOW, [], None, BOUNDS)


def test_before_its_newest_event_it_catches_up_or_it_was_ahead() -> None:
    require_sound(NOW, [], NOW + 1_000, BOUNDS)
    with pytest.raises(ClockBehindError, match="until it has caught up") as behind:
        require_sound(NOW, [], NOW + 1_001, BOUNDS)
    assert behind.value.retriable
    with pytest.raises(ClockDisagreesError, match=r"tiering\.clock\.ignored\.until\.ms=1800000300001") as far:
        require_sound(NOW, [], NOW + 5 * MINUTE + 1, BOUNDS)
    assert not far.value.retriable
