"""How a broker is reached and who asks: read from the configuration that a librdkafka client would be given."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from include.tiering.errors import BrokersLoginError, SettingError, printable

DEFAULT_TIMEOUT_MS: Final = 10_000


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{printable(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class Login:
    """Its text shows no password."""

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
    def from_config(cls, config: Mapping[str, str | int]) -> "Login":
        """Of the names of librdkafka those that reach and log in; the others are left alone.

        Raises:
            SettingError: `bootstrap.servers` is missing, or no list of host:port.
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
        """Checks the broker's certificate and its name, whatever is set.

        Raises:
            BrokersLoginError: a file is missing, no PEM, or a key that the password does not open.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise BrokersLoginError(f"ssl.ca.location {self.ca}: {_words(error)}") from error
        if self.certificate is not None:
            try:
                # With an empty password OpenSSL fails; without one it would ask on the terminal.
                context.load_cert_chain(self.certificate, self.key, password=self.key_password or "")
            except (OSError, ssl.SSLError) as error:
                pair = f"ssl.certificate.location {self.certificate} with ssl.key.location {self.key}"
                raise BrokersLoginError(
                    f"{pair}: {_words(error)}: not PEM, not a pair, or ssl.key.password does not open the key"
                ) from error
        return context


def _address(server: str) -> Address:
    host, _, port = server.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise SettingError(f"bootstrap.servers holds {printable(server)!r}: accepted is host:port,host:port")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def _words(error: OSError) -> str:
    return error.strerror or type(error).__name__
