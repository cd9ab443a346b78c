"""Kafka's own configs of tiered storage, asked of the brokers and changed on them."""

from collections.abc import Mapping

from include.tiering.clock import Clock
from include.tiering.configs.config_store import ConfigEntity
from include.tiering.kafka.cluster.contract import Brokers
from include.tiering.operations.alter_broker_configs import (
    AlteredBrokerConfigs,
    alter_broker_configs,
    check_broker_configs,
    is_of_tiered_storage,
)
from include.tiering.operations.broker_configs_report import BrokerListing
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs


class BrokerConfigService:
    """Every method raises BrokersError."""

    def __init__(
        self,
        *,
        brokers: Brokers,
        log_dirs: ClusterLogDirs,
        clock: Clock,
    ) -> None:
        self._brokers = brokers
        self._log_dirs = log_dirs
        self._clock = clock

    def alter(
        self, entity: ConfigEntity, changes: Mapping[str, str | None], *, dry_run: bool = False
    ) -> AlteredBrokerConfigs:
        """Change Kafka's own configs; see `alter_broker_configs`. Refused if the brokers are another cluster's."""
        self._log_dirs.require_cluster()
        return alter_broker_configs(entity, changes, brokers=self._brokers, clock=self._clock, dry_run=dry_run)

    def describe(self, entity: ConfigEntity | None = None) -> tuple[BrokerListing, ...]:
        """Kafka's own configs of tiered storage, on one broker or on all."""
        if entity is not None:
            check_broker_configs(entity, {}, brokers=self._brokers)
        listings = []
        for broker in self._brokers.describe().brokers:
            if entity is None or entity.is_default or entity.entity_name == str(broker.broker_id):
                configs = self._brokers.broker_configs(broker.broker_id)
                chosen = {name: configs[name] for name in sorted(configs) if is_of_tiered_storage(name)}
                listings.append(BrokerListing(broker, chosen))
        return tuple(listings)
