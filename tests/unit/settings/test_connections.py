"""Connections to brokers: what goes together, what a publisher inherits, and that secrets stay where they belong."""

from pathlib import Path

import pytest

from include.tiering.errors import SettingError
from include.tiering.settings import load_settings, to_environment
from include.tiering.settings.catalogue import all_settings
from include.tiering.settings.connections import (
    ConnectionSettings,
    check_connection,
    librdkafka_config,
    publisher_connection,
)

SECRET = "hunter2"
SASL = {
    "TIERING_CLUSTER__BOOTSTRAP_SERVERS": "kafka-1:9093, [::1]:9093",
    "TIERING_CLUSTER__SECURITY_PROTOCOL": "SASL_SSL",
    "TIERING_CLUSTER__SASL_MECHANISM": "SCRAM-SHA-512",
    "TIERING_CLUSTER__SASL_USERNAME": "tiering",
    "TIERING_CLUSTER__SASL_PASSWORD": SECRET,
    "TIERING_CLUSTER__SSL_KEY_PASSWORD": SECRET + "-of-the-key",
}


def _connection(environ: dict[str, str]) -> ConnectionSettings:
    return load_settings(environ=environ).cluster


def test_librdkafka_gets_its_own_names_and_plain_values() -> None:
    assert librdkafka_config(_connection(SASL)) == {
        "bootstrap.servers": "kafka-1:9093,[::1]:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "tiering",
        "sasl.password": SECRET,
        "ssl.key.password": SECRET + "-of-the-key",
        "socket.timeout.ms": 10_000,
    }


def test_without_servers_there_is_nobody_to_ask() -> None:
    with pytest.raises(SettingError, match=r"cluster\.bootstrap_servers is not set"):
        librdkafka_config(_connection({}))


@pytest.mark.parametrize(
    "servers", ["kafka", "kafka:", ":9092", "kafka:0", "kafka:65536", "a:1,,b:2", "http://a:1", "a b:1"]
)
def test_servers_are_hosts_with_ports(servers: str) -> None:
    with pytest.raises(SettingError, match="host:port,host:port"):
        load_settings(environ={"TIERING_CLUSTER__BOOTSTRAP_SERVERS": servers})


def test_no_secret_is_shown() -> None:
    settings = load_settings(environ=SASL)
    shown = {setting.name: setting.shown(settings) for setting in all_settings()}
    assert SECRET not in f"{settings!r} {settings} {shown} {settings.model_dump_json()}"
    assert shown["cluster.sasl_password"] == shown["cluster.ssl_key_password"] == "***"


def test_a_file_that_holds_a_password_is_private(tmp_path: Path) -> None:
    file = tmp_path / "tiering.toml"
    file.write_text(f'cluster.sasl_password = "{SECRET}"\n')
    file.chmod(0o640)
    with pytest.raises(SettingError, match="others may read it") as caught:
        load_settings(file, environ={})
    assert SECRET not in str(caught.value)
    file.chmod(0o600)
    assert load_settings(file, environ={}).cluster.sasl_password is not None


def test_another_process_loads_the_same_connection() -> None:
    settings = load_settings(environ=SASL)
    assert load_settings(environ=to_environment(settings)).cluster == settings.cluster


def test_a_publisher_without_settings_is_the_clusters_principal() -> None:
    settings = load_settings(environ=SASL)
    publisher = publisher_connection(settings.cluster, settings.metadata_topic)
    assert librdkafka_config(publisher) == librdkafka_config(settings.cluster)


def test_a_publisher_never_meets_the_password_of_another_user() -> None:
    settings = load_settings(environ={**SASL, "TIERING_METADATA_TOPIC__SASL_USERNAME": "publisher"})
    publisher = publisher_connection(settings.cluster, settings.metadata_topic)
    assert publisher.sasl_password is None
    with pytest.raises(SettingError, match=r"metadata_topic\.sasl_password is not set"):
        check_connection(publisher, "metadata_topic")


def test_a_publisher_has_a_listener_and_a_certificate_of_its_own() -> None:
    own = {
        "TIERING_METADATA_TOPIC__BOOTSTRAP_SERVERS": "kafka-1:9094",
        "TIERING_METADATA_TOPIC__SSL_CERTIFICATE_LOCATION": "/etc/publisher.pem",
        "TIERING_METADATA_TOPIC__SSL_KEY_LOCATION": "/etc/publisher.key",
    }
    settings = load_settings(environ={**SASL, **own})
    config = librdkafka_config(publisher_connection(settings.cluster, settings.metadata_topic))
    assert config["bootstrap.servers"] == "kafka-1:9094"
    assert config["ssl.key.location"] == "/etc/publisher.key"
    assert "ssl.key.password" not in config
    assert config["sasl.password"] == SECRET


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"TIERING_CLUSTER__SASL_MECHANISM": ""}, "cluster.sasl_mechanism is not set"),
        ({"TIERING_CLUSTER__SASL_USERNAME": ""}, "cluster.sasl_username is not set"),
        ({"TIERING_CLUSTER__SASL_PASSWORD": ""}, "cluster.sasl_password is not set"),
        ({"TIERING_CLUSTER__SECURITY_PROTOCOL": "SSL"}, "has a SASL login, but cluster.security_protocol is SSL"),
        (
            {"TIERING_CLUSTER__SSL_KEY_LOCATION": "/k"},
            "ssl_certificate_location and cluster.ssl_key_location go together",
        ),
        (
            {"TIERING_CLUSTER__SSL_CA_LOCATION": "/nowhere/ca.pem"},
            "cluster.ssl_ca_location: /nowhere/ca.pem cannot be read",
        ),
    ],
)
def test_what_goes_together(changed: dict[str, str], message: str) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        check_connection(_connection({**SASL, **changed}), "cluster")
    assert SECRET not in str(caught.value)


def test_files_are_looked_at_before_they_are_used(tmp_path: Path) -> None:
    certificate, key = tmp_path / "client.pem", tmp_path / "client.key"
    certificate.write_text("PEM")
    key.write_text("KEY")
    key.chmod(0o640)
    environ = {
        "TIERING_CLUSTER__SECURITY_PROTOCOL": "SSL",
        "TIERING_CLUSTER__SSL_CERTIFICATE_LOCATION": str(certificate),
        "TIERING_CLUSTER__SSL_KEY_LOCATION": str(key),
    }
    with pytest.raises(SettingError, match=r"is a private key and others may read it \(mode 0640\): chmod 600 it"):
        check_connection(_connection(environ), "cluster")
    key.chmod(0o600)
    check_connection(_connection(environ), "cluster")
    certificate.write_text("")
    with pytest.raises(SettingError, match=r"cluster\.ssl_certificate_location: .* is empty"):
        check_connection(_connection(environ), "cluster")
