"""A model of brokers: partitions with replicas whose files roll at offsets of their own, leaders that come and go.

What a broker writes down (segments, checkpoints, epoch caches) is kept apart from what is true (who leads, what is
committed), because a reader of log directories sees the former and must be right about the latter.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from include.tiering.kafka.cluster.contract import PartitionMetadata, TopicMetadata
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.simulation.world.records import Record


@dataclass(eq=False, slots=True)
class SegmentFile:
    """One `.log` on disk. Its object is its inode: a file that is opened stays what it is when its name goes."""

    inode: int
    base_offset: int
    records: list[Record]
    modified: int = 0
    corrupt: bool = False
    claimed_bytes: int = 0
    """What a damaged file system says of its size; 0: what it is."""
    end_without_records: int = 0
    """Where it ends (exclusive) at least: a log cleaner may have taken the last records, or all."""

    @property
    def end(self) -> int:
        """Exclusive."""
        last = self.records[-1][1] + 1 if self.records else self.base_offset
        return max(last, self.end_without_records)

    @property
    def is_compacted(self) -> bool:
        """It lacks offsets."""
        return len(self.records) < self.end - self.base_offset


@dataclass(eq=False, slots=True)
class ReplicaLog:
    """One replica on one broker. `files` ascend, the last one is active. Checkpoints lag behind what is true."""

    broker_id: int
    directory_id: str
    roll_every: int
    files: list[SegmentFile]
    epochs: list[tuple[int, int]] = field(default_factory=list)
    log_start: int = 0
    checkpointed_high_watermark: int = 0
    checkpointed_log_start: int = 0
    recovery_point: int = 0
    cleaned: bool = False
    """Its broker's log cleaner keeps a first uncleaned offset of it, as long as it is there."""

    @property
    def end(self) -> int:
        """Exclusive."""
        return self.files[-1].end

    def epoch_at(self, offset: int) -> int | None:
        """By its history; None below where that begins."""
        return next((epoch for epoch, start in reversed(self.epochs) if start <= offset), None)

    def records(self) -> Iterable[Record]:
        return itertools.chain.from_iterable(file.records for file in self.files)

    def __contains__(self, record: Record) -> bool:
        """By its history; what went below its log start it had."""
        epoch, offset = record
        known = self.epoch_at(offset)
        return offset < self.end and (known == epoch if known is not None else offset < self.log_start)


@dataclass(slots=True)
class Transaction:
    """Of one producer: its first record, and the marker that ends it. Both belong to the history in which they were
    written: a leader of another one never heard of it, whatever it has at these offsets."""

    first: Record
    last: Record | None = None


class PartitionLog:
    """One partition: its replicas, who leads, what is committed."""

    def __init__(
        self, cluster: "Cluster", partition: TopicIdPartition, brokers: tuple[int, ...], rolls: tuple[int, ...]
    ) -> None:
        self.cluster = cluster
        self.partition = partition
        self.brokers = brokers
        self.leader = brokers[0]
        self.leader_epoch = 0
        self.isr = list(brokers)
        self.high_watermark = 0
        self.transactions: list[Transaction] = []
        self.timestamps: dict[Record, int] = {}
        self.stable: set[Record] = set()
        """Every record that was ever below min(high watermark, last stable offset)."""
        self.unclean = False
        self.cleaned_offsets: set[int] = set()
        """Taken by a log cleaner, of some replica."""
        self.lost_locally = 0
        """Offsets below it (exclusive) left the leader by the broker's own doing: retention, DeleteRecords."""
        self.replicas = {
            broker: ReplicaLog(broker, f"dir-{broker}", roll_every, [SegmentFile(cluster.next_inode(), 0, [])])
            for broker, roll_every in zip(brokers, rolls, strict=False)
        }
        self.replicas[self.leader].epochs.append((0, 0))

    @property
    def leading(self) -> ReplicaLog | None:
        return self.replicas.get(self.leader)

    @property
    def last_stable_offset(self) -> int:
        open_ones = [one.first[1] for one in self.transactions if one.last is None]
        return min([self.high_watermark, *open_ones])

    def stable_offset_below(self, high_watermark: int) -> int:
        """As a reader of the files up to a high watermark finds it."""
        unfinished = [one.first[1] for one in self.transactions if one.last is None or one.last[1] >= high_watermark]
        return min([high_watermark, *unfinished])

    def produce(self, count: int) -> None:
        leader = self.leading
        if leader is None:
            return
        for _ in range(count):
            record = (self.leader_epoch, leader.end)
            self.timestamps[record] = self.cluster.now_ms()
            self._append(leader, record)
        self.advance_high_watermark()

    def replicate(self) -> None:
        """Followers in the ISR catch up."""
        for broker in self.isr:
            if broker != self.leader:
                self.follow(self.replicas[broker])
        self.advance_high_watermark()

    def advance_high_watermark(self) -> None:
        leader = self.leading
        if leader is None:
            return
        ends = [self.replicas[broker].end for broker in self.isr]
        self.high_watermark = max(self.high_watermark, min(ends, default=0))
        self.mark_stable()

    def mark_stable(self) -> None:
        leader = self.leading
        if leader is None:
            return
        limit = self.last_stable_offset
        self.stable.update(record for record in leader.records() if record[1] < limit)

    def follow(self, replica: ReplicaLog) -> None:
        """Cut what the leader does not have, then take what it has."""
        leader = self.leading
        if leader is None or replica is leader:
            return
        self.truncate(replica, self._agreed_end(replica))
        if replica.end < leader.log_start:
            self._restart(replica, leader.log_start)
        if replica.end < leader.files[0].base_offset:
            self._rebuild(replica, leader)
        for record in list(leader.records()):
            if record[1] >= replica.end:
                self._append(replica, record)

    def truncate(self, replica: ReplicaLog, end: int) -> None:
        """Remove every record from `end` (inclusive) on. A file that is cut becomes the active one again. An epoch that
        began at the end and has no record goes in any case, as in Kafka: its leader may never have appended."""
        replica.epochs = [entry for entry in replica.epochs if entry[1] < min(end, replica.end)]
        if end >= replica.end:
            return
        while len(replica.files) > 1 and replica.files[-1].base_offset >= end:
            replica.files.pop()
        active = replica.files[-1]
        keep = sum(offset < end for _, offset in active.records)
        active.end_without_records = min(active.end, max(end, active.base_offset))
        if len(active.records) > keep:
            del active.records[keep:]
            active.modified = self.cluster.tick()
        replica.checkpointed_high_watermark = min(replica.checkpointed_high_watermark, replica.end)
        replica.recovery_point = min(replica.recovery_point, replica.end)

    def raise_log_start(self, replica: ReplicaLog, offset: int) -> None:
        """Files wholly below go; the epoch cache is cut at once, the checkpoint follows later."""
        if offset <= replica.log_start:
            return
        replica.log_start = offset
        while len(replica.files) > 1 and replica.files[1].base_offset <= offset:
            replica.files.pop(0)
        below = [entry for entry in replica.epochs if entry[1] <= offset]
        if below:
            replica.epochs = [(below[-1][0], offset), *(entry for entry in replica.epochs if entry[1] > offset)]
        if replica.broker_id == self.leader:
            self.lost_locally = max(self.lost_locally, offset)

    def roll(self, replica: ReplicaLog, next_offset: int = 0) -> None:
        """The next record is that of `next_offset`, if the leader has none before it."""
        active = replica.files[-1]
        if active.records:
            active.end_without_records = max(replica.end, next_offset)
            replica.files.append(SegmentFile(self.cluster.next_inode(), active.end, []))

    def clean(self, replica: ReplicaLog, file: SegmentFile, left: list[Record]) -> None:
        """A log cleaner puts another file in its place, with what is `left` of it."""
        self.cleaned_offsets.update({offset for _, offset in file.records} - {offset for _, offset in left})
        cleaned = SegmentFile(self.cluster.next_inode(), file.base_offset, left, self.cluster.tick())
        cleaned.end_without_records = file.end
        replica.files[replica.files.index(file)] = cleaned
        replica.cleaned = True

    def elect(self, broker: int, *, clean: bool) -> None:
        """`broker` leads under the next epoch. Unclean: what it does not have is lost."""
        old = self.leader
        self.leader = broker
        self.leader_epoch += 1
        if clean:
            self.isr = [one for one in self.isr if one != old] or [broker]
        else:
            self.isr = [broker]
            self.high_watermark = min(self.high_watermark, self.replicas[broker].end)
        leader = self.replicas[broker]
        leader.epochs.append((self.leader_epoch, leader.end))
        self.transactions = [one for one in self.transactions if one.first in leader]
        for transaction in self.transactions:
            if transaction.last is not None and transaction.last not in leader:
                transaction.last = None
        self.advance_high_watermark()

    def checkpoint(self, replica: ReplicaLog) -> None:
        """Write down what is true now, as far as it knows: an old leader that has not followed since learns of no
        high watermark above what it shares with the new one."""
        replica.checkpointed_high_watermark = min(self.high_watermark, self._agreed_end(replica))
        replica.checkpointed_log_start = replica.log_start
        replica.recovery_point = replica.end

    def _agreed_end(self, replica: ReplicaLog) -> int:
        """Up to where (exclusive) it has what the leader has."""
        leader = self.leading
        if leader is None or replica is leader:
            return replica.end
        if replica.epochs == leader.epochs:
            return min(replica.end, leader.end)
        theirs = {offset: epoch for epoch, offset in leader.records()}
        for file in leader.files:
            if file.is_compacted:
                at = ((offset, leader.epoch_at(offset)) for offset in range(file.base_offset, file.end))
                theirs |= {offset: epoch for offset, epoch in at if epoch is not None}
        begin, newest = max(leader.log_start, leader.files[0].base_offset), -1
        for epoch, offset in replica.records():
            if offset >= begin and theirs.get(offset) != epoch:
                # Where its history before is later than what comes next, Kafka cuts it to where it begins.
                return replica.log_start if newest > theirs.get(offset, newest) else offset
            newest = epoch
        return replica.log_start if newest > theirs.get(replica.end, newest) else replica.end

    def _append(self, replica: ReplicaLog, record: Record) -> None:
        if len(replica.files[-1].records) >= replica.roll_every:
            self.roll(replica, record[1])
        if not replica.epochs or replica.epochs[-1][0] < record[0]:
            replica.epochs.append((record[0], record[1]))
        active = replica.files[-1]
        active.records.append(record)
        active.modified = self.cluster.tick()

    def _restart(self, replica: ReplicaLog, offset: int) -> None:
        replica.files = [SegmentFile(self.cluster.next_inode(), offset, [])]
        replica.epochs = []
        replica.log_start = offset
        leader = self.leading
        if leader is not None:
            below = [entry for entry in leader.epochs if entry[1] <= offset]
            replica.epochs = [(below[-1][0], offset)] if below else []

    def _rebuild(self, replica: ReplicaLog, leader: ReplicaLog) -> None:
        """What the leader has no more on its disk is remote: with the epochs from there it goes on where that ends."""
        offset = leader.files[0].base_offset
        replica.files = [SegmentFile(self.cluster.next_inode(), offset, [])]
        replica.epochs = [entry for entry in leader.epochs if entry[1] <= offset]
        replica.log_start = leader.log_start


class Cluster:
    """All partitions, and the cluster metadata as it was written down, version by version."""

    def __init__(self, cluster_id: str, now_ms: "Clock") -> None:
        self.cluster_id = cluster_id
        self.now_ms = now_ms
        self.logs: dict[TopicIdPartition, PartitionLog] = {}
        self.configs: dict[Uuid, dict[str, str]] = {}
        self.names: dict[Uuid, str] = {}
        self.all_names: dict[Uuid, str] = {}
        """Of deleted ones, too; the oldest first."""
        self.removed: set[Uuid] = set()
        self._ticks = 0
        self._inodes = 0
        self._answers: dict[object, Any] = {}

    def changed(self) -> None:
        """Something happened to brokers, or to what is known of them: answers of before are old."""
        self._answers.clear()

    def cached(self, key: object, answer: Callable[[], Any]) -> Any:
        """The answer, found once as long as nothing happens."""
        if key not in self._answers:
            self._answers[key] = answer()
        return self._answers[key]

    def next_inode(self) -> int:
        self._inodes += 1
        return self._inodes

    def tick(self) -> int:
        """A modification time that nothing else has."""
        self._ticks += 1
        return self._ticks

    def create_topic(
        self, topic_id: Uuid, name: str, partitions: int, brokers: tuple[int, ...], rolls: tuple[int, ...]
    ) -> None:
        """`rolls`: how many records a segment has on each of the brokers."""
        self.names[topic_id] = self.all_names[topic_id] = name
        self.configs[topic_id] = {"cleanup.policy": "delete", "min.insync.replicas": "2" if len(brokers) > 1 else "1"}
        for number in range(partitions):
            partition = TopicIdPartition(topic_id, number, name)
            self.logs[partition] = PartitionLog(self, partition, brokers, rolls)
        self.changed()

    def delete_topic(self, topic_id: Uuid) -> None:
        del self.names[topic_id], self.configs[topic_id]
        self.removed.add(topic_id)
        for partition in [one for one in self.logs if one.topic_id == topic_id]:
            del self.logs[partition]
        self.changed()

    def image(self) -> dict[Uuid, TopicMetadata]:
        """The metadata as of now."""
        return {
            topic_id: TopicMetadata(
                name,
                topic_id,
                dict(self.configs[topic_id]),
                {log.partition.partition: _metadata_of(log) for log in self.logs.values() if _is_of(log, topic_id)},
            )
            for topic_id, name in self.names.items()
        }


def _is_of(log: PartitionLog, topic_id: Uuid) -> bool:
    return log.partition.topic_id == topic_id


def _metadata_of(log: PartitionLog) -> PartitionMetadata:
    return PartitionMetadata(log.partition.partition, log.leader, log.leader_epoch, log.brokers, tuple(log.isr))


class Clock(Protocol):
    """Callable: the world's time in milliseconds."""

    def __call__(self) -> int: ...
