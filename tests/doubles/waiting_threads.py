"""Threads that block where a test can see it: nothing sleeps, and time runs out when the test says so."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.doubles.patience import PATIENCE_SECONDS


@dataclass
class Waits:
    """Stands for `Condition.wait`: knows who waits, in the order in which they came."""

    waiting: list[threading.Condition] = field(default_factory=list)
    _expired: set[int] = field(default_factory=set)
    _began: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __call__(self, condition: threading.Condition, timeout: float | None) -> bool:
        self.waiting.append(condition)
        self._began.release()
        condition.wait(PATIENCE_SECONDS)
        self.waiting.remove(condition)
        return id(condition) not in self._expired

    def one_began(self) -> None:
        """Returns when another thread waits; its condition's lock is then free again, or will be at once."""
        assert self._began.acquire(timeout=PATIENCE_SECONDS), "no thread began to wait"

    def expire(self, condition: threading.Condition) -> None:
        """The time of whoever waits for `condition` is over."""
        with condition:
            self._expired.add(id(condition))
            condition.notify()


class Call:
    """One call in a thread of its own, and what came of it."""

    def __init__(self, function: Callable[[], object]) -> None:
        thread = ThreadPoolExecutor(1)
        self._future = thread.submit(function)
        thread.shutdown(wait=False)

    @property
    def ended(self) -> bool:
        return self._future.done()

    def outcome(self) -> object:
        """What the call returned, or raises what it raised."""
        return self._future.result(PATIENCE_SECONDS)
