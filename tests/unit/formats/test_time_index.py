import struct

import pytest

from include.tiering.errors import FormatError
from include.tiering.formats import indexes

T0_MS = 1_700_000_000_000
# Written by Kafka for base offset 100: (t0, 150), (t0 + 10, 180).
ENTRIES = bytes.fromhex("0000018bcfe56800000000320000018bcfe5680a00000050")


def _failure(data: bytes, *, base_offset: int = 100, end_offset: int = 180) -> FormatError:
    with pytest.raises(FormatError) as caught:
        indexes.check_time_index(data, base_offset=base_offset, end_offset=end_offset)
    return caught.value


def test_trimming_drops_the_zero_tail_and_nothing_else() -> None:
    assert indexes.trim_time_index(ENTRIES + bytes(36)) == ENTRIES
    assert indexes.trim_time_index(ENTRIES) == ENTRIES
    assert indexes.trim_time_index(bytes(60)) == b""


def test_an_entry_at_the_base_offset_is_not_zero() -> None:
    entry = T0_MS.to_bytes(8, "big") + bytes(4)
    assert indexes.trim_time_index(entry + bytes(24)) == entry


@pytest.mark.parametrize("timestamp_ms", [0, 1, -5, 2**63 - 1])
def test_one_entry_alone_says_what_the_index_says(timestamp_ms: int) -> None:
    entry = struct.pack(">qi", timestamp_ms, 7)
    assert (
        indexes.timestamp_of(entry)
        == indexes.parse_time_index(entry, base_offset=0).largest_timestamp_ms
        == timestamp_ms
    )
    assert indexes.timestamp_of(bytes(12)) is None


def test_entries_are_absolute() -> None:
    index = indexes.parse_time_index(ENTRIES + bytes(12), base_offset=100)
    assert (index.timestamps_ms.tolist(), index.offsets.tolist()) == ([T0_MS, T0_MS + 10], [150, 180])
    assert (len(index), index.largest_timestamp_ms) == (2, T0_MS + 10)


def test_an_empty_index_has_no_timestamp() -> None:
    assert indexes.parse_time_index(b"", base_offset=100).largest_timestamp_ms == -1


def test_a_sound_index_passes() -> None:
    assert len(indexes.check_time_index(ENTRIES, base_offset=100, end_offset=180)) == 2
    same_offset = ENTRIES[:20] + ENTRIES[8:12]
    assert len(indexes.check_time_index(same_offset, base_offset=100, end_offset=180)) == 2
    assert len(indexes.check_time_index(b"", base_offset=100, end_offset=180)) == 0


@pytest.mark.parametrize(
    ("data", "end_offset", "position", "message"),
    [
        (ENTRIES[:-1], 180, 12, "not a multiple of 12"),
        (ENTRIES + bytes(12), 180, 24, "zero entries"),
        (ENTRIES, 179, 12, "offset 180 of entry 1"),
        (ENTRIES[:12] + ENTRIES[:8] + ENTRIES[20:], 180, 12, f"timestamp {T0_MS} of entry 1"),
        (ENTRIES[:8] + ENTRIES[20:] + ENTRIES[12:20] + ENTRIES[8:12], 180, 12, "offset 150 of entry 1"),
        (b"\xff" * 8 + ENTRIES[8:], 180, 0, "timestamp -1 of entry 0"),
        (ENTRIES[:8] + b"\xff" * 4 + ENTRIES[12:], 180, 0, "offset 99 of entry 0"),
    ],
)
def test_entries_that_cannot_be(data: bytes, end_offset: int, position: int, message: str) -> None:
    error = _failure(data, end_offset=end_offset)
    assert error.position == position
    assert message in error.message
