"""A queue bounded by requests and by bytes (as KIP-72 adds `queued.max.bytes` to `queued.max.requests`).

An item's weight, in bytes, counts from when the item enters the queue until the consumer is `done` with the item. So
the byte bound also covers items that consumers hold. While less than `max_bytes` is held, the byte bound lets an item
of any weight enter, also one that is heavier than the whole bound. So

    bytes of the items that reserved nothing  <=  max_bytes - 1 + the largest weight

An item counts towards `max_requests` only while it waits in the queue.

A taken item may need more memory than its weight. Before its consumer allocates that memory, it frees what the item
held, and calls `Taken.reserve`, which waits until all other items together reserve less than `max_bytes`. The reserved
size then is the item's weight. So

    reserved bytes  <=  max_bytes - 1 + the largest size that an item reserves

and the held bytes, of which the reserved ones are a part, are at most the sum of both limits.
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
"""Waits for the condition, at most the given seconds (None: no limit); returns False if the time was over first."""


class Taken(Generic[T]):
    """An item, from `put` on. Its weight counts until `done` is called, or the `with` block of the taken item ends."""

    __slots__ = ("_queue", "item", "reserved_bytes", "weight_bytes")

    def __init__(self, item: T, weight_bytes: int, queue: "ByteBoundedQueue[T]") -> None:
        self.item = item
        self.weight_bytes = weight_bytes
        self.reserved_bytes = 0
        self._queue: ByteBoundedQueue[T] | None = queue

    def reserve(self, size_bytes: int) -> None:
        """Make `size_bytes` the weight of a taken item, and what it reserves: the most that it holds from now on.

        Until its first call an item reserves 0 bytes. If `size_bytes` is more than the item reserves, wait until all
        other items together reserve less than the bound; waiting calls are served in their order. An item that waits
        reserves and weighs nothing, so that no two items wait for each other: the caller must have freed the memory
        that the item held.

        Raises:
            QueueClosedError: the call had to wait, and the queue was closed.
        """
        if self._queue is not None:
            self._queue.reserve(self, size_bytes)

    def done(self) -> None:
        """Give the weight back. Idempotent."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.release(self)

    def __enter__(self) -> T:
        return self.item

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.done()


class _Putter(Generic[T]):
    """A thread that waits to put an item; the thread that frees space appends this item to the queue."""

    __slots__ = ("admitted", "condition", "entry")

    def __init__(self, entry: Taken[T], condition: threading.Condition) -> None:
        self.entry = entry
        self.condition = condition
        self.admitted = False


class _Reserver(Generic[T]):
    """A thread that waits to reserve bytes; the thread that frees the bytes it lacks reserves for it."""

    __slots__ = ("admitted", "condition", "entry", "size_bytes")

    def __init__(self, entry: Taken[T], size_bytes: int, condition: threading.Condition) -> None:
        self.entry = entry
        self.size_bytes = size_bytes
        self.condition = condition
        self.admitted = False


class ByteBoundedQueue(Generic[T]):
    """First in, first out, for any number of threads.

    Threads that wait to put are served in the order in which they came, whatever the weights of their items: a thread
    can put an item at once only if no other thread waits to put. `wait` is how threads wait; tests replace it.
    """

    def __init__(
        self, max_requests: int, max_bytes: int = NO_BYTE_BOUND, *, wait: Wait = threading.Condition.wait
    ) -> None:
        """Raise ValueError unless `max_requests` is at least 1, and `max_bytes` at least 1 or NO_BYTE_BOUND."""
        if max_requests < 1 or (max_bytes < 1 and max_bytes != NO_BYTE_BOUND):
            raise ValueError(f"a queue of {max_requests} requests and {max_bytes} bytes could hold no item")
        self._max_requests = max_requests
        self._max_bytes = float("inf") if max_bytes == NO_BYTE_BOUND else max_bytes
        self._wait = wait
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._items: deque[Taken[T]] = deque()
        self._putters: deque[_Putter[T]] = deque()
        self._reservers: deque[_Reserver[T]] = deque()
        self._held_bytes = 0
        self._reserved_bytes = 0
        self._getters = 0
        self._closed = False

    @property
    def held_bytes(self) -> int:
        """The sum of the weights of items that wait, and of items with which a consumer is not done yet."""
        return self._held_bytes

    @property
    def reserved_bytes(self) -> int:
        """The sum of what consumers reserve for the items that they hold."""
        return self._reserved_bytes

    def __len__(self) -> int:
        """Return the number of items that wait for a consumer."""
        return len(self._items)

    def put(self, item: T, weight_bytes: int, timeout: float | None = None) -> None:
        """Append an item as soon as there is space; wait for at most `timeout` seconds, without limit if it is None.

        Raises:
            ValueError: the weight is negative.
            QueueFullError: there was no space within this time.
            QueueClosedError: the queue was closed before the item entered.
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
                    f"no space for {weight_bytes} bytes after {len(self._items)} requests, {self._held_bytes} bytes"
                )

    def get(self, timeout: float | None = None) -> Taken[T]:
        """Take the oldest item as soon as there is one; wait at most `timeout` seconds, without limit if it is None.

        Raises:
            QueueEmptyError: no item came within this time.
            QueueClosedError: the queue was closed and is empty.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while not self._items:
                self._wait_for_item(deadline)
            taken = self._items.popleft()
            self._admit_waiting()
        return taken

    def close(self) -> None:
        """Accept no more items, and wake all waiting threads. Items in the queue can still be taken."""
        with self._lock:
            self._closed = True
            for putter in self._putters:
                putter.condition.notify()
            self._putters.clear()
            for reserver in self._reservers:
                reserver.condition.notify()
            self._reservers.clear()
            self._arrived.notify_all()

    def reserve(self, taken: Taken[T], size_bytes: int) -> None:
        """Change what a taken item reserves; only `Taken.reserve` calls this."""
        with self._lock:
            if size_bytes <= taken.reserved_bytes or not (self._reservers or self._is_reserved_up(taken)):
                self._set_reserved(taken, size_bytes)
                self._admit_waiting()
                return
            if self._closed:
                raise QueueClosedError("the queue was closed before there was space")
            reserver = _Reserver(taken, size_bytes, threading.Condition(self._lock))
            self._reservers.append(reserver)
            self._set_reserved(taken, 0)
            self._admit_waiting()
            if not reserver.admitted:
                self._wait(reserver.condition, None)
            if not reserver.admitted:
                raise QueueClosedError("the queue was closed before there was space")

    def release(self, taken: Taken[T]) -> None:
        """Give back the weight of an item that a consumer no longer holds; only `Taken.done` calls this."""
        with self._lock:
            self._set_reserved(taken, 0)
            self._admit_waiting()

    def _is_reserved_up(self, taken: Taken[T]) -> bool:
        """Return whether other items reserve all of the bound."""
        return self._reserved_bytes - taken.reserved_bytes >= self._max_bytes

    def _set_reserved(self, taken: Taken[T], size_bytes: int) -> None:
        self._reserved_bytes += size_bytes - taken.reserved_bytes
        self._held_bytes += size_bytes - taken.weight_bytes
        taken.reserved_bytes = taken.weight_bytes = size_bytes

    def _has_space(self) -> bool:
        return len(self._items) < self._max_requests and self._held_bytes < self._max_bytes

    def _admit(self, entry: Taken[T]) -> None:
        self._items.append(entry)
        self._held_bytes += entry.weight_bytes
        if self._getters:
            self._arrived.notify()

    def _admit_waiting(self) -> None:
        while self._reservers and self._reserved_bytes < self._max_bytes:
            reserver = self._reservers.popleft()
            self._set_reserved(reserver.entry, reserver.size_bytes)
            reserver.admitted = True
            reserver.condition.notify()
        while self._putters and self._has_space():
            putter = self._putters.popleft()
            self._admit(putter.entry)
            putter.admitted = True
            putter.condition.notify()

    def _is_admitted_in_order(self, entry: Taken[T], timeout: float | None) -> bool:
        """Wait until the item is in the queue, after the items of threads that came before; False if the time was over.

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
            raise QueueClosedError("the queue was closed before there was space")
        return putter.admitted

    def _wait_for_item(self, deadline: float | None) -> None:
        """Return when there may be an item; raise what `get` raises."""
        if self._closed:
            raise QueueClosedError("the queue was closed and is empty")
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise QueueEmptyError("no item came in time")
        self._getters += 1
        try:
            self._wait(self._arrived, left)
        finally:
            self._getters -= 1
