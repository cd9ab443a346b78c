"""Everything that real brokers wrote reads as Kafka's own classes and tools say it should."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from include.tiering.formats import checkpoints, indexes
from include.tiering.formats.checkpoints import parse_offset_checkpoint
from include.tiering.formats.indexes import open_transactions
from include.tiering.formats.log_batches import check_segment, find_log_end
from include.tiering.formats.record_batch import LogBatch, iter_headers
from include.tiering.model.leader_epochs import LeaderEpochs
from tests.doubles.broker_data import DataSet, broker_data, expected
from tests.doubles.memory_source import BytesSource

# The oracle's names, in the order of the file.
_PRODUCER_FIELDS = (
    "producer_id",
    "epoch",
    "last_sequence",
    "last_offset",
    "offset_delta",
    "timestamp",
    "coordinator_epoch",
    "txn_first_offset",
)


@dataclass(frozen=True)
class Copy:
    """One copy of one broker's log directory, and what Kafka says of it."""

    name: str
    log_dir: Path
    facts: dict[str, Any]
    topics: dict[str, Any]

    def partitions(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        for name, facts in self.facts["partitions"].items():
            yield self.log_dir / name, facts

    def segments(self) -> Iterator[tuple[Path, dict[str, Any], dict[str, Any]]]:
        """(path of the `.log`, facts of the segment, facts of its partition)"""
        for directory, partition in self.partitions():
            for segment in partition["segments"]:
                yield directory / f"{segment['base_offset']:020}.log", segment, partition


def _copies() -> Iterator[Copy]:
    sets: tuple[DataSet, ...] = ("public", "tiered", "crash")
    for data_set in sets:
        oracle, root = expected(data_set), broker_data(data_set)
        topics = oracle["facts"]["topics"]
        for copy, facts in oracle["snapshots"].items():
            if data_set == "public":
                for broker in facts:
                    yield Copy(f"public {copy} {broker}", root / copy / broker, facts[broker], topics)
            else:
                directory = root / (f"data-{copy}" if data_set == "tiered" else copy)
                yield Copy(f"{data_set} {copy}", directory, facts, topics)


@pytest.fixture(params=_copies(), ids=lambda copy: copy.name)
def copy(request: pytest.FixtureRequest) -> Copy:
    found: Copy = request.param
    return found


def _end_offset(segment: dict[str, Any]) -> int:
    return int(segment.get("end_offset", segment["last_offset"]))


def _log(path: Path, segment: dict[str, Any]) -> bytes:
    """Without the tail that an active segment may have."""
    return path.read_bytes()[: segment["valid_bytes"]]


def _batches(directory: Path, partition: dict[str, Any]) -> Iterator[LogBatch]:
    for segment in partition["segments"]:
        yield from iter_headers(BytesSource.of_file(directory / f"{segment['base_offset']:020}.log"))


@pytest.mark.parametrize("block_bytes", [1024, 65_536])
def test_the_check_pass(copy: Copy, block_bytes: int) -> None:
    for path, segment, partition in copy.segments():
        log = _log(path, segment)
        facts = check_segment(
            BytesSource(log),
            base_offset=segment["base_offset"],
            end_offset=_end_offset(segment),
            leader_epochs=LeaderEpochs.of(partition["leader_epochs"]),
            block_bytes=block_bytes,
        )
        found = {
            "valid_bytes": facts.size_bytes,
            "batches": facts.batch_count,
            "max_timestamp": facts.max_timestamp_ms,
            "control_batches": facts.control_batch_count,
            "abort_markers": facts.abort_marker_count,
            "commit_markers": facts.commit_marker_count,
        }
        assert found == {name: segment[name] for name in found}, path
        assert facts.crc32c == google_crc32c.value(log)
        assert {epoch for epoch, _ in facts.leader_epochs} == set(map(int, segment["leader_epoch_batches"]))
        if segment["batches"]:
            assert facts.last_offset == segment["last_offset"]


def test_a_shorter_segment_than_the_successor_says_is_not_cut_at_will(copy: Copy) -> None:
    """The end of a rolled segment is known from outside: only a whole number of batches passes."""
    for path, segment, _ in copy.segments():
        end = find_log_end(BytesSource(_log(path, segment)[:-1]), base_offset=segment["base_offset"])
        assert end.batch_count == max(segment["batches"] - 1, 0), path
        assert end.torn == bool(segment["batches"])


def test_the_end_of_every_log(copy: Copy) -> None:
    for path, segment, _ in copy.segments():
        end = find_log_end(BytesSource.of_file(path), base_offset=segment["base_offset"], block_bytes=8192)
        assert end.valid_bytes == segment["valid_bytes"], path
        assert end.batch_count == segment["batches"]
        assert end.max_timestamp_ms == segment["max_timestamp"]
        assert end.torn == (segment["valid_bytes"] < segment["file_size"])
        if segment["batches"]:
            assert end.log_end_offset == segment["last_offset"] + 1


def test_headers_alone_tell_the_same(copy: Copy) -> None:
    for path, segment, _ in copy.segments():
        headers = [batch.header for batch in iter_headers(BytesSource.of_file(path))]
        assert len(headers) == segment["batches"], path
        codecs = [header.codec.name.lower() for header in headers]
        assert {codec: codecs.count(codec) for codec in codecs} == segment["codec_batches"]
        assert sum(header.has_log_append_time for header in headers) == segment["log_append_time_batches"]
        assert sum(header.is_transactional for header in headers) == segment["transactional_batches"]


def test_indexes(copy: Copy) -> None:
    for path, segment, _ in copy.segments():
        base_offset, rolled = segment["base_offset"], not segment["active"]
        offsets_file, times_file = path.with_suffix(".index"), path.with_suffix(".timeindex")
        offsets = indexes.parse_offset_index(offsets_file.read_bytes(), base_offset=base_offset)
        assert list(zip(offsets.offsets, offsets.positions, strict=True)) == list(map(tuple, segment["offset_index"]))
        times = indexes.parse_time_index(times_file.read_bytes(), base_offset=base_offset)
        assert list(zip(times.timestamps_ms, times.offsets, strict=True)) == list(map(tuple, segment["time_index"]))
        if rolled:
            end_offset = segment["end_offset"]
            size_bytes = segment["file_size"]
            indexes.check_offset_index(
                offsets_file.read_bytes(), base_offset=base_offset, end_offset=end_offset, size_bytes=size_bytes
            )
            indexes.check_time_index(times_file.read_bytes(), base_offset=base_offset, end_offset=end_offset)
            assert times.largest_timestamp_ms == segment["max_timestamp"]


def test_lookups_start_at_a_batch_at_or_before_the_offset(copy: Copy) -> None:
    for path, segment, _ in copy.segments():
        index = indexes.parse_offset_index(path.with_suffix(".index").read_bytes(), base_offset=segment["base_offset"])
        starts = {batch.position: batch.header for batch in iter_headers(BytesSource.of_file(path))}
        for header in starts.values():
            _, position = index.lookup(header.base_offset)
            assert starts[position].base_offset <= header.base_offset


def test_aborted_transactions_and_last_stable_offsets(copy: Copy) -> None:
    for directory, partition in copy.partitions():
        in_files = []
        for segment in partition["segments"]:
            file = directory / f"{segment['base_offset']:020}.txnindex"
            if file.exists():
                index = indexes.check_transaction_index(
                    file.read_bytes(), base_offset=segment["base_offset"], end_offset=_end_offset(segment)
                )
                in_files += list(index)
        recorded = [tuple(entry) for segment in partition["segments"] for entry in segment.get("txn_index", [])]
        assert in_files == recorded, directory
        assert list(open_transactions((), _batches(directory, partition)).aborted) == recorded


@pytest.mark.parametrize(
    ("data_set", "copy_name", "partition", "high_watermark", "stable"),
    [
        ("public", "stopped/broker-1", "payments.v1-eu-0", 1259, 727),
        ("public", "running/broker-2", "payments.v1-eu-0", 1259, 727),
        ("crash", "killed", "prealloc-0", 450, 420),
        ("crash", "recovered-stopped", "prealloc-0", 450, 420),
        ("tiered", "data-stopped", "tier.tx-0", 10_000, 10_000),
    ],
)
def test_every_snapshot_leads_to_the_same_last_stable_offset(
    data_set: DataSet, copy_name: str, partition: str, high_watermark: int, stable: int
) -> None:
    directory = broker_data(data_set) / copy_name / partition
    logs = sorted(directory.glob("*.log"))
    batches = [batch for log in logs for batch in iter_headers(BytesSource.of_file(log))]
    for file in directory.glob("*.snapshot"):
        after = [batch for batch in batches if batch.header.base_offset >= int(file.stem)]
        found = open_transactions(indexes.parse_producer_snapshot(file.read_bytes()), after)
        assert found.last_stable_offset(high_watermark) == stable, file


def test_last_stable_offsets_are_those_of_a_consumer() -> None:
    facts = expected("public")["facts"]["topics"]["payments.v1-eu"]["partitions"]["0"]["offsets"]
    assert (facts["latest"]["offset"], facts["latest_read_committed"]["offset"]) == (1259, 727)
    facts = expected("crash")["facts"]["topics"]["prealloc"]["partitions"]["0"]["offsets"]
    assert (facts["latest"]["offset"], facts["latest_read_committed"]["offset"]) == (450, 420)


def test_producer_snapshots(copy: Copy) -> None:
    for directory, partition in copy.partitions():
        for name, producers in partition["producer_snapshots"].items():
            data = (directory / name).read_bytes()
            entries = indexes.parse_producer_snapshot(data)
            assert sorted(map(astuple, entries)) == sorted(
                tuple(producer[name] for name in _PRODUCER_FIELDS) for producer in producers
            )
            assert indexes.serialize_producer_snapshot(entries) == data


def test_histories_and_topic_ids(copy: Copy) -> None:
    for directory, partition in copy.partitions():
        data = (directory / "leader-epoch-checkpoint").read_bytes()
        history = checkpoints.parse_leader_epochs(data)
        assert history == LeaderEpochs.of(partition["leader_epochs"])
        assert checkpoints.serialize_leader_epochs(history) == data
        topic_id = checkpoints.parse_partition_metadata((directory / "partition.metadata").read_bytes())
        assert partition["partition_metadata"].endswith(f"topic_id: {topic_id}")


def test_root_files(copy: Copy) -> None:
    files = {file.name: file.read_bytes() for file in copy.log_dir.glob("*-offset-checkpoint")}
    assert "replication-offset-checkpoint" in files
    parsed = {name: parse_offset_checkpoint(data) for name, data in files.items()}
    for name, recorded in copy.facts.get("checkpoints", {}).items():
        assert {f"{topic}-{partition}": offset for (topic, partition), offset in parsed[name].items()} == recorded
    meta = checkpoints.parse_meta_properties((copy.log_dir / "meta.properties").read_bytes())
    assert meta.version == 1
    assert meta.directory_id is not None


def _copied_by_the_broker() -> list[tuple[Path, dict[str, Any]]]:
    """(path of the objects without suffix, the broker's metadata) of every copy that left objects."""
    root = broker_data("tiered") / "kafka-tiered-storage"
    found = []
    for record in expected("tiered")["remote_log_metadata"]:
        if record["type"] == "RemoteLogSegmentMetadata":
            directory = root / f"{record['topic']}-{record['partition']}-{record['topic_id']}"
            stem = directory / f"{record['start_offset']:020}-{record['segment_id']}"
            if stem.with_name(f"{stem.name}.log").exists():
                found.append((stem, record))
    return found


def test_what_a_broker_copied_to_remote_storage() -> None:
    copied = _copied_by_the_broker()
    assert len(copied) > 10
    for stem, record in copied:
        start, end, size_bytes = record["start_offset"], record["end_offset"], record["segment_size_in_bytes"]
        parts = {part.suffix: part.read_bytes() for part in stem.parent.glob(f"{stem.name}.*")}
        history = checkpoints.parse_leader_epochs(parts[".leader_epoch_checkpoint"])
        segment = check_segment(
            BytesSource(parts[".log"]), base_offset=start, end_offset=end, leader_epochs=history, block_bytes=4096
        )
        assert (segment.size_bytes, segment.max_timestamp_ms) == (size_bytes, record["max_timestamp_ms"])
        assert {str(e): offset for e, offset in history.range(start, end + 1)} == record["leader_epochs"]
        indexes.check_offset_index(parts[".index"], base_offset=start, end_offset=end, size_bytes=size_bytes)
        times = indexes.check_time_index(parts[".timeindex"], base_offset=start, end_offset=end)
        assert times.largest_timestamp_ms == record["max_timestamp_ms"]
        assert all(entry.last_offset <= end for entry in indexes.parse_producer_snapshot(parts[".snapshot"]))
        aborted = indexes.check_transaction_index(parts.get(".txnindex", b""), base_offset=start, end_offset=end)
        assert len(aborted) == segment.abort_marker_count
        assert record["txn_index_empty"] is (".txnindex" not in parts)
