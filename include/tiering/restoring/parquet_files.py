"""The records of one restored segment as Parquet files: one directory for each date, one schema for all.

    date=2026-11-27/orders-0-00000000000000000000-0.parquet

The date is that of the record's timestamp in UTC; it is a column for readers that know partitions (Spark, DuckDB). The
other columns are those of Spark's Kafka source, always with headers (`formats.record_columns`). Records are exactly
those that a consumer gets: no control records, none outside of the wanted offsets, and with `committed` none of aborted
transactions. Every batch and the whole log are checked as for segment files.

Records arrive some megabytes at a time, each time as one row group of a date. At most `MOST_OPEN` files are open: where
a segment has more dates, a file is closed, and another one of its date is begun later. So a segment may have several
files of a date, with ascending numbers at the end of their names.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from include.tiering.errors import FormatError
from include.tiering.formats.record_batch import HEADER_SIZE
from include.tiering.formats.record_columns import HEADERS, SCHEMA, ColumnBatch, RecordColumns
from include.tiering.reading.scan import AbortedBatches
from include.tiering.restoring.plan import RestoredPart, RestorePart
from include.tiering.restoring.restore_segments import restored_part
from include.tiering.restoring.segment_files import WrittenLog, checked_batches, require_source
from include.tiering.restoring.target import RestoreTarget, sync

MOST_OPEN: Final = 8
FILE_SCHEMA: Final = SCHEMA.append(HEADERS)
NO_DATE: Final = "date=__HIVE_DEFAULT_PARTITION__"
"""Of timestamps outside of the years 1 to 9999, for which readers have no date."""
_HIDDEN: Final = ("_", ".")
"""Spark and Hive do not read files whose names begin so, and the names of topics may."""
_VISIBLE: Final = "topic-"
_DAY_US: Final = 24 * 60 * 60 * 1_000_000
_FIRST_DAY: Final = int(np.datetime64("0001-01-01", "D").astype(np.int64))
_LAST_DAY: Final = int(np.datetime64("9999-12-31", "D").astype(np.int64))


def write_parquet(part: RestorePart, blocks: Iterable[bytes], target: RestoreTarget) -> RestoredPart:
    """Write the records of a part as `.partial` files, and return the part with the sizes of its files.

    Raises:
        FormatError: the log is damaged, or has a timestamp that no column can hold.
    """
    written = WrittenLog(next_offset=part.last_offset + 1)
    with ExitStack() as stack:
        files = _DatedFiles(part, target, stack)
        for batch in _columns_of(part, blocks, written):
            files.write(batch)
        require_source(part, written)
        files.close()
    written.crc32c = written.source_crc32c
    return restored_part(part, written, files.sizes)


def _columns_of(part: RestorePart, blocks: Iterable[bytes], written: WrittenLog) -> Iterator[ColumnBatch]:
    columns = RecordColumns(part.partition.topic, part.partition.partition, include_headers=True)
    aborted = AbortedBatches(part.aborted)
    for position, header, batch, _ in checked_batches(part, blocks, written):
        if header.is_control or header.last_offset < part.first_offset or header.base_offset > part.last_offset:
            continue
        if aborted.has(header):
            continue
        try:
            columns.add(header, batch[HEADER_SIZE:], part.first_offset, part.last_offset)
        except FormatError as error:
            raise type(error)(f"the batch at offset {header.base_offset}: {error.message}", position) from error
        written.batches += 1
        if columns.is_full:
            written.records += columns.rows
            yield columns.take()
    if columns.rows:
        written.records += columns.rows
        yield columns.take()


def _directory_of(day: int) -> str:
    if not _FIRST_DAY <= day <= _LAST_DAY:
        return NO_DATE
    return f"date={np.datetime64(day, 'D')}"


class _DatedFiles:
    """The open files of one segment, by date; the one that was used last is closed last."""

    def __init__(self, part: RestorePart, target: RestoreTarget, stack: ExitStack) -> None:
        name = str(part.partition)
        self._stem = f"{_VISIBLE if name.startswith(_HIDDEN) else ''}{name}-{part.base_offset:020d}"
        self._target = target
        self._stack = stack
        self._open: dict[str, tuple[str, Any, BinaryIO]] = {}
        self._numbers: dict[str, int] = {}
        self.sizes: dict[str, int] = {}

    def write(self, batch: ColumnBatch) -> None:
        """Write records, those of each date into its file."""
        times = batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
        days = np.floor_divide(times, _DAY_US)
        for day in np.unique(days).tolist():
            chosen = days == day
            rows = batch if chosen.all() else batch.filter(pa.array(chosen))
            self._writer(_directory_of(day)).write_batch(rows)

    def close(self) -> None:
        """Close all files, and write them to disk."""
        for directory in list(self._open):
            self._close(directory)

    def _writer(self, directory: str) -> Any:
        found = self._open.pop(directory, None)
        if found is None:
            if len(self._open) >= MOST_OPEN:
                self._close(next(iter(self._open)))
            found = self._begin(directory)
        self._open[directory] = found
        return found[1]

    def _begin(self, directory: str) -> tuple[str, Any, BinaryIO]:
        self._target.subdirectory(directory)
        number = self._numbers.get(directory, 0)
        self._numbers[directory] = number + 1
        name = f"{directory}/{self._stem}-{number}.parquet"
        file = self._stack.enter_context(self._target.new_file(name))
        return name, pq.ParquetWriter(file, FILE_SCHEMA, compression="zstd"), file

    def _close(self, directory: str) -> None:
        name, writer, file = self._open.pop(directory)
        writer.close()
        sync(file)
        self.sizes[name] = file.tell()
        file.close()
