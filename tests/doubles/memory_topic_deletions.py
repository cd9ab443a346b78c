"""Deletions of topics in a dictionary, all seen at one moment."""

from collections.abc import Mapping
from typing import Final

from include.tiering.model.segments import Uuid
from include.tiering.segments.topics import TopicDeletion

SEEN_MS: Final = 1_700_000_000_000


class MemoryTopicDeletions:
    """`TopicDeletions`; `known` is what is recorded."""

    def __init__(self) -> None:
        self.known: dict[Uuid, TopicDeletion] = {}

    def all(self) -> Mapping[Uuid, TopicDeletion]:
        return dict(self.known)

    def record(self, topic_id: Uuid, topic: str, *, evidence: str, author: str) -> TopicDeletion:
        return self.known.setdefault(topic_id, TopicDeletion(topic, SEEN_MS, evidence))

    def withdraw(self, topic_id: Uuid, *, evidence: str, author: str) -> None:
        self.known.pop(topic_id, None)
