"""What the platform does for a handover: copy, verify, publish, read back, and read free disk space.

The digest of copied records is computed from the bytes in the store. If the segment's row has a checksum of the source,
the stored bytes must have the same. A record batch that is too large to be decoded at once is left out of the digest.
The offsets of such a batch are in `StoredDigest.not_opened` and, if the digests are equal, in the output of the
handover; the digest of the records that consumers get leaves out the same offsets. The checksum is over the whole log,
so it still covers the bytes of such a batch.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from include.tiering.copying.copy_batch import BatchResult
from include.tiering.copying.plan import CopyPlan, HeldBack
from include.tiering.copying.run_scope import RunScope
from include.tiering.copying.service import CopyService
from include.tiering.errors import (
    BatchTooLargeError,
    PublicationRefusedError,
    RemoteChecksumError,
    UnknownSegmentError,
)
from include.tiering.formats.log_batches import BatchStream
from include.tiering.formats.record_batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader
from include.tiering.formats.records import Decompressor, records_of
from include.tiering.handover.checks import StoreProperties
from include.tiering.handover.contract import SeededPartition
from include.tiering.handover.ports import CopyRound, StoredDigest
from include.tiering.kafka.cluster.contract import Brokers, ServedRecords
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.metadata_sync.plan_publication import PublicationPlan
from include.tiering.metadata_sync.publish import Publisher
from include.tiering.model.histories import OffsetRange, without
from include.tiering.model.ownership import Fence, SegmentOrigin
from include.tiering.model.segments import Depth, RangeDigest, RecordDigest, RemoteLogSegmentId, TopicIdPartition
from include.tiering.quotas.contract import ByteLimiter, Quotas
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.parallel_reads import ranges_of_each
from include.tiering.remote_storage.store_ownership import StoreOwnership
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.cluster_log_dirs import is_here
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.settings import TieringSettings
from include.tiering.settings.remote_storage import split_storage_url
from include.tiering.units import MIB
from include.tiering.verification.segment_contents import LogPart
from include.tiering.verification.service import VerificationService

_FOR_A_PERSON: Final = frozenset(
    {
        HeldBack.LOST,
        HeldBack.FAILED_AGAIN,
        HeldBack.STORE_IN_DOUBT,
        HeldBack.COPY_IN_DOUBT,
        HeldBack.HOLE,
        HeldBack.DIVERGENCE,
        HeldBack.NOT_OURS,
        HeldBack.PAST_RETENTION,
    }
)
"""Reasons for which a person has to act before another round. PAST_RETENTION is among them, because segments past the
platform's retention are not copied: they cannot be handed over although brokers still have them."""


class HandoverActions:
    """Implements `PlatformActions` in this process. `depth`: how deeply `verify` reads segments."""

    def __init__(
        self,
        *,
        settings: TieringSettings,
        effective: Callable[[], TieringSettings],
        copying: CopyService,
        verification: VerificationService,
        metadata: RemoteLogMetadata,
        storage: RemoteStorage,
        quotas: Quotas,
        ownership: StoreOwnership,
        publisher: Publisher,
        served: ServedRecords,
        brokers: Brokers,
        depth: Depth,
    ) -> None:
        self._settings = settings
        self._effective = effective
        self._copying = copying
        self._verification = verification
        self._metadata = metadata
        self._storage = storage
        self._quotas = quotas
        self._ownership = ownership
        self._publisher = publisher
        self._served = served
        self._brokers = brokers
        self._depth = depth

    def copy_round(self, topic: str, run_id: str) -> CopyRound:
        plan = self._copying.plan(run_id, scope=RunScope((topic,)), at_once=True)
        results: list[BatchResult] = []
        while plan.partitions and (not results or results[-1].ended is BatchEnd.TIME_OVER):
            results.append(self._copying.run_batch(run_id, f"{run_id}.{len(results)}"))
        copied = sum(len(result.copied) for result in results)
        failures = [failure for result in results for failure in result.failed]
        failed = tuple(
            f"{failure.item.topic_id_partition}: {failure.item.error}: {failure.item.message}" for failure in failures
        )
        needs_a_person = any(held_back.reason in _FOR_A_PERSON for held_back in plan.held_back)
        worth_retrying = not needs_a_person and all(failure.retriable for failure in failures)
        return CopyRound(copied, failed, _held_back(plan), worth_retrying)

    def verify(self, segments: Mapping[TopicIdPartition, frozenset[RemoteLogSegmentId]]) -> None:
        self._verification.verify_segments(segments, self._depth)

    def abandon_empty_copies(self, fence: Fence) -> None:
        self._copying.abandoned_copies().abandon_empty(fence)

    def publish(self, seeded: SeededPartition) -> None:
        # A database restored from a backup of before this step would not know what is published here. The store, whose
        # generation is raised now, refuses such a database.
        self._ownership.claim()
        partition = seeded.topic_id_partition
        _require_decided(self._publisher.plan(partition, log_start_offset=seeded.log_start_offset), seeded)
        run_id = f"handover-publish-{partition.topic_id}"
        self._publisher.publish(
            partition,
            log_start_offset=seeded.log_start_offset,
            run_id=run_id,
            batch_id=f"{run_id}-{partition.partition}",
        )
        self._publisher.confirm(partition)

    def stored_digest(self, partition: TopicIdPartition, start_offset: int, end_offset: int) -> StoredDigest:
        def limiter_of(broker_id: int) -> ByteLimiter:
            return self._quotas.fetch(broker_id, partition.topic)

        ranges = min(self._effective().read.max_segments, ranges_of_each(1))
        return stored_digest(self._metadata, self._storage, limiter_of, partition, start_offset, end_offset, ranges)

    def served_digest(
        self, partition: TopicIdPartition, start_offset: int, end_offset: int, leave_out: Sequence[OffsetRange] = ()
    ) -> RangeDigest:
        digest = RecordDigest()
        for first, last in without(OffsetRange(start_offset, end_offset), leave_out):
            for record in self._served.read(partition, first, last):
                digest.add(record)
        return digest.result()

    def free_bytes(self, broker_id: int) -> int | None:
        known = self._effective().handover.free_bytes
        if known >= 0:
            return known
        paths = [log_dir.path for log_dir in self._settings.log_dirs if log_dir.broker_id == broker_id]
        if not paths:
            return self._brokers.free_bytes(broker_id)
        found = []
        for path in paths:
            # An empty mount point is on another disk than the broker's.
            if is_here(LogDirLocation(broker_id, path)):
                with suppress(OSError):
                    found.append(shutil.disk_usage(path).free)
        return min(found, default=None)


def _require_decided(plan: PublicationPlan, seeded: SeededPartition) -> None:
    """Require that the publication would end at the decided offset; `publish` itself raises if the plan is refused.

    Published records cannot be removed.
    """
    if plan.refused is not None or plan.end_offset == seeded.end_offset:
        return
    waits, end = plan.withheld, plan.end_offset
    would = "have no segment" if end is None else f"end at offset {end}"
    why = "" if waits is None else f": nothing from offset {waits.offset} on can be published, {waits.reason}"
    raise PublicationRefusedError(
        f"{seeded.topic_id_partition}: it was decided to publish up to offset {seeded.end_offset}, but the publication"
        f" would {would}{why}. Nothing was sent"
    )


def _held_back(plan: CopyPlan) -> tuple[str, ...]:
    held = [
        f"{partition.topic_id_partition}, offset {partition.next_offset}: {partition.reason}: {partition.detail}"
        for partition in plan.held_back
    ]
    return (*held, *(f"{error.path}: {error.message}" for error in plan.errors))


_BLOCK_BYTES = 32 * MIB
"""Size in bytes of the largest stored batch that is decoded."""


def stored_digest(
    metadata: RemoteLogMetadata,
    storage: RemoteStorage,
    limiter_of: Callable[[int], ByteLimiter],
    partition: TopicIdPartition,
    start_offset: int,
    end_offset: int,
    ranges: int = 1,
) -> StoredDigest:
    """Return the digest of the records from `start_offset` to `end_offset` (inclusive) in one copied segment.

    Control records are left out, as consumers do not get them.
    `limiter_of` returns the limiter of reads of a broker's segments, by the broker's id. Up to `ranges` ranges of the
    log are read at the same time.

    Raises:
        UnknownSegmentError: no FINISHED segment of the platform has all of these offsets.
        RemoteChecksumError: the checksum of the stored bytes is not that of the source.
        RemoteStorageError: the segment cannot be read.
        FormatError: the segment's log cannot be decoded.
    """
    row = _holding(metadata, partition, start_offset, end_offset)
    limiter = limiter_of(row.metadata.broker_id)
    blocks = storage.fetch_log_segment(row.metadata, limiter=limiter, ranges=ranges)
    log = LogPart(blocks, 0, row.metadata.segment_size_bytes)
    digest, decompressor = RecordDigest(), Decompressor()
    not_opened: list[OffsetRange] = []
    stream = BatchStream(log, _BLOCK_BYTES)
    for position, fields in stream:
        header = BatchHeader._make(fields)
        if header.is_control or header.last_offset < start_offset or header.base_offset > end_offset:
            continue
        payload_bytes = LOG_OVERHEAD + header.batch_length - HEADER_SIZE
        payload = stream.records(position)[:payload_bytes]
        try:
            if len(payload) < payload_bytes:
                raise BatchTooLargeError(f"a batch of {header.size_bytes} bytes", position)
            for record in records_of(header, payload, decompressor):
                if start_offset <= record.offset <= end_offset:
                    digest.add(record)
        except BatchTooLargeError:
            # The error is raised before the first record of the batch is added to the digest.
            not_opened.append(OffsetRange(max(header.base_offset, start_offset), min(header.last_offset, end_offset)))
    if row.log_crc32c is not None and log.crc32c != row.log_crc32c:
        raise RemoteChecksumError(
            f"{row.metadata.remote_log_segment_id}: the stored log has CRC-32C {log.crc32c:08x},"
            f" that of the source was {row.log_crc32c:08x}"
        )
    return StoredDigest(digest.result(), tuple(not_opened))


def _holding(metadata: RemoteLogMetadata, partition: TopicIdPartition, start: int, end: int) -> SegmentRow:
    for row in metadata.list_segments(partition):
        found = row.metadata
        is_ours = row.origin is SegmentOrigin.PLATFORM and found.is_finished
        if is_ours and found.start_offset <= start and end <= found.end_offset:
            return row
    raise UnknownSegmentError(f"{partition}: no segment of this platform has all offsets {start}..{end}")


def store_properties(settings: TieringSettings) -> StoreProperties:
    """Return the properties of the store that the checks compare with the brokers'."""
    remote = settings.remote_storage
    parts = split_storage_url(remote.required_url())
    wants = remote.layout == "aiven" and bool(remote.custom_metadata_fields_include)
    return StoreProperties(remote.layout, parts.path if parts.scheme == "file" else None, wants)
