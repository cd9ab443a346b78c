"""Connections to brokers, and their logins."""

import socket
import ssl
import threading
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from include.tiering.clock import SystemClock
from include.tiering.errors import (
    BrokersError,
    BrokersLoginError,
    BrokersRefusedError,
    BrokersUnavailableError,
    SettingError,
)
from include.tiering.formats.primitive_types import write_uvarint
from include.tiering.kafka.protocol.cluster_requests import ApiVersionsAnswer, Metadata
from include.tiering.kafka.protocol.connections import MAX_LOGIN_FRAME_BYTES, BrokerConnection, ClusterConnections
from include.tiering.kafka.protocol.login import Address, BrokerLogin, Scram
from include.tiering.kafka.protocol.messages import parse_response, refusal
from tests.doubles.manual_clock import ManualClock
from tests.doubles.partial import Partial
from tests.doubles.scripted_servers import API_VERSIONS, Script, api_versions, frame, scripted_broker

# What is met on the way to a broker, as errors that name it, say whether to try again, and hold no secret.

SECRET = "hunter2"
METADATA = 3
NO_LOGIN = BrokerLogin((), timeout_ms=60_000)
WITH_PASSWORD = replace(NO_LOGIN, protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="me", password=SECRET)
EMPTY_METADATA = bytes(4) + b"\x01" + b"\x04cid" + bytes(4) + b"\x01" + b"\0"


def _login(*addresses: Address, timeout_ms: int = 60_000) -> BrokerLogin:
    return BrokerLogin(tuple(addresses), timeout_ms=timeout_ms)


def _connection(script: Script, login: BrokerLogin = NO_LOGIN) -> BrokersError:
    """What connecting, and one question, ends in."""
    with scripted_broker(script) as address:
        connections = ClusterConnections(replace(login, servers=(address,)), SystemClock())
        with closing(connections), pytest.raises(BrokersError) as caught:
            connections.send_to_any(Metadata())
    assert str(address) in str(caught.value)
    assert SECRET not in str(caught.value)
    return caught.value


def _answers(api_key: int, correlation_id: bytes) -> bytes | None:
    if api_key == API_VERSIONS:
        return api_versions(correlation_id)
    return frame(correlation_id, EMPTY_METADATA)


def test_a_question_is_answered() -> None:
    with scripted_broker(_answers) as address:
        connection = BrokerConnection.to(address, _login(address), SystemClock())
        assert connection.send(Metadata()).cluster_id == "cid"
        assert connection.is_usable()
        connection.close()
        assert not connection.is_usable()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(*server.getsockname())
    with pytest.raises(BrokersUnavailableError, match=f"broker {address}: connection refused"):
        BrokerConnection.to(address, _login(address), SystemClock())


def test_a_broker_that_says_nothing_is_waited_for_until_the_time_is_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(*server.getsockname())
        with pytest.raises(BrokersUnavailableError, match=f"broker {address}: no answer within 50 ms"):
            BrokerConnection.to(address, _login(address, timeout_ms=50), SystemClock())


def test_a_connection_that_is_closed_may_be_tried_again() -> None:
    error = _connection(lambda key, correlation: None)
    assert isinstance(error, BrokersUnavailableError)
    assert "closed the connection; does its listener use PLAINTEXT?" in str(error)


def test_another_protocol_is_not_taken_for_a_frame() -> None:
    error = _connection(lambda key, correlation: b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert isinstance(error, BrokersRefusedError)
    assert "it is no Kafka broker, or a listener of another protocol than PLAINTEXT" in str(error)


def test_an_answer_to_something_else_is_refused() -> None:
    error = _connection(lambda key, correlation: api_versions(b"\0\0\0\x63"))
    assert isinstance(error, BrokersRefusedError)
    assert "the response belongs to request 99, not 1" in str(error)


def test_bytes_that_are_no_answer_are_refused() -> None:
    def garbage(key: int, correlation: bytes) -> bytes | None:
        return api_versions(correlation) if key == API_VERSIONS else frame(correlation, b"\xff" * 30)

    assert isinstance(_connection(garbage), BrokersRefusedError)


def test_a_broker_that_is_too_old_is_named_with_what_it_lacks() -> None:
    error = _connection(lambda key, correlation: frame(correlation, b"\0\0\x01" + bytes(4) + b"\0", flexible=False))
    assert "does not support Metadata 12; Kafka 3.6 or newer does" in str(error)


def test_tls_to_a_listener_without_it() -> None:
    error = _connection(_answers, replace(NO_LOGIN, protocol="SSL"))
    assert isinstance(error, (BrokersLoginError, BrokersUnavailableError))
    assert "does its listener use SSL?" in str(error)


def test_a_password_that_is_refused_is_not_repeated() -> None:
    def refuses(key: int, correlation: bytes) -> bytes | None:
        if key == 17:
            return frame(correlation, b"\0\0" + (1).to_bytes(4) + b"\0\x05PLAIN", flexible=False)
        if key == 36:
            return frame(correlation, (58).to_bytes(2) + b"\x16Authentication failed" + b"\x01" + bytes(8) + b"\0")
        return _answers(key, correlation)

    error = _connection(refuses, WITH_PASSWORD)
    assert isinstance(error, BrokersLoginError)
    assert "user me by PLAIN: login failed (Authentication failed)" in str(error)


def test_a_mechanism_that_is_not_enabled_is_named_with_those_that_are() -> None:
    def refuses(key: int, correlation: bytes) -> bytes | None:
        if key == 17:
            return frame(correlation, (33).to_bytes(2) + (1).to_bytes(4) + b"\0\x06GSSAPI", flexible=False)
        return _answers(key, correlation)

    error = _connection(refuses, WITH_PASSWORD)
    assert isinstance(error, BrokersLoginError)
    assert "enabled are GSSAPI" in str(error)


def test_a_login_is_read_from_a_librdkafka_configuration_and_shows_no_secret() -> None:
    login = BrokerLogin.from_config(
        {
            "bootstrap.servers": "a:1, [::1]:2",
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "me",
            "sasl.password": SECRET,
            "ssl.key.password": SECRET,
            "socket.timeout.ms": 5,
            "client.id": "x",
        }
    )
    assert login.servers == (Address("a", 1), Address("::1", 2))
    assert (login.has_tls, login.has_sasl, login.password, login.timeout_ms) == (True, True, SECRET, 5)
    assert SECRET not in repr(login)


def test_what_a_configuration_leaves_out_has_the_defaults_of_the_client() -> None:
    login = BrokerLogin.from_config({"bootstrap.servers": "kafka-1:9092"})
    assert login == BrokerLogin(
        (Address("kafka-1", 9092),),
        protocol="PLAINTEXT",
        mechanism=None,
        username=None,
        password=None,
        ca=None,
        certificate=None,
        key=None,
        key_password=None,
        timeout_ms=10_000,
    )


@pytest.mark.parametrize(
    ("protocol", "has_tls", "has_sasl"),
    [
        ("PLAINTEXT", False, False),
        ("SSL", True, False),
        ("SASL_PLAINTEXT", False, True),
        ("SASL_SSL", True, True),
    ],
)
def test_what_each_protocol_means(protocol: str, has_tls: bool, has_sasl: bool) -> None:
    login = BrokerLogin.from_config({"bootstrap.servers": "a:1", "security.protocol": protocol.lower()})
    assert (login.has_tls, login.has_sasl) == (has_tls, has_sasl)


def test_the_certificate_and_the_host_name_of_a_broker_are_always_checked() -> None:
    context = NO_LOGIN.tls_context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("port", [1, 65_535])
def test_every_port_there_is(port: int) -> None:
    assert BrokerLogin.from_config({"bootstrap.servers": f" a:{port} "}).servers == (Address("a", port),)


@pytest.mark.parametrize("servers", ["", "a", "a:", "a:x", "a:0", "a:65536", "a:70000", "a:-1", ":9", "a:1,"])
def test_servers_that_are_none(servers: str) -> None:
    with pytest.raises(SettingError, match="host:port"):
        BrokerLogin.from_config({"bootstrap.servers": servers})


def test_files_of_tls_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("not PEM")
    with pytest.raises(BrokersLoginError, match=r"ssl\.ca\.location .*broken\.pem"):
        replace(NO_LOGIN, ca=str(broken)).tls_context()
    with pytest.raises(BrokersLoginError, match=r"ssl\.certificate\.location .*broken\.pem"):
        replace(NO_LOGIN, certificate=str(broken), key=str(broken)).tls_context()


def test_servers_that_do_not_answer_are_passed_over_and_all_of_them_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = Address(*server.getsockname())
    with scripted_broker(_answers) as address:
        connections = ClusterConnections(_login(silent, address), SystemClock())
        assert connections.send_to_any(Metadata()).cluster_id == "cid"
        connections.close()
    with pytest.raises(BrokersUnavailableError, match=f"no bootstrap server answers: broker {silent}: .*; broker"):
        ClusterConnections(_login(silent, silent), SystemClock()).send_to_any(Metadata())


def _throttles(throttle_ms: int) -> Script:
    """Each answer asks for this pause."""

    def answers(key: int, correlation: bytes) -> bytes | None:
        if key == API_VERSIONS:
            return api_versions(correlation)
        return frame(correlation, throttle_ms.to_bytes(4, signed=True) + EMPTY_METADATA[4:])

    return answers


def test_a_broker_that_throttles_is_asked_again_after_that_time() -> None:
    clock = ManualClock()
    with scripted_broker(_throttles(1_500)) as address:
        connection = BrokerConnection.to(address, _login(address), clock)
        with closing(connection):
            connection.send(Metadata())
            assert clock.slept == []
            clock.advance(0.5)
            connection.send(Metadata())
            assert clock.slept == [pytest.approx(1)]
            clock.advance(2)
            connection.send(Metadata())
            assert len(clock.slept) == 1


def test_a_throttle_time_above_the_timeout_is_not_waited_for() -> None:
    clock = ManualClock()
    with scripted_broker(_throttles(60_001)) as address:
        connection = BrokerConnection.to(address, _login(address), clock)
        with closing(connection):
            connection.send(Metadata())
            with pytest.raises(BrokersUnavailableError, match="throttles this client for 60001 ms more, and Metadata"):
                connection.send(Metadata())
            assert clock.slept == []
            clock.advance(1)
            assert connection.send(Metadata()).cluster_id == "cid"


def test_a_throttle_time_below_zero_is_no_answer() -> None:
    error = _connection(_throttles(-1))
    assert isinstance(error, BrokersRefusedError)
    assert "the throttle time is -1 ms" in str(error)


def test_a_server_that_refuses_the_login_is_believed() -> None:
    with scripted_broker(lambda key, correlation: b"HTTP/1.1") as address, scripted_broker(_answers) as other:
        connections = ClusterConnections(_login(address, other), SystemClock())
        with pytest.raises(BrokersRefusedError):
            connections.send_to_any(Metadata())


def test_a_connection_that_the_broker_closed_between_questions_is_made_again() -> None:
    asked: list[bytes] = []

    def closes_after_each_answer(key: int, correlation: bytes) -> bytes | None:
        asked.append(correlation)
        return _answers(key, correlation)

    with scripted_broker(closes_after_each_answer) as address:
        connections = ClusterConnections(_login(address), SystemClock())
        for _ in range(3):
            assert connections.send_to_any(Metadata()).cluster_id == "cid"
        connections.close()
    assert len(asked) == 1 + 3


def test_a_broker_that_is_not_there_is_named_with_those_that_are() -> None:
    with scripted_broker(_answers) as address:
        connections = ClusterConnections(_login(address), SystemClock())
        with pytest.raises(BrokersRefusedError, match="there is no broker 7: the cluster has none"):
            connections.send(7, Metadata())
        connections.close()


# SCRAM against the example of RFC 7677, and against servers that do not know the password.

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


PASSWORD = "pencil"


def _scram(password: str = PASSWORD, username: str = "user") -> Scram:
    return Scram("SCRAM-SHA-256", username, password, NONCE)


def test_the_example_of_the_rfc() -> None:
    scram = _scram()
    assert scram.first() == b"n,,n=user,r=" + NONCE.encode()
    assert scram.final(SERVER_FIRST) == CLIENT_FINAL
    scram.check(SERVER_FINAL)


def test_a_user_with_the_marks_of_the_protocol_is_escaped() -> None:
    assert _scram(username="a=b,c").first() == b"n,,n=a=3Db=2Cc,r=" + NONCE.encode()


def test_another_password_gives_another_proof_and_refuses_the_server() -> None:
    scram = _scram("pen")
    assert scram.final(SERVER_FIRST) != CLIENT_FINAL
    with pytest.raises(BrokersLoginError, match="does not prove that it has the password"):
        scram.check(SERVER_FINAL)


def test_a_server_that_skips_the_exchange_proves_nothing() -> None:
    with pytest.raises(BrokersLoginError, match="does not prove"):
        _scram().check(b"v=")


@pytest.mark.parametrize(
    "server_first",
    [
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z!,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1000001",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=" + b"9" * 5000,
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=-1",
        b"\xff\xfe",
        b"",
    ],
)
def test_what_no_honest_server_says_is_refused(server_first: bytes) -> None:
    with pytest.raises(BrokersLoginError, match="SCRAM") as caught:
        _scram().final(server_first)
    assert PASSWORD not in str(caught.value)


# What a listener that is no broker may send before anybody knows who it is.


def test_a_large_answer_before_the_login_is_refused_before_it_is_read() -> None:
    error = _connection(lambda key, correlation: (MAX_LOGIN_FRAME_BYTES + 1).to_bytes(4))
    assert isinstance(error, BrokersRefusedError)
    assert f"a frame of {MAX_LOGIN_FRAME_BYTES + 1} bytes" in str(error)


def test_the_largest_answer_before_the_login_is_read_and_one_of_no_bytes_is_no_answer() -> None:
    def announces(size: int) -> Script:
        return lambda key, correlation: size.to_bytes(4, signed=True) + bytes(max(0, size))

    assert "a frame of" not in str(_connection(announces(MAX_LOGIN_FRAME_BYTES)))
    assert "a frame of -1 bytes" in str(_connection(announces(-1)))
    empty = _connection(announces(0))
    assert isinstance(empty, BrokersRefusedError)
    assert "a frame of" not in str(empty)


def test_a_broker_that_is_logged_in_may_send_more() -> None:
    topics = MAX_LOGIN_FRAME_BYTES // 8

    def answers(key: int, correlation: bytes) -> bytes | None:
        if key == API_VERSIONS:
            return api_versions(correlation)
        broker = bytes(4) + b"\x02h" + bytes(4) + b"\0" + b"\0"
        brokers = write_uvarint(topics + 1) + broker * topics
        return frame(correlation, bytes(4) + brokers + b"\x04cid" + bytes(4) + b"\x01" + b"\0")

    with scripted_broker(answers) as address:
        connection = BrokerConnection.to(address, _login(address), SystemClock())
        assert len(connection.send(Metadata()).brokers) == topics
        connection.close()


def test_nobody_is_believed_a_frame_above_128_mebibytes() -> None:
    def answers(key: int, correlation: bytes) -> bytes | None:
        return api_versions(correlation) if key == API_VERSIONS else (128 * 1024 * 1024 + 1).to_bytes(4)

    assert "a frame of 134217729 bytes" in str(_connection(answers, _login(timeout_ms=5_000)))


def test_tagged_fields_without_end_are_refused() -> None:
    def answers(key: int, correlation: bytes) -> bytes | None:
        if key == API_VERSIONS:
            return api_versions(correlation)
        return frame(correlation, write_uvarint(1_001) + b"\0\0" * 1_001 + EMPTY_METADATA, flexible=False)

    error = _connection(answers)
    assert isinstance(error, BrokersRefusedError)
    assert "1001 tagged fields, more than 1000" in str(error)


def test_the_time_of_a_request_is_also_that_of_reading_its_answer() -> None:
    brokers = 5_000
    body = bytes(4) + write_uvarint(brokers + 1) + (bytes(4) + b"\x02h" + bytes(4) + b"\0" + b"\0") * brokers
    checks = iter(range(3))

    def is_over() -> None:
        if next(checks, None) is None:
            raise TimeoutError

    message = (1).to_bytes(4) + b"\0" + body + b"\x04cid" + bytes(4) + b"\x01" + b"\0"
    with pytest.raises(TimeoutError):
        parse_response(Metadata(), 1, message, is_over)


def test_a_long_message_of_a_broker_is_cut() -> None:
    assert len(str(refusal(58, "login", "x" * 100_000))) < 2_000


# What went wrong below Kafka's protocol, in words for a person.


def _tls_error(reason: str | None) -> ssl.SSLError:
    error = ssl.SSLError(1, "as OpenSSL says it")
    error.reason = reason  # type: ignore[assignment]
    return error


@pytest.mark.parametrize(
    ("raised", "kind", "words"),
    [
        (TimeoutError(), BrokersUnavailableError, "no answer within 60000 ms"),
        (socket.gaierror(-2, "Name or service not known"), BrokersUnavailableError, "its host is not found (Name or"),
        (ConnectionResetError(), BrokersUnavailableError, "closed the connection; does its listener use SSL?"),
        (BrokenPipeError(), BrokersUnavailableError, "closed the connection; does its listener use SSL?"),
        (OSError(113, "No route to host"), BrokersUnavailableError, "no route to host"),
        (OSError(), BrokersUnavailableError, "oserror"),
        (ssl.SSLEOFError(), BrokersUnavailableError, "closed the connection; does its listener use SSL?"),
        (_tls_error(None), BrokersLoginError, "TLS failed: unknown reason; does its listener use SSL?"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, OSError) else None,
)
def test_each_failure_says_whether_another_try_may_help(
    monkeypatch: pytest.MonkeyPatch, raised: OSError, kind: type[BrokersError], words: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(socket, "create_connection", refuse)
    address = Address("kafka-1", 9092)
    with pytest.raises(BrokersError) as caught:
        BrokerConnection.to(address, replace(_login(address), protocol="SSL"), SystemClock())
    assert (type(caught.value), words in str(caught.value)) == (kind, True), str(caught.value)
    assert str(caught.value).startswith("broker kafka-1:9092")


def test_a_listener_that_answers_tls_with_something_else_is_told_in_words() -> None:
    """OpenSSL's own reason, without underscores."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(*server.getsockname())

        def answer() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(4_096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(4_096)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(BrokersLoginError) as caught:
            BrokerConnection.to(address, replace(_login(address), protocol="SSL"), SystemClock())
        thread.join()
    assert str(caught.value) == f"broker {address}: TLS failed: wrong version number; does its listener use SSL?"


def test_without_the_versions_of_a_broker_nothing_is_supported() -> None:
    address = Address("kafka-1", 9092)
    connection = BrokerConnection(address, _login(address), SystemClock())
    assert not connection.supports(METADATA, 0)
    assert not connection.is_usable()
    with pytest.raises(BrokersRefusedError, match="does not support Metadata"):
        connection.send(Metadata())


@pytest.mark.parametrize(("version", "is_supported"), [(-1, False), (0, True), (20, True), (21, False)])
def test_a_version_is_supported_from_the_lowest_to_the_highest(version: int, is_supported: bool) -> None:
    with scripted_broker(_answers) as address:
        connection = BrokerConnection.to(address, _login(address), SystemClock())
        assert connection.supports(METADATA, version) is is_supported
        assert not connection.supports(1_000, 0)
        connection.close()


@pytest.mark.parametrize(
    "login",
    [
        replace(WITH_PASSWORD, mechanism=None),
        replace(WITH_PASSWORD, username=None),
        replace(WITH_PASSWORD, password=None),
    ],
    ids=["mechanism", "user name", "password"],
)
def test_a_login_needs_its_three_settings(login: BrokerLogin) -> None:
    error = _connection(_answers, login)
    assert isinstance(error, BrokersLoginError)
    assert "SASL_PLAINTEXT needs sasl.mechanism, sasl.username and sasl.password" in str(error)


def test_a_broker_that_enables_no_mechanism_says_none() -> None:
    def refuses(key: int, correlation: bytes) -> bytes | None:
        if key == 17:
            return frame(correlation, (33).to_bytes(2) + bytes(4), flexible=False)
        return _answers(key, correlation)

    assert "enabled are none" in str(_connection(refuses, WITH_PASSWORD))


class TimedSocket(Partial):
    """Sends nothing in its time; keeps the timeout with which it was asked to."""

    def __init__(self) -> None:
        self.timeout: float | None = 0.001
        self.sent_with: float | None = None

    def settimeout(self, seconds: float) -> None:
        self.timeout = seconds

    def sendall(self, _frame: bytes) -> None:
        self.sent_with = self.timeout
        raise TimeoutError

    def close(self) -> None:
        pass


def test_a_request_is_sent_within_its_own_time_and_not_what_the_last_one_left() -> None:
    connection = BrokerConnection(Address("kafka-1", 9092), _login(timeout_ms=7_000), ManualClock())
    connection.versions = ApiVersionsAnswer(0, {Metadata.api_key: (0, Metadata.version)}, {}, {})
    timed = TimedSocket()
    connection._socket = timed
    with pytest.raises(BrokersUnavailableError, match="broker kafka-1:9092: no answer within 7000 ms"):
        connection.send(Metadata())
    assert timed.sent_with == 7.0
