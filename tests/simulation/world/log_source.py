"""The model brokers as a `LogSource` and as `ClusterMetadata`: what an adapter would find in their log directories.

Which replica may be read and which segments are eligible is decided by the product (`evaluate`), from what is on disk.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, Final

from include.tiering.errors import (
    ClusterMetadataError,
    CompactedSegmentError,
    CorruptFileError,
    SourceChangedError,
    SourceUnreadableError,
    SourceVanishedError,
)
from include.tiering.kafka.cluster.contract import TopicMetadata
from include.tiering.kafka.log_dirs.contract import (
    CheckedSegment,
    LogSegment,
    Replica,
    ReplicaId,
    ScanError,
    ScanReport,
    SourceFingerprint,
    UnfinishedTransaction,
    go_on_always,
)
from include.tiering.kafka.log_dirs.dirs import DirIdentity
from include.tiering.kafka.log_dirs.evaluate_replicas import Ownership, evaluate, no_retention, ownership
from include.tiering.kafka.log_dirs.files import DirectoryState
from include.tiering.kafka.log_dirs.found_replica import FoundReplica, FoundSegment
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import LogSegmentData, TopicIdPartition, Uuid
from include.tiering.remote_storage.object_store import BytesSource
from tests.simulation.world.brokers import Cluster, PartitionLog, ReplicaLog, SegmentFile
from tests.simulation.world.records import SNAPSHOT, Record, bytes_of, crc32c, epoch_text, index_bytes, size_of

_SPARSE_BYTES: Final = 1 << 20
"""An active segment may grow, and is in doubt where more than this is on no disk."""


class ClusterMetadataView:
    """`ClusterMetadata` of one process. While `frozen` holds a version, the metadata log that it reads lags behind."""

    def __init__(self, cluster: Cluster, feed: "ClusterMetadataFeed") -> None:
        self._cluster = cluster
        self._feed = feed
        self._image: dict[Uuid, TopicMetadata] = {}
        self._removed: frozenset[Uuid] = frozenset()

    def refresh(self) -> None:
        if self._feed.is_away:
            raise ClusterMetadataError("the metadata log is not mounted")
        self._image, self._removed = self._feed.visible()

    @property
    def is_new(self) -> bool:
        """Nobody sees anything newer."""
        return self._image is self._feed.visible()[0]

    def cluster_id(self) -> str | None:
        return self._cluster.cluster_id

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        return self._image.get(topic_id)

    def topic_named(self, name: str) -> TopicMetadata | None:
        return next(
            (cluster_metadata for cluster_metadata in self._image.values() if cluster_metadata.topic == name), None
        )

    def topic_names(self) -> Collection[str]:
        return [cluster_metadata.topic for cluster_metadata in self._image.values()]

    def is_removed(self, topic_id: Uuid) -> bool:
        return topic_id in self._removed

    def removal_evidence(self, topic_id: Uuid) -> str | None:
        return "the metadata log has its removal" if topic_id in self._removed else None


class ClusterMetadataFeed:
    """What the metadata log shows: the present, or the past while it lags."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._frozen: tuple[dict[Uuid, TopicMetadata], frozenset[Uuid]] | None = None
        self.is_away = False
        """Log directories are not mounted, and no broker answers."""
        self.forgets_removals = False

    @property
    def lags(self) -> bool:
        return self._frozen is not None

    def visible(self) -> tuple[dict[Uuid, TopicMetadata], frozenset[Uuid]]:
        return self._frozen or self._cluster.cached("cluster metadata", self._present)

    def _present(self) -> tuple[dict[Uuid, TopicMetadata], frozenset[Uuid]]:
        return self._cluster.image(), frozenset(() if self.forgets_removals else self._cluster.removed)

    def freeze(self) -> None:
        self._frozen = self.visible()

    def thaw(self) -> None:
        self._frozen = None


class ModelSource:
    """`LogSource` of one process."""

    def __init__(self, cluster: Cluster, cluster_metadata: ClusterMetadataView, feed: ClusterMetadataFeed) -> None:
        self._cluster = cluster
        self._cluster_metadata = cluster_metadata
        self._feed = feed

    def scan(self, *, topics: Collection[str] | None = None, deep: bool = False) -> ScanReport:
        if self._feed.is_away:
            return ScanReport(None, (), ())
        self._cluster_metadata.refresh()
        report: ScanReport = self._cluster.cached("scan", self._scanned)
        return report

    def _scanned(self) -> ScanReport:
        found = [replica for log in self._cluster.logs.values() for replica in self._evaluated(log)]
        found.sort(key=lambda one: (one.topic_id_partition.topic, one.topic_id_partition.partition, *_place(one)))
        return ScanReport(self._cluster.cluster_id, tuple(found), ())

    def find_segments(self, **_: Any) -> Sequence[ScanError]:
        return ()

    def replica(self, replica_id: ReplicaId) -> Replica:
        self._refresh()
        return self._located(replica_id)[2]

    def leader_epochs(self, replica: Replica) -> LeaderEpochs:
        return replica.leader_epochs

    def leading_compacted(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Sequence[LogSegment]:
        """By what each file has, as its headers would say."""
        _, on_disk, _ = self._located(replica_id)
        compacted = {file.base_offset for file in on_disk.files if file.is_compacted}
        return list(takewhile(lambda one: one.base_offset in compacted, segments))

    def size_doubts(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Mapping[int, str]:
        """Of the sizes that a scan told, by what is there now, as the adapter of log directories."""
        log, on_disk, _ = self._located(replica_id)
        files = {file.base_offset: file for file in on_disk.files}
        doubts = {}
        for one in segments:
            file = files.get(one.base_offset)
            too_much = one.size_bytes - (0 if file is None else size_of(log.partition, file.records))
            if file is None:
                doubts[one.base_offset] = "it cannot be read: it is gone"
            elif file.claimed_bytes:
                doubts[one.base_offset] = "it is longer than its batches"
            elif too_much > _SPARSE_BYTES if one.active else too_much:
                doubts[one.base_offset] = f"when it was listed it had {too_much} bytes more"
        return doubts

    def unfinished_transactions(self, replica_id: ReplicaId) -> Sequence[UnfinishedTransaction]:
        log, _, _ = self._located(replica_id)
        return [UnfinishedTransaction(1, one.first[1], -1) for one in log.transactions if one.last is None]

    @contextmanager
    def open_segment(
        self, replica_id: ReplicaId, base_offset: int, *, go_on: Callable[[], object] = go_on_always
    ) -> Iterator["ModelOpenSegment"]:
        self._refresh()
        log, on_disk, replica = self._located(replica_id)
        segment = replica.segment_at(base_offset)
        if segment is None:
            raise SourceVanishedError(str(replica_id), f"no segment starts at offset {base_offset}")
        if segment.active:
            raise SourceChangedError(str(replica_id), f"the segment at offset {base_offset} is the active one")
        file = next(one for one in on_disk.files if one.base_offset == base_offset)
        yield ModelOpenSegment(self, log, on_disk, replica, segment, file)

    def located_now(self, replica_id: ReplicaId) -> tuple[PartitionLog, ReplicaLog, Replica]:
        self._refresh()
        return self._located(replica_id)

    def ownership(self, partition: TopicIdPartition) -> Ownership:
        return ownership(partition, self._cluster_metadata, named=False, cleaned=False)

    def _refresh(self) -> None:
        if self._feed.is_away:
            raise SourceUnreadableError("log directories", "not mounted")
        self._cluster_metadata.refresh()

    def _located(self, replica_id: ReplicaId) -> tuple[PartitionLog, ReplicaLog, Replica]:
        log = self._cluster.logs.get(replica_id.topic_id_partition)
        if log is not None:
            for on_disk, replica in zip(log.replicas.values(), self._evaluated(log), strict=True):
                if replica.replica_id == replica_id:
                    return log, on_disk, replica
        raise SourceVanishedError(str(replica_id), "no such directory")

    def _evaluated(self, log: PartitionLog) -> list[Replica]:
        """By the metadata as this process saw it last: not every question refreshes it, and what it knows of before an
        election is not what others are told."""
        if not self._cluster_metadata.is_new:
            return self._evaluated_again(log)
        replicas: list[Replica] = self._cluster.cached(log.partition, lambda: self._evaluated_again(log))
        return replicas

    def _evaluated_again(self, log: PartitionLog) -> list[Replica]:
        found = [_found(self._cluster.cluster_id, log, replica) for replica in log.replicas.values()]
        return evaluate(found, self._cluster_metadata, None, named_topics=(), retention=no_retention).replicas


class ModelOpenSegment:
    """A segment file that is held open: its name may go, what was cut is cut."""

    def __init__(
        self,
        source: ModelSource,
        log: PartitionLog,
        on_disk: ReplicaLog,
        replica: Replica,
        segment: LogSegment,
        file: SegmentFile,
    ) -> None:
        self.segment = segment
        self._source = source
        self._log = log
        self._replica = replica
        self._file = file
        self._modified = file.modified
        self._epochs = replica.leader_epochs.range(-1, segment.end_offset + 1)
        self._ownership = source.ownership(replica.topic_id_partition)
        base, start = segment.base_offset, on_disk.log_start
        self.records_below = [record for record in on_disk.records() if start <= record[1] < base]
        """What its replica had when it was opened."""
        self.files_below = [
            (max(start, file.base_offset), file.end - 1, file.is_compacted)
            for file in on_disk.files
            if start < file.end <= base
        ]

    @property
    def partition(self) -> TopicIdPartition:
        return self._replica.topic_id_partition

    @property
    def records(self) -> list[Record]:
        """What the file holds now."""
        return self._file.records

    @property
    def fingerprint(self) -> SourceFingerprint:
        replica_id = self._replica.replica_id
        return SourceFingerprint(
            replica_id.broker_id,
            replica_id.directory_id,
            replica_id.topic_id_partition.topic_id,
            self._ownership.leader_epoch,
            self._epochs,
            ((f"{self.segment.base_offset:020}.log", 0, self._file.inode, self.segment.size_bytes, self._modified),),
        )

    def check(self) -> CheckedSegment:
        partition = self._replica.topic_id_partition
        records = list(self._file.records)
        path = f"{self._replica.replica_id}/{self._file.base_offset:020}.log"
        if self._file.corrupt:
            raise CorruptFileError(path, "CRC-32C of a batch", 61)
        content = bytes_of(partition, records)
        if len(content) < self.segment.size_bytes:
            raise SourceChangedError(path, f"had {self.segment.size_bytes} bytes, now {len(content)}")
        if [offset for _, offset in records] != list(range(self.segment.base_offset, self.segment.end_offset + 1)):
            if self._replica.was_compacted:
                raise CompactedSegmentError(path, "compacted away before it was copied")
            raise CorruptFileError(path, "batches do not cover the segment's offsets", 0)
        # What lies below a log start in the middle of a segment has no epoch in the history any more.
        if any(self._epochs.epoch_for(offset) not in (epoch, None) for epoch, offset in records):
            raise CorruptFileError(path, "a batch has an epoch that is not the history's", 0)
        return CheckedSegment(
            data=LogSegmentData(
                log=_FileBody(partition, self._file, len(content)),
                log_crc32c=crc32c(content),
                offset_index=index_bytes("index", records),
                time_index=index_bytes("timeindex", records),
                producer_snapshot=SNAPSHOT,
                leader_epoch=epoch_text(self._epochs),
            ),
            first_offset=self.segment.base_offset,
            last_offset=self.segment.end_offset,
            max_timestamp_ms=max(self._log.timestamps[record] for record in records),
            batch_count=len(records),
            aborted_transactions=0,
        )

    def recheck(self) -> None:
        """See the contract: everything that could make the bytes that were read another segment than this one."""
        where, partition = str(self._replica.replica_id), self._replica.topic_id_partition
        _, on_disk, now = self._source.located_now(self._replica.replica_id)
        ownership_now = self._source.ownership(partition)
        if ownership_now != self._ownership:
            raise SourceChangedError(where, f"leader or owner was {self._ownership}, now {ownership_now}")
        files = [file for file in on_disk.files if file.base_offset == self.segment.base_offset]
        if not files:
            raise SourceVanishedError(where, f"segment {self.segment.base_offset} is gone")
        if files[0] is not self._file or self._file.modified != self._modified:
            raise SourceChangedError(where, f"segment {self.segment.base_offset} is another file, or was written to")
        successors = [file.base_offset for file in on_disk.files if file.base_offset > self.segment.base_offset]
        if min(successors, default=None) != self.segment.end_offset + 1:
            raise SourceChangedError(where, f"the successor of {self.segment.base_offset} is gone")
        history = now.leader_epochs.range(-1, self.segment.end_offset + 1)
        if history != self._epochs and history != self._cut(history):
            raise SourceChangedError(where, f"leader epochs were {list(self._epochs)}, now {list(history)}")
        if max(on_disk.checkpointed_log_start, on_disk.log_start) > self.segment.end_offset:
            raise SourceChangedError(where, f"the log starts at {on_disk.log_start} now")

    def _cut(self, history: LeaderEpochs) -> LeaderEpochs:
        return self._epochs.truncated_from_start(history.entries[0].start_offset) if history.entries else self._epochs


class _FileBody:
    """Reads the file as it is when it is read, not as it was checked."""

    def __init__(self, partition: TopicIdPartition, file: SegmentFile, size_bytes: int) -> None:
        self._partition = partition
        self._file = file
        self.size_bytes = size_bytes

    def read_into(self, position: int, buffer: memoryview) -> int:
        content = bytes_of(self._partition, self._file.records)
        if len(content) < self.size_bytes:
            raise SourceChangedError(str(self._partition), f"had {self.size_bytes} bytes, now {len(content)}")
        if self._file.corrupt:
            content = bytes([content[0] ^ 1]) + content[1:]
        return BytesSource(content[: self.size_bytes]).read_into(position, buffer)


def _found(cluster_id: str, log: PartitionLog, replica: ReplicaLog) -> FoundReplica:
    end, partition = replica.end, log.partition
    start = max(replica.checkpointed_log_start, replica.files[0].base_offset)
    if replica.epochs and replica.epochs[0][1] > start:
        start = replica.epochs[0][1]
    high_watermark = max(min(replica.checkpointed_high_watermark, end), min(start, end))
    segments = tuple(
        FoundSegment(
            base_offset=file.base_offset,
            next_base_offset=file.end,
            size_bytes=file.claimed_bytes or size_of(partition, file.records),
            max_timestamp_ms=max((log.timestamps[record] for record in file.records), default=-1),
            active=file is replica.files[-1],
            has_producer_snapshot=True,
            first_missing_offset=None if file.records or file is replica.files[-1] else file.base_offset,
        )
        for file in replica.files
    )
    return FoundReplica(
        identity=DirIdentity(f"broker-{replica.broker_id}", cluster_id, replica.broker_id, replica.directory_id),
        directory_name=str(partition),
        state=DirectoryState.LIVE,
        topic_id_partition=partition,
        leader_epochs=LeaderEpochs.of(replica.epochs).range(-1, end + 1),
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=high_watermark,
        last_stable_offset=log.stable_offset_below(high_watermark),
        recovery_point=min(replica.recovery_point, end),
        checkpointed_log_start=replica.checkpointed_log_start,
        cleaned=replica.cleaned,
        segments=segments,
    )


def _place(replica: Replica) -> tuple[int, str]:
    return replica.replica_id.broker_id, replica.replica_id.directory_id
