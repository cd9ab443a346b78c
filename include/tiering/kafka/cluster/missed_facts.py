"""No facts where there were some once: nothing may be decided on the user's word any more."""

from collections.abc import Callable, Collection

from include.tiering.errors import ClusterFactsError
from include.tiering.kafka.cluster.contract import ClusterFacts, TopicFacts
from include.tiering.model.ids import Uuid


class MissedFacts:
    """`ClusterFacts` that answers as `unknown` does, unless `were_known` says that this cluster's facts were known.

    Then they are missed: a mount that went away must not turn a deleted, compacted or broker-tiered topic into one that
    is copied because its name was given. Asked at every `refresh`.
    """

    def __init__(self, unknown: ClusterFacts, were_known: Callable[[], bool]) -> None:
        self._unknown = unknown
        self._were_known = were_known

    def refresh(self) -> None:
        if self._were_known():
            raise ClusterFactsError(
                "no directory of log_dirs shows __cluster_metadata-0, which was read for this cluster before: mount it "
                "again, or add the log directory of a broker that has it"
            )
        self._unknown.refresh()

    def cluster_id(self) -> str | None:
        return self._unknown.cluster_id()

    def topic(self, topic_id: Uuid) -> TopicFacts | None:
        return self._unknown.topic(topic_id)

    def topic_named(self, name: str) -> TopicFacts | None:
        return self._unknown.topic_named(name)

    def topic_names(self) -> Collection[str]:
        return self._unknown.topic_names()

    def is_removed(self, topic_id: Uuid) -> bool:
        return self._unknown.is_removed(topic_id)

    def removal_evidence(self, topic_id: Uuid) -> str | None:
        return self._unknown.removal_evidence(topic_id)
