"""The jobs on a real Spark: sizes against a plain recount, a batch through spark-submit, death of the submitter."""

from collections import defaultdict

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from include.tiering.model.segment_state import RemoteLogSegmentState
from spark_jobs.remote_log_sizes_job import ROW
from spark_jobs.remote_log_sizes_transform import SEGMENTS, remote_log_sizes
from tests.doubles.spark_session import NO_JAVA, spark
from tests.doubles.storage_segments import some_uuid

__all__ = ["spark"]
pytestmark = NO_JAVA

_SEGMENTS = st.lists(
    st.tuples(
        st.sampled_from(["orders", "payments.v1-eu", "t"]),
        st.integers(0, 3),
        st.sampled_from([state.name for state in RemoteLogSegmentState]),
        st.integers(0, 2**31 - 1),
        st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True),
    ),
    max_size=120,
)
SegmentTuple = tuple[str, int, str, int, list[int]]
SizeKey = tuple[str, str, int, int | None]


def plain_sizes(segments: list[SegmentTuple]) -> dict[SizeKey, tuple[int, int]]:
    """(bytes, segments) by topic, topic id, partition and epoch; None is the partition."""
    sizes: dict[SizeKey, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for topic, partition, state, size_bytes, epochs in segments:
        if state != "COPY_SEGMENT_FINISHED":
            continue
        for epoch in (None, *epochs):
            key = (topic, str(some_uuid(topic)), partition, epoch)
            sizes[key] = (sizes[key][0] + size_bytes, sizes[key][1] + 1)
    return dict(sizes)


@settings(max_examples=4)
@given(segments=_SEGMENTS)
def test_the_transform_equals_a_plain_recount(spark: SparkSession, segments: list[SegmentTuple]) -> None:
    rows = [(topic, str(some_uuid(topic)), *rest) for topic, *rest in segments]
    table = pa.Table.from_pylist([dict(zip(ROW.names, row, strict=True)) for row in rows], schema=ROW)
    found = remote_log_sizes(spark.createDataFrame(table, SEGMENTS)).collect()
    assert len({row[:4] for row in found}) == len(found)
    assert {tuple(row[:4]): tuple(row[4:]) for row in found} == plain_sizes(segments)
