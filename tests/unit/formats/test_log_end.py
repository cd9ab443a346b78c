import pytest

from include.tiering.errors import OldMagicError, SourceChangedError
from include.tiering.formats.log_batches import LogEnd, find_log_end
from include.tiering.formats.record_batch import ControlType, iter_headers
from tests.doubles.byte_sources import BytesSource, RecordingSource, ShrinkingSource
from tests.doubles.record_batches import data_batch, marker, old_batch, record_batch

T0_MS = 1_700_000_000_000
LOG = record_batch(100, count=5) + data_batch(105, 7, count=2) + marker(107, 7, ControlType.ABORT)


def _end(log: bytes, base_offset: int = 100) -> LogEnd:
    return find_log_end(BytesSource(log), base_offset=base_offset)


def test_a_whole_log_ends_with_its_last_batch() -> None:
    assert _end(LOG) == LogEnd(
        valid_bytes=len(LOG),
        log_end_offset=108,
        max_timestamp_ms=T0_MS + 4,
        batch_count=3,
        torn=False,
        reason=None,
    )


def test_an_empty_log_ends_where_it_begins() -> None:
    assert _end(b"", 42) == LogEnd(0, 42, -1, 0, torn=False, reason=None)


@pytest.mark.parametrize("zeros", [1, 17, 18, 100, 70_000])
def test_zeros_of_a_preallocated_file_do_not_count(zeros: int) -> None:
    end = _end(LOG + bytes(zeros))
    assert (end.valid_bytes, end.log_end_offset, end.torn) == (len(LOG), 108, True)


def test_a_preallocated_file_without_a_batch() -> None:
    end = _end(bytes(4096), 7)
    assert (end.valid_bytes, end.log_end_offset, end.batch_count) == (0, 7, 0)
    assert end.reason == "batch length 0 is below 49"


@pytest.mark.parametrize("kept", [1, 12, 61, 70])
def test_a_torn_batch_does_not_count(kept: int) -> None:
    end = _end(LOG + record_batch(108)[:kept])
    assert (end.valid_bytes, end.log_end_offset, end.batch_count, end.torn) == (len(LOG), 108, 3, True)


def test_nothing_counts_behind_a_damaged_batch() -> None:
    damaged = bytearray(LOG)
    damaged[len(record_batch(100, count=5)) + 70] ^= 1
    end = _end(bytes(damaged))
    assert (end.log_end_offset, end.batch_count) == (105, 1)
    assert "CRC-32C" in str(end.reason)


def test_offsets_that_go_back_end_the_log() -> None:
    end = _end(LOG + record_batch(107))
    assert (end.log_end_offset, end.reason) == (108, "base offset 107 is below 108")


def test_a_batch_below_the_file_s_base_offset() -> None:
    end = _end(LOG, base_offset=101)
    assert (end.valid_bytes, end.log_end_offset, end.batch_count, end.torn) == (0, 101, 0, True)


def test_old_magic_at_the_front_is_an_old_log() -> None:
    with pytest.raises(OldMagicError):
        _end(old_batch(100, 0) + old_batch(101, 0) + old_batch(102, 0))


def test_old_magic_behind_newer_batches_is_damage() -> None:
    end = _end(LOG + old_batch(108, 1) + old_batch(109, 1))
    assert (end.valid_bytes, end.torn) == (len(LOG), True)


def test_headers_with_positions_and_what_markers_say() -> None:
    found = [(b.position, b.header.base_offset, b.control) for b in iter_headers(BytesSource(LOG))]
    first = len(record_batch(100, count=5))
    second = first + len(data_batch(105, 7, count=2))
    assert found == [(0, 100, None), (first, 105, None), (second, 107, ControlType.ABORT)]
    assert found[1:] == [(b.position, b.header.base_offset, b.control) for b in iter_headers(BytesSource(LOG), first)]


@pytest.mark.parametrize(
    "tail", [bytes(5), bytes(500), record_batch(108)[:-1], record_batch(108)[:30], old_batch(108, 1) * 3]
)
def test_the_walk_over_headers_ends_before_the_first_that_is_not_whole(tail: bytes) -> None:
    assert [b.header.base_offset for b in iter_headers(BytesSource(LOG + tail))] == [100, 105, 107]


def test_the_walk_ends_where_offsets_go_back() -> None:
    assert [b.header.base_offset for b in iter_headers(BytesSource(LOG + record_batch(3)))] == [100, 105, 107]


@pytest.mark.parametrize("position", range(8192 - 64, 8192 + 3))
def test_a_header_may_lie_anywhere_in_what_is_read_at_once(position: int) -> None:
    first = record_batch(0, records=bytes(position - 61))
    assert [b.position for b in iter_headers(BytesSource(first + record_batch(1)))] == [0, position]


def test_large_batches_are_stepped_over_unread() -> None:
    log = b"".join(record_batch(offset, records=bytes(1_000_000)) for offset in range(4))
    source = RecordingSource(BytesSource(log))
    assert len(list(iter_headers(source))) == 4
    assert sum(size_bytes for _, size_bytes in source.reads) <= 4 * 8192


def test_a_log_that_shrinks_is_the_source_s_error() -> None:
    shrinking = ShrinkingSource(BytesSource(LOG), len(LOG) - 10)
    with pytest.raises(SourceChangedError):
        list(iter_headers(shrinking))
    with pytest.raises(SourceChangedError):
        find_log_end(shrinking, base_offset=100)
