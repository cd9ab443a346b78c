"""What the cluster says now of topics that have remote segments: there, deleted, tiered by the broker, name taken.

A deletion is believed from a positive answer alone, never from absence, and is remembered when it is first seen. What
follows is a setting: nothing, or all remote segments go after so many days, with an approval. Until they go, an answer
that the topic is there takes the record back; without any answer they stay.

Nothing here touches a segment.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from include.tiering.cluster.contract import ClusterFacts, TopicFacts
from include.tiering.errors import ClusterFactsError
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.model.retention import DeletionReason
from include.tiering.observability import get_logger
from include.tiering.remote_metadata.topic_deletions_contract import TopicDeletion, TopicDeletions
from include.tiering.units import format_utc
from include.tiering.work.deletion_contract import PlannedExpiration

_log: Final = get_logger(__name__)
_DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class TopicStanding:
    """One topic id, as far as anybody can say.

    Attributes:
        is_broker_tiered: `remote.storage.enable` is seen true: its broker copies and expires it.
        is_name_taken: another topic has its name now, so what is set on the name is not about this one.
        deletion_due: it was deleted, and its remote segments go.
        kept_because: it was deleted, and its remote segments stay for now; empty if neither.
    """

    is_broker_tiered: bool = False
    is_name_taken: bool = False
    deletion_due: bool = False
    kept_because: str = ""


UNKNOWN_STANDING: Final = TopicStanding()


@dataclass(frozen=True, slots=True)
class TopicWatch:
    """Asks about topics of one cluster. Facts of another cluster, or none, say nothing."""

    cluster_id: str
    facts: ClusterFacts
    deletions: TopicDeletions

    def record(self, partitions: Iterable[TopicIdPartition], *, author: str) -> None:
        """Remember deletions that were positively seen; take back those of topics that are there."""
        if not self._can_answer():
            return
        recorded = self.deletions.all()
        for topic_id, topic in _names(partitions).items():
            answered, facts, _ = self._facts_of(topic_id, topic)
            is_there = facts is not None
            if not answered:
                continue
            if is_there and topic_id in recorded:
                _log.warning("topic %s (%s) was recorded as deleted, and is there", topic, topic_id)
                self.deletions.withdraw(topic_id, evidence="the cluster's metadata has the topic", author=author)
            elif not is_there and topic_id not in recorded:
                evidence = self.facts.removal_evidence(topic_id)
                if evidence is not None:
                    self.deletions.record(topic_id, topic, evidence=evidence, author=author)

    def standings(
        self, partitions: Iterable[TopicIdPartition], *, expire_after_days: int | None, now_ms: int
    ) -> Mapping[Uuid, TopicStanding]:
        """By topic id. `expire_after_days` None keeps what was archived of deleted topics; `now_ms` is the database's
        clock. Changes nothing."""
        can_answer, recorded = self._can_answer(), self.deletions.all()
        names = _names(partitions)
        taken = _held_twice(names)
        standings = {}
        for topic_id, topic in names.items():
            answered, facts, named = self._facts_of(topic_id, topic) if can_answer else (False, None, None)
            deletion = recorded.get(topic_id)
            kept_because = ""
            if deletion is not None and expire_after_days is not None:
                due_ms = deletion.seen_at_ms + expire_after_days * _DAY_MS
                kept_because = _kept_because(deletion, due_ms, now_ms, can_answer=answered, is_there=bool(facts))
            standings[topic_id] = TopicStanding(
                is_broker_tiered=facts is not None and facts.is_remote_storage_enabled,
                is_name_taken=(
                    (named is not None and named.topic_id != topic_id) or (deletion is not None and topic in taken)
                ),
                deletion_due=deletion is not None and expire_after_days is not None and not kept_because,
                kept_because=kept_because,
            )
        return standings

    def _facts_of(self, topic_id: Uuid, topic: str) -> tuple[bool, TopicFacts | None, TopicFacts | None]:
        """Whether there is an answer about one topic; what has its id, and what has its name now."""
        try:
            return True, self.facts.topic(topic_id), self.facts.topic_named(topic)
        except ClusterFactsError as error:
            _log.info("topic %s cannot be asked about: %s", topic, error)
            return False, None, None

    def _can_answer(self) -> bool:
        try:
            self.facts.refresh()
            return self.facts.cluster_id() == self.cluster_id
        except ClusterFactsError as error:
            _log.info("topic facts cannot be asked: %s", error)
            return False


def deletion_demands(plan: Iterable[PlannedExpiration], recorded: Mapping[Uuid, TopicDeletion]) -> dict[Uuid, str]:
    """One sentence for each topic whose segments go because it was deleted: that is never done without a person."""
    topics = {
        planned.topic_id_partition.topic_id: planned.topic_id_partition.topic
        for planned in plan
        if any(one.reason == DeletionReason.TOPIC_DELETED for one in planned.deletions)
    }
    return {
        topic_id: f"{topic} ({topic_id}): {_why_all_goes(recorded.get(topic_id))}" for topic_id, topic in topics.items()
    }


def _why_all_goes(deletion: TopicDeletion | None) -> str:
    if deletion is None:
        return "all of it would go because the topic was deleted, which is no longer recorded"
    seen = f"seen {format_utc(deletion.seen_at_ms)}, {deletion.evidence}"
    return f"the topic was deleted ({seen}): all of it goes, which always needs an approval"


def _kept_because(deletion: TopicDeletion, due_ms: int, now_ms: int, *, can_answer: bool, is_there: bool) -> str:
    if is_there:
        return "the cluster's metadata has the topic again"
    if now_ms < due_ms:
        return f"seen {format_utc(deletion.seen_at_ms)}; its segments go after {format_utc(due_ms)}, with an approval"
    return "" if can_answer else "no metadata of the cluster can be asked whether that still holds"


def _names(partitions: Iterable[TopicIdPartition]) -> dict[Uuid, str]:
    return {partition.topic_id: partition.topic for partition in partitions}


def _held_twice(names: Mapping[Uuid, str]) -> frozenset[str]:
    """Names of more than one topic."""
    return frozenset(name for name, topics in Counter(names.values()).items() if topics > 1)
