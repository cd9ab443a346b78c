"""Start services again that have ended, as an engine of containers does by `restart: unless-stopped`."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from local.cluster.cluster import Cluster
from local.platform import PlatformError

RESTART_AFTER_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 1.0


@dataclass(slots=True)
class Keeper:
    """Keeps the services of a cluster running within a `with` block. `healthy_at` is by the monotonic clock."""

    cluster: Cluster
    say: Callable[[str], None]
    healthy_at: dict[str, float] = field(default_factory=dict)
    failed: PlatformError | None = None
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="keeper")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def wait_for(self, name: str, since: float) -> float:
        """Wait until a service is healthy again after this time; return when. PlatformError: a start failed."""
        while self.failed is None:
            if self.healthy_at.get(name, since) > since:
                return self.healthy_at[name]
            time.sleep(_POLL_SECONDS)
        raise self.failed

    def _run(self) -> None:
        while not self._over.wait(_POLL_SECONDS):
            for name in self.cluster.ended():
                self.say(f"{name} has ended, and is started again")
                if self._over.wait(RESTART_AFTER_SECONDS):
                    return
                try:
                    self.cluster.restart(name)
                except PlatformError as error:
                    self.failed = error
                    return
                self.healthy_at[name] = time.monotonic()
