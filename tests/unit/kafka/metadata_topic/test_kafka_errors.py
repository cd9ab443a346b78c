"""What an error of librdkafka means: to be tried again, refused for good, or offsets that are not there."""

import pytest
from confluent_kafka import KafkaError

from include.tiering.errors import (
    MetadataTopicError,
    MetadataTopicRangeError,
    MetadataTopicRefusedError,
    MetadataTopicUnavailableError,
)
from include.tiering.kafka.metadata_topic.kafka import END_OF_PARTITION, LOGIN, UNKNOWN_PARTITION, error_for

REFUSED, RANGE, AWAY = MetadataTopicRefusedError, MetadataTopicRangeError, MetadataTopicUnavailableError


def error(code: int, words: str = "") -> KafkaError:
    return KafkaError(code, words) if words else KafkaError(code)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        # Codes of Kafka's protocol, which are positive.
        (1, RANGE),  # offset out of range
        (3, REFUSED),  # unknown topic or partition
        (5, AWAY),  # leader not available
        (6, AWAY),  # not leader for partition
        (7, AWAY),  # request timed out
        (10, REFUSED),  # message too large
        (17, REFUSED),  # invalid topic
        (19, AWAY),  # not enough replicas
        (29, REFUSED),  # not authorised for the topic
        (31, REFUSED),  # not authorised for the cluster
        (44, REFUSED),  # policy violation
        (58, REFUSED),  # login failed
        (87, REFUSED),  # invalid record
        # The client's own, which are negative.
        (KafkaError._ALL_BROKERS_DOWN, AWAY),
        (KafkaError._AUTHENTICATION, REFUSED),
        (KafkaError._AUTO_OFFSET_RESET, RANGE),
        (KafkaError._INVALID_ARG, REFUSED),
        (KafkaError._MSG_TIMED_OUT, AWAY),
        (KafkaError._SSL, REFUSED),
        (KafkaError._TIMED_OUT, AWAY),
        (KafkaError._TRANSPORT, AWAY),
        (KafkaError._UNKNOWN_PARTITION, REFUSED),
        (KafkaError._UNKNOWN_TOPIC, REFUSED),
    ],
)
def test_each_error_has_its_kind(code: int, kind: type[MetadataTopicError]) -> None:
    found = error_for("a record", error(code, "the broker's words"))
    assert type(found) is kind
    assert str(found) == "a record: the broker's words"
    assert found.retriable is (kind is AWAY)


def test_names_that_are_looked_for_are_librdkafkas() -> None:
    assert error(KafkaError._PARTITION_EOF).name() == END_OF_PARTITION
    assert error(KafkaError._UNKNOWN_PARTITION).name() == UNKNOWN_PARTITION
    assert {error(code).name() for code in (KafkaError._AUTHENTICATION, KafkaError._SSL, 58)} == LOGIN


def test_without_an_answer_it_is_away() -> None:
    found = error_for("offsets", None)
    assert (type(found), str(found)) == (AWAY, "offsets: no answer in time")


@pytest.mark.parametrize("said", [None, error(KafkaError._TIMED_OUT, "timed out")])
def test_a_complaint_about_a_password_says_why_nothing_came(said: KafkaError | None) -> None:
    found = error_for("offsets", said, error(KafkaError._AUTHENTICATION, "wrong password"))
    assert (type(found), str(found)) == (REFUSED, "offsets: wrong password")


def test_a_complaint_about_a_connection_is_told_where_there_is_nothing_else() -> None:
    complaint = error(KafkaError._TRANSPORT, "connection refused")
    assert str(error_for("offsets", None, complaint)) == "offsets: connection refused"
    assert str(error_for("offsets", error(7, "timed out"), complaint)) == "offsets: timed out"
    assert type(error_for("offsets", error(1, "no such offset"), complaint)) is RANGE
