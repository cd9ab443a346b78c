"""Codes of errors compared with Kafka's own list, which this project's table has no part in.

`tests/data/kafka_error_codes.tsv` is what `org.apache.kafka.common.protocol.Errors` of Kafka 4.4.0 holds.
"""

from typing import Final, NamedTuple

import pytest

from include.tiering.errors import (
    BrokersError,
    BrokersForbiddenError,
    BrokersLoginError,
    BrokersRefusedError,
    BrokersUnavailableError,
    UnknownTopicError,
)
from include.tiering.kafka.protocol.messages import UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, refusal
from tests.doubles.source_tree import ROOT


class KafkaCode(NamedTuple):
    code: int
    name: str
    is_retriable: bool


def _kafkas_list() -> list[KafkaCode]:
    lines = (ROOT / "tests" / "data" / "kafka_error_codes.tsv").read_text().splitlines()
    rows = (line.split("\t") for line in lines)
    return [KafkaCode(int(code), name, retriable == "true") for code, name, retriable in rows]


KAFKAS: Final = {one.name: one for one in _kafkas_list() if one.name != "NONE"}
KINDS: Final[dict[str, type[BrokersError]]] = {
    "UNKNOWN_SERVER_ERROR": BrokersRefusedError,
    "UNKNOWN_TOPIC_OR_PARTITION": UnknownTopicError,
    "LEADER_NOT_AVAILABLE": BrokersUnavailableError,
    "NOT_LEADER_OR_FOLLOWER": BrokersUnavailableError,
    "REQUEST_TIMED_OUT": BrokersUnavailableError,
    "BROKER_NOT_AVAILABLE": BrokersUnavailableError,
    "REPLICA_NOT_AVAILABLE": BrokersUnavailableError,
    "NETWORK_EXCEPTION": BrokersUnavailableError,
    "COORDINATOR_LOAD_IN_PROGRESS": BrokersUnavailableError,
    "COORDINATOR_NOT_AVAILABLE": BrokersUnavailableError,
    "NOT_COORDINATOR": BrokersUnavailableError,
    "INVALID_TOPIC_EXCEPTION": BrokersRefusedError,
    "TOPIC_AUTHORIZATION_FAILED": BrokersForbiddenError,
    "CLUSTER_AUTHORIZATION_FAILED": BrokersForbiddenError,
    "UNSUPPORTED_SASL_MECHANISM": BrokersLoginError,
    "ILLEGAL_SASL_STATE": BrokersLoginError,
    "UNSUPPORTED_VERSION": BrokersRefusedError,
    "INVALID_CONFIG": BrokersRefusedError,
    "NOT_CONTROLLER": BrokersUnavailableError,
    "INVALID_REQUEST": BrokersRefusedError,
    "POLICY_VIOLATION": BrokersRefusedError,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": BrokersForbiddenError,
    "KAFKA_STORAGE_ERROR": BrokersUnavailableError,
    "SASL_AUTHENTICATION_FAILED": BrokersLoginError,
    "FENCED_LEADER_EPOCH": BrokersUnavailableError,
    "UNKNOWN_LEADER_EPOCH": BrokersUnavailableError,
    "OFFSET_NOT_AVAILABLE": BrokersUnavailableError,
    "THROTTLING_QUOTA_EXCEEDED": BrokersUnavailableError,
    "UNKNOWN_TOPIC_ID": UnknownTopicError,
    "INCONSISTENT_TOPIC_ID": UnknownTopicError,
}
"""What is more than refused, or has words of its own here; every other code is a refusal by its number."""


@pytest.mark.parametrize("kafkas", KAFKAS.values(), ids=lambda one: one.name)
def test_each_code_of_kafka_means_here_what_it_means_there(kafkas: KafkaCode) -> None:
    found = refusal(kafkas.code, "orders-0")
    assert type(found) is KINDS.get(kafkas.name, BrokersRefusedError)
    by_number = f"orders-0: error {kafkas.code} of Kafka's protocol"
    assert (str(found) == by_number) is (kafkas.name not in KINDS)


def test_codes_with_a_name_here_are_kafkas() -> None:
    assert KAFKAS["UNKNOWN_TOPIC_OR_PARTITION"].code == UNKNOWN_TOPIC_OR_PARTITION
    assert KAFKAS["UNKNOWN_TOPIC_ID"].code == UNKNOWN_TOPIC_ID


def test_what_is_tried_again_here_kafkas_clients_try_again() -> None:
    """But for a broker that is gone, which Kafka's clients learn of otherwise."""
    again = {one.name for one in KAFKAS.values() if refusal(one.code, "").retriable}
    assert again == {name for name, kind in KINDS.items() if kind is BrokersUnavailableError}
    assert {name for name in again if not KAFKAS[name].is_retriable} == {"BROKER_NOT_AVAILABLE"}


def test_a_code_that_kafka_does_not_have_yet_is_refused_by_its_number() -> None:
    newest = max(one.code for one in KAFKAS.values())
    assert (type(refusal(newest + 1, "x")), str(refusal(newest + 1, "x"))) == (
        BrokersRefusedError,
        f"x: error {newest + 1} of Kafka's protocol",
    )


def test_the_brokers_own_words_are_added_without_what_a_terminal_would_obey() -> None:
    assert str(refusal(44, "orders", "no \x1b[2J")) == r"orders: refused by a policy of the cluster (no \x1b[2J)"
    assert str(refusal(44, "orders", "")) == "orders: refused by a policy of the cluster"
