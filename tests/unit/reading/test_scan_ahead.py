"""How far a scan reads ahead: as many ranges as it may hold, of one segment or of several, and no more."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from include.tiering.clock import SystemClock
from include.tiering.model.segments import RemoteLogSegmentMetadata
from include.tiering.reading.scan import Scanner, SegmentRange, _HeldBack
from include.tiering.units import MIB
from tests.doubles.partial import Partial
from tests.doubles.patience import eventually
from tests.doubles.quotas import NoQuotas
from tests.doubles.stored_log import some_metadata


class Store(Partial):
    """A read gives its name, twice."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self._lock = threading.Lock()

    def open_log_segment(self, segment: RemoteLogSegmentMetadata, **_: Any) -> "Log":
        return Log(self, b"%d" % segment.segment_size_bytes)

    def open_log_parts(self, segment: RemoteLogSegmentMetadata, first: int, last: int) -> "Parts":
        return Parts(self, b"%d" % segment.segment_size_bytes, -(-(last + 1 - first) // (16 * MIB)))

    def answered(self, name: bytes) -> Iterator[bytes]:
        with self._lock:
            self.begun.append(name)
        yield name
        yield name


class Log(Partial):
    def __init__(self, store: Store, name: bytes) -> None:
        self._store, self._name = store, name

    def log(self, start_position: int, end_position: int) -> Iterator[bytes]:
        return self._store.answered(self._name)


class Parts(Partial):
    def __init__(self, store: Store, name: bytes, count: int) -> None:
        self._store, self._name, self._count = store, name, count

    def __len__(self) -> int:
        return self._count

    def read(self, number: int, **_: Any) -> Iterator[bytes]:
        return self._store.answered(b"%s.%d" % (self._name, number))

    def restored(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        return (b"(%s)" % block for block in blocks)


def ranges(*sizes_bytes: int) -> list[SegmentRange]:
    """Each of a segment of its size and some bytes more, so that no two are equal."""
    return [
        SegmentRange(some_metadata(size_bytes + number, seed=str(number)), 0, size_bytes, number, number)
        for number, size_bytes in enumerate(sizes_bytes)
    ]


def found_in(store: Store, wanted: list[SegmentRange], at_once: int = 32) -> Any:
    return Scanner(store, NoQuotas(), at_once=at_once)._blocks_of(wanted, _HeldBack(SystemClock()))


def are_begun(store: Store, reads: int) -> None:
    """No more have begun, and so many begin."""
    assert len(store.begun) <= reads
    eventually(lambda: len(store.begun) == reads, f"{reads} reads have begun")


@pytest.mark.parametrize(
    ("size_bytes", "at_first", "most"),
    [
        (2 * MIB, 4, 32),
        (8 * MIB, 4, 8),
        (16 * MIB, 4, 4),
        (17 * MIB, 4, 7),
        (24 * MIB, 4, 5),
        (64 * MIB, 4, 4),
        (65 * MIB, 4, 4),
    ],
)
def test_a_scan_reads_as_much_ahead_as_it_may_hold_and_large_segments_follow_each_other(
    size_bytes: int, at_first: int, most: int
) -> None:
    store, parts = Store(), -(-size_bytes // (16 * MIB))
    found: list[list[bytes]] = []
    for number, (_, blocks) in enumerate(found_in(store, ranges(*[size_bytes] * 60))):
        found.append([next(blocks)])
        assert len(store.begun) <= number * parts + most
        if number == 0:
            are_begun(store, at_first)
        if number == 25:
            are_begun(store, number * parts + most)
        found[-1].extend(blocks)
    names = [[b"%d" % (size_bytes + number)] * 2 for number in range(60)]
    if parts > 1:
        names = [[b"(%s.%d)" % (name, part) for part in range(parts) for name in pair] for pair in names]
    assert found == names


@pytest.mark.parametrize(
    ("sizes_bytes", "after", "most"),
    [
        ([10 * MIB] * 4 + [2 * MIB] * 60, 3, 28),
        ([2 * MIB] * 40 + [40 * MIB], 30, 13),
        ([24 * MIB] * 2 + [2 * MIB] * 40, 1, 22),
    ],
    ids=["medium first", "large last", "large first"],
)
def test_large_and_small_segments_are_read_beside_each_other(sizes_bytes: list[int], after: int, most: int) -> None:
    """`most` reads are held while the range number `after` is decoded."""
    store, begun_before = Store(), 0
    for number, (each, blocks) in enumerate(found_in(store, ranges(*sizes_bytes))):
        next(blocks)
        if number == after:
            are_begun(store, begun_before + most)
        begun_before += -(-each.size_bytes // (16 * MIB))


def test_what_is_read_ahead_doubles() -> None:
    store, counts = Store(), []
    for number, (_, blocks) in enumerate(found_in(store, ranges(*[2 * MIB] * 60))):
        next(blocks)
        are_begun(store, number + min(32, max(4, 2 * (number + 1))))
        counts.append(len(store.begun))
        if number == 20:
            break
    assert counts[:4] == [4, 5, 8, 11]


def test_a_scan_of_one_segment_at_a_time_reads_one_range_at_a_time() -> None:
    store = Store()
    for number, (_, blocks) in enumerate(found_in(store, ranges(*[40 * MIB] * 3), at_once=1)):
        next(blocks)
        assert len(store.begun) == 3 * number + 1


def test_what_is_left_of_a_range_is_not_taken_for_the_next_one() -> None:
    """A decoder ends at the last offset that is wanted, which may be in an earlier part than the last."""
    size_bytes = 40 * MIB
    found = found_in(Store(), ranges(size_bytes, size_bytes))
    assert [next(blocks) for _, blocks in found] == [b"(%d.0)" % size_bytes, b"(%d.0)" % (size_bytes + 1)]


def test_a_scan_that_is_left_begins_no_further_range() -> None:
    store = Store()
    found = found_in(store, ranges(*[64 * MIB] * 3))
    _, blocks = next(found)
    next(blocks)
    are_begun(store, 4)
    found.close()
    eventually(lambda: not [each for each in threading.enumerate() if each.name.startswith("read-")], "threads end")
    assert sorted(store.begun) == [b"%d.%d" % (64 * MIB, part) for part in range(4)]
