"""One topic for the page *Tiering*: its partitions by leader epoch, history, failed segments, configs and events."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypedDict

from include.tiering.clock import Clock
from include.tiering.configs.config_store import ConfigEntity, ConfigStore, EntityType
from include.tiering.configs.report import LATEST_CHANGES, ConfigsDocument, Description, describe, present_configs
from include.tiering.database.event_log import Event, EventLog
from include.tiering.database.metric_series import KEPT_HOURS, MetricSeries
from include.tiering.errors import SettingError
from include.tiering.model.segments import is_legal_topic_name
from include.tiering.model.sizes import PartitionStates
from include.tiering.operations.events import EventDocument, event_document
from include.tiering.operations.topic_list import (
    LAG_BYTES,
    ListedTopic,
    ListedTopicDocument,
    TopicListService,
    WaitReasonDocument,
    listed_document,
    wait_reason_document,
)
from include.tiering.presentation import PartitionLabels, labels
from include.tiering.segments.failed_copies import FailedCopies, FailedCopy, FailedCopyDocument, failed_copy_document
from include.tiering.segments.sizes_contract import RemoteLogSizes
from include.tiering.settings import TieringSettings
from include.tiering.telemetry.metrics import MINUTE_MS

MOST_PARTITIONS: Final = 1_000
MOST_FAILED: Final = 100
MOST_EVENTS: Final = 20
_STORED: Final = "RemoteLogSizeBytes"
_HOUR_MINUTES: Final = 60


@dataclass(frozen=True, slots=True)
class HourOfTopic:
    """The last values that runs published in an hour; None if no run did."""

    began_ms: int
    stored_bytes: float | None
    waiting_bytes: float | None


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """The topics of one name, of which usually only one exists, with what is known of them.

    If nothing was copied yet, and no plan could take the topic for the platform's, there is none: then `never_copied`
    are the partitions that the last plan held back, by code of the reason.
    """

    topic: str
    listed: tuple[ListedTopic, ...]
    partitions: tuple[PartitionStates, ...]
    hours: tuple[HourOfTopic, ...]
    failed: tuple[FailedCopy, ...]
    configs: Description
    events: tuple[Event, ...]
    never_copied: Mapping[str, int] = field(default_factory=dict)

    @property
    def held_back(self) -> Collection[str]:
        """Codes of the reasons for which the last plan held back partitions of it."""
        return self.listed[0].held_back if self.listed else sorted(self.never_copied)


class TopicDetailsService:
    """Reads a topic with at most ten statements: counters, metrics, configs, events and failed segments, no others."""

    def __init__(
        self,
        *,
        settings: TieringSettings,
        topics: TopicListService,
        sizes: RemoteLogSizes,
        failed_copies: FailedCopies,
        configs: ConfigStore,
        events: EventLog,
        series: Callable[[], MetricSeries],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._sizes = sizes
        self._failed_copies = failed_copies
        self._configs = configs
        self._events = events
        self._series = series
        self._clock = clock

    def of(self, topic: str) -> TopicDetails:
        """Return what is known of a topic.

        Raises:
            SettingError: no run has met a topic with this name.
            MetadataUnavailableError: the database cannot be read.
        """
        if not is_legal_topic_name(topic):
            raise SettingError(f"{topic!r} is no topic: 1 to 249 of letters, digits, '.', '_' and '-'")
        entity, values = ConfigEntity(EntityType.TOPICS, topic), self._configs.snapshot().values
        listed = tuple(self._topics.named(topic, values))
        never_copied = {} if listed else self._topics.never_copied(topic)
        newest = self._clock.now_ms() // MINUTE_MS
        minutes = self._series().minutes(
            (_STORED, LAG_BYTES), since_minute=newest - KEPT_HOURS * _HOUR_MINUTES, labels={"topic": topic}
        )
        return TopicDetails(
            topic,
            listed,
            tuple(self._sizes.topic_states(topic)),
            by_hour({key.metric: values for key, values in minutes.items()}),
            tuple(copy for copy in self._failed_copies.all() if copy.metadata.topic_id_partition.topic == topic),
            Description(
                describe(entity, values, self._settings), tuple(self._configs.history(entity, newest=LATEST_CHANGES))
            ),
            tuple(self._events.newest(MOST_EVENTS, topic=topic)),
            never_copied,
        )


def by_hour(minutes: Mapping[str, Mapping[int, float]]) -> tuple[HourOfTopic, ...]:
    """Return the last value of each hour, the oldest first. `minutes` are by metric, then by minute since 1970."""
    found: dict[int, dict[str, float]] = {}
    for metric, values in minutes.items():
        for minute in sorted(values):
            found.setdefault(minute // _HOUR_MINUTES, {})[metric] = values[minute]
    return tuple(
        HourOfTopic(hour * _HOUR_MINUTES * MINUTE_MS, values.get(_STORED), values.get(LAG_BYTES))
        for hour, values in sorted(found.items())
    )


class EpochDocument(TypedDict):
    """FINISHED bytes and segments of a leader epoch; a segment that spans epochs counts in each."""

    epoch: int
    bytes: int
    segments: int


class PartitionOfTopicDocument(PartitionLabels):
    """A partition: `bytes` and `segments` are FINISHED, `stored_bytes` are paid for."""

    bytes: int
    stored_bytes: int
    segments: int
    leader_epochs: list[EpochDocument]


class HourOfTopicDocument(TypedDict):
    """The last values that runs published in an hour; null if no run did."""

    began_ms: int
    stored_bytes: float | None
    waiting_bytes: float | None


class TopicDetailsDocument(TypedDict):
    """A topic; `more_partitions` and `more_failed` are how many are left out. `events` are the last about it.

    `never_copied` counts the held back partitions of a topic of which nothing was copied yet; then `topics` is empty.
    """

    topic: str
    currency: str | None
    topics: list[ListedTopicDocument]
    held_back: list[WaitReasonDocument]
    never_copied: int
    partitions: list[PartitionOfTopicDocument]
    more_partitions: int
    hours: list[HourOfTopicDocument]
    failed: list[FailedCopyDocument]
    more_failed: int
    configs: ConfigsDocument
    events: list[EventDocument]


def topic_details_document(details: TopicDetails, currency: str | None) -> TopicDetailsDocument:
    """Return the JSON of a topic; `currency` is that of its cost."""
    described = present_configs(details.configs.configs, details.configs.history, details.configs.without_effect)
    configs = described.document()
    return {
        "topic": details.topic,
        "currency": currency,
        "topics": [listed_document(listed) for listed in details.listed],
        "held_back": [wait_reason_document(code, details.topic) for code in details.held_back],
        "never_copied": sum(details.never_copied.values()),
        "partitions": [_partition(states) for states in details.partitions[:MOST_PARTITIONS]],
        "more_partitions": max(0, len(details.partitions) - MOST_PARTITIONS),
        "hours": [
            {"began_ms": hour.began_ms, "stored_bytes": hour.stored_bytes, "waiting_bytes": hour.waiting_bytes}
            for hour in details.hours
        ],
        "failed": [failed_copy_document(copy) for copy in details.failed[:MOST_FAILED]],
        "more_failed": max(0, len(details.failed) - MOST_FAILED),
        "configs": {"configs": configs["configs"], "history": configs["history"], "notes": configs["notes"]},
        "events": list(map(event_document, details.events)),
    }


def _partition(states: PartitionStates) -> PartitionOfTopicDocument:
    finished = states.finished
    return {
        **labels(states.topic_id_partition),
        "bytes": finished.size_bytes,
        "stored_bytes": states.stored_bytes,
        "segments": finished.segments,
        "leader_epochs": [
            {"epoch": size.leader_epoch, "bytes": size.size_bytes, "segments": size.segments}
            for size in finished.leader_epochs
        ],
    }
