"""How far a scan reads ahead: as many segments as it may hold, and no more."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from include.tiering.clock import SystemClock
from include.tiering.reading.scan import Scanner, SegmentRange, _HeldBack
from include.tiering.units import MIB
from tests.doubles.partial import Partial
from tests.doubles.quotas import NoQuotas
from tests.doubles.stored_log import some_metadata


class SlowStore(Partial):
    """Answers no read before `wanted` reads are under way, or it is told to `go_on`."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.under_way, self.most = wanted, 0, 0
        self.go_on = threading.Event()
        self._lock = threading.Lock()

    def open_log_segment(self, *_: Any, **__: Any) -> "SlowStore":
        return self

    def log(self, start_position: int, end_position: int) -> Iterator[bytes]:
        with self._lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            if self.most >= self.wanted:
                self.go_on.set()
        assert self.go_on.wait(60)
        with self._lock:
            self.under_way -= 1
        yield b"log"


def ranges(count: int, size_bytes: int) -> list[SegmentRange]:
    return [
        SegmentRange(some_metadata(size_bytes, seed=str(number)), 0, size_bytes, number, number)
        for number in range(count)
    ]


@pytest.mark.parametrize(("size_bytes", "at_once"), [(2 * MIB, 16), (8 * MIB, 8), (16 * MIB, 4)])
def test_a_scan_reads_as_many_segments_ahead_as_it_may_hold(size_bytes: int, at_once: int) -> None:
    store = SlowStore(wanted=at_once)
    scanner = Scanner(store, NoQuotas(), at_once=16)
    found = [each.first_offset for each, _ in scanner._blocks_of(ranges(40, size_bytes), _HeldBack(SystemClock()))]
    assert (found, store.most) == ([*range(40)], at_once)


def test_one_large_segment_among_small_ones_bounds_those_beside_it() -> None:
    store = SlowStore(wanted=6)
    scanner = Scanner(store, NoQuotas(), at_once=16)
    mixed = [*ranges(20, 2 * MIB), *ranges(1, 10 * MIB)]
    assert len(list(scanner._blocks_of(mixed, _HeldBack(SystemClock())))) == 21
    assert store.most == 6
