"""The report of `status`: settings with their origins, and what is paused or running now."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

from include.tiering.configs.usage_report import (
    PoolDocument,
    TopicQuotasDocument,
    pools_table,
    topic_quotas_document,
    topic_quotas_table,
)
from include.tiering.model.segments import Uuid
from include.tiering.operations.alarms import RULES, AlarmDocument, MoreAlarmsDocument, runbook_entry
from include.tiering.operations.monitoring import Traffic, UnreadableLogDirDocument
from include.tiering.operations.overview import (
    BatchDocument,
    Limit,
    Overview,
    QuotaLimitDocument,
    TotalsDocument,
    overview_document,
    seconds_left,
)
from include.tiering.operations.waiting import WaitingGroupDocument
from include.tiering.presentation import Presentation, Table, count, listed
from include.tiering.quotas.contract import QuotaKind
from include.tiering.quotas.topic_quotas import TopicQuotaReport
from include.tiering.runs.contract import ALL_TOPICS, BatchProgress
from include.tiering.segments.topics import TopicDeletion
from include.tiering.settings.catalogue import TieringSettings, all_settings
from include.tiering.units import Quantity, format_bytes, format_duration, format_utc


@dataclass(frozen=True, slots=True)
class Activity:
    """The present work according to the database.

    Attributes:
        overview: totals, pauses, batches, pools, limits, what waits, and alarms.
        topic_quotas: at which rates segments of each topic are brought into remote storage, with the thresholds.
        deleted_topics: topics that were deleted in the cluster.
        traffic: what all processes did in the last minute, hour and day.
    """

    overview: Overview
    topic_quotas: TopicQuotaReport = field(default_factory=TopicQuotaReport)
    deleted_topics: Mapping[Uuid, TopicDeletion] = field(default_factory=dict)
    traffic: Sequence[Traffic] = ()


class SettingDocument(TypedDict):
    """A setting with its value, where secrets are masked, and where the value comes from."""

    name: str
    value: Any
    origin: str
    dynamic: bool


class DeletedTopicDocument(TypedDict):
    """A topic that was deleted in the cluster."""

    topic: str
    topic_id: str
    seen_at_ms: int
    evidence: str


class TrafficDocument(TypedDict):
    """What all processes did in the newest `minutes` whole minutes; the newest one ended 15 to 75 seconds ago.

    The throttled seconds are the time for which copies or reads waited for a quota; simultaneous waits are added up.
    """

    minutes: int
    copied_bytes: int
    copy_throttled_seconds: float
    fetched_bytes: int
    fetch_throttled_seconds: float
    delete_requests: int


class StatusDocument(TypedDict):
    """Settings and the present work. If the database does not answer, `unavailable` says why, in place of the work."""

    settings: list[SettingDocument]
    unavailable: NotRequired[str]
    as_of_ms: NotRequired[int]
    totals: NotRequired[TotalsDocument]
    paused_topics: NotRequired[list[str]]
    stopped_pools: NotRequired[list[str]]
    pools: NotRequired[list[PoolDocument]]
    batches: NotRequired[list[BatchDocument]]
    limits: NotRequired[list[QuotaLimitDocument]]
    waiting: NotRequired[list[WaitingGroupDocument]]
    unreadable_log_dirs: NotRequired[list[UnreadableLogDirDocument]]
    alarms: NotRequired[list[AlarmDocument]]
    more_alarms: NotRequired[list[MoreAlarmsDocument]]
    traffic: NotRequired[list[TrafficDocument]]
    topic_quotas: NotRequired[TopicQuotasDocument]
    deleted_topics: NotRequired[list[DeletedTopicDocument]]


def present_status(settings: TieringSettings, activity: Activity | None, unavailable: str = "") -> Presentation:
    """Present the status. If `activity` is None, `unavailable` says why it cannot be read."""
    if activity is None:
        summary = f"activity is unknown: {unavailable}"
    else:
        running, alarms = len(activity.overview.batches), activity.overview.alarms_in_all
        summary = f"{paused_words(activity.overview.paused_topics)}; {count(running, 'batch runs', 'batches run')}"
        stopped = activity.overview.stopped_pools
        summary += f"; 0 slots, so nothing of it begins: {', '.join(stopped)}" if stopped else ""
        summary += f"; {count(alarms, 'alarm')}" if alarms else ""
    return Presentation(
        lambda: _document(settings, activity, unavailable),
        lambda: _tables(settings, activity),
        summary,
        ok=activity is not None,
    )


def _document(settings: TieringSettings, activity: Activity | None, unavailable: str) -> StatusDocument:
    document: StatusDocument = {
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
        **overview_document(activity.overview),
        "traffic": [_traffic_document(traffic) for traffic in activity.traffic],
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
    return (
        known,
        *_batches(activity.overview.batches),
        *_alarms(activity.overview),
        *_waiting(activity.overview),
        *_unreadable(activity.overview),
        *_limits(activity.overview.limits),
        *_traffic(activity),
        pools_table(activity.overview.pools),
        *topic_quotas_table(activity.topic_quotas),
        *_deleted_topics(activity),
    )


def _batches(batches: Sequence[BatchProgress]) -> tuple[Table, ...]:
    """Return a table of the running batches with their rate and the time left; no table if none runs."""
    heads = ("batch", "in", "partition", "done>", "of>", "a second>", "time left>")
    rows = tuple(
        (
            report.batch_id,
            report.pool or f"{report.host}:{report.pid}",
            report.partition,
            format_bytes(report.done_bytes),
            format_bytes(report.planned_bytes),
            format_bytes(int(report.bytes_per_second)),
            "" if (left := seconds_left(report)) is None else format_duration(left),
        )
        for report in batches
    )
    return (Table("running batches", heads, rows),) if rows else ()


def _traffic(activity: Activity) -> tuple[Table, ...]:
    """Return a table of the traffic; no table if there was none."""
    heads = (
        "in the last",
        "sent by copies>",
        "a second>",
        "waited>",
        "read>",
        "a second>",
        "waited>",
        "delete requests>",
    )
    rows = tuple(
        (
            format_duration(traffic.minutes * 60),
            format_bytes(traffic.copied_bytes),
            format_bytes(traffic.copied_bytes // (traffic.minutes * 60)),
            format_duration(traffic.copy_throttled_seconds),
            format_bytes(traffic.fetched_bytes),
            format_bytes(traffic.fetched_bytes // (traffic.minutes * 60)),
            format_duration(traffic.fetch_throttled_seconds),
            str(traffic.delete_requests),
        )
        for traffic in activity.traffic
    )
    is_any = any(
        traffic.copied_bytes or traffic.fetched_bytes or traffic.delete_requests for traffic in activity.traffic
    )
    return (Table("traffic, all processes", heads, rows),) if is_any else ()


def _traffic_document(traffic: Traffic) -> TrafficDocument:
    return {
        "minutes": traffic.minutes,
        "copied_bytes": traffic.copied_bytes,
        "copy_throttled_seconds": round(traffic.copy_throttled_seconds, 3),
        "fetched_bytes": traffic.fetched_bytes,
        "fetch_throttled_seconds": round(traffic.fetch_throttled_seconds, 3),
        "delete_requests": traffic.delete_requests,
    }


def _alarms(overview: Overview) -> tuple[Table, ...]:
    """Return a table of the alert rules that hold; no table without any."""
    rules = {rule.alert: rule for rule in RULES}
    further = (
        (rules[alert], f"{alert} holds for {number:,} more, with values no higher than these.")
        for alert, number in overview.more_alarms.items()
    )
    found = [*((alarm.rule, alarm.sentence) for alarm in overview.alarms), *further]
    rows = tuple((str(rule.severity), sentence, runbook_entry(rule.runbook)) for rule, sentence in found)
    return (Table("alarms", ("severity", "what", "what to do"), rows),) if rows else ()


def _waiting(overview: Overview) -> tuple[Table, ...]:
    """Return a table of the partitions that the last plan of copies held back, by reason; no table without any."""
    rows = tuple(
        (str(found["partitions"]), found["reason_message"] or "", listed(found["topics"], 3), found["advice"])
        for found in overview_document(overview)["waiting"]
    )
    heads = ("partitions>", "why", "topics", "what to do")
    return (Table("waiting, as of the last plan", heads, rows),) if rows else ()


def _unreadable(overview: Overview) -> tuple[Table, ...]:
    """Return a table of the log directories that cannot be read; no table if all can."""
    rows = tuple((str(each.broker_id), each.path, format_utc(each.as_of_ms)) for each in overview.unreadable)
    return (Table("log directories that cannot be read", ("broker>", "log dir", "as of"), rows),) if rows else ()


def _limits(limits: Sequence[Limit]) -> tuple[Table, ...]:
    """Return a table of the quotas in force with their use; no table without quotas."""
    rows = tuple(
        (
            f"{limit.scope.kind} {limit.scope.level} {limit.scope.name}".rstrip(),
            _amount(limit, limit.per_second),
            "" if limit.rate is None else _amount(limit, limit.rate),
            "yes" if limit.limits else "",
        )
        for limit in limits
    )
    heads = ("quota", "a second>", "last minute>", "senders wait for it")
    return (Table("quotas in force", heads, rows),) if rows else ()


def _amount(limit: Limit, number: float) -> str:
    if limit.scope.kind is QuotaKind.DELETE:
        return Quantity(f"{number:g} requests", number)
    return format_bytes(int(number))


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


class PauseDocument(TypedDict):
    """What is paused after the command; `*` stands for all topics.

    The command claims the store: it raises the generation in the store's marker, so that the store refuses an older
    copy of the database. `not_claimed` says why that was not possible; null if it was.
    """

    paused_topics: list[str]
    not_claimed: str | None


def present_pause(paused: Collection[str], not_claimed: str | None, *, ok: bool = True) -> Presentation:
    """Present what is paused after a change; see `PauseDocument` for `not_claimed`."""
    return Presentation(
        lambda: PauseDocument(paused_topics=sorted(paused), not_claimed=not_claimed),
        lambda: (),
        paused_words(paused),
        ok=ok,
    )


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
