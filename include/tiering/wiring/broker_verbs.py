"""What is asked of the brokers, and changed on them, for a person."""

from collections.abc import Mapping

from include.tiering.quota.config_store import ConfigEntity
from include.tiering.reports.broker_configs import BrokerListing
from include.tiering.tasks.alter_broker_configs import (
    AlteredBrokerConfigs,
    alter_broker_configs,
    check_broker_configs,
    is_of_tiered_storage,
)
from include.tiering.wiring.parts import Parts


class BrokerVerbs(Parts):
    """Part of `Tiering`. Every verb raises SettingError without bootstrap servers, and BrokersError."""

    def alter_broker_configs(
        self, entity: ConfigEntity, changes: Mapping[str, str | None], *, dry_run: bool = False
    ) -> AlteredBrokerConfigs:
        """Change Kafka's own configs; see the task. Refused if the brokers are another cluster's."""
        self.require_cluster(self.cluster_id)
        return alter_broker_configs(entity, changes, brokers=self.brokers, clock=self.clock, dry_run=dry_run)

    def describe_broker_configs(self, entity: ConfigEntity | None = None) -> tuple[BrokerListing, ...]:
        """Kafka's own configs of tiered storage, on one broker or on all."""
        if entity is not None:
            check_broker_configs(entity, {}, brokers=self.brokers)
        listings = []
        for broker in self.brokers.describe().brokers:
            if entity is None or entity.is_default or entity.entity_name == str(broker.broker_id):
                configs = self.brokers.broker_configs(broker.broker_id)
                chosen = {name: configs[name] for name in sorted(configs) if is_of_tiered_storage(name)}
                listings.append(BrokerListing(broker, chosen))
        return tuple(listings)
