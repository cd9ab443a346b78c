"""The rolled segments of a partition: by names, sizes and the last time index entry, or every batch of them."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Final

from include.tiering.errors import CorruptFileError, FormatError, OldMagicError, SourceError, SourceVanishedError
from include.tiering.formats import time_index
from include.tiering.formats.index_entries import check_length
from include.tiering.formats.log_end import iter_headers
from include.tiering.formats.record_batch import NO_TIMESTAMP
from include.tiering.kafka.log_dirs.files import BrokerDirectory
from include.tiering.kafka.log_dirs.found_replica import FoundSegment
from include.tiering.kafka.log_dirs.listing import Listing, LogFile
from include.tiering.kafka.log_dirs.names import FileKind, offset_file
from include.tiering.kafka.log_dirs.parsing import in_file
from include.tiering.kafka.log_dirs.segment_files import SegmentFiles
from include.tiering.model.leader_epochs import LeaderEpochs

_SEGMENT_KINDS: Final = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)

_MOST_KNOWN: Final = 10_000


class KnownTimestamps:
    """Largest timestamps of rolled segments, which do not change: who copies one segment after another reads a replica
    again for each. A segment is known by its directory's inode, base offset, size and modification time.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, int], LogFile], int] = {}

    def largest(self, directory: BrokerDirectory, log: LogFile) -> int:
        key = directory.identity(), log
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[key] = _largest_timestamp(directory, log)
        return known


def read_rolled_segments(
    directory: BrokerDirectory,
    listing: Listing,
    leader_epochs: LeaderEpochs,
    *,
    deep: bool,
    on_error: Callable[[SourceError], None],
    known: KnownTimestamps,
) -> list[FoundSegment]:
    """What is wrong with one segment is reported and marks it as corrupt; whether one that lacks offsets is, is not
    decided here.

    Raises:
        SourceVanishedError: a file went away since it was listed: list again.
    """
    rolled = []
    for log, successor in pairwise(listing.logs):
        found = FoundSegment(
            base_offset=log.base_offset,
            next_base_offset=successor.base_offset,
            size_bytes=log.size_bytes,
            max_timestamp_ms=NO_TIMESTAMP,
            active=False,
            has_producer_snapshot=listing.has(FileKind.PRODUCER_SNAPSHOT, successor.base_offset),
        )
        try:
            if _is_refused(listing, found) or _is_followed_by_a_lost_one(listing, found):
                found = replace(found, is_corrupt=True)
            elif log.size_bytes == 0:
                _check_names(directory, listing, log)
                found = replace(found, first_missing_offset=log.base_offset, batch_count=0 if deep else None)
            elif deep:
                found = _checked(directory, found, leader_epochs)
            else:
                _check_names(directory, listing, log)
                found = replace(found, max_timestamp_ms=known.largest(directory, log))
        except OldMagicError:
            found = replace(found, is_old_magic=True)
        except SourceVanishedError:
            raise
        except SourceError as error:
            on_error(error)
            found = replace(found, is_corrupt=True)
        rolled.append(found)
    return rolled


def _is_refused(listing: Listing, found: FoundSegment) -> bool:
    """One of its names is not a file; that was reported when the directory was listed."""
    if not listing.refused:
        return False
    names = [offset_file(found.base_offset, kind) for kind in _SEGMENT_KINDS]
    names.append(offset_file(found.next_base_offset, FileKind.PRODUCER_SNAPSHOT))
    return not listing.refused.isdisjoint(names)


def _is_followed_by_a_lost_one(listing: Listing, found: FoundSegment) -> bool:
    """Then its successor's base offset is not known, and so not its end; that was reported as well."""
    return any(found.base_offset < lost < found.next_base_offset for lost in listing.lost)


def _checked(directory: BrokerDirectory, found: FoundSegment, leader_epochs: LeaderEpochs) -> FoundSegment:
    with SegmentFiles.open(directory, found.base_offset, found.next_base_offset) as files:
        checked = files.check(leader_epochs)
    return replace(
        found,
        max_timestamp_ms=checked.max_timestamp_ms,
        batch_count=checked.facts.batch_count,
        first_missing_offset=checked.facts.first_missing_offset,
    )


def _check_names(directory: BrokerDirectory, listing: Listing, log: LogFile) -> None:
    """An index that is missing beside a `.log` that is still there is damage; else the segment is being deleted."""
    for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
        if not listing.has(kind, log.base_offset):
            directory.stat(offset_file(log.base_offset, FileKind.LOG))
            raise CorruptFileError(directory.path_of(offset_file(log.base_offset, kind)), "missing beside its .log")


def _largest_timestamp(directory: BrokerDirectory, log: LogFile) -> int:
    """The last time index entry; without entries that of the batches, else the file's own time, as brokers do."""
    with directory.file(offset_file(log.base_offset, FileKind.TIME_INDEX)) as index, in_file(index.path):
        check_length(index.size_bytes, time_index.ENTRY_BYTES)
        if index.size_bytes:
            start = index.size_bytes - time_index.ENTRY_BYTES
            timestamp_ms = time_index.timestamp_of(index.read_at(start, time_index.ENTRY_BYTES))
            if timestamp_ms is None:
                raise FormatError("the time index ends in zero entries", start)
            return timestamp_ms
    with directory.file(offset_file(log.base_offset, FileKind.LOG)) as file:
        largest = max((batch.header.max_timestamp for batch in iter_headers(file)), default=NO_TIMESTAMP)
    return largest if largest != NO_TIMESTAMP else log.modified_ms
