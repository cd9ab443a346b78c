"""Reads of leaders, counted: how many requests, how many bytes, and how many in a second."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from include.tiering.clock import Clock
from include.tiering.kafka.fetch_api.contract import Leader
from include.tiering.kafka.fetch_api.leader_logs import KafkaLeaderLogs
from include.tiering.kafka.log_dirs.contract import go_on_always
from include.tiering.kafka.protocol.fetch_requests import EpochEnd, FetchedPartition
from include.tiering.model.segments import TopicIdPartition


class CountedReads:
    """`LeaderLogs` that counts what is read through it. An answer belongs to the second in which it is complete."""

    def __init__(self, logs: KafkaLeaderLogs, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self._lock = threading.Lock()
        self._requests = 0
        self._bytes_by_second: Counter[int] = Counter()
        self._requests_by_second: Counter[int] = Counter()

    def close(self) -> None:
        self._logs.close()

    @contextmanager
    def read(
        self,
        partition: TopicIdPartition,
        leader: Leader,
        offset: int,
        max_bytes: int,
        go_on: Callable[[], object] = go_on_always,
    ) -> Iterator[FetchedPartition]:
        with self._logs.read(partition, leader, offset, max_bytes, go_on) as answer:
            second = int(self._clock.monotonic())
            with self._lock:
                self._requests += 1
                self._bytes_by_second[second] += len(answer.records)
                self._requests_by_second[second] += 1
            yield answer

    def epoch_end(self, partition: TopicIdPartition, leader: Leader, leader_epoch: int) -> EpochEnd:
        return self._logs.epoch_end(partition, leader, leader_epoch)

    def document(self) -> dict[str, int]:
        with self._lock:
            return {
                "requests": self._requests,
                "bytes": sum(self._bytes_by_second.values()),
                "most_bytes_in_a_second": max(self._bytes_by_second.values(), default=0),
                "most_requests_in_a_second": max(self._requests_by_second.values(), default=0),
            }
