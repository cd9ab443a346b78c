"""The `ByteLimiter` of one stream: waits until all scopes of the stream grant."""

from typing import Final

from include.tiering.quotas.contract import GoOn, QuotaObserver
from include.tiering.quotas.process_pacing import ProcessPacing
from include.tiering.quotas.scopes import Scope

PATIENCE_SECONDS: Final = 0.25
"""How long a wait may last before `go_on` is asked again."""


class ScopedLimiter:
    """Of one kind and topic. For one thread at a time."""

    def __init__(
        self, pacing: ProcessPacing, scopes: tuple[Scope, ...], topic: str, go_on: GoOn, observer: QuotaObserver
    ) -> None:
        self._pacing = pacing
        self._stream = pacing.stream(scopes)
        self._kind = scopes[0].kind
        self._topic = topic
        self._go_on = go_on
        self._observer = observer
        self.waited_seconds = 0.0

    def take(self, wanted_bytes: int) -> int:
        self._go_on()
        if wanted_bytes <= 0:
            return 0
        waited_seconds = 0.0
        while True:
            granted = self._pacing.take(self._stream, wanted_bytes, PATIENCE_SECONDS)
            waited_seconds += granted.waited_seconds
            if granted.size_bytes:
                break
            self._go_on()
        self.waited_seconds += waited_seconds
        self._observer.granted(self._kind, self._topic, granted.size_bytes)
        if waited_seconds > 0:
            self._observer.throttled(self._kind, self._topic, granted.size_bytes, waited_seconds)
        return granted.size_bytes
