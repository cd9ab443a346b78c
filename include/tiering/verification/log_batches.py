"""Check the batches of a log, or of a part of it, in one pass.

The pass (`LogWalk`) counts faults that show in a single batch, and hands tables of headers to the checks. The checks in
this module test whether a broker can have written the headers, and whether offsets, leader epochs and timestamps of the
batches are those of the metadata. The CRC does not replace these checks: a batch may have been wrong when its CRC was
computed, and the CRC covers neither the base offset nor the leader epoch.

Memory holds one block, one table, the decompressed records of one batch and the state of the checks. A batch with a
wrong CRC is counted; its header is checked, its records are not opened, and the pass continues after its length. Where
bytes cannot be a batch header, the pass ends, and the bytes from there on count as unreadable.

Some batches are opened: their records are decompressed, counted and compared with the header. All batches are opened
until one MiB of records was decompressed, then so many that about one byte is decompressed for each 64 bytes of the
log. A batch that is larger than a block or has an unknown codec is not opened. After a batch whose records are faulty,
no further batch is opened.

A valid batch of a few KiB may decompress to gigabytes: any producer may send it. Such a batch is decompressed in pieces
up to a limit (`formats/records.py`). The decompressed bytes that one pass over a log of n bytes counts are thus bounded
by n / 64 plus one MiB plus the limit of one batch, whatever the log holds, and this does not depend on a clock.
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
    """Counts faults. `first` is a sentence about the first fault, empty if there is none."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def add(self, sentence: str, count: int = 1) -> None:
        self.first = self.first or sentence
        self.count += count

    def add_rows(self, bad: NDArray[np.bool_], describe: Callable[[int], str]) -> None:
        """Add a fault for each True in `bad`; `describe` returns the sentence about a row, here the first one."""
        count = int(np.count_nonzero(bad))
        if count:
            self.add("" if self.first else describe(int(bad.argmax())), count)


TABLE_BATCHES: Final = 4096
"""The most batches that are checked together: 250 KB of headers, whatever the size of the segment."""

_pack_header: Final = HEADER.pack_into
_COLUMNS: Final = np.dtype(list(zip(BatchHeader._fields, "qiibIhiqqqhii", strict=True))).newbyteorder(">")


@dataclass(frozen=True, slots=True, eq=False)
class BatchTable:
    """Batches in their order. Arrays have one item per batch; offsets are inclusive.

    `headers` has the fields of `BatchHeader` by name. A last offset above 64 bits, which no broker writes, wraps around
    in `last_offsets` and is then below the base offset. `controls` has the types of control batches whose CRC is right,
    by row.
    """

    positions: NDArray[np.int64]
    headers: NDArray[np.void]
    last_offsets: NDArray[np.int64]
    controls: dict[int, ControlType]

    def __len__(self) -> int:
        return len(self.positions)

    def column(self, name: str) -> NDArray[np.int64]:
        """Return a field of the headers."""
        return self.headers[name].astype(np.int64)

    @property
    def base_offsets(self) -> NDArray[np.int64]:
        return self.column("base_offset")

    @property
    def sizes_bytes(self) -> NDArray[np.int64]:
        """Return the sizes of the batches, headers included."""
        return self.column("batch_length") + LOG_OVERHEAD

    @property
    def is_control(self) -> NDArray[np.bool_]:
        return self._have(CONTROL_FLAG)

    @property
    def is_transactional(self) -> NDArray[np.bool_]:
        return self._have(TRANSACTIONAL_FLAG)

    def named(self, row: int) -> str:
        """Describe a batch by offsets and position."""
        base, last = int(self.headers["base_offset"][row]), int(self.last_offsets[row])
        return f"batch {base}..{last} at byte {int(self.positions[row])}"

    def _have(self, flag: int) -> NDArray[np.bool_]:
        is_set: NDArray[np.bool_] = self.column("attributes") & flag != 0
        return is_set


class TableBuilder:
    """Collects up to `TABLE_BATCHES` headers."""

    def __init__(self) -> None:
        self._headers = bytearray(TABLE_BATCHES * HEADER.size)
        self._positions: list[int] = []
        self._controls: dict[int, ControlType] = {}

    def add(self, position: int, fields: Fields) -> int:
        """Add a header; return how many were added since the last `take`."""
        positions = self._positions
        _pack_header(self._headers, len(positions) * HEADER.size, *fields)
        positions.append(position)
        return len(positions)

    def set_control(self, control: ControlType) -> None:
        """Set the type of the control batch that was added last."""
        self._controls[len(self._positions) - 1] = control

    def take(self) -> BatchTable:
        """Return the collected headers as a table, and start a new table."""
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
    """A check that gets every batch once, in order, in tables of several batches."""

    def take(self, table: BatchTable) -> None: ...


class LogWalk:
    """Reads batches, and counts faults that show in a single batch.

    `unreadable` counts the bytes from the first position where no batch can be read to the end. `wrong_crcs` counts
    batches. `unopened` counts batches that cannot be decompressed or whose records contradict the header. `not_opened`
    counts batches that were not read whole because they exceed a limit of bytes or records, which is no fault.
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
        """Read `source` from `start_position`, where a batch must begin, to the end of the source. Call it once.

        Raises:
            RemoteStorageError: the source raised it.
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
        """Read the type of the batch that was added last, if it is a control batch; open the batch if one is due."""
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
    """Checks headers.

    `impossible` counts contradictions in headers that no broker writes; a batch may have several. `thinned` counts
    batches with fewer records than offsets. Only compaction removes records of a batch: a topic that was compacted once
    may hold such batches.
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
        unknown_control = np.zeros(len(table), dtype=np.bool_)
        unknown_control[[row for row, control_of in table.controls.items() if control_of not in _MARKERS]] = True
        refuse((attributes & ~_KNOWN_FLAGS) != 0, "unknown attributes")
        refuse(codec > Codec.ZSTD, "an unknown codec")
        refuse(table.last_offsets < table.base_offsets, "a last offset below the base offset")
        refuse((records < 0) | (records > slots), "a record count that exceeds its offsets or is negative")
        refuse((codec == Codec.NONE) & (records > _most_records(table)), "more records than fit into its bytes")
        refuse(table.column("max_timestamp") < NO_TIMESTAMP, "a timestamp below -1")
        refuse((producer >= 0) & (table.column("producer_epoch") < 0), "a producer without an epoch")
        refuse(producer < NO_PRODUCER, "an impossible producer id")
        refuse(table.is_transactional & (producer < 0), "a transaction without a producer")
        refuse(control & ~table.is_transactional, "a control batch outside of a transaction")
        refuse(control & ((codec != Codec.NONE) | (records != 1) | (slots != 1)), "not one uncompressed record")
        refuse(unknown_control, "a control record that is neither ABORT nor COMMIT")
        self.thinned.add_rows(
            (records >= 0) & (records < slots), lambda row: f"{table.named(row)} holds {records[row]} records"
        )


def _most_records(table: BatchTable) -> NDArray[np.int64]:
    return (table.sizes_bytes - HEADER_SIZE) // MIN_RECORD_BYTES


class Timestamps:
    """Finds the largest timestamp (-1 if no batch has one); `above` counts batches that exceed `max_timestamp_ms`."""

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
    """Checks that offsets run from `start_offset` to `end_offset` (both inclusive), without gaps or repetitions.

    A batch is misplaced if it is not wholly in the range, or begins at or below an offset of an earlier batch in it.
    The offsets of a batch that is not wholly in the range do not count as found. With `begins_anywhere` the first batch
    may begin at any offset of the range, because the batches before it were not read.
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
        """Count the offsets after the last batch, up to the end offset, as missing."""
        if self._reached < self._end_offset:
            self._add_missing(self._reached + 1, self._end_offset, self._end_offset - self._reached)

    def _add_missing(self, first: int, last: int, count: int) -> None:
        self.missing.add(f"offsets {first}..{last} are in no batch", count)


class EpochOrder:
    """Checks that every batch has the leader epoch of its offsets in `leader_epochs`.

    A batch with offsets of two entries is wrong. If the history was cut at its front, batches that end before its first
    entry are wrong only if their epochs fall, or exceed that entry's epoch.
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
                f"{table.named(row)} has leader epoch {epochs[row]}, the metadata has {self._epochs[known[row]]}"
                f" from offset {self._starts[known[row]]}"
            ),
        )
        self._before = int(epochs[-1])
