"""Who began a remote log segment."""

from enum import StrEnum


class SegmentOrigin(StrEnum):
    """It never changes: what a broker began is the broker's to delete, whoever owns the topic later."""

    PLATFORM = "platform"
    BROKER = "broker"
