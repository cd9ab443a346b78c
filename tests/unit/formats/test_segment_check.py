import google_crc32c
import pytest

from include.tiering.errors import FormatError, OldMagicError
from include.tiering.formats.log_batches import CheckedBatches, check_segment
from include.tiering.formats.record_batch import ControlType
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RUNNING_CRC32C_STEP_BYTES
from tests.doubles.byte_sources import BytesSource, RecordingSource
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
