"""The queue against a plain model: puts that enter, wait, give up or are refused, takes, given back weights."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from include.tiering.errors import QueueClosedError, QueueEmptyError, QueueFullError
from include.tiering.quotas.byte_bounded_queue import NO_BYTE_BOUND, ByteBoundedQueue, Taken
from tests.doubles.waiting_threads import Call, Waits

Entry = tuple[int, int]
"""Number and weight of an item."""


@dataclass
class Model:
    """What the documentation says, with lists."""

    max_requests: int
    max_bytes: int
    items: list[Entry] = field(default_factory=list)
    taken: list[Entry] = field(default_factory=list)
    waiting: list[Entry] = field(default_factory=list)
    closed: bool = False

    @property
    def held_bytes(self) -> int:
        return sum(weight for _, weight in self.items + self.taken)

    @property
    def has_room(self) -> bool:
        below = self.max_bytes == NO_BYTE_BOUND or self.held_bytes < self.max_bytes
        return below and len(self.items) < self.max_requests

    def admit(self) -> list[Entry]:
        """Who enters now, in order."""
        entered = []
        while self.waiting and self.has_room:
            entered.append(self.waiting.pop(0))
            self.items.append(entered[-1])
        return entered


class Queues(RuleBasedStateMachine):
    """Every wait is seen before the next rule, so threads take part and nothing depends on their timing."""

    @initialize(max_requests=st.integers(1, 4), max_bytes=st.one_of(st.just(NO_BYTE_BOUND), st.integers(1, 30)))
    def begin(self, max_requests: int, max_bytes: int) -> None:
        self.waits = Waits()
        self.queue: ByteBoundedQueue[int] = ByteBoundedQueue(max_requests, max_bytes, wait=self.waits)
        self.model = Model(max_requests, max_bytes)
        self.calls: dict[int, Call] = {}
        self.held: list[Taken[int]] = []
        self.number = 0
        self.largest = self.largest_reserved = 0

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            self.queue.close()
            for call in self.calls.values():
                with pytest.raises(QueueClosedError):
                    call.outcome()

    @rule(weight=st.integers(0, 40))
    def put(self, weight: int) -> None:
        self.number += 1
        entry = (self.number, weight)
        call = Call(lambda: self.queue.put(entry[0], weight))
        if self.model.closed:
            with pytest.raises(QueueClosedError):
                call.outcome()
            return
        self.largest = max(self.largest, weight)
        self.model.waiting.append(entry)
        if len(self.model.waiting) == 1 and self.model.admit():
            call.outcome()
        else:
            self.waits.one_began()
            self.calls[entry[0]] = call

    @rule(weight=st.integers(0, 40))
    def put_at_once(self, weight: int) -> None:
        if self.model.closed:
            expected: type[Exception] = QueueClosedError
        elif self.model.waiting or not self.model.has_room:
            expected = QueueFullError
        else:
            self.number += 1
            self.largest = max(self.largest, weight)
            self.model.items.append((self.number, weight))
            self.queue.put(self.number, weight, timeout=0)
            return
        with pytest.raises(expected):
            self.queue.put(-1, weight, timeout=0)

    @rule()
    def get(self) -> None:
        if not self.model.items:
            with pytest.raises(QueueClosedError if self.model.closed else QueueEmptyError):
                self.queue.get(timeout=0)
            return
        taken = self.queue.get(timeout=0)
        entry = self.model.items.pop(0)
        assert (taken.item, taken.weight_bytes) == entry
        self.model.taken.append(entry)
        self.held.append(taken)
        self._entered()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        self.model.taken.pop(index)
        taken = self.held.pop(index)
        taken.done()
        taken.done()
        self._entered()

    @precondition(lambda self: self.held)
    @rule(data=st.data(), size=st.integers(0, 60))
    def reserve(self, data: st.DataObject, size: int) -> None:
        """Where it need not wait: unit tests see who waits."""
        index = data.draw(st.integers(0, len(self.held) - 1))
        before = self.held[index].reserved_bytes
        others = sum(taken.reserved_bytes for taken in self.held) - before
        if size > before and self.model.max_bytes != NO_BYTE_BOUND and others >= self.model.max_bytes:
            return
        self.largest_reserved = max(self.largest_reserved, size)
        self.held[index].reserve(size)
        self.model.taken[index] = (self.model.taken[index][0], size)
        self._entered()

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.model.waiting) - 1))
        number, _ = self.model.waiting.pop(index)
        self.waits.expire(self.waits.waiting[index])
        with pytest.raises(QueueFullError):
            self.calls.pop(number).outcome()

    @precondition(lambda self: self.number >= 12)
    @rule()
    def close(self) -> None:
        self.queue.close()
        self.model.closed = True
        self.model.waiting.clear()
        for call in self.calls.values():
            with pytest.raises(QueueClosedError):
                call.outcome()
        self.calls.clear()

    @invariant()
    def bytes_are_as_held_and_bounded(self) -> None:
        if not hasattr(self, "queue"):
            return
        assert self.queue.held_bytes == self.model.held_bytes >= 0
        assert len(self.queue) == len(self.model.items) <= self.model.max_requests
        assert not any(call.ended for call in self.calls.values())
        if self.model.max_bytes != NO_BYTE_BOUND:
            bound = self.model.max_bytes - 1
            assert self.queue.reserved_bytes <= bound + self.largest_reserved
            assert self.queue.held_bytes <= bound + self.largest or self.largest_reserved

    def _entered(self) -> None:
        for number, _ in self.model.admit():
            self.calls.pop(number).outcome()


TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=60, stateful_step_count=40)
