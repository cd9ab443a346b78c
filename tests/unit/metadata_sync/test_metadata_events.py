"""What a value of the metadata topic means: what stops brokers, what they only remember, what means nothing here."""

from dataclasses import replace
from typing import Any

import pytest

from include.tiering.errors import PoisonRecordError
from include.tiering.formats.remote_log_metadata import encode
from include.tiering.formats.remote_log_metadata_records import (
    EpochEntry,
    PartitionDeleteRecord,
    PartitionEntry,
    SegmentSnapshotRecord,
    segment_record,
    update_record,
)
from include.tiering.metadata_sync.metadata_events import event_of
from include.tiering.model.segments import RemoteLogSegmentState, RemotePartitionDeleteState
from include.tiering.segments.ingestion_contract import PartitionRemoval, UnusableRecord
from tests.doubles.segments import DELETE_STARTED, FINISHED, STARTED, partition_of, segment_of, update_of
from tests.doubles.tiered_topic import tiered_records

PARTITION = partition_of("orders")
A = segment_of(PARTITION, 1, 0, 99)
ENTRY = PartitionEntry("orders", PARTITION.topic_id, 0)


def test_a_segment_and_its_updates() -> None:
    assert event_of(encode(segment_record(A))) == A
    assert event_of(encode(update_record(update_of(A, FINISHED)))) == update_of(A, FINISHED)


def test_every_record_of_a_real_broker_means_something() -> None:
    events = [event_of(bytes.fromhex(record["value_hex"])) for record in tiered_records()]
    assert len(events) == 164
    assert not any(event is None or isinstance(event, UnusableRecord) for event in events)


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x01\x09\x00", encode(segment_record(A)) + b"\x00"])
def test_what_is_no_record_stops_brokers(value: bytes) -> None:
    with pytest.raises(PoisonRecordError, match="no record that Kafka's decoder accepts"):
        event_of(value)


@pytest.mark.parametrize("state", [FINISHED, DELETE_STARTED])
def test_a_segment_that_does_not_begin_stops_brokers(state: RemoteLogSegmentState) -> None:
    with pytest.raises(PoisonRecordError, match="begins as"):
        event_of(encode(replace(segment_record(A), state=state)))


def test_a_snapshot_stops_brokers() -> None:
    snapshot = SegmentSnapshotRecord(
        id=A.remote_log_segment_id.id,
        start_offset=0,
        end_offset=9,
        broker_id=1,
        max_timestamp_ms=1,
        event_timestamp_ms=1,
        epochs=(EpochEntry(0, 0),),
        size_bytes=1,
        custom_metadata=None,
        state=STARTED,
    )
    with pytest.raises(PoisonRecordError, match="snapshot"):
        event_of(encode(snapshot))


def test_the_end_of_a_partition_is_its_removal_what_comes_before_only_remembered() -> None:
    events = {
        state: event_of(encode(PartitionDeleteRecord(ENTRY, 1, 1, state))) for state in RemotePartitionDeleteState
    }
    assert events == {
        RemotePartitionDeleteState.DELETE_PARTITION_MARKED: None,
        RemotePartitionDeleteState.DELETE_PARTITION_STARTED: None,
        RemotePartitionDeleteState.DELETE_PARTITION_FINISHED: PartitionRemoval(PARTITION),
    }


@pytest.mark.parametrize(
    "changes",
    [{"size_bytes": -1}, {"epochs": (EpochEntry(0, 50), EpochEntry(1, 20))}, {"epochs": (EpochEntry(-1, 0),)}],
)
def test_what_brokers_take_and_no_segment_is_means_nothing(changes: dict[str, Any]) -> None:
    assert isinstance(event_of(encode(replace(segment_record(A), **changes))), UnusableRecord)


def test_a_name_that_no_topic_has_means_nothing() -> None:
    hostile = PartitionDeleteRecord(
        replace(ENTRY, topic="../x"), 1, 1, RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
    )
    assert isinstance(event_of(encode(hostile)), UnusableRecord)
