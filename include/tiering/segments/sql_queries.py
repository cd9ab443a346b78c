"""Remote log segments read from SQL: rows made values, and all of a cluster in pages.

Pages of plain columns are for jobs that split a scan among many tasks. No value is made of a row: a million of them are
read in seconds. A page is an interval of keys, so it is found by the primary key, sorts nothing, and its size bounds
the memory of whoever reads.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, Select, and_, bindparam, func, select

from include.tiering.database.schema import segments, topics
from include.tiering.database.transactions import in_partition, key_of, partition_from, reading
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import SegmentOrigin
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Uuid,
    Verdict,
)
from include.tiering.segments.contract import KeyRange, SegmentRow, SizeRow


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


_SAME_TOPIC: Final = and_(topics.c.cluster_id == segments.c.cluster_id, topics.c.topic_id == segments.c.topic_id)
WITH_TOPIC: Final = select(segments, topics.c.name).join(topics, _SAME_TOPIC)
"""Rows of which `segment_row_of` makes values."""
_ONE: Final = WITH_TOPIC.where(in_partition(segments), segments.c.segment_id == bindparam("of_segment"))


def find_segment(connection: Connection, cluster_id: str, segment_id: RemoteLogSegmentId) -> SegmentRow | None:
    """One attempt in any state."""
    key = key_of(cluster_id, segment_id.topic_id_partition)
    row = connection.execute(_ONE, key | {"of_segment": str(segment_id.id)}).one_or_none()
    return None if row is None else segment_row_of(row)


PAGE_KEYS: Final = 20_000
_PAGE: Final = select(
    segments.c.topic_id,
    segments.c.partition,
    segments.c.state,
    segments.c.size_bytes,
    segments.c.start_offset,
    segments.c.end_offset,
    segments.c.leader_epochs,
    segments.c.segment_id,
).where(segments.c.state != int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED))


def split_segments(engine: Engine, cluster_id: str, ranges: int) -> Sequence[KeyRange]:
    """See `RemoteLogSizes.split`."""
    if ranges < 1:
        raise ValueError(f"a scan has at least one range, not {ranges}")
    bounds = select(func.min(segments.c.segment_key), func.max(segments.c.segment_key))
    with reading(engine) as connection:
        first, last = connection.execute(bounds.where(segments.c.cluster_id == cluster_id)).one()
    return [] if first is None else list(_cut(KeyRange(first, last), -(-(last - first + 1) // ranges)))


def export_segments(
    engine: Engine, cluster_id: str, key_range: KeyRange, *, page_keys: int = PAGE_KEYS
) -> Iterator[Sequence[SizeRow]]:
    """See `RemoteLogSizes.export`."""
    return pages_of(engine, _PAGE, cluster_id, key_range, page_keys=page_keys)


def pages_of(
    engine: Engine, columns: Select[Any], cluster_id: str, key_range: KeyRange, *, page_keys: int = PAGE_KEYS
) -> Iterator[Sequence[Any]]:
    """Rows of `columns`, a query over segments, in pages, each a transaction of its own.

    Rows of a page are in no particular order; an empty page is left out.
    """
    page = columns.where(
        segments.c.segment_key.between(bindparam("first_key"), bindparam("last_key")),
        segments.c.cluster_id == cluster_id,
    )
    for keys in _cut(key_range, page_keys):
        with reading(engine) as connection:
            rows = connection.execute(page, {"first_key": keys.first_key, "last_key": keys.last_key}).all()
        if rows:
            yield rows


def _cut(key_range: KeyRange, width: int) -> Iterator[KeyRange]:
    for key in range(key_range.first_key, key_range.last_key + 1, width):
        yield KeyRange(key, min(key + width - 1, key_range.last_key))
