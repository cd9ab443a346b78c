"""What runs at the same time, what is held, and what ends when nobody wants the results any more."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from include.tiering.errors import SendingStoppedError
from include.tiering.quotas.contract import ByteLimiter, UnlimitedBytes
from include.tiering.remote_storage import parallel_reads as module
from include.tiering.remote_storage.parallel_reads import (
    Reading,
    blocks_in_order,
    in_order,
    ranges_of_each,
    read_ranges,
)
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.source_tree import ROOT


@pytest.fixture(autouse=True)
def _leaves_no_thread() -> Iterator[None]:
    yield
    eventually(lambda: not [each for each in threading.enumerate() if each.name.startswith("read-")], "threads end")


def test_a_process_splits_logs_only_where_it_reads_few() -> None:
    assert [ranges_of_each(logs) for logs in (0, 1, 2, 3, 4, 16)] == [4, 4, 2, 1, 1, 1]


def test_as_many_tasks_run_as_may_and_all_of_them_at_once() -> None:
    together = threading.Barrier(5, timeout=PATIENCE_SECONDS)

    def task(_: Reading) -> int:
        return together.wait() * 0 + 1

    assert sum(in_order([task] * 10, at_once=5, ahead=10)) == 10


def test_one_at_once_is_the_thread_of_the_caller() -> None:
    def task(_: Reading) -> threading.Thread:
        return threading.current_thread()

    assert list(in_order([task] * 3, at_once=1, ahead=1)) == [threading.current_thread()] * 3


class Ranges:
    """A source whose ranges end when a test lets them; each block is 10 bytes."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.let: dict[int, threading.Event] = {first: threading.Event() for first in range(0, 1_000, 100)}
        self._lock = threading.Lock()

    def read(self, key: str, first: int, last: int, *, limiter: ByteLimiter) -> Iterator[bytes]:
        with self._lock:
            self.begun.append(first)
        for _ in range(first, last + 1, 10):
            yield bytes(limiter.take(10))
        assert self.let[first].wait(PATIENCE_SECONDS)


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> Ranges:
    monkeypatch.setattr(module, "RANGE_BYTES", 100)
    return Ranges()


def test_no_more_ranges_are_held_than_may_be_read(ranges: Ranges) -> None:
    blocks = read_ranges(ranges.read, "key", 0, 999, limiter=UnlimitedBytes(), at_once=3)
    ranges.let[100].set()
    ranges.let[200].set()
    ranges.let[0].set()
    next(blocks)
    eventually(lambda: len(ranges.begun) == 3, "three ranges were begun")
    for _ in range(9):
        next(blocks)
    assert sorted(ranges.begun) == [0, 100, 200], "the first range was not used up"
    next(blocks)
    eventually(lambda: sorted(ranges.begun) == [0, 100, 200, 300], "room for another")
    for each in ranges.let.values():
        each.set()
    assert sum(map(len, blocks)) == 890
    assert sorted(ranges.begun) == list(range(0, 1_000, 100))


def test_a_reader_that_is_closed_begins_no_further_range_and_charges_nothing_more(ranges: Ranges) -> None:
    charged = []

    class Limiter(UnlimitedBytes):
        def take(self, wanted_bytes: int) -> int:
            charged.append(wanted_bytes)
            return wanted_bytes

    blocks = read_ranges(ranges.read, "key", 0, 999, limiter=Limiter(), at_once=2)
    ranges.let[0].set()
    next(blocks)
    eventually(lambda: len(charged) == 20, "two ranges were charged")
    blocks.close()  # type: ignore[attr-defined]
    for each in ranges.let.values():
        each.set()
    eventually(lambda: not [each for each in threading.enumerate() if each.name.startswith("read-")], "threads end")
    assert (sorted(ranges.begun), len(charged)) == ([0, 100], 20)


def test_a_task_learns_that_its_result_is_not_wanted() -> None:
    stopped: list[str] = []
    waiting = threading.Event()

    def first(_: Reading) -> int:
        assert waiting.wait(PATIENCE_SECONDS)
        return 1

    def second(reading: Reading) -> int:
        reading.go_on()
        waiting.set()
        try:
            eventually(lambda: reading.go_on() or False, "it is told")  # type: ignore[func-returns-value]
        except SendingStoppedError as error:
            stopped.append(str(error))
            raise
        return 2

    results = in_order([first, second], at_once=2, ahead=2)
    assert next(results) == 1
    results.close()  # type: ignore[attr-defined]
    eventually(lambda: stopped == ["the result of this read is no longer wanted"], "it ended")


def test_a_limiter_is_asked_by_one_thread_at_a_time(ranges: Ranges) -> None:
    inside, most = 0, 0

    class Limiter(UnlimitedBytes):
        def take(self, wanted_bytes: int) -> int:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            threading.Event().wait(0.0001)
            inside -= 1
            return wanted_bytes

    for each in ranges.let.values():
        each.set()
    assert sum(map(len, read_ranges(ranges.read, "key", 0, 999, limiter=Limiter(), at_once=4))) == 1_000
    assert most == 1


def test_what_a_bug_raises_in_a_thread_reaches_the_caller() -> None:
    def bug(_: Reading) -> int:
        raise ZeroDivisionError

    tasks: list[Callable[[Reading], int]] = [lambda _: 1, bug, lambda _: 3]
    results = in_order(tasks, at_once=2, ahead=3)
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_blocks_are_held_up_to_their_bytes_and_taken_as_they_arrive() -> None:
    begun, lock, last = list[int](), threading.Lock(), threading.Event()

    def read(number: int) -> Callable[[Reading], Iterator[bytes]]:
        def blocks(_: Reading) -> Iterator[bytes]:
            with lock:
                begun.append(number)
            yield b"first of %d" % number
            if number == 0:
                assert last.wait(PATIENCE_SECONDS)
            yield b"last"

        return blocks

    def are_begun(wanted: list[int]) -> None:
        eventually(lambda: sorted(begun) == wanted, f"{wanted} have begun")

    sizes = [60, 30, 10, 50, 200, 5]
    reads = [(size, read(number)) for number, size in enumerate(sizes)]
    found = blocks_in_order(reads, at_once=6, most_bytes=100)
    first = next(found)
    assert next(first) == b"first of 0"
    are_begun([0, 1, 2])
    last.set()
    assert list(first) == [b"last"]
    for number, wanted in ((1, [0, 1, 2, 3]), (2, [0, 1, 2, 3]), (3, [0, 1, 2, 3]), (4, [0, 1, 2, 3, 4])):
        assert list(next(found)) == [b"first of %d" % number, b"last"]
        are_begun(wanted)
    assert [list(each) for each in found] == [[b"first of 5", b"last"]]


def test_what_a_bug_raises_in_a_reading_thread_comes_behind_its_blocks() -> None:
    def bug(_: Reading) -> Iterator[bytes]:
        yield b"before"
        raise ZeroDivisionError

    found = blocks_in_order([(1, lambda _: iter([b"well"])), (1, bug), (1, bug)], at_once=2, most_bytes=3)
    assert list(next(found)) == [b"well"]
    blocks = next(found)
    assert next(blocks) == b"before"
    with pytest.raises(ZeroDivisionError):
        next(blocks)


@pytest.mark.parametrize("is_free", [True, False])
def test_reads_double_in_each_window_that_leaves_the_core_free(monkeypatch: pytest.MonkeyPatch, is_free: bool) -> None:
    windows: list[bool | None] = []
    threads = module._Threads(16, 1)
    monkeypatch.setattr(threads._core_use, "is_free", lambda: windows.pop())

    def window(asking: int) -> int:
        """Return how many of the threads that ask may begin when a window is over."""
        windows.extend([None] * (asking - 1) + [is_free])
        return sum(threads._may_grow() for _ in range(asking))

    assert [window(16) for _ in range(5)] == ([1, 2, 4, 8, 16] if is_free else [0] * 5)


STUCK = """
import signal
import threading
from include.tiering.remote_storage.parallel_reads import blocks_in_order
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell in the background ignores it, and so would we.
stuck = threading.Event()
for each in blocks_in_order([(1, lambda _: [1])] + [(1, lambda _: [stuck.wait()])] * 3, at_once=4, most_bytes=4):
    print(next(each), flush=True)
"""


def test_an_interrupt_ends_a_process_whose_reads_get_no_answer() -> None:
    command = [sys.executable, "-c", STUCK]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == -signal.SIGINT
    assert said.splitlines()[-1] == b"KeyboardInterrupt"


def test_there_are_no_more_threads_than_reads_that_may_be_held() -> None:
    reading = set[threading.Thread]()

    def read(_: Reading) -> Iterator[bytes]:
        reading.add(threading.current_thread())
        yield b""

    for blocks in blocks_in_order([(1, read)] * 60, at_once=16, most_bytes=2):
        list(blocks)
        named = [each for each in threading.enumerate() if each.name.startswith("read-")]
        assert len(named) <= 2
    assert len(reading) <= 2
