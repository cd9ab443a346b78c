"""Ask the brokers about what lies in log directories, by the names of the partitions' directories alone."""

from collections.abc import Collection, Iterable
from contextlib import suppress

from include.tiering.errors import ClusterFactsError, SourceError
from include.tiering.kafka.cluster.brokers_contract import Brokers, OffsetsAnswer
from include.tiering.kafka.cluster.contract import ClusterFacts, TopicFacts
from include.tiering.kafka.log_dirs.dirs import DirIdentity, open_root
from include.tiering.kafka.log_dirs.files import BrokerDirectory
from include.tiering.kafka.log_dirs.names import NOT_PARTITIONS, DirectoryState, parse_partition_directory
from include.tiering.kafka.log_dirs.topic_patterns import matches
from include.tiering.model.ids import TopicIdPartition


def offsets_of_live(
    brokers: Brokers | None,
    facts: ClusterFacts | None,
    identities: Iterable[DirIdentity],
    topics: Collection[str] | None,
) -> OffsetsAnswer | None:
    """Of every partition that lies in one of the directories, before any of them is read; None where nobody is asked.

    Raises:
        BrokersError: the brokers do not answer.
    """
    if brokers is None or facts is None:
        return None
    names: set[tuple[str, int]] = set()
    for identity in identities:
        with suppress(SourceError), open_root(identity.path) as root:
            names |= live_partitions(root, topics)
    return offsets_by_name(brokers, facts, names)


def live_partitions(root: BrokerDirectory, topics: Collection[str] | None) -> set[tuple[str, int]]:
    """Topic and number of each partition whose topic matches a pattern; what else lies there is not looked at.

    Raises:
        SourceError: the directory cannot be listed.
    """
    parsed = (parse_partition_directory(entry.name) for entry in root.entries() if entry.name not in NOT_PARTITIONS)
    return {
        (name.topic, name.partition)
        for name in parsed
        if name is not None and name.state is DirectoryState.LIVE and matches(name.topic, topics)
    }


def offsets_by_name(brokers: Brokers, facts: ClusterFacts, names: Collection[tuple[str, int]]) -> OffsetsAnswer:
    """Of the topics that have these names now; a directory of an older topic is not among them, nor a topic about which
    nothing may be asked.

    Raises:
        BrokersError: the brokers do not answer.
    """
    found = {name: _named(facts, name) for name in {topic for topic, _ in names}}
    return brokers.partition_offsets(
        [
            TopicIdPartition(topic.topic_id, partition, name)
            for name, partition in sorted(names)
            if (topic := found[name]) is not None and partition in topic.partitions
        ]
    )


def _named(facts: ClusterFacts, name: str) -> TopicFacts | None:
    try:
        return facts.topic_named(name)
    except ClusterFactsError as error:
        if error.retriable:
            raise
        return None
