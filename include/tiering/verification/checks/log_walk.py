"""One pass over the batches of a log, or of a part of it: what is wrong with each by itself, and a table of headers for
whoever judges how they stand together.

Nothing is held but one block, one table and what the judges keep. A batch with a wrong CRC is counted and passed over
by its length; where a header cannot be one, the batches end and the rest is unreadable.

Batches are opened, their records counted, as long as that stays cheap: until a MiB of records was seen, then about one
byte in 64. A batch that is larger than a block is not opened, and none is after one that could not be.

A batch of a few KiB may be gigabytes once opened, and right: any producer may send it. Of such a batch only so much is
opened (`formats/codecs.py`, `formats/records.py`), in pieces. What comes out of a log of n bytes is thus bounded by
n / 64, one MiB and what is opened of one batch, whatever it holds; no clock is asked.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from include.tiering.errors import FormatError
from include.tiering.formats.codecs import Decompressor
from include.tiering.formats.log_batches import DEFAULT_BLOCK_BYTES, BatchStream, Fields
from include.tiering.formats.record_batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAX_OFFSET,
    BatchHeader,
    Codec,
    ControlType,
    control_type,
)
from include.tiering.formats.records import check_records
from include.tiering.model.segment_data import ByteSource
from include.tiering.units import MIB
from include.tiering.verification.checks.faults import Faults
from include.tiering.verification.checks.log_table import TABLE_BATCHES, BatchTable, TableBuilder

_OPENED_AT_FIRST_BYTES: Final = MIB
_OPENED_SHARE_SHIFT: Final = 6


class LogJudge(Protocol):
    """Sees every batch once, in order."""

    def take(self, table: BatchTable) -> None: ...


class LogWalk:
    """What is wrong with batches by themselves.

    `unreadable`: bytes from the first on that cannot begin a batch. `wrong_crcs` and `unopened` count batches, and so
    does `not_opened`, which is no fault: more would come out of these than is opened.
    """

    def __init__(self, judges: Iterable[LogJudge], decompressor: Decompressor | None = None) -> None:
        self.batches = 0
        self.unreadable = Faults()
        self.wrong_crcs = Faults()
        self.unopened = Faults()
        self.not_opened = Faults()
        self._judges = tuple(judges)
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
                    self._look_inside(stream, position, fields)
                if in_table == TABLE_BATCHES:
                    self._judge()
        except FormatError as error:
            self.unreadable.add(str(error), max(source.size_bytes - error.position, 1))
        self._judge()

    def _judge(self) -> None:
        table = self._table.take()
        self.batches += len(table)
        for judge in self._judges if len(table) else ():
            judge.take(table)

    def _on_wrong_crc(self, error: FormatError) -> None:
        self.wrong_crcs.add(str(error))
        self._wrong_crc_at = error.position

    def _look_inside(self, stream: BatchStream, position: int, fields: Fields) -> None:
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
