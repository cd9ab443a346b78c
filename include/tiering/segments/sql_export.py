"""All segments of a cluster, in pages of plain columns, for jobs that split a scan among many tasks.

No value is made of a row: a million of them are read in seconds. A page is an interval of keys, so it is found by the
primary key, sorts nothing, and its size bounds the memory of whoever reads.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Engine, Select, bindparam, func, select

from include.tiering.database.schema import segments
from include.tiering.database.transactions import reading
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.segments.sizes_contract import KeyRange, SizeRow

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
