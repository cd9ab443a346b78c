"""Connections to brokers: addresses, TLS and SASL of the cluster, and of the publisher's principal.

The names of TLS and SASL settings are librdkafka's, with `_` for its dots. If a setting of the publisher is not set,
that of the cluster is used. But if one part of the publisher's login (user, password) or certificate (certificate, key,
its password) is set, no part of it is taken from the cluster, so that the parts belong together.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, SecretStr

from include.tiering.errors import SettingError, printable
from include.tiering.settings.fields import MOST_INT, Section
from include.tiering.settings.secret_files import open_to_others

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

DEFAULT_PROTOCOL: Final = "PLAINTEXT"
DEFAULT_TIMEOUT_MS: Final = 10_000
LEAST_TIMEOUT_MS: Final = 100
DEFAULT_PUBLISHER_ID: Final = 424_242
DEFAULT_SETTLE_MS: Final = 40_000
_SERVER: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9._-]{1,255}):([0-9]{1,5})\Z")
_LOGIN: Final = ("sasl_username", "sasl_password")
_CERTIFICATE: Final = ("ssl_certificate_location", "ssl_key_location", "ssl_key_password")
_TLS: Final = ("ssl_ca_location", *_CERTIFICATE)
_MOST_SOCKET_TIMEOUT_MS: Final = 300_000
"""librdkafka accepts no larger `socket.timeout.ms`, from which our own protocol client also takes its time-out."""


def check_bootstrap_servers(servers: Any) -> Any:
    """Check ``host:port,host:port``, with IPv6 addresses in brackets; spaces are removed."""
    if not isinstance(servers, str):
        return servers
    names = [name.strip() for name in servers.split(",")]
    for name in names:
        found = _SERVER.match(name)
        if found is None or not 0 < int(found[2]) < 1 << 16:
            raise ValueError("accepted is host:port,host:port, such as kafka-1:9092,kafka-2:9092")
    return ",".join(names)


Servers = Annotated[str, BeforeValidator(check_bootstrap_servers)]


class ConnectionSettings(Section):
    """Addresses and credentials of a client."""

    bootstrap_servers: Servers | None = Field(default=None, description="`host:port,host:port` of the brokers.")
    security_protocol: SecurityProtocol | None = Field(default=None, description="Protocol of the listener.")
    sasl_mechanism: SaslMechanism | None = Field(
        default=None, description="How a user is authenticated if the protocol is `SASL_PLAINTEXT` or `SASL_SSL`."
    )
    sasl_username: str | None = Field(default=None, min_length=1, description="Name of the SASL user.")
    sasl_password: SecretStr | None = Field(default=None, description="Password of the SASL user.")
    ssl_ca_location: Path | None = Field(
        default=None,
        description="PEM file of the authorities against which the brokers' certificates are checked. Unset: those of "
        "the system. The name in a certificate is always compared with the host of the connection.",
    )
    ssl_certificate_location: Path | None = Field(
        default=None, description="PEM file of the client's certificate and its chain, if brokers require one."
    )
    ssl_key_location: Path | None = Field(
        default=None, description="PEM file of the client's private key, readable only by its owner (mode 0600)."
    )
    ssl_key_password: SecretStr | None = Field(default=None, description="Password of the private key, if encrypted.")
    request_timeout_ms: int | None = Field(
        default=None,
        ge=LEAST_TIMEOUT_MS,
        le=MOST_INT,
        description="Milliseconds that brokers may take for one answer, the connection included.",
        json_schema_extra={"unit": "milliseconds"},
    )


class ClusterSettings(ConnectionSettings):
    """The Kafka cluster that this deployment serves."""

    name: str = Field(
        default="kafka", min_length=1, description="Label of the cluster in reports; its id identifies it."
    )
    bootstrap_servers: Servers | None = Field(
        default=None,
        description="`host:port,host:port` of the brokers, from which topics, leaders and exact offsets are read; no "
        "copy is planned while they do not answer. Unset: cluster metadata comes from `__cluster_metadata-0`, and "
        "offsets are the lower bounds that log directories show.",
    )
    security_protocol: SecurityProtocol = Field(default=DEFAULT_PROTOCOL, description="Protocol of the listener.")
    request_timeout_ms: int = Field(
        default=DEFAULT_TIMEOUT_MS,
        ge=LEAST_TIMEOUT_MS,
        le=MOST_INT,
        description="Milliseconds that brokers may take for one answer, the connection included.",
        json_schema_extra={"unit": "milliseconds"},
    )


class MetadataTopicSettings(ConnectionSettings):
    """The principal that writes `__remote_log_metadata`; see `publisher_connection`."""

    bootstrap_servers: Servers | None = Field(
        default=None,
        description="`host:port,host:port`, if the publisher uses another listener. Unset settings of this section are "
        "taken from `cluster`; but user and password belong together, and so do certificate, key and its password: if "
        "one of them is set here, none is taken from `cluster`.",
    )
    broker_id: int = Field(
        default=DEFAULT_PUBLISHER_ID,
        ge=0,
        le=MOST_INT,
        description="`broker.id` of published records: an id that no broker of the cluster has, so that these records "
        "can be recognised.",
    )
    settle_ms: int = Field(
        default=DEFAULT_SETTLE_MS,
        ge=0,
        le=MOST_INT,
        description="Milliseconds after which a pending record of a publisher that died can no longer arrive: the "
        "partition's next publisher waits until then before it reads the topic.",
        json_schema_extra={"unit": "milliseconds"},
    )


def publisher_connection(cluster: ConnectionSettings, publisher: ConnectionSettings) -> ConnectionSettings:
    """Return the publisher's settings; where its login, its certificate or another setting is unset, the cluster's.

    If the publisher's listener has no TLS, no certificate is taken from the cluster.
    """
    chosen: dict[str, Any] = {}
    for names in (_LOGIN, _CERTIFICATE):
        own = any(getattr(publisher, name) is not None for name in names)
        chosen |= {name: getattr(publisher if own else cluster, name) for name in names}
    for name in ConnectionSettings.model_fields.keys() - chosen.keys():
        own_value = getattr(publisher, name)
        chosen[name] = getattr(cluster, name) if own_value is None else own_value
    if not (chosen["security_protocol"] or DEFAULT_PROTOCOL).endswith("SSL"):
        chosen |= {name: getattr(publisher, name) for name in _TLS}
    return ConnectionSettings.model_construct(**chosen)


def check_connection(connection: ConnectionSettings, section: str) -> None:
    """Check that login, certificates and protocol belong together; with TLS, also the files.

    Raises:
        SettingError: they do not, or a file cannot be used. The message names the setting below `section`, or the
            file, never a secret.
    """
    protocol = connection.security_protocol or DEFAULT_PROTOCOL
    _check_login(connection, section, protocol)
    if not protocol.endswith("SSL"):
        for name in _TLS:
            if getattr(connection, name) is not None:
                raise SettingError(
                    f"{section}.{name} is set, but {section}.security_protocol is {protocol}, which is not encrypted:"
                    " SSL or SASL_SSL"
                )
        return
    if (connection.ssl_certificate_location is None) != (connection.ssl_key_location is None):
        raise SettingError(f"{section}.ssl_certificate_location and {section}.ssl_key_location go together")
    for name in ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location"):
        path = getattr(connection, name)
        if path is not None:
            _check_file(path, f"{section}.{name}", is_secret=name == "ssl_key_location")


def _check_login(connection: ConnectionSettings, section: str, protocol: str) -> None:
    if protocol.startswith("SASL_"):
        for name in ("sasl_mechanism", *_LOGIN):
            if getattr(connection, name) is None:
                raise SettingError(f"{section}.{name} is not set: {section}.security_protocol is {protocol}")
    elif connection.sasl_mechanism or connection.sasl_username or connection.sasl_password:
        raise SettingError(
            f"{section} has a SASL login, but {section}.security_protocol is {protocol}: SASL_SSL or SASL_PLAINTEXT"
        )


def librdkafka_config(connection: ConnectionSettings) -> dict[str, str | int]:
    """Return the configuration of a librdkafka client. It holds secrets: pass it only to the client.

    Raises:
        SettingError: there are no bootstrap servers.
    """
    if connection.bootstrap_servers is None:
        raise SettingError(
            "cluster.bootstrap_servers is not set: give the addresses of brokers, host:port,host:port "
            "(in the configuration file, or as TIERING_CLUSTER__BOOTSTRAP_SERVERS)"
        )
    config: dict[str, str | int] = {
        "socket.timeout.ms": min(connection.request_timeout_ms or DEFAULT_TIMEOUT_MS, _MOST_SOCKET_TIMEOUT_MS),
        "security.protocol": connection.security_protocol or DEFAULT_PROTOCOL,
    }
    for name in ConnectionSettings.model_fields.keys() - {"request_timeout_ms", "security_protocol"}:
        value = getattr(connection, name)
        if value is not None:
            config[name.replace("_", ".")] = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
    return config


def _check_file(path: Path, name: str, *, is_secret: bool) -> None:
    shown = printable(str(path))
    try:
        with path.open("rb") as file:
            mode = path.stat().st_mode
            is_empty = not file.read(1)
    except OSError as error:
        raise SettingError(f"{name}: {shown} cannot be read: {error.strerror or error}") from error
    if is_empty:
        raise SettingError(f"{name}: {shown} is empty")
    if is_secret and (refusal := open_to_others(f"{name}: {shown} is a private key", mode)):
        raise SettingError(refusal)
