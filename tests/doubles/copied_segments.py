"""Segments of a real broker, in a real file store: what the quality gate and the size job look at.

Offsets, sizes and timestamps come from Kafka's own account of the partition, not from this project's readers.
"""

import dataclasses
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import google_crc32c

from include.tiering.formats import checkpoints, indexes
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.layouts.contract import SegmentLayout
from include.tiering.remote_storage.object_store import BytesSource
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.segments.contract import SegmentRow
from tests.doubles.broker_data import broker_data, expected
from tests.doubles.storage_segments import some_uuid

PAYMENTS = "payments.v1-eu-0"


@dataclass(frozen=True)
class CopiedPartition:
    """Rows in FINISHED order. `root` is the store's directory, for a test that breaks what is in it."""

    rows: tuple[SegmentRow, ...]
    storage: SegmentStorage
    root: Path

    def object_path(self, row: SegmentRow, suffix: str) -> Path:
        (found,) = self.root.rglob(f"*{row.metadata.remote_log_segment_id.id}.{suffix}")
        return found


def copied_partition(
    root: Path, name: str = PAYMENTS, *, segments: int | None = None, layout: SegmentLayout | None = None
) -> CopiedPartition:
    """Copy the first rolled segments of one replica of the bundled `public` set into a file store below `root`."""
    storage = SegmentStorage(FileObjectStore(root), layout or AivenLayout(AivenForm(with_txn_index_empty=True)))
    rows = []
    for metadata, data in rolled_segments(name)[:segments]:
        storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        finished = dataclasses.replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        rows.append(SegmentRow(finished, Verdict.NONE, data.log_crc32c))
    return CopiedPartition(tuple(rows), storage, root)


def rolled_segments(name: str) -> list[tuple[RemoteLogSegmentMetadata, LogSegmentData]]:
    """Those of one replica of the bundled `public` set, in their order."""
    brokers = _stopped_brokers()
    broker = next(broker for broker, facts in brokers.items() if name in facts["partitions"])
    directory = broker_data("public") / "stopped" / broker / name
    facts = brokers[broker]["partitions"][name]
    topic, _, number = name.rpartition("-")
    topic_id = Uuid.parse(facts["partition_metadata"].rpartition("topic_id: ")[2].strip())
    partition = TopicIdPartition(topic_id, int(number), topic)
    history = LeaderEpochs.of(tuple(entry) for entry in facts["leader_epochs"])
    return [_segment(directory, partition, history, segment) for segment in facts["segments"] if not segment["active"]]


@cache
def _stopped_brokers() -> dict[str, Any]:
    return dict(expected("public")["snapshots"]["stopped"])


def _segment(
    directory: Path, partition: TopicIdPartition, history: LeaderEpochs, facts: dict[str, int]
) -> tuple[RemoteLogSegmentMetadata, LogSegmentData]:
    base, end = facts["base_offset"], facts["end_offset"]
    stem = directory / f"{base:020d}"
    log = stem.with_suffix(".log").read_bytes()
    transactions = stem.with_suffix(".txnindex")
    data = LogSegmentData(
        log=BytesSource(log),
        log_crc32c=google_crc32c.value(log),
        offset_index=indexes.trim_offset_index(stem.with_suffix(".index").read_bytes()),
        time_index=indexes.trim_time_index(stem.with_suffix(".timeindex").read_bytes()),
        producer_snapshot=(directory / f"{end + 1:020d}.snapshot").read_bytes(),
        leader_epoch=checkpoints.serialize_leader_epochs(history.range(-1, end + 1)),
        transaction_index=transactions.read_bytes() if transactions.exists() else None,
    )
    metadata = RemoteLogSegmentMetadata(
        remote_log_segment_id=RemoteLogSegmentId(partition, some_uuid(f"{partition}:{base}")),
        start_offset=base,
        end_offset=end,
        max_timestamp_ms=facts["max_timestamp"],
        broker_id=1,
        event_timestamp_ms=1_700_000_000_000,
        segment_size_bytes=len(log),
        segment_leader_epochs=history.range(base, end + 1),
        txn_index_empty=not data.transaction_index,
    )
    return metadata, data
