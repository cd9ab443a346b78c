"""`tiering_quality` run by Airflow's own DAG runner: templates, XComs, mapping, trigger rules, and a real Spark job."""

from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag

from include.tiering.model.segments import Verdict
from tests.doubles.airflow_home import deployed_for, deployment
from tests.doubles.source_tree import ROOT

# Airflow's in-process API server warns of its own dependencies while it is imported.
pytestmark = pytest.mark.filterwarnings("default")


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
