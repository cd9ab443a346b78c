"""The queue as one thread and as blocked threads see it; every order of calls is in tests/property."""

import threading
from collections.abc import Callable
from functools import partial

import pytest

from include.tiering.errors import QueueClosedError, QueueEmptyError, QueueFullError
from include.tiering.quotas.byte_bounded_queue import ByteBoundedQueue, Taken
from tests.doubles.waiting_threads import Call, Waits


def test_items_come_out_in_the_order_in_which_they_went_in() -> None:
    queue: ByteBoundedQueue[str] = ByteBoundedQueue(10, 100)
    for item in "abc":
        queue.put(item, 1)
    assert [queue.get().item for _ in range(3)] == ["a", "b", "c"]


def test_a_weight_counts_until_the_consumer_is_done() -> None:
    queue: ByteBoundedQueue[str] = ByteBoundedQueue(10, 100)
    queue.put("a", 100)
    taken = queue.get()
    assert queue.held_bytes == 100
    with pytest.raises(QueueFullError, match="no space for 1 bytes after 0 requests, 100 bytes"):
        queue.put("b", 1, timeout=0)
    taken.done()
    taken.done()
    assert queue.held_bytes == 0
    queue.put("b", 1, timeout=0)


def test_a_consumer_that_fails_is_done_too() -> None:
    queue: ByteBoundedQueue[str] = ByteBoundedQueue(10, 100)
    queue.put("a", 7)
    with pytest.raises(RuntimeError), queue.get() as item:
        raise RuntimeError(item)
    assert queue.held_bytes == 0


def test_an_item_heavier_than_the_bound_enters_while_there_is_room() -> None:
    queue: ByteBoundedQueue[str] = ByteBoundedQueue(10, 100)
    queue.put("a", 99)
    queue.put("huge", 1_000_000, timeout=0)
    assert queue.held_bytes == 1_000_099
    with pytest.raises(QueueFullError):
        queue.put("b", 0, timeout=0)


def test_both_bounds_hold() -> None:
    queue: ByteBoundedQueue[int] = ByteBoundedQueue(2, 100)
    queue.put(1, 1)
    queue.put(2, 1)
    with pytest.raises(QueueFullError):
        queue.put(3, 1, timeout=0)
    queue.get()
    queue.put(3, 1, timeout=0)


def test_without_a_byte_bound_only_requests_count() -> None:
    queue: ByteBoundedQueue[int] = ByteBoundedQueue(2)
    for item in (1, 2):
        queue.put(item, 2**60)
    with pytest.raises(QueueFullError):
        queue.put(3, 0, timeout=0)


@pytest.mark.parametrize(("max_requests", "max_bytes"), [(0, 1), (1, 0), (1, -2), (-1, -1)])
def test_a_bound_that_lets_nothing_in_is_refused(max_requests: int, max_bytes: int) -> None:
    with pytest.raises(ValueError, match=rf"{max_requests} requests and {max_bytes} bytes"):
        ByteBoundedQueue(max_requests, max_bytes)


def test_a_weight_is_never_negative() -> None:
    with pytest.raises(ValueError, match="-1 bytes"):
        ByteBoundedQueue[str](1).put("a", -1)


def test_an_empty_queue_answers_in_time() -> None:
    queue: ByteBoundedQueue[str] = ByteBoundedQueue(1)
    with pytest.raises(QueueEmptyError):
        queue.get(timeout=0)
    with pytest.raises(QueueEmptyError):
        queue.get(timeout=0.001)


def test_a_put_gives_up_in_time() -> None:
    queue: ByteBoundedQueue[str] = ByteBoundedQueue(1)
    queue.put("a", 1)
    with pytest.raises(QueueFullError):
        queue.put("b", 1, timeout=0.001)
    queue.get().done()
    queue.put("c", 1, timeout=0)
    assert queue.get().item == "c"


def test_a_huge_request_is_not_overtaken_by_small_ones() -> None:
    waits = Waits()
    queue: ByteBoundedQueue[str] = ByteBoundedQueue(100, 10, wait=waits)
    queue.put("first", 10)
    huge = Call(lambda: queue.put("huge", 1_000))
    waits.one_began()
    small = Call(lambda: queue.put("small", 1))
    waits.one_began()
    queue.get().done()
    huge.outcome()
    with pytest.raises(QueueFullError):
        queue.put("late", 1, timeout=0)
    taken = queue.get()
    assert taken.item == "huge"
    assert not small.ended
    taken.done()
    small.outcome()
    assert queue.get().item == "small"


def test_who_waits_goes_before_who_comes_later_even_when_there_is_room_again() -> None:
    waits = Waits()
    queue: ByteBoundedQueue[str] = ByteBoundedQueue(1, wait=waits)
    queue.put("first", 1)
    second = Call(lambda: queue.put("second", 1))
    waits.one_began()
    assert queue.get().item == "first"
    with pytest.raises(QueueFullError):
        queue.put("third", 1, timeout=0)
    second.outcome()
    assert queue.get().item == "second"


def test_room_for_several_lets_several_in() -> None:
    waits = Waits()
    queue: ByteBoundedQueue[int] = ByteBoundedQueue(100, 10, wait=waits)
    queue.put(0, 1_000)
    calls = []
    for number in (1, 2, 3, 4):
        calls.append(Call(partial(queue.put, number, 5)))
        waits.one_began()
    queue.get().done()
    for call in calls[:2]:
        call.outcome()
    assert len(queue) == 2
    assert [call.ended for call in calls] == [True, True, False, False]
    queue.close()


def test_a_get_waits_for_an_item() -> None:
    waits = Waits()
    queue: ByteBoundedQueue[str] = ByteBoundedQueue(1, wait=waits)
    got = Call(lambda: queue.get().item)
    waits.one_began()
    queue.put("a", 1)
    assert got.outcome() == "a"


def test_close_wakes_everybody() -> None:
    waits = Waits()
    full: ByteBoundedQueue[str] = ByteBoundedQueue(1, wait=waits)
    full.put("a", 1)
    empty: ByteBoundedQueue[str] = ByteBoundedQueue(1, wait=waits)
    functions: list[Callable[[], object]] = [lambda: full.put("b", 1), lambda: full.put("c", 1), empty.get, empty.get]
    calls = []
    for function in functions:
        calls.append(Call(function))
        waits.one_began()
    full.close()
    empty.close()
    for call in calls:
        with pytest.raises(QueueClosedError):
            call.outcome()


def test_a_closed_queue_refuses_and_gives_what_it_has() -> None:
    queue: ByteBoundedQueue[str] = ByteBoundedQueue(2)
    queue.put("a", 1)
    queue.close()
    with pytest.raises(QueueClosedError):
        queue.put("b", 1)
    queue.get().done()
    with pytest.raises(QueueClosedError):
        queue.get()
    assert queue.held_bytes == 0


def test_many_threads_lose_and_double_nothing() -> None:
    queue: ByteBoundedQueue[int] = ByteBoundedQueue(7, 50)
    seen: list[int] = []
    most_held: list[int] = []

    def produce(first: int) -> None:
        for number in range(first, 4_000, 4):
            queue.put(number, number % 23)

    def consume() -> None:
        for _ in range(1_000):
            with queue.get() as number:
                seen.append(number)
                most_held.append(queue.held_bytes)

    threads = [threading.Thread(target=consume) for _ in range(4)]
    threads += [threading.Thread(target=produce, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(4_000))
    assert max(most_held) <= 49 + 22
    assert queue.held_bytes == 0


# What consumers reserve.


def taken_of(queue: ByteBoundedQueue[str], *items: str) -> list[Taken[str]]:
    for item in items:
        queue.put(item, 1)
    return [queue.get() for _ in items]


def test_what_an_item_really_holds_waits_until_others_hold_less_than_the_bound() -> None:
    waits = Waits()
    queue: ByteBoundedQueue[str] = ByteBoundedQueue(10, 100, wait=waits)
    first, second, third = taken_of(queue, "a", "b", "c")
    first.reserve(99)
    second.reserve(500)
    assert queue.held_bytes == 99 + 500 + 1
    late = Call(lambda: third.reserve(2))
    waits.one_began()
    second.reserve(10)
    assert waits.waiting
    first.done()
    late.outcome()
    assert (second.reserved_bytes, third.reserved_bytes, queue.held_bytes) == (10, 2, 12)


def test_less_than_before_is_reserved_at_once() -> None:
    queue: ByteBoundedQueue[str] = ByteBoundedQueue(10, 100)
    first, second = taken_of(queue, "a", "b")
    first.reserve(99)
    second.reserve(900)
    first.reserve(98)
    second.reserve(200)
    assert queue.held_bytes == 298


def test_items_that_wait_for_each_others_bytes_go_on_one_after_another() -> None:
    """Each gives back what it has before it waits, as it holds nothing then."""
    waits = Waits()
    queue: ByteBoundedQueue[str] = ByteBoundedQueue(10, 100, wait=waits)
    first, second = taken_of(queue, "a", "b")
    first.reserve(99)
    second.reserve(200)
    one = Call(lambda: first.reserve(150))
    waits.one_began()
    other = Call(lambda: second.reserve(300))
    one.outcome()
    waits.one_began()
    assert (first.reserved_bytes, second.reserved_bytes) == (150, 0)
    first.done()
    other.outcome()
    assert queue.held_bytes == second.reserved_bytes == 300


def test_who_waits_to_reserve_is_told_that_the_queue_closed() -> None:
    waits = Waits()
    queue: ByteBoundedQueue[str] = ByteBoundedQueue(10, 100, wait=waits)
    first, second = taken_of(queue, "a", "b")
    first.reserve(100)
    late = Call(lambda: second.reserve(1))
    waits.one_began()
    queue.close()
    with pytest.raises(QueueClosedError):
        late.outcome()
    second.done()
    first.done()
    assert queue.held_bytes == 0


def test_reserved_bytes_keep_new_items_out() -> None:
    queue: ByteBoundedQueue[str] = ByteBoundedQueue(10, 100)
    (first,) = taken_of(queue, "a")
    first.reserve(100)
    with pytest.raises(QueueFullError):
        queue.put("b", 1, timeout=0)
    first.reserve(99)
    queue.put("b", 1, timeout=0)
