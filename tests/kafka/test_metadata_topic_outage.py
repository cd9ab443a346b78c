"""The metadata topic while its broker dies and comes back."""

import pytest

from include.tiering.errors import MetadataTopicUnavailableError
from include.tiering.kafka.metadata_topic.kafka import KafkaMetadataTopic
from tests.contract.metadata_topic_contract import values_of
from tests.doubles.kafka_lab.cluster import client_configuration, kafka_cluster
from tests.doubles.kafka_lab.skipping import require_kafka

pytestmark = pytest.mark.kafka


def test_a_broker_that_stops_is_told_and_found_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_kafka()
    with kafka_cluster(tmp_path_factory.mktemp("kafka")) as cluster:
        cluster.create_topic("metadata", partitions=1)
        with KafkaMetadataTopic(client_configuration(cluster.bootstrap), topic="metadata", timeout_ms=3_000) as topic:
            assert topic.append(0, b"a") == 0
            assert values_of(topic, 0, 0, 1) == [(0, b"a")]
            cluster.broker.kill()
            with pytest.raises(MetadataTopicUnavailableError):
                topic.append(0, b"lost")
            with pytest.raises(MetadataTopicUnavailableError):
                topic.offsets(0)
            with pytest.raises(MetadataTopicUnavailableError):
                topic.partition_count()
            cluster.broker.start()
        with KafkaMetadataTopic(client_configuration(cluster.bootstrap), topic="metadata", timeout_ms=60_000) as topic:
            assert topic.append(0, b"b") == 1
            assert values_of(topic, 0, 0, 2) == [(0, b"a"), (1, b"b")]
