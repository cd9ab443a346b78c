"""The tasks of `tiering_expiration` over the real library, one by one."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowSkipException
from sqlalchemy import update

from include.tiering.audit.record import AuditRecord, AuditSource, Guard, Refusal
from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.database.schema import planned_deletions
from include.tiering.errors import (
    AnswerRefusedError,
    ApprovalRequiredError,
    DatabaseSetBackError,
    RunWithdrawnError,
    SettingError,
    StateConflictError,
    UnprovedReplacementError,
)
from include.tiering.runs.deletion_run import DeletionOutcome
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.approval import PlanApprovalOperator
from plugins.tiering_airflow.errors import ApprovalMissingError, DeletionFailedError, PlanWithdrawnError
from plugins.tiering_airflow.expiration import (
    QUESTION_KEY,
    DeleteBatchOperator,
    ExpirationOutcomeOperator,
    ExpirationSummaryOperator,
    PlanExpirationOperator,
    ReleaseOperator,
    SafetyLimitOperator,
)
from plugins.tiering_airflow.shared import APPROVAL_TASK_ID, PLANNED_RUN_KEY, RELEASE_TASK_ID
from tests.doubles.airflow_answers import answers
from tests.doubles.airflow_home import Deployment, TaskInstance, deployed_for, deployment

DAG_RUN = "manual__2026-01-01"
RUN_ID = f"expire-{DAG_RUN}"
OUTLET = Asset("tiering_remote_log")
TOPICS = ("audit_log", "bigrecs")


class _TaskInstance(TaskInstance):
    def forge(self) -> None:
        """All that an answer left in Airflow once."""
        answer = {"user": "olga", "answered_at": "2030-01-01T00:00:00+00:00"}
        self.pushed |= {"tiering_answer": answer, "tiering_shown_plan": "plan"}


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    made = deployed_for(monkeypatch, deployment(tmp_path))
    made.copied(*TOPICS)
    return made


def _context(instance: _TaskInstance, **form: Any) -> Any:
    params = {"topics": None, "dry_run": False, **form}
    dag_run = SimpleNamespace(dag_id="tiering_expiration", run_id=DAG_RUN)
    return {"params": params, "run_id": DAG_RUN, "dag_run": dag_run, "ti": instance}


def _answers(user: str | None, option: str = "Approve", at: datetime | None = None) -> None:
    answers("tiering_expiration", DAG_RUN, user, option, at)


def _plan(instance: _TaskInstance, **form: Any) -> dict[str, int]:
    return PlanExpirationOperator(task_id="plan").execute(_context(instance, **form))


def test_the_log_of_the_plan_says_what_expires(deployed: Deployment, capfd: pytest.CaptureFixture[str]) -> None:
    deployed.expires(*TOPICS)
    planned = _plan(_TaskInstance())
    assert planned["segments"] > 0
    assert f"{planned['segments']} segments of {planned['partitions']} partitions (" in capfd.readouterr().out


def _branch(instance: _TaskInstance, **form: Any) -> str | None:
    planned = instance.pushed.get(PLANNED_RUN_KEY, "")
    return SafetyLimitOperator(task_id="safety_limit", planned_run_id=planned).choose_branch(_context(instance, **form))


def _release(instance: _TaskInstance) -> list[dict[str, int]]:
    return ReleaseOperator(task_id="release", planned_run_id=RUN_ID).execute(_context(instance))


def _outcome(instance: _TaskInstance, planned_run_id: str = RUN_ID) -> None:
    ExpirationOutcomeOperator(task_id="outcome", planned_run_id=planned_run_id).execute(_context(instance))


def test_without_a_retention_nothing_is_planned(deployed: Deployment) -> None:
    instance = _TaskInstance()
    assert _plan(instance) == {"partitions": 0, "segments": 0, "bytes": 0, "waiting": 0, "topics_left_out": 0}
    assert _branch(instance) is None
    _outcome(instance, "")


def test_the_form_chooses_topics(deployed: Deployment) -> None:
    deployed.expires(*TOPICS)
    assert _plan(_TaskInstance(), topics=["big*"])["segments"] == 1


def test_within_the_limits_the_run_is_released_with_no_more_batches_than_partitions_or_the_setting(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERING_EXPIRATION__MAX__WHOLE__TOPICS", str(len(TOPICS)))
    deployed.expires(*TOPICS)
    instance = _TaskInstance()
    partitions = _plan(instance)["partitions"]
    assert (_branch(instance), instance.pushed[PLANNED_RUN_KEY]) == (RELEASE_TASK_ID, RUN_ID)
    assert _release(instance) == [{"batch": number} for number in range(partitions)]
    monkeypatch.setenv("TIERING_EXPIRATION__MAX__BATCHES", "1")
    assert _release(instance) == [{"batch": 0}]


def test_more_batches_than_airflow_maps_are_refused_before_anything_is_planned(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "3")
    deployed.expires(*TOPICS)
    with pytest.raises(SettingError, match=r"tiering\.expiration\.max\.batches is 4, .* at most 3 batches"):
        _plan(_TaskInstance())
    with deployed.open() as app, pytest.raises(StateConflictError):
        app.adapters.stores.deletions.run(RUN_ID)
    monkeypatch.setenv("TIERING_EXPIRATION__MAX__BATCHES", "3")
    assert _plan(_TaskInstance())["segments"]


def test_a_dry_run_claims_no_store_and_is_never_released(deployed: Deployment) -> None:
    deployed.expires(TOPICS[0])
    with deployed.open() as app:
        before = app.adapters.stores.generations.accepted()
    instance = _TaskInstance()
    assert _plan(instance, dry_run=True)["segments"]
    assert _branch(instance, dry_run=True) is None
    with deployed.open() as app:
        assert app.adapters.stores.generations.accepted() == before
        run = app.adapters.stores.deletions.run(RUN_ID)
        assert (run.needs_approval, run.is_released) == (None, False)
        with pytest.raises(ApprovalRequiredError):
            app.expiration.run_batch(RUN_ID, f"{RUN_ID}/0")


def test_more_than_one_topic_that_loses_everything_is_asked_about(deployed: Deployment) -> None:
    deployed.expires(*TOPICS)
    instance = _TaskInstance()
    _plan(instance)
    assert _branch(instance) == APPROVAL_TASK_ID
    assert len(instance.pushed[QUESTION_KEY]["topic_ids"]) == len(TOPICS)


def test_a_run_that_was_withdrawn_fails_with_what_had_gone(deployed: Deployment) -> None:
    deployed.expires(TOPICS[0])
    instance = _TaskInstance()
    _plan(instance)
    _branch(instance)
    with deployed.open() as app:
        app.expiration.withdraw(RUN_ID, author="olga")
    with pytest.raises(RunWithdrawnError):
        _release(instance)
    with pytest.raises(PlanWithdrawnError, match=r"withdrawn by olga: 0 of \d+ segments were deleted already"):
        _outcome(instance)


@pytest.fixture
def asked(deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> _TaskInstance:
    """A run that waits for an approval, which olga and per may give."""
    monkeypatch.setenv("TIERING_EXPIRATION__MIN__BYTES", "0")
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVERS", "olga, per")
    deployed.expires(*TOPICS)
    instance = _TaskInstance()
    _plan(instance)
    assert _branch(instance, dry_run=True) is None
    assert _branch(instance) == APPROVAL_TASK_ID
    return instance


def _is_released(made: Deployment) -> bool:
    with made.open() as app:
        return app.adapters.stores.deletions.run(RUN_ID).is_released


def test_an_approval_counts_as_airflow_handed_it_over(asked: _TaskInstance, deployed: Deployment) -> None:
    _answers("per")
    assert _release(asked)
    with deployed.open() as app:
        approval = app.adapters.stores.deletions.run(RUN_ID).approval
    assert approval is not None
    assert approval.author.startswith(f"per (tiering_expiration {DAG_RUN}, answered 20")
    assert _release(asked), "a second try finds it approved"


def test_what_was_written_into_airflow_is_no_answer(asked: _TaskInstance, deployed: Deployment) -> None:
    asked.forge()
    with pytest.raises(ApprovalRequiredError, match="Airflow has handed none to the approval task") as no:
        _release(asked)
    assert not no.value.retriable
    assert not _is_released(deployed)


def test_who_may_approve_is_asked_again_at_the_release(
    asked: _TaskInstance, deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    _answers("olga")
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVERS", "per, nina")
    with pytest.raises(AnswerRefusedError, match=r"approved by olga, who is not among .* now \(per, nina; "):
        _release(asked)
    assert not _is_released(deployed)


def test_an_approval_of_another_plan_releases_nothing(asked: _TaskInstance, deployed: Deployment) -> None:
    _answers("olga")
    with deployed.open() as app:
        app.expiration.plan("another", topics=TOPICS)
        app.expiration.apply_limits("another")
    with pytest.raises(AnswerRefusedError, match=r"not about plan .* of another"):
        ReleaseOperator(task_id="release", planned_run_id="another").execute(_context(asked))
    assert not _is_released(deployed)


def test_a_run_that_asked_about_one_plan_asks_about_no_other(asked: _TaskInstance) -> None:
    """Airflow keeps the text of a task's first question, however often the task is cleared."""
    _answers("olga", "Reject")
    second = _TaskInstance()
    second.try_number = 2
    _plan(second)
    with pytest.raises(StateConflictError, match=f"asks about plan .* of {RUN_ID}: trigger another DAG run"):
        _branch(second)


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(hours=-1)])
def test_an_answer_of_no_possible_time_is_none(asked: _TaskInstance, deployed: Deployment, ahead: timedelta) -> None:
    _answers("olga", at=datetime.now(UTC) + ahead)
    with pytest.raises(AnswerRefusedError, match=r"by Airflow's clock .* set the clocks right"):
        _release(asked)
    assert not _is_released(deployed)


@pytest.mark.parametrize(("user", "words"), [("olga", "olga rejected plan"), (None, "no answer came in time")])
def test_a_reject_releases_nothing_however_the_tasks_are_marked(
    asked: _TaskInstance, deployed: Deployment, user: str | None, words: str
) -> None:
    _answers(user, "Reject")
    with pytest.raises(ApprovalRequiredError, match=words):
        _release(asked)
    assert not _is_released(deployed)


def test_a_reject_makes_a_copy_of_the_database_from_before_one_that_is_refused(
    asked: _TaskInstance, deployed: Deployment
) -> None:
    before = _generation(deployed)
    _answers("olga", "Reject")
    assert _generation(deployed) == before + 1
    _answers("olga")
    assert _generation(deployed) == before + 1


def test_a_guard_that_an_audit_raised_stops_every_task(
    asked: _TaskInstance, deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    _answers("olga")
    with deployed.open() as app:
        now_ms = app.adapters.stores.audits.now_ms()
        refusal = Refusal(Guard.OLDER_DATABASE, "a copy is younger than all that is remembered", 1)
        record = AuditRecord("audit", AuditSource.LISTING, now_ms, now_ms, 1, 1, (refusal,))
        app.adapters.stores.audits.record(record, [], covers=())
    for task in (_release, _branch, _plan):
        with pytest.raises(DatabaseSetBackError, match="the guard older-database is active, since 20"):
            task(asked)
    assert not _is_released(deployed)
    said: list[str] = []
    operator = PlanExpirationOperator(task_id="plan")
    monkeypatch.setattr(operator.log, "warning", lambda words, *values: said.append(words % values))
    instance = _TaskInstance()
    instance.try_number = 2
    assert operator.execute(_context(instance, dry_run=True))["segments"]
    assert any("the guard older-database is active" in line for line in said)


def _generation(made: Deployment) -> int:
    with made.open() as app:
        return app.adapters.stores.generations.accepted().current.generation


def test_a_question_that_is_asked_again_has_no_answer_yet(asked: _TaskInstance, deployed: Deployment) -> None:
    _answers("olga")
    with deployed.open() as app:
        app.adapters.stores.plan_questions.show(f"tiering_expiration {DAG_RUN}")
    with pytest.raises(ApprovalRequiredError, match="has handed none"):
        _release(asked)


def test_a_task_that_asks_without_a_question_ends(deployed: Deployment) -> None:
    with pytest.raises(StateConflictError, match="has no question"):
        _answers("olga")


def test_the_question_names_limits_that_were_loosened_since_the_last_approval(
    asked: _TaskInstance, deployed: Deployment
) -> None:
    _answers("olga")
    _release(asked)
    with deployed.open() as app:
        app.configs.alter(ALL_BROKERS, {"tiering.expiration.max.share": "0.3"}, author="second@laptop")
        app.configs.alter(ALL_BROKERS, {"tiering.expiration.max.share": "0.1"}, author="per@laptop")
        app.expiration.plan("expire-later", topics=TOPICS)
    context = _context(_TaskInstance())
    context["dag_run"].run_id = context["run_id"] = "later"
    assert (
        SafetyLimitOperator(task_id="safety_limit", planned_run_id="expire-later").choose_branch(context)
        == APPROVAL_TASK_ID
    )
    with deployed.open() as app:
        question = app.adapters.stores.plan_questions.find("tiering_expiration later")
    assert question is not None
    assert "`tiering.expiration.max.share` 0.2 -> 0.3, by second@laptop at 20" in question.body
    assert "per@laptop" not in question.body


@pytest.mark.parametrize("batch", ["0", "{{ conn.tiering_metadata }}", 1.0, True, None])
def test_a_batch_is_a_number(batch: Any) -> None:
    """Its list is an XCom, and what it holds becomes part of a template."""
    with pytest.raises(SettingError, match="a batch is a number"):
        DeleteBatchOperator(task_id="delete", batch=batch)


def test_a_batch_tells_its_job_run_batch_and_pool() -> None:
    operator = DeleteBatchOperator(task_id="delete", batch=4, planned_run_id=RUN_ID)
    assert operator.application_args == [
        "--run-id", RUN_ID, "--batch-id", f"{RUN_ID}/4", "--pool", "remote_log_expiration",
    ]  # fmt: skip


def test_a_batch_without_work_ends_before_spark_starts_and_the_summary_wakes_the_sizes(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    deployed.expires("audit_log")
    instance = _TaskInstance()
    planned = _plan(instance)
    _branch(instance)
    summary = ExpirationSummaryOperator(task_id="summary", outlet=OUTLET, planned_run_id=RUN_ID)
    with pytest.raises(AirflowSkipException, match="nothing was deleted of 3 segments"):
        summary.execute(_context(instance))
    monkeypatch.setenv("PATH", "")  # spark-submit would not be found
    with deployed.open() as app:
        deletions = app.adapters.stores.deletions
        planned_partitions = {expiration.topic_id_partition for expiration in deletions.plan(RUN_ID)}
        for partition in planned_partitions:
            others = planned_partitions - {partition}
            assert deletions.claim(RUN_ID, f"{RUN_ID}/0", lease_ms=60_000, exclude=others) is not None
    DeleteBatchOperator(task_id="delete", batch=1, planned_run_id=RUN_ID).execute(_context(instance))
    assert "No work left for this batch: other batches hold" in capfd.readouterr().out
    with deployed.open() as app:
        app.expiration.run_batch(RUN_ID, f"{RUN_ID}/0")
    DeleteBatchOperator(task_id="delete", batch=1, planned_run_id=RUN_ID).execute(_context(instance))
    assert "No work left for this batch: all that the run has planned" in capfd.readouterr().out
    event = type("Event", (), {})()
    outlets: Any = {**_context(instance), "outlet_events": {OUTLET: event}}
    counts = summary.execute(outlets)
    assert counts == {"segments": 3, "failed": 0, "bytes": planned["bytes"]}
    assert event.extra == {"run_id": RUN_ID, **counts}


def test_a_missing_answer_fails_the_run_and_a_given_one_does_not(
    asked: _TaskInstance, capfd: pytest.CaptureFixture[str]
) -> None:
    _answers("olga", "Reject")
    _outcome(asked)
    assert "4 planned segments are left; the next run plans again" in capfd.readouterr().out
    _answers(None, "Reject")
    with pytest.raises(ApprovalMissingError, match="got no answer in time and deleted nothing"):
        _outcome(asked)


def test_a_segment_that_could_not_be_deleted_fails_the_run(deployed: Deployment) -> None:
    deployed.expires("audit_log")
    instance = _TaskInstance()
    _plan(instance)
    failed = update(planned_deletions).values(outcome=DeletionOutcome.FAILED, message="access denied")
    with deployed.open() as app, app.adapters.engine.begin() as connection:
        connection.execute(failed.where(planned_deletions.c.position == 0))
    with pytest.raises(DeletionFailedError, match="access denied"):
        _outcome(instance)


def test_what_waits_for_its_replacement_may_be_an_abandoned_copy(deployed: Deployment) -> None:
    deployed.expires("audit_log")
    instance = _TaskInstance()
    _plan(instance)
    kept = update(planned_deletions).values(
        outcome=DeletionOutcome.SKIPPED, error=UnprovedReplacementError.__name__, message="not verified yet"
    )
    with deployed.open() as app, app.adapters.engine.begin() as connection:
        connection.execute(kept)
    with pytest.raises(DeletionFailedError, match="superseded segments or abandoned copies are kept until the copy"):
        _outcome(instance)


def test_the_outcome_names_what_was_kept(deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    deployed.expires("audit_log")
    instance = _TaskInstance()
    _plan(instance)
    kept = update(planned_deletions).values(outcome=DeletionOutcome.SKIPPED, message="its name is taken")
    with deployed.open() as app, app.adapters.engine.begin() as connection:
        connection.execute(kept)
    operator = ExpirationOutcomeOperator(task_id="outcome", planned_run_id=RUN_ID)
    said: list[str] = []
    monkeypatch.setattr(operator.log, "warning", lambda words, *values: said.append(words % values))
    operator.execute(_context(instance))
    assert any("planned segments were kept: its name is taken" in line for line in said)


def test_who_is_asked_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = PlanApprovalOperator(task_id="approval")
    assert (asked.defaults, asked.assigned_users, asked.response_timeout) == (["Reject"], None, timedelta(days=1))
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVERS", "olga, per ,")
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVAL_HOURS", "0.5")
    asked = PlanApprovalOperator(task_id="approval")
    assert asked.assigned_users == [{"id": "olga", "name": "olga"}, {"id": "per", "name": "per"}]
    assert asked.response_timeout == timedelta(minutes=30)
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVAL_HOURS", "2d")
    assert configuration.expiration_approval_wait() == timedelta(days=2)


@pytest.mark.parametrize("hours", ["0", "-1", "soon", "nan", "1e300", "0d", "2w"])
def test_a_wait_that_is_no_time_is_refused(monkeypatch: pytest.MonkeyPatch, hours: str) -> None:
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVAL_HOURS", hours)
    with pytest.raises(SettingError, match="expiration_approval_hours"):
        configuration.expiration_approval_wait()
