"""Who copies and expires a topic's remote log segments."""

from enum import StrEnum


class TopicOwner(StrEnum):
    """One owner at a time, so that no segment is copied or expired by two.

    NONE: nobody; PLATFORM: we do; HANDING_OVER: nobody, our leases are drained; BROKER: Kafka does.
    """

    NONE = "none"
    PLATFORM = "platform"
    HANDING_OVER = "handing-over"
    BROKER = "broker"
