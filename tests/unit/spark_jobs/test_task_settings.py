"""Settings that travel with the function of a task."""

import os
import pickle
from pathlib import Path

import pytest

from include.tiering.errors import SettingError
from spark_jobs.task_settings import (
    TaskSettings,
    require_encrypted_connection,
    require_silent_server,
    unencrypted_words,
)

SECRET = "planted-s3cret"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("TIERING_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TIERING_METADATA__URL", f"sqlite:///{tmp_path}/of-the-driver.sqlite")
    monkeypatch.setenv("TIERING_REMOTE_STORAGE__URL", "s3://bucket/of-the-driver")
    monkeypatch.setenv("TIERING_REMOTE_STORAGE__ACCESS_KEY_ID", "key")
    monkeypatch.setenv("TIERING_REMOTE_STORAGE__SECRET_ACCESS_KEY", SECRET)


def _as_on_another_host(monkeypatch: pytest.MonkeyPatch, sent: TaskSettings) -> TaskSettings:
    """What a task gets in a process with other settings."""
    pickled = pickle.dumps(sent)
    for name in [name for name in os.environ if name.startswith("TIERING_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TIERING_REMOTE_STORAGE__URL", "s3://bucket/of-the-executor")
    received: TaskSettings = pickle.loads(pickled)  # noqa: S301 - our own
    return received


@pytest.mark.usefixtures("environment")
def test_a_task_opens_the_library_with_the_settings_of_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    received = _as_on_another_host(monkeypatch, TaskSettings.of_driver())
    before = dict(os.environ)
    with received.open_app() as app:
        storage = app.settings.remote_storage
        assert storage.url == "s3://bucket/of-the-driver"
        assert storage.secret_access_key is not None
        assert storage.secret_access_key.get_secret_value() == SECRET
    assert dict(os.environ) == before, "a Python process of Spark also runs tasks of others"


@pytest.mark.usefixtures("environment")
def test_a_settings_file_is_read_where_the_driver_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "tiering.toml"
    file.write_text('topics.include = ["orders*"]\n')
    sent = TaskSettings.of_driver(file)
    file.unlink()
    with _as_on_another_host(monkeypatch, sent).open_app() as app:
        assert app.settings.topics.include == ("orders*",)
        assert app.settings.remote_storage.url == "s3://bucket/of-the-driver"
    with pytest.raises(SettingError, match="cannot be read"):
        TaskSettings.of_driver(file)


@pytest.mark.usefixtures("environment")
def test_logins_that_no_job_needs_are_not_sent_and_no_value_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERING_METADATA_TOPIC__SASL_PASSWORD", "of-the-publisher")
    monkeypatch.setenv("TIERING_AIRFLOW__TOKEN", "of-airflow")
    sent = TaskSettings.of_driver()
    pickled = pickle.dumps(sent)
    assert SECRET.encode() in pickled
    assert b"of-the-publisher" not in pickled
    assert b"of-airflow" not in pickled
    assert SECRET not in repr(sent) + str(sent)


ENCRYPTED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}


def test_a_job_says_what_is_sent_in_clear_text() -> None:
    cluster = {"spark.master": "spark://master:7077"}
    assert unencrypted_words({"spark.master": "local[2]"}.get) is None
    assert unencrypted_words({**cluster, **ENCRYPTED}.get) is None
    words = unencrypted_words({**cluster, **ENCRYPTED, "spark.network.crypto.enabled": "false"}.get)
    assert words is not None
    assert "spark.network.crypto.enabled is not true" in words


@pytest.mark.parametrize("conf", [{}, {"spark.log.level": "INFO"}, {"spark.log.level": "debug"}])
def test_nothing_is_sent_to_a_server_that_logs_requests(conf: dict[str, str]) -> None:
    with pytest.raises(SettingError, match=r"start the server with spark\.log\.level=WARN"):
        require_silent_server(conf.get)
    require_silent_server({"spark.log.level": "WARN"}.get)


@pytest.mark.parametrize(
    "remote",
    [
        "sc://localhost",
        "sc://127.0.0.1:15002",
        "sc://[::1]:15002/;user_id=a",
        "sc://spark.example:15002/;user_id=a;use_ssl=true",
        "local[2]",
    ],
)
def test_settings_travel_to_a_server_on_this_host_or_by_tls(remote: str) -> None:
    require_encrypted_connection(remote)


@pytest.mark.parametrize(
    "remote",
    [
        "sc://spark.example",
        "sc://spark.example:15002/;token=s3cret",
        "sc://spark.example:15002/;use_ssl=false",
        "sc://use_ssl=true:15002",
        "sc://127.0.0.1.example:15002",
        "sc://localhost@spark.example:15002",
        "sc://[:15002",
        "",
    ],
)
def test_settings_do_not_travel_to_another_host_in_clear_text(remote: str) -> None:
    with pytest.raises(SettingError, match="use_ssl=true") as refused:
        require_encrypted_connection(remote)
    assert "s3cret" not in str(refused.value)
