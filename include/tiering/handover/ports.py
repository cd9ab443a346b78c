"""What the steps of a handover work with: contracts, actions of the platform, and a scan of the metadata topic.

The module also defines one drive of a handover, and how a step can end.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.clock import Clock
from include.tiering.errors import PoisonRecordError
from include.tiering.formats.remote_log_metadata_records import SegmentRecord, SegmentUpdateRecord
from include.tiering.handover.checks import MetadataTopicState, PublishedSegment, StoreProperties
from include.tiering.handover.contract import Drive, Handover, HandoverStore, SeededPartition
from include.tiering.handover.rules import HandoverStep
from include.tiering.kafka.cluster.contract import Brokers
from include.tiering.kafka.log_dirs.contract import LogSource
from include.tiering.kafka.metadata_topic.contract import (
    METADATA_TOPIC,
    MetadataTopic,
    MetadataTopicRecord,
    metadata_partition_of,
)
from include.tiering.metadata_sync.metadata_events import harmless_record
from include.tiering.metadata_sync.publication_contract import PublicationStore
from include.tiering.model.histories import OffsetRange
from include.tiering.model.ownership import Fence
from include.tiering.model.segments import (
    RangeDigest,
    RemoteLogSegmentId,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from include.tiering.runs.contract import WorkStore
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry

_MOST_UNREADABLE: Final = 10

_PartitionKey = tuple[Uuid, int]
"""Topic id and partition."""


class MetadataScan:
    """Reads incrementally what `__remote_log_metadata` has about some user partitions.

    The first call reads the metadata partitions to which these user partitions map, from their beginning. Each later
    call for the same user partitions reads only the records that were appended since. As records are only appended, the
    result is that of a full read. If the metadata topic was created again, or the beginning of a metadata partition
    changed or its end fell, the metadata partition is read from its beginning again.

    The metadata that the platform ingests cannot replace this scan: it does not list segments that brokers deleted,
    while brokers keep the offsets that they read from the records of these segments.
    """

    def __init__(self) -> None:
        self._topic_id: Uuid | None = None
        self._read: dict[tuple[int, frozenset[_PartitionKey]], _Read] = {}

    def evidence(
        self,
        topic: MetadataTopic,
        publications: PublicationStore,
        configs: Mapping[str, str] | None,
        partitions: Sequence[TopicIdPartition],
    ) -> MetadataTopicState | None:
        """Return the state of the metadata topic, as far as it is about `partitions`.

        Returns:
            The state; None if the cluster has no metadata topic (`configs` is None).

        Raises:
            MetadataTopicError: the topic cannot be read.
        """
        if configs is None:
            return None
        count = topic.partition_count()
        if (topic_id := topic.topic_id()) != self._topic_id:
            self._topic_id, self._read = topic_id, {}
        wanted: dict[int, set[_PartitionKey]] = defaultdict(set)
        for partition in partitions:
            wanted[metadata_partition_of(partition, count)].add((partition.topic_id, partition.partition))
        reads = [self._up_to_now(topic, number, frozenset(wanted[number])) for number in sorted(wanted)]
        ours = {segment_id for partition in partitions for segment_id in _journaled(publications, partition)}
        published = [segment for read in reads for segment in read.found.values()]
        removed = [segment for read in reads for segment in read.removed if segment.segment_id not in ours]
        return MetadataTopicState(
            configs,
            tuple(text for read in reads for text in read.unreadable)[:_MOST_UNREADABLE],
            tuple(replace(segment, is_ours=segment.segment_id in ours) for segment in published),
            tuple(removed),
        )

    def _up_to_now(self, topic: MetadataTopic, number: int, wanted: frozenset[_PartitionKey]) -> "_Read":
        bounds = topic.offsets(number)
        read = self._read.get((number, wanted))
        if read is None or read.begin != bounds.begin or read.next_offset > bounds.end:
            read = self._read[number, wanted] = _Read(bounds.begin, bounds.begin)
        if read.next_offset < bounds.end:
            for record in topic.read(number, read.next_offset, end_offset=bounds.end):
                read.take(record, wanted)
            read.next_offset = bounds.end
        return read


@dataclass(slots=True)
class _Read:
    """What one metadata partition has about some partitions, from `begin` up to `next_offset` (exclusive).

    `is_ours` of the segments in `found` and `removed` is False here; `MetadataScan.evidence` sets it.
    """

    begin: int
    next_offset: int
    found: dict[Uuid, PublishedSegment] = field(default_factory=dict)
    removed: list[PublishedSegment] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def take(self, record: MetadataTopicRecord, wanted: frozenset[_PartitionKey]) -> None:
        self.next_offset = record.offset + 1
        try:
            decoded = harmless_record(record.value)
        except PoisonRecordError as error:
            if len(self.unreadable) < _MOST_UNREADABLE:
                self.unreadable.append(f"{METADATA_TOPIC}-{record.partition}, offset {record.offset}: {error}")
            return
        if not isinstance(decoded, SegmentRecord | SegmentUpdateRecord):
            return
        entry = decoded.segment_id
        if (entry.partition.topic_id, entry.partition.partition) not in wanted:
            return
        if isinstance(decoded, SegmentRecord):
            self.found[entry.id] = PublishedSegment(
                entry.partition.partition,
                entry.id,
                decoded.start_offset,
                decoded.end_offset,
                is_ours=False,
                size_bytes=decoded.size_bytes,
            )
        elif decoded.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            gone = self.found.pop(entry.id, None)
            if gone is not None:
                self.removed.append(gone)


def is_published(publications: PublicationStore, partitions: Sequence[TopicIdPartition]) -> bool:
    """Return whether a record that the platform wrote about one of these partitions may be in the metadata topic."""
    return any(_journaled(publications, partition) for partition in partitions)


def published_end(publications: PublicationStore, partition: TopicIdPartition) -> int | None:
    """Return the highest offset (inclusive) of segments whose published FINISHED was read back; None without any."""
    journal = publications.journal(partition)
    finished = [
        record.intent.end_offset
        for record in (journal.records if journal is not None else ())
        if record.offset is not None and record.intent.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    ]
    return max(finished, default=None)


def _journaled(publications: PublicationStore, partition: TopicIdPartition) -> list[Uuid]:
    journal = publications.journal(partition)
    return [record.intent.segment_id for record in journal.records] if journal is not None else []


REMOTE_STORAGE: str = "remote.storage.enable"


@dataclass(frozen=True, slots=True)
class CopyRound:
    """The result of one copy plan and its batches.

    `failed` and `held_back` are sentences about segments and partitions that were not copied. `worth_retrying`: all
    failures are retriable, and no partition was held back for a reason that the handover leaves to a person.
    """

    copied_segments: int
    failed: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    worth_retrying: bool = True


@dataclass(frozen=True, slots=True)
class StoredDigest:
    """The digest of a range of offsets. It leaves out `not_opened`, the offsets of batches too large to be decoded."""

    digest: RangeDigest
    not_opened: tuple[OffsetRange, ...] = ()


class PlatformActions(Protocol):
    """What the platform does for a handover. Every action is idempotent."""

    def copy_round(self, topic: str, run_id: str) -> CopyRound:
        """Plan the rolled segments that are not remote and copy them in this process.

        Batches of the plan follow each other until one ends for another reason than its time limit.
        """
        ...

    def verify(self, segments: Mapping[TopicIdPartition, frozenset[RemoteLogSegmentId]]) -> None:
        """Read these segments back from the store, as deeply as handovers require, and record their verdicts."""
        ...

    def abandon_empty_copies(self, fence: Fence) -> None:
        """Abandon the partition's unfinished copies without an object, and those whose deletion has begun."""
        ...

    def publish(self, seeded: SeededPartition) -> None:
        """Send STARTED and FINISHED of the partition's segments, in order, and read these records back.

        Published records cannot be removed.
        """
        ...

    def stored_digest(self, partition: TopicIdPartition, start_offset: int, end_offset: int) -> StoredDigest:
        """Return the digest of copied records. Both offsets are inclusive.

        The stored bytes must have the source's checksum, if it is known.
        """
        ...

    def served_digest(
        self, partition: TopicIdPartition, start_offset: int, end_offset: int, leave_out: Sequence[OffsetRange] = ()
    ) -> RangeDigest:
        """Return the digest of the records that a plain consumer gets, without the offsets in `leave_out`.

        All offsets are inclusive.
        """
        ...

    def free_bytes(self, broker_id: int) -> int | None:
        """Return the free bytes of the broker's log directory that has the fewest; None if they are not known.

        The log directories of the broker that the settings name are looked at, if they can be read from here. A broker
        without an entry in `log_dirs` is asked; None if its release does not tell. If `tiering.handover.free.bytes` is
        set (not -1), it is returned instead.

        Raises:
            BrokersError: the broker was asked, and does not answer or refuses.
        """
        ...


@dataclass(frozen=True, slots=True)
class HandoverLimits:
    """Limits of a handover.

    Attributes:
        lease_ms: length of the driver's lease, and of the partition leases that the step `fence` takes.
        hold_seconds: for how long the disks must have space for what producers append.
        watch_seconds: the longest that a drive waits each time for brokers, or for segments that can be copied.
        poll_seconds: pause between two requests to brokers.
        settle_seconds: how long brokers may take to delete down to a level of local retention.
        local_steps: the most steps in which local retention is lowered.
        verify_deep: whether a segment is handed over only after a deep verification passed it.
        count_once: whether a person declares that every broker counts bytes that are local and remote once.
        max_rounds: the most rounds in one drive that copy a segment.
    """

    lease_ms: int = 30_000
    hold_seconds: int = 24 * 3600
    watch_seconds: float = 300.0
    poll_seconds: float = 1.0
    settle_seconds: float = 600.0
    local_steps: int = 8
    verify_deep: bool = False
    count_once: bool = False
    max_rounds: int = 100


@dataclass(frozen=True, slots=True)
class HandoverPorts:
    """What the steps of a handover use.

    `new_run_id` returns another id each time, `keep_alive` renews a drive's lease until its context exits, and
    `metadata_scan` stores what it has read of the metadata topic.
    """

    handovers: HandoverStore
    brokers: Brokers
    source: LogSource
    metadata: RemoteLogMetadata
    registry: TopicRegistry
    work: WorkStore
    metadata_topic: MetadataTopic
    publications: PublicationStore
    actions: PlatformActions
    store: StoreProperties
    clock: Clock
    new_run_id: Callable[[], str]
    keep_alive: Callable[[Drive], AbstractContextManager[None]]
    limits: HandoverLimits = field(default_factory=HandoverLimits)
    metadata_scan: MetadataScan = field(default_factory=MetadataScan)


class StepEnd(StrEnum):
    """DONE: the next step follows. WAIT: the same step is repeated later. STOP: a person has to act first."""

    DONE = "done"
    WAIT = "wait"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended. `goes_to`: the next step after DONE; None for the following one in the order of steps."""

    end: StepEnd
    detail: str = ""
    goes_to: HandoverStep | None = None


DONE: StepResult = StepResult(StepEnd.DONE)


@dataclass(frozen=True, slots=True)
class HandoverRun:
    """One drive of one handover. `on_message` receives the lines of progress for a person."""

    ports: HandoverPorts
    drive: Drive
    on_message: Callable[[str], None]

    @property
    def handover(self) -> Handover:
        """The handover as it is stored now."""
        return self.ports.handovers.handover(self.drive.handover_id)

    @property
    def seed(self) -> Sequence[SeededPartition]:
        return self.ports.handovers.seed(self.drive.handover_id)

    def renew(self) -> None:
        """Renew the lease. Raises LeaseLostError if another process drives the handover."""
        self.ports.handovers.renew(self.drive, lease_ms=self.ports.limits.lease_ms)

    def pause(self) -> None:
        """Renew the lease, then sleep for `poll_seconds`."""
        self.renew()
        self.ports.clock.sleep(self.ports.limits.poll_seconds)
