"""Files that a local platform writes before its first start."""

import configparser
import json
import stat
from pathlib import Path

import pytest

from include.tiering.settings import load_settings
from local.airflow_home import configured_base_url, platform_environment, write_airflow_home
from local.layout import ROOT, Layout
from local.secrets_store import ADMIN, OPERATOR, READER, password_of
from local.tiering_config import CONFIG_VARIABLE, sample_settings


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
