"""The tasks of `tiering_audit` over the real library, one by one; the audit itself in this process, without Spark."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowSkipException

from include.tiering.app import open_app
from include.tiering.audit.plan_removals import RemovalOutcome
from include.tiering.database.schema import segment_epochs, segments
from include.tiering.errors import AnswerRefusedError, ApprovalRequiredError, RemoteStorageUnavailableError
from include.tiering.remote_storage.orphan_objects import OrphanFailure, StoredOrphans
from include.tiering.settings import load_settings
from plugins.tiering_airflow.audit import (
    AUDIT_RUN_KEY,
    AuditAlarmOperator,
    AuditFindingsOperator,
    AuditOperator,
    AuditOutcomeOperator,
    PlanRemovalsOperator,
    RemovalReleaseOperator,
    RemovalSafetyLimitOperator,
    RemoveOrphansOperator,
)
from plugins.tiering_airflow.errors import (
    ApprovalMissingError,
    AuditAlarmError,
    DeletionFailedError,
    RemovalIncompleteError,
    SparkJobError,
    SparkJobRetriableError,
)
from plugins.tiering_airflow.shared import APPROVAL_TASK_ID, AUDIT_FINDINGS, PLANNED_RUN_KEY
from tests.doubles.airflow_answers import answers
from tests.doubles.airflow_home import Deployment, TaskInstance, deployed_for, deployment
from tests.doubles.orphans import plant_orphan, stored_files

DAG_ID, DAG_RUN = "tiering_audit", "manual__2026-01-01"
FORM = {"inventory": None, "delete_orphans": False, "old_versions": False}


class Run:
    """One DAG run, task by task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **form: Any) -> None:
        self._monkeypatch = monkeypatch
        self.instance = TaskInstance()
        dag_run = SimpleNamespace(dag_id=DAG_ID, run_id=DAG_RUN)
        self.context: Any = {"params": {**FORM, **form}, "run_id": DAG_RUN, "dag_run": dag_run, "ti": self.instance}
        self.arguments: list[str] = []

    def audit(self, error: SparkJobError | None = None, *, ends: bool = True) -> None:
        """The job is the library's own audit, with an exit code."""
        operator = AuditOperator(task_id="audit")

        def job(self: Any, context: Any) -> None:
            arguments.extend(self.application_args)
            if ends:
                with open_app(load_settings()) as app:
                    app.audit.run(operator.audit_run_id(DAG_RUN, 1))
            if error is not None:
                raise error

        arguments = self.arguments
        self._monkeypatch.setattr(SparkSubmitOperator, "execute", job)
        self._monkeypatch.setattr(AuditOperator, "_hook_for", lambda self, scratch: None)
        operator.execute(self.context)

    def of_audit(self, operator: Any) -> Any:
        return operator(task_id="task", audit_run_id=self.instance.pushed[AUDIT_RUN_KEY]).execute(self.context)

    @property
    def planned_run(self) -> str:
        return str(self.instance.pushed.get(PLANNED_RUN_KEY, ""))

    def apply_limits(self) -> str | None:
        operator = RemovalSafetyLimitOperator(
            task_id="safety_limit", planned_run_id=self.planned_run, audit_run_id=self.instance.pushed[AUDIT_RUN_KEY]
        )
        return operator.choose_branch(self.context)

    def answer(self, user: str | None) -> None:
        answers(DAG_ID, DAG_RUN, user, "Approve" if user else "Reject")

    def of_plan(self, operator: Any) -> Any:
        return operator(task_id="task", planned_run_id=self.planned_run).execute(self.context)

    def outcome(self) -> None:
        operator = AuditOutcomeOperator(
            task_id="outcome", planned_run_id=self.planned_run, audit_run_id=self.instance.pushed[AUDIT_RUN_KEY]
        )
        operator.execute(self.context)

    def up_to_the_question(self) -> "Run":
        self.audit()
        self.of_audit(PlanRemovalsOperator)
        assert self.apply_limits() == APPROVAL_TASK_ID
        return self


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    made = deployed_for(monkeypatch, deployment(tmp_path))
    monkeypatch.setenv("AIRFLOW__TIERING__WORK_DIR", str(tmp_path / "work"))
    made.copied("audit_log")
    return made


@pytest.fixture
def dry(deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch)


@pytest.fixture
def asked(deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The form asks to delete orphans, and there is one."""
    plant_orphan(deployed.remote)
    return Run(monkeypatch, delete_orphans=True)


def test_findings_of_the_job_are_no_error_yet(dry: Run, deployed: Deployment) -> None:
    plant_orphan(deployed.remote)
    dry.audit(SparkJobError("findings"))
    event = SimpleNamespace(extra={})
    audit_run = dry.instance.pushed[AUDIT_RUN_KEY]
    operator = AuditFindingsOperator(task_id="findings", audit_run_id=audit_run, outlets=[AUDIT_FINDINGS])
    context: Any = {**dry.context, "outlet_events": {AUDIT_FINDINGS: event}}
    assert operator.execute(context)["orphan"] == 2
    assert (event.extra["run_id"], event.extra["orphan"]) == (audit_run, 2)


def test_an_orphan_fails_the_run_unless_it_is_accepted_or_the_setting_says_otherwise(
    dry: Run, deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_orphan(deployed.remote)
    dry.audit()
    with pytest.raises(AuditAlarmError, match="orphan "):
        dry.of_audit(AuditAlarmOperator)
    monkeypatch.setenv("TIERING_AUDIT__ORPHANS__FAIL__ENABLE", "false")
    dry.of_audit(AuditAlarmOperator)
    monkeypatch.delenv("TIERING_AUDIT__ORPHANS__FAIL__ENABLE")
    with deployed.open() as app:
        found = [one.finding_id for one in app.adapters.stores.audits.findings()]
        app.adapters.stores.audits.accept(found, author="me")
    dry.of_audit(AuditAlarmOperator)


def test_an_orphan_does_not_fail_the_run_that_is_asked_to_delete_it(asked: Run, deployed: Deployment) -> None:
    plant_orphan(deployed.remote)
    asked.audit()
    asked.of_audit(AuditAlarmOperator)


@pytest.mark.parametrize(
    ("error", "ends"), [(SparkJobError("a setting"), False), (SparkJobRetriableError("away"), True)]
)
def test_a_job_that_did_not_end_is_one(dry: Run, error: SparkJobError, ends: bool) -> None:
    with pytest.raises(type(error)):
        dry.audit(error, ends=ends)
    assert AUDIT_RUN_KEY not in dry.instance.pushed


def test_the_form_may_name_an_inventory(deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, inventory="s3://lists/manifest.json")
    run.audit()
    assert run.arguments[-2:] == ["--inventory", "s3://lists/manifest.json"]


def test_a_missing_object_is_an_alarm_until_somebody_accepts_it(dry: Run, deployed: Deployment) -> None:
    manifest = min(deployed.remote.rglob("*.rsm-manifest"))
    manifest.unlink()
    dry.audit()
    with pytest.raises(AuditAlarmError, match=manifest.name):
        dry.of_audit(AuditAlarmOperator)
    with deployed.open() as app:
        app.adapters.stores.audits.accept(
            [one.finding_id for one in app.adapters.stores.audits.findings()], author="me"
        )
    dry.of_audit(AuditAlarmOperator)


def test_a_guard_that_objects_is_an_alarm_and_nothing_is_planned(asked: Run, deployed: Deployment) -> None:
    with deployed.open() as app, app.adapters.engine.begin() as connection:
        for table in (segment_epochs, segments):
            connection.execute(table.delete())
    asked.audit()
    with pytest.raises(AuditAlarmError, match="empty-database"):
        asked.of_audit(AuditAlarmOperator)
    assert asked.of_audit(PlanRemovalsOperator) == {"objects": 0, "bytes": 0, "guards": 1}
    assert asked.apply_limits() is None


def test_nothing_is_planned_unless_the_form_asks(dry: Run, deployed: Deployment) -> None:
    plant_orphan(deployed.remote)
    dry.audit()
    with pytest.raises(AirflowSkipException):
        dry.of_audit(PlanRemovalsOperator)
    with pytest.raises(AirflowSkipException):
        dry.outcome()


def test_an_approved_plan_is_removed(asked: Run, deployed: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    (deployed.remote / "notes.txt").write_text("of a person")
    before = stored_files(deployed.remote)
    asked.up_to_the_question()
    with deployed.open() as app:
        question = app.adapters.stores.plan_questions.find(f"{DAG_ID} {DAG_RUN}")
    assert question is not None
    assert "audit_log" in question.body
    with pytest.raises(ApprovalRequiredError):
        asked.of_plan(RemoveOrphansOperator)
    asked.answer("olga")
    asked.of_plan(RemovalReleaseOperator)
    assert stored_files(deployed.remote) == before
    assert asked.of_plan(RemoveOrphansOperator)["removed"] == 2
    capsys.readouterr()
    asked.outcome()
    assert "compared with 3 segments: foreign-object 1; of 2 objects" in capsys.readouterr().out
    assert len(before) - len(stored_files(deployed.remote)) == 2
    with deployed.open() as app:
        approval = app.adapters.stores.removals.run(asked.planned_run).approval
    assert approval is not None
    assert approval.author.startswith("olga (")


def test_without_an_answer_nothing_is_removed(asked: Run) -> None:
    asked.up_to_the_question()
    asked.answer(None)
    with pytest.raises(ApprovalRequiredError, match="no answer came in time"):
        asked.of_plan(RemovalReleaseOperator)
    with pytest.raises(ApprovalMissingError):
        asked.outcome()
    with pytest.raises(ApprovalRequiredError):
        asked.of_plan(RemoveOrphansOperator)


def test_what_was_written_into_airflow_is_no_answer(asked: Run) -> None:
    asked.up_to_the_question()
    asked.instance.pushed["tiering_answer"] = {"user": "olga", "answered_at": "2030-01-01T00:00:00+00:00"}
    with pytest.raises(ApprovalRequiredError, match="Airflow has handed none"):
        asked.of_plan(RemovalReleaseOperator)


def test_the_answer_counts_for_the_plan_that_was_shown_and_for_those_who_may_approve_now(
    asked: Run, deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.up_to_the_question()
    asked.answer("olga")
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVERS", "per")
    with pytest.raises(AnswerRefusedError, match="approved by olga, who is not among"):
        asked.of_plan(RemovalReleaseOperator)
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVERS", "per,olga")
    with deployed.open() as app:
        app.audit.plan_removals("another", asked.instance.pushed[AUDIT_RUN_KEY])
    with pytest.raises(AnswerRefusedError, match="of another"):
        RemovalReleaseOperator(task_id="release", planned_run_id="another").execute(asked.context)


@pytest.mark.parametrize("retriable", [True, False])
def test_what_could_not_be_removed(asked: Run, monkeypatch: pytest.MonkeyPatch, retriable: bool) -> None:
    asked.up_to_the_question()
    asked.answer("olga")
    asked.of_plan(RemovalReleaseOperator)

    def refuse(self: Any, orphans: Any) -> Any:
        return tuple(OrphanFailure(one, "refused", retriable) for one in orphans)

    monkeypatch.setattr(StoredOrphans, "remove", refuse)
    if retriable:
        with pytest.raises(RemovalIncompleteError) as caught:
            asked.of_plan(RemoveOrphansOperator)
        assert caught.value.retriable
    else:
        assert asked.of_plan(RemoveOrphansOperator)[RemovalOutcome.FAILED] == 2
        with pytest.raises(DeletionFailedError, match="refused"):
            asked.outcome()


def test_a_store_that_is_away_is_worth_another_try(asked: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked.up_to_the_question()
    asked.answer("olga")
    asked.of_plan(RemovalReleaseOperator)

    def away(self: Any, key: str) -> Any:
        raise RemoteStorageUnavailableError("away")

    monkeypatch.setattr(StoredOrphans, "attempt", away)
    with pytest.raises(RemovalIncompleteError):
        asked.of_plan(RemoveOrphansOperator)


def test_an_audit_job_has_the_parts_and_ranges_of_the_airflow_options(
    asked: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert AuditOperator.repeats_tasks
    asked.audit()
    monkeypatch.setenv("AIRFLOW__TIERING__AUDIT_PARTS", "200")
    monkeypatch.setenv("AIRFLOW__TIERING__AUDIT_RANGES", "100")
    asked.audit()
    shares: dict[str, list[str]] = {option: [] for option in ("--parts", "--ranges")}
    for option, value in zip(asked.arguments, asked.arguments[1:], strict=False):
        if option in shares:
            shares[option].append(value)
    assert shares == {"--parts": ["16", "200"], "--ranges": ["8", "100"]}
