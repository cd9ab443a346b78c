"""How many missing segments are believed to be lost, and what is held back until that is known."""

import pytest

from include.tiering.tasks.missing_segments import PartitionLooks, doubt_of
from tests.doubles.segments import partition_of


def looks(*counts: tuple[int, int, int]) -> list[PartitionLooks]:
    """(found, missing, stored) by partition."""
    return [PartitionLooks(partition_of("orders", number), *each) for number, each in enumerate(counts)]


@pytest.mark.parametrize(
    "counts",
    [
        [],
        [(6, 0, 6)],
        [(5, 1, 6)],
        [(3, 3, 6)],
        [(0, 1, 1), (1, 0, 1)],
        [(0, 1, 1)],
        [(0, 2, 6), (1, 0, 1)],
        [(3, 3, 6), (2, 3, 5), (7, 1, 8)],
    ],
)
def test_a_few_of_a_partition_are_lost(counts: list[tuple[int, int, int]]) -> None:
    assert doubt_of(looks(*counts), max_missing_segments=3) is None


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ([(2, 4, 6)], "4 of 6 segments that were looked at are not in the store (orders-0: 4 of 6"),
        ([(0, 2, 2), (9, 0, 9)], "2 of 11 segments that were looked at are not in the store (orders-0: 2 of 2"),
        (
            [(0, 1, 9), (0, 1, 9)],
            "2 of 2 segments that were looked at are not in the store (orders-0: 1 of 1; ord",
        ),
        ([(0, 2, 9)], "2 of 2 segments"),
        (
            [(1, 1, 2), (1, 9, 10), (5, 5, 10)],
            "15 of 22 segments that were looked at are not in the store (orders-1",
        ),
        ([(0, 5, 5)] * 5, "; and 2 more partitions; at most 3 of a partition"),
    ],
)
def test_much_of_a_partition_all_of_it_or_everything_is_not(counts: list[tuple[int, int, int]], says: str) -> None:
    assert says in (doubt_of(looks(*counts), max_missing_segments=3) or "")


def test_what_earlier_tries_of_the_run_found_counts() -> None:
    assert doubt_of(looks((0, 2, 9)), found_before=1, max_missing_segments=3) is None


def test_no_missing_one_is_believed_where_the_setting_says_so() -> None:
    assert doubt_of(looks((9, 1, 10)), max_missing_segments=0) is not None
