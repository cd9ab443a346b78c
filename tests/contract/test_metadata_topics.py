"""The doubles of the metadata topic keep its contract. The real one: tests/integration/test_kafka_metadata_topic.py."""

from pathlib import Path

import pytest

from include.tiering.errors import MetadataTopicRangeError
from include.tiering.kafka.metadata_topic.contract import MetadataTopic
from tests.contract.metadata_topic_contract import MetadataTopicContract, values_of
from tests.doubles.file_metadata_topic import FileMetadataTopic
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic


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
