"""`LogSource` over Kafka's Fetch API: leaders are read with a login, and no broker's disk.

`find_segments` cuts the logs of topics that may be copied into ranges, and stores these. `open_segment` reads a range
into the spool. All other calls read no log: a scan lists the ranges that are stored. A replica is the leader's; its
directory id is `DIRECTORY_ID`.

| rule for files                                | here                                                            |
|---|---|
| only the leader's replica is read             | every fetch names the leader epoch, and another leader refuses  |
| never the active segment                      | never the open range                                            |
| nothing above high watermark, stable offset   | both are asked for before the ranges are read                   |
| nothing unflushed, unless it is replicated    | a range counts as flushed `settle_ms` after it was recorded     |
| nothing below the log start                   | nothing below the leader's first local offset                   |

How far `find_segments` reads is bounded by what is not copied yet: a partition is read on only while its closed ranges
that are not remote have fewer bytes than its part of `find_bytes`. So what is read does not run ahead of what is sent.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from include.tiering.errors import (
    BrokersError,
    ClusterMetadataError,
    SendingStoppedError,
    SourceChangedError,
    SourceError,
    SourceVanishedError,
    UnknownTopicError,
)
from include.tiering.formats.indexes import EMPTY_SNAPSHOT
from include.tiering.kafka.cluster.contract import (
    Brokers,
    ClusterMetadata,
    PartitionOffsets,
    TopicMetadata,
)
from include.tiering.kafka.fetch_api.contract import (
    DIRECTORY_ID,
    FetchedRange,
    Leader,
    LeaderLogs,
    RangeStore,
    RecordedRange,
    epochs_of,
)
from include.tiering.kafka.fetch_api.cut_log import (
    FETCH_BYTES,
    LogCutter,
    cut_rules,
    fetched,
    history_of,
    partition_path,
    topic_number,
)
from include.tiering.kafka.fetch_api.open_range import OpenedRange, OpenFetchedRange, SpoolingReader
from include.tiering.kafka.fetch_api.spool import Spool
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
    go_on_always,
    matches,
    scan_error,
)
from include.tiering.kafka.log_dirs.evaluate_replicas import Ownership, ownership
from include.tiering.kafka.log_dirs.rules import Candidate, ReplicaBounds, is_replicated, segment_reasons
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much is found ahead of copies, and how long a range must have been recorded to count as flushed.

    `find_bytes` limits the closed ranges that are not copied yet, of all partitions of one call together. `settle_ms`
    is measured by the clock of the store of ranges.
    """

    find_bytes: int
    settle_ms: int


class FetchSource:
    """Leaders' logs as replicas. Thread-safe.

    Args:
        brokers: the brokers of the cluster.
        cluster_metadata: the cluster's metadata; each call that uses it refreshes it first.
        logs: the logs of the cluster's leaders.
        store: where the ranges are kept.
        spool: where a range is kept while it is copied.
        limits: see `FetchLimits`.
        leaves_out: brokers whose partitions are left out, because their log directories are read.
    """

    def __init__(
        self,
        brokers: Brokers,
        cluster_metadata: ClusterMetadata,
        logs: LeaderLogs,
        store: RangeStore,
        spool: Spool,
        *,
        limits: FetchLimits,
        leaves_out: Collection[int] = (),
    ) -> None:
        self._brokers = brokers
        self._cluster_metadata = cluster_metadata
        self._logs = logs
        self._store = store
        self._spool = spool
        self._limits = limits
        self._leaves_out = frozenset(leaves_out)
        self._cutter = LogCutter(logs, store)
        self._lock = threading.Lock()

    def scan(self, *, topics: Collection[str] | None = None, deep: bool = False) -> ScanReport:
        errors: list[ScanError] = []
        with self._lock:
            self._cluster_metadata.refresh()
            found = self._partitions(topics, errors)
            offsets = self._brokers.partition_offsets(list(found))
            sizes: Mapping[TopicIdPartition, int] = {}
            with suppress(BrokersError):  # Sizes need a right that copies do not need.
                sizes = self._brokers.log_sizes({one: answer.leader for one, answer in offsets.offsets.items()})
            replicas = []
            for partition, topic in found.items():
                if (refused := offsets.refused.get(partition)) is not None:
                    errors.append(scan_error(refused, str(partition), str(partition)))
                elif (answered := offsets.offsets.get(partition)) is not None and self._is_read(answered.leader):
                    replica = self._replica(partition, topic, answered, deep=deep)
                    replicas.append(replace(replica, log_bytes=sizes.get(partition)))
            cluster_id = self._cluster_metadata.cluster_id()
        replicas.sort(key=lambda replica: replica.replica_id.order)
        return ScanReport(cluster_id, tuple(replicas), tuple(errors))

    def find_segments(
        self,
        *,
        topics: Collection[str] | None,
        copied_to: Callable[[TopicIdPartition], int | None],
        go_on: Callable[[str], None],
    ) -> Sequence[ScanError]:
        with self._lock:
            self._cluster_metadata.refresh()
            found = {
                partition: topic
                for partition, topic in self._partitions(topics, errors=[]).items()
                if self._ownership(partition).refusal is None
            }
            answer = self._brokers.partition_offsets(list(found)).offsets
            offsets = {partition: one for partition, one in answer.items() if self._is_read(one.leader)}
        # The reads follow without the lock, because they may take long. A scan reports what the brokers refused here.
        errors: list[ScanError] = []
        to_read = sorted(offsets, key=self._last_recorded_ms)
        left_bytes = self._limits.find_bytes
        for number, partition in enumerate(to_read):
            part_bytes = max(left_bytes // (len(to_read) - number), min(left_bytes, FETCH_BYTES))
            copied = copied_to(partition)
            self._forget_cut_off(partition, copied, _log_start(offsets[partition]))
            known_bytes = self._uncopied_bytes(partition, copied)
            try:
                go_on(partition.topic)
                read_bytes = self._cutter.cut(
                    partition,
                    _leader(offsets[partition]),
                    cut_rules(found[partition]),
                    log_start=_log_start(offsets[partition]),
                    high_watermark=offsets[partition].high_watermark,
                    max_bytes=part_bytes - known_bytes,
                    go_on=partial(go_on, partition.topic),
                )
            except (SourceError, ClusterMetadataError) as error:
                errors.append(scan_error(error, str(partition), str(partition)))
                continue
            except SendingStoppedError:
                continue
            left_bytes -= min(part_bytes, known_bytes + read_bytes)
            if copied is not None:
                self._delete_needless(partition, min(copied + 1, _log_start(offsets[partition])))
        return errors

    def replica(self, replica_id: ReplicaId) -> Replica:
        with self._lock:
            return self._locate(replica_id)[0]

    def leader_epochs(self, replica: Replica) -> LeaderEpochs:
        """Return what the leader answers now, epoch by epoch, and not what was found when the ranges were read.

        If the leader's checkpoint begins above the log start, its answer for epoch 0 is the same as if the log began
        with epoch 0. So the leader is also asked for the epoch of its log start.
        """
        partition = replica.topic_id_partition
        leader = Leader(replica.replica_id.broker_id, -1 if replica.leader_epoch is None else replica.leader_epoch)
        try:
            found = history_of(self._logs, partition, leader, replica.log_start_offset)
            # This request checks the topic id. The ends of epochs are requested by the topic's name only.
            offsets = self._brokers.partition_offsets([partition]).of(partition)
        except UnknownTopicError as error:
            raise SourceVanishedError(partition_path(partition, leader), str(error)) from error
        if (now := _leader(offsets)) != leader:
            raise SourceChangedError(partition_path(partition, leader), f"leader was {leader}, now {now}")
        if offsets.earliest_epoch < 0:
            return LeaderEpochs(tuple(entry for entry in found if entry.start_offset > replica.log_start_offset))
        return found

    def size_doubts(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Mapping[int, str]:
        """Return an empty mapping: the size of a range is that of the batches that were read."""
        return {}

    def leading_compacted(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Sequence[LogSegment]:
        """Return no segment: a range that lacks offsets is not recorded."""
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
    def open_segment(
        self, replica_id: ReplicaId, base_offset: int, *, go_on: Callable[[], object] = go_on_always
    ) -> Iterator[OpenSegment]:
        with self._lock:
            replica, topic, offsets = self._locate(replica_id)
            owned = self._ownership(replica_id.topic_id_partition)
        partition = replica_id.topic_id_partition
        leader = _leader(offsets)
        path = partition_path(partition, leader)
        segment = replica.segment_at(base_offset)
        if segment is None:
            raise SourceVanishedError(path, f"no range starts at offset {base_offset}")
        if segment.active:
            raise SourceChangedError(path, f"the range at offset {base_offset} is the open one")
        before, known = self._recorded(partition, base_offset, path)
        if known.size_bytes != segment.size_bytes:
            raise SourceChangedError(path, f"had {segment.size_bytes} bytes, now {known.size_bytes}")
        with self._spool.file(f"{path}, range {base_offset}", partition, base_offset, known.size_bytes, go_on) as log:
            reader = SpoolingReader(
                known,
                log,
                leader_epochs=replica.leader_epochs,
                producer_snapshot=before,
                index_interval_bytes=topic_number(topic, "index.interval.bytes"),
            )
            answers = fetched(
                self._logs,
                partition,
                leader,
                offset=known.start_offset,
                may_begin_below=known.start_offset > known.base_offset,
                go_on=go_on,
            )
            with closing(answers):
                read = reader.read(answers)
            opened = OpenedRange(replica, segment, known, leader, owned, log, read)
            yield OpenFetchedRange(opened, self._logs, self._brokers, lambda: self._ownership_now(partition))

    def _partitions(
        self, topics: Collection[str] | None, errors: list[ScanError]
    ) -> dict[TopicIdPartition, TopicMetadata]:
        """Return the partitions of all topics that can be described, and add the errors of others.

        Raises:
            ClusterMetadataError: the brokers do not answer now.
        """
        found: dict[TopicIdPartition, TopicMetadata] = {}
        for name in self._cluster_metadata.topic_names():
            try:
                topic = self._cluster_metadata.topic_named(name) if matches(name, topics) else None
            except ClusterMetadataError as error:
                if error.retriable:
                    raise
                errors.append(scan_error(error, f"topic {name}", f"{name}-0"))
                continue
            if topic is not None:
                found |= {
                    TopicIdPartition(topic.topic_id, number, name): topic
                    for number, known in topic.partitions.items()
                    if self._is_read(known.leader)
                }
        return found

    def _is_read(self, leader: int) -> bool:
        """Return whether the logs of this leader are read here; beside log directories a leader must be known."""
        return leader not in self._leaves_out and (leader >= 0 or not self._leaves_out)

    def _uncopied_bytes(self, partition: TopicIdPartition, copied_to: int | None) -> int:
        """Return the bytes of the closed ranges that end above the highest copied offset."""
        closed = [known.range for known in self._store.ranges(partition) if known.range.closed]
        return sum(known.size_bytes for known in closed if copied_to is None or known.end_offset > copied_to)

    def _forget_cut_off(self, partition: TopicIdPartition, copied_to: int | None, log_start: int) -> None:
        """Forget the ranges from the one on whose first offsets the leader has deleted before they were copied.

        That range cannot be read any more. The records that are left of it are cut again, from the log start on.
        """
        for known in (recorded.range for recorded in self._store.ranges(partition)):
            is_needed = copied_to is None or known.end_offset > copied_to
            if is_needed and known.start_offset < log_start <= known.end_offset:
                reason = f"the log starts at {log_start}, within the range {known.base_offset}..{known.end_offset}"
                self._store.forget(partition, known.base_offset, reason=reason)
                return

    def _delete_needless(self, partition: TopicIdPartition, below_offset: int) -> None:
        """Remove ranges that no copy needs any more: they are copied, and the leader has deleted them."""
        ranges = [known.range for known in self._store.ranges(partition)]
        if sum(known.closed and known.end_offset < below_offset for known in ranges) > 1:
            self._store.delete_below(partition, below_offset)

    def _last_recorded_ms(self, partition: TopicIdPartition) -> int:
        return max((recorded.recorded_at_ms for recorded in self._store.ranges(partition)), default=-1)

    def _locate(self, replica_id: ReplicaId) -> tuple[Replica, TopicMetadata, PartitionOffsets]:
        """Return the replica, if the same broker still leads it, its topic's metadata, and the leader's offsets.

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

    def _recorded(self, partition: TopicIdPartition, base_offset: int, path: str) -> tuple[bytes, FetchedRange]:
        """Return the producers before a range, and the range."""
        before = EMPTY_SNAPSHOT
        next_offset = -1
        for recorded in self._store.ranges(partition):
            if recorded.range.base_offset == base_offset:
                return (before if next_offset == base_offset else EMPTY_SNAPSHOT), recorded.range
            before, next_offset = recorded.range.producer_snapshot, recorded.range.next_offset
        raise SourceVanishedError(path, f"no range starts at offset {base_offset} any more")

    def _replica(
        self, partition: TopicIdPartition, topic: TopicMetadata, offsets: PartitionOffsets, *, deep: bool
    ) -> Replica:
        stored = self._store.ranges(partition)
        owned = self._ownership(partition)
        log_start = _log_start(offsets)
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
        listed = [recorded for recorded in stored if recorded.range.next_offset > log_start]
        candidates = [_candidate(recorded, log_start) for recorded in listed]
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
                _segment(recorded, reason, deep=deep) for recorded, reason in zip(listed, reasons, strict=True)
            ),
            chosen=True,
            owner_is_broker=topic.is_remote_storage_enabled,
            segment_bytes=topic.segment_bytes,
            was_compacted=topic.is_compacted,
            found_to=max(log_start, stored[-1].range.next_offset) if stored else log_start,
        )

    def _ownership(self, partition: TopicIdPartition) -> Ownership:
        return ownership(partition, self._cluster_metadata, named=False, cleaned=False)

    def _ownership_now(self, partition: TopicIdPartition) -> Ownership:
        with self._lock:
            self._cluster_metadata.refresh()
            return self._ownership(partition)


def _leader(offsets: PartitionOffsets) -> Leader:
    return Leader(offsets.leader, offsets.leader_epoch)


def _log_start(offsets: PartitionOffsets) -> int:
    """Return the first offset on the leader's disk; brokers have tiered or deleted the offsets below it."""
    return max(offsets.earliest, offsets.earliest_local or 0)


def _candidate(recorded: RecordedRange, log_start: int) -> Candidate:
    """Return what the rules need.

    A range whose first offsets were deleted cannot be read. It gets an end at the log start, so that it counts as below
    the log start.
    """
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
