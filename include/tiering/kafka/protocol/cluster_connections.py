"""Connections to the brokers of one cluster, made when they are needed and kept until a broker closes them."""

from collections.abc import Mapping
from typing import TypeVar

from include.tiering.clock import Clock
from include.tiering.errors import BrokersRefusedError, BrokersUnavailableError
from include.tiering.kafka.protocol.cluster_requests import ApiVersionsAnswer, Metadata, MetadataAnswer
from include.tiering.kafka.protocol.connection import BrokerConnection
from include.tiering.kafka.protocol.fields import Request
from include.tiering.kafka.protocol.login import Address, Login

_Answer = TypeVar("_Answer")


class ClusterConnections:
    """Of one thread at a time. Every method may raise BrokersError, after which it may be called again."""

    def __init__(self, login: Login, clock: Clock) -> None:
        self._login = login
        self._clock = clock
        self._first: BrokerConnection | None = None
        self._addresses: Mapping[int, Address] = {}
        self._connections: dict[int, BrokerConnection] = {}

    def close(self) -> None:
        for connection in (*self._connections.values(), self._first):
            if connection is not None:
                connection.close()
        self._connections.clear()
        self._first = None

    def ask_any(self, request: Request[_Answer]) -> _Answer:
        """From the bootstrap server that answered last, or the first that does."""
        if self._first is None or not self._first.is_usable():
            self._first = self._bootstrap()
        return self._first.ask(request)

    def ask(self, broker_id: int, request: Request[_Answer]) -> _Answer:
        return self._to(broker_id).ask(request)

    def metadata(self, request: Metadata) -> MetadataAnswer:
        """Also remembers where the brokers are."""
        answer = self.ask_any(request)
        addresses = {broker.broker_id: Address(broker.host, broker.port) for broker in answer.brokers}
        for broker_id in self._connections.keys() - addresses.keys():
            self._connections.pop(broker_id).close()
        self._addresses = addresses
        return answer

    def versions(self, broker_id: int) -> ApiVersionsAnswer:
        """What that broker speaks, as it said when it was connected to."""
        return self._to(broker_id).versions

    def knows(self, broker_id: int, request: Request[object]) -> bool:
        """Whether the broker is new enough to be asked that."""
        return self._to(broker_id).knows(request.api_key, request.version)

    def _to(self, broker_id: int) -> BrokerConnection:
        kept = self._connections.get(broker_id)
        if kept is not None and kept.is_usable():
            return kept
        if broker_id not in self._addresses:
            self.metadata(Metadata())
        address = self._addresses.get(broker_id)
        if address is None:
            known = ", ".join(map(str, sorted(self._addresses))) or "none"
            raise BrokersRefusedError(f"there is no broker {broker_id}: the cluster has {known}")
        connection = BrokerConnection.to(address, self._login, self._clock)
        self._connections[broker_id] = connection
        return connection

    def _bootstrap(self) -> BrokerConnection:
        """A server that does not answer is passed over; one that refuses us is believed."""
        failures = []
        for address in self._login.servers:
            try:
                return BrokerConnection.to(address, self._login, self._clock)
            except BrokersUnavailableError as error:
                failures.append(str(error))
        raise BrokersUnavailableError("no bootstrap server answers: " + "; ".join(failures))
