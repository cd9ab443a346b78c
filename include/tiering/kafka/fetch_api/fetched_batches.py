"""The batches of a leader's answer, of which nothing is believed before it was checked. Pure.

What an answer may do                                       what becomes of it
end in an incomplete batch                                  the rest is not read, and requested again
begin below the requested offset, at the first request      accepted, if the first batch holds this offset
have an incomplete first batch                              CUT
have a batch below the expected offset                      OLD
have a batch above the expected offset                      MISSING
have a batch with a wrong length, magic, CRC-32C, etc.      DAMAGED
have a batch of an epoch below that of the batch before     EPOCH
have a batch above the high watermark of the same answer    ABOVE_HIGH_WATERMARK

A topic that was compacted earlier lacks offsets, too. An answer does not tell compaction from batches that were left
out, so both are refused.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from include.tiering.errors import FormatError, UnusableBatchesError
from include.tiering.formats.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    TransactionMarker,
    check_codec,
    check_crc,
    parse_header,
    transaction_marker,
)

_LENGTH_AT: Final = 8


class FetchFault(StrEnum):
    """What is wrong with the batches of an answer; see the table above."""

    CUT = "cut"
    OLD = "old"
    MISSING = "missing"
    DAMAGED = "damaged"
    EPOCH = "epoch"
    ABOVE_HIGH_WATERMARK = "above-high-watermark"


class FetchedBatch(NamedTuple):
    """One whole, checked batch.

    `data` is valid as long as the answer is kept. `marker` is None unless the batch is a control batch.
    """

    header: BatchHeader
    data: memoryview
    marker: TransactionMarker | None


def read_batches(
    records: bytes,
    *,
    path: str,
    position: int,
    offset: int,
    leader_epoch: int,
    high_watermark: int,
    may_begin_below: bool,
) -> Iterator[FetchedBatch]:
    """Iterate over the whole batches of an answer.

    Args:
        records: the bytes of the answer.
        path: names the partition in errors.
        position: where in the range the answer begins, in bytes; for errors.
        offset: the requested offset, inclusive, where the first batch must begin.
        leader_epoch: the epoch of the batch before, -1 without one.
        high_watermark: the high watermark in the answer, exclusive.
        may_begin_below: the first batch may begin below `offset`, if it holds that offset.

    Raises, while iterating:
        UnusableBatchesError: see the table above.
    """
    whole, at = memoryview(records), 0
    while at < len(whole):
        end = _end_of_batch(whole, at)
        if end is None and at:
            return
        try:
            if end is None:
                raise _unusable(path, FetchFault.CUT, "the answer ends before its first batch", position)
            batch = _checked(whole[at:end])
        except FormatError as error:
            raise _unusable(path, FetchFault.DAMAGED, error.message, position + at) from error
        header = batch.header
        if (fault := _fault(header, offset, leader_epoch, high_watermark, may_begin_below and not at)) is not None:
            what = f"batch {header.base_offset}..{header.last_offset} of epoch {header.partition_leader_epoch}"
            expected = f"expected offset {offset}, an epoch from {leader_epoch} on, and less than {high_watermark}"
            raise _unusable(path, fault, f"{what}: {expected}", position + at)
        yield batch
        offset, leader_epoch, at = header.last_offset + 1, header.partition_leader_epoch, end


def _unusable(path: str, fault: FetchFault, message: str, position: int) -> UnusableBatchesError:
    return UnusableBatchesError(path, f"{fault}: {message}", position)


def _end_of_batch(whole: memoryview, at: int) -> int | None:
    """Return where the batch ends, None if it is incomplete; after its header, if its length field is too small."""
    if len(whole) - at < HEADER_SIZE:
        return None
    length = int.from_bytes(whole[at + _LENGTH_AT : at + LOG_OVERHEAD], signed=True)
    end = at + max(LOG_OVERHEAD + length, HEADER_SIZE)
    return end if end <= len(whole) else None


def _checked(data: memoryview) -> FetchedBatch:
    header = parse_header(data)
    check_codec(header, 0)
    check_crc(header, data, 0)
    return FetchedBatch(header, data, transaction_marker(data, HEADER_SIZE) if header.is_control else None)


def _fault(
    header: BatchHeader, offset: int, leader_epoch: int, high_watermark: int, may_begin_below: bool
) -> FetchFault | None:
    begins_below = header.base_offset < offset
    if begins_below and not (may_begin_below and header.last_offset >= offset):
        return FetchFault.OLD
    if header.base_offset > offset:
        return FetchFault.MISSING
    if header.partition_leader_epoch < max(leader_epoch, 0):
        return FetchFault.EPOCH
    return FetchFault.ABOVE_HIGH_WATERMARK if header.last_offset >= high_watermark else None
