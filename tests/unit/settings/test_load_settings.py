"""Settings: how they are loaded; those of the remote storage and of connections."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from include.tiering.configs.config_catalogue import all_configs
from include.tiering.errors import SettingError
from include.tiering.formats.aiven_manifest import CustomMetadataField
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.location import layout_options
from include.tiering.settings import LogDir, TieringSettings, load_settings, to_environment
from include.tiering.settings.catalogue import all_settings
from include.tiering.settings.connections import (
    ConnectionSettings,
    check_connection,
    librdkafka_config,
    publisher_connection,
)
from include.tiering.settings.load import POOL_CONFIGS, STORED_CONFIGS
from include.tiering.settings.remote_storage import KeyPairFiles

# Precedence, origins, and errors that tell the way out.

NAME = "cluster.name"


def toml(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_quota_in_a_file_or_variable_says_where_quotas_are_set(tmp_path: Path) -> None:
    name = "remote.log.manager.copy.max.bytes.per.second"
    file = toml(tmp_path / "t.toml", f'"{name}" = 5\n')
    words = f"{name} has no effect here, as it is stored in the database .* ./tiering configs --alter"
    with pytest.raises(SettingError, match=words) as refused:
        load_settings(file, environ={})
    assert "did you mean" not in str(refused.value)
    with pytest.raises(SettingError, match=words):
        load_settings(environ={"TIERING_REMOTE__LOG__MANAGER__COPY__MAX__BYTES__PER__SECOND": "5"})


def test_the_size_of_a_pool_in_a_file_or_variable_says_who_has_it(tmp_path: Path) -> None:
    name = "remote.log.manager.copier.thread.pool.size"
    words = f"{name} has no effect here, as it is the size of a pool, which Airflow stores: .* ./tiering configs"
    with pytest.raises(SettingError, match=words):
        load_settings(toml(tmp_path / "t.toml", f'"{name}" = 5\n'), environ={})
    with pytest.raises(SettingError, match=words):
        load_settings(environ={"TIERING_REMOTE__LOG__MANAGER__COPIER__THREAD__POOL__SIZE": "5"})


def test_every_config_that_is_no_setting_is_named() -> None:
    stored = {config.name for config in all_configs() if config.setting is None and config.pool is None}
    assert stored == STORED_CONFIGS
    in_airflow = {config.name for config in all_configs() if config.setting is None and config.pool is not None}
    assert in_airflow == POOL_CONFIGS | {"remote.log.reader.threads"}, "the last is the name of a setting, too"


def test_a_value_comes_from_the_strongest_place_that_has_one(tmp_path: Path) -> None:
    file = toml(tmp_path / "t.toml", '[cluster]\nname = "from-file"\n')
    overrides = {"cluster": {"name": "from-connection"}}
    environ = {"TIERING_CLUSTER__NAME": "from-environment"}
    seen = [
        load_settings(environ={}),
        load_settings(file, environ={}),
        load_settings(file, overrides, environ={}, overrides_origin="connection tiering_metadata"),
        load_settings(file, overrides, environ=environ),
    ]
    assert [(settings.cluster.name, settings.origin(NAME)) for settings in seen] == [
        ("kafka", "default"),
        ("from-file", f"file {file}"),
        ("from-connection", "connection tiering_metadata"),
        ("from-environment", "environment TIERING_CLUSTER__NAME"),
    ]


def test_the_file_may_be_named_by_the_environment_and_an_argument_is_stronger(tmp_path: Path) -> None:
    named = toml(tmp_path / "named.toml", 'cluster.name = "named"')
    given = toml(tmp_path / "given.toml", 'cluster.name = "given"')
    environ = {"TIERING_CONFIG": str(named)}
    assert load_settings(environ=environ).cluster.name == "named"
    assert load_settings(given, environ=environ).cluster.name == "given"


@pytest.mark.parametrize(
    "text",
    ["tiering.copier.lease.ms = 7000", '"tiering.copier.lease.ms" = 7000', "[tiering.copier]\nlease.ms = 7000"],
)
def test_a_name_in_kafkas_style_is_one_name_however_toml_nests_it(tmp_path: Path, text: str) -> None:
    assert load_settings(toml(tmp_path / "t.toml", text), environ={}).copier.lease_ms == 7000


@pytest.mark.parametrize(
    "text",
    [
        "1:/var/kafka/a, 2:/var/kafka/b",
        json.dumps([{"broker_id": i, "path": f"/var/kafka/{'ab'[i - 1]}"} for i in (1, 2)]),
    ],
)
def test_log_dirs_in_the_environment(text: str) -> None:
    settings = load_settings(environ={"TIERING_LOG_DIRS": text})
    assert settings.log_dirs == (
        LogDir(broker_id=1, path=Path("/var/kafka/a")),
        LogDir(broker_id=2, path=Path("/var/kafka/b")),
    )


def test_log_dirs_in_a_file(tmp_path: Path) -> None:
    text = '[[log_dirs]]\nbroker_id = 3\npath = "/data"\nqueue = "broker-3"\nspark_resource = "disk3"\n'
    (log_dir,) = load_settings(toml(tmp_path / "t.toml", text), environ={}).log_dirs
    assert log_dir == LogDir(broker_id=3, path=Path("/data"), queue="broker-3", spark_resource="disk3")


@pytest.mark.parametrize(
    ("member", "text"),
    [("queue", "rack a"), ("queue", ""), ("queue", "a\n"), ("spark_resource", "disk.3"), ("spark_resource", "3disk")],
)
def test_names_that_airflow_or_spark_cannot_take_are_refused(member: str, text: str) -> None:
    log_dirs = json.dumps([{"broker_id": 1, "path": "/data", member: text}])
    with pytest.raises(SettingError, match=member):
        load_settings(environ={"TIERING_LOG_DIRS": log_dirs})


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load_settings(environ={"TIERING_REMOTE_STORAGE__URL": ""}).remote_storage.url is None


def test_the_default_database_lies_in_the_state_directory_of_the_user() -> None:
    def url(environ: dict[str, str]) -> str:
        return load_settings(environ=environ).metadata.url.get_secret_value()

    assert url({"XDG_STATE_HOME": "/state"}) == "sqlite:////state/tiering/metadata.sqlite"
    assert url({"HOME": "/home/k"}) == "sqlite:////home/k/.local/state/tiering/metadata.sqlite"
    assert url({"HOME": "/home/k", "XDG_STATE_HOME": "relative"}) == url({"HOME": "/home/k"})


@pytest.mark.parametrize(
    ("variable", "text", "parts"),
    [
        ("TIERING_REMOTE_STORAGE_URL", "x", ["did you mean TIERING_REMOTE_STORAGE__URL?"]),
        ("TIERING_ZZZZ", "x", ["unknown setting TIERING_ZZZZ", "known are ", "TIERING_CLUSTER__NAME"]),
        ("TIERING_COPIER__LEASE__MS", "1999", ["tiering.copier.lease.ms is '1999'", "at least 2000"]),
        ("TIERING_COPIER__BATCH__MAX__SECONDS", "soon", ["'soon'", "valid integer", "environment TIERING_COPIER__"]),
        ("TIERING_CLUSTER__NAME", "", []),
        ("TIERING_QUEUED__MAX__BYTES", "0", ["queued.max.bytes is '0'", "-1 for no bound"]),
        ("TIERING_COPY__FAIRNESS__ENABLE", "perhaps", ["tiering.copy.fairness.enable", "accepted: true or false"]),
        (
            "TIERING_REMOTE_STORAGE__URL",
            "gs://b/p",
            ["'gs://b/p'", "file:///absolute/directory and s3://bucket/prefix"],
        ),
        ("TIERING_REMOTE_STORAGE__URL", "file://relative/x", ["accepted are file:///"]),
        ("TIERING_REMOTE_STORAGE__URL", "file:///", ["accepted are file:///"]),
        ("TIERING_REMOTE_STORAGE__URL", "s3://bucket/../other", ["'..'"]),
        ("TIERING_REMOTE_STORAGE__URL", "file:///a/%2e%2e/b", ["'..'"]),
        ("TIERING_REMOTE_STORAGE__URL", "file://localhost/a", ["a host, backslashes"]),
        ("TIERING_REMOTE_STORAGE__URL", "file:///a\\b", ["a host, backslashes"]),
        ("TIERING_REMOTE_STORAGE__URL", "s3://bucket/p?", ["only a place"]),
        ("TIERING_REMOTE_STORAGE__URL", "s3://Bucket/p", ["'Bucket' is no bucket name"]),
        ("TIERING_REMOTE_STORAGE__LAYOUT", "flat", ["accepted: aiven"]),
        ("TIERING_REMOTE_STORAGE__ENDPOINT_URL", "localhost:7070", ["http(s)://host:port"]),
        ("TIERING_TOPICS__INCLUDE", "a b", ["at [0]", "a topic pattern"]),
        ("TIERING_LOG_DIRS", "1:relative", ["'relative' is not an absolute path"]),
        ("TIERING_LOG_DIRS", "1:/a,2:/a", ["'/a' is listed twice"]),
        ("TIERING_LOG_DIRS", "/a", ["'/a' is not BROKER_ID:PATH"]),
        ("TIERING_LOG_DIRS", '[{"broker_id": 1}]', ["at [0].path", "Field required"]),
        ("TIERING_LOG_DIRS", "[1", ["starts like a JSON list but is not one"]),
        ("TIERING_METADATA__URL", "sqlite://", ["sqlite:////path"]),
        ("TIERING_METADATA__URL", "sqlite:///relative.db", ["four slashes"]),
        ("TIERING_CONFIG", "/nowhere/t.toml", ["/nowhere/t.toml cannot be read", "No such file"]),
    ],
)
def test_a_wrong_value_is_named_with_what_is_accepted(variable: str, text: str, parts: list[str]) -> None:
    environ = {variable: text}
    if not parts:
        load_settings(environ=environ)
        return
    with pytest.raises(SettingError) as caught:
        load_settings(environ=environ)
    assert [part for part in parts if part not in str(caught.value)] == []


def test_log_dirs_of_hosts_with_a_queue_of_their_own_may_have_the_same_path() -> None:
    def log_dirs(*queues: str | None) -> str:
        return json.dumps([{"broker_id": n, "path": "/a", "queue": queue} for n, queue in enumerate(queues)])

    settings = load_settings(environ={"TIERING_LOG_DIRS": log_dirs("rack-a", "rack-b")})
    assert [str(log_dir.path) for log_dir in settings.log_dirs] == ["/a", "/a"]
    for queues in (("rack-a", "rack-a"), ("rack-a", None), (None, None)):
        with pytest.raises(SettingError, match="'/a' is listed twice"):
            load_settings(environ={"TIERING_LOG_DIRS": log_dirs(*queues)})


def test_an_unknown_name_in_a_file_or_connection_suggests_the_nearest(tmp_path: Path) -> None:
    file = toml(tmp_path / "t.toml", '[remote_storage]\nulr = "s3://b/p"\n')
    with pytest.raises(
        SettingError, match=r"unknown setting remote_storage\.ulr \(file .*did you mean remote_storage\.url"
    ):
        load_settings(file, environ={})
    with pytest.raises(SettingError, match=r"unknown setting cluster\.nam \(Airflow connection\)"):
        load_settings(overrides={"cluster.nam": "x"}, environ={})


def test_every_wrong_value_is_reported_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        load_settings(environ={"TIERING_COPIER__LEASE__MS": "x", "TIERING_TOPICS__INCLUDE": "a b"})
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("content", [b"cluster = [", b"\xff\xfe", b"#" * (1 << 20) + b"\n"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    with pytest.raises(SettingError, match=r"bad\.toml"):
        load_settings(file, environ={})


def test_a_section_that_is_not_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="unknown setting cluster "):
        load_settings(toml(tmp_path / "t.toml", "cluster = 3"), environ={})


def test_variables_of_the_storage_that_a_restore_writes_into_are_no_settings_of_the_deployment() -> None:
    own = {"TIERING_REMOTE_STORAGE__REGION": "eu-central-1"}
    theirs = {"TIERING_TARGET__REMOTE_STORAGE__REGION": "us-east-1", "TIERING_TARGET__CLUSTER__NAME": "other"}
    settings = load_settings(environ={"HOME": "/nowhere", **own, **theirs})
    assert settings.remote_storage.region == "eu-central-1"
    assert settings == load_settings(environ={"HOME": "/nowhere", **own})


def test_another_process_loads_the_same_values_from_the_environment_made_for_it() -> None:
    environ = {
        "TIERING_LOG_DIRS": "1:/a,2:/b",
        "TIERING_TOPICS__INCLUDE": "orders, pay*",
        "TIERING_METADATA__URL": "postgresql+psycopg://u:p%40ss@h/db",
        "TIERING_REMOTE_STORAGE__SECRET_ACCESS_KEY": "[k/+=",
        "TIERING_COPY__FAIRNESS__ENABLE": "no",
    }
    settings = load_settings(environ=environ)
    assert load_settings(environ=to_environment(settings)).model_dump() == settings.model_dump()


@pytest.mark.parametrize("name", ["queued.max.bytes", "queued.max.request.bytes"])
def test_an_alias_is_as_good_as_the_name(tmp_path: Path, name: str) -> None:
    settings = load_settings(toml(tmp_path / "t.toml", f"{name} = 1024"), environ={})
    assert (settings.queue.max_bytes, settings.origin("queued.max.bytes")) == (1024, f"file {tmp_path / 't.toml'}")


@pytest.mark.parametrize("word", ["abandoned", "unfinished"])
def test_an_abandoned_copy_has_its_former_name_in_a_file_and_in_the_environment(tmp_path: Path, word: str) -> None:
    file = toml(tmp_path / "t.toml", f"[tiering.{word}.copy]\nexpiry.ms = 90000")
    assert load_settings(file, environ={}).abandoned_copy.expiry_ms == 90_000
    environ = {f"TIERING_{word.upper()}__COPY__EXPIRY__MS": "90001"}
    settings = load_settings(file, environ=environ)
    assert settings.abandoned_copy.expiry_ms == 90_001
    assert settings.origin("tiering.abandoned.copy.expiry.ms") == f"environment {next(iter(environ))}"


def test_a_name_and_its_alias_in_one_place_contradict_each_other(tmp_path: Path) -> None:
    file = toml(tmp_path / "t.toml", "queued.max.bytes = 1\nqueued.max.request.bytes = 2")
    with pytest.raises(SettingError, match=r"queued\.max\.request\.bytes \(file .*\) sets queued\.max\.bytes a second"):
        load_settings(file, environ={})
    with pytest.raises(SettingError, match=r"QUEUED__MAX__REQUEST__BYTES .* a second time"):
        load_settings(environ={"TIERING_QUEUED__MAX__BYTES": "1", "TIERING_QUEUED__MAX__REQUEST__BYTES": "1"})
    file = toml(tmp_path / "t.toml", "queued.max.request.bytes = 2\nqueued.max.bytes = 1")
    with pytest.raises(SettingError, match=r"whose names are queued\.max\.bytes and queued\.max\.request\.bytes: "):
        load_settings(file, environ={})


def test_settings_are_frozen() -> None:
    settings = load_settings(environ={})
    with pytest.raises(ValueError, match="frozen"):
        settings.cluster.name = "other"


# Settings of the remote storage and of connections.

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
        ({"layout": "local_tiered_storage", "compression_enabled": True}, "only to the aiven layout"),
        ({"layout": "local_tiered_storage", "key_prefix": "p/"}, "only to the aiven layout"),
        (
            {"layout": "local_tiered_storage", "custom_metadata_fields_include": "OBJECT_KEY"},
            "only to the aiven layout",
        ),
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
    with pytest.raises(SettingError, match="others may read or change it") as caught:
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


def test_a_publisher_on_a_listener_without_tls_needs_no_certificate_of_the_cluster() -> None:
    plain = {"TIERING_METADATA_TOPIC__SECURITY_PROTOCOL": "SASL_PLAINTEXT"}
    settings = load_settings(environ={**SASL, "TIERING_CLUSTER__SSL_CA_LOCATION": "/ca.pem", **plain})
    publisher = publisher_connection(settings.cluster, settings.metadata_topic)
    check_connection(publisher, "metadata_topic")
    assert "ssl.ca.location" not in librdkafka_config(publisher)
    settings = load_settings(environ={**SASL, "TIERING_METADATA_TOPIC__SSL_CA_LOCATION": "/ca.pem", **plain})
    with pytest.raises(SettingError, match=r"metadata_topic\.ssl_ca_location is set"):
        check_connection(publisher_connection(settings.cluster, settings.metadata_topic), "metadata_topic")


@pytest.mark.parametrize(("given_ms", "socket_ms"), [("9000", 9_000), ("2000000000", 300_000)])
def test_librdkafka_gets_a_timeout_that_it_takes(given_ms: str, socket_ms: int) -> None:
    """It refuses a longer one."""
    config = librdkafka_config(_connection({**SASL, "TIERING_CLUSTER__REQUEST_TIMEOUT_MS": given_ms}))
    assert config["socket.timeout.ms"] == socket_ms
    AdminClient({"socket.timeout.ms": config["socket.timeout.ms"]})


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
            {"TIERING_CLUSTER__SECURITY_PROTOCOL": "SASL_PLAINTEXT", "TIERING_CLUSTER__SSL_CA_LOCATION": "/ca.pem"},
            "cluster.ssl_ca_location is set, but cluster.security_protocol is SASL_PLAINTEXT, which is not encrypted",
        ),
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
    with pytest.raises(SettingError, match=r"is a private key and others may read or change it \(mode 0640\)"):
        check_connection(_connection(environ), "cluster")
    key.chmod(0o620)
    with pytest.raises(SettingError, match=r"others may read or change it \(mode 0620\): chmod 600 it"):
        check_connection(_connection(environ), "cluster")
    key.chmod(0o600)
    check_connection(_connection(environ), "cluster")
    certificate.write_text("")
    with pytest.raises(SettingError, match=r"cluster\.ssl_certificate_location: .* is empty"):
        check_connection(_connection(environ), "cluster")


# A secret where none belongs is not repeated either.


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://user:pw@host/db?application_name=tiering@host1",
        "postgresql+psycopg://user@tenant:pw@host/db",
        "postgresql+psycopg://user:p%40w@host/db",
    ],
)
def test_an_at_sign_where_it_may_stand_is_accepted(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("TIERING_METADATA__URL", url)
    assert load_settings().metadata.url.get_secret_value() == url


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("TIERING_CLUSTER__BOOTSTRAP_SERVERS", "user:s3cr3t@host:9092", r"is '\*\*\*@host:9092'"),
        ("TIERING_CLUSTER__BOOTSTRAP_SERVERS", "a:1,user:s3c@r3t@host:9092", r"is 'a:1,\*\*\*@host:9092'"),
        ("TIERING_METADATA__URL", "postgresql://user:s3c@s3cr3t@host/x", "an @ in a user or password is written %40"),
    ],
)
def test_a_login_that_is_misplaced_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingError, match=says) as refused:
        load_settings()
    assert "r3t" not in str(refused.value)
