"""Files that are rebuilt batch by batch are those that a plain look at all batches leads to."""

import struct
from dataclasses import dataclass
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from include.tiering.formats.indexes import (
    AbortedTxn,
    ProducerEntry,
    parse_offset_index,
    parse_producer_snapshot,
    parse_time_index,
    parse_transaction_index,
)
from include.tiering.formats.rebuilt_files import ProducerStates, RebuiltFiles, SegmentFilesBuilder
from include.tiering.formats.record_batch import HEADER_SIZE, ControlType, iter_headers, transaction_marker
from tests.doubles.memory_source import BytesSource
from tests.doubles.record_batches import CONTROL, NO_PRODUCER, TRANSACTIONAL, record, record_batch

BASE: Final = 1000
INTERVAL_BYTES: Final = 300


@dataclass(frozen=True)
class Batch:
    """What a test decides of a batch; `control` None: `count` records."""

    producer_id: int
    producer_epoch: int
    count: int
    timestamp_ms: int
    transactional: bool
    control: ControlType | None
    coordinator_epoch: int

    def written(self, base_offset: int) -> bytes:
        attributes, records = TRANSACTIONAL * self.transactional, None
        if self.control is not None:
            attributes |= CONTROL
            value = struct.pack(">hi", 0, self.coordinator_epoch)
            records = record(0, value, struct.pack(">hh", 0, self.control))
        return record_batch(
            base_offset,
            count=self.count,
            attributes=attributes,
            timestamp_ms=self.timestamp_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=NO_PRODUCER if self.control is not None else 2**31 - 3,
            records=records,
        )


@dataclass(frozen=True)
class Written:
    """A batch with what follows from its place; offsets are inclusive."""

    batch: Batch
    base: int
    position: int
    size_bytes: int

    @property
    def last(self) -> int:
        return self.base + self.batch.count - 1

    @property
    def largest_ms(self) -> int:
        return self.batch.timestamp_ms + self.batch.count - 1


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    control = draw(st.sampled_from((None, None, None, ControlType.ABORT, ControlType.COMMIT)))
    producer_id = draw(st.integers(1, 3) if control is not None else st.sampled_from((NO_PRODUCER, 1, 2, 3)))
    return Batch(
        producer_id,
        draw(st.integers(0, 2)) if producer_id != NO_PRODUCER else NO_PRODUCER,
        count=1 if control is not None else draw(st.integers(1, 5)),
        timestamp_ms=draw(st.integers(0, 50)),
        transactional=producer_id != NO_PRODUCER and (control is not None or draw(st.booleans())),
        control=control,
        coordinator_epoch=draw(st.integers(0, 4)),
    )


def written(made: list[Batch]) -> tuple[bytes, list[Written]]:
    log, base, rows = b"", BASE, []
    for batch in made:
        data = batch.written(base)
        rows.append(Written(batch, base, len(log), len(data)))
        log, base = log + data, base + batch.count
    return log, rows


def rebuilt(log: bytes, producers: ProducerStates, base: int = BASE) -> RebuiltFiles:
    builder = SegmentFilesBuilder(base, INTERVAL_BYTES, producers)
    for found in iter_headers(BytesSource(log)):
        marker = transaction_marker(log, found.position + HEADER_SIZE) if found.header.is_control else None
        builder.append(found.position, found.header, marker)
    return builder.files()


# The oracle: each answer from all rows, without a state.


def indexed(rows: list[Written]) -> list[int]:
    """The numbers of the batches that have an entry."""
    found = [0]
    for number in range(len(rows)):
        if sum(row.size_bytes for row in rows[found[-1] : number]) > INTERVAL_BYTES:
            found.append(number)
    return found[1:]


def times_of(rows: list[Written]) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    for number in [*indexed(rows), len(rows) - 1]:
        before = rows[: number + 1]
        largest_ms = max(row.largest_ms for row in before)
        offset = next(row.last for row in before if row.largest_ms == largest_ms)
        if not entries or largest_ms > entries[-1][0]:
            entries.append((largest_ms, offset))
    return entries


def first_open(rows: list[Written], producer_id: int) -> int | None:
    """Where the open transaction of a producer begins after these rows."""
    own = [row for row in rows if row.batch.producer_id == producer_id]
    markers = [number for number, row in enumerate(own) if row.batch.control is not None]
    after = own[markers[-1] + 1 :] if markers else own
    return next((row.base for row in after if row.batch.transactional), None)


def aborted_of(rows: list[Written]) -> list[AbortedTxn]:
    found = []
    for number, row in enumerate(rows):
        producer_id, before = row.batch.producer_id, rows[:number]
        first = first_open(before, producer_id)
        if row.batch.control is ControlType.ABORT and first is not None:
            others = {other.batch.producer_id for other in before} - {producer_id, NO_PRODUCER}
            starts = [start for other in others if (start := first_open(before, other)) is not None]
            found.append(AbortedTxn(producer_id, first, row.last, min(starts, default=row.last + 1)))
    return found


def producer_of(rows: list[Written], producer_id: int) -> ProducerEntry:
    own = [row for row in rows if row.batch.producer_id == producer_id]
    markers = [row for row in own if row.batch.control is not None]
    data = next((row for row in reversed(own) if row.batch.control is None), None)
    if data is not None and any(
        row.base > data.base and row.batch.producer_epoch != data.batch.producer_epoch for row in markers
    ):
        data = None
    first = first_open(rows, producer_id)
    return ProducerEntry(
        producer_id,
        own[-1].batch.producer_epoch,
        last_sequence=-1 if data is None else (2**31 - 3 + data.batch.count - 1) % 2**31,
        last_offset=-1 if data is None else data.last,
        offset_delta=0 if data is None else data.batch.count - 1,
        timestamp_ms=own[-1].largest_ms,
        coordinator_epoch=markers[-1].batch.coordinator_epoch if markers else -1,
        current_txn_first_offset=-1 if first is None else first,
    )


@given(made=st.lists(batches(), min_size=1, max_size=30))
def test_every_file_is_that_of_the_oracle(made: list[Batch]) -> None:
    log, rows = written(made)
    files = rebuilt(log, ProducerStates())
    offsets = parse_offset_index(files.offset_index, base_offset=BASE)
    assert list(zip(offsets.offsets.tolist(), offsets.positions.tolist(), strict=True)) == [
        (rows[number].last, rows[number].position) for number in indexed(rows)
    ]
    times = parse_time_index(files.time_index, base_offset=BASE)
    assert list(zip(times.timestamps_ms.tolist(), times.offsets.tolist(), strict=True)) == times_of(rows)
    aborted = [] if files.transaction_index is None else list(parse_transaction_index(files.transaction_index))
    assert aborted == aborted_of(rows)
    assert files.aborted_transactions == len(aborted)
    producers = sorted({row.batch.producer_id for row in rows} - {NO_PRODUCER})
    assert list(parse_producer_snapshot(files.producer_snapshot)) == [producer_of(rows, one) for one in producers]


@given(made=st.lists(batches(), min_size=2, max_size=30), data=st.data())
def test_a_log_in_two_segments_has_the_transactions_and_producers_of_the_whole(
    made: list[Batch], data: st.DataObject
) -> None:
    log, rows = written(made)
    second = rows[data.draw(st.integers(1, len(rows) - 1))]
    head = rebuilt(log[: second.position], ProducerStates())
    known = parse_producer_snapshot(head.producer_snapshot)
    tail = rebuilt(log[second.position :], ProducerStates(known), second.base)
    whole = rebuilt(log, ProducerStates())
    assert (head.transaction_index or b"") + (tail.transaction_index or b"") == (whole.transaction_index or b"")
    assert tail.producer_snapshot == whole.producer_snapshot
