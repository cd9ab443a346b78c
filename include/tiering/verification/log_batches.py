"""One pass over the batches of a log, or of a part of it, and what must hold of each batch.

The pass counts what is wrong with each batch by itself, and gives checks tables of headers. Those here ask whether a
broker can have written the headers, and whether batches stand where offsets and leader epochs say: what a batch's CRC
covers may be wrong from the start, and neither its offset nor its leader epoch is under it.

Nothing is held but one block, one table and what the checks keep. A batch with a wrong CRC is counted and passed over
by its length; where a header cannot be one, the batches end and the rest is unreadable.

Batches are opened, their records counted, as long as that stays cheap: until a MiB of records was seen, then about one
byte in 64. A batch that is larger than a block is not opened, and none is after one that could not be.

A batch of a few KiB may be gigabytes once opened, and right: any producer may send it. Of such a batch only so much is
opened (`formats/records.py`, `formats/records.py`), in pieces. What comes out of a log of n bytes is thus bounded by
n / 64, one MiB and what is opened of one batch, whatever it holds; no clock is asked.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from include.tiering.errors import FormatError
from include.tiering.formats.log_batches import DEFAULT_BLOCK_BYTES, BatchStream, Fields
from include.tiering.formats.record_batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAX_OFFSET,
    NO_PRODUCER,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Codec,
    ControlType,
    control_type,
)
from include.tiering.formats.records import MIN_RECORD_BYTES, Decompressor, check_records
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import ByteSource
from include.tiering.units import MIB


class Faults:
    """`count` of them; `first` is a sentence about the one that was met first, empty without any."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def add(self, sentence: str, count: int = 1) -> None:
        self.first = self.first or sentence
        self.count += count

    def add_rows(self, bad: NDArray[np.bool_], describe: Callable[[int], str]) -> None:
        """One for each True; `describe` gets the row of the first."""
        count = int(np.count_nonzero(bad))
        if count:
            self.add("" if self.first else describe(int(bad.argmax())), count)


TABLE_BATCHES: Final = 4096
"""Batches that are verified together: 250 KB of headers, whatever the size of the segment."""

_pack_header: Final = HEADER.pack_into
_COLUMNS: Final = np.dtype(list(zip(BatchHeader._fields, "qiibIhiqqqhii", strict=True))).newbyteorder(">")


@dataclass(frozen=True, slots=True, eq=False)
class BatchTable:
    """Batches in their order. Arrays have one item per batch; offsets are inclusive.

    `headers` has the fields of `BatchHeader` by name. `last_offsets` wraps around where a header says what cannot be:
    it is then below the base offset. `controls`: what the control batches say, by row.
    """

    positions: NDArray[np.int64]
    headers: NDArray[np.void]
    last_offsets: NDArray[np.int64]
    controls: dict[int, ControlType]

    def __len__(self) -> int:
        return len(self.positions)

    def column(self, name: str) -> NDArray[np.int64]:
        """A field of the headers."""
        return self.headers[name].astype(np.int64)

    @property
    def base_offsets(self) -> NDArray[np.int64]:
        return self.column("base_offset")

    @property
    def sizes_bytes(self) -> NDArray[np.int64]:
        """Whole batches, headers included."""
        return self.column("batch_length") + LOG_OVERHEAD

    @property
    def is_control(self) -> NDArray[np.bool_]:
        return self._have(CONTROL_FLAG)

    @property
    def is_transactional(self) -> NDArray[np.bool_]:
        return self._have(TRANSACTIONAL_FLAG)

    def named(self, row: int) -> str:
        """A batch, for a person."""
        base, last = int(self.headers["base_offset"][row]), int(self.last_offsets[row])
        return f"batch {base}..{last} at byte {int(self.positions[row])}"

    def _have(self, flag: int) -> NDArray[np.bool_]:
        is_set: NDArray[np.bool_] = self.column("attributes") & flag != 0
        return is_set


class TableBuilder:
    """Takes headers one by one, up to `TABLE_BATCHES`."""

    def __init__(self) -> None:
        self._headers = bytearray(TABLE_BATCHES * HEADER.size)
        self._positions: list[int] = []
        self._controls: dict[int, ControlType] = {}

    def add(self, position: int, fields: Fields) -> int:
        """Returns how many were added since the last `take`."""
        positions = self._positions
        _pack_header(self._headers, len(positions) * HEADER.size, *fields)
        positions.append(position)
        return len(positions)

    def set_control(self, control: ControlType) -> None:
        """What the control batch that was added last says."""
        self._controls[len(self._positions) - 1] = control

    def take(self) -> BatchTable:
        """What was added, and begin again."""
        count = len(self._positions)
        headers = np.frombuffer(self._headers, dtype=_COLUMNS, count=count).astype(_COLUMNS.newbyteorder("="))
        table = BatchTable(
            positions=np.array(self._positions, dtype=np.int64),
            headers=headers,
            last_offsets=headers["base_offset"] + headers["last_offset_delta"],
            controls=self._controls,
        )
        self._positions, self._controls = [], {}
        return table


_OPENED_AT_FIRST_BYTES: Final = MIB
_OPENED_SHARE_SHIFT: Final = 6


class LogCheck(Protocol):
    """Sees every batch once, in order."""

    def take(self, table: BatchTable) -> None: ...


class LogWalk:
    """What is wrong with batches by themselves.

    `unreadable`: bytes from the first on that cannot begin a batch. `wrong_crcs` and `unopened` count batches, and so
    does `not_opened`, which is no fault: more would come out of these than is opened.
    """

    def __init__(self, checks: Iterable[LogCheck], decompressor: Decompressor | None = None) -> None:
        self.batches = 0
        self.unreadable = Faults()
        self.wrong_crcs = Faults()
        self.unopened = Faults()
        self.not_opened = Faults()
        self._checks = tuple(checks)
        self._table = TableBuilder()
        self._decompressor = decompressor or Decompressor()
        self._opened_bytes = 0
        self._open_from = 0  # position from which on a batch may be opened
        self._wrong_crc_at = -1  # position of the last batch with a wrong CRC

    def read(self, source: ByteSource, start_position: int = 0, block_bytes: int = DEFAULT_BLOCK_BYTES) -> None:
        """All of `source` from `start_position` on, where a batch must begin. Once.

        Raises:
            RemoteStorageError: what the source raises.
        """
        stream = BatchStream(source, block_bytes, start_position=start_position, on_wrong_crc=self._on_wrong_crc)
        add = self._table.add
        try:
            for position, fields in stream:
                in_table = add(position, fields)
                if fields[5] & CONTROL_FLAG or position >= self._open_from:
                    self._open_records(stream, position, fields)
                if in_table == TABLE_BATCHES:
                    self._check_table()
        except FormatError as error:
            self.unreadable.add(str(error), max(source.size_bytes - error.position, 1))
        self._check_table()

    def _check_table(self) -> None:
        table = self._table.take()
        self.batches += len(table)
        for check in self._checks if len(table) else ():
            check.take(table)

    def _on_wrong_crc(self, error: FormatError) -> None:
        self.wrong_crcs.add(str(error))
        self._wrong_crc_at = error.position

    def _open_records(self, stream: BatchStream, position: int, fields: Fields) -> None:
        """Into the batch that was added last."""
        if position == self._wrong_crc_at:
            return
        rest = stream.records(position)
        if fields[5] & CONTROL_FLAG:
            self._table.set_control(_control_of(rest))
        payload_bytes = LOG_OVERHEAD + fields[1] - HEADER_SIZE
        if position >= self._open_from and fields[5] & CODEC_MASK <= Codec.ZSTD and payload_bytes <= len(rest):
            self._open(position, BatchHeader._make(fields), rest[:payload_bytes])

    def _open(self, position: int, header: BatchHeader, payload: memoryview) -> None:
        try:
            opened = check_records(header, payload, self._decompressor)
        except FormatError as error:
            self.unopened.add(f"batch {header.base_offset} at byte {position}: {error.message}")
            self._open_from = MAX_OFFSET
            return
        if opened.not_opened:
            self.not_opened.add(f"batch {header.base_offset} at byte {position}: {opened.not_opened}")
        self._opened_bytes += opened.plain_bytes
        self._open_from = (self._opened_bytes - _OPENED_AT_FIRST_BYTES) << _OPENED_SHARE_SHIFT


def _control_of(records: memoryview) -> ControlType:
    try:
        return control_type(records, 0)
    except FormatError:
        return ControlType.UNKNOWN


_KNOWN_FLAGS: Final = CODEC_MASK | LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
_MARKERS: Final = (ControlType.ABORT, ControlType.COMMIT)


class HeaderRules:
    """`impossible`: batches that no broker writes. `thinned`: batches with fewer records than offsets.

    Compaction thins batches, nothing else does; a topic that was compacted once may hold some.
    """

    def __init__(self) -> None:
        self.impossible = Faults()
        self.thinned = Faults()

    def take(self, table: BatchTable) -> None:
        def refuse(bad: NDArray[np.bool_], what: str) -> None:
            self.impossible.add_rows(bad, lambda row: f"{table.named(row)}: {what}")

        attributes, records = table.column("attributes"), table.column("record_count")
        slots = table.column("last_offset_delta") + 1
        codec, control = attributes & CODEC_MASK, table.is_control
        producer = table.column("producer_id")
        strange = np.zeros(len(table), dtype=np.bool_)
        strange[[row for row, said in table.controls.items() if said not in _MARKERS]] = True
        refuse((attributes & ~_KNOWN_FLAGS) != 0, "unknown attributes")
        refuse(codec > Codec.ZSTD, "an unknown codec")
        refuse(table.last_offsets < table.base_offsets, "no range of offsets")
        refuse((records < 0) | (records > slots), "a record count that its offsets do not hold")
        refuse((codec == Codec.NONE) & (records > _most_records(table)), "more records than fit")
        refuse(table.column("max_timestamp") < NO_TIMESTAMP, "a timestamp below -1")
        refuse((producer >= 0) & (table.column("producer_epoch") < 0), "a producer without an epoch")
        refuse(producer < NO_PRODUCER, "an impossible producer id")
        refuse(table.is_transactional & (producer < 0), "a transaction without a producer")
        refuse(control & ~table.is_transactional, "control outside of a transaction")
        refuse(control & ((codec != Codec.NONE) | (records != 1) | (slots != 1)), "not one plain control record")
        refuse(strange, "neither an ABORT nor a COMMIT")
        self.thinned.add_rows(
            (records >= 0) & (records < slots), lambda row: f"{table.named(row)} holds {records[row]} records"
        )


def _most_records(table: BatchTable) -> NDArray[np.int64]:
    return (table.sizes_bytes - HEADER_SIZE) // MIN_RECORD_BYTES


class Timestamps:
    """`largest_ms` of all batches, -1 if none has one; `above`: batches with a later one than `max_timestamp_ms`."""

    def __init__(self, max_timestamp_ms: int) -> None:
        self.above = Faults()
        self.largest_ms = NO_TIMESTAMP
        self._max_timestamp_ms = max_timestamp_ms

    def take(self, table: BatchTable) -> None:
        timestamps = table.column("max_timestamp")
        self.above.add_rows(
            timestamps > self._max_timestamp_ms,
            lambda row: f"{table.named(row)} has timestamp {timestamps[row]}, above {self._max_timestamp_ms}",
        )
        self.largest_ms = max(self.largest_ms, int(timestamps.max()))


class OffsetOrder:
    """Offsets go on from `start_offset` to `end_offset` (both inclusive), without a gap and none twice.

    A batch outside of them, or at or below one that was reached before, is misplaced; it fills no gap. With
    `begins_anywhere` the first batch is taken where it stands: the ones before it were not read.
    """

    def __init__(self, start_offset: int, end_offset: int, *, begins_anywhere: bool = False) -> None:
        self.missing = Faults()
        self.misplaced = Faults()
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._reached = start_offset - 1
        self._begins_anywhere = begins_anywhere

    def take(self, table: BatchTable) -> None:
        base, last = table.base_offsets, table.last_offsets
        inside = (base >= self._start_offset) & (last <= self._end_offset) & (last >= base)
        if self._begins_anywhere and inside[0]:
            self._reached = int(base[0]) - 1
        self._begins_anywhere = False
        ends = np.where(inside, last, self._start_offset - 1)
        reached = np.maximum.accumulate(np.concatenate(([self._reached], ends)))
        before = reached[:-1]
        self.misplaced.add_rows(
            ~inside | (base <= before),
            lambda row: f"{table.named(row)} follows offset {before[row]} in {self._start_offset}..{self._end_offset}",
        )
        gaps = np.where(inside, base - before - 1, 0)
        if (gaps > 0).any():
            row = int((gaps > 0).argmax())
            self._add_missing(int(before[row]) + 1, int(base[row]) - 1, int(gaps[gaps > 0].sum()))
        self._reached = int(reached[-1])

    def end(self) -> None:
        """No batch follows: what was not reached is missing."""
        if self._reached < self._end_offset:
            self._add_missing(self._reached + 1, self._end_offset, self._end_offset - self._reached)

    def _add_missing(self, first: int, last: int, count: int) -> None:
        self.missing.add(f"offsets {first}..{last} are in no batch", count)


class EpochOrder:
    """The leader epoch of every batch is the one that `leader_epochs` has for its offsets.

    A history that was cut at the front tells of the batches before it only how high their epochs may be.
    """

    def __init__(self, leader_epochs: LeaderEpochs) -> None:
        self.wrong = Faults()
        self._epochs = np.array([epoch for epoch, _ in leader_epochs], dtype=np.int64)
        self._starts = np.array([start for _, start in leader_epochs], dtype=np.int64)
        self._before = 0

    def take(self, table: BatchTable) -> None:
        base, last, epochs = table.base_offsets, table.last_offsets, table.column("partition_leader_epoch")
        entry = np.searchsorted(self._starts, last, side="right") - 1
        known = np.maximum(entry, 0)
        wrong = (epochs != self._epochs[known]) | ((entry > 0) & (base < self._starts[known]))
        fallen = epochs < np.concatenate(([self._before], epochs[:-1]))
        wrong = np.where(entry < 0, (epochs > self._epochs[0]) | fallen, wrong)
        self.wrong.add_rows(
            wrong,
            lambda row: (
                f"{table.named(row)} has leader epoch {epochs[row]}, the metadata {self._epochs[known[row]]}"
                f" from {self._starts[known[row]]}"
            ),
        )
        self._before = int(epochs[-1])
