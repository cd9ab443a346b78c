"""`LogSource` over Kafka's Fetch API: leaders are read with a login, and no broker's disk.

A scan cuts the logs of the topics that are to be copied a little further, and lists the ranges that are stored then.
All other calls read no log, except that `open_segment` reads its range into the spool. A replica is the leader's; its
directory id is `DIRECTORY_ID`.

| rule for files                                | here                                                            |
|---|---|
| only the leader's replica is read             | every fetch names the leader epoch, and another leader refuses  |
| never the active segment                      | never the open range                                            |
| nothing above high watermark, stable offset   | both are asked for before the ranges are read                   |
| nothing unflushed, unless it is replicated    | a range that was recorded `settle_ms` ago counts as flushed     |
| nothing below the log start                   | nothing below the first local offset, which a broker has tiered |
"""

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import (
    ClusterMetadataError,
    SourceChangedError,
    SourceError,
    SourceVanishedError,
    UnknownTopicError,
    UnusableBatchesError,
)
from include.tiering.formats.indexes import EMPTY_SNAPSHOT
from include.tiering.formats.record_batch import extend_crc32c
from include.tiering.kafka.cluster.contract import (
    Brokers,
    ClusterMetadata,
    PartitionOffsets,
    TopicMetadata,
)
from include.tiering.kafka.fetch_api.contract import Leader, LeaderLogs, RangeStore, RecordedRange, RollRules, epochs_of
from include.tiering.kafka.fetch_api.cut_log import Charge, CutRules, LogCutter, fetched, partition_path
from include.tiering.kafka.fetch_api.open_range import OpenedRange, OpenFetchedRange
from include.tiering.kafka.fetch_api.spool import Spool, SpooledLog
from include.tiering.kafka.log_dirs.contract import (
    BoundsQuality,
    IneligibleReason,
    LogSegment,
    OpenSegment,
    Replica,
    ReplicaId,
    ScanError,
    ScanReport,
    UnfinishedTransaction,
    matches,
    scan_error,
)
from include.tiering.kafka.log_dirs.evaluate_replicas import Ownership, ownership
from include.tiering.kafka.log_dirs.rules import Candidate, ReplicaBounds, is_replicated, segment_reasons
from include.tiering.model.segments import TopicIdPartition

DIRECTORY_ID: Final = "fetch"
_DAY_MS: Final = 86_400_000
_DEFAULTS: Final[Mapping[str, int]] = {
    "segment.bytes": 1 << 30,
    "segment.ms": 7 * _DAY_MS,
    "index.interval.bytes": 4096,
}
PRODUCER_EXPIRATION_MS: Final = _DAY_MS
"""Kafka's default of producer.id.expiration.ms."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What a source reads at most, and how long a range has to be known before it counts as flushed.

    `scan_bytes` is for one scan of all partitions, `settle_ms` is by the clock of the store of ranges.
    """

    scan_bytes: int
    settle_ms: int


class FetchSource:
    """Leaders' logs as replicas. Thread-safe.

    Args:
        brokers: of the cluster.
        cluster_metadata: of the same cluster; every call refreshes it.
        logs: of the same cluster.
        store: where the ranges are kept.
        spool: where a range is kept while it is copied.
        included: patterns of the topics whose logs a scan may read; others are listed without ranges.
        limits: see `FetchLimits`.
        charge: see `cut_log.Charge`.
    """

    def __init__(
        self,
        brokers: Brokers,
        cluster_metadata: ClusterMetadata,
        logs: LeaderLogs,
        store: RangeStore,
        spool: Spool,
        *,
        included: Collection[str],
        limits: FetchLimits,
        charge: Charge = lambda _bytes: None,
    ) -> None:
        self._brokers = brokers
        self._cluster_metadata = cluster_metadata
        self._logs = logs
        self._store = store
        self._spool = spool
        self._included = included
        self._limits = limits
        self._charge = charge
        self._cutter = LogCutter(logs, store, charge)
        self._lock = threading.Lock()

    def scan(self, *, topics: Collection[str] | None = None, deep: bool = False) -> ScanReport:
        errors: list[ScanError] = []
        with self._lock:
            self._cluster_metadata.refresh()
            found = self._partitions(topics)
            offsets = self._brokers.partition_offsets(list(found))
            wanted = [partition for partition in offsets.offsets if self._is_cut(partition)]
        # Without the lock, because it may read for a long time.
        self._cut_all({partition: found[partition] for partition in wanted}, offsets.offsets, errors)
        replicas = []
        with self._lock:
            for partition, topic in found.items():
                if (refused := offsets.refused.get(partition)) is not None:
                    errors.append(scan_error(refused, str(partition), str(partition)))
                elif (answered := offsets.offsets.get(partition)) is not None:
                    replicas.append(self._replica(partition, topic, answered, deep=deep))
            cluster_id = self._cluster_metadata.cluster_id()
        replicas.sort(key=lambda replica: replica.replica_id.order)
        return ScanReport(cluster_id, tuple(replicas), tuple(errors))

    def replica(self, replica_id: ReplicaId) -> Replica:
        with self._lock:
            return self._locate(replica_id)[0]

    def size_doubts(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Mapping[int, str]:
        """Return nothing: the size of a range is that of the batches that were read."""
        return {}

    def leading_compacted(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Sequence[LogSegment]:
        """Return nothing: a range that lacks offsets is not recorded."""
        return ()

    def unfinished_transactions(self, replica_id: ReplicaId) -> Sequence[UnfinishedTransaction]:
        try:
            found = self._brokers.open_transactions(replica_id.topic_id_partition)
        except UnknownTopicError as error:
            raise SourceVanishedError(str(replica_id), str(error)) from error
        return [
            UnfinishedTransaction(txn.producer_id, txn.start_offset, txn.since_ms, txn.transactional_id)
            for txn in found
        ]

    @contextmanager
    def open_segment(self, replica_id: ReplicaId, base_offset: int) -> Iterator[OpenSegment]:
        with self._lock:
            replica, topic, offsets = self._locate(replica_id)
            owned = self._ownership(replica_id.topic_id_partition)
        partition = replica_id.topic_id_partition
        leader = Leader(offsets.leader, offsets.leader_epoch)
        path = partition_path(partition, leader)
        segment = replica.segment_at(base_offset)
        if segment is None:
            raise SourceVanishedError(path, f"no range starts at offset {base_offset}")
        if segment.active:
            raise SourceChangedError(path, f"the range at offset {base_offset} is the open one")
        before, recorded = self._recorded(partition, base_offset, path)
        known = recorded.range
        if known.size_bytes != segment.size_bytes:
            raise SourceChangedError(path, f"had {segment.size_bytes} bytes, now {known.size_bytes}")
        with self._spool.file(f"{path}, range {base_offset}", known.size_bytes) as log:
            crc32c, fault = self._fill(log, partition, leader, recorded)
            opened = OpenedRange(
                replica=replica,
                segment=segment,
                range=known,
                producer_snapshot=before,
                index_interval_bytes=_number(topic, "index.interval.bytes"),
                leader=leader,
                ownership=owned,
                log=log,
                crc32c=crc32c,
                fault=fault,
            )
            yield OpenFetchedRange(opened, self._logs, self._brokers, lambda: self._ownership_now(partition))

    def _fill(
        self, log: SpooledLog, partition: TopicIdPartition, leader: Leader, recorded: RecordedRange
    ) -> tuple[int, SourceError | None]:
        """Read the range into the spool; return its CRC-32C, and why the read ended early, if it did."""
        known, crc32c = recorded.range, 0
        batches = fetched(
            self._logs,
            partition,
            leader,
            offset=known.start_offset,
            may_begin_below=known.start_offset > known.base_offset,
            charge=self._charge,
        )
        try:
            for batch in batches:
                if batch.header.base_offset > known.end_offset:
                    break
                if log.size_bytes + batch.header.size_bytes > known.size_bytes:
                    return crc32c, SourceChangedError(log.path, f"had {known.size_bytes} bytes, and now has more")
                log.append(batch.data)
                crc32c = extend_crc32c(crc32c, batch.data)
                if batch.header.last_offset >= known.end_offset:
                    break
        except UnusableBatchesError as error:
            return crc32c, error
        except UnknownTopicError as error:
            raise SourceVanishedError(log.path, str(error)) from error
        return crc32c, None

    def _partitions(self, topics: Collection[str] | None) -> dict[TopicIdPartition, TopicMetadata]:
        found: dict[TopicIdPartition, TopicMetadata] = {}
        for name in self._cluster_metadata.topic_names():
            topic = self._cluster_metadata.topic_named(name) if matches(name, topics) else None
            if topic is not None:
                found |= {TopicIdPartition(topic.topic_id, number, name): topic for number in topic.partitions}
        return found

    def _is_cut(self, partition: TopicIdPartition) -> bool:
        return matches(partition.topic, self._included) and self._ownership(partition).refusal is None

    def _cut_all(
        self,
        wanted: Mapping[TopicIdPartition, TopicMetadata],
        offsets: Mapping[TopicIdPartition, PartitionOffsets],
        errors: list[ScanError],
    ) -> None:
        """Cut logs further until the bytes of a scan are read; those that were cut longest ago come first."""
        left_bytes = self._limits.scan_bytes
        for partition in sorted(wanted, key=self._last_recorded_ms):
            if left_bytes <= 0:
                return
            try:
                rules = _cut_rules(wanted[partition])
                left_bytes -= self._cutter.cut(partition, offsets[partition], rules, max_bytes=left_bytes)
            except (SourceError, ClusterMetadataError) as error:
                errors.append(scan_error(error, str(partition), str(partition)))

    def _last_recorded_ms(self, partition: TopicIdPartition) -> int:
        return max((recorded.recorded_at_ms for recorded in self._store.ranges(partition)), default=-1)

    def _locate(self, replica_id: ReplicaId) -> tuple[Replica, TopicMetadata, PartitionOffsets]:
        """Return the replica if the same broker still leads it.

        Raises:
            SourceVanishedError: another broker leads it, or the topic or partition is unknown.
            ClusterMetadataError: the brokers cannot be asked.
        """
        self._cluster_metadata.refresh()
        partition = replica_id.topic_id_partition
        topic = self._cluster_metadata.topic(partition.topic_id)
        if topic is None or partition.partition not in topic.partitions:
            raise SourceVanishedError(str(replica_id), "the brokers have no such partition")
        try:
            offsets = self._brokers.partition_offsets([partition]).of(partition)
        except UnknownTopicError as error:
            raise SourceVanishedError(str(replica_id), str(error)) from error
        replica = self._replica(partition, topic, offsets, deep=False)
        if replica.replica_id != replica_id:
            raise SourceVanishedError(str(replica_id), f"broker {offsets.leader} leads it now")
        return replica, topic, offsets

    def _recorded(self, partition: TopicIdPartition, base_offset: int, path: str) -> tuple[bytes, RecordedRange]:
        """Return the producers before a range, and the range."""
        before = EMPTY_SNAPSHOT
        next_offset = -1
        for recorded in self._store.ranges(partition):
            if recorded.range.base_offset == base_offset:
                return (before if next_offset == base_offset else EMPTY_SNAPSHOT), recorded
            before, next_offset = recorded.range.producer_snapshot, recorded.range.next_offset
        raise SourceVanishedError(path, f"no range starts at offset {base_offset} any more")

    def _replica(
        self, partition: TopicIdPartition, topic: TopicMetadata, offsets: PartitionOffsets, *, deep: bool
    ) -> Replica:
        stored = self._store.ranges(partition)
        owned = self._ownership(partition)
        log_start = max(offsets.earliest, offsets.earliest_local or 0)
        settled_before_ms = self._store.now_ms() - self._limits.settle_ms
        settled = [known.range.next_offset for known in stored if known.recorded_at_ms <= settled_before_ms]
        recovery_point = min(max(settled, default=log_start), offsets.high_watermark)
        metadata = topic.partitions[partition.partition]
        bounds = ReplicaBounds(
            log_start_offset=log_start,
            high_watermark=offsets.high_watermark,
            last_stable_offset=offsets.last_stable_offset,
            recovery_point=recovery_point,
            is_replicated=is_replicated(topic, metadata),
        )
        candidates = [_candidate(recorded, log_start) for recorded in stored]
        reasons = segment_reasons(candidates, bounds, owned.refusal)
        return Replica(
            replica_id=ReplicaId(partition, offsets.leader, DIRECTORY_ID),
            log_start_offset=log_start,
            log_end_offset=offsets.high_watermark,
            high_watermark=offsets.high_watermark,
            last_stable_offset=offsets.last_stable_offset,
            recovery_point=recovery_point,
            bounds=BoundsQuality.EXACT,
            leader_epochs=epochs_of(recorded.range for recorded in stored),
            leader_epoch=offsets.leader_epoch,
            segments=tuple(
                _segment(recorded, reason, deep=deep) for recorded, reason in zip(stored, reasons, strict=True)
            ),
            chosen=True,
            owner_is_broker=topic.is_remote_storage_enabled,
            segment_bytes=topic.segment_bytes,
            was_compacted=topic.is_compacted,
        )

    def _ownership(self, partition: TopicIdPartition) -> Ownership:
        return ownership(partition, self._cluster_metadata, named=False, cleaned=False)

    def _ownership_now(self, partition: TopicIdPartition) -> Ownership:
        with self._lock:
            self._cluster_metadata.refresh()
            return self._ownership(partition)


def _candidate(recorded: RecordedRange, log_start: int) -> Candidate:
    """Return what the rules need. A range whose first offsets were deleted cannot be read: it ends below the start."""
    known = recorded.range
    is_cut = known.start_offset < log_start
    return Candidate(
        base_offset=known.base_offset,
        next_base_offset=min(known.next_offset, log_start) if is_cut else known.next_offset,
        max_timestamp_ms=known.max_timestamp_ms,
        active=not known.closed,
        has_leader_epoch=bool(known.leader_epochs.entries),
        has_producer_snapshot=True,
    )


def _segment(recorded: RecordedRange, reason: IneligibleReason | None, *, deep: bool) -> LogSegment:
    known = recorded.range
    return LogSegment(
        base_offset=known.base_offset,
        end_offset=known.end_offset,
        size_bytes=known.size_bytes,
        max_timestamp_ms=known.max_timestamp_ms,
        leader_epochs=known.leader_epochs,
        active=not known.closed,
        reason=reason,
        batch_count=known.batch_count if deep else None,
    )


def _cut_rules(topic: TopicMetadata) -> CutRules:
    roll = RollRules(_number(topic, "segment.bytes"), _number(topic, "segment.ms"))
    return CutRules(roll, PRODUCER_EXPIRATION_MS)


def _number(topic: TopicMetadata, name: str) -> int:
    """Return a config of the topic, Kafka's default where the brokers do not tell it."""
    configured = topic.configs.get(name, "")
    return int(configured) if configured.isascii() and configured.isdigit() else _DEFAULTS[name]
