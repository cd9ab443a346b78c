"""What the dynamic configs say about topic quotas, read again when it is half a second old."""

from typing import Final

from include.tiering.clock import Clock
from include.tiering.configs.config_store import ALL_BROKERS, ConfigStore, ConfigValues, EntityType, numbers_of
from include.tiering.quotas.topic_quota_configs import TopicQuotaConfigs
from include.tiering.quotas.topic_thresholds import TOPIC_THRESHOLD, TOTAL_THRESHOLD

ENABLE: Final = "tiering.topic.quotas.enable"
FRESH_SECONDS: Final = 0.5


class FreshTopicQuotaConfigs:
    """For one process; `current` asks the store at most twice a second."""

    def __init__(self, store: ConfigStore, clock: Clock, *, enabled: bool) -> None:
        self._store = store
        self._clock = clock
        self._enabled = enabled
        self._known: tuple[float, TopicQuotaConfigs] | None = None

    def current(self) -> TopicQuotaConfigs:
        """Raises MetadataUnavailableError."""
        now = self._clock.monotonic()
        if self._known is None or now - self._known[0] >= FRESH_SECONDS:
            values = self._store.snapshot().values
            self._known = (now, _configs_of(values, enabled=self._enabled))
        return self._known[1]


def _configs_of(values: ConfigValues, *, enabled: bool) -> TopicQuotaConfigs:
    """`enabled` is the setting where no dynamic config speaks."""
    switch = values.get(ALL_BROKERS, {}).get(ENABLE)
    return TopicQuotaConfigs(
        enabled=enabled if switch is None else switch == "true",
        totals=_by_name(values, EntityType.BROKERS, TOTAL_THRESHOLD),
        explicit=_by_name(values, EntityType.TOPICS, TOPIC_THRESHOLD),
    )


def _by_name(values: ConfigValues, entity_type: EntityType, name: str) -> dict[str, int]:
    return {entity.entity_name: number for entity, number in numbers_of(values, entity_type, name).items()}
