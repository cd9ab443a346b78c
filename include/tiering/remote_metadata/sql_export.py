"""All segments of a cluster, in pages, for jobs that split a scan among many tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, func, select

from include.tiering.database.schema import segments
from include.tiering.database.transactions import reading
from include.tiering.remote_metadata.contract import SegmentRow
from include.tiering.remote_metadata.sql_queries import page_of_keys


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Segment keys, both ends inclusive. Keys ascend in order of arrival and may have gaps."""

    first_key: int
    last_key: int


def split_segments(engine: Engine, cluster_id: str, ranges: int) -> Sequence[KeyRange]:
    """At most `ranges` ranges that hold every segment of now once; none without segments.

    Raises:
        ValueError: fewer than one range.
    """
    if ranges < 1:
        raise ValueError(f"a scan has at least one range, not {ranges}")
    bounds = select(func.min(segments.c.segment_key), func.max(segments.c.segment_key))
    with reading(engine) as connection:
        first, last = connection.execute(bounds.where(segments.c.cluster_id == cluster_id)).one()
    if first is None:
        return []
    width = -(-(last - first + 1) // ranges)
    return [KeyRange(key, min(key + width - 1, last)) for key in range(first, last + 1, width)]


def export_segments(
    engine: Engine, cluster_id: str, key_range: KeyRange, *, page_rows: int = 2_000
) -> Iterator[SegmentRow]:
    """Segments of the range that are not tombstones, by arrival. Each page is a transaction of its own.

    Raises:
        MetadataUnavailableError
    """
    after_key = key_range.first_key - 1
    while True:
        with reading(engine) as connection:
            page = page_of_keys(connection, cluster_id, after_key, key_range.last_key, page_rows)
        yield from (row for _, row in page)
        if len(page) < page_rows:
            return
        after_key = page[-1][0]
