"""Checks of a segment, ends of logs, producer snapshots."""

import google_crc32c
import pytest

from include.tiering.errors import FormatError, OldMagicError, SourceChangedError
from include.tiering.formats import indexes
from include.tiering.formats.indexes import ProducerEntry
from include.tiering.formats.log_batches import CheckedBatches, LogEnd, check_segment, find_log_end
from include.tiering.formats.record_batch import ControlType, iter_headers
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RUNNING_CRC32C_STEP_BYTES
from tests.doubles.memory_source import BytesSource, RecordingSource, ShrinkingSource
from tests.doubles.record_batches import data_batch, marker, old_batch, record_batch, with_crc

T0_MS = 1_700_000_000_000
HISTORY = LeaderEpochs.of([(0, 0), (3, 107)])
LOG = (
    record_batch(100, count=5)
    + data_batch(105, 7, count=2)
    + marker(107, 7, ControlType.ABORT, leader_epoch=3)
    + record_batch(108, records=b"x" * 5000, leader_epoch=3, attributes=0x04)
    + marker(109, 8, ControlType.COMMIT, leader_epoch=3)
)


def _check(log: bytes, *, base_offset: int = 100, end_offset: int = 109, block_bytes: int = 1024) -> CheckedBatches:
    return check_segment(
        BytesSource(log),
        base_offset=base_offset,
        end_offset=end_offset,
        leader_epochs=HISTORY,
        block_bytes=block_bytes,
    )


def _failure(log: bytes, **offsets: int) -> FormatError:
    with pytest.raises(FormatError) as caught:
        _check(log, **offsets)
    return caught.value


@pytest.mark.parametrize("block_bytes", [1024, 4096, 1 << 20])
def test_the_metadata_of_a_sound_segment(block_bytes: int) -> None:
    assert _check(LOG, block_bytes=block_bytes) == CheckedBatches(
        size_bytes=len(LOG),
        batch_count=5,
        record_count=10,
        first_offset=100,
        last_offset=109,
        max_timestamp_ms=T0_MS + 4,
        crc32c=google_crc32c.value(LOG),
        first_missing_offset=None,
        leader_epochs=LeaderEpochs.of([(0, 100), (3, 107)]),
        control_batch_count=2,
        abort_marker_count=1,
        commit_marker_count=1,
    )


class HaltingSource(BytesSource):
    """Gives at most a few bytes at a time, as a pipe does."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        return super().read_into(position, buffer[:333])


@pytest.mark.parametrize("block_bytes", [1024, 4096])
def test_a_source_may_give_less_than_it_is_asked_for(block_bytes: int) -> None:
    """Also in the midst of a batch that is larger than the buffer."""
    read = check_segment(
        HaltingSource(LOG), base_offset=100, end_offset=109, leader_epochs=HISTORY, block_bytes=block_bytes
    )
    assert read == _check(LOG)


@pytest.mark.parametrize("block_bytes", [1024, 512 * 1024, 3 * RUNNING_CRC32C_STEP_BYTES])
def test_the_checksum_is_known_up_to_every_step(block_bytes: int) -> None:
    records = b"x" * 700_000
    log = b"".join(record_batch(100 + number, records=records) for number in range(26))
    steps = range(RUNNING_CRC32C_STEP_BYTES, len(log) + 1, RUNNING_CRC32C_STEP_BYTES)
    assert len(steps) == 2
    batches = check_segment(
        BytesSource(log), base_offset=100, end_offset=125, leader_epochs=None, block_bytes=block_bytes
    )
    assert batches.running_crc32c == tuple(google_crc32c.value(log[:end]) for end in steps)
    assert batches.crc32c == google_crc32c.value(log)


def test_an_empty_segment() -> None:
    batches = _check(b"")
    assert (batches.batch_count, batches.first_offset, batches.last_offset, batches.max_timestamp_ms) == (
        0,
        100,
        99,
        -1,
    )
    assert (batches.size_bytes, batches.crc32c, len(batches.leader_epochs)) == (0, 0, 0)


def test_compaction_leaves_gaps_and_empty_batches() -> None:
    retained = bytearray(record_batch(104, count=3, records=b""))
    retained[57:61] = bytes(4)
    batches = _check(with_crc(bytes(retained)) + record_batch(108, leader_epoch=3))
    assert (batches.first_offset, batches.last_offset, batches.record_count) == (104, 108, 1)


@pytest.mark.parametrize(
    ("ranges", "missing"),
    [
        ([(100, 5), (105, 5)], None),
        ([(101, 4), (105, 5)], 100),
        ([(100, 5), (106, 4)], 105),
        ([(100, 5)], 105),
    ],
    ids=["none", "at the start", "in the middle", "at the end"],
)
def test_offsets_that_no_batch_covers(ranges: list[tuple[int, int]], missing: int | None) -> None:
    source = BytesSource(b"".join(record_batch(base, count=count) for base, count in ranges))
    batches = check_segment(source, base_offset=100, end_offset=109, leader_epochs=None)
    assert batches.first_missing_offset == missing


def test_the_file_is_read_once() -> None:
    source = RecordingSource(BytesSource(LOG))
    check_segment(source, base_offset=100, end_offset=109, leader_epochs=None, block_bytes=2048)
    assert sum(size_bytes for _, size_bytes in source.reads) == len(LOG)


def test_a_batch_below_the_segment() -> None:
    error = _failure(LOG, base_offset=101)
    assert (error.position, error.message) == (0, "base offset 100 is below 101")


def test_a_batch_beyond_the_segment() -> None:
    error = _failure(LOG, end_offset=108)
    assert (error.position, error.message) == (len(LOG) - 78, "batch 109..109 reaches beyond the segment's end 108")


def test_offsets_that_overlap() -> None:
    first = record_batch(100, count=5)
    error = _failure(first + record_batch(104))
    assert (error.position, error.message) == (len(first), "base offset 104 is below 105")


def test_a_negative_offset_range() -> None:
    batch = bytearray(record_batch(100))
    batch[23:27] = b"\xff\xff\xff\xff"
    assert "are not a range" in _failure(with_crc(bytes(batch))).message


def test_a_negative_record_count() -> None:
    batch = bytearray(record_batch(100))
    batch[57:61] = b"\xff\xff\xff\xff"
    assert _failure(with_crc(bytes(batch))).message == "record count is -1"


def test_an_epoch_that_the_partition_did_not_have() -> None:
    error = _failure(record_batch(100) + record_batch(101, leader_epoch=1))
    assert error.position == len(record_batch(100))
    assert error.message == "leader epoch 1 at offsets 101..101, the history has 0 from 0"


def test_an_epoch_that_goes_on_by_one_offset_too_many() -> None:
    first = record_batch(100, count=5)
    error = _failure(first + record_batch(105, count=3))
    assert error.position == len(first)
    assert error.message == "leader epoch 0 at offsets 105..107, the history has 3 from 107"


@pytest.mark.parametrize("rest", [1, 60, 70])
def test_not_one_byte_is_left_over(rest: int) -> None:
    error = _failure(LOG + record_batch(110)[:rest], end_offset=200)
    assert error.position == len(LOG)


def test_a_zero_tail_is_not_part_of_a_rolled_segment() -> None:
    assert _failure(LOG + bytes(4096)).position == len(LOG)


def test_an_unknown_codec() -> None:
    error = _failure(record_batch(100) + record_batch(101, attributes=6))
    assert error.message == "codec 6 is unknown"


def test_a_control_batch_that_says_nothing() -> None:
    first = record_batch(100)
    error = _failure(first + record_batch(101, attributes=0x20, records=b""))
    assert error.position == len(first)


def test_control_batches_of_kraft_count_but_end_no_transaction() -> None:
    batches = _check(marker(100, -1, ControlType.LEADER_CHANGE))
    assert (batches.control_batch_count, batches.abort_marker_count, batches.commit_marker_count) == (1, 0, 0)


def test_old_magic_has_its_own_error() -> None:
    with pytest.raises(OldMagicError):
        _check(old_batch(100, 1) * 4)


LOG_WITH_AN_END = record_batch(100, count=5) + data_batch(105, 7, count=2) + marker(107, 7, ControlType.ABORT)


def _end(log: bytes, base_offset: int = 100) -> LogEnd:
    return find_log_end(BytesSource(log), base_offset=base_offset)


def test_a_whole_log_ends_with_its_last_batch() -> None:
    assert _end(LOG_WITH_AN_END) == LogEnd(
        valid_bytes=len(LOG_WITH_AN_END),
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
    end = _end(LOG_WITH_AN_END + bytes(zeros))
    assert (end.valid_bytes, end.log_end_offset, end.torn) == (len(LOG_WITH_AN_END), 108, True)


def test_a_preallocated_file_without_a_batch() -> None:
    end = _end(bytes(4096), 7)
    assert (end.valid_bytes, end.log_end_offset, end.batch_count) == (0, 7, 0)
    assert end.reason == "batch length 0 is below 49"


@pytest.mark.parametrize("kept", [1, 12, 61, 70])
def test_a_torn_batch_does_not_count(kept: int) -> None:
    end = _end(LOG_WITH_AN_END + record_batch(108)[:kept])
    assert (end.valid_bytes, end.log_end_offset, end.batch_count, end.torn) == (len(LOG_WITH_AN_END), 108, 3, True)


def test_nothing_counts_behind_a_damaged_batch() -> None:
    damaged = bytearray(LOG_WITH_AN_END)
    damaged[len(record_batch(100, count=5)) + 70] ^= 1
    end = _end(bytes(damaged))
    assert (end.log_end_offset, end.batch_count) == (105, 1)
    assert "CRC-32C" in str(end.reason)


def test_offsets_that_go_back_end_the_log() -> None:
    end = _end(LOG_WITH_AN_END + record_batch(107))
    assert (end.log_end_offset, end.reason) == (108, "base offset 107 is below 108")


def test_a_batch_below_the_file_s_base_offset() -> None:
    end = _end(LOG_WITH_AN_END, base_offset=101)
    assert (end.valid_bytes, end.log_end_offset, end.batch_count, end.torn) == (0, 101, 0, True)


def test_old_magic_at_the_front_is_an_old_log() -> None:
    with pytest.raises(OldMagicError):
        _end(old_batch(100, 0) + old_batch(101, 0) + old_batch(102, 0))


def test_old_magic_behind_newer_batches_is_damage() -> None:
    end = _end(LOG_WITH_AN_END + old_batch(108, 1) + old_batch(109, 1))
    assert (end.valid_bytes, end.torn) == (len(LOG_WITH_AN_END), True)


def test_headers_with_positions_and_what_markers_say() -> None:
    found = [(b.position, b.header.base_offset, b.control) for b in iter_headers(BytesSource(LOG_WITH_AN_END))]
    first = len(record_batch(100, count=5))
    second = first + len(data_batch(105, 7, count=2))
    assert found == [(0, 100, None), (first, 105, None), (second, 107, ControlType.ABORT)]
    assert found[1:] == [
        (b.position, b.header.base_offset, b.control) for b in iter_headers(BytesSource(LOG_WITH_AN_END), first)
    ]


@pytest.mark.parametrize(
    "tail", [bytes(5), bytes(500), record_batch(108)[:-1], record_batch(108)[:30], old_batch(108, 1) * 3]
)
def test_the_walk_over_headers_ends_before_the_first_that_is_not_whole(tail: bytes) -> None:
    assert [b.header.base_offset for b in iter_headers(BytesSource(LOG_WITH_AN_END + tail))] == [100, 105, 107]


def test_the_walk_ends_where_offsets_go_back() -> None:
    assert [b.header.base_offset for b in iter_headers(BytesSource(LOG_WITH_AN_END + record_batch(3)))] == [
        100,
        105,
        107,
    ]


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
    shrinking = ShrinkingSource(BytesSource(LOG_WITH_AN_END), len(LOG_WITH_AN_END) - 10)
    with pytest.raises(SourceChangedError):
        list(iter_headers(shrinking))
    with pytest.raises(SourceChangedError):
        find_log_end(shrinking, base_offset=100)


# Both written by Kafka.
EMPTY = bytes.fromhex("000148674bc700000000")
ONE_PRODUCER = bytes.fromhex(
    "000185a4c54c0000000100000000000010920001000000060000000000000065000000010000018bcfe5680a000000090000000000000064"
)
PRODUCER = ProducerEntry(
    producer_id=4242,
    producer_epoch=1,
    last_sequence=6,
    last_offset=101,
    offset_delta=1,
    timestamp_ms=1_700_000_000_010,
    coordinator_epoch=9,
    current_txn_first_offset=100,
)


def test_snapshots_that_kafka_wrote() -> None:
    assert indexes.parse_producer_snapshot(EMPTY) == ()
    assert indexes.parse_producer_snapshot(ONE_PRODUCER) == (PRODUCER,)


def test_a_snapshot_has_a_head_at_least_and_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "MAX_PRODUCER_SNAPSHOT_BYTES", len(ONE_PRODUCER))
    assert indexes.parse_producer_snapshot(EMPTY) == ()
    assert indexes.parse_producer_snapshot(ONE_PRODUCER) == (PRODUCER,)
    for data in (EMPTY[:-1], ONE_PRODUCER + b"\0"):
        with pytest.raises(FormatError, match=f"^{len(data)} bytes are outside 10..56"):
            indexes.parse_producer_snapshot(data)


def test_the_same_bytes_as_kafka() -> None:
    assert indexes.EMPTY_SNAPSHOT == EMPTY
    assert indexes.serialize_producer_snapshot([PRODUCER]) == ONE_PRODUCER


def test_minus_one_means_no_open_transaction() -> None:
    assert PRODUCER.has_open_transaction
    assert not ProducerEntry(1, 0, -1, -1, 0, 0, -1, -1).has_open_transaction
    assert ProducerEntry(1, 0, -1, -1, 0, 0, -1, 0).has_open_transaction


@pytest.mark.parametrize(
    ("data", "position", "message"),
    [
        (b"", 0, "0 bytes are outside"),
        (EMPTY[:9], 0, "9 bytes are outside"),
        (b"\0\x02" + EMPTY[2:], 0, "version 2 is not 1"),
        (EMPTY[:-1] + b"\x01", 6, "the header says 1 producers, the file has 10 bytes"),
        (EMPTY[:6] + b"\x7f\xff\xff\xff", 6, "2147483647 producers"),
        (EMPTY[:6] + b"\xff\xff\xff\xff", 6, "-1 producers"),
        (ONE_PRODUCER + b"\0", 6, "the header says 1 producers, the file has 57 bytes"),
        (ONE_PRODUCER[:-1], 6, "the header says 1 producers, the file has 55 bytes"),
        (ONE_PRODUCER[:-1] + b"\x65", 2, "the header says 85a4c54c"),
        (EMPTY[:5] + b"\xc8" + EMPTY[6:], 2, "CRC-32C is 48674bc7"),
    ],
)
def test_damaged_snapshots(data: bytes, position: int, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        indexes.parse_producer_snapshot(data)
    assert caught.value.position == position
    assert message in caught.value.message
