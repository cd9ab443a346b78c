"""Series: the values of a metric for one set of labels, over all processes, and their minutes of the last 14 days."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from include.tiering.telemetry.metrics import Recorded

KEPT_HOURS: Final = 14 * 24
"""How long minutes are kept, and series of a topic that nothing was recorded for."""

MOST_SERIES: Final = 2_000
"""Most series of one metric."""

OTHER_TOPICS: Final = "<other>"
"""The topic of counters beyond `MOST_SERIES`. No topic of Kafka can have this name."""

TOPIC_LABEL: Final = "topic"


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """A metric's name, and its labels with their values, sorted by name."""

    metric: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """A series: the total of a counter, or the latest value of a gauge, and when it was recorded last."""

    key: SeriesKey
    value: float
    updated_at_ms: int


class SeriesStore(Protocol):
    """Store of one cluster's series. Every process of the platform writes to it."""

    def write(self, recorded: Recorded, *, now_ms: int) -> None:
        """Add what a process recorded, in one transaction. Not idempotent: what it raised for was not written.

        A gauge keeps the value with the latest time, whatever the order in which processes write. Counters of a new
        series beyond `MOST_SERIES` of their metric are added up under `OTHER_TOPICS`; other new series beyond that are
        left out. Minutes older than `KEPT_HOURS` are deleted, and series with a topic that were last recorded before.

        Args:
            recorded: what was recorded since the last call.
            now_ms: UTC milliseconds, by the clock that dated what was recorded.

        Raises:
            MetadataUnavailableError: the database is locked, unreachable, or without the tables.
        """
        ...

    def all(self) -> Sequence[Series]:
        """Return every series, by metric and labels. Raises MetadataUnavailableError."""
        ...

    def minutes(self, metrics: Collection[str], *, since_minute: int) -> Mapping[SeriesKey, Mapping[int, float]]:
        """Return the values of these metrics by series and minute since 1970, from `since_minute` on (inclusive).

        Minutes without a value are left out, and so are series without any. Raises MetadataUnavailableError.
        """
        ...
