"""`LeaderLogs` over the connections of the project, which wait out the throttle times of brokers."""

import threading
from contextlib import suppress
from typing import Final, TypeVar

from include.tiering.clock import Clock
from include.tiering.errors import BrokersError, BrokersRefusedError, BrokersUnavailableError
from include.tiering.kafka.fetch_api.contract import Leader
from include.tiering.kafka.protocol.cluster_requests import Metadata
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
"""How long a broker may wait for the first byte. We ask below the high watermark, where it waits for nothing."""
_TOPIC_AUTHORIZATION_FAILED: Final = 29

_Answer = TypeVar("_Answer")


class KafkaLeaderLogs:
    """The logs of leaders, read by one request at a time for any number of threads.

    Args:
        login: how to connect.
        clock: for timeouts and throttle times.
    """

    def __init__(self, login: BrokerLogin, clock: Clock) -> None:
        self._connections = ClusterConnections(login, clock)
        self._lock = threading.Lock()

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
            answer = self._send(leader, request)
        what = f"fetch of {partition} from offset {offset} from broker {leader.broker_id}"
        found = answer.partitions.get((partition.topic_id, partition.partition))
        if answer.error:
            raise refusal(answer.error, what)
        if found is None:
            raise BrokersRefusedError(f"{what}: the response does not contain it")
        if found.error:
            raise _refused(found.error, what, "Read", partition)
        return found

    def epoch_end(self, partition: TopicIdPartition, leader: Leader, leader_epoch: int) -> EpochEnd:
        named = TopicPartition(partition.topic, partition.partition)
        with self._lock:
            request = OffsetForLeaderEpoch(named, leader.leader_epoch, leader_epoch)
            ends = self._send(leader, request)
        what = f"end of leader epoch {leader_epoch} of {partition} from broker {leader.broker_id}"
        found = ends.get(named)
        if found is None:
            raise BrokersRefusedError(f"{what}: the response does not contain it")
        if found.error:
            raise _refused(found.error, what, "Describe", partition)
        return found

    def _send(self, leader: Leader, request: Request[_Answer]) -> _Answer:
        """Send a request. If the broker does not answer, ask for its address, which may be another one now."""
        try:
            return self._connections.send(leader.broker_id, request)
        except BrokersUnavailableError:
            with suppress(BrokersError):
                self._connections.metadata(Metadata())
            raise


def _refused(code: int, what: str, operation: str, partition: TopicIdPartition) -> BrokersError:
    """Return the error for a partition's code; it names the ACL that is missing, by the operation of the request."""
    missing = f"the ACL that allows {operation} on topic {partition.topic} is missing"
    return refusal(code, what, missing if code == _TOPIC_AUTHORIZATION_FAILED else None)
