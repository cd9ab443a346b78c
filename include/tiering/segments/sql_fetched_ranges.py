"""The ranges into which leaders' logs were cut, in SQL.

Recording is one transaction, and writers of one cluster take turns. So of two workers that cut the same log, one
records what it found, and the other finds that the newest range is another one.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Row, delete, func, select

from include.tiering.database.event_log import EventKind, record_event
from include.tiering.database.schema import fetched_ranges
from include.tiering.database.transactions import (
    DatedStore,
    in_partition,
    insert_if_absent,
    key_of,
    of_partition,
    reading,
    serialise_writers,
    writing,
)
from include.tiering.kafka.fetch_api.contract import FetchedRange, RecordedRange
from include.tiering.model.segments import TopicIdPartition
from include.tiering.segments.sql_rows import decode_leader_epochs, encode_leader_epochs

_AUTHOR: Final = "fetch source"
_RANGES: Final = select(fetched_ranges).where(in_partition(fetched_ranges)).order_by(fetched_ranges.c.base_offset)


class SqlFetchedRanges(DatedStore):
    """`RangeStore` in SQL."""

    def ranges(self, partition: TopicIdPartition) -> Sequence[RecordedRange]:
        """Return the ranges, ordered by base offset, of which only the last may be open."""
        with reading(self._engine) as connection:
            return [_recorded(row) for row in connection.execute(_RANGES, key_of(self._cluster_id, partition))]

    def record(self, partition: TopicIdPartition, before: FetchedRange | None, found: Sequence[FetchedRange]) -> bool:
        """Replace the open range `before` by `found`, in one transaction.

        Return False, without a change, if another process has recorded ranges of the partition meanwhile.
        """
        key = key_of(self._cluster_id, partition)
        with writing(self._engine) as connection:
            serialise_writers(connection, "fetched ranges")
            stored = [_recorded(row).range for row in connection.execute(_RANGES, key)]
            newest = stored[-1] if stored else None
            newest_open = None if newest is None or newest.closed else newest
            closed_end = max((known.next_offset for known in stored if known.closed), default=0)
            if newest_open != before or (stored and found[0].base_offset < closed_end):
                return False
            if before is not None:
                is_open = of_partition(fetched_ranges, self._cluster_id, partition) & ~fetched_ranges.c.closed
                connection.execute(delete(fetched_ranges).where(is_open))
            now_ms = self._now_ms(connection)
            for known in found:
                insert_if_absent(connection, fetched_ranges, _values(self._cluster_id, partition, known, now_ms))
        return True

    def forget(self, partition: TopicIdPartition, from_offset: int, *, reason: str) -> None:
        """Remove the ranges that reach `from_offset` or begin after it. Idempotent."""
        is_left = of_partition(fetched_ranges, self._cluster_id, partition) & (
            fetched_ranges.c.end_offset >= from_offset
        )
        with writing(self._engine) as connection:
            count = connection.execute(delete(fetched_ranges).where(is_left)).rowcount
            if count:
                detail = f"{count} ranges from offset {from_offset} on are cut again: {reason}"
                now_ms = self._now_ms(connection)
                record_event(connection, self._cluster_id, EventKind.LEADER_EPOCHS, partition, detail, _AUTHOR, now_ms)

    def delete_below(self, partition: TopicIdPartition, below_offset: int) -> None:
        """Remove the closed ranges that end below an offset, except the newest of them. Idempotent."""
        is_below = (
            of_partition(fetched_ranges, self._cluster_id, partition)
            & fetched_ranges.c.closed
            & (fetched_ranges.c.end_offset < below_offset)
        )
        with writing(self._engine) as connection:
            newest = connection.scalar(select(func.max(fetched_ranges.c.base_offset)).where(is_below))
            if newest is not None:
                connection.execute(delete(fetched_ranges).where(is_below & (fetched_ranges.c.base_offset < newest)))


def _recorded(row: Row[Any]) -> RecordedRange:
    return RecordedRange(
        FetchedRange(
            row.base_offset,
            row.end_offset,
            row.start_offset,
            row.size_bytes,
            row.batch_count,
            row.first_timestamp_ms,
            row.max_timestamp_ms,
            row.crc32c,
            decode_leader_epochs(row.leader_epochs),
            bytes(row.producer_snapshot),
            row.closed,
        ),
        row.recorded_at_ms,
    )


def _values(cluster_id: str, partition: TopicIdPartition, known: FetchedRange, now_ms: int) -> dict[str, Any]:
    return {
        "cluster_id": cluster_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "base_offset": known.base_offset,
        "end_offset": known.end_offset,
        "start_offset": known.start_offset,
        "size_bytes": known.size_bytes,
        "batch_count": known.batch_count,
        "first_timestamp_ms": known.first_timestamp_ms,
        "max_timestamp_ms": known.max_timestamp_ms,
        "crc32c": known.crc32c,
        "leader_epochs": encode_leader_epochs(known.leader_epochs),
        "producer_snapshot": known.producer_snapshot,
        "closed": known.closed,
        "recorded_at_ms": now_ms,
    }
