"""A queue bounded by requests and by bytes (KIP-72's `queued.max.bytes` beside `queued.max.requests`).

Each item weighs the bytes that it will hold in memory. Its weight counts from `put` until the consumer is `done` with
it, so the byte bound holds memory and not just waiting: releasing the weight in `get` would leave what the consumers
hold uncounted. An item of any weight enters while less than `max_bytes` is held, so that

    held bytes  <=  max_bytes - 1 + the largest weight

and an item heavier than the whole bound still passes. Requests count while they wait; those being served are as many
as there are consumers.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Generic, TypeVar

from include.tiering.errors import QueueClosedError, QueueEmptyError, QueueFullError

NO_BYTE_BOUND: Final = -1

T = TypeVar("T")
Wait = Callable[[threading.Condition, float | None], bool]
"""Waits for the condition, at most so many seconds; False if the time was over first."""


class Taken(Generic[T]):
    """An item in the hands of its consumer. Its weight counts until `done`, or the end of its `with` block."""

    __slots__ = ("_queue", "item", "weight_bytes")

    def __init__(self, item: T, weight_bytes: int, queue: "ByteBoundedQueue[T]") -> None:
        self.item = item
        self.weight_bytes = weight_bytes
        self._queue: ByteBoundedQueue[T] | None = queue

    def done(self) -> None:
        """Give the weight back; harmless the second time."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.release(self.weight_bytes)

    def __enter__(self) -> T:
        return self.item

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.done()


class _Putter(Generic[T]):
    """A thread that waits to enter; whoever makes room puts its item in for it."""

    __slots__ = ("admitted", "entry", "condition")

    def __init__(self, entry: Taken[T], condition: threading.Condition) -> None:
        self.entry = entry
        self.condition = condition
        self.admitted = False


class ByteBoundedQueue(Generic[T]):
    """First in, first out, for any number of threads.

    Those who wait to put enter in the order in which they came, whatever their weights: one who comes later finds
    room only when nobody waits. `wait` is how threads wait, for tests.
    """

    def __init__(
        self, max_requests: int, max_bytes: int = NO_BYTE_BOUND, *, wait: Wait = threading.Condition.wait
    ) -> None:
        """Raises ValueError unless `max_requests` is at least 1, and `max_bytes` at least 1 or NO_BYTE_BOUND."""
        if max_requests < 1 or (max_bytes < 1 and max_bytes != NO_BYTE_BOUND):
            raise ValueError(f"a queue of {max_requests} requests and {max_bytes} bytes lets nothing in")
        self._max_requests = max_requests
        self._max_bytes = float("inf") if max_bytes == NO_BYTE_BOUND else max_bytes
        self._wait = wait
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._items: deque[Taken[T]] = deque()
        self._putters: deque[_Putter[T]] = deque()
        self._held_bytes = 0
        self._getters = 0
        self._closed = False

    @property
    def held_bytes(self) -> int:
        """Weights of what waits and of what consumers are not done with."""
        return self._held_bytes

    def __len__(self) -> int:
        """Items that wait for a consumer."""
        return len(self._items)

    def put(self, item: T, weight_bytes: int, timeout: float | None = None) -> None:
        """Append, once there is room; waits for at most `timeout` seconds, None = as long as it takes.

        Raises:
            ValueError: a negative weight.
            QueueFullError: no room in this time.
            QueueClosedError: the queue was closed before there was room.
        """
        if weight_bytes < 0:
            raise ValueError(f"an item cannot weigh {weight_bytes} bytes")
        entry = Taken(item, weight_bytes, self)
        with self._lock:
            if self._closed:
                raise QueueClosedError("the queue was closed")
            if self._has_space():
                self._admit(entry)
            elif (timeout is not None and timeout <= 0) or not self._is_admitted_in_order(entry, timeout):
                raise QueueFullError(
                    f"{weight_bytes} bytes found no room behind {len(self._items)} requests, {self._held_bytes} bytes"
                )

    def get(self, timeout: float | None = None) -> Taken[T]:
        """The oldest item, once there is one; waits for at most `timeout` seconds, None = as long as it takes.

        Raises:
            QueueEmptyError: nothing came in this time.
            QueueClosedError: closed, and everything was taken.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while not self._items:
                self._wait_for_item(deadline)
            taken = self._items.popleft()
            if self._putters:
                self._admit_waiting()
        return taken

    def close(self) -> None:
        """Take nothing more; what is here may still be taken. Wakes everybody."""
        with self._lock:
            self._closed = True
            for putter in self._putters:
                putter.condition.notify()
            self._putters.clear()
            self._arrived.notify_all()

    def release(self, weight_bytes: int) -> None:
        """For `Taken.done` alone: the consumer of an item does not hold its bytes any more."""
        with self._lock:
            self._held_bytes -= weight_bytes
            if self._putters:
                self._admit_waiting()

    def _has_space(self) -> bool:
        return len(self._items) < self._max_requests and self._held_bytes < self._max_bytes

    def _admit(self, entry: Taken[T]) -> None:
        self._items.append(entry)
        self._held_bytes += entry.weight_bytes
        if self._getters:
            self._arrived.notify()

    def _admit_waiting(self) -> None:
        while self._putters and self._has_space():
            putter = self._putters.popleft()
            self._admit(putter.entry)
            putter.admitted = True
            putter.condition.notify()

    def _is_admitted_in_order(self, entry: Taken[T], timeout: float | None) -> bool:
        """Wait behind those who came before; False if the time was over first.

        Raises:
            QueueClosedError: the queue closed first.
        """
        putter = _Putter(entry, threading.Condition(self._lock))
        self._putters.append(putter)
        try:
            self._wait(putter.condition, timeout)
        finally:
            if not putter.admitted and not self._closed:
                self._putters.remove(putter)
        if not putter.admitted and self._closed:
            raise QueueClosedError("the queue was closed before there was room")
        return putter.admitted

    def _wait_for_item(self, deadline: float | None) -> None:
        """Returns when there may be an item; raises what `get` raises."""
        if self._closed:
            raise QueueClosedError("the queue was closed and is empty")
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise QueueEmptyError("nothing came in time")
        self._getters += 1
        try:
            self._wait(self._arrived, left)
        finally:
            self._getters -= 1
