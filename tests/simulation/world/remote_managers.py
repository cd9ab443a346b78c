"""What brokers do once `remote.storage.enable` is on: copy, expire, and delete from their disks what is remote.

As Kafka's remote log managers before 4.3.2 do it: a leader learns where the remote log begins and ends when its copy
task runs for the first time, which may be after its expiration has counted local and remote copies both.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from include.tiering.formats.remote_log_metadata import encode
from include.tiering.formats.remote_log_metadata_records import (
    EpochEntry,
    PartitionEntry,
    SegmentIdEntry,
    SegmentRecord,
    SegmentUpdateRecord,
)
from include.tiering.kafka.metadata_topic.contract import metadata_partition_of
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition, Uuid
from tests.simulation.world.admin import TOPIC_DEFAULTS
from tests.simulation.world.brokers import PartitionLog, ReplicaLog, SegmentFile
from tests.simulation.world.metadata_topic import PARTITIONS
from tests.simulation.world.records import bytes_of, record_bytes, size_of
from tests.simulation.world.remote_cache import DELETING, FINISHED, Known, RemoteCache

_SUFFIXES: Final = ("log", "indexes", "rsm-manifest")
_AT_ONCE: Final = 2


@dataclass(slots=True)
class _Leading:
    """What one leader found out since it leads. `highest` is the last offset that is remote, as far as it knows."""

    knows_start: bool = False
    highest: int | None = None


class RemoteManagers:
    """Of all brokers of one world."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._leading: dict[tuple[TopicIdPartition, int], _Leading] = {}

    def config(self, log: PartitionLog, key: str) -> str:
        return str(self._world.cluster.configs[log.partition.topic_id].get(key, TOPIC_DEFAULTS[key]))

    def is_on(self, log: PartitionLog) -> bool:
        return self.config(log, "remote.storage.enable") == "true"

    def tiered(self) -> list[PartitionLog]:
        return [log for log in self._world.cluster.logs.values() if self.is_on(log) and log.leading is not None]

    def latest_tiered(self, log: PartitionLog) -> int | None:
        return self._of(log).highest if self.is_on(log) else None

    def cache(self, partition: TopicIdPartition) -> RemoteCache:
        cache: RemoteCache = self._world.topic.caches[str(partition.topic_id), partition.partition]
        return cache

    def go_on(self) -> None:
        """All that they would do in a quiet while."""
        for log in self.tiered():
            while self.copy(log):
                pass
            self.expire(log)
            self.delete_local(log)

    def fetch(self, log: PartitionLog, offset: int) -> bytes | None:
        """What a consumer gets of one record; None: it is out of range."""
        leader = log.leading
        if leader is None or not leader.log_start <= offset < log.high_watermark:
            return None
        epoch = epoch_of(leader, offset)
        if offset >= leader.files[0].base_offset:
            return None if epoch is None else self._bytes(log, epoch, offset)
        known = None if epoch is None else self.cache(log.partition).lookup(epoch, offset)
        content = None if known is None else self._world.store.objects.get(self._key(log.partition, known, "log"))
        record = None if epoch is None else self._bytes(log, epoch, offset)
        return record if content is not None and record is not None and record in content else None

    # The copy task.

    def copy(self, log: PartitionLog) -> int:
        """How many segments it copied, some at most."""
        leader, task = log.leading, self._of(log)
        if leader is None or not self.is_on(log):
            return 0
        cache = self.cache(log.partition)
        if not task.knows_start:
            first = next((found[0].start_offset for epoch, _ in leader.epochs if (found := cache.listed(epoch))), None)
            if first is not None and first > leader.log_start:
                self._world.watch.promises.raised_to_first_remote(log, first)
                self._raise_log_start(log, first)
            task.knows_start = True
        if task.highest is None:
            task.highest = highest_remote(cache, leader)
        copied = 0
        for file in self._candidates(log, leader, task):
            if copied == _AT_ONCE or not self._copy_one(log, file):
                break
            task.highest = file.base_offset + len(file.records) - 1
            copied += 1
        self._world.watch.handing_over.brokers_know(log.partition, log.leader_epoch, task.highest)
        return copied

    def _candidates(self, log: PartitionLog, leader: ReplicaLog, task: _Leading) -> list[SegmentFile]:
        """Rolled, stable, and not wholly remote."""
        begin = max(-1 if task.highest is None else task.highest, leader.log_start - 1) + 1
        stable = log.last_stable_offset
        return [
            file
            for file, following in pairwise(leader.files)
            if following.base_offset > begin and following.base_offset <= stable and file.records
        ]

    def _copy_one(self, log: PartitionLog, file: SegmentFile) -> bool:
        """False: the broker gave up in the midst of it."""
        leader, partition, world = log.leading, log.partition, self._world
        assert leader is not None
        end = file.base_offset + len(file.records) - 1
        history = LeaderEpochs.of(leader.epochs).range(file.base_offset, end + 1)
        entry = self._entry(partition, world.topic_id())
        began = SegmentRecord(
            segment_id=entry,
            start_offset=file.base_offset,
            end_offset=end,
            broker_id=log.leader,
            max_timestamp_ms=max(log.timestamps[record] for record in file.records),
            event_timestamp_ms=world.scheduler.now_ms,
            epochs=tuple(EpochEntry(one.epoch, one.start_offset) for one in history),
            size_bytes=size_of(partition, file.records),
            custom_metadata=None,
            state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
        )
        self._append(partition, began)
        if not world.scheduler.quiet and world.choices.number(6) == 1:
            return False
        for suffix in _SUFFIXES:
            key = _key_of(partition, file.base_offset, str(entry.id), suffix)
            content = bytes_of(partition, file.records) if suffix == "log" else b"a broker's"
            world.store.objects[key] = world.store.brokers_own[key] = content
            world.store.written_ms[key] = world.scheduler.now_ms
        self._update(log, entry, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        world.happened("a broker copies", f"{partition} {file.base_offset}..{end}")
        return True

    # Expiration.

    def expire(self, log: PartitionLog) -> None:
        leader, cache = log.leading, self.cache(log.partition)
        if leader is None or not self.is_on(log) or not cache.known:
            return
        going = list(self._going(log, leader, cache))
        past_retention = [known.end_offset + 1 for known, by_retention in going if by_retention]
        if past_retention and max(past_retention) > leader.log_start:
            self._world.watch.promises.raised_by_retention(log, max(past_retention))
            self._raise_log_start(log, max(past_retention))
        for known, _ in going:
            self._delete(log, known)

    def _going(self, log: PartitionLog, leader: ReplicaLog, cache: RemoteCache) -> Iterable[tuple[Known, bool]]:
        """What goes, and whether retention decided so."""
        retention_ms = int(self.config(log, "retention.ms"))
        excess = self._excess(log, leader, cache)
        queued: set[str] = set()
        for epoch, _ in leader.epochs:
            for known in cache.listed(epoch):
                if known.segment_id in queued:
                    continue
                is_old = retention_ms >= 0 and known.max_timestamp_ms <= self._world.scheduler.now_ms - retention_ms
                is_too_much = excess > 0 and excess >= known.size_bytes
                if known.state == DELETING or known.end_offset < leader.log_start:
                    yield known, False
                elif known.end_offset < leader.end and (is_old or is_too_much):
                    yield known, True
                    excess = max(0, excess - known.size_bytes)
                else:
                    return
                queued.add(known.segment_id)

    def _excess(self, log: PartitionLog, leader: ReplicaLog, cache: RemoteCache) -> int:
        limit = int(self.config(log, "retention.bytes"))
        if limit < 0:
            return 0
        highest = self._of(log).highest
        local = sum(
            size_of(log.partition, file.records)
            for file in leader.files
            if highest is None or file.base_offset > highest
        )
        remote = sum(one.size_bytes for one in cache.live() if one.state == FINISHED and one.end_offset < leader.end)
        return local + remote - limit

    def _delete(self, log: PartitionLog, known: Known) -> None:
        world, entry = self._world, self._entry(log.partition, Uuid.parse(known.segment_id))
        if known.state != DELETING:
            self._update(log, entry, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
        if not world.scheduler.quiet and world.choices.number(6) == 1:
            return
        world.watch.rotten.add(known.segment_id)
        for suffix in _SUFFIXES:
            key = self._key(log.partition, known, suffix)
            world.store.objects.pop(key, None)
            world.store.brokers_own.pop(key, None)
        self._update(log, entry, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
        world.happened("a broker expires", f"{log.partition} {known.start_offset}..{known.end_offset}")

    # Local retention.

    def delete_local(self, log: PartitionLog) -> None:
        """Of each replica, by what it knows to be remote itself."""
        if not self.is_on(log):
            return
        leading, cache = log.leading, self.cache(log.partition)
        for replica in log.replicas.values():
            highest = self._of(log).highest if replica is leading else highest_remote(cache, replica)
            self._delete_files(log, replica, -1 if highest is None else highest)
        self._world.watch.promises.require_readable(log)

    def _delete_files(self, log: PartitionLog, replica: ReplicaLog, highest: int) -> None:
        limit_bytes, limit_ms = self._local_limit(log, "bytes"), self._local_limit(log, "ms")
        excess = sum(size_of(log.partition, file.records) for file in replica.files) - limit_bytes
        while len(replica.files) > 1:
            file, following = replica.files[0].records, replica.files[1].base_offset
            size = size_of(log.partition, file)
            newest = max((log.timestamps[record] for record in file), default=0)
            is_old = limit_ms >= 0 and self._world.scheduler.now_ms - newest > limit_ms
            is_too_much = limit_bytes >= 0 and excess >= size
            if not (is_old or is_too_much) or following > log.high_watermark or following - 1 > highest:
                return
            excess -= size
            del replica.files[0]
            self._world.happened("local segments go", f"{log.partition} below {following} on {replica.broker_id}")

    def _local_limit(self, log: PartitionLog, unit: str) -> int:
        local = int(self.config(log, f"local.retention.{unit}"))
        return int(self.config(log, f"retention.{unit}")) if local == -2 else local

    # Records and replicas.

    def _of(self, log: PartitionLog) -> _Leading:
        return self._leading.setdefault((log.partition, log.leader_epoch), _Leading())

    def _raise_log_start(self, log: PartitionLog, offset: int) -> None:
        for replica in log.replicas.values():
            log.raise_log_start(replica, min(offset, replica.end))

    def _update(self, log: PartitionLog, entry: SegmentIdEntry, state: RemoteLogSegmentState) -> None:
        update = SegmentUpdateRecord(entry, log.leader, self._world.scheduler.now_ms, None, state)
        self._append(log.partition, update)

    def _append(self, partition: TopicIdPartition, record: SegmentRecord | SegmentUpdateRecord) -> None:
        self._world.topic.append(metadata_partition_of(partition, PARTITIONS), encode(record), None)

    def _entry(self, partition: TopicIdPartition, segment_id: Uuid) -> SegmentIdEntry:
        return SegmentIdEntry(PartitionEntry(partition.topic, partition.topic_id, partition.partition), segment_id)

    def _key(self, partition: TopicIdPartition, known: Known, suffix: str) -> str:
        return _key_of(partition, known.start_offset, known.segment_id, suffix)

    def _bytes(self, log: PartitionLog, epoch: int, offset: int) -> bytes:
        return record_bytes(log.partition.topic_id.value, log.partition.partition, epoch, offset)


def epoch_of(replica: ReplicaLog, offset: int) -> int | None:
    """By the replica's leader epochs."""
    return max((epoch for epoch, start in replica.epochs if start <= offset), default=None)


def highest_remote(cache: RemoteCache, replica: ReplicaLog) -> int | None:
    """The last offset that is remote, as a replica works it out from its own epochs."""
    end = replica.end
    for epoch, start in reversed(replica.epochs):
        found = cache.highest(epoch)
        if found is not None:
            return end - 1 if end <= found else found
        end = start
    return None


def _key_of(partition: TopicIdPartition, start_offset: int, segment_id: str, suffix: str) -> str:
    place = f"{partition.topic}-{partition.topic_id}/{partition.partition}"
    return f"{place}/{start_offset:020d}-{segment_id}.{suffix}"
