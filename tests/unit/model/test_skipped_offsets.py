"""What recorded holes leave of a range of offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.model.histories import OffsetRange, SkippedOffsets, decision_about, not_skipped

_OFFSETS = st.integers(0, 40)


def skipped(first: int, last: int) -> SkippedOffsets:
    return SkippedOffsets(OffsetRange(first, last), "retention was quicker", "me@host", 0)


@pytest.mark.parametrize(
    ("holes", "left"),
    [
        ([], [(100, 199)]),
        ([(100, 199)], []),
        ([(0, 500)], []),
        ([(100, 149)], [(150, 199)]),
        ([(150, 199)], [(100, 149)]),
        ([(120, 129), (150, 159)], [(100, 119), (130, 149), (160, 199)]),
        ([(100, 149), (150, 199)], []),
        ([(0, 99), (200, 300)], [(100, 199)]),
    ],
)
def test_what_is_covered_is_left_out(holes: list[tuple[int, int]], left: list[tuple[int, int]]) -> None:
    assert list(not_skipped(100, 199, [skipped(*hole) for hole in holes])) == left


def test_of_no_offsets_nothing_is_left() -> None:
    assert not_skipped(100, 99, []) == not_skipped(100, 99, [skipped(100, 110)]) == ()


@given(_OFFSETS, _OFFSETS, st.lists(st.tuples(_OFFSETS, _OFFSETS).map(sorted), max_size=5))
def test_the_same_as_offset_by_offset(first: int, last: int, holes: list[list[int]]) -> None:
    covered = {offset for low, high in holes for offset in range(low, high + 1)}
    left = not_skipped(first, last, [skipped(low, high) for low, high in holes])
    assert [offset for part in left for offset in range(part.first, part.last + 1)] == [
        offset for offset in range(first, last + 1) if offset not in covered
    ]
    assert sum(part.size for part in left) == len(set(range(first, last + 1)) - covered)


def test_a_decision_is_found_by_its_offsets() -> None:
    decisions = [skipped(10, 19), skipped(30, 30)]
    assert [decision_about(offset, decisions) for offset in (9, 10, 19, 20, 30)] == [
        None,
        decisions[0],
        decisions[0],
        None,
        decisions[1],
    ]


@pytest.mark.parametrize("offsets", [(-1, 5), (6, 5)])
def test_a_hole_has_offsets(offsets: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"are no hole"):
        skipped(*offsets)
