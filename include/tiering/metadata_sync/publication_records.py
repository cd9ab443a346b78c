"""From a step of a plan to the bytes that say it, looked at twice."""

from dataclasses import replace

from include.tiering.formats.remote_log_metadata import encode
from include.tiering.formats.remote_log_metadata_records import RemoteLogRecord, segment_record, update_record
from include.tiering.kafka.metadata_topic.record_check import Meant, require_sound
from include.tiering.metadata_sync.plan_publication import PublicationStep
from include.tiering.metadata_sync.publication_contract import Intent, Journal
from include.tiering.model.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
)


def intent_for(step: PublicationStep, journal: Journal, *, broker_id: int, event_timestamp_ms: int) -> Intent:
    """What is to be written down and sent. Custom metadata are what the copy gave, so a STARTED has none yet.

    Raises:
        PublicationRefusedError: an independent look at the bytes reads anything else than what is meant.
    """
    segment = replace(step.segment, broker_id=broker_id, event_timestamp_ms=event_timestamp_ms)
    if step.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        segment = replace(segment, custom_metadata=None, state=step.state)
    value = encode(_record(segment, step.state))
    require_sound(value, Meant(segment, step.state, journal.metadata_partition, journal.partition_count))
    id_ = segment.remote_log_segment_id.id
    return Intent(id_, step.state, segment.start_offset, segment.end_offset, value)


def _record(segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> RemoteLogRecord:
    if state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        return segment_record(segment)
    return update_record(
        RemoteLogSegmentMetadataUpdate(
            segment.remote_log_segment_id,
            state,
            segment.event_timestamp_ms,
            segment.broker_id,
            segment.custom_metadata,
        )
    )
