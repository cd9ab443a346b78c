"""What waits for a copy: partitions that the last plan held back, by reason, and what waits of each topic.

Held back partitions are those of the last plan of all configured topics. What waits of a topic, in bytes, is as of the
last size run that looked at the brokers' logs (in log directories, or at the leaders); of some partitions it is not
known.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple, TypedDict

from include.tiering.configs.pools import COPIER_POOL
from include.tiering.copying.plan import HeldBack
from include.tiering.database.metric_rows import TOPIC_LABEL
from include.tiering.database.metric_series import Series, TopicValues
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.model.reasons import ReasonMembers
from include.tiering.operations.doctor import advice_about, reason_of
from include.tiering.operations.topic_list import by_topic, codes_of, sums_by_topic
from include.tiering.quotas.contract import UNLIMITED, QuotaKind, QuotaLevel, QuotasInForce, Scope
from include.tiering.runs.contract import ALL_TOPICS, BatchProgress
from include.tiering.units import format_bytes

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
        by_code.setdefault(series.key.label("reason"), []).append((series.key.label("topic"), series))
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
    others = (series for series in held_back if series.key.label(TOPIC_LABEL) not in measured)
    sums = sums_by_topic([series for series in others if series.key.label("reason") != HeldBack.OUT_OF_SIGHT.code])
    return {topic: round(value) for topic, value in sums.items()}


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


class TopicBackfill(NamedTuple):
    """What waits of a topic, as of the size run at `as_of_ms`.

    Attributes:
        topic: its name.
        size_bytes: of the segments that wait.
        segments: how many wait.
        seconds: the age of the oldest of them, by its newest record; no waiting time.
        as_of_ms: when the numbers were recorded.
        quota: bytes a second of the topic's own copy quota; None without one.
        is_paused: whether the topic, or all topics, are paused.
        held_back: codes of the reasons for which the last plan held back partitions of it.
        is_copied: whether a running batch copies a partition of it.
    """

    topic: str
    size_bytes: int
    segments: int
    seconds: float
    as_of_ms: int
    quota: int | None = None
    is_paused: bool = False
    held_back: tuple[str, ...] = ()
    is_copied: bool = False

    def waits_for(self, copier_slots: int | None) -> tuple[str, ...]:
        """Return what this topic waits for, what stops it first.

        Args:
            copier_slots: last known size of the copiers' pool; None if it was never seen.
        """
        stopped = (f"slots of the pool {COPIER_POOL}, which has 0",) if copier_slots == 0 else ()
        paused = ("the end of its pause",) if self.is_paused else ()
        held = tuple(code if (reason := reason_of(code)) is None else reason.message for code in self.held_back)
        own = "" if self.quota is None else f", at most {format_bytes(self.quota)}/s by its own quota"
        going = (f"the copy that runs now{own}",) if self.is_copied else ()
        return (*stopped, *paused, *held, *going) or (f"a run of tiering_copy{own}",)


def of_unknown_size(
    measured: Collection[str], held_back: Sequence[Series], out_of_sight: Sequence[Series]
) -> Mapping[str, int]:
    """Return, by topic, the partitions of which it is not known how much waits, in the order of names.

    Args:
        measured: topics with a copy lag, also those of which nothing waits.
        held_back: series of partitions that the last plan held back.
        out_of_sight: series of partitions in no readable log directory, as of the last size run.
    """
    unseen = {topic: round(value) for topic, value in sums_by_topic(out_of_sight).items() if value}
    found = Counter(unseen) + Counter(unmeasured(held_back, measured))
    return dict(sorted(found.items()))


def waiting_topics(
    waits: Collection[TopicValues],
    held_back: Sequence[Series],
    quotas: QuotasInForce,
    paused: Collection[str],
    batches: Sequence[BatchProgress] = (),
) -> tuple[TopicBackfill, ...]:
    """Return the topics of which something waits, those with most bytes first.

    Args:
        waits: the bytes of each topic that wait, beside them its lags in segments and in seconds.
        held_back: series of partitions that the last plan held back.
        quotas: the quotas in force.
        paused: the paused topics; `*` for all.
        batches: the batches that run now; those of commands, which may also delete, count for no topic.
    """
    copied = {batch.partition.partition(" ")[0].rpartition("-")[0] for batch in batches if batch.pool == COPIER_POOL}
    reasons = {topic: codes_of(series) for topic, series in by_topic(held_back).items()}
    default, are_paused = limit_of(quotas.of(Scope(QuotaKind.COPY, QuotaLevel.TOPIC))), ALL_TOPICS in paused
    own = {
        scope.name: limit_of(quota)
        for scope, quota in quotas.bytes_per_second.items()
        if scope.kind is QuotaKind.COPY and scope.level is QuotaLevel.TOPIC
    }
    found = []
    for lag in waits:
        topic, waiting_bytes, (segments, seconds), as_of_ms = lag
        if size_bytes := round(waiting_bytes):
            found.append(
                TopicBackfill(
                    topic,
                    size_bytes,
                    round(segments or 0.0),
                    seconds or 0.0,
                    as_of_ms,
                    own.get(topic, default),
                    are_paused or topic in paused,
                    reasons.get(topic, ()),
                    topic in copied,
                )
            )
    found.sort(key=attrgetter("topic"))
    found.sort(key=attrgetter("size_bytes"), reverse=True)
    return tuple(found)


def limit_of(quota: int | None) -> int | None:
    """Return a quota in bytes a second; None if there is none."""
    return None if quota is None or quota in (0, UNLIMITED) else quota


class TopicBackfillDocument(TypedDict):
    """What waits of a topic; `quota` is its own, in bytes a second, null without one.

    `seconds` is the age of the oldest segment that waits, by its newest record, and no waiting time. `is_copied` says
    whether a batch copies a partition of it now; `waits_for` are words, what stops the copy first.
    """

    topic: str
    bytes: int
    segments: int
    seconds: float
    as_of_ms: int
    quota: int | None
    is_paused: bool
    held_back: list[str]
    is_copied: bool
    waits_for: list[str]


def topic_backfill_document(topic: TopicBackfill, copier_slots: int | None) -> TopicBackfillDocument:
    """Return the JSON of what waits of a topic."""
    return {
        "topic": topic.topic,
        "bytes": topic.size_bytes,
        "segments": topic.segments,
        "seconds": topic.seconds,
        "as_of_ms": topic.as_of_ms,
        "quota": topic.quota,
        "is_paused": topic.is_paused,
        "held_back": list(topic.held_back),
        "is_copied": topic.is_copied,
        "waits_for": list(topic.waits_for(copier_slots)),
    }
