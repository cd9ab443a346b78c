"""Who owns a topic, as far as a scan can tell: taken over when it is asked for, left alone once a broker tiers it."""

from typing import Final

from include.tiering.log_source.contract import ScanReport
from include.tiering.model.topic_owner import TopicOwner
from include.tiering.remote_metadata.contract import TopicRegistry

_AUTHOR: Final = "plan"


def register_owners(report: ScanReport, registry: TopicRegistry) -> None:
    """Make the platform the owner of every scanned topic that has none and something eligible.

    `remote.storage.enable` seen true outside of a hand-over makes the broker the owner. A hand-over decides for
    itself and is not touched. The caller scans the topics that were asked for, and no others.
    """
    for replica in report.replicas:
        if not replica.chosen:
            continue
        topic_id, name = replica.topic_id_partition.topic_id, replica.topic_id_partition.topic
        owner = registry.owner(topic_id)
        if replica.owner_is_broker and owner in (TopicOwner.NONE, TopicOwner.PLATFORM):
            registry.set_owner(topic_id, name, TopicOwner.BROKER, expected=owner, author=_AUTHOR)
        elif owner is TopicOwner.NONE and any(segment.eligible for segment in replica.segments):
            registry.set_owner(topic_id, name, TopicOwner.PLATFORM, expected=owner, author=_AUTHOR)
