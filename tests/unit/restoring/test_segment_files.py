"""What a restored segment's files hold, and which stored bytes are refused."""

from dataclasses import replace
from typing import Any

import google_crc32c
import pytest

from include.tiering.errors import FormatError
from include.tiering.formats.indexes import (
    AbortedTxn,
    ProducerEntry,
    parse_producer_snapshot,
    parse_transaction_index,
    serialize_producer_snapshot,
)
from include.tiering.formats.record_batch import ControlType
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import Verdict
from include.tiering.restoring.plan import RestorePart
from include.tiering.restoring.segment_files import RestoredFiles, StoredFiles, WrittenLog, write_log
from include.tiering.segments.values import SegmentRow
from tests.doubles.record_batches import data_batch, marker, record_batch
from tests.doubles.stored_log import some_segment

EMPTY = serialize_producer_snapshot(())
ONE, TWO = 7, 8
"""Producers."""


def part_of(
    *batches: bytes, base: int = 100, end: int = 109, is_first: bool = True, is_last: bool = True, **changes: Any
) -> RestorePart:
    log = b"".join(batches)
    segment, _ = some_segment(len(log), start_offset=100)
    metadata = replace(
        segment, end_offset=109, segment_size_bytes=len(log), segment_leader_epochs=LeaderEpochs.of([(0, 100)])
    )
    row = SegmentRow(metadata, Verdict.PASSED, google_crc32c.value(log), **changes)
    return RestorePart(row, base, base, end, is_first=is_first, is_last=is_last)


def written(
    part: RestorePart,
    *batches: bytes,
    aborted: tuple[AbortedTxn, ...] = (),
    at_end: bytes = EMPTY,
    before: bytes | None = None,
) -> tuple[bytes, WrittenLog, RestoredFiles]:
    log, out = b"".join(batches), bytearray()
    blocks = [log[at : at + 50] for at in range(0, len(log), 50)]
    found, files = write_log(part, blocks, StoredFiles(aborted, at_end, before), out.extend)
    return bytes(out), found, files


PLAIN = tuple(record_batch(offset, count=2) for offset in range(100, 110, 2))


def test_a_whole_segment_is_written_as_it_is() -> None:
    log, found, files = written(part_of(*PLAIN), *PLAIN)
    assert log == b"".join(PLAIN)
    assert (found.batches, found.records, found.next_offset) == (5, 10, 110)
    assert (found.crc32c, found.source_crc32c) == (google_crc32c.value(log), google_crc32c.value(log))
    assert (files.transaction_index, files.producer_snapshot, files.snapshot_before) == (None, EMPTY, None)


def test_only_wanted_batches_are_written_and_all_are_checked() -> None:
    part = part_of(*PLAIN, base=104, end=106, is_first=False)
    log, found, _ = written(part, *PLAIN)
    assert log == b"".join(PLAIN[2:4])
    assert (found.next_offset, found.source_bytes) == (108, sum(map(len, PLAIN)))


@pytest.mark.parametrize(("base", "end", "is_last"), [(103, 109, True), (100, 104, False)])
def test_a_batch_of_two_neighbours_is_refused(base: int, end: int, is_last: bool) -> None:
    part = part_of(*PLAIN, base=base, end=end, is_first=False, is_last=is_last)
    with pytest.raises(FormatError, match="cannot be divided"):
        written(part, *PLAIN)


def test_a_wrong_checksum_of_the_whole_log_is_refused_though_all_batches_are_right() -> None:
    part = part_of(*PLAIN)
    other = (record_batch(100, count=2, timestamp_ms=1), *PLAIN[1:])
    with pytest.raises(FormatError, match="the source had"):
        written(part, *other)
    with pytest.raises(FormatError, match="the source had"):
        written(part, *PLAIN[:-1])
    unknown = replace(part, row=replace(part.row, log_crc32c=None))
    assert written(unknown, *other)[1].batches == 5


@pytest.mark.parametrize("at", [0, 8, 16, 25, 70])
def test_a_changed_byte_is_found_where_it_is(at: int) -> None:
    damaged = bytearray(PLAIN[0])
    damaged[at] ^= 0x40
    with pytest.raises(FormatError):
        written(part_of(*PLAIN), bytes(damaged), *PLAIN[1:])


ABORTED = (data_batch(100, ONE, count=4), marker(104, ONE, ControlType.ABORT), *PLAIN[3:])
ABORTED_TXN = AbortedTxn(ONE, 100, 104, 105)


def test_an_aborted_transaction_is_in_the_index_and_must_be() -> None:
    part = part_of(*ABORTED)
    files = written(part, *ABORTED, aborted=(ABORTED_TXN,))[2]
    assert list(parse_transaction_index(files.transaction_index or b"")) == [ABORTED_TXN]
    with pytest.raises(FormatError, match="lacks the aborted transaction"):
        written(part, *ABORTED)
    for wrong in (replace_txn(last_offset=105), replace_txn(producer_id=TWO)):
        with pytest.raises(FormatError, match="names an ABORT marker"):
            written(part, *ABORTED, aborted=(ABORTED_TXN, wrong))


def replace_txn(**changes: int) -> AbortedTxn:
    return ABORTED_TXN._replace(**changes)


def test_transactions_from_before_the_first_part_are_in_its_first_snapshot() -> None:
    batches = (marker(100, ONE, ControlType.ABORT), record_batch(101, count=9))
    open_at_end = serialize_producer_snapshot([ProducerEntry(TWO, 3, 5, 60, 0, 1, -1, 58)])
    early = AbortedTxn(ONE, 40, 100, 58)
    files = written(part_of(*batches), *batches, aborted=(early,), at_end=open_at_end)[2]
    assert files.snapshot_before is not None
    before = {entry.producer_id: entry for entry in parse_producer_snapshot(files.snapshot_before)}
    assert {number: entry.current_txn_first_offset for number, entry in before.items()} == {ONE: 40, TWO: 58}
    assert before[ONE].producer_epoch == 1
    later = written(part_of(*batches, is_first=False), *batches, aborted=(early,), at_end=open_at_end)[2]
    assert later.snapshot_before is None


def test_the_end_of_a_cut_part_has_the_producers_of_that_offset() -> None:
    part = part_of(*ABORTED, end=103)
    before = serialize_producer_snapshot([ProducerEntry(TWO, 3, 5, 60, 0, 1, -1, 58)])
    files = written(part, *ABORTED, aborted=(ABORTED_TXN,), before=before)[2]
    found = {entry.producer_id: entry for entry in parse_producer_snapshot(files.producer_snapshot)}
    assert {number: entry.current_txn_first_offset for number, entry in found.items()} == {ONE: 100, TWO: 58}
    assert files.transaction_index is None, "the marker is behind the end"


@pytest.mark.parametrize("last_offset", [102, 110])
def test_a_snapshot_of_another_log_is_refused(last_offset: int) -> None:
    snapshot = serialize_producer_snapshot([ProducerEntry(ONE, 1, 3, last_offset, 0, 1, -1, -1)])
    with pytest.raises(FormatError, match="producer snapshot has offset"):
        written(part_of(*ABORTED), *ABORTED, aborted=(ABORTED_TXN,), at_end=snapshot)


def test_a_leader_epoch_that_the_segment_does_not_have_is_refused() -> None:
    batches = (PLAIN[0], record_batch(102, count=8, leader_epoch=5))
    with pytest.raises(FormatError, match="leader epoch 5"):
        written(part_of(*batches), *batches)
