"""What the indexes of one stored segment say: where offsets and times are in its log, and about transactions.

Each index is read when it is needed, and checked as it is read. Offsets and positions are found as a broker finds them:

    offsets        the range of the log that has them, from the start of a batch to the start of another; it may have
                   some batches before the first offset, and after the last one
    a timestamp    the first record that is not older, control records included, as in Kafka's ListOffsets
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple, TypeVar

from include.tiering.errors import FormatError, NoSuchIndexError, RemoteStorageError
from include.tiering.formats import indexes
from include.tiering.formats.indexes import AbortedTxn, OffsetIndex, ProducerEntry, TimeIndex
from include.tiering.formats.record_batch import HEADER_SIZE, check_crc
from include.tiering.formats.records import Decompressor, records_of
from include.tiering.model.segments import IndexType, RemoteLogSegmentMetadata
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.reading.scan import batches_of, damage_of
from include.tiering.remote_storage.contract import RemoteStorage, is_unread

_T = TypeVar("_T")
Check = Callable[[bytes, RemoteLogSegmentMetadata], _T]
"""Parses an index of a segment. Raises FormatError if it breaks its format, or says what the segment cannot have."""


class Positions(NamedTuple):
    """A range of a log: `start` is where a batch begins, `end` (exclusive) where another does, or the log's end."""

    start: int
    end: int


class StoredIndexes:
    """The indexes of one segment. Not thread-safe.

    All methods read what they need, and raise:
        RemoteChecksumError: an index, or a batch, is damaged.
        RemoteStorageError: the store refused or failed.
    """

    def __init__(self, storage: RemoteStorage, segment: RemoteLogSegmentMetadata, limiter: ByteLimiter) -> None:
        self._storage = storage
        self._segment = segment
        self._limiter = limiter
        self._reader = storage.open_log_segment(segment, limiter=limiter)

    @cached_property
    def _offsets(self) -> OffsetIndex:
        return self._checked(IndexType.OFFSET, offset_index_of)

    @cached_property
    def _times(self) -> TimeIndex:
        return self._checked(IndexType.TIMESTAMP, _time_index_of)

    def positions(self, first_offset: int, last_offset: int) -> Positions:
        """Return where the batches with these offsets are, both inclusive.

        It ends with the second index entry above the last offset, because the batch of the first one may have it.
        """
        index, size_bytes = self._offsets, self._segment.segment_size_bytes
        start = 0 if first_offset <= self._segment.start_offset else index.lookup(first_offset).position
        return Positions(start, position_behind(index, last_offset) or size_bytes)

    def known_ends(self, positions: Positions) -> tuple[int, ...]:
        """Return offsets at which batches of the range end: the first and the last that the offset index names."""
        first, last = (bisect_left(self._offsets.positions, position) for position in positions)
        return tuple(int(self._offsets.offsets[found]) for found in sorted({first, last - 1}) if first <= found < last)

    def split(self, positions: Positions, pieces: int) -> tuple[Positions, ...]:
        """Divide a range between batches, into at most `pieces` pieces of about the same bytes."""
        starts, known = [positions.start], self._offsets.positions
        for number in range(1, pieces):
            wanted = positions.start + (positions.end - positions.start) * number // pieces
            found = bisect_left(known, wanted)
            if found < len(known) and starts[-1] < known[found] < positions.end:
                starts.append(int(known[found]))
        return tuple(Positions(*pair) for pair in pairwise([*starts, positions.end]))

    def offset_at(self, timestamp_ms: int, first_offset: int) -> int | None:
        """Return the first offset, at or above `first_offset`, of a record that is not older; None if there is none.

        Control records count, as they do where a broker looks a timestamp up.
        """
        times = self._times
        with damage_of(self._segment, self._storage):
            found = bisect_left(times.timestamps_ms, timestamp_ms)
            # Up to the entry before it all records are older; that of the entry itself is not.
            first = max(first_offset, int(times.offsets[found - 1]) + 1 if found else 0)
            last = int(times.offsets[found]) if found < len(times) else self._segment.end_offset
            here = self._first_of(timestamp_ms, first, max(first, last))
            return here if here is not None else self._first_of(timestamp_ms, first, self._segment.end_offset)

    def _first_of(self, timestamp_ms: int, first_offset: int, last_offset: int) -> int | None:
        if first_offset > self._segment.end_offset:
            return None
        start, end = self.positions(first_offset, last_offset)
        decompressor = Decompressor()
        for position, header, batch in batches_of(self._reader.log(start, end - 1), start):
            if header.max_timestamp < timestamp_ms or header.last_offset < first_offset:
                continue
            check_crc(header, batch, position)
            for record in records_of(header, batch[HEADER_SIZE:], decompressor):
                if record.timestamp_ms >= timestamp_ms and record.offset >= first_offset:
                    return record.offset
        return None

    def aborted(self) -> tuple[AbortedTxn, ...]:
        """Return the aborted transactions whose marker is in this segment. Without an index there are none."""
        if self._segment.txn_index_empty:
            return ()
        try:
            return self._checked_alone(IndexType.TRANSACTION, _aborted_of)
        except NoSuchIndexError:
            return ()

    def open_transactions(self) -> dict[int, int]:
        """Return the first offset of each transaction that is open at the segment's end, by producer id."""
        producers = self._checked_alone(IndexType.PRODUCER_SNAPSHOT, _producers_of)
        return {each.producer_id: each.current_txn_first_offset for each in producers if each.has_open_transaction}

    def _checked(self, index_type: IndexType, check: Check[_T]) -> _T:
        """Return one index. The others are read with it, and kept for later calls."""

        def again() -> bytes:
            self._reader = self._storage.open_log_segment(self._segment, limiter=self._limiter)
            return self._reader.index(index_type)

        return checked(self._storage, self._segment, check, lambda: self._reader.index(index_type), again)

    def _checked_alone(self, index_type: IndexType, check: Check[_T]) -> _T:
        """Return one index. The others, which may have megabytes, are not read with it."""
        read = partial(self._storage.fetch_index, self._segment, index_type, limiter=self._limiter)
        return checked(self._storage, self._segment, check, read)


def position_behind(index: OffsetIndex, offset: int) -> int | None:
    """Return the position of the second entry above an offset, before which the offset is; None if there is none.

    The batch of the first such entry may have it.
    """
    found = bisect_right(index.offsets, offset) + 1
    return int(index.positions[found]) if found < len(index) else None


def offset_index_of(data: bytes, segment: RemoteLogSegmentMetadata) -> OffsetIndex:
    return indexes.check_offset_index(
        data,
        base_offset=segment.start_offset,
        end_offset=segment.end_offset,
        size_bytes=segment.segment_size_bytes,
    )


def _time_index_of(data: bytes, segment: RemoteLogSegmentMetadata) -> TimeIndex:
    return indexes.check_time_index(data, base_offset=segment.start_offset, end_offset=segment.end_offset)


def _aborted_of(data: bytes, segment: RemoteLogSegmentMetadata) -> tuple[AbortedTxn, ...]:
    found = indexes.check_transaction_index(data, base_offset=segment.start_offset, end_offset=segment.end_offset)
    return tuple(found)


def _producers_of(data: bytes, _: RemoteLogSegmentMetadata) -> Sequence[ProducerEntry]:
    return tuple(indexes.parse_producer_snapshot(data))


def checked(
    storage: RemoteStorage,
    segment: RemoteLogSegmentMetadata,
    check: Check[_T],
    read: Callable[[], bytes],
    again: Callable[[], bytes] | None = None,
) -> _T:
    """Read an index of a segment, and check it.

    What was kept on this host is no proof: if it cannot be right, it is forgotten, and the index is read once more.

    Args:
        storage: of the segment.
        segment: whose index it is.
        check: parses it.
        read: reads it.
        again: reads it once more, if `read` would not; None: `read` does.

    Raises:
        RemoteChecksumError: the stored index is damaged.
        RemoteStorageError: as `read`.
    """
    with damage_of(segment, storage):
        try:
            return check(read(), segment)
        except NoSuchIndexError:
            raise
        except (FormatError, RemoteStorageError) as error:
            if is_unread(error) or not storage.forget(segment):
                raise
        return check((again or read)(), segment)
