"""Sizes that are not certain, and logs that were compacted at their beginning."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from include.tiering.errors import SourceVanishedError
from include.tiering.formats.log_batches import check_segment
from include.tiering.kafka.cluster.cluster_metadata import UnknownClusterMetadata
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs import segment_checks
from include.tiering.kafka.log_dirs.contract import LogSegment, Replica
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.rules import (
    MAX_SEGMENT_BYTES,
    counted_bytes,
    local_only_bytes,
    local_only_segments,
    without_doubtful,
)
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.remote_storage.object_store import BytesSource
from tests.doubles.broker_data import copy_of
from tests.doubles.log_dirs import BrokerLogDir, PartitionDirectory
from tests.doubles.record_batches import record_batch

# A size is believed if the batches reach the end of the file and the disk has its bytes.

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


@pytest.mark.parametrize("position", [-1, 0, 1])
def test_an_index_that_leads_to_the_end_of_the_file_or_beyond_is_not_followed(log, position) -> None:
    """From its end on there is no batch, so the walk begins at the front: it ends where the batches end."""
    size = log.path(10).stat().st_size
    log.partition.file(10, "index").write_bytes((9).to_bytes(4) + (size + position).to_bytes(4))
    if position >= 0:
        assert log.doubts() == {}
    else:
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
    monkeypatch.setattr(segment_checks, "_MAX_BATCHES", 1)
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
        assert counted_bytes(long, replica) == MAX_SEGMENT_BYTES
        assert counted_bytes(long, replace(replica, segment_bytes=MIB)) == MIB
        assert counted_bytes(replica.segments[0], replace(replica, segment_bytes=MIB)) == replica.segments[0].size_bytes
        every = replace(replica, segments=(long, long), segment_bytes=MIB)
        assert local_only_bytes(every, None, 0) == 2 * MIB

    @pytest.mark.parametrize(
        ("highest_copied", "log_start", "bases"),
        [
            (None, 0, [0, 10, 20, 30]),
            (-1, 0, [0, 10, 20, 30]),
            (0, 0, [10, 20, 30]),
            (9, 0, [10, 20, 30]),
            (10, 0, [20, 30]),
            (None, 10, [10, 20, 30]),
            (None, 11, [20, 30]),
            (9, 11, [20, 30]),
        ],
    )
    def test_local_only_is_what_begins_above_the_copied_and_not_below_the_log_start(
        self, log, highest_copied, log_start, bases
    ) -> None:
        found = local_only_segments(log.replica, highest_copied, log_start)
        assert [segment.base_offset for segment in found] == bases

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


# Which segments lack offsets, by their headers: as real compacted cleaners left them, and as nobody does.


def test_headers_say_of_every_segment_of_real_brokers_what_reading_it_says(tmp_path: Path) -> None:
    brokers = copy_of("public", tmp_path, part="stopped")
    dirs = [LogDirLocation(broker, brokers / f"broker-{broker}") for broker in (1, 2)]
    source = LogDirSource(dirs, MetadataLog([one.path for one in dirs]))
    lacking = []
    for replica in source.scan().replicas:
        directory = brokers / f"broker-{replica.replica_id.broker_id}" / str(replica.topic_id_partition)
        for segment in rolled(replica):
            read = (directory / f"{segment.base_offset:020d}.log").read_bytes()
            batches = check_segment(
                BytesSource(read), base_offset=segment.base_offset, end_offset=segment.end_offset, leader_epochs=None
            )
            found = source.leading_compacted(replica.replica_id, [segment])
            assert bool(found) is (batches.first_missing_offset is not None), (directory, segment.base_offset)
            lacking += [replica.topic_id_partition.topic] if found else []
    assert set(lacking) == {"state-compacted"}


def rolled(replica: Replica) -> list[LogSegment]:
    return [segment for segment in replica.segments if not segment.active]


class CompactedLog:
    """`orders-0` with rolled segments at 0, 10, 20 and 30, two batches of five in each, and the active one at 40."""

    def __init__(self, tmp_path: Path) -> None:
        broker = BrokerLogDir(tmp_path / "broker")
        self.partition = broker.partition()
        broker.all_current({"orders-0": self.partition.filled(0, 10, 20, 30, 40)})
        self.source = LogDirSource([LogDirLocation(1, broker.path)], UnknownClusterMetadata(), named_topics=["orders"])

    def leave(self, base: int, *batches: int) -> None:
        """Only the batches of five that begin at these offsets."""
        self.partition.segment(base, [record_batch(at, count=5) for at in batches], next_base=base + 10)

    def found(self, *bases: int) -> list[int]:
        (replica,) = self.source.scan().replicas
        asked = [segment for segment in rolled(replica) if not bases or segment.base_offset in bases]
        return [segment.base_offset for segment in self.source.leading_compacted(replica.replica_id, asked)]


@pytest.fixture
def compacted(tmp_path: Path) -> CompactedLog:
    return CompactedLog(tmp_path)


@pytest.mark.parametrize("left", [(), (15,), (10,)], ids=["all is gone", "the beginning is gone", "the end is gone"])
def test_what_is_gone_at_either_end_or_all_of_it(compacted: CompactedLog, left: tuple[int, ...]) -> None:
    compacted.leave(10, *left)
    assert compacted.found(10) == [10]
    assert compacted.found() == []


def test_one_behind_the_other_up_to_the_first_that_is_whole(compacted: CompactedLog) -> None:
    for base in (0, 10, 30):
        compacted.leave(base)
    assert compacted.found() == [0, 10]
    assert compacted.found(20, 30) == []


def test_a_file_that_ends_inside_of_a_batch_is_damaged_and_not_compacted(compacted: CompactedLog) -> None:
    path = compacted.partition.file(10, "log")
    path.write_bytes(path.read_bytes()[:-1])
    assert compacted.found(10) == []


def test_batches_beyond_the_end_are_damage(compacted: CompactedLog) -> None:
    compacted.leave(10, 15, 20)
    assert compacted.found(10) == []


def test_a_segment_that_went_away(compacted: CompactedLog) -> None:
    (replica,) = compacted.source.scan().replicas
    compacted.partition.remove_segment(10)
    with pytest.raises(SourceVanishedError):
        compacted.source.leading_compacted(replica.replica_id, rolled(replica)[1:])
