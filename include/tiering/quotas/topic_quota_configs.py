"""What topic quotas are now, as whoever admits segments needs it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from include.tiering.quotas.contract import UNLIMITED

_DEFAULT: Final = ""


@dataclass(frozen=True, slots=True)
class TopicQuotaConfigs:
    """`totals` in bytes a second by broker id, "" for the default; `explicit` thresholds by topic."""

    enabled: bool
    totals: Mapping[str, int]
    explicit: Mapping[str, int]

    def total(self, broker_id: int) -> int | None:
        """Of this broker, the default if it has none of its own; None without a limit."""
        found = self.totals.get(str(broker_id), self.totals.get(_DEFAULT))
        return None if found == UNLIMITED else found


class CurrentTopicQuotaConfigs(Protocol):
    """Where the configs of now come from."""

    def current(self) -> TopicQuotaConfigs:
        """Raises MetadataUnavailableError."""
        ...
