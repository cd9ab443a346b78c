"""Alerts by a running Airflow: its DAG processor tells of a failed run, its triggerer of a missed deadline."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from local.runs import trigger, wait_for_dag, wait_for_run
from tests.doubles import file_notifier
from tests.doubles.airflow_home import COPY, WAIT_SECONDS, RunningPlatform, running_platform
from tests.doubles.broker_data import broker_data
from tests.doubles.patience import eventually

pytestmark = pytest.mark.timeout(7_200)

AUDIT, CONFIGS = "tiering_audit", "tiering_configs"
NOTIFIER: Final = f"{file_notifier.__name__}.{file_notifier.FileNotifier.__name__}"


@pytest.fixture(scope="module")
def told_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("told") / "told.jsonl"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, told_file: Path) -> Iterator[RunningPlatform]:
    words = {"subject": "{{ tiering_subject }}", "message": "{{ tiering_message }}"}
    environment = {
        "AIRFLOW__TIERING__NOTIFIERS": json.dumps([{"class": NOTIFIER, "kwargs": {"path": str(told_file), **words}}]),
        "AIRFLOW__TIERING__DEADLINES": f"{COPY}=1s",
        # Only what this test asks for runs.
        "AIRFLOW__TIERING__COPY_SCHEDULE": "",
        "AIRFLOW__TIERING__EXPIRATION_SCHEDULE": "",
    }
    brokers = broker_data("public") / "stopped"
    with running_platform(tmp_path_factory.mktemp("platform"), brokers, environment=environment) as started:
        for dag_id in (AUDIT, CONFIGS):
            wait_for_dag(started.api, dag_id, seconds=WAIT_SECONDS)
        yield started


def _dags_check(running: RunningPlatform) -> str:
    checks = json.loads(running.command("ready", "-o", "json"))["checks"]
    return next(str(check["message"]) for check in checks if check["name"] == "dags")


def test_ready_names_what_is_paused(running: RunningPlatform) -> None:
    running.api.patch(f"/dags/{AUDIT}", {"is_paused": False})
    before = _dags_check(running)
    running.api.patch(f"/dags/{AUDIT}", {"is_paused": True})
    assert AUDIT not in before
    assert f"paused in Airflow, so that no run of them begins: {AUDIT}" in _dags_check(running)


def test_a_failed_run_and_a_missed_deadline_are_told(running: RunningPlatform, told_file: Path) -> None:
    def told() -> list[dict[str, Any]]:
        return [json.loads(line) for line in told_file.read_text().splitlines()] if told_file.exists() else []

    subjects = {f"{CONFIGS} failed", f"{COPY} missed its deadline"}

    running.command("pause")
    for dag_id in (COPY, CONFIGS):
        running.api.patch(f"/dags/{dag_id}", {"is_paused": False})
    late, failed = trigger(running.api, COPY, {}), trigger(running.api, CONFIGS, {})
    run = wait_for_run(running.api, CONFIGS, failed, seconds=WAIT_SECONDS, on_change=print)
    assert run.state == "failed"
    eventually(
        lambda: {each["subject"] for each in told()} >= subjects,
        "both are told",
        seconds=WAIT_SECONDS,
        pause_seconds=0.5,
    )
    messages = {each["subject"]: each["message"] for each in told()}
    assert len(told()) == len(messages) == 2, "each is told once"
    base_url = running.platform.base_url
    assert messages[f"{CONFIGS} failed"].endswith(f"({base_url}/dags/{CONFIGS}/runs/{failed})")
    assert messages[f"{COPY} missed its deadline"].endswith(f"({base_url}/dags/{COPY}/runs/{late})")
    # The run is not ended by it: it still waits for the pause to end.
    assert running.api.get(f"/dags/{COPY}/dagRuns/{late}")["state"] == "running"
