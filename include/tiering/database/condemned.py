"""Segment ids whose objects an audit removes: no segment may begin under one of them any more.

Whoever condemns an id and whoever begins a segment under it both lock the partition's row first, so one of the two
sees what the other did.
"""

from typing import Final

from sqlalchemy import Connection, bindparam, select

from include.tiering.database.partition_rows import in_partition, key_of
from include.tiering.database.schema import planned_removals
from include.tiering.model.ids import RemoteLogSegmentId

_CONDEMNED: Final = (
    select(planned_removals.c.run_id)
    .where(in_partition(planned_removals), planned_removals.c.segment_id == bindparam("of_segment"))
    .where(planned_removals.c.condemned_at_ms.is_not(None))
    .limit(1)
)


def condemned_by(connection: Connection, cluster_id: str, segment_id: RemoteLogSegmentId) -> str | None:
    """The run that removes what is stored under this id; the caller holds the partition's lock."""
    key = key_of(cluster_id, segment_id.topic_id_partition) | {"of_segment": str(segment_id.id)}
    return connection.execute(_CONDEMNED, key).scalar_one_or_none()
