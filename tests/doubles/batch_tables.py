"""Batches without a log, for what checks them by their headers."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from include.tiering.formats.record_batch import LOG_OVERHEAD, BatchHeader, ControlType
from include.tiering.verification.log_batches import BatchTable, LogCheck, TableBuilder
from tests.doubles.record_batches import CONTROL, TRANSACTIONAL

BATCH_BYTES = 100


class Batch(NamedTuple):
    """A batch of a log in which each takes `BATCH_BYTES`."""

    header: BatchHeader
    control: ControlType | None = None


def batch(base: int, last: int | None = None, **fields: int) -> Batch:
    """Plain records, one for each offset, at epoch 0 and timestamp 1,000 unless `fields` say otherwise."""
    delta = 0 if last is None else last - base
    header = BatchHeader(base, BATCH_BYTES - LOG_OVERHEAD, 0, 2, 0, 0, delta, 1000, 1000, -1, -1, -1, delta + 1)
    return Batch(header._replace(**fields))


def data(base: int, last: int, producer_id: int, *, epoch: int = 0, sequence: int = 0) -> Batch:
    """Records inside a transaction."""
    ids = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return batch(base, last, attributes=TRANSACTIONAL, **ids)


def end(offset: int, producer_id: int, control: ControlType, *, epoch: int = 0) -> Batch:
    """A marker."""
    ids = {"producer_id": producer_id, "producer_epoch": epoch}
    return Batch(batch(offset, attributes=TRANSACTIONAL | CONTROL, **ids).header, control)


def tables(batches: Sequence[Batch], table_batches: int = 4096) -> Iterator[BatchTable]:
    """The batches one behind the other, in tables of this many."""
    builder = TableBuilder()
    for number, each in enumerate(batches):
        added = builder.add(number * BATCH_BYTES, each.header)
        if each.control is not None:
            builder.set_control(each.control)
        if added == table_batches:
            yield builder.take()
    rest = builder.take()
    if len(rest):
        yield rest


def shown(check: LogCheck, batches: Sequence[Batch], table_batches: int = 4096) -> None:
    """Everything that `check` is to see."""
    for table in tables(batches, table_batches):
        check.take(table)
