"""The leader's directory read once more where a follower's, which was read later, seems to be ahead of it."""

from collections.abc import Sequence
from contextlib import suppress

from include.tiering.errors import SourceError
from include.tiering.kafka.cluster.contract import ClusterFacts
from include.tiering.kafka.log_dirs.dir_reader import DirReader
from include.tiering.kafka.log_dirs.dirs import open_root
from include.tiering.kafka.log_dirs.found_replica import FoundReplica
from include.tiering.kafka.log_dirs.leader_offsets import ahead_of_leader
from include.tiering.kafka.log_dirs.names import PartitionDirectoryName
from include.tiering.kafka.log_dirs.rolled_segments import KnownTimestamps


def with_leader_read_last(
    group: Sequence[FoundReplica], facts: ClusterFacts, known: KnownTimestamps, *, deep: bool
) -> Sequence[FoundReplica]:
    """The replicas of one partition in the same order. A follower that is ahead of the leader now is so in truth.

    Raises:
        ClusterFactsError: nothing may be asked about the topic.
    """
    partition = group[0].topic_id_partition
    topic = facts.topic(partition.topic_id)
    partition_facts = topic.partitions.get(partition.partition) if topic else None
    return [
        _read_again(found, known, deep=deep) if ahead_of_leader(found, partition_facts, group) else found
        for found in group
    ]


def _read_again(found: FoundReplica, known: KnownTimestamps, *, deep: bool) -> FoundReplica:
    """As it was found, if it cannot be read now."""
    partition = found.topic_id_partition
    name = PartitionDirectoryName(partition.topic, partition.partition, found.state)
    with suppress(SourceError), open_root(found.identity.path) as root:
        again = DirReader.of(root, found.identity, _ignore, known).replica(found.directory_name, name, deep=deep)
        if again.topic_id_partition == partition:
            return again
    return found


def _ignore(_error: SourceError) -> None:
    """What is wrong with the replica is kept with it; what is wrong with the directory was said before."""
