"""A shallow look at the log: the first batch, and those from the last entry of the offset index on.

Two or three ranges of a few KiB, as long as the offset index reaches to the end as a broker's does. Where it does not,
the way from its last entry to the end is read: it ends where the segment must end.
"""

from functools import partial
from typing import Final, NamedTuple

from include.tiering.errors import FormatError
from include.tiering.formats.record_batch import HEADER_SIZE, NO_TIMESTAMP, parse_header
from include.tiering.model.segment_data import IndexType
from include.tiering.units import KIB
from include.tiering.verification.checks.contents import SegmentContents
from include.tiering.verification.checks.faults import Faults
from include.tiering.verification.checks.index_faults import offset_entries
from include.tiering.verification.checks.log_judges import BatchJudges, fill_time_index_end
from include.tiering.verification.checks.log_walk import LogWalk
from include.tiering.verification.checks.sheet import Sheet

_BLOCK_BYTES: Final = 64 * KIB


class _Part(NamedTuple):
    """What was seen of the bytes from `first` on, where batches must begin."""

    first: int
    walk: LogWalk
    judges: BatchJudges

    @property
    def faults(self) -> list[Faults]:
        walk, judges = self.walk, self.judges
        return [
            walk.unreadable,
            walk.wrong_crcs,
            walk.unopened,
            judges.order.misplaced,
            judges.order.missing,
            judges.epochs.wrong,
            judges.headers.impossible,
            judges.times.above,
        ]


def fill_ends(sheet: Sheet, contents: SegmentContents) -> None:
    """Fills the columns of both ends, and that of the time index's."""
    largest_ms = NO_TIMESTAMP
    not_opened: dict[int, Faults] = {}
    for column, probe in (("first_batch_faults", _first_batch), ("last_batch_faults", _last_batches)):
        part = sheet.attempt((column,), partial(probe, contents))
        if part is not None:
            sheet.count(column, *part.faults)
            largest_ms = max(largest_ms, part.judges.times.largest_ms)
            # The last batches are all of them, the first one included, where the offset index is empty.
            not_opened[part.first] = part.walk.not_opened
    sheet.count("batches_not_opened", *not_opened.values())
    fill_time_index_end(sheet, contents, largest_ms)


def _first_batch(contents: SegmentContents) -> _Part:
    size_bytes = contents.log_bytes()
    if size_bytes < HEADER_SIZE:
        raise FormatError(f"a log of {size_bytes} bytes holds no batch")
    head = bytearray(HEADER_SIZE)
    contents.log_part(0, HEADER_SIZE - 1).read_into(0, memoryview(head))
    header = parse_header(head)
    if header.size_bytes > size_bytes:
        raise FormatError(f"a batch of {header.size_bytes} bytes in a log of {size_bytes}")
    judges = BatchJudges(contents.metadata)
    return _read_part(contents, judges, 0, header.size_bytes)


def _last_batches(contents: SegmentContents) -> _Part:
    metadata, size_bytes = contents.metadata, contents.log_bytes()
    index = offset_entries(contents.index(IndexType.OFFSET), metadata)
    position = int(index.positions[-1]) if len(index) else 0
    if not 0 <= position < size_bytes:
        raise FormatError(f"the offset index ends at byte {position} of {size_bytes}")
    judges = BatchJudges(metadata, begins_anywhere=position > 0)
    part = _read_part(contents, judges, position, size_bytes)
    judges.order.end()
    return part


def _read_part(contents: SegmentContents, judges: BatchJudges, first: int, end: int) -> _Part:
    """The bytes from `first` to `end` (exclusive), where batches must begin and end."""
    walk = LogWalk(judges.all)
    walk.read(contents.log_part(first, end - 1), first, _BLOCK_BYTES)
    return _Part(first, walk, judges)
