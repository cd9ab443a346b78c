"""The settings as they hold now: with the dynamic configs over them."""

from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, ConfigStore, EntityType
from include.tiering.configs.topic_retention import TopicRetention
from include.tiering.settings import TieringSettings, with_dynamic


class EffectiveConfigs:
    """What holds now: the settings of this process with the dynamic configs over them."""

    def __init__(self, *, settings: TieringSettings, store: ConfigStore) -> None:
        self._settings = settings
        self._store = store

    def settings(self) -> TieringSettings:
        return with_dynamic(self._settings, self._store.of_entity(ALL_BROKERS))

    def topic_retentions(self) -> dict[str, TopicRetention]:
        """What is set on topics, by name."""
        return {
            entity.entity_name: TopicRetention.of(configs)
            for entity, configs in self._store.snapshot().values.items()
            if entity.entity_type is EntityType.TOPICS
        }

    def retention_of(self, topic: str) -> TopicRetention:
        return TopicRetention.of(self._store.of_entity(ConfigEntity(EntityType.TOPICS, topic)))
