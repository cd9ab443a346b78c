"""Read from a store with several requests at the same time, for callers that need the results in order.

A store is tens of milliseconds away, and gives one connection a bounded rate: a process that waits for each response
uses little of both. Two kinds of work go side by side:

    segments    each is read as if it were alone, so they cost no further request, and about 4 MiB of memory each
    ranges      of one log. They cost a request for each `RANGE_BYTES`, and the bytes that arrived are held until those
                before them were taken. So logs are read in ranges only while at most `MOST_RANGES` / 2 segments are
                read at the same time, and these hold at most `MOST_RANGES` x `RANGE_BYTES` (64 MiB) in all

`blocks_in_order` reads small logs and ranges of large ones side by side, within a bound of bytes: so no pause is
between two logs.

Every byte is charged to the fetch quota before it is read, as in a sequential read. Bytes arrive in order, and an error
is raised where a sequential read would raise it: behind all bytes, or all results, before it. Then no further read
begins. Those under way end at their next grant, within one block, and nobody waits for them: the store may not answer.

More reads help only until something else is the limit. So one begins, their number doubles at most once in
`WINDOW_SECONDS`, and none begins while

    the process uses `clock.BUSY_CORES`        Python code runs in one thread at a time: others only cost CPU
    `ENOUGH_WAITING` reads wait for a quota    they use it up; and the store sends into the buffers of each further
                                               connection before these bytes are charged
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from queue import SimpleQueue
from typing import Final, Protocol, TypeVar

from include.tiering.clock import WINDOW_SECONDS, CoreUse, SystemClock
from include.tiering.errors import SendingStoppedError
from include.tiering.quotas.contract import ByteLimiter, GoOn, Scope, keep_on
from include.tiering.units import MIB

RANGE_BYTES: Final = 16 * MIB
MOST_RANGES: Final = 4
ENOUGH_WAITING: Final = 2
_QUOTA_SECONDS: Final = 0.05


@dataclass(slots=True, eq=False)
class Reading:
    """What a task must know about its read (`go_on`, `ranges`), and what it reports about it (`limiter`).

    Attributes:
        go_on: raises SendingStoppedError when the result is no longer wanted.
        ranges: how many ranges of a log the task may read at the same time.
        limiter: set by the task: the limiter to which its bytes are charged.
    """

    go_on: GoOn = keep_on
    ranges: int = 1
    limiter: ByteLimiter | None = None

    @property
    def waits_for_quota(self) -> bool:
        return self.limiter is not None and self.limiter.waits_for is not None


_T = TypeVar("_T")
Task = Callable[[Reading], _T]
"""Something to do in a thread."""


class ReadRange(Protocol):
    """`ObjectStore.read`: reads bytes `first` to `last` (both inclusive) of an object, in blocks."""

    def __call__(self, key: str, first: int, last: int, *, limiter: ByteLimiter) -> Iterator[bytes]: ...


def ranges_of_each(logs: int) -> int:
    """Return how many ranges of each log may be read at the same time, if `logs` logs are read at the same time."""
    return max(1, MOST_RANGES // max(1, logs))


def plan_ranges(first: int, last: int, at_once: int) -> tuple[tuple[int, int], ...]:
    """Split bytes `first` to `last` (both inclusive) into ranges of about equal size, none above `RANGE_BYTES`.

    One range is the result if `at_once`, the number of ranges that may be read at the same time, is 1.
    """
    return divided(first, last, 1 if at_once <= 1 else max(1, -(-(last + 1 - first) // RANGE_BYTES)))


def divided(first: int, last: int, count: int) -> tuple[tuple[int, int], ...]:
    """Split bytes `first` to `last` (both inclusive) into `count` ranges of about equal size."""
    size_bytes = last + 1 - first
    bounds = [first + number * size_bytes // count for number in range(count + 1)]
    return tuple((bounds[number], bounds[number + 1] - 1) for number in range(count))


def read_ranges(
    read: ReadRange, key: str, first: int, last: int, *, limiter: ByteLimiter, at_once: int
) -> Iterator[bytes]:
    """Yield bytes `first` to `last` (both inclusive) in order, from up to `at_once` ranges that are read together.

    Raises:
        TieringError: what `read` raised, behind the bytes that it yielded before.
    """
    planned = plan_ranges(first, last, at_once)
    if len(planned) == 1:
        yield from read(key, first, last, limiter=limiter)
        return
    one_at_a_time = threading.Lock()

    def blocks(begin: int, end: int, reading: Reading) -> Iterator[bytes]:
        reading.limiter = _SharedLimiter(limiter, one_at_a_time, reading.go_on)
        return read(key, begin, end, limiter=reading.limiter)

    reads = [(end + 1 - begin, partial(blocks, begin, end)) for begin, end in planned]
    most_bytes = at_once * max(size_bytes for size_bytes, _ in reads)
    with closing(blocks_in_order(reads, at_once=at_once, most_bytes=most_bytes)) as found:
        yield from chain.from_iterable(found)


class _SharedLimiter:
    """Gives the grants of one limiter to several threads, one after another: a limiter is for one thread at a time."""

    def __init__(self, limiter: ByteLimiter, lock: threading.Lock, go_on: GoOn) -> None:
        self._limiter = limiter
        self._lock = lock
        self._go_on = go_on

    @property
    def waited_seconds(self) -> float:
        return self._limiter.waited_seconds

    @property
    def waits_for(self) -> Scope | None:
        return self._limiter.waits_for

    def take(self, wanted_bytes: int) -> int:
        with self._lock:
            self._go_on()
            return self._limiter.take(wanted_bytes)


def in_order(tasks: Sequence[Task[_T]], *, at_once: int, ahead: int) -> Iterator[_T]:
    """Run tasks in up to `at_once` threads, and yield their results in the order of the tasks.

    At most `ahead` tasks are begun or queued whose results were not taken yet. After a task has failed, no later task
    begins, and its error is raised in the place of its result. With `at_once` 1, or a single task, all run in the
    caller's thread.
    """
    most = min(at_once, len(tasks))
    ranges = min(at_once, ranges_of_each(most))
    if most <= 1:
        for task in tasks:
            yield task(Reading(ranges=ranges))
        return
    with closing(_begun([(1, task) for task in tasks], most, lambda *_: ahead, ranges)) as begun:
        for each in begun:
            yield each.result()


Blocks = Callable[[Reading], Iterator[bytes]]
"""Reads some bytes, in any thread."""


def blocks_in_order(
    reads: Sequence[tuple[int, Blocks]], *, at_once: int, most_bytes: int
) -> Generator[Iterator[bytes], None, None]:
    """Read in up to `at_once` threads; yield the blocks of each read, as they arrive, in the order of the reads.

    The caller takes all blocks of a read before it asks for the next one. Each read comes with the number of its bytes.
    The read whose blocks are taken, and those after it that have begun or wait for a thread, have at most `most_bytes`
    together, or it is the only one. At first they are up to `MOST_RANGES` reads. Later they have at most twice the
    bytes that were taken: so for a caller that takes little, little more is read, and what is read ahead doubles up to
    its bound.

    After a read has failed no later one begins, and its error is raised behind its blocks. With `at_once` 1 all is read
    in the caller's thread.
    """
    most = min(at_once, len(reads))
    if most <= 1:
        for _, read in reads:
            yield read(Reading())
        return

    def may_hold(size_bytes: int, taken_bytes: int) -> int:
        return min(most_bytes, max(MOST_RANGES * size_bytes, 2 * taken_bytes))

    arriving = [(size_bytes, _Arriving(read)) for size_bytes, read in reads]
    with closing(_begun([(size_bytes, each.read) for size_bytes, each in arriving], most, may_hold, 1)) as begun:
        for (_, each), _future in zip(arriving, begun, strict=True):
            yield each.blocks()


class _Arriving:
    """Blocks that one thread reads, and another one takes."""

    def __init__(self, read: Blocks) -> None:
        self._read = read
        self._queue: SimpleQueue[bytes | BaseException | None] = SimpleQueue()

    def read(self, reading: Reading) -> None:
        """Read all blocks; if that fails, the other thread learns it behind them."""
        try:
            for block in self._read(reading):
                self._queue.put(block)
        except BaseException as error:
            self._queue.put(error)
            raise
        self._queue.put(None)

    def blocks(self) -> Iterator[bytes]:
        while (found := self._queue.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found


def _begun(
    tasks: Sequence[tuple[int, Task[_T]]], at_once: int, may_hold: Callable[[int, int], int], ranges: int
) -> Generator[Future[_T], None, None]:
    """Run the tasks, and yield them in order.

    Args:
        tasks: each with the weight of its result, which counts until the next task is asked for.
        at_once: how many threads there are at most.
        may_hold: returns which weight may be held with a task that is to begin, from its own weight, and that of all
            results that were taken, and of the next one.
        ranges: of each log.
    """
    weights: deque[int] = deque()
    pending: deque[Future[_T]] = deque()
    taken = 0
    with _Threads(at_once, ranges) as threads:
        for weight, task in tasks:
            while pending and sum(weights) + weight > may_hold(weight, taken + weights[0]):
                yield pending.popleft()
                taken += weights.popleft()
            weights.append(weight)
            pending.append(threads.submit(task))
        while pending:
            yield pending.popleft()


class _Threads:
    """Threads that are never joined. At exit the interpreter would join those of a ThreadPoolExecutor, and hang."""

    def __init__(self, most: int, ranges: int) -> None:
        self._most = most
        self._ranges = ranges
        self._started = 0
        self._growing = threading.Lock()
        self._core_use = CoreUse(SystemClock())
        self._working = 1
        self._may_begin = 0
        self._unfinished = 0
        self._running: list[Reading] = []
        self._queue: SimpleQueue[Callable[[], bool] | None] = SimpleQueue()
        self._ended = threading.Event()
        self._failed = threading.Event()

    def __enter__(self) -> "_Threads":
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for _each in range(self._started):
            self._queue.put(None)

    def submit(self, task: Task[_T]) -> Future[_T]:
        """Let a thread run the task as soon as one is free; tasks begin in order.

        No thread begins without a task for it: each keeps some memory of its own.
        """
        future: Future[_T] = Future()
        with self._growing:
            self._unfinished += 1
            wanted = min(self._most, self._unfinished)
        self._queue.put(partial(self._run, task, future))
        if self._started < wanted:
            waits = self._started > 0
            threading.Thread(target=self._work, args=(waits,), name=f"read-{self._started}", daemon=True).start()
            self._started += 1
        return future

    def _work(self, waits: bool) -> None:
        while waits and not self._ended.wait(WINDOW_SECONDS) and not self._may_grow():
            """Another thread is not of use yet."""
        # A task that was taken from the queue is run in any case: it may precede the one that has failed meanwhile.
        while not self._failed.is_set() and (run := self._queue.get()) is not None and not self._ended.is_set():
            if not run():
                self._failed.set()

    def _may_grow(self) -> bool:
        """Return whether one more thread may begin: after each window as many as work already, if that is of use."""
        with self._growing:
            is_free = self._core_use.is_free()
            if is_free is not None:
                self._may_begin = self._working if is_free else 0
            if not self._may_begin:
                return False
            self._may_begin -= 1
            self._working += 1
            return True

    def _run(self, task: Task[_T], future: Future[_T]) -> bool:
        """Run one task; return whether it succeeded. Nobody waits for one that does not begin any more."""
        while sum(each.waits_for_quota for each in list(self._running)) >= ENOUGH_WAITING and not self._ended.is_set():
            self._ended.wait(_QUOTA_SECONDS)
        if self._ended.is_set():
            return False
        reading = Reading(self._go_on, self._ranges)
        self._running.append(reading)
        try:
            result = task(reading)
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            future.set_exception(error)
            return False
        finally:
            self._running.remove(reading)
            with self._growing:
                self._unfinished -= 1
        future.set_result(result)
        return True

    def _go_on(self) -> None:
        if self._ended.is_set():
            raise SendingStoppedError("the result of this read is no longer wanted")
