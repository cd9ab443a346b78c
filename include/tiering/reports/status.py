"""The settings with their origins, and what is paused or running now."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from include.tiering.quota.topic_quota import TopicQuotaReport
from include.tiering.reports.pools import pools_document, pools_table
from include.tiering.reports.presentation import Document, Presentation, Table, count
from include.tiering.reports.topic_quotas import topic_quotas_document, topic_quotas_table
from include.tiering.settings.catalogue import all_settings
from include.tiering.settings.model import TieringSettings
from include.tiering.tasks.mirror_pools import PoolsStatus
from include.tiering.work.contract import ALL_TOPICS


@dataclass(frozen=True, slots=True)
class Activity:
    """What SQL says of the work now: names of paused topics (`*`: all), the pools with the batches in them, and what
    topics bring in."""

    paused_topics: Collection[str]
    pools: PoolsStatus
    topic_quotas: TopicQuotaReport = field(default_factory=TopicQuotaReport)


def present_status(settings: TieringSettings, activity: Activity | None, unavailable: str = "") -> Presentation:
    """`activity` is None where the database does not answer, for the reason in `unavailable`."""
    if activity is None:
        summary = f"activity is not known: {unavailable}"
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
    }


def _tables(settings: TieringSettings, activity: Activity | None) -> tuple[Table, ...]:
    rows = tuple((s.name, _text(s.shown(settings)), settings.origin(s.name)) for s in all_settings())
    known = Table("settings", ("setting", "value", "from"), rows)
    if activity is None:
        return (known,)
    return (known, pools_table(activity.pools), *topic_quotas_table(activity.topic_quotas))


def _text(value: Any) -> str:
    if value is None:
        return "unset"
    return value if isinstance(value, str) else json.dumps(value)


def paused_words(topics: Collection[str]) -> str:
    """What a set of paused topics means, in a few words."""
    if ALL_TOPICS in topics:
        return "all topics are paused"
    return f"paused: {', '.join(sorted(topics))}" if topics else "nothing is paused"
