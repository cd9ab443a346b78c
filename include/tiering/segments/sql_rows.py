"""Between rows of `segments` and values."""

from typing import Any

from sqlalchemy import Row

from include.tiering.database.partition_rows import partition_from
from include.tiering.model.ids import RemoteLogSegmentId, Uuid
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.segment_origin import SegmentOrigin
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.model.verdict import Verdict
from include.tiering.segments.contract import SegmentRow


def encode_leader_epochs(leader_epochs: LeaderEpochs) -> str:
    """``epoch:start`` pairs with commas between them, ascending."""
    return ",".join(f"{epoch}:{start_offset}" for epoch, start_offset in leader_epochs)


def decode_leader_epochs(text: str) -> LeaderEpochs:
    """Raises ValueError for text that `encode_leader_epochs` does not write."""
    pairs = (entry.split(":") for entry in text.split(",")) if text else ()
    return LeaderEpochs.of((int(epoch), int(start_offset)) for epoch, start_offset in pairs)


def metadata_of(row: Row[Any]) -> RemoteLogSegmentMetadata:
    """From a row with the columns of `segments` and the topic's `name`."""
    partition = partition_from(row.topic_id, row.partition, row.name)
    return RemoteLogSegmentMetadata(
        remote_log_segment_id=RemoteLogSegmentId(partition, Uuid.parse(row.segment_id)),
        start_offset=row.start_offset,
        end_offset=row.end_offset,
        max_timestamp_ms=row.max_timestamp_ms,
        broker_id=row.broker_id,
        event_timestamp_ms=row.event_timestamp_ms,
        segment_size_bytes=row.size_bytes,
        segment_leader_epochs=decode_leader_epochs(row.leader_epochs),
        state=RemoteLogSegmentState(row.state),
        custom_metadata=row.custom_metadata,
        txn_index_empty=row.txn_index_empty,
    )


def segment_row_of(row: Row[Any]) -> SegmentRow:
    return SegmentRow(
        metadata=metadata_of(row),
        verdict=Verdict(row.verdict),
        log_crc32c=row.log_crc32c,
        verdict_detail=row.verdict_detail,
        source_fingerprint=row.source_fingerprint,
        finished_at_ms=row.finished_at_ms,
        verdict_at_ms=row.verdict_at_ms,
        deep_passed_at_ms=row.deep_passed_at_ms,
        superseded_by=None if row.superseded_by is None else Uuid.parse(row.superseded_by),
        delete_started_at_ms=row.delete_started_at_ms,
        origin=SegmentOrigin(row.origin),
        broker_state=None if row.broker_state is None else RemoteLogSegmentState(row.broker_state),
        history=row.history,
    )


def values_of(cluster_id: str, metadata: RemoteLogSegmentMetadata) -> dict[str, Any]:
    """Columns of `segments` that Kafka's metadata fills."""
    partition = metadata.topic_id_partition
    return {
        "cluster_id": cluster_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "segment_id": str(metadata.remote_log_segment_id.id),
        "start_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
        "max_timestamp_ms": metadata.max_timestamp_ms,
        "broker_id": metadata.broker_id,
        "event_timestamp_ms": metadata.event_timestamp_ms,
        "size_bytes": metadata.segment_size_bytes,
        "leader_epochs": encode_leader_epochs(metadata.segment_leader_epochs),
        "custom_metadata": metadata.custom_metadata,
        "txn_index_empty": metadata.txn_index_empty,
        "state": int(metadata.state),
    }


def epoch_values_of(cluster_id: str, segment_key: int, metadata: RemoteLogSegmentMetadata) -> list[dict[str, Any]]:
    """Rows of `segment_epochs` of one segment."""
    partition = metadata.topic_id_partition
    return [
        {
            "segment_key": segment_key,
            "leader_epoch": epoch,
            "cluster_id": cluster_id,
            "topic_id": str(partition.topic_id),
            "partition": partition.partition,
            "start_offset": start_offset,
            "end_offset": metadata.end_offset_of_epoch(epoch),
        }
        for epoch, start_offset in metadata.segment_leader_epochs
    ]
