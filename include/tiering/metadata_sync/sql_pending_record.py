"""The last record of a journal in SQL, which may be pending, and how an ingestion finds it in the metadata topic."""

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection, bindparam, select, update

from include.tiering.database.schema import published_records
from include.tiering.database.transactions import in_partition, key_of
from include.tiering.metadata_sync.metadata_events import event_of
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    TopicIdPartition,
    Uuid,
)

LAST_RECORD: Final = (
    select(published_records)
    .where(in_partition(published_records))
    .order_by(published_records.c.sequence.desc())
    .limit(1)
)
PENDING: Final = (in_partition(published_records), published_records.c.metadata_offset.is_(None))
FOUND: Final = update(published_records).where(*PENDING).values(metadata_offset=bindparam("found_at"))


def settle_pending(
    connection: Connection,
    cluster_id: str,
    partition: TopicIdPartition,
    records: Iterable[tuple[int, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate]],
) -> None:
    """Record where the pending record of a partition is in the metadata topic, if it is among the read `records`.

    Its publisher may have been killed before it read the record back. Without this it would stay unknown whether the
    platform or a broker moved the segment to the record's state: the first record that moves it there counts. `records`
    are given with their offsets, ascending; records whose state the brokers had given the segment before are left out.
    """
    key = key_of(cluster_id, partition)
    last = connection.execute(LAST_RECORD, key).one_or_none()
    if last is None or last.metadata_offset is not None:
        return
    wanted = RemoteLogSegmentId(partition, Uuid.parse(last.segment_id)), last.state
    moved = ((offset, event) for offset, event in records if (event.remote_log_segment_id, event.state) == wanted)
    offset, event = next(moved, (-1, None))
    if event is not None and event == event_of(bytes(last.value)):
        connection.execute(FOUND, key | {"found_at": offset})
