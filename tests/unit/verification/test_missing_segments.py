"""How many missing segments are believed to be lost, and what is held back until that is known."""

import pytest

from include.tiering.verification.record_verdicts import PartitionPresence, doubt_of
from tests.doubles.segments import partition_of


def presences(*counts: tuple[int, ...]) -> list[PartitionPresence]:
    """(found, missing, stored), and how many failed as missing before, by partition."""
    return [PartitionPresence(partition_of("orders", number), *each) for number, each in enumerate(counts)]


def doubted(presences: list[PartitionPresence], **rest: int) -> str | None:
    return doubt_of(presences, **{"max_missing_segments": 3, "max_missing_total": 20} | rest)


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
        [(9, 2, 11, 1)],
        [(9, 3, 12), (9, 0, 9, 8)],
        [(1, 1, 3)] * 20,
        [(0, 1, 3, 1), (1, 0, 1)],
        [(5, 0, 5, 30)],
    ],
)
def test_a_few_of_a_partition_are_lost(counts: list[tuple[int, int, int]]) -> None:
    assert doubted(presences(*counts)) is None


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ([(2, 4, 6)], "4 of 6 segments that were checked lack objects in the store (orders-0: 4 of 6);"),
        ([(0, 2, 2), (9, 0, 9)], "2 of 11 segments that were checked lack objects in the store (orders-0: 2 of 2)"),
        (
            [(0, 1, 9), (0, 1, 9)],
            "2 of 2 segments that were checked lack objects in the store (orders-0: 1 of 1; ord",
        ),
        ([(0, 2, 9)], "2 of 2 segments"),
        (
            [(1, 1, 2), (1, 9, 10), (5, 5, 10)],
            "15 of 22 segments that were checked lack objects in the store (orders-1",
        ),
        ([(0, 5, 5)] * 5, "; and 2 more partitions); at most 3 of a partition"),
        (
            [(5, 1, 6, 3)],
            "(orders-0: 1 of 6, and 3 before), 3 more failed for the same reason before and wait to be replaced",
        ),
        ([(0, 1, 1, 1), (9, 0, 9)], "(orders-0: 1 of 1, and 1 before)"),
        ([(0, 1, 2, 0), (9, 0, 9, 20)], "(orders-0: 1 of 1), 20 more failed"),
        ([(9, 1, 10)] * 500, "500 of 5000 segments"),
        ([(9, 1, 10)] * 21, "and 20 in all are believed"),
    ],
)
def test_much_of_a_partition_all_of_it_or_everything_is_not(counts: list[tuple[int, int, int]], says: str) -> None:
    assert says in (doubted(presences(*counts)) or "")


def test_what_earlier_tries_of_the_run_found_counts() -> None:
    assert doubted(presences((0, 2, 9)), found_before=1) is None


def test_what_failed_in_partitions_that_nobody_looks_at_counts() -> None:
    assert doubted(presences((9, 1, 10)), failed_elsewhere=19) is None
    assert "20 more failed" in (doubted(presences((9, 1, 10)), failed_elsewhere=20) or "")


def test_no_missing_one_is_believed_where_the_setting_says_so() -> None:
    assert doubted(presences((9, 1, 10)), max_missing_segments=0) is not None
    assert doubted(presences((9, 1, 10)), max_missing_total=0) is not None
