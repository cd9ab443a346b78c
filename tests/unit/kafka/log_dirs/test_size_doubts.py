"""A size is believed if the batches reach the end of the file and the disk has its bytes."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from include.tiering.errors import SourceVanishedError
from include.tiering.kafka.cluster.cluster_metadata import UnknownClusterMetadata
from include.tiering.kafka.log_dirs import segment_checks
from include.tiering.kafka.log_dirs.contract import LogSegment, Replica
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.rules import MOST_SEGMENT_BYTES, counted_bytes, local_only_bytes, without_doubtful
from include.tiering.kafka.log_dirs.source import LogDirSource
from tests.doubles.log_dirs import BrokerLogDir, PartitionDirectory

MIB = 2**20


class Log:
    """`orders-0` with rolled segments at 0, 10 and 20, and the active one at 30."""

    def __init__(self, tmp_path: Path) -> None:
        self.broker = BrokerLogDir(tmp_path / "broker")
        self.partition: PartitionDirectory = self.broker.partition()
        end = self.partition.filled(0, 10, 20, 30)
        self.broker.all_current({"orders-0": end})
        self.source = LogDirSource(
            [LogDirLocation(1, self.broker.path)], UnknownClusterMetadata(), named_topics=["orders"]
        )

    @property
    def replica(self) -> Replica:
        (replica,) = self.source.scan().replicas
        return replica

    def doubts(self) -> dict[int, str]:
        replica = self.replica
        return dict(self.source.size_doubts(replica.replica_id, replica.segments))

    def path(self, base_offset: int) -> Path:
        return self.partition.file(base_offset, "log")


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_of_whole_files_there_is_none(log) -> None:
    assert log.doubts() == {}


def test_bytes_behind_the_last_batch(log) -> None:
    size = log.path(10).stat().st_size
    with log.path(10).open("ab") as end:
        end.write(b"x")
    assert log.doubts() == {10: f"its batches end at byte {size} and offset 19"}


def test_without_an_index_all_batches_are_walked(log) -> None:
    log.partition.file(10, "index").write_bytes(b"")
    assert log.doubts() == {}
    with log.path(10).open("ab") as end:
        end.write(bytes(100))
    assert log.doubts().keys() == {10}


@pytest.mark.parametrize("entry", [b"\x7f\xff\xff\xff" * 2, b"\0\0\0\x03\0\0\0\x05"])
def test_an_index_that_leads_nowhere(log, entry) -> None:
    """Beyond the file all batches are walked; into the middle of a batch nothing can be seen."""
    log.partition.file(10, "index").write_bytes(entry)
    with log.path(10).open("ab") as end:
        end.write(bytes(100))
    assert log.doubts().keys() == {10}


def test_batches_of_the_next_segment(log) -> None:
    with log.path(10).open("ab") as end:
        end.write(log.path(20).read_bytes())
    assert log.doubts().keys() == {10}


def test_a_hole(log) -> None:
    """Also of an active segment, whose end the scan has looked for itself."""
    replica = log.replica
    for base_offset in (10, 30):
        os.truncate(log.path(base_offset), 2**40)
    long = [replace(one, size_bytes=2**40) for one in replica.segments]
    doubts = log.source.size_doubts(replica.replica_id, [one for one in long if one.base_offset in (10, 30)])
    assert doubts.keys() == {10, 30}
    assert all("bytes of it are on the disk" in why for why in doubts.values())


def test_a_walk_that_takes_long_is_given_up(log, monkeypatch) -> None:
    log.partition.file(10, "index").write_bytes(b"")
    monkeypatch.setattr(segment_checks, "_MOST_BATCHES", 1)
    assert log.doubts().keys() == {10}


def test_a_file_that_grew_or_went(log) -> None:
    replica = log.replica
    os.truncate(log.path(10), 5)
    log.path(20).unlink()
    doubts = log.source.size_doubts(replica.replica_id, replica.segments)
    assert doubts.keys() == {10, 20}
    assert "now 5" in doubts[10]


def test_a_replica_that_is_not_there(log) -> None:
    replica = log.replica
    elsewhere = replace(replica.replica_id, directory_id="another")
    with pytest.raises(SourceVanishedError):
        log.source.size_doubts(elsewhere, replica.segments)
    (log.partition.path / "partition.metadata").write_text("version: 0\ntopic_id: b3JkZXJzLW9uY2UtbW9yZQ")
    with pytest.raises(SourceVanishedError):
        log.source.size_doubts(replica.replica_id, replica.segments)


class TestCounting:
    def test_at_most_what_kafka_allows(self, log) -> None:
        replica = log.replica
        long = replace(replica.segments[0], size_bytes=2**40)
        assert counted_bytes(long, replica) == MOST_SEGMENT_BYTES
        assert counted_bytes(long, replace(replica, segment_bytes=MIB)) == MIB
        assert counted_bytes(replica.segments[0], replace(replica, segment_bytes=MIB)) == replica.segments[0].size_bytes
        every = replace(replica, segments=(long, long), segment_bytes=MIB)
        assert local_only_bytes(every, None, 0) == 2 * MIB

    def test_nothing_of_what_is_in_doubt_or_corrupt(self, log) -> None:
        replica = log.replica
        segments: list[LogSegment] = list(replica.segments)
        segments[1] = replace(segments[1], is_corrupt=True)
        sure, sentences = without_doubtful(replica, segments, {20: "a hole"})
        assert [one.base_offset for one in sure.segments] == [0, 30]
        assert [one.split(",")[0].split(" has ")[0] for one in sentences] == [
            "the local segment at offset 10",
            "the local segment at offset 20",
        ]

    def test_segment_bytes_come_from_the_topic_s_metadata(self, tmp_path) -> None:
        from include.tiering.kafka.cluster.metadata_log import MetadataLog

        log = Log(tmp_path)
        log.broker.create_topic(configs={"segment.bytes": "4096"})
        source = LogDirSource([LogDirLocation(1, log.broker.path)], MetadataLog([log.broker.path]))
        (replica,) = source.scan().replicas
        assert replica.segment_bytes == 4096
        assert log.replica.segment_bytes is None
