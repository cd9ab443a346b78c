"""The directory of one replica, found again by its ids."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from include.tiering.errors import SourceVanishedError
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.kafka.log_dirs.dirs import DirIdentity, open_root
from include.tiering.kafka.log_dirs.files import BrokerDirectory
from include.tiering.kafka.log_dirs.partition_files import read_topic_id


@contextmanager
def replica_directory(identities: Iterable[DirIdentity], replica_id: ReplicaId) -> Iterator[BrokerDirectory]:
    """`identities` are those of all log directories that may be read.

    Raises:
        SourceVanishedError: it is gone, or the directory belongs to another topic id.
        SourceError: it cannot be read.
    """
    partition, where = replica_id.topic_id_partition, (replica_id.broker_id, replica_id.directory_id)
    found = next((one for one in identities if (one.broker_id, one.directory_id) == where), None)
    if found is None:
        raise SourceVanishedError(str(replica_id), f"no readable log directory is {replica_id.directory_id}")
    with open_root(found.path) as root, root.directory(str(partition)) as directory:
        topic_id = read_topic_id(directory)
        if topic_id != partition.topic_id:
            raise SourceVanishedError(directory.path, f"topic id was {partition.topic_id}, now {topic_id}")
        yield directory
