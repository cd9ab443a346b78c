"""Precedence, origins, and errors that tell the way out."""

import json
from pathlib import Path

import pytest

from include.tiering.errors import SettingError
from include.tiering.settings import LogDir, load_settings, to_environment

NAME = "cluster.name"


def toml(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


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


def test_settings_are_frozen() -> None:
    settings = load_settings(environ={})
    with pytest.raises(ValueError, match="frozen"):
        settings.cluster.name = "other"
