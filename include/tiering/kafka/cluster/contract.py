"""What is true about topics: ids, configs, leaders. Never guessed; unknown is None."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from include.tiering.model.ids import Uuid


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """`leader` is -1 while there is none. `directories` holds one directory id per replica, if known."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    directories: tuple[Uuid, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """`configs` holds topic configs and the dynamic broker defaults below them; a key that is
    absent has the broker's static default, which only the broker knows."""

    topic: str
    topic_id: Uuid
    configs: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[int, PartitionFacts] = field(default_factory=dict)

    @property
    def is_compacted(self) -> bool:
        policies = self.configs.get("cleanup.policy", "delete").split(",")
        return "compact" in (policy.strip() for policy in policies)

    @property
    def segment_bytes(self) -> int | None:
        """The most that a segment may have; None if that is not known."""
        configured = self.configs.get("segment.bytes", "")
        return int(configured) if configured.isascii() and configured.isdigit() else None

    @property
    def is_remote_storage_enabled(self) -> bool:
        return self.configs.get("remote.storage.enable", "false").lower() == "true"


class ClusterFacts(Protocol):
    """One consistent view of the cluster; `refresh` replaces it by a newer one."""

    def refresh(self) -> None:
        """Read what changed since the last call. Cheap when nothing did.

        Raises:
            ClusterFactsError: the source of the facts is gone or cannot be read.
        """
        ...

    def cluster_id(self) -> str | None: ...

    def topic(self, topic_id: Uuid) -> TopicFacts | None:
        """None if this id is unknown or its topic was removed."""
        ...

    def topic_named(self, name: str) -> TopicFacts | None:
        """The topic that has this name NOW; a re-created topic is another topic."""
        ...

    def topic_names(self) -> Collection[str]:
        """Of all topics that there are now, as far as anybody may see them. A name that is absent says nothing."""
        ...

    def is_removed(self, topic_id: Uuid) -> bool:
        """True only if a removal was positively seen; absence alone says nothing."""
        ...

    def removal_evidence(self, topic_id: Uuid) -> str | None:
        """What positively shows that the topic of this id was deleted, in words; None if nothing does.

        Looks further back than `is_removed`, as far as anything is kept, and so may take a second.

        Raises:
            ClusterFactsError: nothing can be asked.
        """
        ...
