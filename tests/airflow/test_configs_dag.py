"""`tiering_configs`: the form, the operator over the real library, and one run by Airflow's own runner."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.exceptions import ParamValidationError
from sqlalchemy import text

from include.tiering.configs.config_catalogue import all_configs
from include.tiering.configs.config_store import ALL_BROKERS, ConfigChange, ConfigEntity, EntityType
from include.tiering.configs.rules import checked_changes
from include.tiering.configs.service import AlteredConfigs
from include.tiering.database.migrations import HEAD
from include.tiering.database.transactions import writing
from include.tiering.errors import (
    ConfigNotTakenError,
    ConfigRefusedError,
    LimitRefusedError,
    MetadataUnavailableError,
    SettingError,
)
from include.tiering.quotas.contract import QuotaWorker
from plugins.tiering_airflow.configs import AlterConfigOperator, ConfigRequest, counts
from tests.doubles.airflow_home import Deployment, airflow_database
from tests.doubles.source_tree import ROOT

COPY = "remote.log.manager.copy.max.bytes.per.second"
FETCH = "remote.log.manager.fetch.max.bytes.per.second"
OLD_EXPIRY = "tiering.unfinished.copy.expiry.ms"
CLIENT = "tiering.fetch.max.bytes.per.second"
FORM = {
    "entity_type": "brokers",
    "entity_default": True,
    "entity_name": None,
    "name": COPY,
    "value": "52428800",
    "delete": False,
    "set": None,
    "remove": None,
}
REPORTING: dict[str, Any] = {
    "entity_type": "clients",
    "entity_default": False,
    "entity_name": "reporting",
    "name": CLIENT,
}


@pytest.fixture(scope="module")
def dag() -> DAG:
    return DagBag(str(ROOT / "dags")).dags["tiering_configs"]


def _dag_run(user: str | None, **facts: Any) -> SimpleNamespace:
    known = {"dag_id": "tiering_configs", "run_id": "manual__1", "run_after": datetime.now(UTC), "clear_number": 0}
    return SimpleNamespace(**{**known, "triggering_user_name": user, **facts})


def _alter(user: str | None = "ann", **form: Any) -> dict[str, int]:
    context: Any = {"params": {**FORM, **form}, "dag_run": _dag_run(user)}
    return AlterConfigOperator(task_id="alter").execute(context)


def test_a_database_one_migration_behind_takes_no_change(deployed: Deployment) -> None:
    """A person waits for the answer: the task fails with the reason instead of changing something hours later."""
    _say_revision(deployed, "r0000")
    with pytest.raises(MetadataUnavailableError, match=f"this version needs {HEAD}: ./tiering migrate"):
        _alter()
    _say_revision(deployed, HEAD)
    assert _history(deployed) == []


def _say_revision(deployed: Deployment, revision: str) -> None:
    with deployed.open() as app, writing(app.adapters.engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def _history(deployed: Deployment) -> list[ConfigChange]:
    with deployed.open() as app:
        return list(app.adapters.stores.configs.history())


def test_a_change_is_stored_with_who_triggered_it(deployed: Deployment, capfd: pytest.CaptureFixture[str]) -> None:
    assert _alter() == {"changed": 1, "version": 1, "taken_by": 0}
    assert _alter() == {"changed": 0, "version": 1, "taken_by": 0}
    assert _alter(user=None, value=None, delete=True) == {"changed": 1, "version": 2, "taken_by": 0}
    assert [(one.entity, one.name, one.old_value, one.new_value, one.author) for one in _history(deployed)] == [
        (ALL_BROKERS, COPY, None, "52428800", "ann (tiering_configs manual__1)"),
        (ALL_BROKERS, COPY, "52428800", None, "Airflow (tiering_configs manual__1)"),
    ]
    shown = capfd.readouterr().out
    assert f"brokers default: {COPY}: not set -> 52428800" in shown
    assert "brokers default: nothing to change, version 1; no worker runs" in shown


def test_a_former_name_changes_the_config_under_its_current_one(deployed: Deployment) -> None:
    assert _alter(name=OLD_EXPIRY, value="90000")["changed"] == 1
    (change,) = _history(deployed)
    assert (change.name, change.new_value) == ("tiering.abandoned.copy.expiry.ms", "90000")


def test_a_change_claims_the_store_and_is_made_without_it(
    deployed: Deployment, capfd: pytest.CaptureFixture[str]
) -> None:
    with deployed.open() as app:
        before = app.adapters.stores.generations.accepted().current.generation
    _alter()
    with deployed.open() as app:
        assert app.adapters.stores.generations.accepted().current.generation == before + 1
    deployed.remote.rename(deployed.remote.with_name("unmounted"))
    assert _alter(value="1048576")["changed"] == 1
    assert _history(deployed)[-1].new_value == "1048576"
    assert capfd.readouterr().out.count("a backup of the database from before this change would not be refused") == 1


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
        ({"entity_name": "1"}, "entity 1 is named: switch Default off"),
        ({"entity_default": False}, "switch Default on, or name an entity"),
        ({"entity_default": False, "entity_name": "one"}, "'one' is no broker"),
        ({"value": None}, "give a value, or switch Remove on"),
        ({"delete": True}, "a value is given and Remove is on"),
        ({"set": [f"{COPY}=5"]}, "changed twice"),
        ({"value": None, "set": [COPY]}, "NAME=VALUE is needed"),
        ({"value": None, "set": [f"{COPY}=5"], "remove": [COPY]}, "changed twice"),
    ],
)
def test_a_form_that_contradicts_itself(form: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        ConfigRequest.from_params({**FORM, **form})


def test_the_form_as_it_opens_needs_a_value_and_whom_it_is_for(dag: DAG) -> None:
    """A request of the API that forgets the name does not change the default of all brokers."""
    opened = {name: dag.params[name] for name in dag.params}
    with pytest.raises(SettingError, match="switch Default on, or name an entity"):
        ConfigRequest.from_params({**opened, "value": "52428800"})
    named = ConfigRequest.from_params({**opened, "value": "52428800", "entity_name": "1"})
    assert named.entity == ConfigEntity(EntityType.BROKERS, "1")
    request = ConfigRequest.from_params({**opened, "value": "52428800", "entity_default": True})
    assert request.entity == ALL_BROKERS
    assert checked_changes(request.entity, request.changes)


def test_a_broker_or_topic_that_exists_nowhere_is_refused_unless_the_form_allows_it(deployed: Deployment) -> None:
    topic: dict[str, Any] = {"entity_type": "topics", "entity_default": False, "name": "retention.ms", "value": "1000"}
    forms: tuple[dict[str, Any], ...] = (
        {"entity_default": False, "entity_name": "77"},
        {**topic, "entity_name": "ordrs"},
    )
    for form in forms:
        with pytest.raises(SettingError, match=f"there is no (broker|topic) {form['entity_name']}"):
            _alter(**form)
        assert _alter(**form, allow_unknown=True)["changed"] == 1
        assert _alter(**form)["changed"] == 0


def test_a_form_of_a_named_entity() -> None:
    request = ConfigRequest.from_params({**FORM, **REPORTING, "value": "10"})
    assert request == ConfigRequest(ConfigEntity(EntityType.CLIENTS, "reporting"), {CLIENT: "10"})


TOTAL_IN, TOPIC_IN = "total.bytes.in.per.sec.threshold", "bytes.in.per.sec.threshold"


def test_several_changes_are_made_at_once_or_not_at_all(deployed: Deployment) -> None:
    several: dict[str, Any] = {"value": None, "set": [f"{COPY}=50MiB", f" {FETCH} = 1KiB ", f"{TOTAL_IN}=1000"]}
    assert _alter(**several)["changed"] == 3
    assert [(one.name, one.new_value) for one in _history(deployed)] == [
        (COPY, "52428800"),
        (FETCH, "1024"),
        (TOTAL_IN, "1000"),
    ]
    _alter(entity_default=False, entity_type="topics", entity_name="orders", name=TOPIC_IN, value="900")
    with pytest.raises(ConfigRefusedError, match="900"):
        _alter(value=None, set=[f"{TOTAL_IN}=899"], remove=[COPY])
    assert len(_history(deployed)) == 4
    assert _alter(name=FETCH, value="2048", set=[f"{TOTAL_IN}=901"], remove=[COPY])["changed"] == 3


def test_a_removal_that_was_made_is_none_when_the_task_is_tried_again(deployed: Deployment) -> None:
    _alter()
    removal: dict[str, Any] = {"value": None, "delete": True}
    assert (_alter(**removal)["changed"], _alter(**removal)["changed"]) == (1, 0)


def test_the_form_offers_every_name_and_nothing_else(dag: DAG) -> None:
    offered = dag.params.get_param("name").schema["enum"]
    aliases = {alias for config in all_configs() if config.setting is not None for alias in config.setting.aliases}
    assert set(offered) == {config.name for config in all_configs()} | aliases
    assert OLD_EXPIRY in aliases
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


SHARE = "tiering.expiration.max.share"


def _share(user: str | None, value: str | None, **facts: Any) -> dict[str, int]:
    form = {**FORM, "name": SHARE, "value": value, "delete": value is None}
    return AlterConfigOperator(task_id="alter").execute({"params": form, "dag_run": _dag_run(user, **facts)})


@pytest.fixture
def approved_by_olga(deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVERS", "olga")
    return deployed


@pytest.mark.parametrize("user", ["second", None, "", "Olga"])
def test_a_looser_limit_needs_one_who_may_approve_deletions(approved_by_olga: Deployment, user: str | None) -> None:
    with pytest.raises(
        LimitRefusedError, match=rf"{SHARE} 0\.2 -> 1\.0 allows more .* \(olga may; .*An approver has to"
    ) as no:
        _share(user, "1")
    assert not no.value.retriable
    assert _history(approved_by_olga) == []
    assert _share("olga", "1")["changed"] == 1
    assert _share(user, "0.5", run_id="manual__2")["changed"] == 1, "tighter is open to everybody"
    with pytest.raises(LimitRefusedError, match=r"0\.5 -> 0\.9"):
        _share(user, "0.9", run_id="manual__3")


def test_removing_a_value_counts_by_what_is_in_force_then(approved_by_olga: Deployment) -> None:
    """The settings say 0.2."""
    assert _share("second", "0.1")["changed"] == 1
    with pytest.raises(LimitRefusedError, match=r"0\.1 -> 0\.2"):
        _share("second", None)
    assert _share("olga", "0.3", run_id="manual__2")["changed"] == 1
    assert _share("second", None)["changed"] == 1


def test_a_run_that_others_start_again_loosens_nothing_twice(approved_by_olga: Deployment) -> None:
    _share("olga", "1")
    _share("second", "0.2", run_id="manual__2")
    with pytest.raises(LimitRefusedError, match="this run changed it before"):
        _share("olga", "1")
    with pytest.raises(LimitRefusedError, match="this run was cleared"):
        _share("olga", "1", run_id="manual__3", clear_number=1)
    with pytest.raises(LimitRefusedError, match="more than a day ago"):
        _share("olga", "1", run_id="manual__4", run_after=datetime.now(UTC) - timedelta(days=2))
    assert [change.new_value for change in _history(approved_by_olga)] == ["1.0", "0.2"]


def test_a_second_try_of_a_change_that_was_stored_is_none(approved_by_olga: Deployment) -> None:
    """As after a worker that had not taken it in time."""
    assert _share("olga", "1")["changed"] == 1
    assert _share("olga", "1")["changed"] == 0


def test_without_approvers_everybody_loosens(deployed: Deployment) -> None:
    assert _share("second", "1")["changed"] == 1


def test_a_request_cannot_say_who_triggers() -> None:
    """Airflow writes it from the login, and takes no other."""
    from airflow.api_fastapi.core_api.datamodels.dag_run import DAGRunPatchBody, TriggerDAGRunPostBody

    asked = {"logical_date": None, "conf": {"triggering_user_name": "olga"}}
    assert "triggering_user_name" not in TriggerDAGRunPostBody.model_validate(asked).model_dump(exclude={"conf"})
    for body, fields in ((TriggerDAGRunPostBody, asked), (DAGRunPatchBody, {})):
        with pytest.raises(ValueError, match="Extra inputs are not permitted"):
            body.model_validate({**fields, "triggering_user_name": "olga"})
