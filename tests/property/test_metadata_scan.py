"""Scans of the metadata log, whole and continued."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from include.tiering.formats.remote_log_metadata import encode
from include.tiering.formats.remote_log_metadata_records import segment_record, update_record
from include.tiering.handover.checks import MetadataTopicState
from include.tiering.handover.ports import MetadataScan
from include.tiering.kafka.cluster.contract import TopicMetadata
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.metadata_topic.contract import metadata_partition_of
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Uuid
from tests.doubles.log_dirs import BrokerLogDir
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic
from tests.doubles.record_batches import record_sequences
from tests.doubles.segments import partition_of, uuid
from tests.doubles.tiered_topic import (
    config_record,
    metadata_batch,
    partition_change,
    partition_record,
    remove_topic,
    snapshot,
    topic_record,
)

# A look at the metadata topic that remembers what it read says what one says that begins anew, and reads no record
# twice while nothing went away.

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


# A metadata log followed while it grows, rolls and is cleaned up says the same as one read at its end.

IDS = [Uuid(bytes([number]) * 16) for number in range(1, 5)]
NAMES = ["a", "b"]


@st.composite
def _histories(draw: st.DrawFn) -> list[bytes]:
    """Records that never contradict each other: what a controller would write."""
    records: list[bytes] = []
    alive: dict[str, Any] = {}
    unused = list(IDS)
    for _ in range(draw(st.integers(1, 20))):
        free = [name for name in NAMES if name not in alive]
        actions = ["config"] + ["create"] * bool(free and unused) + ["leader", "remove"] * bool(alive)
        action = draw(st.sampled_from(actions))
        if action == "create":
            name, topic_id = draw(st.sampled_from(free)), unused.pop(0)
            alive[name] = topic_id
            records += [topic_record(name, topic_id), partition_record(topic_id)]
        elif action == "config":
            value = draw(st.sampled_from(["compact", "delete", None]))
            records.append(config_record(draw(st.sampled_from(sorted(alive) or ["a"])), "cleanup.policy", value))
        else:
            name = draw(st.sampled_from(sorted(alive)))
            if action == "leader":
                records.append(partition_change(alive[name], leader=draw(st.integers(-1, 3))))
            else:
                records.append(remove_topic(alive.pop(name)))
    return records


def _answers(cluster_metadata: MetadataLog) -> list[tuple[TopicMetadata | None, bool]]:
    return [(cluster_metadata.topic(topic_id), cluster_metadata.is_removed(topic_id)) for topic_id in IDS]


@settings(max_examples=50)
@given(_histories(), st.data())
def test_followed_or_read_at_once(history: list[bytes], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log_dir = BrokerLogDir(Path(directory, "data"))
        folder = log_dir.path / "__cluster_metadata-0"
        folder.mkdir()
        segment, offset = folder / f"{0:020d}.log", 0
        segment.touch()
        followed = MetadataLog([log_dir.path])
        while offset < len(history):
            size = data.draw(st.integers(1, 5))
            batch = metadata_batch(offset, history[offset : offset + size])
            torn = data.draw(st.integers(0, len(batch)))
            before = segment.read_bytes()
            segment.write_bytes(before + batch[:torn])
            followed.refresh()
            segment.write_bytes(before + batch)
            offset = min(offset + size, len(history))
            if data.draw(st.booleans()):
                followed.refresh()
            if data.draw(st.booleans()):
                segment = folder / f"{offset:020d}.log"
                segment.touch()
        followed.refresh()
        fresh = MetadataLog([log_dir.path])
        assert _answers(followed) == _answers(fresh)
        assert followed.log_end_offset == fresh.log_end_offset == len(history)


@settings(max_examples=30)
@given(_histories(), st.data())
def test_a_snapshot_and_the_rest_say_the_same_as_the_log(history: list[bytes], data: st.DataObject) -> None:
    """Except for removals below the snapshot, of which nothing is left."""
    cut = data.draw(st.integers(0, len(history)))
    with tempfile.TemporaryDirectory() as directory:
        whole, cleaned = (BrokerLogDir(Path(directory, name)) for name in ("whole", "cleaned"))
        whole.append_metadata(*history)
        folder = cleaned.path / "__cluster_metadata-0"
        folder.mkdir()
        (folder / f"{cut:020d}-0000000003.checkpoint").write_bytes(snapshot(history[:cut]))
        batches = [metadata_batch(offset, [record]) for offset, record in enumerate(history)]
        (folder / f"{cut:020d}.log").write_bytes(b"".join(batches[cut:]))
        from_whole, from_cleaned = MetadataLog([whole.path]), MetadataLog([cleaned.path])
        assert [answer[0] for answer in _answers(from_cleaned)] == [answer[0] for answer in _answers(from_whole)]
        assert from_cleaned.log_end_offset == from_whole.log_end_offset
