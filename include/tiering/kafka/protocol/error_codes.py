"""What brokers' error codes mean to who asked. Source: Kafka's protocol guide."""

from typing import Final

from include.tiering.errors import (
    BrokersError,
    BrokersForbiddenError,
    BrokersLoginError,
    BrokersRefusedError,
    BrokersUnavailableError,
    UnknownTopicError,
    printable,
)

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
UNKNOWN_TOPIC_ID: Final = 100

_MEANINGS: Final[dict[int, tuple[str, type[BrokersError]]]] = {
    -1: ("unknown server error", BrokersRefusedError),
    UNKNOWN_TOPIC_OR_PARTITION: ("unknown topic or partition", UnknownTopicError),
    5: ("no leader just now", BrokersUnavailableError),
    6: ("not the leader any more", BrokersUnavailableError),
    7: ("timed out on the broker's side", BrokersUnavailableError),
    8: ("broker not available", BrokersUnavailableError),
    9: ("replica not available", BrokersUnavailableError),
    13: ("disconnected on the broker's side", BrokersUnavailableError),
    14: ("coordinator is loading", BrokersUnavailableError),
    15: ("coordinator not available", BrokersUnavailableError),
    16: ("not the coordinator any more", BrokersUnavailableError),
    17: ("invalid topic name", BrokersRefusedError),
    29: ("not authorised for this topic", BrokersForbiddenError),
    31: ("not authorised for the cluster", BrokersForbiddenError),
    33: ("SASL mechanism not enabled there", BrokersLoginError),
    34: ("SASL state", BrokersLoginError),
    35: ("the broker is too old, or too new, for this request", BrokersRefusedError),
    40: ("invalid config", BrokersRefusedError),
    41: ("not the controller any more", BrokersUnavailableError),
    42: ("invalid request", BrokersRefusedError),
    44: ("refused by a policy of the cluster", BrokersRefusedError),
    53: ("not authorised for this transactional id", BrokersForbiddenError),
    56: ("the broker cannot use its disk", BrokersUnavailableError),
    58: ("login failed", BrokersLoginError),
    74: ("the leader has changed", BrokersUnavailableError),
    75: ("the leader is changing", BrokersUnavailableError),
    78: ("the new leader does not know its high watermark yet", BrokersUnavailableError),
    89: ("quota of requests used up", BrokersUnavailableError),
    UNKNOWN_TOPIC_ID: ("unknown topic id", UnknownTopicError),
    103: ("the topic was re-created", UnknownTopicError),
}


def refusal(code: int, what: str, message: str | None = None) -> BrokersError:
    """The error for a code other than 0: what was asked from whom, and the broker's own words where it has some."""
    words, kind = _MEANINGS.get(code, (f"error {code} of Kafka's protocol", BrokersRefusedError))
    return kind(f"{what}: {words}" + (f" ({printable(message)})" if message else ""))
