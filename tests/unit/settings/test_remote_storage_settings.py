"""Settings of the remote storage and of connections."""

from pathlib import Path
from typing import Any

import pytest

from include.tiering.errors import SettingError
from include.tiering.formats.aiven_manifest import CustomMetadataField
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.location import layout_options
from include.tiering.settings import TieringSettings, load_settings, to_environment
from include.tiering.settings.catalogue import all_settings
from include.tiering.settings.connections import (
    ConnectionSettings,
    check_connection,
    librdkafka_config,
    publisher_connection,
)
from include.tiering.settings.remote_storage import KeyPairFiles

# Settings of the form of segments: what goes together, and what does not.


def loaded(**values: Any) -> TieringSettings:
    return load_settings(overrides={f"remote_storage.{name}": value for name, value in values.items()}, environ={})


def test_by_default_segments_are_plain() -> None:
    assert layout_options(loaded().remote_storage) == {"layout": "aiven", "form": AivenForm(), "keys": None}


def test_every_setting_reaches_the_form() -> None:
    settings = loaded(
        chunk_size=1000,
        compression_enabled=True,
        compression_heuristic_enabled=True,
        encryption_enabled=True,
        encryption_key_pair_id="k2",
        encryption_key_pairs="k1:/k/1.pub:/k/1.pem, k2:/k/2.pub",
        custom_metadata_fields_include="REMOTE_SIZE,OBJECT_KEY",
        custom_metadata_max_bytes=300,
        key_prefix="a/b-",
        kafka_release="4.1",
    ).remote_storage
    options = layout_options(settings)
    assert options["form"] == AivenForm(
        chunk_size_bytes=1000,
        compresses=True,
        unless_compressed=True,
        encrypts=True,
        custom_metadata=frozenset({CustomMetadataField.REMOTE_SIZE, CustomMetadataField.OBJECT_KEY}),
        custom_metadata_max_bytes=300,
        key_prefix="a/b-",
        with_txn_index_empty=True,
    )
    assert options["keys"] is not None
    assert settings.key_pairs == (
        KeyPairFiles("k1", Path("/k/1.pub"), Path("/k/1.pem")),
        KeyPairFiles("k2", Path("/k/2.pub"), None),
    )


def test_a_child_process_has_the_same_form() -> None:
    settings = loaded(encryption_key_pairs=["k1:/k/1.pub:/k/1.pem"], custom_metadata_fields_include=["OBJECT_KEY"])
    again = load_settings(environ=to_environment(settings))
    assert again.remote_storage == settings.remote_storage


@pytest.mark.parametrize(("release", "writes"), [(None, False), ("3.9.2", False), ("4.0", True), ("4.3.1", True)])
def test_the_member_of_newer_brokers_follows_their_release(release: str | None, writes: bool) -> None:
    assert loaded(kafka_release=release).remote_storage.brokers_write_txn_idx_empty is writes


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"layout": "local_tiered_storage", "url": "s3://bucket-1/p"}, "file:///directory"),
        ({"layout": "local_tiered_storage", "compression_enabled": True}, "of the aiven layout"),
        ({"layout": "local_tiered_storage", "key_prefix": "p/"}, "of the aiven layout"),
        ({"layout": "local_tiered_storage", "custom_metadata_fields_include": "OBJECT_KEY"}, "of the aiven layout"),
        ({"layout": "other"}, "local_tiered_storage"),
        ({"compression_heuristic_enabled": True}, "needs remote_storage.compression_enabled"),
        ({"encryption_enabled": True}, "must name one of"),
        ({"encryption_enabled": True, "encryption_key_pair_id": "k"}, "must name one of"),
        ({"encryption_key_pairs": "k:/a,k:/b"}, "k is listed twice"),
        ({"encryption_key_pairs": "k"}, "ID:PUBLIC.pem"),
        ({"encryption_key_pairs": "k:/a:/b:/c"}, "ID:PUBLIC.pem"),
        ({"encryption_key_pairs": ":/a"}, "ID:PUBLIC.pem"),
        ({"encryption_key_pairs": "k:relative.pem"}, "absolute path"),
        ({"encryption_key_pairs": "k:/a/../b"}, "absolute path"),
        ({"chunk_size": 0}, "at least 1"),
        ({"chunk_size": 2**30}, "at most 1073741823"),
        ({"custom_metadata_fields_include": "SIZE"}, "REMOTE_SIZE"),
        ({"key_prefix": "/a"}, "no leading slash"),
        ({"key_prefix": "a//b"}, "no leading slash"),
        ({"key_prefix": "../a"}, "no leading slash"),
        ({"key_prefix": "a b"}, "no leading slash"),
        ({"kafka_release": "latest"}, "such as 3.9"),
    ],
)
def test_what_does_not_go_together_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=r"remote_storage\.") as raised:
        loaded(**values)
    assert words in str(raised.value)


def test_a_chunk_that_cannot_be_held_is_refused() -> None:
    settings = loaded(chunk_size=500_000_000, compression_enabled=True).remote_storage
    with pytest.raises(SettingError, match="held in memory"):
        layout_options(settings)
    layout_options(loaded(chunk_size=500_000_000).remote_storage)


# Connections to brokers: what goes together, what a publisher inherits, and that secrets stay where they belong.

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
