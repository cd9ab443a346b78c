"""Threads that give way to brokers: they, and the threads that they start, have the lowest CPU priority."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from include.tiering.runs.priority import LOWEST_PRIORITY, give_way


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_a_thread_gives_way_and_leaves_its_process_as_it_is() -> None:
    before = niceness()
    with ThreadPoolExecutor(1, "bulk", give_way) as threads:
        assert threads.submit(niceness).result() == LOWEST_PRIORITY
        with ThreadPoolExecutor(1) as started_here:
            assert started_here.submit(niceness).result() == before
        inner = threads.submit(ThreadPoolExecutor, 1).result()
        assert threads.submit(lambda: inner.submit(niceness).result()).result() == LOWEST_PRIORITY
        inner.shutdown()
    assert niceness() == before
