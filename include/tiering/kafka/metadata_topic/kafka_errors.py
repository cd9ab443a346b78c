"""What librdkafka's errors mean here. Codes by name; those that begin with `_` are the client's own."""

from typing import Final

from confluent_kafka import KafkaError

from include.tiering.errors import (
    MetadataTopicError,
    MetadataTopicRangeError,
    MetadataTopicRefusedError,
    MetadataTopicUnavailableError,
)

END_OF_PARTITION: Final = "_PARTITION_EOF"
UNKNOWN_PARTITION: Final = "_UNKNOWN_PARTITION"
LOGIN: Final = frozenset({"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"})
_REFUSALS: Final = LOGIN | {
    "CLUSTER_AUTHORIZATION_FAILED",
    "INVALID_RECORD",
    "MSG_SIZE_TOO_LARGE",
    "POLICY_VIOLATION",
    "TOPIC_AUTHORIZATION_FAILED",
    "TOPIC_EXCEPTION",
    "UNKNOWN_TOPIC_OR_PART",
    "_INVALID_ARG",
    "_UNKNOWN_TOPIC",
    UNKNOWN_PARTITION,
}
_OUT_OF_RANGE: Final = frozenset({"OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"})


def error_for(what: str, error: KafkaError | None, complaint: KafkaError | None = None) -> MetadataTopicError:
    """The error to raise for `what`, which failed by `error`, or without an answer.

    `complaint` is what the client last said of its connections: a wrong password shows in that alone.
    """
    for said in (error, complaint):
        if said is not None and said.name() in _REFUSALS:
            return MetadataTopicRefusedError(f"{what}: {said.str()}")
    if error is not None and error.name() in _OUT_OF_RANGE:
        return MetadataTopicRangeError(f"{what}: {error.str()}")
    said = error or complaint
    return MetadataTopicUnavailableError(f"{what}: {'no answer in time' if said is None else said.str()}")
