"""A thread that publishes once a second while there is something to say."""

import threading
import time
from collections.abc import Callable
from typing import Final

PERIOD_SECONDS: Final = 1.0


class Publisher:
    """`publish` returns whether it has to be called again. It is called by one thread at a time, and must not raise."""

    def __init__(self, publish: Callable[[], bool], name: str) -> None:
        self._publish = publish
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """There is something to publish; returns at once. A forked child gets a thread of its own."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def now(self) -> None:
        """Publish in the caller's thread."""
        with self._lock:
            self._publish()

    def _run(self) -> None:
        while True:
            time.sleep(PERIOD_SECONDS)
            with self._lock:
                if not self._publish():
                    self._thread = None
                    return
