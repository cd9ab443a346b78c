"""Topic quotas: may this topic bring in another segment now? The contract.

    admit      before a segment is copied: counted as io, and as throttled if it is refused
    accepted   it was copied
    failed     it was not

All meters are shared by all workers of all hosts. Sizes are bytes of the `.log`; records are the offsets that the plan
says the segment spans, end - base + 1, as batches are not counted before admission.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Protocol

from include.tiering.quotas.topic_meters import TopicMeters


@dataclass(frozen=True, slots=True)
class Admission:
    """One segment that may be copied. Not `metered`: topic quotas were off when it asked, so it is not counted."""

    broker_id: int
    topic: str
    size_bytes: int
    records: int
    metered: bool


@dataclass(frozen=True, slots=True)
class TopicUsage:
    """What one topic brings in through one broker, and what it may, in bytes a second.

    `threshold` is None where the broker has no total and the topic none of its own. Not `explicit`: an equal share.
    """

    topic: str
    meters: TopicMeters
    threshold: Fraction | int | None
    explicit: bool


@dataclass(frozen=True, slots=True)
class BrokerUsage:
    """All topics of one broker together, and each of them by name."""

    broker_id: int
    meters: TopicMeters
    threshold: int | None
    topics: tuple[TopicUsage, ...]


@dataclass(frozen=True, slots=True)
class TopicQuotaReport:
    """Meters and thresholds as they are now. `totals` are those set by broker id, "" for the default."""

    enabled: bool = False
    brokers: tuple[BrokerUsage, ...] = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    explicit: Mapping[str, int] = field(default_factory=dict)


class TopicQuotas(Protocol):
    """The admission step of segments."""

    def admit(self, broker_id: int, topic: str, *, size_bytes: int, records: int) -> Admission:
        """Of a topic (by name) whose segment is read from this broker's log dirs. Answer `accepted` or `failed` later.

        Raises:
            QuotaExceededError: the broker's total and the topic both exceed their thresholds: ask again later.
            MetadataUnavailableError
        """
        ...

    def accepted(self, admission: Admission) -> None:
        """It was copied. Raises MetadataUnavailableError."""
        ...

    def failed(self, admission: Admission) -> None:
        """Its copy failed or was stopped. Raises MetadataUnavailableError."""
        ...

    def report(self) -> TopicQuotaReport:
        """Raises MetadataUnavailableError."""
        ...


class NoTopicQuotas:
    """`TopicQuotas` that admit all and count nothing."""

    def admit(self, broker_id: int, topic: str, *, size_bytes: int, records: int) -> Admission:
        return Admission(broker_id, topic, size_bytes, records, metered=False)

    def accepted(self, admission: Admission) -> None:
        return

    def failed(self, admission: Admission) -> None:
        return

    def report(self) -> TopicQuotaReport:
        return TopicQuotaReport()


NO_TOPIC_QUOTAS: Final = NoTopicQuotas()
