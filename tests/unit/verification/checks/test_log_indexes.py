"""Checks of indexes."""

from collections.abc import Callable, Sized

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats.indexes import OffsetIndex, TimeIndex
from include.tiering.formats.record_batch import HEADER_SIZE
from include.tiering.model.segments import RemoteLogSegmentMetadata
from include.tiering.verification.log_consistency import OffsetIndexEntries, TimeIndexEntries
from include.tiering.verification.segment_contents import offset_entries, time_entries, transaction_entries
from tests.doubles.batch_tables import BATCH_BYTES, Batch, batch, shown
from tests.doubles.stored_log import some_metadata

# Index entries against batches, beside loops that look each entry up among all batches.


@st.composite
def logs(draw: st.DrawFn) -> list[Batch]:
    offset, found = 0, []
    for _ in range(draw(st.integers(1, 10))):
        length = draw(st.integers(1, 4))
        found.append(batch(offset, offset + length - 1, max_timestamp=draw(st.integers(-1, 9))))
        offset += length
    return found


def offset_index(entries: list[tuple[int, int]]) -> OffsetIndex:
    columns = np.array(entries, dtype=np.int64).reshape(-1, 2)
    return OffsetIndex(0, columns[:, 0], columns[:, 1])


def time_index(entries: list[tuple[int, int]]) -> TimeIndex:
    columns = np.array(entries, dtype=np.int64).reshape(-1, 2)
    return TimeIndex(0, columns[:, 0], columns[:, 1])


def wrong_offset_entries(entries: list[tuple[int, int]], batches: list[Batch], table_batches: int = 4096) -> int:
    check = OffsetIndexEntries(offset_index(entries))
    shown(check, batches, table_batches)
    return check.wrong_entries().count


def wrong_time_entries(entries: list[tuple[int, int]], batches: list[Batch], table_batches: int = 4096) -> int:
    check = TimeIndexEntries(time_index(entries))
    shown(check, batches, table_batches)
    return check.wrong_entries().count


def plainly_wrong_offset_entries(entries: list[tuple[int, int]], batches: list[Batch]) -> int:
    by_position = {number * BATCH_BYTES: each.header for number, each in enumerate(batches)}
    by_last = {each.header.last_offset: number * BATCH_BYTES for number, each in enumerate(batches)}
    wrong_entries = 0
    for number, (offset, position) in enumerate(entries):
        following = entries[number + 1][1] if number + 1 < len(entries) else 2**62
        begins = position in by_position and by_position[position].base_offset <= offset
        wrong_entries += not (begins and offset in by_last and position <= by_last[offset] < following)
    return wrong_entries


def plainly_wrong_time_entries(entries: list[tuple[int, int]], batches: list[Batch]) -> int:
    wrong_entries = 0
    for timestamp, offset in entries:
        largest, is_right = -1, False
        for header, _ in batches:
            if header.base_offset <= offset <= header.last_offset:
                is_right = header.max_timestamp == timestamp > largest
            largest = max(largest, header.max_timestamp)
        wrong_entries += not is_right
    return wrong_entries


@given(logs(), st.data(), st.integers(1, 4))
def test_any_offset_entries(batches: list[Batch], data: st.DataObject, table_batches: int) -> None:
    end = batches[-1].header.last_offset
    positions = st.one_of(st.integers(0, len(batches)).map(lambda n: n * BATCH_BYTES), st.integers(-5, 1000))
    entries = data.draw(st.lists(st.tuples(st.integers(-2, end + 2), positions), max_size=8))
    assert wrong_offset_entries(entries, batches, table_batches) == plainly_wrong_offset_entries(entries, batches)


@given(logs(), st.data(), st.integers(1, 4))
def test_any_time_entries(batches: list[Batch], data: st.DataObject, table_batches: int) -> None:
    end = batches[-1].header.last_offset
    entries = data.draw(st.lists(st.tuples(st.integers(-1, 10), st.integers(-2, end + 2)), max_size=8))
    assert wrong_time_entries(entries, batches, table_batches) == plainly_wrong_time_entries(entries, batches)


@given(logs(), st.data(), st.integers(1, 4))
def test_entries_that_a_broker_writes_are_right(batches: list[Batch], data: st.DataObject, table_batches: int) -> None:
    """Per batch, as brokers since 4.x do, and per append of several batches, as older ones did."""
    offsets, times, at, largest = [], [], 0, -1
    while at < len(batches):
        behind = at + data.draw(st.integers(1, 3))
        appended = batches[at:behind]
        best = max(appended, key=lambda each: each.header.max_timestamp).header
        newer = best.max_timestamp > largest
        largest = max(largest, best.max_timestamp)
        if at and data.draw(st.booleans()):
            offsets.append((appended[-1].header.last_offset, at * BATCH_BYTES))
            if newer:
                times.append((best.max_timestamp, best.last_offset))
        at = behind
    assert wrong_offset_entries(offsets, batches, table_batches) == 0
    assert wrong_time_entries(times, batches, table_batches) == 0


def test_a_wrong_entry_is_named() -> None:
    batches = [batch(0, 4), batch(5, 9, max_timestamp=1500)]
    offsets = OffsetIndexEntries(offset_index([(9, 100), (12, 150)]))
    times = TimeIndexEntries(time_index([(1000, 4), (1400, 9)]))
    for check in (offsets, times):
        shown(check, batches)
    assert offsets.wrong_entries().first == "entry 1: offset 12 is not at byte 150"
    assert times.wrong_entries().first == "entry 1: offset 9 is not in the first batch of time 1400"
    assert wrong_offset_entries([], batches) == wrong_time_entries([], batches) == 0


# Indexes that claim more than their log can need are refused before they are unfolded.

BATCHES = 5
METADATA = some_metadata(BATCHES * HEADER_SIZE)


@pytest.mark.parametrize(
    ("entries", "entry", "most"),
    [
        (offset_entries, b"\0\0\0\x01\0\0\0\x01", BATCHES),
        (time_entries, b"\0" * 7 + b"\x01\0\0\0\x01", BATCHES + 1),
        (transaction_entries, bytes(33) + b"\x01", BATCHES + 1),
    ],
    ids=["offset", "time", "transaction"],
)
def test_no_more_entries_than_batches(
    entries: Callable[[bytes, RemoteLogSegmentMetadata], Sized], entry: bytes, most: int
) -> None:
    assert len(entries(entry * most, METADATA)) == most
    with pytest.raises(FormatError, match=f"entries, but the log needs at most {most}"):
        entries(entry * (most + 1), METADATA)


def test_zeros_behind_the_last_entry_are_a_fault_but_no_claim() -> None:
    entry = b"\0\0\0\x01\0\0\0\x01"
    assert len(offset_entries(entry + bytes(10 * 2**20), METADATA)) == 1
