"""The report of `status`: settings with their origins, and what is paused or running now."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from include.tiering.configs.pools import PoolsStatus
from include.tiering.configs.report import pools_document, pools_table, topic_quotas_document, topic_quotas_table
from include.tiering.model.segments import Uuid
from include.tiering.presentation import Document, Presentation, Table, count
from include.tiering.quotas.topic_quotas import TopicQuotaReport
from include.tiering.runs.contract import ALL_TOPICS
from include.tiering.segments.topics import TopicDeletion
from include.tiering.settings.catalogue import TieringSettings, all_settings
from include.tiering.units import format_utc


@dataclass(frozen=True, slots=True)
class Activity:
    """The present work according to the database.

    Attributes:
        paused_topics: names of paused topics; `*` for all.
        pools: the pools with their running batches.
        topic_quotas: the rates at which topics receive bytes.
        deleted_topics: topics that were deleted in the cluster.
    """

    paused_topics: Collection[str]
    pools: PoolsStatus
    topic_quotas: TopicQuotaReport = field(default_factory=TopicQuotaReport)
    deleted_topics: Mapping[Uuid, TopicDeletion] = field(default_factory=dict)


def present_status(settings: TieringSettings, activity: Activity | None, unavailable: str = "") -> Presentation:
    """Present the status. If `activity` is None, `unavailable` says why it cannot be read."""
    if activity is None:
        summary = f"activity is unknown: {unavailable}"
    else:
        running = sum(len(pool.live_batches) for pool in activity.pools.pools)
        summary = f"{paused_words(activity.paused_topics)}; {count(running, 'batch runs', 'batches run')}"
    return Presentation(
        lambda: _document(settings, activity, unavailable),
        lambda: _tables(settings, activity),
        summary,
        ok=activity is not None,
    )


def _document(settings: TieringSettings, activity: Activity | None, unavailable: str) -> Document:
    document: Document = {
        "settings": [
            {
                "name": setting.name,
                "value": setting.shown(settings),
                "origin": settings.origin(setting.name),
                "dynamic": setting.dynamic,
            }
            for setting in all_settings()
        ],
    }
    if activity is None:
        return {**document, "unavailable": unavailable}
    return {
        **document,
        "paused_topics": sorted(activity.paused_topics),
        **pools_document(activity.pools),
        **topic_quotas_document(activity.topic_quotas),
        "deleted_topics": [
            {
                "topic": deletion.topic,
                "topic_id": str(topic_id),
                "seen_at_ms": deletion.seen_at_ms,
                "evidence": deletion.evidence,
            }
            for topic_id, deletion in _by_time(activity.deleted_topics)
        ],
    }


def _tables(settings: TieringSettings, activity: Activity | None) -> tuple[Table, ...]:
    rows = tuple((s.name, _text(s.shown(settings)), settings.origin(s.name)) for s in all_settings())
    known = Table("settings", ("setting", "value", "from"), rows)
    if activity is None:
        return (known,)
    return (known, pools_table(activity.pools), *topic_quotas_table(activity.topic_quotas), *_deleted_topics(activity))


def _deleted_topics(activity: Activity) -> tuple[Table, ...]:
    rows = tuple(
        (deletion.topic, str(topic_id), format_utc(deletion.seen_at_ms), deletion.evidence)
        for topic_id, deletion in _by_time(activity.deleted_topics)
    )
    return (Table("deleted in the cluster", ("topic", "id", "seen", "evidence"), rows),) if rows else ()


def _by_time(deletions: Mapping[Uuid, TopicDeletion]) -> list[tuple[Uuid, TopicDeletion]]:
    return sorted(deletions.items(), key=lambda item: (item[1].seen_at_ms, str(item[0])))


def _text(value: Any) -> str:
    if value is None:
        return "unset"
    return value if isinstance(value, str) else json.dumps(value)


def paused_words(topics: Collection[str]) -> str:
    """Describe a set of paused topics in a few words."""
    if ALL_TOPICS in topics:
        return "all topics are paused"
    return f"paused: {', '.join(sorted(topics))}" if topics else "nothing is paused"


def resume_hints(topic: str | None, before: Collection[str], paused: Collection[str]) -> list[str]:
    """Return what to say after a pause was ended, of one topic or (None) of all: what was not paused, what still is.

    Args:
        topic: the topic that was resumed; None for the pause of all topics.
        before: names of paused topics before the change; `*` for all.
        paused: names of paused topics after it.
    """
    hints = []
    if (topic or ALL_TOPICS) not in before:
        hints.append(f"{topic} was not paused by its name" if topic else "there was no pause of all topics")
    if ALL_TOPICS in paused:
        hints.append("every topic is still paused by the pause of all topics: ./tiering resume")
    named = sorted(set(paused) - {ALL_TOPICS})
    hints += [f"{name} is still paused by its name: ./tiering resume --topic {name}" for name in named]
    return hints
