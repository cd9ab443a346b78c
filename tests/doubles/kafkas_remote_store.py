"""What a real broker with Kafka's LocalTieredStorage wrote: its objects, and the segments that its records tell of."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tests.doubles.broker_data import copy_of, expected

ABANDONED: Final = "PP7Fk_5STs-4YO_oVVh5Yg"
"""The broker was killed in the middle of this copy, and made it again under another id."""


def kafkas_store(directory: Path) -> Path:
    """A copy of the directory that the broker was told as `rsm.config.dir`; beside its tree there is nothing."""
    return copy_of("tiered", directory, part="kafka-tiered-storage").parent


def kafkas_segments() -> Iterator[RemoteLogSegmentMetadata]:
    """Every segment that the metadata topic tells of, in its last state, in the order in which copies began."""
    begun: dict[str, dict[str, Any]] = {}
    last: dict[str, dict[str, Any]] = {}
    for record in expected("tiered")["remote_log_metadata"]:
        if record["type"] == "RemoteLogSegmentMetadata":
            begun[record["segment_id"]] = record
        if "segment_id" in record:
            last[record["segment_id"]] = record
    for segment_id, record in begun.items():
        partition = TopicIdPartition(Uuid.parse(record["topic_id"]), record["partition"], record["topic"])
        metadata = RemoteLogSegmentMetadata(
            remote_log_segment_id=RemoteLogSegmentId(partition, Uuid.parse(segment_id)),
            start_offset=record["start_offset"],
            end_offset=record["end_offset"],
            max_timestamp_ms=record["max_timestamp_ms"],
            broker_id=record["broker_id"],
            event_timestamp_ms=record["event_timestamp_ms"],
            segment_size_bytes=record["segment_size_in_bytes"],
            segment_leader_epochs=LeaderEpochs.of(sorted((int(e), at) for e, at in record["leader_epochs"].items())),
            txn_index_empty=record["txn_index_empty"],
        )
        ended = last[segment_id]
        yield replace(
            metadata,
            state=RemoteLogSegmentState[ended["state"]],
            event_timestamp_ms=ended["event_timestamp_ms"],
        )
