"""The doubles of the metadata topic keep its contract, and so does the adapter before librdkafka's mock of a cluster. A
real one: tests/integration/test_kafka_metadata_topic.py."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from include.tiering.errors import MetadataTopicRangeError, MetadataTopicRefusedError, MetadataTopicUnavailableError
from include.tiering.kafka.metadata_topic.contract import MetadataTopic, MetadataTopicRecord
from include.tiering.kafka.metadata_topic.kafka import KafkaMetadataTopic
from tests.contract.metadata_topic_contract import MetadataTopicContract, values_of
from tests.doubles.memory_metadata_topic import FileMetadataTopic, MemoryMetadataTopic
from tests.doubles.tiny_deployment import PARTITIONS, MockCluster

_names = (f"metadata-{number}" for number in itertools.count())


class TestInMemory(MetadataTopicContract):
    @pytest.fixture
    def topic(self) -> MetadataTopic:
        return MemoryMetadataTopic(partitions=3)


class TestInFiles(MetadataTopicContract):
    @pytest.fixture
    def topic(self, tmp_path: Path) -> MetadataTopic:
        return FileMetadataTopic(tmp_path, partitions=3)

    def test_what_was_appended_is_there_for_the_next_process(self, tmp_path: Path) -> None:
        FileMetadataTopic(tmp_path, partitions=3).append(1, b"a")
        assert values_of(FileMetadataTopic(tmp_path, partitions=3), 1, 0, 1) == [(0, b"a")]


@pytest.fixture(scope="module")
def cluster() -> MockCluster:
    return MockCluster()


class TestOnAMockedCluster(MetadataTopicContract):
    PARTITIONS = PARTITIONS

    @pytest.fixture
    def topic(self, cluster: MockCluster) -> Iterator[KafkaMetadataTopic]:
        name = next(_names)
        cluster.create_topic(name)
        with KafkaMetadataTopic(cluster.config, topic=name) as topic:
            yield topic

    def test_it_knows_its_id(self, cluster: MockCluster) -> None:  # type: ignore[override]
        """The mock has no controller, who would say it."""
        with (
            KafkaMetadataTopic(cluster.config, topic="metadata", timeout_ms=50) as hasty,
            pytest.raises(MetadataTopicUnavailableError, match=r"metadata: its id: .*Timed out"),
        ):
            hasty.topic_id()

    def test_a_topic_that_does_not_exist_is_refused(self, cluster: MockCluster) -> None:
        with (
            KafkaMetadataTopic(cluster.config, topic="no-such-topic") as missing,
            pytest.raises(MetadataTopicRefusedError, match="no-such-topic: its partitions: "),
        ):
            missing.partition_count()

    def test_a_record_without_a_value_has_an_empty_one(self, cluster: MockCluster) -> None:
        name = next(_names)
        cluster.create_topic(name)
        cluster.append(name, 2, None, b"b")
        with KafkaMetadataTopic(cluster.config, topic=name) as topic:
            assert list(topic.read(2, 0, end_offset=2)) == [
                MetadataTopicRecord(2, 0, 1_000, b""),
                MetadataTopicRecord(2, 1, 2_000, b"b"),
            ]


def test_holes_are_passed_over_and_what_was_removed_is_an_error() -> None:
    topic = MemoryMetadataTopic(partitions=1)
    topic.append(0, b"a")
    topic.leave_hole(0)
    topic.append(0, b"b")
    topic.leave_hole(0)
    assert topic.offsets(0) == (0, 4)
    assert values_of(topic, 0, 0, 4) == [(0, b"a"), (2, b"b")]
    topic.forget_before(0, 2)
    assert values_of(topic, 0, 2, 4) == [(2, b"b")]
    with pytest.raises(MetadataTopicRangeError):
        values_of(topic, 0, 1, 4)
