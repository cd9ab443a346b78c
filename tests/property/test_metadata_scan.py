"""A look at the metadata topic that remembers what it read says what one says that begins anew, and reads no record
twice while nothing went away."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from include.tiering.formats.remote_log_metadata import encode
from include.tiering.formats.remote_log_metadata_records import segment_record, update_record
from include.tiering.handover.checks import MetadataTopicState
from include.tiering.handover.ports import MetadataScan
from include.tiering.kafka.metadata_topic.contract import metadata_partition_of
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Uuid
from tests.doubles.broker_records import record_sequences
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic
from tests.doubles.segments import partition_of, uuid

OURS = (partition_of("orders", 0), partition_of("orders", 1))
PARTITIONS = (*OURS, partition_of("payments", 0))
CONFIGS = {"retention.ms": "-1"}
EVENTS = st.sampled_from(["look", "look", "poison", "hole", "retention", "created again"])


class Journals:
    """Half of the segments are ours, once we have begun to publish."""

    def __init__(self) -> None:
        self.begun = False

    def journal(self, partition: TopicIdPartition) -> Any:
        return _Journal(self.begun)


class _Journal:
    def __init__(self, begun: bool) -> None:
        ids = [uuid(1_000_000 + number) for number in range(0, 7, 2)] if begun else []
        self.records = [_Published(segment_id) for segment_id in ids]


class _Published:
    def __init__(self, segment_id: Uuid) -> None:
        self.intent = self
        self.segment_id = segment_id
        self.state, self.offset, self.end_offset = RemoteLogSegmentState.COPY_SEGMENT_STARTED, 0, 0


def facts(scan: MetadataScan, topic: MemoryMetadataTopic, journals: Any, wanted: Sequence[TopicIdPartition]) -> Any:
    found = scan.evidence(topic, journals, CONFIGS, wanted)
    assert isinstance(found, MetadataTopicState)
    return found


def values(records: Sequence[Any]) -> list[tuple[TopicIdPartition, bytes]]:
    return [
        (one.topic_id_partition, encode(segment_record(one)))
        if isinstance(one, RemoteLogSegmentMetadata)
        else (one.remote_log_segment_id.topic_id_partition, encode(update_record(one)))
        for one in records
    ]


@given(records=record_sequences(PARTITIONS), events=st.dictionaries(st.integers(0, 29), EVENTS))
def test_it_says_what_a_new_one_says(records: Sequence[Any], events: Mapping[int, str]) -> None:
    topic, scan, journals = MemoryMetadataTopic(2), MetadataScan(), Journals()
    for turn, (partition, value) in enumerate(values(records)):
        number = metadata_partition_of(partition, topic.partitions)
        event = events.get(turn)
        if event == "poison":
            topic.append(number, b"no record")
        elif event == "hole":
            topic.leave_hole(number)
        elif event == "retention" and topic.offsets(number).end:
            topic.forget_before(number, topic.offsets(number).end)
        elif event == "created again":
            topic = MemoryMetadataTopic(2, id=uuid(turn))
        elif event == "look":
            journals.begun = turn % 2 == 1
            assert facts(scan, topic, journals, OURS) == facts(MetadataScan(), topic, journals, OURS)
        topic.append(number, value)
    assert facts(scan, topic, journals, OURS) == facts(MetadataScan(), topic, journals, OURS)


@given(
    records=record_sequences(OURS), looks=st.sets(st.integers(0, 29)), breaks=st.sets(st.integers(0, 60), max_size=3)
)
def test_no_record_is_read_twice(records: Sequence[Any], looks: set[int], breaks: set[int]) -> None:
    """Even if brokers go away in the midst of it."""
    topic, scan, journals = MemoryMetadataTopic(2), MetadataScan(), Journals()
    read = 0

    def count(call: str) -> None:
        nonlocal read
        if call == "read":
            if read in breaks:
                breaks.remove(read)
                raise ConnectionError
            read += 1

    def look() -> Any:
        while True:
            try:
                return facts(scan, topic, journals, OURS)
            except ConnectionError:
                continue

    topic.fault = count
    for turn, (partition, value) in enumerate(values(records)):
        topic.append(metadata_partition_of(partition, topic.partitions), value)
        if turn in looks:
            look()
    last = look()
    assert read == len(records)
    topic.fault = lambda _call: None
    assert last == facts(MetadataScan(), topic, journals, OURS)
