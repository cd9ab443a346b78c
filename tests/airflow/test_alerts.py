"""Failed runs and missed deadlines are told to all notifiers; a task that hangs ends, and so does its Spark job."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import psutil
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import BaseNotifier
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowTaskTimeout
from airflow.serialization.serialized_objects import DagSerialization

from include.tiering.errors import HandoverForgottenError, MetadataUnavailableError, SettingError
from plugins.tiering_airflow import alerts, configuration
from plugins.tiering_airflow.shared import RETRY_DELAY, RetryRetriableErrors
from plugins.tiering_airflow.spark import SparkJobHook
from tests.doubles.patience import PATIENCE_SECONDS
from tests.doubles.source_tree import ROOT

HERE = __name__
RUN = SimpleNamespace(dag_id="tiering_handover_watch", run_id="scheduled__1")


class Recorder(BaseNotifier):
    """Keeps what it is told."""

    told: ClassVar[list[tuple[str, str]]] = []
    template_fields = ("text",)

    def __init__(self, text: str, to: str = "") -> None:
        super().__init__()
        self.text, self.to = text, to

    def notify(self, context: Any) -> None:
        self.told.append((self.to, self.text))


class Broken(BaseNotifier):
    """Reaches nobody."""

    def notify(self, context: Any) -> None:
        raise ConnectionError("no mail server")


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    monkeypatch.setattr(Recorder, "told", [])
    recorder = {"class": f"{HERE}.Recorder", "kwargs": {"text": "{{ tiering_subject }}: {{ tiering_message }}"}}
    _configure(monkeypatch, {"class": f"{HERE}.Broken"}, recorder)
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "http://airflow:8080")
    return Recorder.told


def _configure(monkeypatch: pytest.MonkeyPatch, *notifiers: Any) -> None:
    monkeypatch.setenv("AIRFLOW__TIERING__NOTIFIERS", json.dumps(notifiers))


def _dags() -> dict[str, Any]:
    bag = DagBag(str(ROOT / "dags"))
    assert bag.import_errors == {}
    return dict(bag.dags)


def test_a_forgotten_handover_is_told_with_the_command_to_call(told: list[tuple[str, str]]) -> None:
    (task,) = _dags()["tiering_handover_watch"].tasks
    (callback,) = task.on_failure_callback
    error = HandoverForgottenError("orders is at watch: ./tiering handover orders --resume")
    with pytest.raises(ExceptionGroup, match="not all notifiers were told"):
        callback({"dag_run": RUN, "exception": error})
    ((_, text),) = told
    subject = "tiering_handover_watch failed"
    address = "http://airflow:8080/dags/tiering_handover_watch/runs/scheduled__1"
    assert text == f"{subject}: {subject}: {error} ({address})"


def test_every_failed_run_is_told_once() -> None:
    for dag_id, dag in _dags().items():
        of_tasks = [task.task_id for task in dag.tasks if not task.is_mapped and task.on_failure_callback]
        if dag_id == "tiering_handover_watch":
            assert (of_tasks, dag.on_failure_callback) == (["forgotten"], None)
        else:
            assert (of_tasks, dag.on_failure_callback) == ([], alerts.run_failed), dag_id


def test_a_missed_deadline_is_told_in_the_triggerer(told: list[tuple[str, str]]) -> None:
    run = {"dag_id": "tiering_copy", "dag_run_id": "manual__1", "state": "running", "end_date": None}
    context = {"dag_run": run, "deadline": {"id": "1"}}
    with pytest.raises(ExceptionGroup):
        asyncio.run(alerts.deadline_missed(context))
    ((_, text),) = told
    assert text.startswith("tiering_copy missed its deadline: tiering_copy missed its deadline: it has not ended")
    assert "http://airflow:8080/dags/tiering_copy/runs/manual__1" in text


@pytest.mark.parametrize("state", ["failed", "success"])
def test_the_deadline_of_a_run_that_has_ended_is_not_told(told: list[tuple[str, str]], state: str) -> None:
    """Airflow drops the deadline of a run that succeeds, but not of one that failed or that a person marked."""
    run = {"dag_id": "tiering_copy", "dag_run_id": "manual__1", "state": state, "end_date": "2026-01-01T00:00:00Z"}
    asyncio.run(alerts.deadline_missed({"dag_run": run}))
    assert told == []


def test_every_run_has_a_deadline_and_every_task_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__TIERING__DEADLINES", "tiering_copy = 90m, tiering_ingest=1d")
    monkeypatch.setenv("AIRFLOW__TIERING__TASK_TIMEOUT", "2h")
    for dag_id, dag in _dags().items():
        (deadline,) = dag.deadline
        wanted = {"tiering_copy": timedelta(minutes=90), "tiering_ingest": timedelta(days=1)}
        asks = any(task.task_id == "approval" for task in dag.tasks)
        assert deadline.interval == wanted.get(dag_id, alerts.DEADLINES[dag_id] + timedelta(hours=24 if asks else 0))
        assert deadline.callback.path == "plugins.tiering_airflow.alerts.deadline_missed"
        assert deadline.callback.kwargs == {}
        for task in dag.tasks:
            # The copy and the quality check of a handover take a whole topic.
            whole = dag_id == "tiering_handover" and task.task_id in ("copy", "gate")
            timeout = timedelta(hours=14 if whole else 2)
            # A person may take as long as `expiration_approval_hours` says.
            assert task.execution_timeout == (None if task.task_id == "approval" else timeout), (dag_id, task.task_id)


@pytest.mark.parametrize("text", [None, ""])
def test_without_notifiers_no_callback_runs(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    """Also if the environment empties an option of airflow.cfg, which `airflow dags test` needs."""
    monkeypatch.delenv("AIRFLOW__TIERING__NOTIFIERS")
    if text is not None:
        monkeypatch.setenv("AIRFLOW__TIERING__NOTIFIERS", text)
    assert alerts.problems() == ()
    assert all(dag.on_failure_callback is None and not dag.deadline for dag in _dags().values())


def test_no_argument_of_a_notifier_is_in_a_dag(monkeypatch: pytest.MonkeyPatch) -> None:
    _configure(monkeypatch, {"class": "not.imported.Here", "kwargs": {"token": "s3cret"}})
    for dag in _dags().values():
        assert "s3cret" not in json.dumps(DagSerialization.to_dict(dag), default=str)


@pytest.mark.parametrize(
    ("option", "text", "says"), [("TASK_TIMEOUT", "3", "with its unit"), ("TIMEZONE", "Mars/Olympus", "Europe/Berlin")]
)
def test_a_wrong_option_is_named_where_dags_are_listed(
    monkeypatch: pytest.MonkeyPatch, option: str, text: str, says: str
) -> None:
    monkeypatch.setenv(f"AIRFLOW__TIERING__{option}", text)
    (error,) = DagBag(str(ROOT / "dags" / "tiering_copy.py")).import_errors.values()
    assert "SettingError" in error
    assert says in error.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "text", "says"),
    [
        ("NOTIFIERS", "s3cret", "is no JSON"),
        ("NOTIFIERS", '{"class": "s3cret.Notifier"}', "is no list"),
        ("NOTIFIERS", '[{"class": "s3cret"}]', "entry 1"),
        ("NOTIFIERS", '[{"class": "a.B"}, {"class": "a.B", "password": "s3cret"}]', "entry 2"),
        ("DEADLINES", "tiering_copy", "give DAG=DURATION"),
        ("DEADLINES", "tiering_copy=0h", "above 0"),
        ("DEADLINES", "tiering_copying=1h", "names tiering_copying"),
    ],
)
def test_a_wrong_option_about_alerts_stops_no_dag_and_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, option: str, text: str, says: str
) -> None:
    """Who is told, and when, is no part of the work. A failed run still calls what tells, which logs what is wrong."""
    monkeypatch.setenv(f"AIRFLOW__TIERING__{option}", text)
    for dag_id, dag in _dags().items():
        (deadline,) = dag.deadline
        waits = timedelta(hours=24 if any(task.task_id == "approval" for task in dag.tasks) else 0)
        assert deadline.interval == alerts.DEADLINES[dag_id] + waits
    (problem,) = (line for line in alerts.problems() if option.lower() in line)
    assert says in problem
    assert says in caplog.text
    assert "s3cret" not in problem + caplog.text
    if option == "NOTIFIERS":
        with pytest.raises(SettingError, match=says):
            alerts.run_failed({"dag_run": RUN})
        assert "tiering_handover_watch failed" in caplog.text


@pytest.mark.parametrize(
    ("path", "arguments", "says"),
    [
        ("no_such_package.Notifier", {}, "No module named 'no_such_package'"),
        (f"{HERE}.Misspelt", {}, "Misspelt"),
        ("pathlib.Path", {}, "is no notifier of Airflow"),
        (f"{HERE}.PATIENCE_SECONDS", {}, "is no notifier of Airflow"),
        (f"{HERE}.Recorder", {"to": "s3cret"}, "missing a required argument: 'text'"),
        (f"{HERE}.Recorder", {"text": "x", "subject": "s3cret"}, "unexpected keyword argument 'subject'"),
    ],
)
def test_a_notifier_that_cannot_be_made_is_named_before_there_is_something_to_tell(
    monkeypatch: pytest.MonkeyPatch, path: str, arguments: dict[str, str], says: str
) -> None:
    _configure(monkeypatch, {"class": f"{HERE}.Recorder", "kwargs": {"text": ""}}, {"class": path, "kwargs": arguments})
    (problem,) = alerts.problems()
    assert problem.startswith(f"entry 2 of [tiering] notifiers, {path}: ")
    assert says in problem
    assert "s3cret" not in problem


def test_a_percent_sign_in_airflow_cfg_is_written_twice(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """As in every option of that file. In the environment it is written once."""
    monkeypatch.delenv("AIRFLOW__TIERING__NOTIFIERS")
    request.addfinalizer(lambda: conf.remove_option("tiering", "notifiers"))
    text = '[{"class": "a.B", "kwargs": {"text": "s3cret 5% {% if x %}"}}]'
    conf.read_string(f"[tiering]\nnotifiers = {text}\n")
    assert len(_dags()) == 11
    (problem,) = alerts.problems()
    assert "[tiering] notifiers has a %" in problem
    assert "%%" in problem
    assert "s3cret" not in problem
    for written in (text.replace("%", "%%"), None):
        if written is None:
            monkeypatch.setenv("AIRFLOW__TIERING__NOTIFIERS", text)
        else:
            conf.read_string(f"[tiering]\nnotifiers = {written}\n")
        (notifier,) = configuration.notifiers()
        assert notifier.arguments == {"text": "s3cret 5% {% if x %}"}


def test_schedules_are_in_the_time_zone_of_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__TIERING__TIMEZONE", "Europe/Berlin")
    dags = _dags()
    assert str(dags["tiering_audit"].timezone) == "Europe/Berlin"
    sizes = json.dumps(DagSerialization.to_dict(dags["tiering_remote_log_sizes"]), default=str)
    assert '"Europe/Berlin"' in sizes
    monkeypatch.delenv("AIRFLOW__TIERING__TIMEZONE")
    assert str(_dags()["tiering_audit"].timezone) == "UTC"


def test_a_delay_before_a_retry_is_twice_the_one_before() -> None:
    decisions = [RetryRetriableErrors().evaluate(MetadataUnavailableError("away"), number, 9) for number in range(1, 9)]
    delays = [decision.retry_delay for decision in decisions]
    assert delays[:3] == [RETRY_DELAY, 2 * RETRY_DELAY, 4 * RETRY_DELAY]
    assert delays[-1] == timedelta(minutes=10)


def test_a_job_that_runs_too_long_ends_with_its_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Airflow raises at the timeout, and then calls `on_kill`. The provider alone kills only what it has started."""
    driver = tmp_path / "driver"
    submit = tmp_path / "spark-submit"
    submit.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {driver}\necho started\nwait\n")
    submit.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("AIRFLOW_CONN_TIERING_SPARK", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    hook = SparkJobHook(environment={"PATH": f"{tmp_path}:/usr/bin:/bin"}, conn_id="tiering_spark", conf={})

    def reads_until_the_timeout(lines: Any) -> None:
        next(lines)
        raise AirflowTaskTimeout("Timeout")

    monkeypatch.setattr(hook, "_process_spark_submit_log", reads_until_the_timeout)
    with pytest.raises(AirflowTaskTimeout):
        hook.submit("job.py")
    submitted: Any = hook._submit_sp
    process = psutil.Process(int(driver.read_text()))
    try:
        hook.on_kill()
        _, alive = psutil.wait_procs([process], timeout=PATIENCE_SECONDS)
        assert alive == []
        assert submitted.wait() != 0
    finally:
        if process.is_running():
            process.kill()


def test_the_timeout_is_the_one_of_the_options() -> None:
    assert configuration.task_timeout() == timedelta(hours=24)
