"""What is opened and checked ahead, when, and what becomes of it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from include.tiering.copying.check_ahead import FRESH_SECONDS, CheckAhead
from include.tiering.errors import CorruptFileError, SourceChangedError, SourceVanishedError
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.quotas.byte_bounded_queue import NO_BYTE_BOUND
from include.tiering.runs.contract import PlannedSegment
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_source import MemoryOpenSegment, MemorySource
from tests.doubles.patience import PATIENCE_SECONDS

SIZE = 1000


class Watched(MemorySource):
    """Tells which segments are open, and lets a test wait until one was checked."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[int] = []
        self.open_now: list[int] = []
        self.checked = {base: threading.Event() for base in range(0, 50, 10)}

    @contextmanager
    def open_segment(self, replica_id: ReplicaId, base_offset: int) -> Iterator[Any]:
        self.opened.append(base_offset)
        with super().open_segment(replica_id, base_offset) as opened:
            self.open_now.append(base_offset)
            try:
                yield WatchedSegment(opened, self.checked[base_offset])
            finally:
                self.open_now.remove(base_offset)


class WatchedSegment:
    def __init__(self, opened: MemoryOpenSegment, event: threading.Event) -> None:
        self.segment, self.fingerprint, self.recheck = opened.segment, opened.fingerprint, opened.recheck
        self._opened, self._event = opened, event

    def check(self):
        try:
            return self._opened.check()
        finally:
            self._event.set()


@pytest.fixture
def source() -> Watched:
    return Watched()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def orders(source: Watched) -> ReplicaId:
    return source.add("orders", segments=4, size_bytes=SIZE)


@contextmanager
def expecting(source, clock, replica_id, *, max_bytes=NO_BYTE_BOUND, worth_while=lambda: True, slow=True):
    """The segments of a replica; before them, unless not `slow`, one whose stream was slow enough."""
    ahead = CheckAhead(source, clock, max_bytes=max_bytes)
    before = source.add("before", segments=1, size_bytes=SIZE)
    with ahead.expecting(before, planned_of(source, before), lambda: True), ahead.open_segment(before, 0):
        clock.advance(1.0 if slow else 0.0)
    source.opened.clear()
    with ahead.expecting(replica_id, planned_of(source, replica_id), worth_while):
        yield ahead
    assert source.open_now == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("check-ahead")]


def planned_of(source: Watched, replica_id: ReplicaId) -> list[PlannedSegment]:
    return [
        PlannedSegment(segment.base_offset, segment.end_offset, segment.size_bytes)
        for segment in source.replicas[replica_id].segments
    ]


def test_each_segment_is_what_the_source_gives(source, clock, orders):
    with expecting(source, clock, orders) as ahead:
        for base_offset in (0, 10, 20, 30):
            with (
                ahead.open_segment(orders, base_offset) as opened,
                MemorySource.open_segment(source, orders, base_offset) as plain,
            ):
                assert (opened.segment, opened.fingerprint) == (plain.segment, plain.fingerprint)
                assert opened.check().data.log_crc32c == plain.check().data.log_crc32c
                opened.recheck()
                clock.advance(0.5)
    assert source.opened == [0, 10, 20, 30]


def test_the_next_one_is_checked_while_one_is_in_use_and_no_other(source, clock, orders):
    with expecting(source, clock, orders) as ahead:
        with ahead.open_segment(orders, 0) as opened:
            assert source.open_now == [0]
            opened.check()
            assert source.checked[10].wait(PATIENCE_SECONDS)
            assert source.open_now == [0, 10]
            clock.advance(0.5)
        with ahead.open_segment(orders, 10) as opened:
            opened.check()
            assert source.checked[20].wait(PATIENCE_SECONDS)
            assert source.opened == [0, 10, 20]


def test_nothing_is_opened_beyond_the_byte_bound(source, clock, orders):
    with expecting(source, clock, orders, max_bytes=SIZE) as ahead:
        for base_offset in (0, 10):
            with ahead.open_segment(orders, base_offset) as opened:
                opened.check()
                clock.advance(0.5)
                assert source.open_now == [base_offset]
    assert source.opened == [0, 10]


def test_nothing_is_checked_ahead_that_is_not_worth_while(source, clock, orders):
    with expecting(source, clock, orders, worth_while=lambda: False) as ahead:
        for base_offset in (0, 10):
            with ahead.open_segment(orders, base_offset) as opened:
                opened.check()
                clock.advance(0.5)
    assert source.opened == [0, 10]


def test_a_stream_as_fast_as_the_machine_is_left_alone(source, clock, orders):
    with expecting(source, clock, orders, slow=False) as ahead, ahead.open_segment(orders, 0) as opened:
        opened.check()
    assert source.opened == [0]


def test_nothing_is_checked_ahead_before_it_is_known_how_fast_the_stream_is(source, clock, orders):
    ahead = CheckAhead(source, clock)
    with (
        ahead.expecting(orders, planned_of(source, orders), lambda: True),
        ahead.open_segment(orders, 0) as opened,
    ):
        opened.check()
    assert source.opened == [0]


def test_damage_is_told_in_its_turn_and_nothing_behind_it_is_read(source, clock, orders):
    source.corrupt.add((orders.topic_id_partition, 10))
    with expecting(source, clock, orders) as ahead:
        with ahead.open_segment(orders, 0) as opened:
            opened.check()
            assert source.checked[10].wait(PATIENCE_SECONDS)
        with ahead.open_segment(orders, 10) as opened, pytest.raises(CorruptFileError):
            opened.check()
    assert source.opened == [0, 10]


def test_damage_that_was_found_long_ago_is_still_damage(source, clock, orders):
    source.corrupt.add((orders.topic_id_partition, 10))
    with expecting(source, clock, orders) as ahead:
        with ahead.open_segment(orders, 0) as opened:
            opened.check()
            assert source.checked[10].wait(PATIENCE_SECONDS)
        clock.advance(FRESH_SECONDS + 0.1)
        with ahead.open_segment(orders, 10) as opened, pytest.raises(CorruptFileError):
            opened.check()


def test_a_segment_that_is_gone_is_told_in_its_turn(source, clock, orders):
    with expecting(source, clock, orders) as ahead:
        with ahead.open_segment(orders, 0) as opened:
            source.change(orders, segments=source.replicas[orders].segments[:1])
            opened.check()
            clock.advance(0.5)
        with pytest.raises(SourceVanishedError), ahead.open_segment(orders, 10):
            pass


def test_what_was_opened_long_ago_is_compared_before_it_is_used(source, clock, orders):
    with expecting(source, clock, orders) as ahead:
        with ahead.open_segment(orders, 0) as opened:
            opened.check()
            assert source.checked[10].wait(PATIENCE_SECONDS)
        source.generation += 1
        clock.advance(FRESH_SECONDS + 0.1)
        with pytest.raises(SourceChangedError), ahead.open_segment(orders, 10):
            pass


def test_the_same_segment_again_is_opened_again_and_what_was_ahead_in_its_turn(source, clock, orders):
    with expecting(source, clock, orders) as ahead:
        for _ in range(2):
            with ahead.open_segment(orders, 0) as opened:
                opened.check()
                assert source.checked[10].wait(PATIENCE_SECONDS)
        with ahead.open_segment(orders, 10) as opened:
            opened.check()
    assert source.opened == [0, 10, 0, 10]


def test_what_is_not_asked_for_is_closed(source, clock, orders):
    with expecting(source, clock, orders) as ahead:
        with ahead.open_segment(orders, 0) as opened:
            opened.check()
        with ahead.open_segment(orders, 20):
            assert source.open_now == [20]


def test_what_is_ahead_at_the_end_is_closed_after_its_check(source, clock, orders):
    with expecting(source, clock, orders) as ahead, ahead.open_segment(orders, 0) as opened:
        opened.check()
    assert source.checked[10].is_set()


def test_a_defect_of_the_source_is_not_swallowed(source, clock, orders, monkeypatch):
    monkeypatch.setattr(source, "log_bytes", lambda *_: 1 / 0)
    with (
        expecting(source, clock, orders) as ahead,
        ahead.open_segment(orders, 0) as opened,
        pytest.raises(ZeroDivisionError),
    ):
        opened.check()


def test_another_partition_is_opened_in_turn(source, clock, orders):
    payments = source.add("payments", segments=1, size_bytes=SIZE)
    with expecting(source, clock, orders) as ahead, ahead.open_segment(payments, 0) as opened:
        assert opened.segment.size_bytes == SIZE
