"""Who owns a topic, as far as a scan can tell: taken over when it is asked for, left alone once a broker tiers it."""

from dataclasses import dataclass
from typing import Final, Protocol

from include.tiering.errors import ClusterFactsError
from include.tiering.kafka.cluster.contract import ClusterFacts
from include.tiering.kafka.log_dirs.contract import Replica, ScanReport
from include.tiering.model.ids import Uuid
from include.tiering.model.topic_owner import TopicOwner
from include.tiering.segments.contract import TopicRegistry

_AUTHOR: Final = "plan"


class Owners(Protocol):
    """The part of `TopicRegistry` that tells whose a topic is."""

    def owner(self, topic_id: Uuid) -> TopicOwner: ...


@dataclass(frozen=True, slots=True)
class SeenOwners:
    """What the registry says, but for topics of which the cluster says now that brokers tier them: those are theirs,
    though no plan has looked since and recorded it. Facts of another cluster, or none, say nothing.

    For whoever removes what the registry alone would call ours.
    """

    registry: Owners
    facts: ClusterFacts
    cluster_id: str

    def owner(self, topic_id: Uuid) -> TopicOwner:
        owner = self.registry.owner(topic_id)
        if owner in (TopicOwner.NONE, TopicOwner.PLATFORM) and self._is_broker_tiered(topic_id):
            return TopicOwner.BROKER
        return owner

    def _is_broker_tiered(self, topic_id: Uuid) -> bool:
        try:
            self.facts.refresh()
        except ClusterFactsError:
            return False
        topic = self.facts.topic(topic_id) if self.facts.cluster_id() == self.cluster_id else None
        return topic is not None and topic.is_remote_storage_enabled


def owner_seen(replica: Replica, owner: TopicOwner) -> TopicOwner:
    """The owner that follows from `owner` and from what the replica shows.

    `remote.storage.enable` seen true outside of a hand-over makes the broker the owner; a topic without an owner and
    with something eligible becomes ours, because the caller scans the topics that were asked for and no others.
    """
    if replica.owner_is_broker and owner in (TopicOwner.NONE, TopicOwner.PLATFORM):
        return TopicOwner.BROKER
    if owner is TopicOwner.NONE and any(segment.eligible for segment in replica.segments):
        return TopicOwner.PLATFORM
    return owner


def register_owners(report: ScanReport, registry: TopicRegistry) -> None:
    """Record the owner of every scanned topic whose owner changes by what the scan shows."""
    for replica in report.replicas:
        if not replica.chosen:
            continue
        partition = replica.topic_id_partition
        owner = registry.owner(partition.topic_id)
        seen = owner_seen(replica, owner)
        if seen is not owner:
            registry.set_owner(partition.topic_id, partition.topic, seen, expected=owner, author=_AUTHOR)
