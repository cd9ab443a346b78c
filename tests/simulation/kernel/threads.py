"""What the product knows as `threading`, over tasks of the simulation: threads, events, locks, conditions, futures.

Put in place of the module in those modules of the product that start threads (`simulated_runtime`). Tasks switch at
scheduling points alone, so nothing needs protection between them; what a lock must still do is keep another task of the
same process out while its holder waits at such a point.
"""

import concurrent.futures
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

from include.tiering.database import clock as database_clock
from include.tiering.quota.byte_bounded_queue import ByteBoundedQueue
from tests.simulation.kernel.scheduler import Killed, Scheduler, Task


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
    ) -> "_Thread":
        assert target is not None
        return _Thread(self._current(), lambda: target(*args, **(kwargs or {})), name or "thread")

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


class _Thread:
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


class SimulatedFuture:
    """What the product knows as `concurrent.futures.Future`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_done = False
        self._result: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: Any) -> None:
        self._result, self._is_done = result, True

    def set_exception(self, error: BaseException) -> None:
        self._error, self._is_done = error, True

    def result(self, timeout: float | None = None) -> Any:
        self._wait(timeout)
        if self._error is not None:
            raise self._error
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return self._error

    def __enter__(self) -> None:
        """What is called within fills it, by an error too; a process that is killed fills nothing any more."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is None or isinstance(error, Killed):
            return False
        self.set_exception(error)
        return True

    def _wait(self, timeout: float | None) -> None:
        if not self._is_done:
            self._scheduler.block(self.done, timeout)


class SimulatedExecutor:
    """What the product knows as `concurrent.futures.ThreadPoolExecutor`."""

    def __init__(self, scheduler: Scheduler, max_workers: int, name: str) -> None:
        self._scheduler = scheduler
        self._threads = [_Thread(scheduler, self._work, name) for _ in range(max_workers)]
        self._jobs: list[tuple[SimulatedFuture, Callable[[], Any]]] = []
        self._is_closed = False
        self._is_started = False

    def submit(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> SimulatedFuture:
        future = SimulatedFuture(self._scheduler)
        self._jobs.append((future, lambda: call(*args, **kwargs)))
        if not self._is_started:
            self._is_started = True
            for thread in self._threads:
                thread.start()
        return future

    def __enter__(self) -> "SimulatedExecutor":
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            self._scheduler.block(lambda: bool(self._jobs) or self._is_closed, None)
            if not self._jobs:
                return
            future, call = self._jobs.pop(0)
            with future:
                future.set_result(call())


_PACKAGE: Final = "include.tiering."
_WITH_THREADS: Final = (
    "tasks.batch_heartbeat",
    "tasks.send_gate",
    "tasks.copy_segments",
    "tasks.delete_batch",
    "quota.byte_bounded_queue",
)


@contextmanager
def simulated_runtime(current: Callable[[], Scheduler]) -> Iterator[None]:
    """Threads, futures and the database's clock of the product are those of the current schedule."""
    for name in _WITH_THREADS:
        importlib.import_module(_PACKAGE + name)
    doubles: dict[str, tuple[object, object]] = {
        "threading": (threading, SimulatedThreading(current)),
        "Future": (concurrent.futures.Future, lambda: SimulatedFuture(current())),
        "ThreadPoolExecutor": (
            concurrent.futures.ThreadPoolExecutor,
            lambda max_workers, name="": SimulatedExecutor(current(), max_workers, name),
        ),
        "wait": (concurrent.futures.wait, lambda futures: [future.exception() for future in futures]),
    }
    places: list[tuple[Any, str, object]] = []
    for name, module in sorted(sys.modules.items()):
        if name.startswith(_PACKAGE + "tasks.") or name == _PACKAGE + "quota.byte_bounded_queue":
            for attribute, (real, double) in doubles.items():
                if getattr(module, attribute, None) is real:
                    places.append((module, attribute, real))
                    setattr(module, attribute, double)
    defaults: dict[str, Any] = ByteBoundedQueue.__init__.__kwdefaults__ or {}
    real_wait = defaults["wait"]
    defaults["wait"] = lambda condition, timeout: condition.wait(timeout)
    places.append((database_clock, "time", time))
    database_clock.time = SimpleNamespace(time_ns=lambda: current().now_ms * 1_000_000)  # type: ignore[assignment]
    try:
        yield
    finally:
        for module, attribute, real in places:
            setattr(module, attribute, real)
        defaults["wait"] = real_wait
