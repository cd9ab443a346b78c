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

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from include.tiering.errors import FormatError, UnusableBatchesError
from include.tiering.formats.log_batches import BatchBuffer
from include.tiering.formats.primitive_types import Buffer
from include.tiering.formats.record_batch import HEADER_SIZE, BatchHeader, TransactionMarker, transaction_marker


class FetchFault(StrEnum):
    """What is wrong with the batches of an answer; see the table above."""

    CUT = "cut"
    OLD = "old"
    MISSING = "missing"
    DAMAGED = "damaged"
    EPOCH = "epoch"
    ABOVE_HIGH_WATERMARK = "above-high-watermark"


class FetchedBatch(NamedTuple):
    """One whole, checked batch, at `position` of its answer.

    `marker` is None unless the batch is a control batch.
    """

    position: int
    header: BatchHeader
    marker: TransactionMarker | None


class FetchedBatches(NamedTuple):
    """Consecutive batches of one answer, at least one, the first at position 0.

    `answer` holds the bytes as long as the answer is kept.
    """

    answer: BatchBuffer
    batches: Sequence[FetchedBatch]
    size_bytes: int


def read_batches(
    records: Buffer,
    *,
    path: str,
    position: int,
    offset: int,
    leader_epoch: int,
    high_watermark: int,
    may_begin_below: bool,
) -> Iterator[FetchedBatches]:
    """Return the whole batches of an answer: none, all, or those before the first that is refused.

    Args:
        records: the bytes of the answer.
        path: names the partition in errors.
        position: where in the range the answer begins, in bytes; for errors.
        offset: the requested offset, inclusive, where the first batch must begin.
        leader_epoch: the epoch of the batch before, -1 without one.
        high_watermark: the high watermark in the answer, exclusive.
        may_begin_below: the first batch may begin below `offset`, if it holds that offset.

    Raises, when the batches before were returned:
        UnusableBatchesError: see the table above.
    """
    answer, at, found = BatchBuffer(records), 0, list[FetchedBatch]()
    refused: UnusableBatchesError | None = None
    while at < len(records):
        try:
            header = answer.batch_at(at)
            if header is None:
                if not at:
                    refused = _unusable(path, FetchFault.CUT, "the answer ends before its first batch", position)
                break
            end = at + header.size_bytes
            marker = transaction_marker(answer.view[at:end], HEADER_SIZE) if header.is_control else None
        except FormatError as error:
            refused = _unusable(path, FetchFault.DAMAGED, error.message, position + at)
            break
        base, last, epoch = header.base_offset, header.last_offset, header.partition_leader_epoch
        if base != offset or epoch < leader_epoch or epoch < 0 or last >= high_watermark:
            fault = _fault(header, offset, leader_epoch, high_watermark, may_begin_below and not at)
            if fault is not None:
                expected = f"expected offset {offset}, an epoch from {leader_epoch} on, and less than {high_watermark}"
                what = f"batch {base}..{last} of epoch {epoch}: {expected}"
                refused = _unusable(path, fault, what, position + at)
                break
        found.append(FetchedBatch(at, header, marker))
        offset, leader_epoch, at = last + 1, epoch, end
    if found:
        yield FetchedBatches(answer, found, at)
    if refused is not None:
        raise refused


def _unusable(path: str, fault: FetchFault, message: str, position: int) -> UnusableBatchesError:
    return UnusableBatchesError(path, f"{fault}: {message}", position)


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
