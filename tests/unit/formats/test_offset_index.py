import numpy as np
import pytest

from include.tiering.errors import FormatError
from include.tiering.formats import indexes
from include.tiering.formats.indexes import OffsetPosition

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
