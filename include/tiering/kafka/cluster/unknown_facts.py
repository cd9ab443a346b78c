"""No facts at all: what there is to know without a connection and without a metadata log. Topics must be named."""

from collections.abc import Collection

from include.tiering.kafka.cluster.contract import TopicFacts
from include.tiering.model.ids import Uuid


class UnknownFacts:
    """Answers None to everything: `ClusterFacts` where neither an admin API nor a metadata log can be asked."""

    def refresh(self) -> None:
        """Nothing can change."""

    def cluster_id(self) -> str | None:
        return None

    def topic(self, topic_id: Uuid) -> TopicFacts | None:
        return None

    def topic_named(self, name: str) -> TopicFacts | None:
        return None

    def topic_names(self) -> Collection[str]:
        return ()

    def is_removed(self, topic_id: Uuid) -> bool:
        return False

    def removal_evidence(self, topic_id: Uuid) -> str | None:
        return None
