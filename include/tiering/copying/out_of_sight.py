"""Partitions that the cluster has and that no readable directory leads: nothing of them can be copied.

A scan shows what is on disk, so whoever asks the scan alone never hears of a topic that lies on brokers whose
directories nobody named. The cluster's own word says what there ought to be.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from include.tiering.errors import ClusterFactsError
from include.tiering.kafka.cluster.contract import ClusterFacts, PartitionFacts, TopicFacts
from include.tiering.kafka.log_dirs.contract import IneligibleReason, Replica, ScanError, ScanReport, matches
from include.tiering.kafka.log_dirs.rules import topic_refusal
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.ownership import TopicOwner
from include.tiering.segments.contract import TopicRegistry

NEVER_TIERED: Final = frozenset({IneligibleReason.INTERNAL_TOPIC, IneligibleReason.COMPACTED})
_PATTERN_CHARACTERS: Final = frozenset("*?[")


def partitions_in_facts(
    report: ScanReport, topics: Collection[str], facts: ClusterFacts
) -> Mapping[TopicIdPartition, PartitionFacts]:
    """All partitions that the cluster has of the topics that match, but for topics that are never tiered or that the
    brokers tier. What cannot be asked adds nothing: the scan has said so.

    Raises:
        ClusterFactsError: nothing can be asked just now; a later question may be answered.
    """
    never = {
        replica.topic_id_partition.topic_id
        for replica in report.replicas
        if any(segment.reason in NEVER_TIERED for segment in replica.segments)
    }
    found = {}
    for topic in _topics(topics, facts):
        if topic.topic_id not in never and _is_tiered(topic):
            for number, partition in topic.partitions.items():
                found[TopicIdPartition(topic.topic_id, number, topic.topic)] = partition
    return found


def partitions_out_of_sight(
    report: ScanReport, topics: Collection[str], facts: ClusterFacts, registry: TopicRegistry
) -> Mapping[TopicIdPartition, str]:
    """Those of `partitions_in_facts` that would be copied here and of which no copy can read a replica; each with where
    it may be, for a person. By topic and partition."""
    chosen = {replica.topic_id_partition for replica in report.replicas if replica.chosen}
    expected = partitions_in_facts(report, topics, facts)
    missing = sorted(expected.keys() - chosen, key=lambda one: (one.topic, one.partition))
    return {
        partition: where_it_may_be(partition, report, expected[partition])
        for partition in missing
        if registry.owner(partition.topic_id) in (TopicOwner.PLATFORM, TopicOwner.NONE)
    }


def where_it_may_be(partition: TopicIdPartition, report: ScanReport, known: PartitionFacts | None) -> str:
    """Who leads it, as far as that is `known`, and what was found in its place: what could not be read of it or of a
    whole log directory, else its followers."""
    replicas = [replica for replica in report.replicas if replica.topic_id_partition == partition]
    errors = errors_about(partition, report.errors)
    if errors:
        more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
        found = f"{errors[0].path}: {errors[0].message}{more}"
    else:
        found = _followers(replicas)
    return f"{_leader(known)}; {found}" if known is not None else found


def errors_about(partition: TopicIdPartition, errors: Sequence[ScanError]) -> list[ScanError]:
    """Errors of the partition's own directories, then of log directories that could not be read at all: it may be in
    one of them. What is wrong with others is no reason for this one."""
    own = [error for error in errors if error.partition == str(partition)]
    return own + [error for error in errors if error.partition is None]


def _topics(patterns: Collection[str], facts: ClusterFacts) -> Iterator[TopicFacts]:
    if not patterns:
        return
    try:
        names: Collection[str] = patterns
        if any(not _PATTERN_CHARACTERS.isdisjoint(pattern) for pattern in patterns):
            names = [name for name in facts.topic_names() if matches(name, patterns)]
    except ClusterFactsError as error:
        if error.retriable:
            raise
        return
    for name in sorted(set(names)):
        topic = _named(name, facts)
        if topic is not None:
            yield topic


def _named(name: str, facts: ClusterFacts) -> TopicFacts | None:
    """None as well where this user may not ask about it."""
    try:
        return facts.topic_named(name)
    except ClusterFactsError as error:
        if error.retriable:
            raise
        return None


def _is_tiered(topic: TopicFacts) -> bool:
    return topic_refusal(topic.topic, topic, removed=False, named=True, cleaned=False) is None


def _leader(known: PartitionFacts) -> str:
    return f"broker {known.leader} leads it" if known.leader >= 0 else "no broker leads it now"


def _followers(replicas: Sequence[Replica]) -> str:
    found = ", ".join(str(replica.replica_id.broker_id) for replica in replicas)
    return f"only followers of it are found, on broker {found}" if found else "no log directory in log_dirs holds it"
