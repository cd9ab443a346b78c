"""A throw-away broker, on which a handover is rehearsed: a cluster of its own with samples of a topic's partitions.

A handover makes a topic's brokers copy and expire the topic instead of the platform. A *sample* has copies of a
partition's newest segments (`sample.py`). They are put into the broker's log directory as if the broker had always led
these partitions.

    root/broker/    its configuration, its server.log, and data/, its log directory
    root/remote/    the segments of its remote storage manager
    root/platform/  left to the caller: settings, database and store of the platform that hands the topic over

step        what it does
format      StorageTool writes meta.properties and the first records of a new cluster
topic       a batch is appended to these records. It has the topic with its id, and each partition with the last leader
            epoch of its sample. So the broker is elected in a higher epoch, and keeps the epochs of the copied records.
            If a request created the topic, partitions would begin at epoch 0, and a leader removes from its history
            every epoch that is not below its own
files       the samples are copied; checkpoints with their log starts, and with recovery points that mark all rolled
            segments as flushed, are written
start       the broker loads the partitions, recovers the active segments and is elected

A crash at any step leaves the root directory, and no file elsewhere; the caller removes it. On Linux the broker ends
with the thread that started it (see `broker_process.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from include.tiering.broker_process.broker_process import (
    BrokerProcess,
    Ports,
    free_ports,
    logging_option,
    server_properties,
)
from include.tiering.broker_process.kafka_home import KafkaHome
from include.tiering.broker_process.sample import PartitionSample, copy_sample
from include.tiering.clock import Clock
from include.tiering.errors import PortTakenError, RehearsalError
from include.tiering.formats.checkpoints import parse_leader_epochs, serialize_offset_checkpoint
from include.tiering.formats.cluster_metadata import topic_batch
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.kafka.log_dirs.files import LEADER_EPOCH_CHECKPOINT
from include.tiering.model.segments import TopicIdPartition, Uuid

NODE_ID: Final = 1
_UNTIL_CONFIGURED: Final = {"log.retention.ms": -1}
"""The broker's configuration has this, so no record expires before the topic gets its own configs."""
_HEAP_MIB: Final = 512
_ATTEMPTS: Final = 3
_RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
_LOG_STARTS: Final = "log-start-offset-checkpoint"
_HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
_BOOTSTRAP: Final = ("bootstrap.checkpoint", "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint")
"""The files in which Kafka stores the first records of a new cluster: each release writes one of them."""


@dataclass(frozen=True, slots=True)
class ThrowAwayBroker:
    """A prepared broker; it runs within `running`."""

    root: Path
    process: BrokerProcess

    @property
    def remote_dir(self) -> Path:
        return _remote_dir(self.root)

    @property
    def platform_dir(self) -> Path:
        return self.root / "platform"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the broker, and kill it at the end of the block.

        The thread that enters the block must live until the block ends: on Linux the broker ends with that thread.

        Raises:
            BrokerProcessError: the broker does not start.
        """
        try:
            self._start()
            yield
        finally:
            self.process.kill()

    def _start(self) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self.process.start()
            except PortTakenError:
                if attempt == _ATTEMPTS:
                    raise
                _configure(self.process, self.root)
            else:
                return


def prepare_broker(
    root: Path,
    kafka: KafkaHome,
    samples: Sequence[PartitionSample],
    sources: Mapping[ReplicaId, Path],
    *,
    clock: Clock,
    random_bytes: Callable[[int], bytes],
    on_bytes: Callable[[int], None],
) -> ThrowAwayBroker:
    """Prepare a broker in the empty directory `root`: all steps of this module but the last, `start`.

    Args:
        root: an empty directory.
        kafka: the jars of a Kafka release.
        samples: the samples, all of one topic.
        sources: the log directory (with all partitions of a broker) from which each sample is copied, by replica.
        clock: the clock for timeouts and record timestamps.
        random_bytes: the source of the cluster id.
        on_bytes: called after each copied block with the number of its bytes.

    Raises:
        RehearsalError: Java is missing, or StorageTool does not format the log directory.
        SourceError: a file of a sample cannot be read.
        OSError: a copy cannot be written.
    """
    process = _formatted(root, kafka, clock, random_bytes)
    topic = samples[0].replica_id.topic_id_partition
    epochs = {sample.partition: sample.leader_epoch for sample in samples}
    create_topic(process.log_dir, topic.topic, topic.topic_id, epochs, now_ms=clock.now_ms())
    for sample in samples:
        copy_sample(sample, sources[sample.replica_id], process.log_dir, on_bytes)
    _write_checkpoints(process.log_dir, samples)
    return ThrowAwayBroker(root, process)


def prepare_restored_broker(
    root: Path,
    kafka: KafkaHome,
    restored: Path,
    partitions: Sequence[TopicIdPartition],
    *,
    clock: Clock,
    random_bytes: Callable[[int], bytes],
) -> ThrowAwayBroker:
    """Prepare a broker in the empty directory `root`, whose log directory gets what a restore has written.

    Args:
        root: an empty directory, on the file system of `restored`.
        kafka: the jars of a Kafka release.
        restored: a complete restore of these partitions; their directories are moved, not copied.
        partitions: all of one topic.
        clock: the clock for timeouts and record timestamps.
        random_bytes: the source of the cluster id.

    Raises:
        RehearsalError: Java is missing, or StorageTool does not format the log directory.
    """
    process = _formatted(root, kafka, clock, random_bytes)
    topic, log_dir = partitions[0], process.log_dir
    epochs = {each.partition: last_leader_epoch(restored / str(each)) for each in partitions}
    create_topic(log_dir, topic.topic, topic.topic_id, epochs, now_ms=clock.now_ms())
    for each in partitions:
        (restored / str(each)).rename(log_dir / str(each))
    for name in (_RECOVERY_POINTS, _LOG_STARTS, _HIGH_WATERMARKS):
        (restored / name).rename(log_dir / name)
    return ThrowAwayBroker(root, process)


def last_leader_epoch(partition_directory: Path) -> int:
    """Return the last leader epoch in the checkpoint of a partition's directory; 0 if the checkpoint has no entry."""
    entries = parse_leader_epochs((partition_directory / LEADER_EPOCH_CHECKPOINT).read_bytes()).entries
    return entries[-1].epoch if entries else 0


def _formatted(root: Path, kafka: KafkaHome, clock: Clock, random_bytes: Callable[[int], bytes]) -> BrokerProcess:
    home = root / "broker"
    for directory in (home, _remote_dir(root), root / "platform"):
        directory.mkdir()
    logging = logging_option(kafka.version, home, home / "server.log")
    process = BrokerProcess(
        NODE_ID,
        home,
        home / "data",
        0,
        kafka.class_path,
        logging,
        tiering=True,
        heap_mib=_HEAP_MIB,
        ends_with_starter=True,
        clock=clock,
    )
    _configure(process, root)
    process.format(str(Uuid.random(random_bytes)))
    return process


def _remote_dir(root: Path) -> Path:
    return root / "remote"


def _configure(process: BrokerProcess, root: Path) -> None:
    """Write the configuration with ports that are free now."""
    process.port, controller = free_ports(2)
    ports = Ports(process.port, controller)
    text = server_properties(NODE_ID, ports, process.log_dir, _remote_dir(root), _UNTIL_CONFIGURED)
    process.configuration.write_text(text)


def create_topic(log_dir: Path, topic: str, topic_id: Uuid, leader_epochs: Mapping[int, int], *, now_ms: int) -> None:
    """Append a topic to the first records of a cluster, whose log directory was formatted and never used.

    Args:
        log_dir: of node 1.
        topic: the topic's name.
        topic_id: the topic's id.
        leader_epochs: the last leader epoch of each partition.
        now_ms: the timestamp of the records, in ms.

    Raises:
        RehearsalError: the log directory has no such records.
    """
    found = [log_dir / name for name in _BOOTSTRAP if (log_dir / name).is_file()]
    if not found:
        raise RehearsalError(f"this release's StorageTool writes none of {', '.join(_BOOTSTRAP)} in {log_dir}")
    with found[0].open("ab") as bootstrap:
        bootstrap.write(topic_batch(topic, topic_id, leader_epochs, broker_id=NODE_ID, now_ms=now_ms))


def _write_checkpoints(log_dir: Path, samples: Sequence[PartitionSample]) -> None:
    topic = samples[0].replica_id.topic_id_partition.topic
    recovered = {(topic, sample.partition): sample.active.base_offset for sample in samples}
    log_starts = {(topic, sample.partition): sample.log_start_offset for sample in samples}
    (log_dir / _RECOVERY_POINTS).write_bytes(serialize_offset_checkpoint(recovered))
    (log_dir / _LOG_STARTS).write_bytes(serialize_offset_checkpoint(log_starts))
