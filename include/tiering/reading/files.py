"""Write archived records into files: whole partitions, and record batches that `fetch` has read.

A partition becomes one file per served segment (exceptions: `fetch_partition`), named like the broker's own `.log`,
with a suffix for a second history at the same start offset. A file appears only when its length and CRC-32C equal those
in the metadata (only the length, if the metadata lack the CRC-32C). A crash or an error may leave a `.partial` file,
which the next fetch of this segment overwrites. If a person decided to follow another history from some offset on,
segments of the older history that begin at or above this offset are listed as left out: served ones can be read by
leader epoch.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial as bound
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, Final

from include.tiering.errors import RemoteChecksumError, SettingError, TieringError, printable
from include.tiering.formats.record_batch import extend_crc32c
from include.tiering.model.histories import Divergence, OffsetRange, part_of_history, said_of
from include.tiering.model.segments import TopicIdPartition
from include.tiering.quotas.contract import NAMELESS_CLIENT, ByteLimiter, QuotaKind, Quotas
from include.tiering.reading.fetch import FetchedRecords
from include.tiering.reading.scan import damage_of
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.parallel_reads import Reading, in_order
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow


def require_beside(directory: Path, others: Iterable[Path | None]) -> None:
    """Raise SettingError if a directory is in one of brokers or of a remote storage; None stands for a bucket."""
    for other in others:
        if other is not None and directory.resolve().is_relative_to(other.resolve()):
            raise SettingError(
                f"{printable(str(directory))} is in {printable(str(other))}, a log directory or a remote storage, where"
                " nothing may be written: name another directory"
            )


def write_records(fetched: FetchedRecords, output_dir: Path) -> Path:
    """Write the records to `TOPIC-PARTITION/FIRST-LAST.batches` below `output_dir`, and return this path.

    A crash may leave a `.partial` file, which the next call for these offsets overwrites.
    """
    target = _own_directory(output_dir / str(fetched.fetch.partition))
    final = target / f"{fetched.base_offset:020d}-{fetched.next_offset - 1:020d}.batches"
    partial = final.with_suffix(".partial")
    with _new_file(partial) as out:
        out.write(fetched.records)
    return partial.replace(final)


def _own_directory(path: Path) -> Path:
    """Create the directory if it is absent, and return it.

    Raises:
        SettingError: another user owns it, or it is a link, so that another user decides where files in it are.
    """
    path.mkdir(parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        what = "is no directory" if not stat.S_ISDIR(status.st_mode) else "belongs to another user"
        raise SettingError(f"{printable(str(path))} {what}: name another directory with --output")
    return path


def _new_file(path: Path) -> BinaryIO:
    """Open a new file that only its owner may use, in the place of one with this name. No link is followed."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb")


_BY_EPOCH: Final = "read it with --offset and --epoch"


@dataclass(frozen=True, slots=True)
class FetchedSegment:
    """One segment of a partition.

    Attributes:
        path: the file with its records; None if it was not fetched.
        refused: why it was not fetched; None if it was.
        by_decision: whether it was left out because a person decided to follow another history, which is no failure.
        said: sentences about other histories of its offsets.
    """

    row: SegmentRow
    path: Path | None
    refused: str | None = None
    by_decision: bool = False
    said: tuple[str, ...] = ()


def fetch_partition(
    partition: TopicIdPartition,
    output_dir: Path,
    client: str = NAMELESS_CLIENT,
    *,
    metadata: RemoteLogMetadata,
    storage: RemoteStorage,
    quotas: Quotas,
    at_once: int = 1,
) -> Iterator[FetchedSegment]:
    """Fetch FINISHED segments; yield results in offset order, with the reason if one was not fetched.

    Segments with different start offsets are fetched at the same time, up to `at_once`. Not fetched are segments that
    are not served, segments wholly below the partition's log start offset (their records count as deleted), and
    segments that begin above the end of their history. Several copies of one history may have one start offset, because
    a new leader's segment was longer. The longest served copy that can be fetched becomes the file, as it has the
    records of the shorter ones, which are then left out without a result.

    Raises:
        SettingError: the directory belongs to another user, or is a link.
    """
    target = _own_directory(output_dir / str(partition))
    divergences = metadata.divergences(partition)
    log_start_offset = metadata.retention_state(partition).log_start_offset
    # For equal start offsets the newest history comes first, and within a history the longest FINISHED segment.
    rows = sorted(metadata.list_segments(partition), key=lambda row: (row.metadata.start_offset, -row.history))
    finished = (row for row in rows if row.metadata.is_finished)
    groups = [tuple(group) for _, group in groupby(finished, key=lambda row: row.metadata.start_offset)]
    fetcher = _Fetcher(partition, target, client, storage, quotas, divergences, log_start_offset)
    tasks = [bound(fetcher.fetched, group) for group in groups]
    for fetched in in_order(tasks, at_once=at_once, ahead=len(groups)):
        yield from fetched


@dataclass(frozen=True, slots=True)
class _Fetcher:
    """Fetches segments of one partition; thread-safe."""

    partition: TopicIdPartition
    target: Path
    client: str
    storage: RemoteStorage
    quotas: Quotas
    divergences: Sequence[Divergence]
    log_start_offset: int

    def fetched(self, rows: Sequence[SegmentRow], reading: Reading) -> list[FetchedSegment]:
        """Return the results of FINISHED segments with one start offset."""
        results: list[FetchedSegment] = []
        fetched_history: int | None = None
        for row in rows:
            if row.history == fetched_history:
                continue
            result = self._left_out(row) or self._fetch(row, reading, is_second=fetched_history is not None)
            fetched_history = fetched_history if result.path is None else row.history
            results.append(result)
        return results

    def _left_out(self, row: SegmentRow) -> FetchedSegment | None:
        """Return the result of a segment that is not to be fetched; None for any other."""
        if row.metadata.end_offset < self.log_start_offset:
            return FetchedSegment(row, None, f"below the log start, {self.log_start_offset}: expiration deletes it")
        refused = () if row.verdict.is_served else (f"not served: its verdict is {row.verdict}",)
        part = part_of_history(row.metadata, row.history, self.divergences)
        if part is None:
            said = said_of(_offsets(row), row.history, self.divergences)
            return FetchedSegment(row, None, "; ".join((*said, *(refused or (_BY_EPOCH,)))), by_decision=True)
        return FetchedSegment(row, None, *refused) if refused else None

    def _fetch(self, row: SegmentRow, reading: Reading, *, is_second: bool) -> FetchedSegment:
        limiter = self.quotas.fetch(row.metadata.broker_id, self.partition.topic, self.client, go_on=reading.go_on)
        reading.limiter = limiter
        try:
            final = self.target / _name(row, is_second=is_second)
            with damage_of(row.metadata, self.storage):
                path = _fetch_log(row, final, self.storage, limiter, reading.ranges)
            self.quotas.held_back(QuotaKind.FETCH, limiter.waited_seconds)
        except TieringError as error:
            return FetchedSegment(row, None, str(error))
        return FetchedSegment(row, path, said=said_of(_offsets(row), row.history, self.divergences))


def _offsets(row: SegmentRow) -> OffsetRange:
    return OffsetRange(row.metadata.start_offset, row.metadata.end_offset)


def _name(row: SegmentRow, *, is_second: bool) -> str:
    """Return the name that a broker gives the file; it has only the start offset, so a second history gets a suffix."""
    history = f".history-{row.history}" if is_second else ""
    return f"{row.metadata.start_offset:020d}{history}.log"


def _fetch_log(row: SegmentRow, final: Path, storage: RemoteStorage, limiter: ByteLimiter, ranges: int) -> Path:
    partial = final.with_suffix(".partial")
    crc32c = size_bytes = 0
    with _new_file(partial) as out:
        for block in storage.fetch_log_segment(row.metadata, limiter=limiter, ranges=ranges):
            crc32c = extend_crc32c(crc32c, block)
            size_bytes += len(block)
            out.write(block)
    expected_bytes, expected_crc32c = row.metadata.segment_size_bytes, row.log_crc32c
    if size_bytes != expected_bytes or expected_crc32c not in (None, crc32c):
        expected = "unknown" if expected_crc32c is None else f"{expected_crc32c:08x}"
        raise RemoteChecksumError(
            f"{row.metadata.remote_log_segment_id}: fetched {size_bytes} bytes with CRC-32C {crc32c:08x}, "
            f"the source had {expected_bytes} bytes with CRC-32C {expected}"
        )
    partial.replace(final)
    return final
