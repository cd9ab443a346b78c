"""Read a partition's remote record bytes back into files, without a broker.

One file per served segment, named like the broker's own `.log`. A file appears only when its length and CRC-32C equal
what the check pass saw in the source; a crash leaves a `.partial` file, which the next call overwrites.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from include.tiering.errors import RemoteChecksumError, TieringError
from include.tiering.formats.crc32c import extend_crc32c
from include.tiering.model.ids import TopicIdPartition
from include.tiering.quota.contract import ByteLimiter, Quotas
from include.tiering.remote_metadata.contract import RemoteLogMetadata, SegmentRow
from include.tiering.remote_storage.contract import RemoteStorage


@dataclass(frozen=True, slots=True)
class FetchedSegment:
    """One segment. `path` is where its records are, or None with the reason in `refused`."""

    row: SegmentRow
    path: Path | None
    refused: str | None = None


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
    last_fetched: int | None = None
    log_start_offset = metadata.partition_truth(partition).log_start_offset
    for row in metadata.list_segments(partition):
        if not row.metadata.is_finished or row.metadata.start_offset == last_fetched:
            continue
        if row.metadata.end_offset < log_start_offset:
            yield FetchedSegment(row, None, f"below the log start, {log_start_offset}: expiration deletes it")
            continue
        if not row.verdict.is_served:
            yield FetchedSegment(row, None, f"not served: its verdict is {row.verdict}")
            continue
        limiter = quotas.fetch(row.metadata.broker_id, partition.topic)
        try:
            path = _fetch_log(row, target, storage, limiter)
        except TieringError as error:
            yield FetchedSegment(row, None, str(error))
        else:
            last_fetched = row.metadata.start_offset
            yield FetchedSegment(row, path)


def _fetch_log(row: SegmentRow, target: Path, storage: RemoteStorage, limiter: ByteLimiter) -> Path:
    final = target / f"{row.metadata.start_offset:020d}.log"
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
