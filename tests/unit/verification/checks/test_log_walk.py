"""The pass over a log: what it counts, what it hands on, what it looks into, what it holds."""

import tracemalloc
from typing import Any

import pytest

from include.tiering.formats.record_batch import Codec, ControlType
from include.tiering.formats.records import Decompressor, OpenedBatch
from include.tiering.units import MIB
from include.tiering.verification import log_batches
from include.tiering.verification.log_batches import BatchTable, LogWalk
from include.tiering.verification.segment_contents import LogPart
from tests.doubles.damages.batches import with_value
from tests.doubles.many_segments import with_zeros
from tests.doubles.memory_source import BytesSource
from tests.doubles.record_batches import data_batch, marker, old_batch, record, record_batch, with_crc


class Seen:
    """A check that remembers."""

    def __init__(self) -> None:
        self.tables: list[BatchTable] = []

    def take(self, table: BatchTable) -> None:
        self.tables.append(table)

    @property
    def base_offsets(self) -> list[int]:
        return [offset for table in self.tables for offset in table.base_offsets.tolist()]


def walked(log: bytes, **read: int) -> tuple[LogWalk, Seen]:
    seen = Seen()
    walk = LogWalk([seen])
    walk.read(BytesSource(log), **read)
    return walk, seen


def test_every_batch_is_handed_on_in_tables() -> None:
    log = b"".join(record_batch(offset, value_bytes=0) for offset in range(10_000))
    walk, seen = walked(log)
    assert seen.base_offsets == list(range(10_000))
    assert [len(table) for table in seen.tables] == [4096, 4096, 1808]
    assert (walk.batches, walk.unreadable.count, walk.wrong_crcs.count, walk.unopened.count) == (10_000, 0, 0, 0)


def test_a_table_says_what_the_headers_say() -> None:
    first = record_batch(100, count=3, leader_epoch=7, timestamp_ms=5000)
    log = first + data_batch(103, 9, count=2) + marker(105, 9, ControlType.ABORT) + marker(106, 9, ControlType.COMMIT)
    (table,) = walked(log)[1].tables
    assert table.positions[:2].tolist() == [0, len(first)]
    assert table.sizes_bytes[0] == len(first)
    assert table.last_offsets.tolist() == [102, 104, 105, 106]
    assert table.column("partition_leader_epoch").tolist() == [7, 0, 0, 0]
    assert table.column("max_timestamp")[0] == 5002
    assert table.is_transactional.tolist() == [False, True, True, True]
    assert table.is_control.tolist() == [False, False, True, True]
    assert table.controls == {2: ControlType.ABORT, 3: ControlType.COMMIT}
    assert table.named(1) == f"batch 103..104 at byte {len(first)}"


def test_a_wrong_crc_is_passed_over_and_a_wrong_header_ends_the_batches() -> None:
    first, second, third = (record_batch(offset) for offset in range(3))
    damaged = second[:-1] + b"\x01"
    walk, seen = walked(first + damaged + third)
    assert (walk.wrong_crcs.count, walk.unreadable.count) == (1, 0)
    assert "offset 1" in walk.wrong_crcs.first
    assert seen.base_offsets == [0, 1, 2]
    walk, seen = walked(first + old_batch(1, 1) + third)
    assert seen.base_offsets == [0]
    assert walk.unreadable.count == len(old_batch(1, 1) + third)
    assert "magic 1" in walk.unreadable.first


@pytest.mark.parametrize("rest", [b"\0", bytes(17), bytes(200), b"\xff" * 61])
def test_bytes_behind_the_last_batch_are_unreadable(rest: bytes) -> None:
    walk, seen = walked(record_batch(0) + rest)
    assert (walk.unreadable.count, seen.base_offsets) == (len(rest), [0])


def test_a_part_begins_where_it_is_told_and_names_true_positions() -> None:
    first, second = record_batch(0), record_batch(1)
    walk, seen = walked(first + second + b"junk", start_position=len(first))
    assert [table.positions.tolist() for table in seen.tables] == [[len(first)]]
    assert f"at byte {len(first + second)}" in walk.unreadable.first


def test_nothing_to_read_is_no_table() -> None:
    walk, seen = walked(b"")
    assert (walk.batches, seen.tables) == (0, [])


def lying(offset: int, attributes: int = 0) -> bytes:
    """A batch with a right CRC that has one record less than it says."""
    return record_batch(offset, count=3, attributes=attributes, records=record(0, b"a") + record(1, b"b"))


def test_the_first_batch_that_cannot_be_opened_is_named_and_no_other_is_tried() -> None:
    walk, _ = walked(record_batch(0) + lying(1) + lying(4))
    assert walk.unopened.count == 1
    assert walk.unopened.first.endswith("2 records are inside, the header says 3")
    assert walked(record_batch(0, attributes=Codec.LZ4))[0].unopened.first.startswith("batch 0 at byte 0: LZ4")


def test_what_is_looked_into_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def opens(header: object, payload: bytes, _: object) -> OpenedBatch:
        opened.append(len(payload))
        return OpenedBatch(len(payload))

    monkeypatch.setattr(log_batches, "check_records", opens)
    batch = record_batch(0, count=1, value_bytes=16_000)
    log = b"".join(record_batch(offset, value_bytes=16_000) for offset in range(40 * MIB // len(batch)))
    walked(log)
    assert MIB < sum(opened) < MIB + len(log) / 64 + 2 * len(batch)
    assert len(opened) > MIB // len(batch) + 10


BOMB_BYTES = 80 * MIB


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """80 MiB of zeros in a few KiB."""
    return with_zeros(record_batch(0, count=2), BOMB_BYTES)


def test_a_batch_above_the_bound_is_no_fault(bomb: bytes) -> None:
    walk, _ = walked(bomb + record_batch(2))
    assert (walk.unopened.count, walk.not_opened.count, walk.unreadable.count) == (0, 0, 0)


def test_a_batch_that_is_not_opened_whole_is_counted_apart(bomb: bytes) -> None:
    walk = LogWalk([], Decompressor(MIB, 70 * MIB))
    walk.read(BytesSource(record_batch(0) + with_value(bomb, "base offset", 1)))
    assert (walk.unopened.count, walk.not_opened.count) == (0, 1)
    assert (
        walk.not_opened.first
        == f"batch 1 at byte {len(record_batch(0))}: more than {70 * MIB} bytes after decompression"
    )


def test_a_bomb_in_each_batch_is_opened_now_and_then(bomb: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment of nothing else: what comes out is bounded by its length, not by what its batches claim."""
    opened: list[int] = []
    check = log_batches.check_records  # type: ignore[attr-defined]

    def counted(*arguments: Any) -> OpenedBatch:
        found = check(*arguments)
        opened.append(found.plain_bytes)
        return found

    monkeypatch.setattr(log_batches, "check_records", counted)
    batches = 4000
    log = b"".join(with_value(bomb, "base offset", 2 * number) for number in range(batches))
    _, seen = walked(log)
    assert len(seen.base_offsets) == batches
    assert sum(opened) <= MIB + len(log) / 64 + max(opened)
    assert len(opened) == 1


def test_a_codec_that_nobody_knows_and_a_batch_with_a_wrong_crc_are_not_opened() -> None:
    unknown = with_crc(lying(0, attributes=6))
    damaged = lying(3)[:-1] + b"\x01"
    walk, _ = walked(unknown + damaged)
    assert (walk.unopened.count, walk.wrong_crcs.count) == (0, 1)


def test_a_batch_larger_than_a_block_is_checked_but_not_opened() -> None:
    large = record_batch(0, count=2, records=bytes(5000))
    walk, seen = walked(large + record_batch(2), block_bytes=1024)
    assert (walk.unopened.count, walk.wrong_crcs.count, seen.base_offsets) == (0, 0, [0, 2])
    walk, _ = walked(large[:-1] + b"\x01" + record_batch(2), block_bytes=1024)
    assert walk.wrong_crcs.count == 1


def test_a_large_control_record_says_nothing() -> None:
    key = b"\0\0\0\0"
    log = record_batch(0, attributes=0x30, producer_id=1, records=record(0, bytes(5000), key))
    (table,) = walked(log, block_bytes=1024)[1].tables
    assert table.controls == {0: ControlType.UNKNOWN}


def test_memory_does_not_grow_with_the_log() -> None:
    batch = with_crc(record_batch(0, count=1, value_bytes=64_000))
    block = batch * 16

    def peak_of(blocks: int) -> int:
        walk = LogWalk([])
        part = LogPart((block for _ in range(blocks)), 0, blocks * len(block))
        tracemalloc.start()
        try:
            walk.read(part)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            assert walk.batches == 16 * blocks

    assert peak_of(64) < peak_of(2) + MIB


def test_a_part_is_read_in_order_and_summed() -> None:
    part = LogPart(iter([b"abc", b"", b"defgh"]), 10, 18)
    buffer = memoryview(bytearray(4))
    assert (part.size_bytes, part.read_into(10, buffer), bytes(buffer)) == (18, 4, b"abcd")
    with pytest.raises(ValueError, match="read at 10, expected 14"):
        part.read_into(10, buffer)
    part.skip_rest()
    assert part.read_into(14, buffer) == 0
    whole = LogPart(iter([b"abcdefgh"]), 0, 8)
    whole.skip_rest()
    assert part.crc32c == whole.crc32c
