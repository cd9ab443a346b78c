"""The lifecycle of topics: deleted, created again, and which of them a name means now."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from include.tiering.configs.topic_retention import TopicRetention
from include.tiering.kafka.cluster.contract import ClusterFacts
from include.tiering.kafka.log_dirs.contract import ScanReport
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.topic_deletions_contract import TopicDeletions
from include.tiering.segments.topic_standing import TopicStanding, TopicWatch

_AUTHOR: Final = "expiration"


class TopicLifecycle:
    """Asks the cluster and the database about topics and their names.

    Args:
        facts: what the cluster says of topics; opened by the call that asks it.
        expire_after_days: of `tiering.on.topic.delete` as it holds now; None keeps what was archived of deleted topics.
        now_ms: the database's clock.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        facts: Callable[[], ClusterFacts],
        metadata: RemoteLogMetadata,
        registry: TopicRegistry,
        deletions: TopicDeletions,
        topic_retentions: Callable[[], Mapping[str, TopicRetention]],
        expire_after_days: Callable[[], int | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._cluster_id = cluster_id
        self._facts = facts
        self._deletions = deletions
        self._metadata = metadata
        self._registry = registry
        self._topic_retentions = topic_retentions
        self._expire_after_days = expire_after_days
        self._now_ms = now_ms

    @property
    def _watch(self) -> TopicWatch:
        return TopicWatch(self._cluster_id, self._facts(), self._deletions)

    def note_deletions(self) -> None:
        """Record which topics with remote segments the cluster has deleted, as far as that can be seen now."""
        self._watch.record(self._metadata.partitions(), author=_AUTHOR)

    def standings(
        self, partitions: Iterable[TopicIdPartition], now_ms: int, *, needs_answer: bool = True
    ) -> Mapping[Uuid, TopicStanding]:
        """What holds of the topics of `partitions` now, by topic id; arguments as `TopicWatch.standings`."""
        return self._watch.standings(
            partitions,
            names_in_use=self._registry.names_in_use(),
            expire_after_days=self._expire_after_days(),
            now_ms=now_ms,
            needs_answer=needs_answer,
        )

    def name_taken_because(self, partition: TopicIdPartition) -> str:
        """Why the topic's name does not mean this topic now, or may not; empty if it does. See `TopicStanding`."""
        return self.standings([partition], self._now_ms())[partition.topic_id].name_taken_because

    def retentions_of_copies(self, report: ScanReport) -> dict[str, TopicRetention]:
        """What is set on topics, by name, as far as it may keep a first copy from beginning at the log start: without
        names of several topics while the cluster does not say which of them has it now."""
        retentions = self._topic_retentions()
        if not retentions:
            return {}
        seen = {one.topic_id_partition.topic_id: one.topic_id_partition.topic for one in report.replicas}
        doubtful = self._watch.doubtful_names({**self._registry.names_in_use(), **seen})
        return {name: retention for name, retention in retentions.items() if name not in doubtful}

    def shared_names(self) -> frozenset[str]:
        """Names that more than one topic of the database has, or had."""
        counted = Counter(self._registry.names_in_use().values())
        return frozenset(name for name, topics in counted.items() if topics > 1)
