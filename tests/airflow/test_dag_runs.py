"""DAGs run by Airflow's own runner: templates, XComs, mapping, trigger rules, and a real Spark job."""

from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from sqlalchemy import select

from include.tiering.database.schema import leases, planned_partitions
from include.tiering.model.segments import Verdict
from include.tiering.runs.contract import SegmentOutcome
from include.tiering.verification.data_docs import DataDocs
from tests.doubles.airflow_answers import person_says
from tests.doubles.airflow_home import Deployment, deployed_for, deployment, task_environment
from tests.doubles.orphans import plant_orphan, stored_files
from tests.doubles.source_tree import ROOT

# `tiering_audit` run by Airflow's own DAG runner, with a person who answers, and a real Spark job.

# Airflow's in-process API server warns of its own dependencies while it is imported.
pytestmark = pytest.mark.filterwarnings("default")


def test_orphans_go_by_a_persons_word_and_a_missing_object_sounds_the_alarm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = deployed_for(monkeypatch, deployment(tmp_path), tasks=True)
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVERS", "olga")
    made.copied("audit_log")
    missing = min(made.remote.rglob("*.rsm-manifest"))
    missing.unlink()
    before = stored_files(made.remote)
    plant_orphan(made.remote)
    with person_says("Approve") as olga:
        run = DagBag(str(ROOT / "dags")).dags["tiering_audit"].test(run_conf={"delete_orphans": True})
    states = {task.task_id: str(task.state) for task in run.get_task_instances()}
    assert states == dict.fromkeys(states, "success") | {"alarm": "failed"}
    assert str(run.state) == "failed"
    assert stored_files(made.remote) == before
    ((subject, body),) = olga.questions
    assert subject.startswith("Remove 2 objects")
    assert "audit_log" in body
    with made.open() as app:
        found = {
            (one.finding.kind.value, one.finding.key): one.state.value for one in app.adapters.stores.audits.findings()
        }
        approval = app.adapters.stores.removals.run(f"audit-remove-{run.run_id}").approval
    assert found == {("dangling-reference", missing.relative_to(made.remote).as_posix()): "open"}
    assert approval is not None
    assert approval.author.startswith("olga (tiering_audit ")


# `tiering_quality` run by Airflow's own DAG runner: templates, XComs, mapping, trigger rules, and a real Spark job.

# Airflow's in-process API server warns of its own dependencies while it is imported.


def test_a_damaged_segment_fails_the_run_and_is_a_task_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = deployed_for(monkeypatch, deployment(tmp_path), tasks=True)
    monkeypatch.setenv("TIERING_DATA_DOCS__PATH", str(tmp_path / "docs"))
    made.copied("audit_log", run_id="copy-1")
    log = min(made.remote.rglob("*.log"))
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    run = DagBag(str(ROOT / "dags")).dags["tiering_quality"].test(run_conf={"depth": "deep"})
    states = {task.task_id: str(task.state) for task in run.get_task_instances()}
    assert str(run.state) == "failed"
    assert states == {
        "ready": "success",
        "plan": "success",
        "verify": "success",
        "missing": "success",
        "summary": "success",
        "failed_segment": "failed",
        "outcome": "failed",
    }
    (named,) = (task for task in run.get_task_instances() if task.task_id == "failed_segment")
    assert named.rendered_map_index.startswith("audit_log-")
    (page,) = (tmp_path / "docs" / "tiering_quality").glob("*/index.html")
    assert log.stem[21:] in page.read_text()
    with made.open() as app:
        totals = {
            total.verdict: total.segments for total in app.adapters.stores.metadata.verdict_totals() if total.segments
        }
    assert totals == {Verdict.PASSED: 2, Verdict.FAILED: 1}


# `tiering_copy` run by Airflow's own DAG runner: templates, XComs, mapping, trigger rules, and a real Spark job.

# Airflow's in-process API server warns of its own dependencies while it is imported.


RACKS = {1: "queue = 'rack-a'", 2: "spark_resource = 'local_disk'"}


@pytest.fixture
def deployed_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    return _deployed(monkeypatch, deployment(tmp_path))


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    """Each broker's log dir is somewhere else."""
    return _deployed(monkeypatch, deployment(tmp_path, placements=RACKS))


def _deployed(monkeypatch: pytest.MonkeyPatch, made: Deployment) -> Deployment:
    for name, value in task_environment(made).items():
        monkeypatch.setenv(name, value)
    return made


def _dag() -> DAG:
    """Parsed with the settings of now."""
    return DagBag(str(ROOT / "dags")).dags["tiering_copy"]


def _run(dag: DAG, form: dict[str, Any]) -> tuple[str, dict[str, set[str]]]:
    """State of the run, and states by task."""
    run = dag.test(run_conf=form)
    states: dict[str, set[str]] = {}
    for instance in run.get_task_instances():
        states.setdefault(instance.task_id, set()).add(str(instance.state))
    return str(run.state), states


def test_a_dry_run_ends_after_the_plan(deployed_tasks: Deployment) -> None:
    state, tasks = _run(_dag(), {"dry_run": True})
    assert state == "success"
    assert (tasks["ready"], tasks["plan"]) == ({"success"}, {"success"})
    assert tasks["copy"] == tasks["quality_gate"] == tasks["summary"] == {"skipped"}


def test_each_partition_is_copied_by_a_batch_of_its_placement(placed: Deployment) -> None:
    run = _dag().test(run_conf={"topics": ["audit_log"]})
    assert (str(run.state), {str(task.state) for task in run.get_task_instances()}) == ("success", {"success"})
    copies = [task for task in run.get_task_instances() if task.task_id.startswith("copy")]
    assert {(task.task_id, task.queue) for task in copies} == {("copy", "default"), ("copy_rack-a", "rack-a")}
    task_of_batch = {f"{run.run_id}/{task.rendered_map_index.split()[1]}": task.task_id for task in copies}
    with placed.open() as app, app.adapters.engine.connect() as connection:
        assert {item.outcome for item in app.adapters.stores.work.items(run.run_id)} == {SegmentOutcome.COPIED}
        batch_of = {row.partition: row.batch_id for row in connection.execute(select(leases))}
        partitions = connection.execute(select(planned_partitions)).all()
    where = [(row.broker_id, task_of_batch[batch_of[row.partition]]) for row in partitions]
    assert sorted(where) == [(1, "copy_rack-a"), (2, "copy")]
    # The packed library stays for the next job, and the report of the run; nothing of Spark's does.
    docs, library = sorted((placed.directory / "work").iterdir(), key=lambda path: path.suffix)
    assert (docs.name, library.suffix) == ("data-docs", ".zip")
    summary = DataDocs(docs).summary("tiering_copy", run.run_id)
    assert summary is not None
    assert summary.sentence == "All 3 segments passed"
