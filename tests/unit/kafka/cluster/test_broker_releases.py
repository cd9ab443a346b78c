"""Releases by the levels that brokers of known releases support."""

import pytest

from include.tiering.kafka.cluster.contract import BrokerNode, release_of


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (21, "Kafka 3.9"),
        (30, "Kafka 4.3"),
        (33, "Kafka 4.4"),
        (34, "newer than Kafka 4.4"),
        (25, "Kafka 4.0"),
        (7, "older than Kafka 3.5"),
    ],
)
def test_the_greatest_supported_level_tells_the_minor_release(level: int, words: str) -> None:
    assert release_of(BrokerNode(1, "host", 9092, supported_features={"metadata.version": level})) == words


def test_a_broker_that_tells_no_level_is_unknown() -> None:
    assert release_of(BrokerNode(1, "host", 9092)) == "unknown"
