"""Read a partition's remote record bytes back into files, without a broker.

One file per served segment, named like the broker's own `.log`. A file appears only when its length and CRC-32C equal
what the check pass saw in the source; a crash leaves a `.partial` file, which the next call overwrites.

Where somebody decided to follow another history (`model.histories`), what an older one holds behind that offset is
left out by name: it answers to those who ask by leader epoch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from include.tiering.errors import RemoteChecksumError, TieringError
from include.tiering.formats.crc32c import extend_crc32c
from include.tiering.model.histories import OffsetRange, part_of_history, said_of
from include.tiering.model.ids import TopicIdPartition
from include.tiering.quotas.contract import ByteLimiter, Quotas
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow

_BY_EPOCH: Final = "read it with --offset and --epoch"


@dataclass(frozen=True, slots=True)
class FetchedSegment:
    """One segment. `path` is where its records are, or None with the reason in `refused`; `by_decision` if that is no
    fault: somebody decided so. `said` are sentences about other histories of its offsets."""

    row: SegmentRow
    path: Path | None
    refused: str | None = None
    by_decision: bool = False
    said: tuple[str, ...] = ()


def fetch_partition(
    partition: TopicIdPartition,
    output_dir: Path,
    *,
    metadata: RemoteLogMetadata,
    storage: RemoteStorage,
    quotas: Quotas,
) -> Iterator[FetchedSegment]:
    """Fetch every FINISHED segment in offset order; one that is not served or fails is named and passed over.

    So is one wholly below the partition's log start: its records were given up, though they may not be gone yet. Of
    copies that begin at one offset (a new leader's segment was longer) the longest served one is the file: it holds
    what the others hold, as they do for a lookup.
    """
    target = output_dir / str(partition)
    target.mkdir(parents=True, exist_ok=True)
    last_fetched: tuple[int, int] | None = None
    divergences = metadata.divergences(partition)
    log_start_offset = metadata.partition_truth(partition).log_start_offset
    # Of one start offset the newest history comes first; within one the order stays.
    rows = sorted(metadata.list_segments(partition), key=lambda row: (row.metadata.start_offset, -row.history))
    for row in rows:
        place = (row.metadata.start_offset, row.history)
        if not row.metadata.is_finished or place == last_fetched:
            continue
        if row.metadata.end_offset < log_start_offset:
            yield FetchedSegment(row, None, f"below the log start, {log_start_offset}: expiration deletes it")
            continue
        refused = () if row.verdict.is_served else (f"not served: its verdict is {row.verdict}",)
        part = part_of_history(row.metadata, row.history, divergences)
        offsets = OffsetRange(row.metadata.start_offset, row.metadata.end_offset)
        said = said_of(part or offsets, row.history, divergences)
        if part is None:
            yield FetchedSegment(row, None, "; ".join((*said, *(refused or (_BY_EPOCH,)))), by_decision=True)
            continue
        if refused:
            yield FetchedSegment(row, None, *refused)
            continue
        limiter = quotas.fetch(row.metadata.broker_id, partition.topic)
        try:
            is_second = last_fetched is not None and last_fetched[0] == row.metadata.start_offset
            path = _fetch_log(row, target / _name(row, is_second=is_second), storage, limiter)
        except TieringError as error:
            yield FetchedSegment(row, None, str(error))
        else:
            last_fetched = place
            yield FetchedSegment(row, path, said=said_of(offsets, row.history, divergences))


def _name(row: SegmentRow, *, is_second: bool) -> str:
    """A broker has one file of a start offset; an older history may have a second, for what lies before the other."""
    history = f".history-{row.history}" if is_second else ""
    return f"{row.metadata.start_offset:020d}{history}.log"


def _fetch_log(row: SegmentRow, final: Path, storage: RemoteStorage, limiter: ByteLimiter) -> Path:
    partial = final.with_suffix(".partial")
    crc32c = size_bytes = 0
    with partial.open("wb") as out:
        for block in storage.fetch_log_segment(row.metadata, limiter=limiter):
            crc32c = extend_crc32c(crc32c, block)
            size_bytes += len(block)
            out.write(block)
    expected = (row.metadata.segment_size_bytes, row.log_crc32c)
    if size_bytes != expected[0] or (expected[1] is not None and crc32c != expected[1]):
        raise RemoteChecksumError(
            f"{row.metadata.remote_log_segment_id}: fetched {size_bytes} bytes with CRC-32C {crc32c:08x}, "
            f"the source had {expected[0]} bytes with {expected[1]}"
        )
    partial.replace(final)
    return final
