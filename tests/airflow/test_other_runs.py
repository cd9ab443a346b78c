"""Runs of `tiering_expiration` side by side: one that waits holds up nobody else, and no topic is in two hands."""

from collections.abc import Collection
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import TaskInstanceState

from include.tiering.app import App
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.deletion_run import DeletionOutcome
from plugins.tiering_airflow.expiration import ENDED, WAITS_FOR_A_PERSON, ReleaseOperator, SafetyLimitOperator
from plugins.tiering_airflow.shared import APPROVAL_TASK_ID, OUTCOME_TASK_ID, PLANNED_RUN_KEY, RELEASE_TASK_ID
from tests.doubles.airflow_answers import answers
from tests.doubles.airflow_home import Deployment, deployment
from tests.doubles.source_tree import ROOT

DAG_ID: Final = "tiering_expiration"
LARGE, SMALL = "bigrecs", "audit_log"
FLOOR_BYTES: Final = 100_000
"""Of the large topic more goes at once than this, of the small one less."""
_LIMITS: Final = {
    "TIERING_EXPIRATION__MIN__BYTES": str(FLOOR_BYTES),
    "TIERING_EXPIRATION__MAX__WHOLE__TOPICS": "2",
}


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    """Everything of both topics has expired."""
    made = deployment(tmp_path)
    for name, value in (made.environment | _LIMITS).items():
        monkeypatch.setenv(name, value)
    made.copied(LARGE, SMALL)
    made.expires(LARGE, SMALL)
    return made


@cache
def _plan_task() -> Any:
    return DagBag(str(ROOT / "dags")).dags[DAG_ID].get_task("plan")


class _Airflow:
    """States and XComs of runs, as tasks see them: of their own run and of others."""

    def __init__(self) -> None:
        self.states: dict[str, dict[str, str | None]] = {}
        self.xcoms: dict[str, dict[str, Any]] = {}


class _Run:
    """One run of the DAG, task by task; the context's `ti` of all of them."""

    def __init__(self, airflow: _Airflow, run_id: str) -> None:
        self.airflow = airflow
        self.run_id = run_id
        self.try_number = 1
        airflow.states[run_id] = {APPROVAL_TASK_ID: None, OUTCOME_TASK_ID: None}
        airflow.xcoms[run_id] = {}

    @property
    def pushed(self) -> dict[str, Any]:
        return self.airflow.xcoms[self.run_id]

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, task_ids: str, key: str, run_id: str | None = None) -> Any:
        return self.airflow.xcoms[run_id or self.run_id].get(key)

    def get_task_states(
        self, dag_id: str, task_ids: Collection[str], run_ids: Collection[str]
    ) -> dict[str, dict[str, str | None]]:
        assert dag_id == DAG_ID
        found = {run_id: states for run_id, states in self.airflow.states.items() if run_id in run_ids}
        return {run_id: {task: states[task] for task in task_ids} for run_id, states in found.items()}

    def context(self, **form: Any) -> Any:
        params = {"topics": None, "dry_run": False, **form}
        dag_run = SimpleNamespace(dag_id=DAG_ID, run_id=self.run_id)
        return {"params": params, "run_id": self.run_id, "dag_run": dag_run, "ti": self}

    def plan(self, **form: Any) -> dict[str, int]:
        return dict(_plan_task().execute(self.context(**form)))

    @property
    def planned_run_id(self) -> str:
        return str(self.pushed[PLANNED_RUN_KEY])

    def apply_limits(self) -> str | None:
        branch = SafetyLimitOperator(task_id="safety_limit", planned_run_id=self.planned_run_id).choose_branch(
            self.context()
        )
        if branch == APPROVAL_TASK_ID:
            self.airflow.states[self.run_id][APPROVAL_TASK_ID] = "awaiting_input"
        return branch

    def answer(self, option: str) -> None:
        self.airflow.states[self.run_id][APPROVAL_TASK_ID] = "success"
        answers(DAG_ID, self.run_id, "olga", option)
        if option == "Reject":
            self.end("success")

    def release_and_delete(self, made: Deployment) -> None:
        batches = ReleaseOperator(task_id=RELEASE_TASK_ID, planned_run_id=self.planned_run_id).execute(self.context())
        with made.open() as app:
            for batch in batches:
                app.expiration.run_batch(self.planned_run_id, f"{self.planned_run_id}/{batch['batch']}")

    def end(self, state: str) -> None:
        self.airflow.states[self.run_id][OUTCOME_TASK_ID] = state


@pytest.fixture
def airflow() -> _Airflow:
    return _Airflow()


def _planned(made: Deployment, run: _Run) -> set[str]:
    with made.open() as app:
        return {one.topic_id_partition.topic for one in app.adapters.stores.deletions.plan(run.planned_run_id)}


def _left(made: Deployment) -> set[str]:
    with made.open() as app:
        return {one.topic_id_partition.topic for one in app.sizes.partition_sizes()}


def _outcomes(made: Deployment, run: _Run) -> dict[str, set[tuple[DeletionOutcome, str | None]]]:
    found: dict[str, set[tuple[DeletionOutcome, str | None]]] = {}
    with made.open() as app:
        for item in app.adapters.stores.deletions.items(run.planned_run_id):
            topic = item.planned.segment_id.topic_id_partition.topic
            found.setdefault(topic, set()).add((item.outcome, item.message))
    return found


def test_what_is_below_the_deletion_limit_goes_while_the_rest_waits_for_its_answer(
    deployed: Deployment, airflow: _Airflow, capfd: pytest.CaptureFixture[str]
) -> None:
    asking = _Run(airflow, "scheduled__1")
    asking.plan()
    assert _planned(deployed, asking) == {LARGE, SMALL}
    assert asking.apply_limits() == APPROVAL_TASK_ID
    with deployed.open() as app:
        shown = app.adapters.stores.deletions.run(asking.planned_run_id).plan_hash

    later = _Run(airflow, "scheduled__2")
    assert later.plan()["topics_left_out"] == 1
    assert "is left out: scheduled__1 waits for an approval" in capfd.readouterr().out
    assert _planned(deployed, later) == {SMALL}
    assert later.apply_limits() == RELEASE_TASK_ID
    later.release_and_delete(deployed)
    later.end("success")
    assert _left(deployed) == {LARGE}

    # The answer is about the plan that was shown, and nothing else: what is gone of it meanwhile is nobody's loss.
    asking.answer("Approve")
    asking.release_and_delete(deployed)
    assert _left(deployed) == set()
    with deployed.open() as app:
        approval = app.adapters.stores.deletions.run(asking.planned_run_id).approval
    assert approval is not None
    assert approval.plan_hash == shown
    assert _outcomes(deployed, asking) == {
        LARGE: {(DeletionOutcome.DELETED, None)},
        SMALL: {(DeletionOutcome.DELETED, "was gone already")},
    }
    assert _outcomes(deployed, later) == {SMALL: {(DeletionOutcome.DELETED, None)}}


def test_nobody_is_asked_twice_at_once_and_again_after_a_reject(deployed: Deployment, airflow: _Airflow) -> None:
    asking = _Run(airflow, "scheduled__1")
    asking.plan(topics=[LARGE])
    assert asking.apply_limits() == APPROVAL_TASK_ID
    waiting = _Run(airflow, "manual__1")
    assert waiting.plan(topics=[LARGE])["segments"] == 0
    assert PLANNED_RUN_KEY not in waiting.pushed
    asking.answer("Reject")
    again = _Run(airflow, "scheduled__2")
    assert again.plan(topics=[LARGE])["topics_left_out"] == 0
    assert again.apply_limits() == APPROVAL_TASK_ID


@pytest.mark.parametrize("state", ["failed", "upstream_failed", "success"])
def test_what_a_run_deletes_is_left_to_it_until_it_ends(deployed: Deployment, airflow: _Airflow, state: str) -> None:
    first = _Run(airflow, "scheduled__1.2")
    first.try_number = 3
    first.plan(topics=[SMALL])
    assert first.planned_run_id == "expire-scheduled__1.2.3"
    second = _Run(airflow, "scheduled__2")
    second.plan()
    assert _planned(deployed, second) == {LARGE}
    first.end(state)
    second.end("failed")
    third = _Run(airflow, "scheduled__3")
    assert third.plan()["topics_left_out"] == 0
    assert _planned(deployed, third) == {LARGE, SMALL}


def test_a_dry_run_shows_everything_and_a_plan_made_again_is_its_own(deployed: Deployment, airflow: _Airflow) -> None:
    asking = _Run(airflow, "scheduled__1")
    asking.plan()
    asking.apply_limits()
    shown = _Run(airflow, "manual__1")
    assert shown.plan(dry_run=True)["topics_left_out"] == 0
    assert _planned(deployed, shown) == {LARGE, SMALL}
    shown.end("success")
    asking.airflow.states[asking.run_id][APPROVAL_TASK_ID] = None
    asking.try_number = 2
    assert asking.plan()["topics_left_out"] == 0


def test_runs_of_the_command_line_are_not_looked_for_in_airflow(
    deployed: Deployment, airflow: _Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deployed.open() as app:
        app.expiration.plan("cli-20260101T000000Z-abcdef")
    monkeypatch.setattr(_Run, "get_task_states", None)
    assert _Run(airflow, "scheduled__1").plan()["topics_left_out"] == 0


def test_states_are_airflows_own() -> None:
    unfinished = set(TaskInstanceState) - set(map(TaskInstanceState, (*ENDED, WAITS_FOR_A_PERSON)))
    assert {str(state.value) for state in unfinished} == {
        *("scheduled", "queued", "running", "restarting", "up_for_retry", "up_for_reschedule", "deferred")
    }


def test_two_released_plans_of_the_same_segments_delete_each_once(deployed: Deployment) -> None:
    """What leases and states guarantee by themselves, should two plans ever name the same segments."""
    with deployed.open() as app:
        for run_id in ("one", "two"):
            app.expiration.plan(run_id, topics=[SMALL])
            app.expiration.apply_limits(run_id)
        partition = app.adapters.stores.deletions.plan("one")[0].topic_id_partition
        lease = app.adapters.stores.deletions.claim("one", "one/0", lease_ms=600_000)
        assert lease is not None
        assert _claimed(app, "two") not in (None, lease.fence.topic_id_partition, partition)
        app.adapters.stores.work.release(lease)
        first, second = (app.expiration.run_batch(run_id, f"{run_id}/0") for run_id in ("one", "two"))
        assert len(first.deleted) == len(second.deleted) == 3
        assert {item.message for item in app.adapters.stores.deletions.items("two")} == {"was gone already"}
    assert _left(deployed) == {LARGE}


def _claimed(app: App, run_id: str) -> TopicIdPartition | None:
    """The partition that another run gets meanwhile; given back."""
    lease = app.adapters.stores.deletions.claim(run_id, f"{run_id}/x", lease_ms=600_000)
    if lease is None:
        return None
    app.adapters.stores.work.release(lease)
    return lease.fence.topic_id_partition
