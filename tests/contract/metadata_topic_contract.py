"""What every `MetadataTopic` must do. A subclass gives a fixture `topic`, empty and with `PARTITIONS` partitions."""

from typing import ClassVar

import pytest

from include.tiering.errors import MetadataTopicError, MetadataTopicRangeError, MetadataTopicRefusedError
from include.tiering.kafka.metadata_topic.contract import MetadataTopic


def values_of(topic: MetadataTopic, partition: int, start_offset: int, end_offset: int) -> list[tuple[int, bytes]]:
    return [(one.offset, one.value) for one in topic.read(partition, start_offset, end_offset=end_offset)]


class MetadataTopicContract:
    PARTITIONS: ClassVar[int] = 3

    def test_it_knows_its_partitions(self, topic: MetadataTopic) -> None:
        assert topic.partition_count() == self.PARTITIONS

    def test_it_knows_its_id(self, topic: MetadataTopic) -> None:
        assert topic.topic_id() == topic.topic_id()
        assert not topic.topic_id().is_zero

    def test_what_was_closed_is_opened_by_the_next_call(self, topic: MetadataTopic) -> None:
        topic.append(0, b"a")
        topic.close()
        topic.close()
        assert values_of(topic, 0, 0, 1) == [(0, b"a")]
        assert topic.append(0, b"b") == 1

    def test_an_empty_partition_has_nothing_to_read(self, topic: MetadataTopic) -> None:
        assert topic.offsets(0) == (0, 0)
        assert values_of(topic, 0, 0, 0) == []

    def test_records_come_back_as_they_were_appended(self, topic: MetadataTopic) -> None:
        values = [b"first", bytes(range(256)), b"x" * 20_000, b"first"]
        assert [topic.append(1, value) for value in values] == [0, 1, 2, 3]
        assert topic.offsets(1) == (0, 4)
        assert topic.offsets(0) == topic.offsets(2) == (0, 0)
        records = list(topic.read(1, 0, end_offset=4))
        assert [(one.partition, one.offset, one.value) for one in records] == [
            (1, offset, value) for offset, value in enumerate(values)
        ]
        assert all(one.timestamp_ms >= 0 for one in records)

    def test_bounds_are_kept_on_both_sides(self, topic: MetadataTopic) -> None:
        for number in range(6):
            topic.append(2, b"%d" % number)
        assert values_of(topic, 2, 2, 4) == [(2, b"2"), (3, b"3")]
        assert values_of(topic, 2, 4, 6) == [(4, b"4"), (5, b"5")]
        assert values_of(topic, 2, 1, 2) == [(1, b"1")]
        assert values_of(topic, 2, 3, 3) == values_of(topic, 2, 6, 6) == []
        assert len(values_of(topic, 2, 0, 6)) == 6

    def test_reading_is_bounded_while_others_append(self, topic: MetadataTopic) -> None:
        topic.append(0, b"a")
        reading = topic.read(0, 0, end_offset=1)
        topic.append(0, b"b")
        assert [one.value for one in reading] == [b"a"]

    def test_a_reader_that_is_left_in_the_middle_disturbs_nobody(self, topic: MetadataTopic) -> None:
        for number in range(4):
            topic.append(0, b"%d" % number)
        assert next(topic.read(0, 0, end_offset=4)).value == b"0"
        assert values_of(topic, 0, 1, 3) == [(1, b"1"), (2, b"2")]
        topic.append(1, b"other")
        assert values_of(topic, 1, 0, 1) == [(0, b"other")]

    def test_each_append_can_be_read_at_once(self, topic: MetadataTopic) -> None:
        for number in range(20):
            offset = topic.append(0, b"%d" % number)
            assert values_of(topic, 0, offset, offset + 1) == [(offset, b"%d" % number)]

    @pytest.mark.parametrize(("start_offset", "end_offset"), [(0, 3), (2, 4), (-1, 1)])
    def test_what_is_not_there_is_not_read(self, topic: MetadataTopic, start_offset: int, end_offset: int) -> None:
        topic.append(0, b"a")
        topic.append(0, b"b")
        with pytest.raises(MetadataTopicRangeError):
            values_of(topic, 0, start_offset, end_offset)

    @pytest.mark.parametrize("beyond", [0, 96])
    def test_a_partition_that_does_not_exist_is_refused(self, topic: MetadataTopic, beyond: int) -> None:
        partition = self.PARTITIONS + beyond
        with pytest.raises(MetadataTopicRefusedError):
            topic.offsets(partition)
        with pytest.raises(MetadataTopicRefusedError):
            topic.append(partition, b"a")
        with pytest.raises(MetadataTopicError):
            values_of(topic, partition, 0, 0)
        assert topic.append(0, b"a") == 0
