"""What the cluster says now of topics that have remote segments: there, deleted, tiered by the broker, name taken.

A deletion is believed from a positive answer alone, never from absence, and is remembered when it is first seen. What
follows is a setting: nothing, or all remote segments go after so many days, with an approval. Until they go, an answer
that the topic is there takes the record back; without any answer they stay.

A name is a label: what is set on it is about the topic that has it now. Where two topics of our own metadata share one,
it is *taken* for each of which the cluster does not say now that it has it, whatever keeps the answer away.

Nothing here touches a segment.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import ClusterFactsError
from include.tiering.kafka.cluster.contract import ClusterFacts, TopicFacts
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.segments.topic_deletions_contract import TopicDeletion, TopicDeletions
from include.tiering.telemetry import get_logger
from include.tiering.units import format_utc

_log: Final = get_logger(__name__)
_DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class TopicStanding:
    """One topic id, as far as anybody can say.

    Attributes:
        is_broker_tiered: `remote.storage.enable` is seen true: its broker copies and expires it.
        name_taken_because: why what is set on its name is not about this one: another topic has the name now, or
            several of ours have had it and the cluster does not say now that it is this one's. Empty if it is.
        deletion_due: it was deleted, and its remote segments go.
        kept_because: it was deleted, and its remote segments stay for now; empty if neither.
    """

    is_broker_tiered: bool = False
    name_taken_because: str = ""
    deletion_due: bool = False
    kept_because: str = ""

    @property
    def is_name_taken(self) -> bool:
        return bool(self.name_taken_because)


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
        self,
        partitions: Iterable[TopicIdPartition],
        *,
        names_in_use: Mapping[Uuid, str],
        expire_after_days: int | None,
        now_ms: int,
        needs_answer: bool = True,
    ) -> Mapping[Uuid, TopicStanding]:
        """What holds of the topics of `partitions`, by topic id. Changes nothing.

        Args:
            names_in_use: names of all topics of the database that may have one, `TopicRegistry.names_in_use`, whatever
                is asked about: a topic is not alone with its name because the other one is not in this plan.
            expire_after_days: None keeps what was archived of deleted topics.
            now_ms: the database's clock.
            needs_answer: whether a deletion is due only if the cluster can be asked about it now.
        """
        can_answer, recorded = self._can_answer(), self.deletions.all()
        names = _names(partitions)
        holders = _by_name({**names_in_use, **names})
        standings = {}
        for topic_id, topic in names.items():
            answered, facts, named = self._facts_of(topic_id, topic) if can_answer else (False, None, None)
            deletion = recorded.get(topic_id)
            kept_because = ""
            if deletion is not None and expire_after_days is not None:
                due_ms = deletion.seen_at_ms + expire_after_days * _DAY_MS
                can_say = answered or not needs_answer
                kept_because = _kept_because(deletion, due_ms, now_ms, can_answer=can_say, is_there=bool(facts))
            standings[topic_id] = TopicStanding(
                is_broker_tiered=facts is not None and facts.is_remote_storage_enabled,
                name_taken_because=_name_taken_because(topic_id, named, holders[topic]),
                deletion_due=deletion is not None and expire_after_days is not None and not kept_because,
                kept_because=kept_because,
            )
        return standings

    def doubtful_names(self, names_in_use: Mapping[Uuid, str]) -> frozenset[str]:
        """Names of more than one topic of which the cluster does not say now which of them has it."""
        shared = {name: holders for name, holders in _by_name(names_in_use).items() if len(holders) > 1}
        if not shared:
            return frozenset()
        can_answer = self._can_answer()
        return frozenset(
            name for name, holders in shared.items() if not can_answer or not self._is_known(name, holders)
        )

    def _is_known(self, name: str, holders: Sequence[Uuid]) -> bool:
        return self._facts_of(holders[0], name)[2] is not None

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


def _kept_because(deletion: TopicDeletion, due_ms: int, now_ms: int, *, can_answer: bool, is_there: bool) -> str:
    if is_there:
        return "the cluster's metadata has the topic again"
    if now_ms < due_ms:
        return f"seen {format_utc(deletion.seen_at_ms)}; its segments go after {format_utc(due_ms)}, with an approval"
    return "" if can_answer else "no metadata of the cluster can be asked whether that still holds"


def _names(partitions: Iterable[TopicIdPartition]) -> dict[Uuid, str]:
    return {partition.topic_id: partition.topic for partition in partitions}


def _by_name(names: Mapping[Uuid, str]) -> dict[str, list[Uuid]]:
    """Topic ids by the name that they have, or had, in order."""
    holders: dict[str, list[Uuid]] = defaultdict(list)
    for topic_id in sorted(names):
        holders[names[topic_id]].append(topic_id)
    return holders


def _name_taken_because(topic_id: Uuid, named: TopicFacts | None, holders: Sequence[Uuid]) -> str:
    """Empty if the name is this topic's: the cluster says so now, or says nothing and no other topic ever had it."""
    if named is not None:
        return "" if named.topic_id == topic_id else f"the cluster gives the name to topic id {named.topic_id} now"
    others = ", ".join(str(one) for one in holders if one != topic_id)
    if not others:
        return ""
    return f"topic id {others} has had the name as well, and the cluster does not say now whose it is"
