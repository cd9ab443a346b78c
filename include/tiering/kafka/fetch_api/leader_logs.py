"""`LeaderLogs` over the connections of the project.

Each leader has a connection of its own for reads, for one request at a time, and a pace of its own. Questions about
leader epochs have another connection, so they wait neither for an answer of 4 MiB nor for a throttle time.

A broker with a client quota for bytes sends at most what the quota allows in its whole window, 10 s by default. Above
the quota it answers without any partition and with a throttle time, after which the same read is requested again. So
one batch with more bytes than the window allows is never sent, to no consumer. Therefore a read that has waited
`LONGEST_SILENCE_SECONDS` without a byte from its leader ends, as does one that would have to wait longer.

Answers are received into `ANSWERS_AT_ONCE` buffers, which are used again and again: a batch of a copy may have dozens
of segments in flight, and has no more answers in memory than these. Who reads waits for a buffer. Two threads at most
make use of answers at the same time, one that receives and one that checks, so more buffers would make nothing faster.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from queue import LifoQueue
from typing import Final, TypeVar

from include.tiering.clock import Clock
from include.tiering.errors import BrokersError, BrokersRefusedError, BrokersUnavailableError
from include.tiering.kafka.fetch_api.contract import Leader
from include.tiering.kafka.log_dirs.contract import go_on_always
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
"""How long a broker may wait for the first byte, in ms. Below the high watermark, where all reads are, it does not."""
ANSWERS_AT_ONCE: Final = 3
LONGEST_SILENCE_SECONDS: Final = 600.0
"""How long a throttled read waits for a leader that sends bytes to no read of this process."""
_ANSWER_OVERHEAD_BYTES: Final = 64 << 10
"""More than an answer has beside the batches: a broker answers with as many bytes of these as it was asked for."""
_TOPIC_AUTHORIZATION_FAILED: Final = 29

_Answer = TypeVar("_Answer")


_LONGEST_SLEEP_SECONDS: Final = 0.25


class KafkaLeaderLogs:
    """The logs of leaders, for any number of threads: each leader answers one request after the other.

    Args:
        login: how to connect.
        clock: for timeouts, throttle times and the pace.
        bytes_per_second: most bytes that this process reads of one broker: a read of n bytes and the next one begin
            n / bytes_per_second apart.
        on_throttled: called with the topic, and the seconds that a read has just waited for a client quota.
    """

    def __init__(
        self,
        login: BrokerLogin,
        clock: Clock,
        bytes_per_second: int,
        on_throttled: Callable[[str, float], object] = lambda _topic, _seconds: None,
    ) -> None:
        self._login = login
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._on_throttled = on_throttled
        self._free_at: dict[int, float] = {}
        self._sent_at: dict[int, float] = {}
        self._lock = threading.Lock()
        self._leaders: dict[tuple[int, bool], tuple[threading.Lock, ClusterConnections]] = {}
        self._buffers: LifoQueue[bytearray] = LifoQueue()
        for _ in range(ANSWERS_AT_ONCE):
            self._buffers.put(bytearray())

    def close(self) -> None:
        """Close the connections; a later call connects again."""
        with self._lock:
            leaders = list(self._leaders.values())
        for lock, connections in leaders:
            with lock:
                connections.close()

    @contextmanager
    def read(
        self,
        partition: TopicIdPartition,
        leader: Leader,
        offset: int,
        max_bytes: int,
        go_on: Callable[[], object] = go_on_always,
    ) -> Iterator[FetchedPartition]:
        self.keep_pace(leader, max_bytes, go_on)
        read_bytes = 0
        with ExitStack() as kept:
            try:
                answer = self._answer(partition, leader, offset, max_bytes, go_on, kept)
                read_bytes = len(answer.records)
            finally:
                self._return(leader, max_bytes - read_bytes)
            yield answer

    def _answer(
        self,
        partition: TopicIdPartition,
        leader: Leader,
        offset: int,
        max_bytes: int,
        go_on: Callable[[], object],
        kept: ExitStack,
    ) -> FetchedPartition:
        """Return the answer, whose memory is held until `kept` is closed."""
        topic_id, number, epoch = partition.topic_id, partition.partition, leader.leader_epoch
        what = f"fetch of {partition} from offset {offset} from broker {leader.broker_id}"
        began_at = self._clock.monotonic()
        while True:
            with ExitStack() as held:
                with self._unthrottled(partition.topic, leader, what, began_at, go_on) as connections:
                    version = Fetch.newest_version(connections.versions(leader.broker_id).apis)
                    request = Fetch(topic_id, number, epoch, offset, max_bytes, MAX_WAIT_MS, version)
                    # Only now: of those who wait for a leader that does not answer, one holds memory, and others are
                    # read.
                    answer = _sent(connections, leader, request, held.enter_context(self._memory(max_bytes)))
                if answer.error:
                    raise refusal(answer.error, what)
                found = answer.partitions.get((topic_id, number))
                if found is not None:
                    if found.error:
                        raise _refused(found.error, what, "Read", partition)
                    self._sent_at[leader.broker_id] = self._clock.monotonic()
                    kept.push(held.pop_all())
                    return found
                if not answer.throttle_ms:
                    raise BrokersRefusedError(f"{what}: the response does not contain it")

    @contextmanager
    def _unthrottled(
        self, topic: str, leader: Leader, what: str, began_at: float, go_on: Callable[[], object]
    ) -> Iterator[ClusterConnections]:
        """Hold the connection for reads when the broker reads from it, and wait for that without holding it.

        Raises:
            BrokersUnavailableError: see `LONGEST_SILENCE_SECONDS`.
            TieringError: what `go_on` raises.
        """
        while True:
            with self._connected(leader, reads=True) as connections:
                left_seconds = connections.throttled_seconds(leader.broker_id)
                if not left_seconds:
                    yield connections
                    return
            silent_since = max(began_at, self._sent_at.get(leader.broker_id, began_at))
            if self._clock.monotonic() + left_seconds - silent_since > LONGEST_SILENCE_SECONDS:
                raise BrokersUnavailableError(
                    f"{what}: the broker throttles this client for {left_seconds:.0f} s more, so it sends nothing for"
                    f" more than {LONGEST_SILENCE_SECONDS:.0f} s; raise consumer_byte_rate of the client quota there: a"
                    " batch that is larger than the quota allows in its window, by default 10 s, is never sent"
                )
            sleep_seconds = min(left_seconds, _LONGEST_SLEEP_SECONDS)
            self._clock.sleep(sleep_seconds)
            self._on_throttled(topic, sleep_seconds)
            go_on()

    @contextmanager
    def _memory(self, max_bytes: int) -> Iterator[memoryview]:
        """Hold a buffer for an answer; one with a larger batch than was asked for does not fit, and has its own."""
        buffer = self._buffers.get()
        try:
            if len(buffer) < max_bytes + _ANSWER_OVERHEAD_BYTES:
                buffer = bytearray(max_bytes + _ANSWER_OVERHEAD_BYTES)
            yield memoryview(buffer)
        finally:
            self._buffers.put(buffer)

    def keep_pace(self, leader: Leader, max_bytes: int, go_on: Callable[[], object]) -> None:
        """Wait until a read of at most `max_bytes` may begin; reads from one broker begin one after the other."""
        with self._lock:
            begins_at = max(self._free_at.get(leader.broker_id, 0.0), self._clock.monotonic())
            self._free_at[leader.broker_id] = begins_at + max_bytes / self._bytes_per_second
        while (left_seconds := begins_at - self._clock.monotonic()) > 0:
            self._clock.sleep(min(left_seconds, _LONGEST_SLEEP_SECONDS))
            go_on()

    def _return(self, leader: Leader, unread_bytes: int) -> None:
        """Let the next read begin earlier by what this one did not read; later, if it read more than it asked for."""
        with self._lock:
            self._free_at[leader.broker_id] -= unread_bytes / self._bytes_per_second

    def epoch_end(self, partition: TopicIdPartition, leader: Leader, leader_epoch: int) -> EpochEnd:
        named = TopicPartition(partition.topic, partition.partition)
        with self._connected(leader, reads=False) as connections:
            ends = _sent(connections, leader, OffsetForLeaderEpoch(named, leader.leader_epoch, leader_epoch))
        what = f"end of leader epoch {leader_epoch} of {partition} from broker {leader.broker_id}"
        found = ends.get(named)
        if found is None:
            raise BrokersRefusedError(f"{what}: the response does not contain it")
        if found.error:
            raise _refused(found.error, what, "Describe", partition)
        return found

    @contextmanager
    def _connected(self, leader: Leader, *, reads: bool) -> Iterator[ClusterConnections]:
        """Hold a connection to a leader: other threads wait for it, and not for those to other leaders."""
        key = leader.broker_id, reads
        with self._lock:
            if key not in self._leaders:
                self._leaders[key] = threading.Lock(), ClusterConnections(self._login, self._clock)
            lock, connections = self._leaders[key]
        with lock:
            yield connections


def _sent(
    connections: ClusterConnections, leader: Leader, request: Request[_Answer], memory: memoryview | None = None
) -> _Answer:
    """Send a request. If the broker does not answer, ask for its address, which may be another one now."""
    try:
        return connections.send(leader.broker_id, request, memory)
    except BrokersUnavailableError:
        with suppress(BrokersError):
            connections.find_brokers()
        raise


def _refused(code: int, what: str, operation: str, partition: TopicIdPartition) -> BrokersError:
    """Return the error for a partition's code; it names the ACL that is missing, by the operation of the request."""
    missing = f"the ACL that allows {operation} on topic {partition.topic} is missing"
    return refusal(code, what, missing if code == _TOPIC_AUTHORIZATION_FAILED else None)
