"""The byte-bounded queue: its throughput beside queue.Queue, what it costs fetches, and the memory that it holds.

    python -m benchmarks.bench_queue [--rounds 9] [--items 50000]

Throughput: puts and takes of one item each, done included, for several numbers of producers and consumers; the queues
take turns within a round, ratios are medians of the ratios within a round. Goal: at least 0.5 with the byte bound on.

Fetches: the reader pool with the byte bound on and off, in turns; goal: at most 2 % more CPU seconds with it.

Memory: a process of its own whose producers ask for mixed sizes, and whose consumers fill that many bytes of real
memory and hold several at a time. Firm: its peak resident memory, less what it had before, is at most `max_bytes` + the
largest request + 10 %; the same without a byte bound shows what the bound holds back. Exit code 1 if one fails.
"""

import argparse
import json
import mmap
import queue
import random
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.fetch_rounds import fetch_with_and_without
from benchmarks.upload_clients import peak_resident_bytes
from include.tiering.errors import QueueClosedError, QueueEmptyError
from include.tiering.quotas.byte_bounded_queue import NO_BYTE_BOUND, ByteBoundedQueue, Taken
from include.tiering.units import KIB, MIB

THREADS: Final = ((1, 1), (4, 4), (1, 10), (10, 1))
MAX_REQUESTS: Final = 500
GOAL_OF_QUEUE: Final = 0.5
MOST_LOSS_PERCENT: Final = 2.0

STRESS_MAX_BYTES: Final = 128 * MIB
STRESS_SIZES: Final = (4 * KIB, 64 * KIB, 512 * KIB, 2 * MIB, 8 * MIB, 32 * MIB)
STRESS_REQUESTS: Final = 640
STRESS_THREADS: Final = 8
STRESS_HELD_BY_EACH: Final = 8
STRESS_SLACK: Final = 1.10


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure the byte-bounded queue; prints JSON.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--stress", type=int, metavar="MAX_BYTES", help="the memory run alone, in this process")
    options = parser.parse_args(arguments)
    if options.stress is not None:
        say(stress(options.stress))
        return 0
    throughput = {f"{p} to {c}": compared(p, c, options.items, options.rounds) for p, c in THREADS}
    fetches = fetch_with_and_without(2 * options.rounds)
    bounded, unbounded = stress_apart(STRESS_MAX_BYTES), stress_apart(NO_BYTE_BOUND)
    allowed_bytes = int((STRESS_MAX_BYTES + max(STRESS_SIZES)) * STRESS_SLACK)
    held = {
        "fast enough": all(result["ratio"] >= GOAL_OF_QUEUE for result in throughput.values()),
        "fetches as fast": fetches["cpu"]["loss_percent"] <= MOST_LOSS_PERCENT,
        "memory within": bounded["grown_bytes"] <= allowed_bytes,
        "memory would grow without": unbounded["grown_bytes"] > allowed_bytes,
    }
    memory = {"allowed_bytes": allowed_bytes, "bounded": bounded, "unbounded": unbounded}
    say({"throughput": throughput, "fetches": fetches, "memory": memory, "held": held})
    return int(not all(held.values()))


def say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")


def compared(producers: int, consumers: int, items: int, rounds: int) -> dict[str, Any]:
    """Items a second of both queues; `ratio` is ours to the other."""
    rates: dict[str, list[float]] = {"queue.Queue": [], "byte bound": [], "no byte bound": []}
    for _ in range(rounds):
        plain: queue.Queue[int] = queue.Queue(MAX_REQUESTS)
        rates["queue.Queue"].append(rate(plain.put, plain.get, producers, consumers, items))
        for name, max_bytes in (("byte bound", 1024 * MIB), ("no byte bound", NO_BYTE_BOUND)):
            ours: ByteBoundedQueue[int] = ByteBoundedQueue(MAX_REQUESTS, max_bytes)
            put, take = puts_into(ours), takes_from(ours)
            rates[name].append(rate(put, take, producers, consumers, items))
    ratios = [ours / theirs for ours, theirs in zip(rates["byte bound"], rates["queue.Queue"], strict=True)]
    medians = {f"{name}, items/s": round(statistics.median(measured)) for name, measured in rates.items()}
    spread = [round(min(ratios), 2), round(max(ratios), 2)]
    return {**medians, "ratio": round(statistics.median(ratios), 2), "ratio_spread": spread}


def puts_into(target: ByteBoundedQueue[int]) -> Callable[[int], None]:
    return lambda item: target.put(item, 4 * KIB)


def takes_from(source: ByteBoundedQueue[int]) -> Callable[[], None]:
    return lambda: source.get().done()


def rate(put: Callable[[int], object], take: Callable[[], object], producers: int, consumers: int, items: int) -> float:
    """Items a second from the first put to the last take."""

    def produce() -> None:
        for item in range(items // producers):
            put(item)

    def consume() -> None:
        for _ in range(items // producers * producers // consumers):
            take()

    return items / seconds_of([produce] * producers + [consume] * consumers)


def seconds_of(functions: Sequence[Callable[[], None]]) -> float:
    threads = [threading.Thread(target=function) for function in functions]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - begun


def stress_apart(max_bytes: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.bench_queue", "--stress", str(max_bytes)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


def stress(max_bytes: int) -> dict[str, Any]:
    """Peak memory of this process while requests of mixed sizes pass."""
    before = resident_bytes()
    requests: ByteBoundedQueue[int] = ByteBoundedQueue(MAX_REQUESTS, max_bytes)

    def produce(seed: int) -> Callable[[], None]:
        sizes = random.Random(seed).choices(STRESS_SIZES, k=STRESS_REQUESTS // STRESS_THREADS)

        def run() -> None:
            for size_bytes in sizes:
                requests.put(size_bytes, size_bytes)

        return run

    consumers = [threading.Thread(target=hold_some, args=(requests,)) for _ in range(STRESS_THREADS)]
    for consumer in consumers:
        consumer.start()
    seconds = seconds_of([produce(seed) for seed in range(STRESS_THREADS)])
    requests.close()
    for consumer in consumers:
        consumer.join()
    grown_bytes = peak_resident_bytes() - before
    return {"max_bytes": max_bytes, "grown_bytes": grown_bytes, "before_bytes": before, "seconds": round(seconds, 1)}


def hold_some(requests: ByteBoundedQueue[int]) -> None:
    """Fill memory of the size of each request and hold the youngest few; all go when nothing comes."""
    held: deque[tuple[Taken[int], mmap.mmap]] = deque()
    while True:
        try:
            taken = requests.get(timeout=0.005)
        except (QueueEmptyError, QueueClosedError) as error:
            while held:
                let_go(*held.popleft())
            if isinstance(error, QueueClosedError):
                return
            continue
        memory = mmap.mmap(-1, taken.item)
        memory[:: mmap.PAGESIZE] = b"\1" * -(-taken.item // mmap.PAGESIZE)
        held.append((taken, memory))
        if len(held) > STRESS_HELD_BY_EACH:
            let_go(*held.popleft())


def let_go(taken: Taken[int], memory: mmap.mmap) -> None:
    memory.close()
    taken.done()


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * mmap.PAGESIZE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
