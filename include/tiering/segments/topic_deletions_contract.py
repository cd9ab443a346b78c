"""What is remembered of topics that the cluster deleted.

An archive outlives its topic. That a topic was deleted is believed only if somebody said so: what nobody mentions may
be on a disk that is not mounted. Who said so, and when, is kept, because the metadata log forgets it with its next
snapshot.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from include.tiering.model.ids import Uuid


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """`seen_at_ms` is a time of the database: when the deletion was first recorded, not when it happened.

    `evidence` says in words what showed it.
    """

    topic: str
    seen_at_ms: int
    evidence: str


class TopicDeletions(Protocol):
    """Deletions of one cluster's topics, by topic id: a topic of the same name is another one."""

    def all(self) -> Mapping[Uuid, TopicDeletion]:
        """Every one that holds."""
        ...

    def record(self, topic_id: Uuid, topic: str, *, evidence: str, author: str) -> TopicDeletion:
        """Remember a deletion, with an event. The first record stays: repeating it is harmless."""
        ...

    def withdraw(self, topic_id: Uuid, *, evidence: str, author: str) -> None:
        """Forget a deletion that turned out wrong, with an event. Harmless if none is recorded."""
        ...
