"""Indexes that claim more than their log can need are refused before they are unfolded."""

from collections.abc import Callable, Sized

import pytest

from include.tiering.errors import FormatError
from include.tiering.formats.record_batch import HEADER_SIZE
from include.tiering.model.segments import RemoteLogSegmentMetadata
from include.tiering.verification.segment_contents import offset_entries, time_entries, transaction_entries
from tests.doubles.storage_segments import some_metadata

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
    with pytest.raises(FormatError, match=f"room for {most} batches"):
        entries(entry * (most + 1), METADATA)


def test_zeros_behind_the_last_entry_are_a_fault_but_no_claim() -> None:
    entry = b"\0\0\0\x01\0\0\0\x01"
    assert len(offset_entries(entry + bytes(10 * 2**20), METADATA)) == 1
