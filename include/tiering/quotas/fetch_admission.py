"""Whether a read of remote bytes may begin now, or for how long its reader should not try again (KIP-956).

Admission never blocks a reader: while the rate of any of its scopes is above this process's share of the quota, the
reader gets the throttle time instead of bytes, and tries again. Admitted bytes are recorded at once, before they are
read, so that readers that try at the same time do not all pass. A scope whose share is not known throttles no reader
here; the limiter, which paces the admitted bytes, grants none until the share is known.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final

from include.tiering.clock import Clock
from include.tiering.quotas.contract import Scope
from include.tiering.quotas.window import QuotaWindow

DEFAULT_SAMPLES: Final = 11
DEFAULT_SAMPLE_MS: Final = 1_000

_MANY_SCOPES: Final = 1_000


class FetchAdmission:
    """Admits reads by the windows of one process. Thread-safe.

    `share` returns the bytes a second that this process may move in a scope now: None without a limit, less than 1
    while its share is not known. Each reader gets the largest throttle time of its scopes. A refused read is not
    recorded. So a client above its own quota that tries without pause leaves the wider scopes to others.
    """

    def __init__(
        self,
        share: Callable[[Scope], float | None],
        clock: Clock,
        *,
        samples: int = DEFAULT_SAMPLES,
        sample_ms: int = DEFAULT_SAMPLE_MS,
    ) -> None:
        self._share = share
        self._clock = clock
        self._samples = samples
        self._sample_ms = sample_ms
        self._lock = threading.Lock()
        self._windows: dict[Scope, QuotaWindow] = {}
        self._recorded_at_ms: dict[Scope, int] = {}
        self._drop_idle_above = _MANY_SCOPES

    def throttle_ms(self, scopes: Sequence[Scope]) -> int:
        """Return for how many milliseconds a reader in these scopes should not try again; 0 if it may read now."""
        with self._lock:
            return self._throttle_ms(scopes, self._now_ms())

    def admit(self, scopes: Sequence[Scope], size_bytes: int) -> int:
        """Record `size_bytes` and return 0 if they may be read; else record nothing and return the throttle time."""
        with self._lock:
            now_ms = self._now_ms()
            throttle_ms = self._throttle_ms(scopes, now_ms)
            if throttle_ms == 0:
                self._record(scopes, size_bytes, now_ms)
            return throttle_ms

    def record(self, scopes: Sequence[Scope], size_bytes: int) -> None:
        """Record bytes that are read without admission: the rest of an admitted read."""
        with self._lock:
            self._record(scopes, size_bytes, self._now_ms())

    def _throttle_ms(self, scopes: Sequence[Scope], now_ms: int) -> int:
        return max((self._throttle_of(scope, now_ms) for scope in scopes), default=0)

    def _throttle_of(self, scope: Scope, now_ms: int) -> int:
        share = self._share(scope)
        if share is None or share < 1 or scope not in self._windows:
            return 0
        return self._windows[scope].throttle_ms(int(share), now_ms)

    def _record(self, scopes: Sequence[Scope], size_bytes: int, now_ms: int) -> None:
        self._drop_idle(now_ms)
        for scope in scopes:
            window = self._windows.setdefault(scope, QuotaWindow(self._samples, self._sample_ms))
            window.record(size_bytes, now_ms)
            self._recorded_at_ms[scope] = now_ms

    def _drop_idle(self, now_ms: int) -> None:
        """If there are many windows, drop those whose samples are all over.

        Clients choose their names, so the number of scopes has no bound.
        """
        if len(self._windows) < self._drop_idle_above:
            return
        for scope, recorded_at_ms in list(self._recorded_at_ms.items()):
            if now_ms - recorded_at_ms >= self._samples * self._sample_ms:
                del self._windows[scope], self._recorded_at_ms[scope]
        self._drop_idle_above = max(_MANY_SCOPES, 2 * len(self._windows))

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)
