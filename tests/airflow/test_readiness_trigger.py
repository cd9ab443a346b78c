"""The wait before a run: in the triggerer, with the real library."""

import asyncio
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred
from airflow.sdk.module_loading import import_string
from airflow.triggers.base import TriggerEvent

from include.tiering.copying.run_scope import RunScope
from plugins.tiering_airflow.errors import NotReadyError
from plugins.tiering_airflow.readiness import MISSING_KEY, ReadinessTrigger, TieringReadySensor
from plugins.tiering_airflow.run_form import form_of, scope_of
from tests.doubles.airflow_home import Deployment, TaskInstance, deployment
from tests.doubles.patience import PATIENCE_SECONDS

PAST_MS = 0
FAR_MS = 10**14


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Makes a deployment and points the environment of this process at it."""

    def made(**options: Any) -> Deployment:
        found = deployment(tmp_path, **options)
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        return found

    return made


def _event_of(trigger: ReadinessTrigger) -> dict[str, Any]:
    async def first() -> TriggerEvent:
        return await anext(trigger.run())

    return dict(asyncio.run(asyncio.wait_for(first(), PATIENCE_SECONDS)).payload)


def test_a_trigger_can_be_made_again_from_what_it_serialises_to() -> None:
    made = ReadinessTrigger(
        poll_seconds=2.5, deadline_ms=7, slot_pool="remote_log_expiration", topics=["a*"], said=["x"]
    )
    path, arguments = made.serialize()
    again = import_string(path)(**json.loads(json.dumps(arguments)))
    assert again.serialize() == made.serialize()
    assert (again.poll_seconds, again.deadline_ms, again.slot_pool) == (2.5, 7, "remote_log_expiration")
    assert (again.form, again.said) == ({"topics": ["a*"]}, ["x"])
    # The triggerer imports neither DAG files nor anything below dags/.
    assert path.startswith("plugins.")


@pytest.mark.parametrize(
    ("context", "form", "scope"),
    [
        ({"params": {"topics": ["a*", "b"]}}, {"topics": ["a*", "b"]}, RunScope(("a*", "b"))),
        ({"params": {"topics": []}}, {"topics": None}, RunScope()),
        ({"params": {"depth": "deep"}}, {"topics": None}, RunScope()),
        ({}, {"topics": None}, RunScope()),
    ],
)
def test_the_form_of_a_run_says_which_partitions_it_takes(context: Any, form: dict[str, Any], scope: RunScope) -> None:
    assert form_of(context) == form
    assert scope_of(form) == scope


def test_ready_fires_at_once(use: Any) -> None:
    use()
    event = _event_of(ReadinessTrigger(poll_seconds=60, deadline_ms=FAR_MS))
    assert (event["ready"], event["messages"], event["summary"]) == (True, [], "13 of 13 partitions ready")


def test_a_schema_that_is_missing_is_waited_for_until_the_deadline(use: Any) -> None:
    use(migrated=False)
    event = _event_of(ReadinessTrigger(poll_seconds=0.05, deadline_ms=time.time_ns() // 1_000_000 + 300))
    assert event["ready"] is False
    assert event["messages"][0].startswith("schema: ")
    assert "./tiering migrate" in event["messages"][0]


def test_a_wait_ends_when_it_is_over(use: Any) -> None:

    made = use(migrated=False)

    async def scenario() -> TriggerEvent:
        waiting = asyncio.ensure_future(anext(ReadinessTrigger(poll_seconds=0.02, deadline_ms=FAR_MS).run()))
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        with made.open() as app:
            app.set_up.migrate()
        return await asyncio.wait_for(waiting, PATIENCE_SECONDS)

    assert asyncio.run(scenario()).payload["ready"] is True


def test_a_foreign_store_is_not_waited_for(use: Any) -> None:
    made = use()
    marker = made.remote / "_tiering-store.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "store_id": "AAAAAAAAAAAAAAAAAAAAAg"}))
    event = _event_of(ReadinessTrigger(poll_seconds=60, deadline_ms=FAR_MS))
    assert event["ready"] is False
    assert any(message.startswith("storage: ") for message in event["messages"])


def test_a_setting_that_is_wrong_is_not_waited_for(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use()
    monkeypatch.setenv("TIERING_METADATA__URL", "oracle://somewhere")
    event = _event_of(ReadinessTrigger(poll_seconds=60, deadline_ms=FAR_MS))
    assert event["ready"] is False
    assert "metadata.url" in event["messages"][0]


def test_the_sensor_waits_in_the_triggerer_with_a_deadline(use: Any) -> None:
    use(migrated=False)
    sensor = TieringReadySensor(task_id="ready", poll_seconds=3, wait_seconds=60, slot_pool="remote_log_expiration")
    dag_run = SimpleNamespace(run_type="manual")
    context: Any = {"params": {"topics": ["orders"]}, "ti": TaskInstance(), "dag_run": dag_run}
    before_ms = time.time_ns() // 1_000_000
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(context)
    after_ms = time.time_ns() // 1_000_000
    trigger = deferred.value.trigger
    assert isinstance(trigger, ReadinessTrigger)
    assert (trigger.poll_seconds, trigger.slot_pool) == (3, "remote_log_expiration")
    assert trigger.serialize()[1]["topics"] == ["orders"]
    assert before_ms <= trigger.deadline_ms - 60_000 <= after_ms
    assert "; ".join(trigger.said) == context["ti"].pushed[MISSING_KEY]
    assert deferred.value.timeout.total_seconds() > 60


def test_the_sensor_says_what_is_missing() -> None:
    sensor = TieringReadySensor(task_id="ready")
    context: Any = {"ti": TaskInstance()}
    event = {"ready": False, "messages": ["storage: away", "pool: 0 slots"]}
    with pytest.raises(NotReadyError, match="storage: away\npool: 0 slots"):
        sensor.on_answer(context, event)
    assert context["ti"].pushed == {MISSING_KEY: "storage: away; pool: 0 slots"}


def test_the_sensor_says_that_nobody_would_be_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__TIERING__NOTIFIERS", '[{"class": "no_such_package.Notifier"}]')
    sensor = TieringReadySensor(task_id="ready")
    context: Any = {"ti": TaskInstance()}
    event = {"ready": True, "messages": [], "summary": "ready", "waiting": [], "remarks": ["leases: one is ahead"]}
    told = sensor.on_answer(context, event)
    assert told["remarks"][0] == "leases: one is ahead"
    assert "no_such_package.Notifier" in told["remarks"][1]
    assert "no_such_package.Notifier" in capfd.readouterr().out
