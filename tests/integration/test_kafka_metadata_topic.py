"""The metadata topic's adapter against a real broker: the contract, and what only a broker can do to it."""

import itertools
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Producer, TopicPartition

from include.tiering.broker_process.broker_process import free_ports
from include.tiering.errors import MetadataTopicRangeError, MetadataTopicRefusedError, MetadataTopicUnavailableError
from include.tiering.kafka.metadata_topic.kafka import KafkaMetadataTopic
from tests.contract.metadata_topic_contract import MetadataTopicContract, values_of
from tests.doubles.kafka_lab.cluster import KafkaCluster, client_configuration, kafka_cluster, wait_until
from tests.doubles.kafka_lab.requests import require_kafka

pytestmark = pytest.mark.kafka

_names = (f"metadata-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    require_kafka()
    with kafka_cluster(tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.fixture
def topic_name(cluster: KafkaCluster) -> str:
    name = next(_names)
    cluster.create_topic(name, partitions=3)
    return name


@pytest.fixture
def topic(cluster: KafkaCluster, topic_name: str) -> Iterator[KafkaMetadataTopic]:
    with KafkaMetadataTopic(client_configuration(cluster.bootstrap), topic=topic_name) as topic:
        yield topic


def _ends_at(topic: KafkaMetadataTopic, end: int) -> bool:
    return topic.offsets(0).end == end


class TestOnABroker(MetadataTopicContract):
    def test_its_id_is_the_clusters(self, topic: KafkaMetadataTopic, cluster: KafkaCluster, topic_name: str) -> None:
        assert str(topic.topic_id()) == cluster.topic_id(topic_name)

    def test_markers_of_transactions_are_holes(
        self, topic: KafkaMetadataTopic, cluster: KafkaCluster, topic_name: str
    ) -> None:
        topic.append(0, b"a")
        for end, commits in ((3, True), (5, False)):
            producer = Producer({**client_configuration(cluster.bootstrap), "transactional.id": topic_name})
            producer.init_transactions(60)
            producer.begin_transaction()
            producer.produce(topic_name, value=b"of a transaction", partition=0)
            producer.flush(60)
            if commits:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)
            wait_until(partial(_ends_at, topic, end), "the marker is written")
        assert topic.append(0, b"b") == 5
        assert topic.offsets(0) == (0, 6)
        read = values_of(topic, 0, 0, 6)
        assert read == [(0, b"a"), (1, b"of a transaction"), (3, b"of a transaction"), (5, b"b")]
        assert values_of(topic, 0, 2, 3) == values_of(topic, 0, 4, 5) == []
        assert values_of(topic, 0, 4, 6) == [(5, b"b")]

    def test_what_was_removed_is_an_error(
        self, topic: KafkaMetadataTopic, cluster: KafkaCluster, topic_name: str
    ) -> None:
        for number in range(4):
            topic.append(1, b"%d" % number)
        removal = cluster.admin.delete_records([TopicPartition(topic_name, 1, 3)])
        next(iter(removal.values())).result(60)
        assert topic.offsets(1) == (3, 4)
        with pytest.raises(MetadataTopicRangeError, match="holds offsets from 3 to before 4"):
            values_of(topic, 1, 2, 4)
        assert values_of(topic, 1, 3, 4) == [(3, b"3")]

    def test_records_without_a_value_have_an_empty_one_and_ours_have_neither_key_nor_headers(
        self, topic: KafkaMetadataTopic, cluster: KafkaCluster, topic_name: str
    ) -> None:
        producer = Producer(client_configuration(cluster.bootstrap))
        producer.produce(topic_name, key=b"k", value=None, partition=0)
        assert producer.flush(60) == 0
        topic.append(0, b"ours")
        assert values_of(topic, 0, 0, 2) == [(0, b""), (1, b"ours")]

    def test_thousands_of_records_come_in_order(
        self, topic: KafkaMetadataTopic, cluster: KafkaCluster, topic_name: str
    ) -> None:
        producer = Producer(client_configuration(cluster.bootstrap))
        for number in range(5_000):
            producer.produce(topic_name, value=b"%d" % number, partition=2)
        assert producer.flush(60) == 0
        assert values_of(topic, 2, 0, 5_000) == [(number, b"%d" % number) for number in range(5_000)]

    def test_a_topic_that_does_not_exist_is_refused_and_not_made(self, cluster: KafkaCluster) -> None:
        with KafkaMetadataTopic(client_configuration(cluster.bootstrap), topic="no-such-topic") as missing:
            for ask in (missing.partition_count, missing.topic_id, lambda: missing.append(0, b"a")):
                with pytest.raises(MetadataTopicRefusedError, match="no-such-topic"):
                    ask()
        assert "no-such-topic" not in cluster.admin.list_topics(timeout=60).topics


def test_brokers_that_are_away_are_told_in_time_without_a_secret() -> None:
    config = client_configuration(f"127.0.0.1:{free_ports(1)[0]}") | {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "publisher",
        "sasl.password": "quite-secret",
    }
    with KafkaMetadataTopic(config, timeout_ms=500) as topic:
        for ask in (topic.partition_count, topic.topic_id, lambda: topic.offsets(0), lambda: topic.append(0, b"a")):
            with pytest.raises(MetadataTopicUnavailableError, match="__remote_log_metadata") as told:
                ask()
            assert "quite-secret" not in f"{told.value} {told.value.__cause__!r}"
