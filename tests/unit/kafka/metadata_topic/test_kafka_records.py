"""A record as librdkafka hands it over."""

import pytest
from confluent_kafka import Message

from include.tiering.kafka.metadata_topic.contract import MetadataTopicRecord
from include.tiering.kafka.metadata_topic.kafka import _record_from


def test_where_it_lies_when_it_was_written_and_what_it_holds() -> None:
    message = Message(topic="t", partition=0, offset=0, value=b"v", timestamp=(1, 1_700_000_000_000))
    assert _record_from(message) == MetadataTopicRecord(0, 0, 1_700_000_000_000, b"v")
    without_value = Message(topic="t", partition=7, offset=9, timestamp=(1, 5))
    assert _record_from(without_value) == MetadataTopicRecord(7, 9, 5, b"")


@pytest.mark.parametrize(
    "message",
    [
        Message(topic="t", offset=1, value=b"v"),
        Message(topic="t", partition=1, value=b"v"),
        Message(topic="t", partition=1, offset=1, value="a deserializer's"),  # type: ignore[arg-type]
    ],
    ids=["no partition", "no offset", "text"],
)
def test_what_is_no_record_of_a_consumer_is_no_record(message: Message) -> None:
    with pytest.raises(TypeError, match="a partition, an offset and bytes"):
        _record_from(message)
