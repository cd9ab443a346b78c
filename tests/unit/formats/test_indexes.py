"""Indexes: of offsets, of times and of aborted transactions."""

import struct
from collections.abc import Callable

import numpy as np
import pytest

from include.tiering.errors import FormatError
from include.tiering.formats import indexes
from include.tiering.formats.indexes import AbortedTxn, OffsetPosition

# Written by Kafka for base offset 100, preallocated to 64 bytes: (150 -> 4200), (180 -> 8500).
PREALLOCATED = bytes.fromhex("00000032000010680000005000002134") + bytes(48)
TRIMMED = PREALLOCATED[:16]


def _check(data: bytes, *, base_offset: int = 100, end_offset: int = 180, size_bytes: int = 9000) -> int:
    return len(indexes.check_offset_index(data, base_offset=base_offset, end_offset=end_offset, size_bytes=size_bytes))


def _failure(data: bytes, **bounds: int) -> FormatError:
    with pytest.raises(FormatError) as caught:
        _check(data, **bounds)
    return caught.value


def test_trimming_drops_the_zero_tail_and_nothing_else() -> None:
    assert indexes.trim_offset_index(PREALLOCATED) == TRIMMED
    assert indexes.trim_offset_index(TRIMMED) == TRIMMED
    assert indexes.trim_offset_index(bytes(64)) == b""
    assert indexes.trim_offset_index(b"") == b""


@pytest.mark.parametrize("trim", [indexes.trim_offset_index, indexes.trim_time_index])
@pytest.mark.parametrize("extra_bytes", [-1, 1])
def test_trimming_refuses_a_part_of_an_entry(trim: Callable[[bytes], bytes], extra_bytes: int) -> None:
    size_bytes = 3 * (8 if trim is indexes.trim_offset_index else 12) + extra_bytes
    with pytest.raises(FormatError, match=f"^{size_bytes} bytes are not a multiple of"):
        trim(b"\1" * size_bytes)


def test_trimming_keeps_an_entry_that_ends_in_zeros() -> None:
    entry = (5).to_bytes(4, "big") + (0x10000).to_bytes(4, "big")
    assert indexes.trim_offset_index(entry + bytes(16)) == entry


def test_entries_are_absolute() -> None:
    index = indexes.parse_offset_index(PREALLOCATED, base_offset=100)
    assert (index.offsets.tolist(), index.positions.tolist()) == ([150, 180], [4200, 8500])
    assert len(index) == 2


def test_offsets_beyond_32_bits() -> None:
    assert indexes.parse_offset_index(TRIMMED, base_offset=2**62).offsets.tolist() == [2**62 + 50, 2**62 + 80]


@pytest.mark.parametrize(
    ("target", "found"),
    [(0, (100, 0)), (149, (100, 0)), (150, (150, 4200)), (179, (150, 4200)), (180, (180, 8500)), (999, (180, 8500))],
)
def test_lookup_finds_the_greatest_at_or_below(target: int, found: tuple[int, int]) -> None:
    assert indexes.parse_offset_index(TRIMMED, base_offset=100).lookup(target) == OffsetPosition(*found)


@pytest.mark.parametrize(("target", "position"), [(100, 4200), (149, 4200), (150, 8500), (179, 8500), (180, None)])
def test_the_first_position_after_an_offset(target: int, position: int | None) -> None:
    assert indexes.parse_offset_index(TRIMMED, base_offset=100).position_after(target) == position


def test_an_empty_index_starts_every_scan_at_the_front() -> None:
    assert indexes.parse_offset_index(b"", base_offset=100).lookup(170) == OffsetPosition(100, 0)


def test_a_sound_index_passes() -> None:
    assert _check(TRIMMED) == 2
    assert _check(b"") == 0


@pytest.mark.parametrize("size_bytes", [1, 7, 9, 15])
def test_a_part_of_an_entry(size_bytes: int) -> None:
    error = _failure(PREALLOCATED[:size_bytes])
    assert error.position == size_bytes // 8 * 8


@pytest.mark.parametrize(
    ("data", "bounds", "position", "message"),
    [
        (PREALLOCATED, {}, 16, "zero entries"),
        (TRIMMED, {"end_offset": 179}, 8, "offset 180 of entry 1"),
        (TRIMMED, {"size_bytes": 8500}, 8, "position 8500 of entry 1"),
        (TRIMMED[8:] + TRIMMED[:8], {}, 8, "offset 150 of entry 1"),
        (TRIMMED[:8] * 2, {}, 8, "offset 150 of entry 1"),
        (TRIMMED[:4] + TRIMMED[12:] + TRIMMED[8:12] + TRIMMED[4:8], {}, 8, "position 4200 of entry 1"),
        (b"\xff\xff\xff\xff" + TRIMMED[4:], {}, 0, "offset 99 of entry 0"),
        (TRIMMED[:4] + bytes(4) + TRIMMED[8:], {}, 0, "position 0 of entry 0"),
    ],
)
def test_entries_that_cannot_be(data: bytes, bounds: dict[str, int], position: int, message: str) -> None:
    error = _failure(data, **bounds)
    assert error.position == position
    assert message in error.message


def test_a_large_index_stays_an_array() -> None:
    entries = np.empty((1_000_000, 2), dtype=">i4")
    entries[:, 0] = np.arange(1, 1_000_001)
    entries[:, 1] = np.arange(1, 1_000_001) * 100
    index = indexes.check_offset_index(entries.tobytes(), base_offset=0, end_offset=2_000_000, size_bytes=2**31 - 1)
    assert index.lookup(777_777) == OffsetPosition(777_777, 77_777_700)


T0_MS = 1_700_000_000_000
# Written by Kafka for base offset 100: (t0, 150), (t0 + 10, 180).
ENTRIES = bytes.fromhex("0000018bcfe56800000000320000018bcfe5680a00000050")


def _time_failure(data: bytes, *, base_offset: int = 100, end_offset: int = 180) -> FormatError:
    with pytest.raises(FormatError) as caught:
        indexes.check_time_index(data, base_offset=base_offset, end_offset=end_offset)
    return caught.value


def test_trimming_times_drops_the_zero_tail_and_nothing_else() -> None:
    assert indexes.trim_time_index(ENTRIES + bytes(36)) == ENTRIES
    assert indexes.trim_time_index(ENTRIES) == ENTRIES
    assert indexes.trim_time_index(bytes(60)) == b""


def test_a_zero_entry_alone_is_that_of_timestamp_0_at_the_base_offset() -> None:
    """Kafka's TimeIndex writes and reads it so: `maybeAppend(0, 100, true)` in an index of base offset 100."""
    index = indexes.check_time_index(bytes(12), base_offset=100, end_offset=180)
    assert (index.timestamps_ms.tolist(), index.offsets.tolist()) == ([0], [100])
    assert indexes.trim_time_index(bytes(12)) == bytes(12)
    assert "zero entries" in str(_time_failure(bytes(24)))


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


def test_times_are_absolute() -> None:
    index = indexes.parse_time_index(ENTRIES + bytes(12), base_offset=100)
    assert (index.timestamps_ms.tolist(), index.offsets.tolist()) == ([T0_MS, T0_MS + 10], [150, 180])
    assert (len(index), index.largest_timestamp_ms) == (2, T0_MS + 10)


def test_an_empty_index_has_no_timestamp() -> None:
    assert indexes.parse_time_index(b"", base_offset=100).largest_timestamp_ms == -1


def test_a_sound_time_index_passes() -> None:
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
def test_times_that_cannot_be(data: bytes, end_offset: int, position: int, message: str) -> None:
    error = _time_failure(data, end_offset=end_offset)
    assert error.position == position
    assert message in error.message


# Written by Kafka: producer 4242, first 100, last 102, last stable offset 103.
ENTRY = bytes.fromhex("00000000000000001092000000000000006400000000000000660000000000000067")


def _entry(first: int, last: int, version: int = 0) -> bytes:
    return struct.pack(">hqqqq", version, 7, first, last, last + 1)


def test_an_entry_that_kafka_wrote() -> None:
    assert list(indexes.parse_transaction_index(ENTRY)) == [AbortedTxn(4242, 100, 102, 103)]
    assert len(indexes.parse_transaction_index(ENTRY * 3)) == 3


def test_trimming_drops_what_is_not_a_whole_entry() -> None:
    assert indexes.trim_transaction_index(ENTRY + ENTRY[:33]) == ENTRY
    assert indexes.trim_transaction_index(ENTRY) == ENTRY
    assert indexes.trim_transaction_index(b"") == b""


def test_the_data_of_a_transaction_may_lie_before_the_segment() -> None:
    data = _entry(3, 102) + _entry(90, 110)
    assert len(indexes.check_transaction_index(data, base_offset=100, end_offset=110)) == 2


@pytest.mark.parametrize(
    ("data", "position", "message"),
    [
        (ENTRY + ENTRY[:5], 34, "not a multiple of 34"),
        (ENTRY + _entry(1, 104, version=1), 34, "version 1 is not 0"),
        (_entry(1, 99), 0, "ABORT marker 99 of entry 0"),
        (ENTRY + _entry(1, 111), 34, "ABORT marker 111 of entry 1"),
        (ENTRY + ENTRY, 34, "ABORT marker 102 of entry 1"),
        (ENTRY + _entry(105, 105), 34, "transaction 105..105 is not a range"),
        (ENTRY + _entry(-1, 105), 34, "transaction -1..105 is not a range"),
    ],
)
def test_transactions_that_cannot_be(data: bytes, position: int, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        indexes.check_transaction_index(data, base_offset=100, end_offset=110)
    assert caught.value.position == position
    assert message in caught.value.message
