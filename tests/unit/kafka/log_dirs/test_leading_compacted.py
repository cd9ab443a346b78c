"""Which segments lack offsets, by their headers: as real log cleaners left them, and as nobody does."""

from pathlib import Path

import pytest

from include.tiering.errors import SourceVanishedError
from include.tiering.formats.log_batches import check_segment
from include.tiering.kafka.cluster.cluster_metadata import UnknownClusterMetadata
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import LogSegment, Replica
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.remote_storage.object_store import BytesSource
from tests.doubles.broker_data import copy_of
from tests.doubles.log_dirs import BrokerLogDir
from tests.doubles.record_batches import record_batch


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


class Log:
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
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@pytest.mark.parametrize("left", [(), (15,), (10,)], ids=["all is gone", "the beginning is gone", "the end is gone"])
def test_what_is_gone_at_either_end_or_all_of_it(log: Log, left: tuple[int, ...]) -> None:
    log.leave(10, *left)
    assert log.found(10) == [10]
    assert log.found() == []


def test_one_behind_the_other_up_to_the_first_that_is_whole(log: Log) -> None:
    for base in (0, 10, 30):
        log.leave(base)
    assert log.found() == [0, 10]
    assert log.found(20, 30) == []


def test_a_file_that_ends_inside_of_a_batch_is_damaged_and_not_compacted(log: Log) -> None:
    path = log.partition.file(10, "log")
    path.write_bytes(path.read_bytes()[:-1])
    assert log.found(10) == []


def test_batches_beyond_the_end_are_damage(log: Log) -> None:
    log.leave(10, 15, 20)
    assert log.found(10) == []


def test_a_segment_that_went_away(log: Log) -> None:
    (replica,) = log.source.scan().replicas
    log.partition.remove_segment(10)
    with pytest.raises(SourceVanishedError):
        log.source.leading_compacted(replica.replica_id, rolled(replica)[1:])
