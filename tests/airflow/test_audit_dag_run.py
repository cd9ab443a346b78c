"""`tiering_audit` run by Airflow's own DAG runner, with a person who answers, and a real Spark job."""

from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag

from tests.doubles.airflow_home import deployed_for, deployment
from tests.doubles.airflow_person import person_says
from tests.doubles.orphans import plant_orphan, stored_files
from tests.doubles.source_tree import ROOT

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
