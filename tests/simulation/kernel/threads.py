"""What the product knows as `threading`, over tasks of the simulation: threads, events, locks, conditions.

Tasks switch at scheduling points alone, so nothing needs protection between them; what a lock must still do is keep
another task of the same process out while its holder waits at such a point.
"""

from collections.abc import Callable, Iterable
from typing import Any

from tests.simulation.kernel.scheduler import Scheduler, Task


class SimulatedThreading:
    """Stands in for the module `threading`."""

    def __init__(self, current: Callable[[], Scheduler]) -> None:
        self._current = current

    def Thread(  # noqa: N802
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> "SimulatedThread":
        assert target is not None
        return SimulatedThread(self._current(), lambda: target(*args, **(kwargs or {})), name or "thread")

    def Event(self) -> "_Event":  # noqa: N802
        return _Event(self._current())

    def Lock(self) -> "_Lock":  # noqa: N802
        return _Lock(self._current())

    RLock = Lock

    def Condition(self, lock: "_Lock | None" = None) -> "_Condition":  # noqa: N802
        return _Condition(self._current(), lock)

    def current_thread(self) -> object:
        return self._current().current

    def get_ident(self) -> int:
        return id(self._current().current)


class SimulatedThread:
    daemon = True

    def __init__(self, scheduler: Scheduler, target: Callable[[], object], name: str) -> None:
        self._scheduler = scheduler
        self._target = target
        self.name = name
        self._task: Task | None = None

    def start(self) -> None:
        process = self._scheduler.current_process()
        self._task = self._scheduler.spawn(process, self.name, self._target)

    def join(self, timeout: float | None = None) -> None:
        task = self._task
        if task is not None:
            self._scheduler.block(lambda: task.done, timeout)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done


class _Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._scheduler.block(lambda: self._is_set, timeout)
        return self._is_set


class _Lock:
    """Reentrant by task."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: object = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = self._scheduler.current
        if self._owner is not None and self._owner is not me:
            if not blocking:
                return False
            self._scheduler.block(lambda: self._owner is None, timeout if timeout >= 0 else None)
            if self._owner is not None:
                return False
        self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None

    def give_up(self) -> int:
        """For a while; returns how often it was held."""
        depth, self._depth, self._owner = self._depth, 0, None
        return depth

    def take_back(self, depth: int) -> None:
        if self._owner is not None:
            self._scheduler.block(lambda: self._owner is None, None)
        self._owner, self._depth = self._scheduler.current, depth

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        if self._owner is self._scheduler.current:
            self.release()


class _Condition:
    """Over a lock of its own, or over one that it shares."""

    def __init__(self, scheduler: Scheduler, lock: _Lock | None) -> None:
        self._scheduler = scheduler
        self._lock = lock if lock is not None else _Lock(scheduler)
        self._waiters: list[list[bool]] = []

    def acquire(self) -> bool:
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)

    def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> bool:
        if predicate():
            return True
        held = self._lock.give_up()
        try:
            self._scheduler.block(lambda: bool(predicate()), timeout)
        finally:
            self._lock.take_back(held)
        return bool(predicate())

    def wait(self, timeout: float | None = None) -> bool:
        woken: list[bool] = []
        self._waiters.append(woken)
        return self.wait_for(lambda: woken, timeout)

    def notify(self, n: int = 1) -> None:
        for woken in self._waiters[:n]:
            woken.append(True)
        del self._waiters[:n]

    def notify_all(self) -> None:
        self.notify(len(self._waiters))
