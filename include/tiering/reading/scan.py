"""Read ranges of segments as columns, in the order of the log: what a consumer would get, and nothing twice.

A scan has a plan (`plan_scan`), whose tasks may be read by different processes. A task is a list of `SegmentRange`s of
one partition; each is a range of one stored log, from the start of a batch to the start of another, with the offsets
that are wanted. Its batches are checked and decoded one after another:

    left out                 control batches; with `committed`, batches of aborted transactions; batches that are
                             outside of the offsets, which only the first and the last batches of a range can be
    RemoteChecksumError      a batch with a wrong CRC-32C, length or magic, records that break their format, or offsets
                             that do not follow those before: a store that answers with other bytes of the log, or with
                             another log, must not make a record be missing or come twice

All bytes are charged to the fetch quota before they are read, so a scan waits as long as the quota holds it back.
While a range is decoded, the next ones are read: as many at the same time as have `_AHEAD_BYTES` together, which is
about what a scan holds. A range of more than `RANGE_BYTES` is read in parts of that size, one request each, and those
of the next segment follow without a pause. The first range is read alone, and as `parallel_reads` says more begin while
that is of use, so that a short read, or a near store, costs few threads.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from include.tiering.clock import Clock, SystemClock
from include.tiering.errors import FormatError, RemoteChecksumError, RemoteStorageError
from include.tiering.formats.indexes import AbortedTxn
from include.tiering.formats.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    check_codec,
    check_crc,
    check_follows,
    header_at,
)
from include.tiering.model.segments import RemoteLogSegmentMetadata
from include.tiering.quotas.contract import NAMELESS_CLIENT, ByteLimiter, QuotaKind, Quotas
from include.tiering.remote_storage.contract import LogParts, RemoteStorage, is_unread
from include.tiering.remote_storage.parallel_reads import MOST_RANGES, RANGE_BYTES, Reading, blocks_in_order
from include.tiering.telemetry import for_partition, get_logger
from include.tiering.units import format_duration

if TYPE_CHECKING:
    from include.tiering.formats.record_columns import ColumnBatch, RecordColumns

_log: Final = get_logger(__name__)
_SAID_SECONDS: Final = 5.0
_AHEAD_BYTES: Final = MOST_RANGES * RANGE_BYTES


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """A range of one segment's log, and what is wanted of it. It can be pickled, and holds no secret.

    Attributes:
        segment: the segment.
        start_position: where the first batch begins.
        end_position: where the last batch ends (exclusive).
        first_offset: the first offset that is wanted (inclusive).
        last_offset: the last offset that is wanted (inclusive).
        aborted: transactions that touch these offsets, and whose records are left out.
        known_ends: offsets at which batches of the range end, ascending, if they are known from the offset index.
    """

    segment: RemoteLogSegmentMetadata
    start_position: int
    end_position: int
    first_offset: int
    last_offset: int
    aborted: tuple[AbortedTxn, ...] = ()
    known_ends: tuple[int, ...] = ()

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.start_position


@contextmanager
def damage_of(segment: RemoteLogSegmentMetadata, storage: RemoteStorage) -> Iterator[None]:
    """Raise RemoteChecksumError for a FormatError: stored bytes of the segment break their format.

    What led to these bytes may be what is wrong: nothing of the segment that is kept on this host is used again.
    """
    try:
        yield
    except FormatError as error:
        storage.forget(segment)
        raise RemoteChecksumError(f"{segment.remote_log_segment_id} is damaged in the store: {error}") from error
    except RemoteStorageError as error:
        if not is_unread(error):
            storage.forget(segment)
        raise


def batches_of(blocks: Iterable[bytes], position: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield the batches of consecutive blocks: position in the log, header, and all bytes of the batch.

    The first block must begin where a batch does, at `position`. A batch's bytes are valid until the next one.

    Raises:
        FormatError: a header is invalid, or the blocks end within a batch. The CRC-32C is not compared.
    """
    begun = bytearray()
    for block in blocks:
        rest = memoryview(block)
        while rest:
            if not begun and len(rest) >= HEADER_SIZE:
                header = header_at(rest, 0, position)
                if len(rest) >= header.size_bytes:
                    yield position, header, rest[: header.size_bytes]
                    position, rest = position + header.size_bytes, rest[header.size_bytes :]
                    continue
            # Only a batch that goes on in the next block is copied.
            rest = _moved(rest, begun, HEADER_SIZE)
            if len(begun) < HEADER_SIZE:
                continue
            header = header_at(begun, 0, position)
            rest = _moved(rest, begun, header.size_bytes)
            if len(begun) == header.size_bytes:
                yield position, header, memoryview(begun)
                position, begun = position + header.size_bytes, bytearray()
    if begun:
        raise FormatError(f"{len(begun)} bytes are left over", position)


def _moved(rest: memoryview, begun: bytearray, size_bytes: int) -> memoryview:
    """Move bytes to the end of `begun` until it has `size_bytes`; return the others."""
    missing = max(size_bytes - len(begun), 0)
    begun += rest[:missing]
    return rest[missing:]


class AbortedBatches:
    """Tells which batches belong to an aborted transaction."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._by_producer: dict[int, list[AbortedTxn]] = {}
        for transaction in aborted:
            self._by_producer.setdefault(transaction.producer_id, []).append(transaction)

    def has(self, header: BatchHeader) -> bool:
        """Return whether a batch of records, not a control batch, is part of one of the transactions."""
        if not header.is_transactional or header.producer_id not in self._by_producer:
            return False
        return any(
            transaction.first_offset <= header.last_offset and header.base_offset < transaction.last_offset
            for transaction in self._by_producer[header.producer_id]
        )


class Scanner:
    """Reads the ranges of a plan, one task at a time. Not thread-safe.

    Args:
        storage: of the segments.
        quotas: to which all that is read is charged.
        client: whose fetch quota applies.
        at_once: how many segments are read at the same time at most.
        clock: of the lines about what the quota holds back.
    """

    def __init__(
        self,
        storage: RemoteStorage,
        quotas: Quotas,
        *,
        client: str = NAMELESS_CLIENT,
        at_once: int = MOST_RANGES,
        clock: Clock | None = None,
    ) -> None:
        self._storage = storage
        self._quotas = quotas
        self._client = client
        self._at_once = at_once
        self._clock = clock or SystemClock()

    def read(self, ranges: Sequence[SegmentRange], columns: "RecordColumns") -> "Iterator[ColumnBatch]":
        """Yield the records of ranges of one partition, in order, some megabytes at a time.

        Args:
            ranges: a task of a plan.
            columns: where the records are collected; empty.

        Raises:
            RemoteChecksumError: the stored bytes of a segment are damaged.
            RemoteStorageError: the store refused or failed.
        """
        with closing(self._blocks_of(ranges, _HeldBack(self._clock))) as found:
            for each, blocks in found:
                with damage_of(each.segment, self._storage):
                    yield from _decoded(each, blocks, columns)
        if columns.rows:
            yield columns.take()

    def _blocks_of(
        self, ranges: Sequence[SegmentRange], held_back: "_HeldBack"
    ) -> Generator[tuple[SegmentRange, Iterator[bytes]], None, None]:
        """Yield the bytes of each range, while the next ones are read."""
        reads = [self._read_of(each) for each in ranges]
        parts = [
            (each.size_bytes // len(read.parts), partial(self._blocks, part, each, held_back))
            for each, read in zip(ranges, reads, strict=True)
            for part in read.parts
        ]
        with closing(blocks_in_order(parts, at_once=self._at_once, most_bytes=_AHEAD_BYTES)) as found:
            for each, read in zip(ranges, reads, strict=True):
                blocks = chain.from_iterable(islice(found, len(read.parts)))
                yield each, read.restored(blocks)
                # The last record that was restored may be before the last block.
                deque(blocks, maxlen=0)

    def _read_of(self, each: SegmentRange) -> "_Read":
        """Return how to read a range. A small one is read and restored as a whole, in the thread that reads it."""
        first, last = each.start_position, each.end_position - 1
        if each.size_bytes <= RANGE_BYTES:

            def whole(limiter: ByteLimiter) -> Iterator[bytes]:
                return self._storage.open_log_segment(each.segment, limiter=limiter).log(first, last)

            return _Read((whole,))
        parts = self._storage.open_log_parts(each.segment, first, last)
        return _Read(tuple(partial(_part, parts, number) for number in range(len(parts))), parts.restored)

    def _blocks(
        self, read: "_ReadPart", each: SegmentRange, held_back: "_HeldBack", reading: Reading
    ) -> Iterator[bytes]:
        segment = each.segment
        topic = segment.topic_id_partition.topic
        limiter = self._quotas.fetch(segment.broker_id, topic, self._client, go_on=reading.go_on)
        reading.limiter = limiter
        try:
            yield from held_back.telling(read(limiter), each, limiter)
        finally:
            self._quotas.held_back(QuotaKind.FETCH, limiter.waited_seconds)


_ReadPart = Callable[[ByteLimiter], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class _Read:
    """How a range is read: its parts in order, and what makes the bytes of the log of them."""

    parts: tuple[_ReadPart, ...]
    restored: Callable[[Iterator[bytes]], Iterator[bytes]] = iter


def _part(parts: LogParts, number: int, limiter: ByteLimiter) -> Iterator[bytes]:
    return parts.read(number, limiter=limiter)


def _decoded(each: SegmentRange, blocks: Iterable[bytes], columns: "RecordColumns") -> "Iterator[ColumnBatch]":
    aborted = AbortedBatches(each.aborted)
    next_offset, end_offset = each.segment.start_offset, each.segment.end_offset
    # No checksum covers a base offset. Batches that follow each other and end where the index says are the wanted ones.
    known_ends = deque(each.known_ends)
    for position, header, batch in batches_of(blocks, each.start_position):
        check_follows(header, next_offset, position)
        if header.last_offset > end_offset:
            raise FormatError(f"offset {header.last_offset} is above {end_offset}, the segment's last one", position)
        if known_ends and header.last_offset >= known_ends[0]:
            if header.last_offset != known_ends[0]:
                break
            known_ends.popleft()
        next_offset = header.last_offset + 1
        if header.base_offset > each.last_offset:
            continue
        check_crc(header, batch, position)
        if header.is_control or header.last_offset < each.first_offset or aborted.has(header):
            continue
        try:
            check_codec(header, position)
            columns.add(header, batch[HEADER_SIZE:], each.first_offset, each.last_offset)
        except FormatError as error:
            raise type(error)(f"the batch at offset {header.base_offset}: {error.message}", position) from error
        if columns.is_full:
            yield columns.take()
    if known_ends:
        raise FormatError(
            f"no batch ends at offset {known_ends[0]}, where the offset index has one", each.start_position
        )


class _HeldBack:
    """Tells how long the fetch quota has held back a task: after `_SAID_SECONDS`, and whenever that has doubled.

    Ranges that wait at the same time count once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counted_until = clock.monotonic()
        self._seconds = 0.0
        self._due_seconds = _SAID_SECONDS

    def telling(self, blocks: Iterable[bytes], each: SegmentRange, limiter: ByteLimiter) -> Iterator[bytes]:
        """Yield the blocks of a range; a block has waited as long as its limiter has, since the block before."""
        waited_seconds = 0.0
        for block in blocks:
            self._add(limiter.waited_seconds - waited_seconds, each)
            waited_seconds = limiter.waited_seconds
            yield block

    def _add(self, seconds: float, each: SegmentRange) -> None:
        if not seconds:
            return
        with self._lock:
            now = self._clock.monotonic()
            self._seconds += min(seconds, now - self._counted_until)
            self._counted_until = now
            held_seconds = self._seconds
            if held_seconds < self._due_seconds:
                return
            self._due_seconds = 2 * held_seconds
        for_partition(_log, each.segment.topic_id_partition).warning(
            "the fetch quota has held back this read for %s, now at offsets %s..%s",
            format_duration(held_seconds),
            each.first_offset,
            each.last_offset,
        )
