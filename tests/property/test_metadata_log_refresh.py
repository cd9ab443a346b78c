"""A metadata log followed while it grows, rolls and is cleaned up says the same as one read at its end."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from include.tiering.kafka.cluster.contract import TopicMetadata
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.model.segments import Uuid
from tests.doubles.log_dirs import BrokerLogDir
from tests.doubles.metadata_records import (
    config_record,
    metadata_batch,
    partition_change,
    partition_record,
    remove_topic,
    snapshot,
    topic_record,
)

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
