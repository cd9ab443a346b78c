"""Segments that nobody damaged raise no finding, at either depth: all that brokers left, and what Kafka itself tiered.

For the latter, metadata and objects are those of Kafka's own remote storage and metadata managers.
"""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c

from include.tiering.kafka.cluster.cluster_metadata import UnknownClusterMetadata
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.model.segments import (
    Depth,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Verdict,
)
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.location import open_storage
from include.tiering.segments.contract import SegmentRow
from include.tiering.verification.measure_segment import measure_segment
from tests.doubles.broker_data import broker_data, expected
from tests.doubles.kafkas_remote_store import ABANDONED, kafkas_segments, kafkas_store
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.stored_log import copied_partition

COMPACTED = ("state-compacted", "both-policies")


def rolled_partitions() -> list[str]:
    brokers = expected("public")["snapshots"]["stopped"].values()
    return sorted(
        {
            name
            for broker in brokers
            for name, partition_metadata in broker["partitions"].items()
            if not name.startswith("__") and not name.startswith(COMPACTED) and len(partition_metadata["segments"]) > 1
        }
    )


def findings(row: SegmentRow, previous: RemoteLogSegmentMetadata | None, storage: RemoteStorage) -> list[object]:
    measures = [
        measure_segment(row, previous=previous, storage=storage, limiter=UnlimitedBytes(), depth=depth)
        for depth in Depth
    ]
    return [(each.rule.rule_id, each.measure.remarks) for each in PlainEvaluator().evaluate(measures)]


def test_every_rolled_segment_of_the_brokers(tmp_path: Path) -> None:
    measured = 0
    for name in rolled_partitions():
        copied = copied_partition(tmp_path / name, name)
        previous = None
        for row in copied.rows:
            assert findings(row, previous, copied.storage) == [], (name, row.metadata.start_offset)
            previous = row.metadata
            measured += 1
    assert measured > 40


def test_every_segment_that_kafka_tiered(tmp_path: Path) -> None:
    storage = open_storage(kafkas_store(tmp_path).as_uri(), layout="local_tiered_storage")
    before: dict[TopicIdPartition, RemoteLogSegmentMetadata] = {}
    measured = 0
    for metadata in kafkas_segments():
        if not metadata.is_finished and str(metadata.remote_log_segment_id.id) != ABANDONED:
            continue
        finished = replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        previous = before.get(metadata.topic_id_partition)
        # A copy that died with its broker was done again under another id: it has no place in the succession.
        if previous is not None and previous.end_offset >= metadata.start_offset:
            previous = None
        log = b"".join(storage.fetch_log_segment(metadata, limiter=UnlimitedBytes()))
        row = SegmentRow(finished, Verdict.NONE, google_crc32c.value(log))
        assert findings(row, previous, storage) == []
        before[metadata.topic_id_partition] = metadata
        measured += 1
    assert measured > 40


def test_what_kafka_copied_is_written_byte_for_byte(tmp_path: Path) -> None:
    """Segments that are in the broker's log directory and in its remote storage: ours of the former are the latter."""
    ours = open_storage((tmp_path / "ours").as_uri(), layout="local_tiered_storage")
    source = LogDirSource([LogDirLocation(5, broker_data("tiered") / "data-stopped")], UnknownClusterMetadata())
    replicas = {one.topic_id_partition: one for one in source.scan().replicas}
    written: set[Any] = set()
    for metadata in kafkas_segments():
        replica = replicas.get(metadata.topic_id_partition)
        segment = None if replica is None else replica.segment_at(metadata.start_offset)
        if not metadata.is_finished or segment is None or replica is None:
            continue
        with source.open_segment(replica.replica_id, metadata.start_offset) as opened:
            data = opened.check().data
            sent = ours.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        written.update(one.key.removeprefix("kafka-tiered-storage/") for one in sent)
    of_kafka = expected("tiered")["remote_objects"]
    stems = {key.rpartition(".")[0] for key in written}
    assert len(stems) >= 6
    assert written == {key for key in of_kafka if key.rpartition(".")[0] in stems}
    unlike = {
        key for key in written if _sha256(tmp_path / "ours" / "kafka-tiered-storage" / key) != of_kafka[key]["sha256"]
    }
    # There the log start moved after the broker's copy, and cut the history that we read.
    assert {(key.partition("-0-")[0], key.rpartition(".")[2]) for key in unlike} == {
        ("tier-cut", "leader_epoch_checkpoint")
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
