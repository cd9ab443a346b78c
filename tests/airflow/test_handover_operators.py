"""The tasks of `tiering_handover` over brokers, disks and a store that act as real ones do."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import TriggerRule
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from include.tiering.errors import AnswerRefusedError, ApprovalRequiredError, HandoverForgottenError, SettingError
from include.tiering.handover.rules import STEPS, HandoverState, HandoverStep
from include.tiering.model.ownership import TopicOwner
from plugins.tiering_airflow import approval, handover
from plugins.tiering_airflow.errors import (
    ApprovalMissingError,
    HandoverRefusedError,
    HandoverWaitsError,
    NotReadyError,
)
from plugins.tiering_airflow.handover import (
    AGREED_TASK_ID,
    HANDOVER_KEY,
    AskApprovalOperator,
    BeginHandoverOperator,
    ForgottenHandoversOperator,
    HandoverAgreedOperator,
    HandoverOutcomeOperator,
    HandoverStepOperator,
)
from plugins.tiering_airflow.shared import APPROVAL_TASK_ID
from tests.doubles.airflow_answers import answers
from tests.doubles.handover_world import OLD_RETENTION, TOPIC, WorldApp, handover_world
from tests.doubles.source_tree import ROOT

pytestmark = pytest.mark.airflow
BEFORE = STEPS[: STEPS.index(HandoverStep.APPROVAL)]
AFTER = STEPS[STEPS.index(HandoverStep.FENCE) :]


class _Run:
    """One DAG run: its XComs, and its tasks by what they do."""

    def __init__(self, run_id: str = "manual-1", **params: Any) -> None:
        self.pushed: dict[str, Any] = {}
        self.watch_is_paused: bool | None = False
        form = {"topic": TOPIC, "local_retention_ms": None, "local_retention_bytes": None, **params}
        dag_run = SimpleNamespace(dag_id="tiering_handover", run_id=run_id, triggering_user_name="ada")
        self.context: Any = {"ti": self, "run_id": run_id, "dag_run": dag_run, "params": form}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, task_ids: str, key: str) -> Any:
        return self.pushed.get(key)

    def get_dag(self, dag_id: str) -> Any:
        assert dag_id == "tiering_handover_watch"
        if self.watch_is_paused is None:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))
        return SimpleNamespace(is_paused=self.watch_is_paused)

    def begin(self) -> dict[str, str]:
        return BeginHandoverOperator(task_id="begin").execute(self.context)

    def step(self, step: HandoverStep) -> dict[str, str]:
        return HandoverStepOperator(task_id=step.value, step=step, handover_id=self._id).execute(self.context)

    def ask(self) -> str:
        return AskApprovalOperator(task_id="ask", handover_id=self._id).choose_branch(self.context)

    def answer(self, user: str | None = "grace") -> None:
        run_id = self.context["run_id"]
        answers("tiering_handover", run_id, user, "Approve" if user else "Reject")

    def agree(self) -> None:
        HandoverAgreedOperator(task_id="agreed", handover_id=self._id).execute(self.context)

    def outcome(self) -> dict[str, str]:
        return HandoverOutcomeOperator(task_id="outcome", handover_id=self._id).execute(self.context)

    @property
    def _id(self) -> str:
        return self.pushed[HANDOVER_KEY]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with handover_world(tmp_path, partitions=1, segments=2) as made:
        app = WorldApp(made)
        for module in (handover, approval):
            monkeypatch.setattr(module, "TieringHook", lambda: SimpleNamespace(open=app.opened))
        yield made


def open_one(world):
    (found,) = world.handovers.open_handovers()
    return found


def test_a_run_from_the_form_to_the_end(world):
    run = _Run(local_retention_bytes=1_000)
    assert run.begin()["step"] == "preconditions"
    for step in BEFORE:
        run.step(step)
    assert run.ask() == APPROVAL_TASK_ID
    run.answer()
    run.agree()
    assert open_one(world).approval.author.startswith("grace (tiering_handover manual-1")
    for step in AFTER:
        run.step(step)
    assert run.outcome() == {"topic": TOPIC, "state": "done"}
    assert world.owner is TopicOwner.BROKER
    assert world.configs["local.retention.bytes"] == "1000"


def test_no_handover_begins_while_its_watch_is_paused(world):
    run = _Run()
    run.watch_is_paused = True
    with pytest.raises(NotReadyError, match="airflow dags unpause tiering_handover_watch"):
        run.begin()
    assert not world.handovers.open_handovers()
    run.watch_is_paused = False
    assert run.begin()["step"] == "preconditions"
    run.watch_is_paused = True
    with pytest.raises(NotReadyError):
        run.begin()


def test_a_handover_begins_where_airflow_does_not_know_the_watch(world):
    run = _Run()
    run.watch_is_paused = None
    assert run.begin()["step"] == "preconditions"


def test_what_was_written_into_airflow_and_who_may_approve_no_more_agree_to_nothing(world, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVERS", "grace")
    run = _Run()
    run.begin()
    run.step(HandoverStep.QUALITY_CHECK)
    run.ask()
    run.pushed["tiering_answer"] = {"user": "grace", "answered_at": "2030-01-01T00:00:00+00:00"}
    with pytest.raises(ApprovalRequiredError, match="Airflow has handed none"):
        run.agree()
    run.answer()
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVERS", "ada")
    with pytest.raises(AnswerRefusedError, match="approved by grace, who is not among"):
        run.agree()
    assert open_one(world).approval is None
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVERS", "ada,grace")
    run.agree()
    assert open_one(world).approval is not None


def test_a_form_without_a_topic_is_refused(world):
    with pytest.raises(SettingError, match="name the topic"):
        _Run(topic=None).begin()


def test_a_run_that_died_is_followed_by_another(world):
    first = _Run("manual-1")
    first.begin()
    first.step(HandoverStep.OVERRIDES)
    second = _Run("manual-2")
    assert second.begin() == {"handover_id": first.pushed[HANDOVER_KEY], "step": "copy", "state": "active"}
    for step in BEFORE:
        second.step(step)
    assert open_one(world).step is HandoverStep.APPROVAL


def test_one_that_was_approved_is_not_asked_again(world):
    run = _Run()
    run.begin()
    run.step(HandoverStep.QUALITY_CHECK)
    run.ask()
    run.answer()
    run.agree()
    later = _Run("manual-2")
    later.begin()
    assert later.ask() == AGREED_TASK_ID
    later.agree()
    later.step(HandoverStep.LOCAL_RETENTION)
    assert later.outcome()["state"] == "done"


def test_what_refuses_fails_the_task_and_goes_on_when_it_is_mended(world):
    world.brokers.broker_defaults["remote.log.storage.system.enable"] = "false"
    run = _Run()
    run.begin()
    with pytest.raises(HandoverRefusedError, match="brokers-have-remote-storage"):
        run.step(HandoverStep.PRECONDITIONS)
    with pytest.raises(HandoverRefusedError, match="stopped at preconditions"):
        run.outcome()
    world.brokers.broker_defaults["remote.log.storage.system.enable"] = "true"
    again = _Run("manual-2")
    again.begin()
    assert again.step(HandoverStep.OVERRIDES)["step"] == "copy"


def test_what_waits_is_worth_another_try(world):
    run = _Run()
    run.begin()
    run.step(HandoverStep.QUALITY_CHECK)
    run.ask()
    run.answer()
    run.agree()
    world.forgetful = True
    with pytest.raises(HandoverWaitsError, match="latest-tiered-covers-seed") as waits:
        run.step(HandoverStep.WATCH)
    assert waits.value.retriable
    world.forgetful = False
    assert run.step(HandoverStep.WATCH)["step"] == "take-over"


def test_a_reject_and_no_answer_leave_the_overrides_and_fail_the_run(world):
    run = _Run()
    run.begin()
    run.step(HandoverStep.QUALITY_CHECK)
    run.ask()
    with pytest.raises(HandoverRefusedError, match="overrides that are in force stay"):
        run.outcome()
    run.answer(user=None)
    with pytest.raises(ApprovalMissingError, match="--undo"):
        run.outcome()
    assert world.configs["retention.bytes"] == "-1"
    assert world.owner is TopicOwner.PLATFORM


def test_the_watch_alarms_for_what_nobody_carries_on(world, monkeypatch):
    watch = ForgottenHandoversOperator(task_id="forgotten")
    assert watch.execute({}) == {"under_way": 0}
    run = _Run()
    run.begin()
    run.step(HandoverStep.COPY)
    assert watch.execute({}) == {"under_way": 1}
    real = type(world.handovers).now_ms
    monkeypatch.setattr(type(world.handovers), "now_ms", lambda self: real(self) + 6 * 60_000)
    with pytest.raises(HandoverForgottenError, match=r"orders has no driver any more, at gate .* --resume, or --undo"):
        watch.execute({})
    assert world.configs != OLD_RETENTION
    assert open_one(world).state is HandoverState.ACTIVE


def test_the_watch_fails_if_it_could_tell_nobody(world, monkeypatch):
    """Else a handover that stops would be seen only by who looks at Airflow."""
    watch = ForgottenHandoversOperator(task_id="forgotten")
    monkeypatch.setenv("AIRFLOW__TIERING__NOTIFIERS", '[{"class": "no_such_package.Notifier"}]')
    with pytest.raises(SettingError, match=r"no_such_package\.Notifier"):
        watch.execute({})
    run = _Run()
    run.begin()
    run.step(HandoverStep.COPY)
    real = type(world.handovers).now_ms
    monkeypatch.setattr(type(world.handovers), "now_ms", lambda self: real(self) + 6 * 60_000)
    with pytest.raises(HandoverForgottenError):
        watch.execute({})


def test_the_dag_has_a_task_for_each_step_in_order_and_asks_before_the_fence():
    bag = DagBag(str(ROOT / "dags" / "tiering_handover.py"))
    assert bag.import_errors == {}
    dag = bag.dags["tiering_handover"]
    for step in STEPS:
        if step is not HandoverStep.APPROVAL:
            assert dag.get_task(step.value).step is step
    chain = [*BEFORE, *AFTER]
    for before, after in pairwise(chain):
        if after is not HandoverStep.FENCE:
            assert dag.get_task(after.value).upstream_task_ids == {before.value}
    agreed, approval = dag.get_task("agreed"), dag.get_task("approval")
    assert (agreed.upstream_task_ids, agreed.trigger_rule) == (
        {"ask", "approval"},
        TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
    )
    assert (approval.upstream_task_ids, approval.defaults) == ({"ask"}, ["Reject"])
    assert dag.get_task("fence").upstream_task_ids == {"agreed"}
    assert dag.get_task("copy").pool == "remote_log_copier"
