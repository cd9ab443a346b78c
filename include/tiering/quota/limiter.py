"""The `ByteLimiter` of one stream: waits until all scopes of the stream grant."""

from collections.abc import Sequence
from typing import Final

from include.tiering.clock import Clock
from include.tiering.quota.contract import GoOn
from include.tiering.quota.process_pacing import ProcessPacing
from include.tiering.quota.scopes import Scope

PATIENCE_SECONDS: Final = 0.25
"""How long a wait may last before `go_on` is asked again."""


class ScopedLimiter:
    """For one thread at a time. `waited_seconds` is the sum of all waits."""

    def __init__(self, pacing: ProcessPacing, scopes: Sequence[Scope], go_on: GoOn, clock: Clock) -> None:
        self._pacing = pacing
        self._scopes = tuple(scopes)
        self._go_on = go_on
        self._clock = clock
        self.waited_seconds = 0.0

    def take(self, wanted_bytes: int) -> int:
        self._go_on()
        if wanted_bytes <= 0:
            return 0
        began = self._clock.monotonic()
        while not (granted_bytes := self._pacing.take(self._scopes, wanted_bytes, PATIENCE_SECONDS)):
            self._go_on()
        self.waited_seconds += self._clock.monotonic() - began
        return granted_bytes
