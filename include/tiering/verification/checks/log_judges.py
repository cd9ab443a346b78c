"""What is asked of the batches of a segment at any depth."""

from typing import Final

from include.tiering.formats.record_batch import NO_TIMESTAMP
from include.tiering.model.segment_data import IndexType
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.verification.checks.contents import SegmentContents
from include.tiering.verification.checks.index_faults import time_entries
from include.tiering.verification.checks.log_headers import HeaderRules, Timestamps
from include.tiering.verification.checks.log_order import EpochOrder, OffsetOrder
from include.tiering.verification.checks.log_walk import LogJudge
from include.tiering.verification.checks.sheet import Sheet

_TIME_INDEX_END: Final = "time_index_unlike_maximum"


class BatchJudges:
    """Order, epochs, headers and timestamps against the metadata."""

    def __init__(self, metadata: RemoteLogSegmentMetadata, *, begins_anywhere: bool = False) -> None:
        self.order = OffsetOrder(metadata.start_offset, metadata.end_offset, begins_anywhere=begins_anywhere)
        self.epochs = EpochOrder(metadata.segment_leader_epochs)
        self.headers = HeaderRules()
        self.times = Timestamps(metadata.max_timestamp_ms)

    @property
    def all(self) -> tuple[LogJudge, ...]:
        return self.order, self.epochs, self.headers, self.times


def fill_time_index_end(sheet: Sheet, contents: SegmentContents, largest_ms: int) -> None:
    """The last entry of a rolled segment's time index has its largest timestamp; only without any it has no entry.

    `largest_ms` is the largest that was seen in batches, -1 if none was.
    """

    def unlike_maximum() -> list[int]:
        index = time_entries(contents.index(IndexType.TIMESTAMP), contents.metadata)
        wanted_ms = contents.metadata.max_timestamp_ms if len(index) or largest_ms != NO_TIMESTAMP else NO_TIMESTAMP
        if index.largest_timestamp_ms == wanted_ms:
            return [0]
        sheet.remark(_TIME_INDEX_END, f"the time index ends at {index.largest_timestamp_ms}, not {wanted_ms}")
        return [1]

    sheet.fill((_TIME_INDEX_END,), unlike_maximum)
