"""Segments that nobody damaged raise no finding, at either depth: all that brokers left, and what Kafka itself tiered.

For the latter, metadata and objects are those of Kafka's own remote storage and metadata managers.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import google_crc32c
import pytest

from include.tiering.model.depth import Depth
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segment_data import LogSegmentData
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.model.verdict import Verdict
from include.tiering.quality.measuring import measure_segment
from include.tiering.quota.contract import UnlimitedBytes
from include.tiering.remote_metadata.contract import SegmentRow
from include.tiering.remote_storage.bodies import BytesSource
from include.tiering.remote_storage.file import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.doubles.broker_data import broker_data, expected
from tests.doubles.copied_segments import copied_partition
from tests.doubles.plain_judge import PlainJudge

COMPACTED = ("state-compacted", "both-policies")


def rolled_partitions() -> list[str]:
    brokers = expected("public")["snapshots"]["stopped"].values()
    return sorted(
        {
            name
            for broker in brokers
            for name, facts in broker["partitions"].items()
            if not name.startswith("__") and not name.startswith(COMPACTED) and len(facts["segments"]) > 1
        }
    )


def findings(row: SegmentRow, previous: RemoteLogSegmentMetadata | None, storage: SegmentStorage) -> list[object]:
    measures = [
        measure_segment(row, previous=previous, storage=storage, limiter=UnlimitedBytes(), depth=depth)
        for depth in Depth
    ]
    return [(each.rule.rule_id, each.measure.remarks) for each in PlainJudge().judge(measures)]


def test_every_rolled_segment_of_the_brokers(tmp_path: Path) -> None:
    judged = 0
    for name in rolled_partitions():
        copied = copied_partition(tmp_path / name, name)
        previous = None
        for row in copied.rows:
            assert findings(row, previous, copied.storage) == [], (name, row.metadata.start_offset)
            previous = row.metadata
            judged += 1
    assert judged > 40


def tiered_by_kafka() -> Iterator[tuple[RemoteLogSegmentMetadata, LogSegmentData]]:
    """What is left of the copies in Kafka's own remote storage, in the order of their metadata records."""
    objects = broker_data("tiered") / "kafka-tiered-storage"
    for record in expected("tiered")["remote_log_metadata"]:
        if record["type"] != "RemoteLogSegmentMetadata":
            continue
        directory = objects / f"{record['topic']}-{record['partition']}-{record['topic_id']}"
        found = sorted(directory.glob(f"{record['start_offset']:020d}-{record['segment_id']}.*"))
        parts = {path.suffix: path.read_bytes() for path in found}
        if not parts:
            continue
        partition = TopicIdPartition(Uuid.parse(record["topic_id"]), record["partition"], record["topic"])
        metadata = RemoteLogSegmentMetadata(
            remote_log_segment_id=RemoteLogSegmentId(partition, Uuid.parse(record["segment_id"])),
            start_offset=record["start_offset"],
            end_offset=record["end_offset"],
            max_timestamp_ms=record["max_timestamp_ms"],
            broker_id=record["broker_id"],
            event_timestamp_ms=record["event_timestamp_ms"],
            segment_size_bytes=record["segment_size_in_bytes"],
            segment_leader_epochs=LeaderEpochs.of(sorted((int(e), at) for e, at in record["leader_epochs"].items())),
            txn_index_empty=record["txn_index_empty"],
        )
        yield (
            metadata,
            LogSegmentData(
                log=BytesSource(parts[".log"]),
                log_crc32c=google_crc32c.value(parts[".log"]),
                offset_index=parts[".index"],
                time_index=parts[".timeindex"],
                producer_snapshot=parts[".snapshot"],
                leader_epoch=parts[".leader_epoch_checkpoint"],
                transaction_index=parts.get(".txnindex"),
            ),
        )


@pytest.fixture
def storage(tmp_path: Path) -> SegmentStorage:
    return SegmentStorage(FileObjectStore(tmp_path), AivenLayout(with_txn_index_empty=True))


def test_every_segment_that_kafka_tiered(storage: SegmentStorage) -> None:
    before: dict[TopicIdPartition, RemoteLogSegmentMetadata] = {}
    judged = 0
    for metadata, data in tiered_by_kafka():
        storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        finished = replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        previous = before.get(metadata.topic_id_partition)
        # A copy that died with its broker was done again under another id: it has no place in the succession.
        if previous is not None and previous.end_offset >= metadata.start_offset:
            previous = None
        assert findings(SegmentRow(finished, Verdict.NONE, data.log_crc32c), previous, storage) == []
        before[metadata.topic_id_partition] = metadata
        judged += 1
    assert judged > 40
