"""Sums, overlaps and store comparisons of a size run on a real Spark, against plain oracles."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from include.tiering.model.segments import RemoteLogSegmentMetadata as Segment
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition
from include.tiering.model.sizes import partition_states
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.segments.sizes_contract import SizeRow
from spark_jobs.packed_rows import PACKED, packed_batches, unpacked
from spark_jobs.sizes import recounted_partitions
from spark_jobs.sizes_listing import OBJECTS, beside_rows, stored_segments
from spark_jobs.sizes_rows import (
    FINISHED_SPANS,
    ROWS,
    SEGMENTS,
    batch_of,
    finished_of,
    not_contiguous,
    overlaps,
    partial_sizes,
    remote_log_sizes,
)
from tests.doubles.segments import segment_of
from tests.doubles.spark import NO_JAVA
from tests.doubles.stored_log import some_uuid

pytestmark = NO_JAVA

FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_STATES: Final = [
    state for state in RemoteLogSegmentState if state is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
]
_TOPICS: Final = ("orders", "payments.v1-eu", "t")
_SEGMENTS: Final = st.lists(
    st.tuples(
        st.sampled_from(_TOPICS),
        st.integers(0, 3),
        st.sampled_from([*_STATES, FINISHED, FINISHED]),
        st.integers(0, 2**31 - 1),
        # Few offsets make overlaps, holes and equal spans; large ones show that sums are exact.
        st.one_of(st.integers(0, 40), st.integers(0, 2**40), st.just(2**62)),
        st.integers(10, 30),
        st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True).map(sorted),
    ),
    max_size=150,
)


def generated(number: int, drawn: tuple[str, int, RemoteLogSegmentState, int, int, int, list[int]]) -> Segment:
    """Its leader epochs begin one offset after another."""
    topic, partition, state, size_bytes, start_offset, length, epochs = drawn
    return segment_of(
        TopicIdPartition(some_uuid(topic), partition, topic),
        number,
        start_offset,
        start_offset + length - 1,
        {epoch: start_offset + place for place, epoch in enumerate(epochs)},
        size_bytes=size_bytes,
        state=state,
    )


def size_row(segment: Segment) -> SizeRow:
    """As the export has it."""
    partition = segment.topic_id_partition
    return (
        str(partition.topic_id),
        partition.partition,
        int(segment.state),
        segment.segment_size_bytes,
        segment.start_offset,
        segment.end_offset,
        ",".join(f"{epoch}:{start}" for epoch, start in segment.segment_leader_epochs),
        str(segment.remote_log_segment_id.id),
    )


def packed_rows(spark: SparkSession, rows: Sequence[SizeRow]) -> DataFrame:
    """Three values, among which the rows of each partition are spread; each was read in pages of seven rows."""
    values: list[tuple[Any, ...]] = []
    for number in range(3):
        mine = rows[number::3]
        pages = (batch_of(mine[at : at + 7]) for at in range(0, len(mine), 7))
        for value in packed_batches(pages, ROWS, apart=("segment_id",)):
            values += [tuple(column[0].as_py() for column in value.columns)]
    return spark.createDataFrame(values, PACKED)


def by_partition(segments: Iterable[Segment]) -> dict[TopicIdPartition, list[Segment]]:
    held: dict[TopicIdPartition, list[Segment]] = defaultdict(list)
    for segment in segments:
        held[segment.topic_id_partition].append(segment)
    return held


def overlapping_bytes(segments: Iterable[Segment]) -> int:
    """The slow oracle: the bytes of FINISHED segments by the share of their offsets that an earlier one holds, too."""
    duplicate_bytes, covered_to = 0, -1
    finished = (segment for segment in segments if segment.is_finished)
    for segment in sorted(finished, key=lambda s: (s.start_offset, s.end_offset, s.segment_size_bytes)):
        shared = max(0, min(covered_to, segment.end_offset) - segment.start_offset + 1)
        duplicate_bytes += segment.segment_size_bytes * shared // (segment.end_offset - segment.start_offset + 1)
        covered_to = max(covered_to, segment.end_offset)
    return duplicate_bytes


def found_overlaps(spark: SparkSession, rows: Sequence[SizeRow]) -> dict[tuple[str, int], int]:
    """As a run finds them: only segments of partitions that are not contiguous are sorted."""
    packed = packed_rows(spark, rows)
    suspected = [tuple(row) for row in not_contiguous(remote_log_sizes(partial_sizes(packed))).collect()]
    found = overlaps(unpacked(packed.select("packed"), FINISHED_SPANS, finished_of(suspected))).collect()
    by_partition = {(row.topic_id, row.partition): int(row.bytes) for row in found}
    assert len(by_partition) == len(found)
    return by_partition


@settings(max_examples=6)
@given(drawn=_SEGMENTS)
def test_sums_and_overlaps_equal_plain_ones(spark: SparkSession, drawn: list[Any]) -> None:
    segments = [generated(*numbered) for numbered in enumerate(drawn)]
    held = by_partition(segments)
    sizes = remote_log_sizes(partial_sizes(packed_rows(spark, list(map(size_row, segments)))))
    rows = sizes.orderBy("topic_id", "partition", "state", "leader_epoch").collect()
    found = list(recounted_partitions(rows, {partition.topic_id: partition.topic for partition in held}))
    expected = {partition: partition_states(partition, those) for partition, those in held.items()}
    assert {size.topic_id_partition: size for size in found} == expected
    assert len(found) == len(held)
    plain = {(str(p.topic_id), p.partition): overlapping_bytes(those) for p, those in held.items()}
    expected_bytes = {partition: size for partition, size in plain.items() if size}
    assert found_overlaps(spark, list(map(size_row, segments))) == expected_bytes


@pytest.mark.parametrize("order", [list, lambda rows: list(reversed(rows))], ids=["in order", "reversed"])
def test_offsets_that_are_held_twice_count_by_their_share(
    spark: SparkSession, order: Callable[[list[Segment]], list[Segment]]
) -> None:
    cases = [
        ([(0, 99), (100, 199)], 0),
        ([(0, 99), (200, 299)], 0),
        ([(0, 99), (50, 149)], 500),
        ([(0, 99), (0, 99)], 1_000),
        ([(0, 999), (100, 199), (300, 399)], 2_000),
        ([(0, 99), (98, 100)], 666),
        ([(0, 99), (50, 149), (50, 149)], 1_500),
        # Holes and overlaps of equal length.
        ([(0, 99), (50, 149), (200, 299)], 500),
        ([(1, 1), (2, 3), (2, 3), (4, 4), (7, 7)], 1_000),
        ([(0, 2**62), (2**61, 2**63 - 1)], 1_000 * (2**61 + 1) // (2**63 - 2**61)),
    ]
    segments = []
    for number, (spans, _) in enumerate(cases):
        partition = TopicIdPartition(some_uuid("t"), number, "t")
        segments += [
            segment_of(partition, 100 * number + n, start, end, size_bytes=1_000, state=FINISHED)
            for n, (start, end) in enumerate(spans)
        ]
        segments.append(segment_of(partition, 100 * number + 99, 0, 9_999, size_bytes=1_000, state=STARTED))
    found = found_overlaps(spark, list(map(size_row, order(segments))))
    assert [found.get((str(some_uuid("t")), number), 0) for number in range(len(cases))] == [size for _, size in cases]


@pytest.mark.parametrize("end_offset", [48, 49, -(2**63)])
def test_a_damaged_row_that_ends_before_it_begins_overlaps_nothing(spark: SparkSession, end_offset: int) -> None:
    offsets = [(0, 99), (50, end_offset), (90, 99)]
    rows: list[SizeRow] = [("id", 0, int(FINISHED), 100, *span, "0:0", str(n)) for n, span in enumerate(offsets)]
    assert found_overlaps(spark, rows) == {("id", 0): 100}


_KINDS: Final = (ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST)
_LISTED: Final = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 5), st.sampled_from(_KINDS), st.sampled_from([10, 11])), max_size=60
)
_ROWS: Final = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 7), st.sampled_from(_STATES)),
    max_size=12,
    unique_by=lambda row: row[:2],
)
_ORACLE: Final = """
    WITH stored AS (
        SELECT partition, segment, count(DISTINCT kind) AS objects, max(size_bytes) FILTER (kind = 'log') AS log_bytes
        FROM listing GROUP BY ALL
    )
    SELECT partition, segment, CASE
        WHEN state IS NULL THEN 'unknown'
        WHEN log_bytes IS NULL OR objects < 3 THEN 'missing'
        WHEN log_bytes <> 10 THEN 'other_size' END
    FROM stored FULL JOIN rows USING (partition, segment) WHERE state IS NULL OR state = 1"""


@settings(max_examples=6)
@given(listed=_LISTED, rows=_ROWS)
def test_suspicions_equal_those_of_duckdb(
    spark: SparkSession, listed: list[tuple[int, int, ObjectKind, int]], rows: list[tuple[int, int, Any]]
) -> None:
    """Objects are listed twice here and there, also with two lengths; segments of both partitions have equal ids."""
    objects = [("t", "id", partition, str(segment), kind.value, size) for partition, segment, kind, size in listed]
    segments = [("id", p, int(state), 10, 0, 9, "0:0", str(segment), "0") for p, segment, state in rows]
    stored = stored_segments(spark.createDataFrame(objects, OBJECTS), frozenset(_KINDS))
    compared = beside_rows(stored, spark.createDataFrame(segments, SEGMENTS)).collect()
    found = {(row.partition, int(row.segment_id), row.suspicion) for row in compared}
    assert len(found) == len(compared)
    with duckdb.connect() as oracle:
        oracle.execute("CREATE TABLE listing (partition INT, segment INT, kind TEXT, size_bytes INT)")
        oracle.execute("CREATE TABLE rows (partition INT, segment INT, state INT)")
        for row in listed:
            oracle.execute("INSERT INTO listing VALUES (?, ?, ?, ?)", [row[0], row[1], row[2].value, row[3]])
        for partition, segment, state in rows:
            oracle.execute("INSERT INTO rows VALUES (?, ?, ?)", [partition, segment, int(state)])
        assert found == set(oracle.execute(_ORACLE).fetchall())
    sums = stored.agg({"objects": "sum"}).collect()[0][0] or 0
    assert sums == len({row[:3] for row in listed})
