"""The hook, and how a task starts Spark."""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.errors import SettingError
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.errors import SparkJobError, SparkJobRetriableError
from plugins.tiering_airflow.hook import TieringHook, connection_settings
from plugins.tiering_airflow.spark import (
    FIXED_CONF,
    SparkJobHook,
    SparkJobOperator,
    job_conf,
    job_environment,
    require_shared_database,
    require_whole_pyspark,
)
from plugins.tiering_airflow.spark_files import packed_library, scratch_directory, sweep
from tests.doubles.source_tree import ROOT

# What a Spark job gets, and what it leaves.

SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xms48m"


def test_no_secret_of_airflow_reaches_a_job(tmp_path: Path) -> None:
    environ = {
        "PATH": "/bin",
        "AWS_PROFILE": "archive",
        "AIRFLOW__API_AUTH__JWT_SECRET": "s3cret",
        "AIRFLOW_CONN_OTHER": "postgres://u:p@h/d",
        "PYTHONPATH": "/somewhere",
        "TIERING_TOPICS__INCLUDE": "a",
    }
    environment = job_environment(environ, {"TIERING_TOPICS__INCLUDE": '["b"]'}, tmp_path, tmp_path / "library.zip")
    assert environment == {
        "PATH": "/bin",
        "AWS_PROFILE": "archive",
        "SPARK_LAUNCHER_OPTS": SMALL_JVM,
        "PYDANTIC_DISABLE_PLUGINS": "__all__",
        "TIERING_TOPICS__INCLUDE": '["b"]',
        "PYTHONPATH": str(tmp_path / "library.zip"),
        "TMPDIR": str(tmp_path),
        "SPARK_LOCAL_DIRS": str(tmp_path),
    }


def test_a_job_gets_no_login_that_it_does_not_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the hook leaves out must not come back from the environment of the worker."""
    monkeypatch.setenv("TIERING_METADATA_TOPIC__SASL_PASSWORD", "of-the-publisher")
    monkeypatch.setenv("TIERING_AIRFLOW__TOKEN", "of-airflow")
    monkeypatch.setenv("TIERING_REMOTE_STORAGE__URL", "s3://archive")
    monkeypatch.setenv("TIERING_CONFIG", str(tmp_path / "none.toml"))
    (tmp_path / "none.toml").write_text("")
    made = job_environment(os.environ, TieringHook().job_environment(), tmp_path, tmp_path / "library.zip")
    assert made["TIERING_REMOTE_STORAGE__URL"] == "s3://archive"
    assert not {"of-the-publisher", "of-airflow"} & set(made.values())
    assert "TIERING_CONFIG" not in made


def test_the_one_action_runs_once_and_temporary_files_stay_together(tmp_path: Path) -> None:
    conf = job_conf("local[1]", tmp_path, None)
    assert FIXED_CONF.items() <= conf.items()
    assert (conf["spark.speculation"], conf["spark.task.maxFailures"]) == ("false", "1")
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert f"-Djava.io.tmpdir={tmp_path}" in conf["spark.driver.extraJavaOptions"]
    assert "SharedArchiveFile" not in conf["spark.driver.extraJavaOptions"]


def test_a_job_asks_for_one_of_its_spark_resource(tmp_path: Path) -> None:
    conf = job_conf("spark://spark-master", tmp_path, None, "local_disk")
    assert conf["spark.executor.resource.local_disk.amount"] == "1"
    assert conf["spark.task.resource.local_disk.amount"] == "1"
    assert not any(".resource." in name for name in job_conf("spark://spark-master", tmp_path, None))


def test_only_a_job_that_reads_repeats_its_tasks(tmp_path: Path) -> None:
    names = ("spark.task.maxFailures", "spark.stage.maxConsecutiveAttempts")
    for repeats_tasks, attempts in ((False, "1"), (True, "4")):
        conf = job_conf("spark://spark-master", tmp_path, None, repeats_tasks=repeats_tasks)
        assert [conf[name] for name in names] == [attempts, attempts]
    assert conf["spark.speculation"] == "false"
    assert not SparkJobOperator.repeats_tasks


def test_a_local_master_is_asked_for_no_resource(tmp_path: Path) -> None:
    assert not any(".resource." in name for name in job_conf("local[1]", tmp_path, None, "local_disk"))


def test_the_jvm_options_of_executors_are_those_of_the_administrator(tmp_path: Path) -> None:
    conf = job_conf("spark://spark-master", tmp_path, None)
    # Own defaults would replace theirs, and a second collector beside theirs keeps a JVM from starting.
    assert not [name for name in conf if name.startswith("spark.executor.") and name.endswith("JavaOptions")]


def test_a_remote_master_is_not_told_to_use_loopback(tmp_path: Path) -> None:
    conf = job_conf("spark://spark-master", tmp_path, tmp_path / "spark.jsa")
    assert not any(name.startswith(("spark.driver.host", "spark.driver.bind", "spark.python.daemon")) for name in conf)
    assert f"-XX:SharedArchiveFile={tmp_path / 'spark.jsa'}" in conf["spark.driver.extraJavaOptions"]


def _with_submit(monkeypatch: pytest.MonkeyPatch, directory: Path, script: str) -> SparkJobHook:
    """A hook whose `spark-submit` is `script`; the provider's own code starts it."""
    submit = directory / "spark-submit"
    submit.write_text(f"#!/bin/sh\n{script}\n")
    submit.chmod(0o755)
    path = f"{directory}:/usr/bin:/bin"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("AIRFLOW_CONN_TIERING_SPARK", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    return SparkJobHook(environment={"PATH": path, "OF_THE_JOB": "1"}, conn_id="tiering_spark", conf={})


# The hook and the operator use members of the provider that are private: `_submit_sp` and `_hook`. These tests fail on
# the first version of the provider that changes what they mean.


@pytest.mark.parametrize(("exit_code", "error"), [(1, SparkJobError), (2, SparkJobError), (3, SparkJobRetriableError)])
def test_the_exit_code_that_the_provider_keeps_is_the_jobs_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, exit_code: int, error: type[SparkJobError]
) -> None:
    hook = _with_submit(monkeypatch, tmp_path, f"exit {exit_code}")
    with pytest.raises(SparkJobError) as raised:
        hook.submit("job.py")
    assert type(raised.value) is error
    started: Any = hook._submit_sp
    assert started.returncode == exit_code
    assert started.stdout.closed


def test_the_provider_gives_a_job_the_environment_of_the_hook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "s3cret")
    hook = _with_submit(monkeypatch, tmp_path, f"env > {tmp_path}/seen")
    hook.submit("job.py")
    seen = (tmp_path / "seen").read_text()
    assert "OF_THE_JOB=1" in seen
    assert "s3cret" not in seen


def test_the_provider_submits_and_kills_by_the_hook_that_the_operator_has_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called = []

    class Hook(SparkJobHook):
        def submit(self, application: str = "", **kwargs: Any) -> None:
            called.append(f"submit {Path(application).name}")

        def on_kill(self) -> None:
            called.append("kill")

    monkeypatch.setenv("AIRFLOW_CONN_TIERING_SPARK", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    hook = Hook(environment={}, conn_id="tiering_spark", conf={})
    monkeypatch.setattr(SparkJobOperator, "_hook_for", lambda self, scratch: hook)
    operator = SparkJobOperator(task_id="sizes", job="sizes.py", arguments=[])
    context: Any = {"ti": SimpleNamespace(xcom_push=lambda **_: None)}
    operator.run_job(context, tmp_path)
    operator.on_kill()
    assert called == ["submit sizes.py", "kill"]


def test_a_job_is_a_file_of_this_project() -> None:
    operator = SparkJobOperator(task_id="copy", job="copying.py", arguments=["--run-id", "r"])
    assert operator.application == str(ROOT / "spark_jobs" / "copying.py")
    assert operator.application_args == ["--run-id", "r"]


def test_the_packed_library_is_the_same_for_the_same_sources(tmp_path: Path) -> None:
    first = packed_library(ROOT, ("include",), tmp_path / "a")
    second = packed_library(ROOT, ("include",), tmp_path / "b")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    assert packed_library(ROOT, ("include",), tmp_path / "a") == first
    assert [path.name for path in (tmp_path / "a").iterdir()] == [first.name]


def test_the_packed_library_is_imported_from_its_bytecode(tmp_path: Path) -> None:
    packed = packed_library(ROOT, ("include",), tmp_path)
    ask = "import json, include.tiering.settings as s; print(json.dumps([s.__file__, s.__cached__]))"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(packed)}
    command = [sys.executable, "-c", ask]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    file, cached = json.loads(done.stdout)
    assert file.startswith(str(packed))
    assert file.endswith(".pyc") or cached is None


def test_scratch_is_removed_with_all_it_holds(tmp_path: Path) -> None:
    with contextlib.suppress(KeyError), scratch_directory(tmp_path) as scratch:
        (scratch / "blockmgr-1").mkdir()
        (scratch / "blockmgr-1" / "block").write_bytes(b"x")
        raise KeyError
    assert not scratch.exists()
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_owner_left_is_swept_and_what_a_living_one_uses_is_not(tmp_path: Path) -> None:
    dead, living, being_made = (tmp_path / f"spark-job-{name}" for name in ("dead", "living", "new"))
    for directory in (dead, living, being_made):
        directory.mkdir()
    (dead / "owner.lock").touch()
    (tmp_path / "tiering-library-1.zip").touch()
    with (living / "owner.lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        sweep(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {
            "spark-job-living",
            "spark-job-new",
            "tiering-library-1.zip",
        }


def test_sqlite_is_refused_where_spark_runs_elsewhere() -> None:
    with pytest.raises(SettingError, match="use PostgreSQL"):
        require_shared_database("spark://spark-master", "sqlite:////var/lib/metadata.sqlite")
    require_shared_database("local[1]", "sqlite:////var/lib/metadata.sqlite")
    require_shared_database("spark://spark-master", "postgresql+psycopg://database/tiering")


# Settings that Airflow's connections hold.

STORAGE: dict[str, Any] = {
    "conn_type": "aws",
    "login": "KEY",
    "password": "s3cret",
    "extra": {"url": "s3://bucket/prefix", "endpoint_url": "https://s3.example.net", "unrelated": "x"},
}


def _define(monkeypatch: pytest.MonkeyPatch, name: str, connection: object) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))


def test_without_connections_nothing_is_set() -> None:
    assert connection_settings() == {}


def test_a_storage_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    _define(monkeypatch, "tiering_remote_storage", STORAGE)
    assert connection_settings() == {
        "remote_storage.url": "s3://bucket/prefix",
        "remote_storage.endpoint_url": "https://s3.example.net",
        "remote_storage.access_key_id": "KEY",
        "remote_storage.secret_access_key": "s3cret",
    }


def test_a_storage_connection_holds_the_form_of_segments_too(monkeypatch: pytest.MonkeyPatch) -> None:
    form = {
        "key_prefix": "tiered/",
        "chunk_size": "1048576",
        "compression_enabled": True,
        "compression_heuristic_enabled": "false",
        "encryption_enabled": True,
        "encryption_key_pair_id": "one",
        "encryption_key_pairs": ["one:/keys/one.pem:/keys/one.key", "two:/keys/two.pem"],
        "kafka_release": "4.1",
        "session_token": "",
    }
    _define(monkeypatch, "tiering_remote_storage", {**STORAGE, "extra": {**STORAGE["extra"], **form}})
    storage = TieringHook().settings().remote_storage
    assert (storage.key_prefix, storage.chunk_size, storage.kafka_release) == ("tiered/", 1 << 20, "4.1")
    assert (storage.compression_enabled, storage.compression_heuristic_enabled) == (True, False)
    assert (storage.encryption_enabled, storage.encryption_key_pair_id) == (True, "one")
    assert [one.key_pair_id for one in storage.key_pairs] == ["one", "two"]
    assert storage.session_token is None
    assert TieringHook().job_environment()["TIERING_REMOTE_STORAGE__CHUNK_SIZE"] == "1048576"


def test_what_the_connection_switches_off_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"url": "file:///srv", "compression_enabled": False}
    _define(monkeypatch, "tiering_remote_storage", {"conn_type": "generic", "extra": extra})
    assert connection_settings() == {"remote_storage.url": "file:///srv", "remote_storage.compression_enabled": False}


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        ({"conn_type": "generic", "extra": {"url": "sqlite:////var/lib/t.sqlite"}}, "sqlite:////var/lib/t.sqlite"),
        (
            {
                "conn_type": "postgres",
                "login": "u",
                "password": "p@ss",
                "host": "db",
                "port": 5432,
                "schema": "tiering",
            },
            "postgresql+psycopg://u:p%40ss@db:5432/tiering",
        ),
    ],
)
def test_a_metadata_connection(monkeypatch: pytest.MonkeyPatch, connection: object, url: str) -> None:
    _define(monkeypatch, "tiering_metadata", connection)
    assert TieringHook().settings().metadata.url.get_secret_value() == url


def test_the_environment_wins_and_a_job_gets_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    _define(monkeypatch, "tiering_remote_storage", STORAGE)
    monkeypatch.setenv("TIERING_REMOTE_STORAGE__URL", "s3://other")
    environment = TieringHook().job_environment()
    assert environment["TIERING_REMOTE_STORAGE__URL"] == "s3://other"
    assert environment["TIERING_REMOTE_STORAGE__SECRET_ACCESS_KEY"] == "s3cret"
    assert TieringHook().settings().origin("remote_storage.endpoint_url") == "Airflow connection"


def test_without_a_login_in_the_settings_airflows_own_is_used_and_no_job_gets_it() -> None:
    airflow = TieringHook().settings().airflow
    assert (airflow.url, airflow.login_file) == (configuration.api_base_url(), configuration.api_login_file())
    assert TieringHook().settings().origin("airflow.login_file") == "airflow.cfg"
    assert not [name for name in TieringHook().job_environment() if name.startswith("TIERING_AIRFLOW")]


def test_a_job_may_ask_the_brokers_and_does_not_get_the_principal_that_publishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIERING_CLUSTER__SASL_PASSWORD", "of-the-reader")
    monkeypatch.setenv("TIERING_METADATA_TOPIC__SASL_PASSWORD", "of-the-publisher")
    environment = TieringHook().job_environment()
    assert environment["TIERING_CLUSTER__SASL_PASSWORD"] == "of-the-reader"
    assert not [name for name, value in environment.items() if "METADATA_TOPIC" in name or value == "of-the-publisher"]


def test_a_login_in_the_settings_stays_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERING_AIRFLOW__LOGIN_FILE", "/etc/operator.json")
    monkeypatch.setenv("TIERING_AIRFLOW__URL", "http://elsewhere:8080")
    airflow = TieringHook().settings().airflow
    assert (airflow.url, str(airflow.login_file)) == ("http://elsewhere:8080", "/etc/operator.json")


# pyspark-client lies at the paths of pyspark.


def _install(site: Path, name: str, version: str, *files: str) -> None:
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    for file in files:
        (site / file).parent.mkdir(exist_ok=True)
        (site / file).touch()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, f"{info.name}/RECORD")))


@pytest.mark.parametrize(("version", "files"), [("4.3.0", ["pyspark/version.py"]), ("4.3.0+empty", []), (None, [])])
def test_a_pyspark_that_nothing_overwrote_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str | None, files: list[str]
) -> None:
    _install(tmp_path, "pyspark", "4.3.0", "pyspark/version.py")
    if version is not None:
        _install(tmp_path, "pyspark-client", version, *files)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    require_whole_pyspark()


def test_a_pyspark_with_files_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _install(tmp_path, "pyspark", "4.3.0", "pyspark/version.py")
    _install(tmp_path, "pyspark-client", "4.2.0", "pyspark/version.py")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(SettingError, match=r"pyspark-client 4\.2\.0 lies over .* pyspark 4\.3\.0"):
        require_whole_pyspark()
