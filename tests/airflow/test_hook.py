"""Settings that Airflow's connections hold."""

import json
from typing import Any

import pytest

from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.hook import TieringHook, connection_settings

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
