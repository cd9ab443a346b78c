"""What `__remote_log_metadata` holds about a topic, whoever wrote it, and whether brokers can read it at all."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from include.tiering.errors import PoisonRecordError
from include.tiering.formats.remote_log_metadata_records import SegmentRecord, SegmentUpdateRecord
from include.tiering.metadata_topic.contract import METADATA_TOPIC, MetadataTopic
from include.tiering.metadata_topic.partitioner import metadata_partition_of
from include.tiering.model.handover_facts import MetadataTopicFacts, PublishedSegment
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.remote_metadata.publication_contract import PublicationStore
from include.tiering.tasks.metadata_events import harmless_record

_MOST_UNREADABLE: Final = 10


def scan_metadata_topic(
    topic: MetadataTopic,
    publications: PublicationStore,
    configs: Mapping[str, str] | None,
    partitions: Sequence[TopicIdPartition],
) -> MetadataTopicFacts | None:
    """None if the brokers know no such topic (`configs` is None). Reads every metadata partition that records about
    these partitions go to, from its beginning.

    Raises:
        MetadataTopicUnavailableError
    """
    if configs is None:
        return None
    ours = {one: frozenset(_journaled(publications, one)) for one in partitions}
    count = topic.partition_count()
    wanted: dict[int, dict[tuple[Uuid, int], TopicIdPartition]] = defaultdict(dict)
    for one in partitions:
        wanted[metadata_partition_of(one, count)][one.topic_id, one.partition] = one
    unreadable: list[str] = []
    published: list[PublishedSegment] = []
    removed: list[PublishedSegment] = []
    for number in sorted(wanted):
        published += _read(topic, number, wanted[number], ours, unreadable, removed)
    return MetadataTopicFacts(configs, tuple(unreadable), tuple(published), tuple(removed))


def _read(
    topic: MetadataTopic,
    number: int,
    wanted: Mapping[tuple[Uuid, int], TopicIdPartition],
    ours: Mapping[TopicIdPartition, frozenset[Uuid]],
    unreadable: list[str],
    removed: list[PublishedSegment],
) -> list[PublishedSegment]:
    found: dict[Uuid, PublishedSegment] = {}
    bounds = topic.offsets(number)
    for record in topic.read(number, bounds.begin, end_offset=bounds.end):
        try:
            decoded = harmless_record(record.value)
        except PoisonRecordError as error:
            if len(unreadable) < _MOST_UNREADABLE:
                unreadable.append(f"{METADATA_TOPIC}-{number}, offset {record.offset}: {error}")
            continue
        if not isinstance(decoded, SegmentRecord | SegmentUpdateRecord):
            continue
        entry = decoded.segment_id
        partition = wanted.get((entry.partition.topic_id, entry.partition.partition))
        if partition is None:
            continue
        if isinstance(decoded, SegmentRecord):
            is_ours = entry.id in ours[partition]
            found[entry.id] = PublishedSegment(
                partition.partition, entry.id, decoded.start_offset, decoded.end_offset, is_ours
            )
        elif decoded.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            gone = found.pop(entry.id, None)
            if gone is not None and not gone.is_ours:
                removed.append(gone)
    return list(found.values())


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
