"""Connections to brokers: TCP, TLS, SASL, then one request after the other, each with a deadline.

| failure | error |
|---|---|
| unknown host; connection refused, reset or closed; no response in time | BrokersUnavailableError |
| TLS fails (for example, a certificate is not trusted); the SASL login is refused | BrokersLoginError |
| the broker sends no Kafka response, or does not support the request's version | BrokersRefusedError |

Each failure closes the connection, with two exceptions: the broker does not support the version of a request, or it
throttles the client for longer than a request may take (BrokersUnavailableError). No error and no log line contains a
password or the raw bytes of a request or response. `ClusterConnections` opens connections to the brokers of one cluster
when they are needed, and keeps them open for later requests.

A broker that throttles a client answers at once, and then reads nothing from the connection for the throttle time. The
next request waits for the end of that time before its own timeout begins. A caller that has to be able to end the wait
asks for `throttled_seconds` first.
"""

import secrets
import select
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from include.tiering.clock import Clock
from include.tiering.errors import (
    BrokersError,
    BrokersLoginError,
    BrokersRefusedError,
    BrokersUnavailableError,
    FormatError,
    printable,
)
from include.tiering.formats.primitive_types import Buffer
from include.tiering.kafka.protocol.cluster_requests import ApiVersions, ApiVersionsAnswer, Metadata, MetadataAnswer
from include.tiering.kafka.protocol.login import HASHES, Address, BrokerLogin, SaslAuthenticate, SaslHandshake, Scram
from include.tiering.kafka.protocol.messages import (
    Request,
    frame_request,
    parse_response,
    refusal,
    throttle_ms_of,
)

MAX_FRAME_BYTES: Final = 128 << 20
MAX_LOGIN_FRAME_BYTES: Final = 64 << 10
"""Limit of a response before the login is complete, from an unknown sender. Kafka's own have some 100 bytes then."""
_NONCE_BYTES: Final = 18

_Answer = TypeVar("_Answer")


class BrokerConnection:
    """A connection for one thread at a time, opened by `to`. `versions` is the broker's ApiVersions response."""

    def __init__(self, address: Address, login: BrokerLogin, clock: Clock) -> None:
        self._address = address
        self._login = login
        self._clock = clock
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        self._max_frame_bytes = MAX_LOGIN_FRAME_BYTES
        self._throttled_until = clock.monotonic()
        self.versions = ApiVersionsAnswer(0, {}, {}, {})

    @classmethod
    def to(cls, address: Address, login: BrokerLogin, clock: Clock) -> "BrokerConnection":
        """Connect and log in; each step gets at most what is left of the timeout of one request.

        Raises:
            BrokersError: see the table above.
        """
        connection = cls(address, login, clock)
        deadline = clock.monotonic() + login.timeout_ms / 1000
        with connection._failures():
            connection._connect(deadline)
            connection._exchange_versions(deadline)
            if login.has_sasl:
                connection._authenticate(deadline)
        connection._max_frame_bytes = MAX_FRAME_BYTES
        return connection

    def is_usable(self) -> bool:
        """Return whether the connection is open. Readable data between requests means that the broker has closed it."""
        if self._socket is None:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if poll.poll(0):
            self.close()
        return self._socket is not None

    def send(self, request: Request[_Answer], memory: memoryview | None = None) -> _Answer:
        """Send a request and return its answer. The caller must handle the error codes in the answer.

        Args:
            request: the request.
            memory: where the response is received, if it fits: parts of the answer may then lie there.

        Raises:
            BrokersError: see the table above.
        """
        if not self.supports(request.api_key, request.version):
            raise BrokersRefusedError(
                f"broker {self._address} does not support {request.name} {request.version}; Kafka 3.6 or newer does"
            )
        self._wait_out_throttle(request)
        with self._failures():
            return self._exchange(request, self._clock.monotonic() + self._login.timeout_ms / 1000, memory)

    def supports(self, api_key: int, version: int) -> bool:
        least, greatest = self.versions.apis.get(api_key, (0, -1))
        return least <= version <= greatest

    def throttled_seconds(self) -> float:
        """Return for how long the broker reads nothing from the connection; 0 if it reads."""
        return max(0.0, self._throttled_until - self._clock.monotonic())

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
        self._socket = None

    def _wait_out_throttle(self, request: Request[object]) -> None:
        """Wait until the broker reads from the connection again.

        Raises:
            BrokersUnavailableError: it will not within the timeout of a request; the connection stays open.
        """
        left_ms = round(1000 * self.throttled_seconds())
        if left_ms > self._login.timeout_ms:
            raise BrokersUnavailableError(
                f"broker {self._address} throttles this client for {left_ms} ms more, and {request.name} waits at most"
                f" {self._login.timeout_ms} ms; raise the client's quota there"
            )
        if left_ms > 0:
            self._clock.sleep(left_ms / 1000)

    def _connect(self, deadline: float) -> None:
        context = self._login.tls_context() if self._login.has_tls else None
        raw = socket.create_connection((self._address.host, self._address.port), timeout=self._left(deadline))
        self._socket = raw
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            raw.settimeout(self._left(deadline))
            self._socket = context.wrap_socket(raw, server_hostname=self._address.host)

    def _exchange_versions(self, deadline: float) -> None:
        request = ApiVersions()
        self.versions = self._exchange(request, deadline)
        if self.versions.error:
            raise refusal(self.versions.error, f"broker {self._address}, {request.name} {request.version}")

    def _authenticate(self, deadline: float) -> None:
        mechanism, username, password = self._login.mechanism, self._login.username, self._login.password
        if mechanism is None or username is None or password is None:
            raise BrokersLoginError(
                f"broker {self._address}: {self._login.protocol} needs sasl.mechanism, sasl.username and sasl.password"
            )
        handshake = self._exchange(SaslHandshake(mechanism), deadline)
        if handshake.error:
            enabled = ", ".join(map(printable, handshake.mechanisms)) or "none"
            raise refusal(handshake.error, f"broker {self._address}, SASL {mechanism}", f"enabled are {enabled}")
        if mechanism not in HASHES:
            self._token(f"\0{username}\0{password}".encode(), deadline)
            return
        scram = Scram(mechanism, username, password, secrets.token_urlsafe(_NONCE_BYTES))
        scram.check(self._token(scram.final(self._token(scram.first(), deadline)), deadline))

    def _token(self, token: bytes, deadline: float) -> bytes:
        answer = self._exchange(SaslAuthenticate(token), deadline)
        if answer.error:
            user = f"user {printable(self._login.username or '')} by {self._login.mechanism}"
            raise refusal(answer.error, f"broker {self._address}, {user}", answer.message)
        return answer.token

    def _exchange(self, request: Request[_Answer], deadline: float, memory: memoryview | None = None) -> _Answer:
        if self._socket is None:
            raise BrokersUnavailableError(f"broker {self._address}: the connection was closed")
        self._correlation_id += 1
        self._socket.settimeout(self._left(deadline))
        self._socket.sendall(frame_request(request, self._correlation_id))
        size = int.from_bytes(self._receive(4, deadline), signed=True)
        if not 0 <= size <= self._max_frame_bytes:
            raise BrokersRefusedError(
                f"{self._address} answers with a frame of {size} bytes: it is no Kafka broker, or a listener of another"
                f" protocol than {self._login.protocol}"
            )
        message: Buffer
        if memory is None or len(memory) < size:
            message = self._receive(size, deadline)
        else:
            message = memory[:size]
            self._receive_into(message, deadline)
        answer = parse_response(request, self._correlation_id, message, lambda: self._left(deadline))
        self._throttled_until = self._clock.monotonic() + throttle_ms_of(request, message) / 1000
        return answer

    def _receive(self, size: int, deadline: float) -> bytes:
        received = bytearray()
        while len(received) < size and self._socket is not None:
            self._socket.settimeout(self._left(deadline))
            block = self._socket.recv(min(size - len(received), 1 << 20))
            if not block:
                raise ConnectionResetError(0, "closed the connection")
            received += block
        return bytes(received)

    def _receive_into(self, message: memoryview, deadline: float) -> None:
        while message and self._socket is not None:
            self._socket.settimeout(self._left(deadline))
            count = self._socket.recv_into(message)
            if not count:
                raise ConnectionResetError(0, "closed the connection")
            message = message[count:]

    def _left(self, deadline: float) -> float:
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Close the connection on any exception. Turn network and format errors into a BrokersError."""
        try:
            yield
        except (OSError, FormatError) as error:
            self.close()
            raise self._named(error) from error
        except BaseException:
            self.close()
            raise

    def _named(self, error: OSError | FormatError) -> BrokersError:
        broker = f"broker {self._address}"
        hint = f"; does its listener use {self._login.protocol}?"
        match error:
            case FormatError():
                return BrokersRefusedError(f"{broker} sends no response of Kafka's protocol: {error}")
            case TimeoutError():
                return BrokersUnavailableError(f"{broker}: no answer within {self._login.timeout_ms} ms")
            case socket.gaierror():
                return BrokersUnavailableError(f"{broker}: its host is not found ({error.strerror})")
            case ssl.SSLCertVerificationError():
                return BrokersLoginError(f"{broker}: its certificate is refused: {error.verify_message}")
            case ssl.SSLEOFError() | ConnectionResetError() | BrokenPipeError():
                return BrokersUnavailableError(f"{broker} closed the connection{hint}")
            case ssl.SSLError():
                words = (error.reason or "unknown reason").replace("_", " ").lower()
                return BrokersLoginError(f"{broker}: TLS failed: {words}{hint}")
            case _:
                return BrokersUnavailableError(f"{broker}: {(error.strerror or type(error).__name__).lower()}")


class ClusterConnections:
    """Connections to the brokers of a cluster, for one thread at a time.

    Every method except `close` may raise BrokersError, and may be called again after that.
    """

    def __init__(self, login: BrokerLogin, clock: Clock) -> None:
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

    def send_to_any(self, request: Request[_Answer]) -> _Answer:
        """Send a request to the bootstrap server that is connected, or else to the first that can be connected."""
        if self._first is None or not self._first.is_usable():
            self._first = self._bootstrap()
        return self._first.send(request)

    def send(self, broker_id: int, request: Request[_Answer], memory: memoryview | None = None) -> _Answer:
        """Send a request to a broker; for `memory` see `BrokerConnection.send`."""
        return self._to(broker_id).send(request, memory)

    def throttled_seconds(self, broker_id: int) -> float:
        """Return for how long the broker reads nothing from this connection; 0 if it reads, or is not connected."""
        kept = self._connections.get(broker_id)
        return 0.0 if kept is None or not kept.is_usable() else kept.throttled_seconds()

    def metadata(self, request: Metadata) -> MetadataAnswer:
        """Request metadata, store the brokers' addresses, and close connections to brokers not in the answer."""
        answer = self.send_to_any(request)
        addresses = {broker.broker_id: Address(broker.host, broker.port) for broker in answer.brokers}
        for broker_id in self._connections.keys() - addresses.keys():
            self._connections.pop(broker_id).close()
        self._addresses = addresses
        return answer

    def find_brokers(self) -> None:
        """Request the brokers' addresses again."""
        self.metadata(Metadata())

    def versions(self, broker_id: int) -> ApiVersionsAnswer:
        """Return the broker's ApiVersions response, received when the connection was opened."""
        return self._to(broker_id).versions

    def supports(self, broker_id: int, request: Request[object]) -> bool:
        """Return whether the broker supports the version of the request."""
        return self._to(broker_id).supports(request.api_key, request.version)

    def _to(self, broker_id: int) -> BrokerConnection:
        kept = self._connections.get(broker_id)
        if kept is not None and kept.is_usable():
            return kept
        if broker_id not in self._addresses:
            self.find_brokers()
        address = self._addresses.get(broker_id)
        if address is None:
            known = ", ".join(map(str, sorted(self._addresses))) or "none"
            raise BrokersRefusedError(f"there is no broker {broker_id}: the cluster has {known}")
        connection = BrokerConnection.to(address, self._login, self._clock)
        self._connections[broker_id] = connection
        return connection

    def _bootstrap(self) -> BrokerConnection:
        """Connect to the first bootstrap server that answers. A refusal (login, authorisation) is raised at once."""
        failures = []
        for address in self._login.servers:
            try:
                return BrokerConnection.to(address, self._login, self._clock)
            except BrokersUnavailableError as error:
                failures.append(str(error))
        raise BrokersUnavailableError("no bootstrap server answers: " + "; ".join(failures))
