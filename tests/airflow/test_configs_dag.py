"""`tiering_configs`: the form, the operator over the real library, and one run by Airflow's own runner."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.exceptions import ParamValidationError
from alembic.script import ScriptDirectory
from sqlalchemy import text

from include.tiering.database.migrations import HEAD, migration_config
from include.tiering.database.transactions import writing
from include.tiering.errors import ConfigNotTakenError, ConfigRefusedError, MetadataUnavailableError, SettingError
from include.tiering.quota.config_catalogue import all_configs
from include.tiering.quota.config_store import ALL_BROKERS, ConfigChange, ConfigEntity, EntityType
from include.tiering.quota.contract import QuotaWorker
from include.tiering.settings import load_settings
from include.tiering.tasks.alter_configs import AlteredConfigs
from include.tiering.wiring import open_tiering
from plugins.tiering_airflow.config_operator import AlterConfigOperator, ConfigRequest, counts
from tests.doubles.airflow_home import Deployment, airflow_database, deployment
from tests.doubles.source_tree import ROOT

COPY = "remote.log.manager.copy.max.bytes.per.second"
FETCH = "remote.log.manager.fetch.max.bytes.per.second"
CLIENT = "tiering.fetch.max.bytes.per.second"
FORM = {
    "entity_type": "brokers",
    "entity_default": True,
    "entity_name": None,
    "name": COPY,
    "value": "52428800",
    "delete": False,
}
REPORTING = {"entity_type": "clients", "entity_default": False, "entity_name": "reporting", "name": CLIENT}


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    made = deployment(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture(scope="module")
def dag() -> DAG:
    return DagBag(str(ROOT / "dags")).dags["tiering_configs"]


def _alter(user: str | None = "ann", **form: Any) -> dict[str, int]:
    dag_run = SimpleNamespace(dag_id="tiering_configs", run_id="manual__1", triggering_user_name=user)
    context: Any = {"params": {**FORM, **form}, "dag_run": dag_run}
    return AlterConfigOperator(task_id="alter").execute(context)


def test_a_database_one_migration_behind_takes_no_change(deployed: Deployment) -> None:
    """A person waits for the answer: the task fails with the reason instead of changing something hours later."""
    _say_revision(deployed, ScriptDirectory.from_config(migration_config()).get_revision(HEAD).down_revision)
    with pytest.raises(MetadataUnavailableError, match=f"this version needs {HEAD}: ./tiering migrate"):
        _alter()
    _say_revision(deployed, HEAD)
    assert _history(deployed) == []


def _say_revision(deployed: Deployment, revision: str) -> None:
    with open_tiering(load_settings(deployed.config)) as tiering, writing(tiering.engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def _history(deployed: Deployment) -> list[ConfigChange]:
    with open_tiering(load_settings(deployed.config)) as tiering:
        return list(tiering.configs.history())


def test_a_change_is_stored_with_who_triggered_it(deployed: Deployment, capfd: pytest.CaptureFixture[str]) -> None:
    assert _alter() == {"changed": 1, "version": 1, "taken_by": 0}
    assert _alter() == {"changed": 0, "version": 1, "taken_by": 0}
    assert _alter(user=None, value=None, delete=True) == {"changed": 1, "version": 2, "taken_by": 0}
    assert [(one.entity, one.name, one.old_value, one.new_value, one.author) for one in _history(deployed)] == [
        (ALL_BROKERS, COPY, None, "52428800", "ann (tiering_configs manual__1)"),
        (ALL_BROKERS, COPY, "52428800", None, "Airflow (tiering_configs manual__1)"),
    ]
    shown = capfd.readouterr().out
    assert f"brokers default: {COPY}: None -> 52428800" in shown
    assert "brokers default: nothing to change, version 1; no worker runs" in shown


def test_a_refusal_fails_with_the_numbers_and_is_not_tried_again(deployed: Deployment) -> None:
    _alter(name=FETCH, value="1000")
    with pytest.raises(ConfigRefusedError, match=r"client reporting: .* = 1000 is not below .* = 1000") as refused:
        _alter(**REPORTING, value="1000")
    assert not refused.value.retriable
    assert len(_history(deployed)) == 1


def test_a_worker_that_has_not_taken_it_is_named_and_the_task_tried_again() -> None:
    taken, behind = QuotaWorker("host-a:17", 4), QuotaWorker("host-b:18", 3)
    with pytest.raises(ConfigNotTakenError, match="not taken by 1 of 2 workers: host-b:18") as late:
        counts(AlteredConfigs(ALL_BROKERS, 4, (), (taken,), (behind,)))
    assert late.value.retriable
    assert counts(AlteredConfigs(ALL_BROKERS, 4, (), (taken,), ())) == {"changed": 0, "version": 4, "taken_by": 1}


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"entity_name": "1"}, "either Default or the name"),
        ({"entity_default": False}, "either Default or the name"),
        ({"entity_default": False, "entity_name": "one"}, "'one' is no broker"),
        ({"value": None}, "either Remove or a value"),
        ({"delete": True}, "either Remove or a value"),
    ],
)
def test_a_form_that_contradicts_itself(form: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        ConfigRequest.from_params({**FORM, **form})


def test_a_form_of_a_named_entity() -> None:
    request = ConfigRequest.from_params({**FORM, **REPORTING, "value": "10"})
    assert request == ConfigRequest(ConfigEntity(EntityType.CLIENTS, "reporting"), CLIENT, "10")


def test_the_form_offers_every_name_and_nothing_else(dag: DAG) -> None:
    offered = dag.params.get_param("name").schema["enum"]
    assert set(offered) == {config.name for config in all_configs()}
    for name, value in (("name", "zzz"), ("entity_type", "users"), ("value", 5), ("delete", "yes")):
        param = dag.params.get_param(name)
        param.resolve()
        with pytest.raises(ParamValidationError):
            param.resolve(value)


@pytest.mark.filterwarnings("default")  # Airflow's in-process API server warns of its own dependencies.
def test_airflow_tells_who_triggered_the_run(deployed: Deployment, dag: DAG) -> None:
    airflow_database()
    run = dag.test(run_conf=FORM)
    assert str(run.state) == "success"
    (change,) = _history(deployed)
    assert (change.new_value, change.author) == ("52428800", f"dag_test (tiering_configs {run.run_id})")
