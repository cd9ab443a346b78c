"""Addresses, TLS and SASL of brokers, from the configuration of a librdkafka client.

SASL over Kafka's protocol:

SaslHandshake 1, in the old encoding (strings after an int16 length, arrays after an int32 count): mechanism string
    -> error int16 | mechanisms string array
SaslAuthenticate 2: bytes | tags
    -> error int16 | message nullable string | bytes | session lifetime ms int64 | tags

`Scram` is the client's side of SCRAM (RFC 5802, RFC 7677): the client proves that it has the password without sending
the password, and the server must prove that it has the credential that was derived from the password.
"""

import base64
import binascii
import hashlib
import hmac
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from include.tiering.errors import BrokersLoginError, FormatError, SettingError, printable
from include.tiering.formats.primitive_types import Reader, Writer
from include.tiering.kafka.protocol.messages import read_int16, read_text

DEFAULT_TIMEOUT_MS: Final = 10_000


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{printable(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerLogin:
    """How to connect and log in. `repr` and `str` leave out the passwords."""

    servers: tuple[Address, ...]
    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    timeout_ms: int = DEFAULT_TIMEOUT_MS

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @classmethod
    def from_config(cls, config: Mapping[str, str | int]) -> "BrokerLogin":
        """Read librdkafka's configs for addresses, TLS, SASL and the socket timeout; other configs are ignored.

        Raises:
            SettingError: `bootstrap.servers` is missing, or is not a list of host:port.
        """

        def text(name: str) -> str | None:
            value = config.get(name)
            return None if value is None else str(value)

        return cls(
            servers=tuple(map(_address, (text("bootstrap.servers") or "").split(","))),
            protocol=(text("security.protocol") or "PLAINTEXT").upper(),
            mechanism=text("sasl.mechanism"),
            username=text("sasl.username"),
            password=text("sasl.password"),
            ca=text("ssl.ca.location"),
            certificate=text("ssl.certificate.location"),
            key=text("ssl.key.location"),
            key_password=text("ssl.key.password"),
            timeout_ms=int(config.get("socket.timeout.ms", DEFAULT_TIMEOUT_MS)),
        )

    def tls_context(self) -> ssl.SSLContext:
        """Return a context that always checks the broker's certificate and its host name.

        Raises:
            BrokersLoginError: a file is missing or not usable, or the password does not decrypt the key.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise BrokersLoginError(f"ssl.ca.location {self.ca}: {_words(error)}") from error
        if self.certificate is not None:
            try:
                # With an empty password OpenSSL fails; without one it would prompt on the terminal.
                context.load_cert_chain(self.certificate, self.key, password=self.key_password or "")
            except (OSError, ssl.SSLError) as error:
                pair = f"ssl.certificate.location {self.certificate} with ssl.key.location {self.key}"
                raise BrokersLoginError(
                    f"{pair}: {_words(error)}: not PEM, not a pair, or ssl.key.password does not decrypt the key"
                ) from error
        return context


def _address(server: str) -> Address:
    host, _, port = server.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise SettingError(f"bootstrap.servers has {printable(server)!r}: the form is host:port,host:port")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def _words(error: OSError) -> str:
    return error.strerror or type(error).__name__


@dataclass(frozen=True, slots=True)
class HandshakeAnswer:
    error: int
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SaslHandshake:
    name: ClassVar[str] = "SaslHandshake"
    api_key: ClassVar[int] = 17
    flexible_request: ClassVar[bool] = False
    flexible_answer: ClassVar[bool] = False
    has_throttle_time: ClassVar[bool] = False
    version: ClassVar[int] = 1

    mechanism: str

    def body(self) -> bytes:
        encoded = self.mechanism.encode()
        return len(encoded).to_bytes(2) + encoded

    def answer(self, reader: Reader) -> HandshakeAnswer:
        error, count = read_int16(reader), reader.int32()
        if count > reader.remaining:
            raise FormatError(f"{count} mechanisms in {reader.remaining} bytes", reader.position)
        return HandshakeAnswer(error, tuple(_old_string(reader) for _ in range(count)))


@dataclass(frozen=True, slots=True)
class AuthenticateAnswer:
    error: int
    message: str | None
    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SaslAuthenticate:
    name: ClassVar[str] = "SaslAuthenticate"
    api_key: ClassVar[int] = 36
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
    has_throttle_time: ClassVar[bool] = False
    version: ClassVar[int] = 2

    token: bytes = field(repr=False)

    def body(self) -> bytes:
        writer = Writer()
        writer.nullable_bytes(self.token)
        writer.tags(())
        return writer.value()

    def answer(self, reader: Reader) -> AuthenticateAnswer:
        return AuthenticateAnswer(
            read_int16(reader), read_text(reader, "message"), reader.nullable_bytes("token") or b""
        )


def _old_string(reader: Reader) -> str:
    length = read_int16(reader)
    if length > reader.remaining:
        raise FormatError(f"text of {length} bytes in {reader.remaining}", reader.position)
    return bytes(reader.int8() & 0xFF for _ in range(length)).decode("utf-8", errors="replace")


HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS: Final = 4_096
MAX_ITERATIONS: Final = 1_000_000
_NO_CHANNEL_BINDING: Final = "n,,"


class Scram:
    """One SCRAM login, in three steps.

    `first` returns the client's first message. `final` takes the server's first message and returns the client's final
    message. `check` takes the server's final message. `final` and `check` raise BrokersLoginError for messages that no
    server with the credential would send, and `final` also for a number of iterations outside `MIN_ITERATIONS` to
    `MAX_ITERATIONS`.

    Args:
        mechanism: a key of `HASHES`.
        username: the user.
        password: the password.
        nonce: printable ASCII without commas, never used before.
    """

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return (_NO_CHANNEL_BINDING + self._first_bare).encode()

    def final(self, server_first: bytes) -> bytes:
        fields = _fields(server_first)
        nonce, salt, iterations = fields.get("r", ""), _decoded(fields.get("s", "")), fields.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or not salt:
            raise BrokersLoginError("SCRAM: the broker's first message has no nonce or salt of its own")
        if not re.fullmatch("[0-9]{1,9}", iterations) or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise BrokersLoginError(
                f"SCRAM: the broker requires {iterations[:20]!r} iterations; accepted are {MIN_ITERATIONS} to "
                f"{MAX_ITERATIONS}"
            )
        without_proof = f"c={base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={nonce}"
        signed = ",".join((self._first_bare, server_first.decode(), without_proof)).encode()
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, int(iterations))
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        fields = _fields(server_final)
        signature = _decoded(fields.get("v", ""))
        if not self._server_signature or not hmac.compare_digest(signature, self._server_signature):
            raise BrokersLoginError(
                "SCRAM: the broker does not prove that it has the password: is there a man in the middle?"
            )

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise BrokersLoginError("SCRAM: the broker's message is not UTF-8") from None
    return {name: value for name, _, value in (part.partition("=") for part in text.split(","))}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BrokersLoginError("SCRAM: the broker's message is not base64") from None
