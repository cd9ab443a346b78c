"""`LeaderLogs` over the connections of the project.

A broker that throttles a client answers at once, and then reads nothing from the connection for the throttle time. So
no request is sent to it before that time is over; otherwise the time would count against the timeout of the request.
"""

import threading
from typing import Final, TypeVar

from include.tiering.clock import Clock
from include.tiering.errors import BrokersRefusedError
from include.tiering.kafka.fetch_api.contract import Leader
from include.tiering.kafka.protocol.connections import ClusterConnections
from include.tiering.kafka.protocol.fetch_requests import (
    EpochEnd,
    EpochEndsAnswer,
    Fetch,
    FetchAnswer,
    FetchedPartition,
    OffsetForLeaderEpoch,
)
from include.tiering.kafka.protocol.login import BrokerLogin
from include.tiering.kafka.protocol.messages import Request, refusal
from include.tiering.kafka.protocol.partition_requests import TopicPartition
from include.tiering.model.segments import TopicIdPartition

MAX_WAIT_MS: Final = 500
"""How long a broker may wait for the first byte. We ask below the high watermark, where it waits for nothing."""

_Answer = TypeVar("_Answer", FetchAnswer, EpochEndsAnswer)


class KafkaLeaderLogs:
    """The logs of leaders, read by one request at a time for any number of threads.

    Args:
        login: how to connect.
        clock: for timeouts and throttle times.
    """

    def __init__(self, login: BrokerLogin, clock: Clock) -> None:
        self._connections = ClusterConnections(login, clock)
        self._clock = clock
        self._lock = threading.Lock()
        self._not_before: dict[int, float] = {}

    def close(self) -> None:
        """Close the connections; a later call connects again."""
        with self._lock:
            self._connections.close()

    def read(self, partition: TopicIdPartition, leader: Leader, offset: int, max_bytes: int) -> FetchedPartition:
        with self._lock:
            version = Fetch.newest_version(self._connections.versions(leader.broker_id).apis)
            request = Fetch(
                partition.topic_id, partition.partition, leader.leader_epoch, offset, max_bytes, MAX_WAIT_MS, version
            )
            answer = self._send(leader.broker_id, request)
        what = f"fetch of {partition} from offset {offset} from broker {leader.broker_id}"
        found = answer.partitions.get((partition.topic_id, partition.partition))
        if answer.error:
            raise refusal(answer.error, what)
        if found is None:
            raise BrokersRefusedError(f"{what}: the response does not contain it")
        if found.error:
            raise refusal(found.error, what)
        return found

    def epoch_end(self, partition: TopicIdPartition, leader: Leader, leader_epoch: int) -> EpochEnd:
        named = TopicPartition(partition.topic, partition.partition)
        with self._lock:
            request = OffsetForLeaderEpoch(named, leader.leader_epoch, leader_epoch)
            answer = self._send(leader.broker_id, request)
        what = f"end of leader epoch {leader_epoch} of {partition} from broker {leader.broker_id}"
        found = answer.ends.get(named)
        if found is None:
            raise BrokersRefusedError(f"{what}: the response does not contain it")
        if found.error:
            raise refusal(found.error, what)
        return found

    def _send(self, broker_id: int, request: Request[_Answer]) -> _Answer:
        self._clock.sleep(self._not_before.get(broker_id, 0) - self._clock.monotonic())
        answer = self._connections.send(broker_id, request)
        self._not_before[broker_id] = self._clock.monotonic() + answer.throttle_ms / 1000
        return answer
