"""`LeaderLogs` over the connections of the project, which wait out the throttle times of brokers.

Each leader has a connection of its own, for one request at a time, and a pace of its own.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from include.tiering.clock import Clock
from include.tiering.errors import BrokersError, BrokersRefusedError, BrokersUnavailableError
from include.tiering.kafka.fetch_api.contract import Leader
from include.tiering.kafka.protocol.connections import ClusterConnections
from include.tiering.kafka.protocol.fetch_requests import (
    EpochEnd,
    Fetch,
    FetchedPartition,
    OffsetForLeaderEpoch,
)
from include.tiering.kafka.protocol.login import BrokerLogin
from include.tiering.kafka.protocol.messages import Request, refusal
from include.tiering.kafka.protocol.partition_requests import TopicPartition
from include.tiering.model.segments import TopicIdPartition

MAX_WAIT_MS: Final = 500
"""How long a broker may wait for the first byte, in ms. It does not wait below the high watermark, where we read."""
_TOPIC_AUTHORIZATION_FAILED: Final = 29

_Answer = TypeVar("_Answer")


_LONGEST_SLEEP_SECONDS: Final = 0.25


class KafkaLeaderLogs:
    """The logs of leaders, for any number of threads: each leader answers one request after the other.

    Args:
        login: how to connect.
        clock: for timeouts, throttle times and the pace.
        bytes_per_second: most bytes that this process reads of one broker: after an answer of n bytes, its next read
            begins n / bytes_per_second later.
    """

    def __init__(self, login: BrokerLogin, clock: Clock, bytes_per_second: int) -> None:
        self._login = login
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._free_at: dict[int, float] = {}
        self._lock = threading.Lock()
        self._leaders: dict[int, tuple[threading.Lock, ClusterConnections]] = {}

    def close(self) -> None:
        """Close the connections; a later call connects again."""
        with self._lock:
            leaders = list(self._leaders.values())
        for lock, connections in leaders:
            with lock:
                connections.close()

    def read(self, partition: TopicIdPartition, leader: Leader, offset: int, max_bytes: int) -> FetchedPartition:
        with self._connected(leader) as connections:
            version = Fetch.newest_version(connections.versions(leader.broker_id).apis)
            request = Fetch(
                partition.topic_id, partition.partition, leader.leader_epoch, offset, max_bytes, MAX_WAIT_MS, version
            )
            answer = _sent(connections, leader, request)
        what = f"fetch of {partition} from offset {offset} from broker {leader.broker_id}"
        found = answer.partitions.get((partition.topic_id, partition.partition))
        if answer.error:
            raise refusal(answer.error, what)
        if found is None:
            raise BrokersRefusedError(f"{what}: the response does not contain it")
        if found.error:
            raise _refused(found.error, what, "Read", partition)
        return found

    def keep_pace(self, leader: Leader, size_bytes: int, go_on: Callable[[], object]) -> None:
        with self._lock:
            begins_at = max(self._free_at.get(leader.broker_id, 0.0), self._clock.monotonic())
            free_at = self._free_at[leader.broker_id] = begins_at + size_bytes / self._bytes_per_second
        while (left_seconds := free_at - self._clock.monotonic()) > 0:
            self._clock.sleep(min(left_seconds, _LONGEST_SLEEP_SECONDS))
            go_on()

    def epoch_end(self, partition: TopicIdPartition, leader: Leader, leader_epoch: int) -> EpochEnd:
        named = TopicPartition(partition.topic, partition.partition)
        with self._connected(leader) as connections:
            ends = _sent(connections, leader, OffsetForLeaderEpoch(named, leader.leader_epoch, leader_epoch))
        what = f"end of leader epoch {leader_epoch} of {partition} from broker {leader.broker_id}"
        found = ends.get(named)
        if found is None:
            raise BrokersRefusedError(f"{what}: the response does not contain it")
        if found.error:
            raise _refused(found.error, what, "Describe", partition)
        return found

    @contextmanager
    def _connected(self, leader: Leader) -> Iterator[ClusterConnections]:
        """Hold the connection to a leader: other threads wait for it, and not for those to other leaders."""
        with self._lock:
            if leader.broker_id not in self._leaders:
                self._leaders[leader.broker_id] = threading.Lock(), ClusterConnections(self._login, self._clock)
            lock, connections = self._leaders[leader.broker_id]
        with lock:
            yield connections


def _sent(connections: ClusterConnections, leader: Leader, request: Request[_Answer]) -> _Answer:
    """Send a request. If the broker does not answer, ask for its address, which may be another one now."""
    try:
        return connections.send(leader.broker_id, request)
    except BrokersUnavailableError:
        with suppress(BrokersError):
            connections.find_brokers()
        raise


def _refused(code: int, what: str, operation: str, partition: TopicIdPartition) -> BrokersError:
    """Return the error for a partition's code; it names the ACL that is missing, by the operation of the request."""
    missing = f"the ACL that allows {operation} on topic {partition.topic} is missing"
    return refusal(code, what, missing if code == _TOPIC_AUTHORIZATION_FAILED else None)
