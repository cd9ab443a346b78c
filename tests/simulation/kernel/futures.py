"""What the product knows as `concurrent.futures`, over tasks of the simulation."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.simulation.kernel.scheduler import Killed, Scheduler
from tests.simulation.kernel.threads import SimulatedThread


class SimulatedFuture:
    """What the product knows as `concurrent.futures.Future`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_done = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[SimulatedFuture], object]] = []

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: Any) -> None:
        self._result, self._is_done = result, True
        self._tell()

    def set_exception(self, error: BaseException) -> None:
        self._error, self._is_done = error, True
        self._tell()

    def add_done_callback(self, call: Callable[["SimulatedFuture"], object]) -> None:
        self._callbacks.append(call)
        if self._is_done:
            self._tell()

    def _tell(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for call in callbacks:
            call(self)

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
        self._threads = [SimulatedThread(scheduler, self._work, name) for _ in range(max_workers)]
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

    def map(self, call: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        futures = [self.submit(call, item) for item in items]
        return (future.result() for future in futures)

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
