"""Which processes in the ledger have fallen silent, judged by one observer's own monotonic clock.

No clock is compared with another: an entry whose beat has not moved between two looks that lie further apart than the
lease has lost its owner, because that owner would have stopped sending by itself when its lease ran out. Steps of wall
clocks, of the database server's clock too, change nothing.
"""

from collections.abc import Mapping
from typing import Final

LEASE_SECONDS: Final = 1.0
"""How long a process may use its shares after the beginning of the round in which it got them."""

SILENT_SECONDS: Final = 1.1
"""After this long without a beat an entry is dropped; the difference is for clocks that run at different speeds."""


class Liveness:
    """Remembers when each beat was first seen."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def silent(self, beats: Mapping[str, int], now: float) -> frozenset[str]:
        """Names whose beat has stood still for longer than `SILENT_SECONDS`. An entry seen first is alive."""
        self._seen = {
            name: seen if (seen := self._seen.get(name)) is not None and seen[0] == beat else (beat, now)
            for name, beat in beats.items()
        }
        return frozenset(name for name, (_, since) in self._seen.items() if now - since > SILENT_SECONDS)
