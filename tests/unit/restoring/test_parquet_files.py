"""Which files the records of a segment become."""

from dataclasses import replace
from pathlib import Path

import google_crc32c
import pytest

from include.tiering.model.histories import OffsetRange
from include.tiering.model.segments import Verdict
from include.tiering.restoring.parquet_files import write_parquet
from include.tiering.restoring.plan import RestorePart, RestoreRequest
from include.tiering.restoring.target import Resolved, identity_of, opened
from include.tiering.segments.values import SegmentRow
from tests.doubles.record_batches import record_batch
from tests.doubles.segments import FINISHED, partition_of, segment_of


@pytest.mark.parametrize(
    ("topic", "begin"),
    [("orders", "orders-0-"), ("_schemas", "topic-_schemas-0-"), (".hidden", "topic-.hidden-0-")],
)
def test_no_reader_takes_a_file_for_a_hidden_one(tmp_path: Path, topic: str, begin: str) -> None:
    partition, log = partition_of(topic), record_batch(0, count=10)
    segment = replace(segment_of(partition, 0, 0, 9, size_bytes=len(log)), state=FINISHED)
    row = SegmentRow(segment, Verdict.PASSED, google_crc32c.value(log))
    part = RestorePart(row, 0, 0, 9, is_first=True, is_last=True)
    identity = identity_of(RestoreRequest((partition,)), "cluster")
    with opened(tmp_path / "target", identity) as target:
        target.begin(identity, Resolved({0: OffsetRange(0, 9)}))
        target.enter(write_parquet(part, [log], target))
    (path,) = (tmp_path / "target").glob("date=*/*.parquet")
    assert path.name == f"{begin}{0:020d}-0.parquet"
    with opened(tmp_path / "target", identity) as again:
        assert list(again.done) == [part.key]
