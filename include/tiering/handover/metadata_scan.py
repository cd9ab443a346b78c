"""What `__remote_log_metadata` holds about a topic, whoever wrote it, and whether brokers can read it at all."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from include.tiering.errors import PoisonRecordError
from include.tiering.formats.remote_log_metadata_records import SegmentRecord, SegmentUpdateRecord
from include.tiering.handover.checks.handover_facts import MetadataTopicFacts, PublishedSegment
from include.tiering.kafka.metadata_topic.contract import (
    METADATA_TOPIC,
    MetadataTopic,
    MetadataTopicRecord,
    metadata_partition_of,
)
from include.tiering.metadata_sync.metadata_events import harmless_record
from include.tiering.metadata_sync.publication_contract import PublicationStore
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.model.segment_metadata import RemoteLogSegmentState

_MOST_UNREADABLE: Final = 10

_PartitionKey = tuple[Uuid, int]
"""Topic id and partition."""


class MetadataScan:
    """Looks at the topic, and remembers what it read: the first look of a process reads every metadata partition that
    records about these partitions go to from its beginning, each later one what came since. It says what one that
    begins anew would say, as records are only appended: a topic that was created again, or whose beginning was removed,
    is read from its beginning.

    What was ingested would not do: an ingestion forgets segments that brokers removed, and the brokers do not.
    """

    def __init__(self) -> None:
        self._topic_id: Uuid | None = None
        self._read: dict[tuple[int, frozenset[_PartitionKey]], _Read] = {}

    def facts(
        self,
        topic: MetadataTopic,
        publications: PublicationStore,
        configs: Mapping[str, str] | None,
        partitions: Sequence[TopicIdPartition],
    ) -> MetadataTopicFacts | None:
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
        for one in partitions:
            wanted[metadata_partition_of(one, count)].add((one.topic_id, one.partition))
        reads = [self._up_to_now(topic, number, frozenset(wanted[number])) for number in sorted(wanted)]
        ours = {segment_id for one in partitions for segment_id in _journaled(publications, one)}
        published = [one for read in reads for one in read.found.values()]
        removed = [one for read in reads for one in read.removed if one.segment_id not in ours]
        return MetadataTopicFacts(
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
    segment is it does not say."""

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
    return any(_journaled(publications, one) for one in partitions)


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
