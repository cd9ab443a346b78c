"""What is in the metadata topic about a partition that we publish, compared with the journal of what was sent.

Every record of the metadata partition is looked at: one about the user partition must be the pending one, or one that
is known already and came a second time (a request that the brokers took up late: brokers drop it, as it is no next
state). Anything else was written by somebody else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import ForeignRecordError, MetadataTopicRangeError, PoisonRecordError
from include.tiering.formats.remote_log_metadata_records import (
    PartitionDeleteRecord,
    SegmentRecord,
    SegmentUpdateRecord,
)
from include.tiering.kafka.metadata_topic.contract import METADATA_TOPIC, MetadataTopic, MetadataTopicRecord
from include.tiering.metadata_sync.metadata_events import harmless_record
from include.tiering.metadata_sync.publication_contract import Journal
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_metadata import RemoteLogSegmentState

_STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_DELETE_FINISHED: Final = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What was read: everything below `next_offset`. `found` is where the pending record is, None if it is not there.

    `repeated`: offsets at which a known record came once more.
    """

    next_offset: int
    found: int | None
    repeated: tuple[int, ...] = ()


def read_back(
    topic: MetadataTopic, partition: TopicIdPartition, journal: Journal, *, end_offset: int | None = None
) -> ReadBack:
    """Look at everything from `journal.next_offset` to `end_offset` (exclusive; None: to the end of now).

    Raises:
        ForeignRecordError: a record about the partition that is not ours, or one over which brokers stop.
        MetadataTopicRangeError: records that were not read yet are gone, or more than what is there was read before.
        MetadataTopicUnavailableError, MetadataTopicRefusedError
    """
    end = topic.offsets(journal.metadata_partition).end if end_offset is None else end_offset
    if end < journal.next_offset:
        raise MetadataTopicRangeError(
            f"{METADATA_TOPIC}-{journal.metadata_partition} ends at {end}, and was read up to {journal.next_offset}:"
            " the topic was created anew, or its end is lost"
        )
    pending = journal.pending
    found, repeated = None, []
    for record in topic.read(journal.metadata_partition, journal.next_offset, end_offset=end):
        if not _is_about(partition, record):
            continue
        if found is None and pending is not None and record.value == pending.intent.value:
            found = record.offset
        else:
            _require_harmless(partition, journal, record)
            repeated.append(record.offset)
    return ReadBack(end, found, tuple(repeated))


def require_published(topic: MetadataTopic, partition: TopicIdPartition, journal: Journal) -> None:
    """Read everything again, from the first record of ours on: each is where it was read back, and nothing else is
    about the partition.

    Raises:
        ForeignRecordError: a record is missing or another one, or somebody else wrote about the partition.
        MetadataTopicRangeError, MetadataTopicUnavailableError, MetadataTopicRefusedError
    """
    placed: Mapping[int, bytes] = {
        record.offset: record.intent.value for record in journal.records if record.offset is not None
    }
    if not placed:
        return
    values = set(placed.values())
    seen: dict[int, bytes] = {}
    for record in topic.read(journal.metadata_partition, min(placed), end_offset=journal.next_offset):
        if _is_about(partition, record):
            seen[record.offset] = record.value
    for offset, value in placed.items():
        if seen.pop(offset, None) != value:
            raise ForeignRecordError(
                f"{partition}: what was published at offset {offset} of {METADATA_TOPIC}-{journal.metadata_partition}"
                " is not there any more: the topic was created anew, or its records were removed"
            )
    for offset, value in seen.items():
        if value not in values:
            raise _foreign(partition, journal.metadata_partition, offset)


def _require_harmless(partition: TopicIdPartition, journal: Journal, record: MetadataTopicRecord) -> None:
    """A record of ours that came once more says nothing new, unless it begins a segment that brokers have forgotten."""
    mine = next((one.intent for one in journal.records if one.intent.value == record.value), None)
    if mine is None:
        raise _foreign(partition, record.partition, record.offset)
    last = [one.intent.state for one in journal.records if one.intent.segment_id == mine.segment_id][-1]
    if mine.state is _STARTED and last is _DELETE_FINISHED:
        raise ForeignRecordError(
            f"{partition}: a record that begins segment {mine.segment_id} came once more at offset {record.offset} of"
            f" {METADATA_TOPIC}-{record.partition}, after its deletion: brokers know it again"
        )


def _foreign(partition: TopicIdPartition, metadata_partition: int, offset: int) -> ForeignRecordError:
    return ForeignRecordError(
        f"{partition}: somebody else wrote about it, at offset {offset} of {METADATA_TOPIC}-{metadata_partition}. A"
        " broker tiers it, another publisher is at work, or the database is older than what it published"
    )


def _is_about(partition: TopicIdPartition, record: MetadataTopicRecord) -> bool:
    try:
        said = harmless_record(record.value)
    except PoisonRecordError as error:
        raise ForeignRecordError(
            f"{METADATA_TOPIC}-{record.partition} has a record at offset {record.offset} over which every broker stops:"
            f" {error}. Nothing is published behind it"
        ) from error
    match said:
        case SegmentRecord() | SegmentUpdateRecord():
            entry = said.segment_id.partition
        case PartitionDeleteRecord():
            entry = said.partition
        case _:
            return False
    return (entry.topic_id, entry.partition) == (partition.topic_id, partition.partition)
