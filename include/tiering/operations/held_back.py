"""Partitions that the last plan of all configured topics held back: by reason, with what to do, and what is unknown."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.copying.plan import HeldBack
from include.tiering.database.metric_series import Series
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.model.reasons import ReasonMembers
from include.tiering.operations.doctor import advice_about, reason_of
from include.tiering.operations.topic_list import by_topic

_MOST_TOPICS: Final = 5


@dataclass(frozen=True, slots=True)
class Waiting:
    """Partitions that the last plan held back for one reason; `topics` are some of theirs, the most affected first."""

    reason: HeldBack | IneligibleReason | None
    code: str
    partitions: int
    topics: tuple[str, ...]
    more_topics: int
    as_of_ms: int


def waiting(held_back: Sequence[Series]) -> tuple[Waiting, ...]:
    """Group the series of `HELD_BACK` by reason."""
    by_code: dict[str, list[tuple[str, Series]]] = {}
    for series in held_back:
        labels = dict(series.key.labels)
        by_code.setdefault(labels["reason"], []).append((labels["topic"], series))
    groups = [_group(code, found) for code, found in by_code.items()]
    return tuple(sorted(groups, key=lambda group: (-group.partitions, group.code)))


def _group(code: str, found: Sequence[tuple[str, Series]]) -> Waiting:
    ordered = sorted(found, key=lambda item: (-item[1].value, item[0]))
    return Waiting(
        reason_of(code),
        code,
        round(sum(series.value for _, series in found)),
        tuple(topic for topic, _ in ordered[:_MOST_TOPICS]),
        max(0, len(ordered) - _MOST_TOPICS),
        min(series.updated_at_ms for _, series in found),
    )


def unmeasured(held_back: Sequence[Series], measured: Collection[str]) -> Mapping[str, int]:
    """Return, by topic, how many held back partitions no size run has measured, because it takes the topic for none.

    A topic becomes the platform's with its first plan that copies something of it, and a size run measures only those.
    Partitions in no readable log directory are left out: the size run counts them itself (`OUT_OF_SIGHT`).

    Args:
        held_back: series of partitions that the last plan held back.
        measured: topics with a copy lag.
    """
    others = [series for series in held_back if series.key.label("reason") != HeldBack.OUT_OF_SIGHT.code]
    return {
        topic: round(sum(series.value for series in own))
        for topic, own in by_topic(others).items()
        if topic not in measured
    }


class WaitingGroupDocument(ReasonMembers):
    """Partitions that the last plan of all topics held back for one reason, and what to do about it."""

    partitions: int
    topics: list[str]
    more_topics: int
    advice: str
    as_of_ms: int


def waiting_document(group: Waiting) -> WaitingGroupDocument:
    """Return the JSON of partitions that wait for one reason."""
    reason = group.reason
    return {
        "reason": group.code,
        "reason_message": group.code if reason is None else reason.message,
        "partitions": group.partitions,
        "topics": list(group.topics),
        "more_topics": group.more_topics,
        "advice": "" if reason is None else advice_about(reason, group.topics[0]),
        "as_of_ms": group.as_of_ms,
    }
