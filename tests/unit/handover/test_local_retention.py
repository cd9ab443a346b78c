"""In which steps local retention is lowered, and what a broker lets go at each."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.handover.rules import levels, local_bytes, next_local_start, target_bytes


@dataclass
class Segment:
    base_offset: int
    end_offset: int
    size_bytes: int = 100
    max_timestamp_ms: int = 0
    active: bool = False


LOG = [
    Segment(0, 9, max_timestamp_ms=1_000),
    Segment(10, 19, max_timestamp_ms=2_000),
    Segment(20, 29, max_timestamp_ms=3_000),
    Segment(30, 34, 40, 3_500, active=True),
]


@pytest.mark.parametrize(
    ("limit_ms", "limit_bytes", "stays"),
    [
        (-1, -1, 340),
        (-1, 200, 200),
        (1_500, -1, 140),
        (1_500, 100, 100),
        (0, -1, 40),
        (10_000, 1_000, 340),
        # A limit of 0 bytes is a limit: what is remote goes at once.
        (-1, 0, 0),
        (1_500, 0, 0),
    ],
)
def test_what_stays_under_both_limits(limit_ms, limit_bytes, stays):
    assert target_bytes(LOG, limit_ms, limit_bytes, now_ms=4_000) == stays


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(1, 50))
def test_levels_fall_and_end_at_the_target(has, wants, steps):
    found = levels(has, wants, steps)
    if wants >= has:
        assert found == []
    else:
        assert found == sorted(set(found), reverse=True)
        assert found[-1] == wants
        assert found[0] < has
        assert len(found) <= steps


@pytest.mark.parametrize(
    ("level", "latest_tiered", "start"),
    [(340, 29, None), (241, 29, None), (240, 29, 10), (139, 29, 20), (0, 29, 30), (0, 15, 10), (0, None, None)],
)
def test_the_oldest_go_while_the_excess_is_a_whole_segment_and_all_of_it_is_remote(level, latest_tiered, start):
    assert next_local_start(LOG, level, latest_tiered) == start


def test_the_active_segment_counts_and_stays():
    assert local_bytes(LOG) == 340
    assert next_local_start(LOG, 0, 10**6) == 30
