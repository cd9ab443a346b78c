"""What a handover touches: contracts, the actions of the platform, and what `__remote_log_metadata` holds about a
topic, whoever wrote it, and whether brokers can read it at all. And one drive of a handover, with the ends of its
steps.
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
    """Looks at the topic, and stores what it read: the first look of a process reads every metadata partition that
    records about these partitions go to from its beginning, each later one what came since. It says what one that
    begins anew would say, as records are only appended: a topic that was created again, or whose beginning was removed,
    is read from its beginning.

    What was ingested would not do: an ingestion forgets segments that brokers removed, and the brokers do not.
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
        """None if the brokers know no such topic (`configs` is None).

        Raises:
            MetadataTopicUnavailableError
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
        published = [one for read in reads for one in read.found.values()]
        removed = [one for read in reads for one in read.removed if one.segment_id not in ours]
        return MetadataTopicState(
            configs,
            tuple(text for read in reads for text in read.unreadable)[:_MOST_UNREADABLE],
            tuple(replace(one, is_ours=one.segment_id in ours) for one in published),
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
    """What one metadata partition holds about some partitions, from `begin` up to `next_offset` (exclusive). Whose a
    segment is it does not say.
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
                entry.partition.partition, entry.id, decoded.start_offset, decoded.end_offset, is_ours=False
            )
        elif decoded.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            gone = self.found.pop(entry.id, None)
            if gone is not None:
                self.removed.append(gone)


def is_published(publications: PublicationStore, partitions: Sequence[TopicIdPartition]) -> bool:
    """Whether a record about one of these partitions is in the topic, or may be."""
    return any(_journaled(publications, partition) for partition in partitions)


def published_end(publications: PublicationStore, partition: TopicIdPartition) -> int | None:
    """Highest offset (inclusive) of the segments that were read back as FINISHED; None without any."""
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
    """What one plan and its batches did. `failed` and `held_back` are sentences about what was not copied.

    `worth_retrying`: nothing of it needs a person.
    """

    copied_segments: int
    failed: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    worth_retrying: bool = True


@dataclass(frozen=True, slots=True)
class StoredDigest:
    """Of the records of a range but for those in `not_opened`: offsets of batches that are too large to be opened."""

    digest: RangeDigest
    not_opened: tuple[OffsetRange, ...] = ()


class PlatformActions(Protocol):
    """What the platform does for a handover. Each may be repeated."""

    def copy_round(self, topic: str, run_id: str) -> CopyRound:
        """Plan and copy what is rolled and not remote, in this process, until nothing planned is left."""
        ...

    def verify(self, segments: Mapping[TopicIdPartition, frozenset[RemoteLogSegmentId]]) -> None:
        """Read these segments back, as deeply as handovers require, and record their verdicts."""
        ...

    def abandon_empty_copies(self, fence: Fence) -> None:
        """Abandon, of the leased partition's copies that never were finished, those of which nothing is stored."""
        ...

    def publish(self, seeded: SeededPartition) -> None:
        """Send STARTED and FINISHED of its segments, in order, and read them back. What was published stays."""
        ...

    def stored_digest(self, partition: TopicIdPartition, start_offset: int, end_offset: int) -> StoredDigest:
        """Of what was copied, its bytes checked against the source's checksum. Offsets are inclusive."""
        ...

    def served_digest(
        self, partition: TopicIdPartition, start_offset: int, end_offset: int, leave_out: Sequence[OffsetRange] = ()
    ) -> RangeDigest:
        """Of what a plain consumer gets from the brokers, without the offsets in `leave_out`. All are inclusive."""
        ...

    def free_bytes(self, broker_id: int) -> int | None:
        """Room in the fullest log directory of a broker; None if nobody here sees it."""
        ...


@dataclass(frozen=True, slots=True)
class HandoverLimits:
    """`hold_seconds`: how long the disks must be able to take what producers bring. `watch_seconds`: how long one drive
    waits for brokers. `settle_seconds`: how long they may take to delete what local retention lets go.
    `local_steps`: in how many steps it is lowered. `verify_deep`: nothing is handed over that no deep look passed.
    """

    lease_ms: int = 30_000
    hold_seconds: int = 24 * 3600
    watch_seconds: float = 300.0
    poll_seconds: float = 1.0
    settle_seconds: float = 600.0
    local_steps: int = 8
    verify_deep: bool = False
    max_rounds: int = 100


@dataclass(frozen=True, slots=True)
class HandoverPorts:
    """Contracts and actions. `new_run_id` gives a new one each time, `keep_alive` prolongs a drive while it lasts,
    `metadata_scan` stores what was read of the metadata topic.
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
    """DONE: the next step. WAIT: the same one again, later. STOP: a person has to do something first."""

    DONE = "done"
    WAIT = "wait"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended. `goes_to`: another step than the one that follows."""

    end: StepEnd
    detail: str = ""
    goes_to: HandoverStep | None = None


DONE: StepResult = StepResult(StepEnd.DONE)


@dataclass(frozen=True, slots=True)
class HandoverRun:
    """One drive of one handover. `on_message` gets a line for each thing that a person would want to see."""

    ports: HandoverPorts
    drive: Drive
    on_message: Callable[[str], None]

    @property
    def handover(self) -> Handover:
        """As it is stored now."""
        return self.ports.handovers.handover(self.drive.handover_id)

    @property
    def seed(self) -> Sequence[SeededPartition]:
        return self.ports.handovers.seed(self.drive.handover_id)

    def renew(self) -> None:
        """Raises LeaseLostError: somebody else drives."""
        self.ports.handovers.renew(self.drive, lease_ms=self.ports.limits.lease_ms)

    def pause(self) -> None:
        """Between two questions to brokers."""
        self.renew()
        self.ports.clock.sleep(self.ports.limits.poll_seconds)
