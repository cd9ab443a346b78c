"""How long, and how much of, a platform topic is kept: our own configs of the topic, not the brokers'."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
KEPT_FOR_EVER: Final = -1


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """Limits of each partition of a topic, 0 and above; None keeps for ever."""

    retention_ms: int | None = None
    retention_bytes: int | None = None

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> "TopicRetention":
        """From what is set on the topic, by name, as it is stored. There is no default of all topics."""
        return cls(_limit(configs.get(RETENTION_MS)), _limit(configs.get(RETENTION_BYTES)))


FOR_EVER: Final = TopicRetention()


def _limit(stored: str | None) -> int | None:
    limit = KEPT_FOR_EVER if stored is None else int(stored)
    return None if limit == KEPT_FOR_EVER else limit
