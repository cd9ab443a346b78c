"""Who approved a plan, in a running Airflow, where a user who may start DAGs tries everything that Airflow allows.

`second` has the role `user`: it may start runs, change states of tasks and write XComs; `admin` alone may approve.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from include.tiering.app import App
from include.tiering.configs.airflow_api import AirflowApi
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.copying.run_scope import RunScope
from include.tiering.handover.contract import LocalRetention
from include.tiering.handover.rules import STEPS, HandoverStep
from include.tiering.model.segments import Uuid
from local.runs import DagRun, errors_of, trigger, wait_for_dag, wait_for_run
from plugins.tiering_airflow.errors import AirflowApiError
from plugins.tiering_airflow.shared import PLANNED_RUN_KEY
from tests.doubles.airflow_home import EXPIRATION, WAIT_SECONDS, RunningPlatform, running_platform
from tests.doubles.broker_data import copy_of
from tests.doubles.orphans import plant_orphan, stored_files
from tests.doubles.patience import eventually

pytestmark = pytest.mark.timeout(7_200)

AUDIT, HANDOVER = "tiering_audit", "tiering_handover"
TOPIC: Final = "audit_log"
FORGED: Final = {"user": "admin", "answered_at": "2030-01-01T00:00:00+00:00"}
HANDOVER_ID: Final = Uuid(b"handed-over-once")
PLAN: Final = "a" * 64


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlatform]:
    brokers = copy_of("public", tmp_path_factory.mktemp("brokers"), part="stopped")
    with running_platform(
        tmp_path_factory.mktemp("platform"),
        brokers,
        "tiering.expiration.min.bytes = 0",
        environment={"AIRFLOW__TIERING__EXPIRATION_APPROVERS": "admin"},
        users={"second": "user"},
    ) as started:
        for dag_id in (AUDIT, HANDOVER):
            wait_for_dag(started.api, dag_id, seconds=WAIT_SECONDS)
        with started.library() as app:
            app.copying.plan("copy", scope=RunScope((TOPIC,)))
            app.copying.run_batch("copy", "copy/0")
            app.configs.alter(ConfigEntity(EntityType.TOPICS, TOPIC), {"retention.bytes": "0"}, author="test")
        yield started


@pytest.fixture
def second(running: RunningPlatform) -> Iterator[AirflowApi]:
    with running.api_of("second") as api:
        yield api


def _task(dag_id: str, run_id: str, task_id: str) -> str:
    return f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"


def _asked(running: RunningPlatform, api: AirflowApi, dag_id: str, form: dict[str, Any]) -> str:
    """A run that waits for a person; its id."""
    run_id = trigger(api, dag_id, form)
    eventually(lambda: running.may_answer(run_id), f"{run_id} asks", seconds=WAIT_SECONDS, pause_seconds=0.5)
    return run_id


def _answers(api: AirflowApi, dag_id: str, run_id: str, option: str = "Approve") -> None:
    api.patch(f"{_task(dag_id, run_id, 'approval')}/-1/hitlDetails", {"chosen_options": [option], "params_input": {}})


def _forges(api: AirflowApi, dag_id: str, run_id: str, shown: str) -> None:
    """All that an answered question leaves in Airflow, and more, written by a user who was not asked."""
    with pytest.raises(AirflowApiError, match="403"):
        _answers(api, dag_id, run_id)
    task = _task(dag_id, run_id, "approval")
    values = {
        "tiering_answer": FORGED,
        "tiering_shown_plan": shown,
        "return_value": {"chosen_options": ["Approve"], "responded_by_user": {"id": "admin", "name": "admin"}},
    }
    for key, value in values.items():
        _writes(api, task, key, value)
    api.patch(task, {"new_state": "success"})


def _writes(api: AirflowApi, task: str, key: str, value: Any) -> None:
    known = {one["key"] for one in api.get(f"{task}/xcomEntries")["xcom_entries"]}
    if key in known:
        api.patch(f"{task}/xcomEntries/{key}", {"value": value})
    else:
        api.post(f"{task}/xcomEntries", {"key": key, "value": value})


def _ended(running: RunningPlatform, dag_id: str, run_id: str) -> tuple[DagRun, dict[str, str], list[str]]:
    """The run, the states of its tasks, what they logged as errors."""
    run = wait_for_run(running.api, dag_id, run_id, seconds=WAIT_SECONDS, on_change=print)
    found = running.api.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
    errors = list(errors_of(running.layout.airflow_home / "logs", run))
    return run, {one["task_id"]: str(one["state"]) for one in found}, errors


def _log_files(running: RunningPlatform) -> int:
    return len(list(running.layout.remote_storage.rglob("*.log")))


def test_a_forged_answer_deletes_nothing(running: RunningPlatform, second: AirflowApi) -> None:
    """Parameters that nobody asked for change nothing about who is asked, either."""
    before = _log_files(running)
    run_id = _asked(
        running, second, EXPIRATION, {"topics": [TOPIC], "expiration_approvers": "second", "assigned_users": ["second"]}
    )
    with running.library() as app:
        shown = app.adapters.stores.deletions.run(f"expire-{run_id}").plan_hash
    _forges(second, EXPIRATION, run_id, shown)
    run, states, errors = _ended(running, EXPIRATION, run_id)
    assert (_log_files(running), before) == (3, 3)
    with running.library() as app:
        assert app.adapters.stores.deletions.run(f"expire-{run_id}").approval is None
    assert (run.state, states["release"]) == ("failed", "failed")
    assert any("release" in line and "needs an approval and Airflow has handed none" in line for line in errors)


def test_a_forged_release_deletes_nothing(running: RunningPlatform, second: AirflowApi) -> None:
    """Batches are a result of `release`, which is an XCom as well; what is no number is not even taken as one."""
    before = _log_files(running)
    run_id = _asked(running, second, EXPIRATION, {"topics": [TOPIC]})
    release = _task(EXPIRATION, run_id, "release")
    _writes(second, release, "return_value", [{"batch": 0}, {"batch": "{{ conn.tiering_metadata }}"}])
    second.patch(release, {"new_state": "success"})
    second.patch(_task(EXPIRATION, run_id, "approval"), {"new_state": "success"})
    run, _, _ = _ended(running, EXPIRATION, run_id)
    assert run.state == "failed"
    assert _log_files(running) == before


def test_an_answer_is_about_the_run_whose_plan_was_shown(running: RunningPlatform, second: AirflowApi) -> None:
    """The id of another planned run is put where `release` looks for its own, while the person still thinks."""
    before = _log_files(running)
    with running.library() as app:
        app.expiration.plan("expire-another", topics=[TOPIC])
        app.expiration.apply_limits("expire-another")
    run_id = _asked(running, second, EXPIRATION, {"topics": [TOPIC]})
    _writes(second, _task(EXPIRATION, run_id, "plan"), PLANNED_RUN_KEY, "expire-another")
    _answers(running.api, EXPIRATION, run_id)
    run, _, errors = _ended(running, EXPIRATION, run_id)
    assert run.state == "failed"
    assert any("not about plan" in line and "of expire-another" in line for line in errors)
    assert _log_files(running) == before
    with running.library() as app:
        assert not app.adapters.stores.deletions.run("expire-another").is_released


def test_a_cleared_question_is_asked_again_of_the_same_people(running: RunningPlatform, second: AirflowApi) -> None:
    """Also by a forged question: what a person reads comes from the database. A rejected plan stays rejected."""
    before = _log_files(running)
    run_id = _asked(running, second, EXPIRATION, {"topics": [TOPIC]})
    question = f"{_task(EXPIRATION, run_id, 'approval')}/-1/hitlDetails"
    first = running.api.get(question)
    forged = {"plan_hash": "b" * 64, "subject": "Delete nothing?", "body": "Nothing goes.", "topic_ids": []}
    _writes(second, _task(EXPIRATION, run_id, "safety_limit"), "tiering_question", forged)
    second.patch(_task(EXPIRATION, run_id, "approval"), {"new_state": "success"})
    _ended(running, EXPIRATION, run_id)
    clear = {"dag_run_id": run_id, "task_ids": ["approval"], "include_downstream": True, "only_failed": False}
    second.post(f"/dags/{EXPIRATION}/clearTaskInstances", {**clear, "dry_run": False, "reset_dag_runs": True})
    eventually(
        lambda: running.may_answer(run_id, asked=2), f"{run_id} asks again", seconds=WAIT_SECONDS, pause_seconds=0.5
    )
    found = running.api.get(question)
    assert {name: found[name] for name in ("subject", "body", "assigned_users")} == {
        name: first[name] for name in ("subject", "body", "assigned_users")
    }
    with pytest.raises(AirflowApiError, match="403"):
        _answers(second, EXPIRATION, run_id)
    _answers(running.api, EXPIRATION, run_id, "Reject")
    _ended(running, EXPIRATION, run_id)
    release = {**clear, "task_ids": ["release"], "dry_run": False, "reset_dag_runs": True}
    second.post(f"/dags/{EXPIRATION}/clearTaskInstances", release)
    _, states, errors = _ended(running, EXPIRATION, run_id)
    assert _log_files(running) == before
    assert states["release"] in ("failed", "skipped")
    assert states["release"] == "skipped" or any("admin rejected plan" in line for line in errors)


def test_what_leads_to_the_database_is_not_the_users_to_read_or_change(second: AirflowApi) -> None:
    connection = {"connection_id": "tiering_metadata", "conn_type": "generic", "extra": '{"url": "sqlite:////tmp/x"}'}
    for path, body in (("/connections", connection), ("/variables", {"key": "approvers", "value": "second"})):
        with pytest.raises(AirflowApiError, match="403"):
            second.post(path, body)
    with pytest.raises(AirflowApiError, match="403"):
        second.get("/connections/tiering_spark")


def test_a_forged_answer_removes_no_orphan_and_a_true_one_does(running: RunningPlatform, second: AirflowApi) -> None:
    store = running.layout.remote_storage
    plant_orphan(store)
    before = stored_files(store)
    run_id = _asked(running, second, AUDIT, {"delete_orphans": True})
    with running.library() as app:
        shown = app.adapters.stores.removals.run(f"audit-remove-{run_id}").plan_hash
    _forges(second, AUDIT, run_id, shown)
    run, states, errors = _ended(running, AUDIT, run_id)
    assert stored_files(store) == before
    assert (run.state, states["release"]) == ("failed", "failed")
    assert any("release" in line and "needs an approval" in line for line in errors)
    with running.library() as app:
        assert app.adapters.stores.removals.run(f"audit-remove-{run_id}").approval is None

    run_id = _asked(running, second, AUDIT, {"delete_orphans": True})
    _answers(running.api, AUDIT, run_id)
    run, _, errors = _ended(running, AUDIT, run_id)
    assert run.state == "success", errors
    assert len(before) - len(stored_files(store)) == 2
    with running.library() as app:
        _require_true(app, app.adapters.stores.removals.run(f"audit-remove-{run_id}").approval, f"{AUDIT} {run_id}")


def test_a_forged_answer_hands_no_topic_over_and_a_true_one_does(running: RunningPlatform, second: AirflowApi) -> None:
    """There are no brokers here: the steps before the question are marked as done, and those behind it never begin."""
    with running.library() as app:
        topic_id = next(one.topic_id for one in app.adapters.stores.metadata.partitions() if one.topic == TOPIC)
        handovers = app.adapters.stores.handovers
        handovers.begin(HANDOVER_ID, topic_id, TOPIC, LocalRetention(None, None), author="test")
        drive = handovers.drive(HANDOVER_ID, "test", lease_ms=60_000)
        assert drive is not None
        at = HandoverStep.PRECONDITIONS
        for step in STEPS[: STEPS.index(HandoverStep.APPROVAL) + 1]:
            handovers.advance(drive, step, expected=at)
            at = step
        handovers.propose(drive, PLAN)
        handovers.release(drive)

    run_id = _asked_about_handover(running, second)
    _forges(second, HANDOVER, run_id, PLAN)
    assert _ended_state(running, run_id, "agreed") == "failed"
    with running.library() as app:
        assert app.adapters.stores.handovers.handover(HANDOVER_ID).approval is None
    running.api.patch(f"/dags/{HANDOVER}/dagRuns/{run_id}", {"state": "failed"})

    run_id = _asked_about_handover(running, second)
    running.api.patch(_task(HANDOVER, run_id, "fence"), {"new_state": "failed"})
    _answers(running.api, HANDOVER, run_id)
    assert _ended_state(running, run_id, "agreed") == "success"
    with running.library() as app:
        _require_true(app, app.adapters.stores.handovers.handover(HANDOVER_ID).approval, f"{HANDOVER} {run_id}")


def _asked_about_handover(running: RunningPlatform, api: AirflowApi) -> str:
    """A handover whose steps before the question are marked as done; its run id.

    The DAG is paused meanwhile: a task that the scheduler starts or retries at the moment in which it is marked gets
    another row, and Airflow answers 500.
    """
    running.api.patch(f"/dags/{HANDOVER}", {"is_paused": True})
    run_id = trigger(api, HANDOVER, {"topic": TOPIC})
    dag_run = f"{HANDOVER} {run_id}"
    with running.library() as app:
        app.adapters.stores.plan_questions.put(
            dag_run, subject=str(HANDOVER_ID), plan_hash=PLAN, headline="Hand it over?", body=PLAN
        )
    _writes(running.api, _task(HANDOVER, run_id, "begin"), "tiering_handover", str(HANDOVER_ID))
    for task_id in ("ready", "begin", "preconditions", "guards", "copy", "gate", "ask"):
        running.api.patch(_task(HANDOVER, run_id, task_id), {"new_state": "success"})
    running.api.patch(f"/dags/{HANDOVER}", {"is_paused": False})
    eventually(lambda: running.may_answer(run_id), f"{run_id} asks", seconds=WAIT_SECONDS, pause_seconds=0.5)
    return run_id


def _ended_state(running: RunningPlatform, run_id: str, task_id: str) -> str:
    def ended() -> str | None:
        state = running.api.get(_task(HANDOVER, run_id, task_id))["state"]
        return state if state in ("success", "failed", "skipped", "upstream_failed") else None

    return str(eventually(ended, f"{task_id} has ended", seconds=WAIT_SECONDS, pause_seconds=0.5))


def test_a_true_approval_deletes_and_is_named_with_its_time(running: RunningPlatform, second: AirflowApi) -> None:
    """Also of a run that another user started. Stands last: the topic is gone then."""
    run_id = _asked(running, second, EXPIRATION, {"topics": [TOPIC]})
    _answers(running.api, EXPIRATION, run_id)
    run, _, errors = _ended(running, EXPIRATION, run_id)
    assert run.state == "success", errors
    assert _log_files(running) == 0
    with running.library() as app:
        _require_true(app, app.adapters.stores.deletions.run(f"expire-{run_id}").approval, f"{EXPIRATION} {run_id}")


def _require_true(app: App, approval: Any, dag_run: str) -> None:
    """By the admin, in this run, now; and the event log says it too."""
    assert approval is not None
    assert approval.author.startswith(f"admin ({dag_run}, answered 20")
    found = app.adapters.stores.plan_questions.find(dag_run)
    assert found is not None
    assert found.given is not None
    assert found.given.user_id == "admin"
    assert found.shown_at_ms is not None
    assert found.shown_at_ms - 5_000 <= found.given.answered_at_ms <= approval.approved_at_ms + 1_000
    assert approval.approved_at_ms <= app.adapters.stores.deletions.now_ms()
