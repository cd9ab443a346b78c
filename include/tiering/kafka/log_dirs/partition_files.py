"""The small files of a partition directory, as values."""

from typing import Final

from include.tiering.formats import leader_epoch_checkpoint, partition_metadata, producer_snapshot
from include.tiering.formats.checkpoint import MAX_CHECKPOINT_BYTES
from include.tiering.formats.partition_metadata import MAX_PARTITION_METADATA_BYTES
from include.tiering.formats.producer_snapshot import ProducerEntry
from include.tiering.kafka.log_dirs.files import BrokerDirectory
from include.tiering.kafka.log_dirs.names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, FileKind, offset_file
from include.tiering.kafka.log_dirs.parsing import in_file
from include.tiering.model.ids import Uuid
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.units import MIB

MAX_SNAPSHOT_BYTES: Final = 64 * MIB
"""More than a million producers."""


def read_topic_id(directory: BrokerDirectory) -> Uuid:
    """Raises SourceError: no readable `partition.metadata`."""
    data = directory.read(PARTITION_METADATA, MAX_PARTITION_METADATA_BYTES)
    with in_file(directory.path_of(PARTITION_METADATA)):
        return partition_metadata.parse(data)


def begun_ns(directory: BrokerDirectory) -> int:
    """When the broker wrote `partition.metadata`, which it does once, as it makes the log.

    Raises:
        SourceVanishedError: it is gone.
    """
    return directory.stat(PARTITION_METADATA).st_mtime_ns


def read_leader_epochs(directory: BrokerDirectory) -> LeaderEpochs:
    """Raises SourceError: no readable `leader-epoch-checkpoint`."""
    data = directory.read(LEADER_EPOCH_CHECKPOINT, MAX_CHECKPOINT_BYTES)
    with in_file(directory.path_of(LEADER_EPOCH_CHECKPOINT)):
        return leader_epoch_checkpoint.parse(data)


def read_snapshot(directory: BrokerDirectory, offset: int) -> tuple[ProducerEntry, ...]:
    """Raises SourceError: no readable producer snapshot of this offset."""
    name = offset_file(offset, FileKind.PRODUCER_SNAPSHOT)
    data = directory.read(name, MAX_SNAPSHOT_BYTES)
    with in_file(directory.path_of(name)):
        return producer_snapshot.parse(data)
