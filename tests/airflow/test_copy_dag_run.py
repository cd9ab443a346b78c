"""`tiering_copy` run by Airflow's own DAG runner: templates, XComs, mapping, trigger rules, and a real Spark job."""

from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG

from include.tiering.settings import load_settings
from include.tiering.wiring import open_tiering
from local.airflow_home import platform_environment
from local.java import java_environment
from local.layout import Layout
from tests.doubles.airflow_home import Deployment, airflow_database, deployment
from tests.doubles.source_tree import ROOT

# Airflow's in-process API server warns of its own dependencies while it is imported.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    made = deployment(tmp_path)
    home = airflow_database()
    environment = platform_environment(Layout(home, tmp_path), java_environment(), made.environment)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AIRFLOW__TIERING__WORK_DIR", str(tmp_path / "work"))
    return made


@pytest.fixture
def dag() -> DAG:
    return DagBag(str(ROOT / "dags")).dags["tiering_copy"]


def _run(dag: DAG, form: dict[str, Any]) -> tuple[str, dict[str, set[str]]]:
    """State of the run, and states by task."""
    run = dag.test(run_conf=form)
    states: dict[str, set[str]] = {}
    for instance in run.get_task_instances():
        states.setdefault(instance.task_id, set()).add(str(instance.state))
    return str(run.state), states


def test_a_dry_run_ends_after_the_plan(dag: DAG, deployed: Deployment) -> None:
    state, tasks = _run(dag, {"dry_run": True})
    assert state == "success"
    assert (tasks["ready"], tasks["plan"]) == ({"success"}, {"success"})
    assert tasks["copy"] == tasks["quality_gate"] == tasks["summary"] == {"skipped"}


def test_a_run_copies_judges_and_reports(dag: DAG, deployed: Deployment) -> None:
    state, tasks = _run(dag, {"topics": ["bigrecs"]})
    assert (state, set().union(*tasks.values())) == ("success", {"success"})
    with open_tiering(load_settings(deployed.config)) as tiering:
        (size,) = tiering.sizes()
    assert (size.topic_id_partition.topic, size.segments, size.size_bytes) == ("bigrecs", 1, 988505)
    # The packed library stays for the next job; nothing of Spark's does.
    assert [path.suffix for path in (deployed.directory / "work").iterdir()] == [".zip"]
