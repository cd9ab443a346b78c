"""`tiering_copy` run by Airflow's own DAG runner: templates, XComs, mapping, trigger rules, and a real Spark job."""

from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from sqlalchemy import select

from include.tiering.database.schema import leases, planned_partitions
from include.tiering.runs.contract import SegmentOutcome
from include.tiering.verification.data_docs import DataDocs
from tests.doubles.airflow_home import Deployment, deployment, task_environment
from tests.doubles.source_tree import ROOT

# Airflow's in-process API server warns of its own dependencies while it is imported.
pytestmark = pytest.mark.filterwarnings("default")


RACKS = {1: "queue = 'rack-a'", 2: "spark_resource = 'local_disk'"}


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
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


def test_a_dry_run_ends_after_the_plan(deployed: Deployment) -> None:
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
