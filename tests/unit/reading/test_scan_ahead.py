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
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.quotas import NoQuotas
from tests.doubles.stored_log import some_metadata


class SlowStore(Partial):
    """Answers no read before `wanted` reads are under way, or it is told to `go_on`. A read gives its name, twice."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.under_way, self.most = wanted, 0, 0
        self.begun: list[bytes] = []
        self.go_on = threading.Event()
        self.lock = threading.Lock()

    def open_log_segment(self, segment: RemoteLogSegmentMetadata, **_: Any) -> "Log":
        return Log(self, b"%d" % segment.segment_size_bytes)

    def open_log_parts(self, segment: RemoteLogSegmentMetadata, first: int, last: int) -> "Parts":
        return Parts(self, b"%d" % segment.segment_size_bytes, -(-(last + 1 - first) // (16 * MIB)))

    def answered(self, name: bytes) -> Iterator[bytes]:
        with self.lock:
            self.begun.append(name)
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            if self.most >= self.wanted:
                self.go_on.set()
        assert self.go_on.wait(PATIENCE_SECONDS)
        with self.lock:
            self.under_way -= 1
        yield name
        yield name


class Log(Partial):
    def __init__(self, store: SlowStore, name: bytes) -> None:
        self._store, self._name = store, name

    def log(self, start_position: int, end_position: int) -> Iterator[bytes]:
        return self._store.answered(self._name)


class Parts(Partial):
    def __init__(self, store: SlowStore, name: bytes, count: int) -> None:
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


def read_all(store: SlowStore, wanted: list[SegmentRange], at_once: int = 32) -> list[list[bytes]]:
    scanner = Scanner(store, NoQuotas(), at_once=at_once)
    return [list(blocks) for _, blocks in scanner._blocks_of(wanted, _HeldBack(SystemClock()))]


@pytest.mark.parametrize(
    ("size_bytes", "most"),
    [(2 * MIB, 32), (8 * MIB, 8), (16 * MIB, 4), (17 * MIB, 7), (24 * MIB, 5), (64 * MIB, 4), (65 * MIB, 4)],
)
def test_a_scan_reads_as_much_ahead_as_it_may_hold_and_large_segments_follow_each_other(
    size_bytes: int, most: int
) -> None:
    store = SlowStore(wanted=most)
    found = read_all(store, ranges(*[size_bytes] * 40))
    assert store.most == most
    parts = -(-size_bytes // (16 * MIB))
    if parts == 1:
        assert found == [[b"%d" % (size_bytes + number)] * 2 for number in range(40)]
    else:
        assert found == [
            [b"(%d.%d)" % (size_bytes + number, part) for part in range(parts) for _ in range(2)]
            for number in range(40)
        ]


@pytest.mark.parametrize(
    ("sizes_bytes", "most"),
    [([10 * MIB, *[2 * MIB] * 60], 28), ([*[2 * MIB] * 40, 40 * MIB], 32), ([24 * MIB, *[2 * MIB] * 40], 22)],
    ids=["medium first", "large last", "large first"],
)
def test_large_and_small_segments_are_read_beside_each_other(sizes_bytes: list[int], most: int) -> None:
    store = SlowStore(wanted=most)
    assert len(read_all(store, ranges(*sizes_bytes))) == len(sizes_bytes)
    assert store.most == most


def test_a_scan_of_one_segment_at_a_time_reads_one_range_at_a_time() -> None:
    store = SlowStore(wanted=1)
    assert len(read_all(store, ranges(*[40 * MIB] * 3), at_once=1)) == 3
    assert store.most == 1


def test_what_is_left_of_a_range_is_not_taken_for_the_next_one() -> None:
    """A decoder ends at the last offset that is wanted, which may be in an earlier part than the last."""
    store = SlowStore(wanted=1)
    scanner = Scanner(store, NoQuotas(), at_once=4)
    size_bytes = 40 * MIB
    found = scanner._blocks_of(ranges(size_bytes, size_bytes), _HeldBack(SystemClock()))
    assert [next(blocks) for _, blocks in found] == [b"(%d.0)" % size_bytes, b"(%d.0)" % (size_bytes + 1)]


def test_a_scan_that_is_left_begins_no_further_range() -> None:
    store = SlowStore(wanted=4)
    scanner = Scanner(store, NoQuotas(), at_once=4)
    found = scanner._blocks_of(ranges(*[64 * MIB] * 3), _HeldBack(SystemClock()))
    _, blocks = next(found)
    next(blocks)
    found.close()
    eventually(lambda: not [each for each in threading.enumerate() if each.name.startswith("read-")], "threads end")
    first = [b"%d.%d" % (64 * MIB, part) for part in range(4)]
    assert sorted(store.begun) == first
