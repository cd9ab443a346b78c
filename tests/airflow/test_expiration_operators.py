"""The tasks of `tiering_expiration` over the real library, one by one."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowSkipException
from sqlalchemy import update

from include.tiering.database.schema import planned_deletions
from include.tiering.errors import SettingError, StateConflictError
from include.tiering.quota.config_store import ConfigEntity, EntityType
from include.tiering.settings import load_settings
from include.tiering.wiring import open_tiering
from include.tiering.work.deletion_contract import DeletionOutcome
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.errors import ApprovalMissingError, DeletionFailedError
from plugins.tiering_airflow.expiration_operators import (
    ANSWER_KEY,
    APPROVAL_TASK_ID,
    RELEASE_TASK_ID,
    SHOWN_PLAN_KEY,
    BrakeOperator,
    DeleteBatchOperator,
    ExpirationOutcomeOperator,
    ExpirationSummaryOperator,
    PlanApprovalOperator,
    PlanExpirationOperator,
    ReleaseOperator,
)
from plugins.tiering_airflow.operators import PLANNED_RUN_KEY
from tests.doubles.airflow_home import Deployment, deployment

DAG_RUN = "manual__2026-01-01"
RUN_ID = f"expire-{DAG_RUN}"
OUTLET = Asset("tiering_remote_log")
TOPICS = ("audit_log", "bigrecs")
ANSWERED = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


class _TaskInstance:
    """Keeps what tasks push, whichever they are, and gives it back."""

    def __init__(self) -> None:
        self.try_number = 1
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, task_ids: str, key: str) -> Any:
        assert task_ids == APPROVAL_TASK_ID
        return self.pushed.get(key)

    def answer(self, user: str | None, plan_hash: str) -> None:
        """As `approval` leaves it."""
        self.pushed |= {ANSWER_KEY: {"user": user, "answered_at": "then"}, SHOWN_PLAN_KEY: plan_hash}


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    made = deployment(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    with open_tiering(load_settings(made.config)) as tiering:
        tiering.plan_copy("copy", topics=TOPICS)
        tiering.copy_batch("copy", "copy/0")
    return made


def _expires(made: Deployment, *topics: str, retention_bytes: str | None = "0") -> None:
    with open_tiering(load_settings(made.config)) as tiering:
        for topic in topics:
            tiering.alter_configs(
                ConfigEntity(EntityType.TOPICS, topic), {"retention.bytes": retention_bytes}, author="test"
            )


def _context(instance: _TaskInstance, **form: Any) -> Any:
    return {"params": {"topics": None, "dry_run": False, **form}, "run_id": DAG_RUN, "ti": instance}


def _plan(instance: _TaskInstance, **form: Any) -> dict[str, int]:
    return PlanExpirationOperator(task_id="plan").execute(_context(instance, **form))


def _branch(instance: _TaskInstance, **form: Any) -> str | None:
    planned = instance.pushed.get(PLANNED_RUN_KEY, "")
    return BrakeOperator(task_id="brake", planned_run_id=planned).choose_branch(_context(instance, **form))


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
    _expires(deployed, *TOPICS)
    assert _plan(_TaskInstance(), topics=["big*"])["segments"] == 1


def test_within_the_limits_the_run_is_released_with_no_more_batches_than_partitions_or_the_setting(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    _expires(deployed, *TOPICS)
    instance = _TaskInstance()
    partitions = _plan(instance)["partitions"]
    assert (_branch(instance), instance.pushed[PLANNED_RUN_KEY]) == (RELEASE_TASK_ID, RUN_ID)
    assert _release(instance) == [{"batch": number} for number in range(partitions)]
    monkeypatch.setenv("TIERING_EXPIRATION__MAX__BATCHES", "1")
    assert _release(instance) == [{"batch": 0}]


def test_an_approval_of_another_plan_releases_nothing(deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERING_EXPIRATION__MIN__BYTES", "0")
    _expires(deployed, *TOPICS)
    instance = _TaskInstance()
    _plan(instance)
    assert _branch(instance, dry_run=True) is None
    assert _branch(instance) == APPROVAL_TASK_ID
    instance.answer("olga", "another")
    with pytest.raises(StateConflictError, match="approved was another"):
        _release(instance)
    with open_tiering(load_settings(deployed.config)) as tiering:
        assert not tiering.deletions.run(RUN_ID).is_released


def test_a_batch_tells_its_job_run_batch_and_pool() -> None:
    operator = DeleteBatchOperator(task_id="delete", batch=4, planned_run_id=RUN_ID)
    assert operator.application_args == [
        "--run-id", RUN_ID, "--batch-id", f"{RUN_ID}/4", "--pool", "remote_log_expiration",
    ]  # fmt: skip


def test_a_batch_without_work_ends_before_spark_starts_and_the_summary_wakes_the_sizes(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _expires(deployed, "audit_log")
    instance = _TaskInstance()
    planned = _plan(instance)
    _branch(instance)
    summary = ExpirationSummaryOperator(task_id="summary", outlet=OUTLET, planned_run_id=RUN_ID)
    with pytest.raises(AirflowSkipException, match="nothing was deleted of 3 segments"):
        summary.execute(_context(instance))
    with open_tiering(load_settings(deployed.config)) as tiering:
        tiering.delete_batch(RUN_ID, f"{RUN_ID}/0")
    monkeypatch.setenv("PATH", "")  # spark-submit would not be found
    DeleteBatchOperator(task_id="delete", batch=1, planned_run_id=RUN_ID).execute(_context(instance))
    assert "No work left for this batch" in capfd.readouterr().out
    event = type("Event", (), {})()
    counts = summary.execute({**_context(instance), "outlet_events": {OUTLET: event}})
    assert counts == {"segments": 3, "failed": 0, "bytes": planned["bytes"]}
    assert event.extra == {"run_id": RUN_ID, **counts}


def test_a_missing_answer_fails_the_run_and_a_given_one_does_not(
    deployed: Deployment, capfd: pytest.CaptureFixture[str]
) -> None:
    _expires(deployed, "audit_log")
    instance = _TaskInstance()
    _plan(instance)
    instance.answer("olga", "plan")
    _outcome(instance)
    assert "3 planned segments are left; the next run plans anew" in capfd.readouterr().out
    instance.answer(None, "plan")
    with pytest.raises(ApprovalMissingError, match="nobody said"):
        _outcome(instance)


def test_a_segment_that_could_not_be_deleted_fails_the_run(deployed: Deployment) -> None:
    _expires(deployed, "audit_log")
    instance = _TaskInstance()
    _plan(instance)
    failed = update(planned_deletions).values(outcome=DeletionOutcome.FAILED, message="access denied")
    with open_tiering(load_settings(deployed.config)) as tiering, tiering.engine.begin() as connection:
        connection.execute(failed.where(planned_deletions.c.position == 0))
    with pytest.raises(DeletionFailedError, match="access denied"):
        _outcome(instance)


@pytest.mark.parametrize("user", ["olga", None])
@pytest.mark.parametrize("option", ["Approve", "Reject"])
def test_every_answer_is_kept(user: str | None, option: str) -> None:
    instance = _TaskInstance()
    by = None if user is None else {"id": "7", "name": user}
    event = {"chosen_options": [option], "params_input": {}, "responded_at": ANSWERED, "responded_by_user": by}
    PlanApprovalOperator(task_id="approval").execute_complete(_context(instance), event)
    assert instance.pushed == {ANSWER_KEY: {"user": user, "answered_at": "2026-01-02T03:04:05+00:00"}}


def test_who_is_asked_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = PlanApprovalOperator(task_id="approval")
    assert (asked.defaults, asked.assigned_users, asked.response_timeout) == (["Reject"], None, timedelta(days=1))
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVERS", "olga, per ,")
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVAL_HOURS", "0.5")
    asked = PlanApprovalOperator(task_id="approval")
    assert asked.assigned_users == [{"id": "olga", "name": "olga"}, {"id": "per", "name": "per"}]
    assert asked.response_timeout == timedelta(minutes=30)


@pytest.mark.parametrize("hours", ["0", "-1", "soon", "nan", "1e300"])
def test_a_wait_that_is_no_time_is_refused(monkeypatch: pytest.MonkeyPatch, hours: str) -> None:
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVAL_HOURS", hours)
    with pytest.raises(SettingError, match="expiration_approval_hours"):
        configuration.expiration_approval_wait()
