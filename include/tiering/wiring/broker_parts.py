"""Access to the brokers, as far as the settings give any."""

from collections.abc import Mapping
from functools import cached_property

from include.tiering.clock import Clock
from include.tiering.cluster.admin_facts import AdminFacts
from include.tiering.cluster.brokers_contract import Brokers
from include.tiering.cluster.contract import ClusterFacts, TopicFacts
from include.tiering.cluster.kafka_admin import KafkaBrokers
from include.tiering.errors import ForeignClusterError, UnknownTopicError
from include.tiering.settings import TieringSettings
from include.tiering.settings.connections import check_connection, librdkafka_config, publisher_connection


class BrokerParts:
    """Part of `Parts`. Nothing is connected to before it is asked."""

    settings: TieringSettings
    clock: Clock

    @property
    def has_brokers(self) -> bool:
        return self.settings.cluster.bootstrap_servers is not None

    @cached_property
    def brokers(self) -> Brokers:
        """Raises SettingError without bootstrap servers, and for settings of the connection that cannot be used."""
        return KafkaBrokers(self.client_config(), self.clock)

    def client_config(self) -> Mapping[str, str | int]:
        """Of a librdkafka client that reads, with the platform's own principal. Holds secrets; raises SettingError."""
        check_connection(self.settings.cluster, "cluster")
        return librdkafka_config(self.settings.cluster)

    def publisher_config(self) -> Mapping[str, str | int]:
        """Of a librdkafka client that writes the metadata topic. Holds secrets; raises SettingError."""
        publisher = publisher_connection(self.settings.cluster, self.settings.metadata_topic)
        check_connection(publisher, "metadata_topic")
        return librdkafka_config(publisher)

    def broker_facts(self, metadata_log: ClusterFacts) -> ClusterFacts:
        """Topic facts as the brokers tell them."""
        return AdminFacts(self.brokers, metadata_log)

    def known_topic(self, topic: str) -> TopicFacts:
        """As the brokers know it. Raises UnknownTopicError, BrokersError."""
        found = self.brokers.topics([topic]).get(topic)
        if found is None:
            raise UnknownTopicError(f"the brokers know no topic {topic}")
        return found

    def require_cluster(self, cluster_id: str) -> None:
        """Raises ForeignClusterError if the brokers are another cluster's, and BrokersError if they do not answer.
        Without bootstrap servers nobody is asked."""
        if self.has_brokers and (found := self.brokers.cluster_id()) != cluster_id:
            raise ForeignClusterError(
                f"cluster.bootstrap_servers lead to cluster {found}, the database serves cluster {cluster_id}: correct "
                "one of cluster.bootstrap_servers and metadata.url"
            )

    def close_brokers(self) -> None:
        if isinstance(brokers := self.__dict__.get("brokers"), KafkaBrokers):
            brokers.close()
        for topic in ("metadata_topic_reader", "metadata_topic_writer"):
            if topic in self.__dict__:
                self.__dict__[topic].close()
