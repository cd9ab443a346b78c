"""Who owns a topic, as far as a scan can tell: taken over when it is asked for, left alone once a broker tiers it."""

from typing import Final

from include.tiering.log_source.contract import Replica, ScanReport
from include.tiering.model.topic_owner import TopicOwner
from include.tiering.remote_metadata.contract import TopicRegistry

_AUTHOR: Final = "plan"


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
