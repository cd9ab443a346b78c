"""The log source contract over log directories, leaders' logs, and the double that stands in for them."""

import shutil
from pathlib import Path

import pytest

from include.tiering.clock import SystemClock
from include.tiering.kafka.cluster.cluster_metadata import UnknownClusterMetadata
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.fetch_api.beside_log_dirs import LogDirsAndLeaders, OtherLeaders
from include.tiering.kafka.fetch_api.contract import DIRECTORY_ID
from include.tiering.kafka.fetch_api.spool import Spool
from include.tiering.kafka.log_dirs.contract import LogSource, ReplicaId
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.model.segments import TopicIdPartition
from tests.contract.log_source_contract import LogSourceContract
from tests.doubles.leader_logs import FetchWorld, headers_of
from tests.doubles.log_dirs import ORDERS, BrokerLogDir
from tests.doubles.memory_source import MemorySource
from tests.doubles.model_brokers import ModelBrokers
from tests.doubles.record_batches import record_batch


class LogDirBackdoor:
    def __init__(self, path: Path) -> None:
        log_dir = BrokerLogDir(path)
        log_dir.create_topic()
        self._partition = log_dir.partition()
        log_dir.all_current({"orders-0": self._partition.filled(0, 10, 20, 30)})
        self.source = LogDirSource([LogDirLocation(1, path)], MetadataLog([path]))
        self.replica_id = ReplicaId(TopicIdPartition(ORDERS, 0, "orders"), 1, str(log_dir.directory_id))

    def damage(self, base_offset: int) -> None:
        log = self._partition.file(base_offset, "log")
        log.write_bytes(log.read_bytes()[:-1] + b"\xff")

    def replace_files(self) -> None:
        for log in self._partition.path.glob("*.log"):
            fresh = log.with_suffix(".fresh")
            fresh.write_bytes(log.read_bytes()[:-1] + b"\xff")
            fresh.replace(log)

    def remove_partition(self) -> None:
        shutil.rmtree(self._partition.path)


class FetchBackdoor:
    """Batches of five records, two of which fit into a range; after the last range, one that closes it."""

    def __init__(self, spool: Spool) -> None:
        log = b"".join(record_batch(base, count=5) for base in range(0, 35, 5))
        self._world = FetchWorld(spool, log, segment_bytes=2 * len(record_batch(0, count=5)))
        self.source = self._world.source
        self.replica_id = ReplicaId(self._world.partition, 1, DIRECTORY_ID)
        self._world.scan()

    def damage(self, base_offset: int) -> None:
        logs, partition = self._world.logs.logs, self._world.partition
        (position,) = (at for at, header in headers_of(logs[partition]) if header.base_offset == base_offset)
        damaged = bytearray(logs[partition])
        damaged[position + 70] ^= 0xFF
        logs[partition] = bytes(damaged)

    def replace_files(self) -> None:
        self._world.replace(b"".join(record_batch(base, count=5, leader_epoch=7) for base in range(0, 35, 5)))
        self._world.model.leader_epoch = 7

    def remove_partition(self) -> None:
        self._world.brokers.delete_topic("orders")


class LogDirBesideLeaders(LogDirBackdoor):
    """Nobody else leads a partition."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        brokers = ModelBrokers()
        brokers.create_topic("orders", topic_id=ORDERS)
        no_others = OtherLeaders(brokers, frozenset({1}), self._never)
        self.source = LogDirsAndLeaders(self.source, no_others)  # type: ignore[assignment]

    def _never(self) -> LogSource:
        raise AssertionError("the leaders are not needed")


class LeadersBesideLogDirs(FetchBackdoor):
    """No log directory has a replica."""

    def __init__(self, spool: Spool) -> None:
        super().__init__(spool)
        leaders = self.source
        others = OtherLeaders(self._world.brokers, frozenset({7}), lambda: leaders)
        self.source = LogDirsAndLeaders(LogDirSource([], UnknownClusterMetadata()), others)  # type: ignore[assignment]


class MemoryBackdoor:
    def __init__(self) -> None:
        self.source = MemorySource()
        self.replica_id = self.source.add("orders")

    def damage(self, base_offset: int) -> None:
        self.source.corrupt.add((self.replica_id.topic_id_partition, base_offset))

    def replace_files(self) -> None:
        self.source.generation += 1

    def remove_partition(self) -> None:
        del self.source.replicas[self.replica_id]


class TestLogDirSource(LogSourceContract):
    @pytest.fixture
    def behind(self, tmp_path: Path) -> LogDirBackdoor:
        return LogDirBackdoor(tmp_path / "data")


class TestFetchSource(LogSourceContract):
    @pytest.fixture
    def behind(self, tmp_path: Path) -> FetchBackdoor:
        return FetchBackdoor(Spool(tmp_path, 1 << 20, SystemClock()))


class TestLogDirBesideLeaders(LogSourceContract):
    @pytest.fixture
    def behind(self, tmp_path: Path) -> LogDirBackdoor:
        return LogDirBesideLeaders(tmp_path / "data")


class TestLeadersBesideLogDirs(LogSourceContract):
    @pytest.fixture
    def behind(self, tmp_path: Path) -> FetchBackdoor:
        return LeadersBesideLogDirs(Spool(tmp_path, 1 << 20, SystemClock()))


class TestMemorySource(LogSourceContract):
    @pytest.fixture
    def behind(self) -> MemoryBackdoor:
        return MemoryBackdoor()
