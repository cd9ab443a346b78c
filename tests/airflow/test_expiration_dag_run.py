"""`tiering_expiration` run by Airflow's own DAG runner, with a person who answers, and real Spark jobs."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from sqlalchemy import MetaData

from include.tiering.app import open_app
from include.tiering.expiration.delete_segments import DeleteStep
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentState
from include.tiering.runs.deletion_run import DeletionOutcome
from include.tiering.settings import load_settings
from tests.doubles.airflow_answers import person_says, turns_with_tasks
from tests.doubles.airflow_home import Deployment, deployed_for, deployment
from tests.doubles.orphans import MARKER
from tests.doubles.source_tree import ROOT

# Airflow's in-process API server warns of its own dependencies while it is imported.
pytestmark = pytest.mark.filterwarnings("default")

TOPIC = "audit_log"
METRICS = {"metric_series", "metric_hours"}
BOOKKEEPING = {"events", "runs", "planned_expirations", "planned_deletions", "plan_questions", "stores", *METRICS}
"""Tables that a run may write which deletes nothing. Each plan raises the generation of the store and its marker."""


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    made = deployed_for(monkeypatch, deployment(tmp_path), tasks=True)
    made.copied(TOPIC)
    with made.open() as app:
        app.verification.verify_run("copy")
    return made


@pytest.fixture
def careful(deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """No topic is too small for the deletion limit, and one user alone may approve."""
    monkeypatch.setenv("TIERING_EXPIRATION__MIN__BYTES", "0")
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVERS", "olga")
    return deployed


def _dag() -> DAG:
    return DagBag(str(ROOT / "dags")).dags["tiering_expiration"]


def _run(**form: Any) -> tuple[Any, dict[str, set[str]]]:
    """The run, and states by task."""
    run = _dag().test(run_conf={"topics": [TOPIC], **form})
    states: dict[str, set[str]] = {}
    for instance in run.get_task_instances():
        states.setdefault(instance.task_id, set()).add(str(instance.state))
    return run, states


def _picture(made: Deployment) -> dict[str, Any]:
    """Every object by its content, and every row of tables that are not a run's own bookkeeping."""
    objects = {
        str(path.relative_to(made.remote)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in made.remote.rglob("*")
        if path.is_file() and path.name != MARKER
    }
    with made.open() as app, app.adapters.engine.connect() as connection:
        tables = MetaData()
        tables.reflect(connection)
        rows = {
            table.name: sorted(map(str, connection.execute(table.select()).all()))
            for table in tables.sorted_tables
            if table.name not in BOOKKEEPING
        }
    return {"objects": objects, **rows}


def _items(made: Deployment, dag_run_id: str) -> list[DeletionOutcome]:
    with made.open() as app:
        return [item.outcome for item in app.adapters.stores.deletions.items(f"expire-{dag_run_id}")]


def test_nothing_expires_by_itself(deployed: Deployment) -> None:
    before = _picture(deployed)
    run, tasks = _run()
    assert str(run.state) == "success"
    assert tasks["ready"] == tasks["plan"] == tasks["safety_limit"] == tasks["outcome"] == {"success"}
    assert tasks["approval"] == tasks["release"] == tasks["delete"] == tasks["summary"] == {"skipped"}
    assert _picture(deployed) == before


def test_a_dry_run_deletes_nothing_of_what_it_shows(deployed: Deployment, capfd: pytest.CaptureFixture[str]) -> None:
    deployed.expires(TOPIC)
    before = _picture(deployed)
    run, tasks = _run(dry_run=True)
    assert (str(run.state), tasks["delete"]) == ("success", {"skipped"})
    assert _items(deployed, run.run_id) == [DeletionOutcome.PLANNED] * 3
    assert _picture(deployed) == before
    assert "Dry run: nothing is deleted" in capfd.readouterr().out


def test_what_a_dead_batch_left_is_deleted_by_the_next_run(deployed: Deployment) -> None:
    deployed.expires(TOPIC)
    begun = _die_after_a_deletion_began(deployed)
    # From here on nothing expires: what goes is what was begun.
    deployed.expires(TOPIC, retention_bytes=None)
    run, tasks = _run()
    assert str(run.state) == "success"
    assert tasks.pop("approval") == {"skipped"}
    assert set().union(*tasks.values()) == {"success"}
    with deployed.open() as app:
        items = app.adapters.stores.deletions.items(f"expire-{run.run_id}")
        left = [
            row.metadata
            for one in app.adapters.stores.metadata.partitions()
            for row in app.adapters.stores.metadata.list_segments(one)
        ]
    assert {item.planned.segment_id for item in items} == begun
    assert {(item.planned.reason, item.outcome) for item in items} == {
        (DeletionReason.UNFINISHED_DELETE, DeletionOutcome.DELETED)
    }
    assert [segment.state for segment in left] == [RemoteLogSegmentState.COPY_SEGMENT_FINISHED] * (3 - len(begun))
    assert len(list(deployed.remote.rglob("*.log"))) == len(left)


def _die_after_a_deletion_began(made: Deployment) -> set[RemoteLogSegmentId]:
    """Ids of the segments in DELETE_SEGMENT_STARTED."""

    def observe(step: StrEnum, *_: object) -> None:
        if step is DeleteStep.DELETE_STARTED:
            raise KeyboardInterrupt

    with open_app(load_settings(made.config), observe=observe) as app:
        app.expiration.plan("dead")
        app.expiration.apply_limits("dead")
        with pytest.raises(KeyboardInterrupt):
            app.expiration.run_batch("dead", "dead/0")
        rows = [
            row.metadata
            for one in app.adapters.stores.metadata.partitions()
            for row in app.adapters.stores.metadata.list_segments(one)
        ]
    begun = {row.remote_log_segment_id for row in rows if row.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED}
    assert 0 < len(begun) < len(rows)
    return begun


def test_a_reject_leaves_everything(careful: Deployment) -> None:
    careful.expires(TOPIC)
    before = _picture(careful)
    with person_says("Reject") as person:
        run, tasks = _run()
    assert len(person.questions) == 1
    assert str(run.state) == "success"
    assert (tasks["approval"], tasks["outcome"]) == ({"success"}, {"success"})
    assert tasks["release"] == tasks["delete"] == tasks["summary"] == {"skipped"}
    assert _picture(careful) == before


def test_without_an_answer_nothing_goes_and_the_run_fails(careful: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVAL_HOURS", "0.0001")
    careful.expires(TOPIC)
    before = _picture(careful)
    with _scheduler_that_sweeps():
        run, tasks = _run()
    assert (str(run.state), tasks["approval"], tasks["outcome"]) == ("failed", {"success"}, {"failed"})
    assert tasks["release"] == tasks["delete"] == {"skipped"}
    assert _picture(careful) == before


@contextmanager
def _scheduler_that_sweeps() -> Iterator[None]:
    """The part of Airflow's scheduler that ends a wait for an answer; its DAG runner for tests has none."""
    from airflow.jobs.job import Job
    from airflow.jobs.scheduler_job_runner import SchedulerJobRunner

    scheduler, ended = SchedulerJobRunner(Job()), threading.Event()

    with turns_with_tasks() as turn:

        def sweep() -> None:
            while not ended.wait(0.5):
                with turn:
                    scheduler.check_awaiting_input_timeouts()

        thread = threading.Thread(target=sweep, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def test_an_approval_goes_on_with_the_plan_that_was_shown(careful: Deployment) -> None:
    careful.expires(TOPIC)
    with person_says("Approve") as person:
        run, tasks = _run()
    assert (str(run.state), tasks["delete"]) == ("success", {"success"})
    assert _items(careful, run.run_id) == [DeletionOutcome.DELETED] * 3
    assert person.refused == [("mallory", 403)]
    ((subject, body),) = person.questions
    with careful.open() as app:
        stored = app.adapters.stores.deletions.run(f"expire-{run.run_id}")
    assert stored.approval is not None
    assert stored.approval.plan_hash == stored.plan_hash
    assert stored.approval.author.startswith(f"olga (tiering_expiration {run.run_id}, answered 20")
    assert stored.plan_hash in body
    assert stored.plan_hash[:12] in subject
    assert f"| `{TOPIC}` | 3 | " in body
    assert " | 100.0% | " in body


def test_an_approval_of_what_would_stay_now_is_not_enough(careful: Deployment) -> None:
    careful.expires(TOPIC)
    before = _picture(careful)
    with person_says("Approve", before=lambda: careful.expires(TOPIC, retention_bytes=None)):
        run, tasks = _run()
    assert (str(run.state), tasks["release"]) == ("failed", {"failed"})
    assert _items(careful, run.run_id) == [DeletionOutcome.PLANNED] * 3
    assert _picture(careful)["objects"] == before["objects"]
    with careful.open() as app:
        assert app.adapters.stores.deletions.run(f"expire-{run.run_id}").approval is None
