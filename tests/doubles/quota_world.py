"""Processes that share quotas through one ledger row, in time that passes only from event to event.

Each process has the product's pacing and the product's rounds with the ledger. Its senders ask again as often as
waiting threads do. Nothing sleeps: a minute of sixteen processes takes a second or two.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.quota_trace import BUCKETS_PER_SECOND, Trace, bucket_of
from include.tiering.quotas import shared_quotas
from include.tiering.quotas.contract import QuotasInForce, Scope
from include.tiering.quotas.pacing import ProcessPacing
from include.tiering.quotas.shared_quotas import AllocationRenewer
from include.tiering.units import KIB
from tests.doubles.quotas import MemoryLedgerStore

_BLOCK_BYTES: Final = 256 * KIB
_WAKES_AFTER_SECONDS: Final = 0.018
_LATE_SECONDS: Final = 0.002
"""How late a thread wakes up, at most."""


@dataclass(frozen=True, slots=True)
class Sender:
    """A thread of a process that sends in these scopes, `pause_seconds` after each grant.

    With `bytes_per_second` it has no more than this to send, ten times a second; without it always something.
    """

    process: int
    scopes: tuple[Scope, ...]
    pause_seconds: float = 0.002
    bytes_per_second: float | None = None
    begins_s: float = 0.0
    ends_s: float = float("inf")

    @property
    def is_busy(self) -> bool:
        return self.bytes_per_second is None


class EventClock:
    """A monotonic clock that `World` sets."""

    seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        raise AssertionError("shares do not depend on the wall clock")

    def process_seconds(self) -> float:
        raise AssertionError("shares do not depend on the processor")

    thread_seconds = process_seconds

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps")


class World:
    """Call `run`, then `trace` or `rate`. Times count from the beginning of the run."""

    def __init__(self, senders: Sequence[Sender], quotas: Mapping[Scope, int], seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._clock = EventClock()
        self._began = self._clock.seconds
        self._now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._quotas = QuotasInForce(1, dict(quotas))
        self._ledger = MemoryLedgerStore()
        self._processes = {number: self._process(number) for number in sorted({each.process for each in senders})}
        self._sent: dict[Sender, dict[int, int]] = {}
        for sender in senders:
            self._sent[sender] = {}
            self._at(sender.begins_s + self._random.random() * 0.05, self._steps(sender))

    def run(self, seconds: float) -> None:
        while self._events[0][0] < seconds:
            self._now_s, _, step = heapq.heappop(self._events)
            self._clock.seconds = self._began + self._now_s
            step()

    def trace(self, scope: Scope, begin_s: float, end_s: float) -> Trace:
        return self._trace([sent for sender, sent in self._sent.items() if scope in sender.scopes], begin_s, end_s)

    def rate(self, sender: Sender, begin_s: float, end_s: float) -> float:
        return self._trace([self._sent[sender]], begin_s, end_s).average

    @staticmethod
    def _trace(all_sent: Sequence[Mapping[int, int]], begin_s: float, end_s: float) -> Trace:
        buckets = range(bucket_of(begin_s), bucket_of(end_s))
        return Trace.of((sum(sent.get(bucket, 0) for sent in all_sent) for bucket in buckets), begun_s=begin_s)

    def _at(self, at_s: float, step: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), step))

    def _process(self, number: int) -> "_Process":
        pacing = ProcessPacing(self._clock)
        renewer = AllocationRenewer(
            self._ledger, pacing, self._clock, worker_id=f"process-{number}", stored_quotas=lambda: self._quotas
        )
        process = _Process(pacing, renewer)
        self._at(self._random.random() * shared_quotas.PERIOD_SECONDS, lambda: self._round(process))
        return process

    def _round(self, process: "_Process") -> None:
        """What `AllocationRenewer` does in its thread, by its own constants."""
        if self._now_s < process.next_round_s:
            return
        began = self._now_s
        process.allowed_s = max(process.allowed_s, began) + shared_quotas._MEAN_SECONDS
        process.renewer.round()
        ahead_seconds = shared_quotas._ROUNDS_AHEAD * shared_quotas._MEAN_SECONDS
        process.soon_s = max(began + shared_quotas._EARLY_ROUND_SECONDS, process.allowed_s - ahead_seconds)
        self._plan_round(process, began + shared_quotas.PERIOD_SECONDS)

    def _plan_round(self, process: "_Process", at_s: float) -> None:
        process.next_round_s = max(at_s, process.soon_s)
        late_seconds = self._random.random() * _LATE_SECONDS
        self._at(process.next_round_s + late_seconds, lambda: self._round(process))

    def _steps(self, sender: Sender) -> Callable[[], None]:
        process = self._processes[sender.process]
        stream = process.pacing.stream(sender.scopes)
        sent = self._sent[sender]
        left_bytes = 0.0
        due_s = sender.begins_s

        def step() -> None:
            nonlocal left_bytes, due_s
            if self._now_s >= sender.ends_s:
                return
            if sender.bytes_per_second is not None:
                while due_s <= self._now_s:
                    left_bytes += sender.bytes_per_second / 10
                    due_s += 0.1
                if left_bytes < 1:
                    self._at(due_s, step)
                    return
            wanted_bytes = _BLOCK_BYTES if sender.is_busy else int(left_bytes)
            granted_bytes = process.pacing.take(stream, wanted_bytes, 0.0, process.pacing.next_turn()).size_bytes
            left_bytes -= granted_bytes
            if granted_bytes:
                bucket = int(self._now_s * BUCKETS_PER_SECOND)
                sent[bucket] = sent.get(bucket, 0) + granted_bytes
            elif process.pacing.starved.is_set() and process.next_round_s > max(self._now_s, process.soon_s):
                self._plan_round(process, self._now_s)
            late_seconds = self._random.random() * _LATE_SECONDS
            self._at(
                self._now_s + (sender.pause_seconds if granted_bytes else _WAKES_AFTER_SECONDS) + late_seconds, step
            )

        return step


@dataclass(slots=True)
class _Process:
    pacing: ProcessPacing
    renewer: AllocationRenewer
    next_round_s: float = 0.0
    soon_s: float = 0.0
    allowed_s: float = field(default=float("-inf"))
