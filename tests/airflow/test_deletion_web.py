"""The page of a deletion plan in Airflow: who sees it, who withdraws by it, and what it is safe from."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from include.tiering.errors import RunWithdrawnError
from include.tiering.expiration.deletion_page import POLICY, SCRIPT
from include.tiering.runs.deletion_run import DeletionOutcome, DeletionRun
from plugins.tiering_airflow.errors import PlanWithdrawnError
from plugins.tiering_airflow.expiration import ExpirationOutcomeOperator, ReleaseOperator
from plugins.tiering_airflow.web import expiration
from plugins.tiering_airflow.web.expiration import DAG_ID, DeletionPlanPlugin
from plugins.tiering_airflow.web.requests import refused
from tests.doubles.airflow_answers import answers
from tests.doubles.airflow_home import Deployment, deployed_for, deployment
from tests.doubles.self_contained import parsed

# Airflow's web application imports a test client.
pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`")

DAG_RUN = "manual__2026-01-01T00:00:00+00:00"
RUN_ID = f"expire-{DAG_RUN}"
PAGE = f"/tiering/expiration/dags/{DAG_ID}/runs/{DAG_RUN}"
WITHDRAW = f"/tiering/expiration/dags/{DAG_ID}/withdraw"
BODY = {"dag_run_id": DAG_RUN, "run_id": RUN_ID}
SAME_ORIGIN = {"Origin": "http://airflow", "Sec-Fetch-Site": "same-origin"}
Ask = Callable[..., httpx.Response]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    """A run whose plan takes all of one topic, and waits for an approval."""
    made = deployed_for(monkeypatch, deployment(tmp_path))
    monkeypatch.setenv("TIERING_EXPIRATION__MIN__BYTES", "0")
    made.copied("audit_log")
    made.expires("audit_log")
    with made.open() as app:
        app.expiration.plan(RUN_ID)
        limit_report = app.expiration.apply_limits(RUN_ID)
        assert limit_report.needs_approval
        app.adapters.stores.plan_questions.put(
            f"{DAG_ID} {DAG_RUN}", subject=RUN_ID, plan_hash=limit_report.plan_hash, headline="Delete?", body="All."
        )
    return made


@pytest.fixture
def ask(planned: Deployment, requests_to: Callable[..., Ask]) -> Iterator[Ask]:
    yield requests_to(DeletionPlanPlugin)
    expiration.make_application.cache_clear()


def _run(made: Deployment) -> DeletionRun:
    with made.open() as app:
        return app.adapters.stores.deletions.run(RUN_ID)


def test_the_page_shows_the_plan_and_changes_nothing(ask: Ask, planned: Deployment) -> None:
    before = _run(planned)
    answer = ask(PAGE)
    text = " ".join(parsed(answer.content).text)
    assert answer.status_code == 200
    for words in (RUN_ID, before.plan_hash, "3 segments", "audit_log", "100.0%", "it waits for an approval"):
        assert words in text
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-frame-options"] == "SAMEORIGIN"
    assert "'unsafe-inline'" not in POLICY
    assert answer.text.count("<script") == 1
    assert SCRIPT in answer.text
    assert _run(planned) == before


def test_a_button_is_for_those_who_may_change_runs(ask: Ask) -> None:
    assert 'data-address="' not in ask(PAGE, "viewer").text
    for role in ("user", "op", "admin"):
        assert f'data-address="{WITHDRAW}"' in ask(PAGE, role).text


@pytest.mark.parametrize(
    ("role", "status"), [("nobody", 401), (None, 403), ("viewer", 403), ("user", 200), ("op", 200), ("admin", 200)]
)
def test_who_may_change_runs_withdraws(ask: Ask, planned: Deployment, role: str | None, status: int) -> None:
    answer = ask(WITHDRAW, role, "POST", json=BODY, headers=SAME_ORIGIN)
    assert answer.status_code == status
    withdrawal = _run(planned).withdrawal
    if status != 200:
        assert withdrawal is None
        return
    assert answer.json()["detail"].startswith(f"run {RUN_ID} is withdrawn: 3 segments (")
    assert withdrawal is not None
    assert withdrawal.author == f"a {role} (page of {DAG_ID} {DAG_RUN})"
    page = ask(PAGE, role)
    assert f"Withdrawn by a {role}" in " ".join(parsed(page.content).text)
    assert 'data-address="' not in page.text
    assert ask(WITHDRAW, role, "POST", json=BODY, headers=SAME_ORIGIN).status_code == 200, "repeating is harmless"


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}, "another site"),
        ({"Origin": "http://evil.example"}, "another origin"),
        ({"Origin": "null"}, "another origin"),
        ({"Origin": "http://airflow.evil.example", "Sec-Fetch-Site": "same-origin"}, "another origin"),
        ({"Origin": "http://airflow", "Sec-Fetch-Site": "same-site"}, "another site"),
        ({"Sec-Fetch-Site": "none"}, "another site"),
        ({**SAME_ORIGIN, "Content-Type": "text/plain"}, "application/json"),
        ({**SAME_ORIGIN, "Content-Type": "application/x-www-form-urlencoded"}, "application/json"),
    ],
)
def test_other_sites_withdraw_nothing(ask: Ask, planned: Deployment, headers: dict[str, str], words: str) -> None:
    answer = ask(WITHDRAW, "admin", "POST", json=BODY, headers=headers)
    assert answer.status_code == 403
    assert words in answer.json()["detail"]
    assert _run(planned).withdrawal is None


def test_a_cookie_alone_is_not_enough() -> None:
    json = {"content-type": "application/json"}
    assert "neither" in str(refused({**json, "cookie": "_token=x", "host": "airflow"}))
    assert refused({**json, "authorization": "Bearer x", "host": "airflow"}) is None
    assert refused({**json, "origin": "https://airflow:8080", "host": "airflow:8080"}) is None


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD"])
def test_no_other_method_withdraws(ask: Ask, planned: Deployment, method: str) -> None:
    assert ask(WITHDRAW, "admin", method, headers=SAME_ORIGIN).status_code in (404, 405)
    assert _run(planned).withdrawal is None


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (WITHDRAW, {"dag_run_id": DAG_RUN, "run_id": "expire-another"}, 404),
        (WITHDRAW, {"dag_run_id": "another", "run_id": RUN_ID}, 404),
        (WITHDRAW, {"dag_run_id": "", "run_id": RUN_ID}, 404),
        (WITHDRAW, {"dag_run_id": DAG_RUN}, 400),
        (WITHDRAW, {"dag_run_id": [DAG_RUN], "run_id": RUN_ID}, 400),
        (WITHDRAW, [], 400),
        (WITHDRAW, {**BODY, "more": "x" * 5_000}, 400),
        (WITHDRAW.replace(DAG_ID, "tiering_copy"), BODY, 400),
    ],
)
def test_what_is_no_plan_of_that_run_is_not_withdrawn(
    ask: Ask, planned: Deployment, path: str, body: Any, status: int
) -> None:
    assert ask(path, "admin", "POST", json=body, headers=SAME_ORIGIN).status_code == status
    assert _run(planned).withdrawal is None


@pytest.mark.parametrize(
    "path", [PAGE.replace(DAG_ID, "tiering_copy"), f"{PAGE}.x", PAGE + "/<script>alert(1)</script>"]
)
def test_a_run_without_a_plan_says_so(ask: Ask, path: str) -> None:
    answer = ask(path, "admin")
    assert answer.status_code == 404
    assert "has planned no deletion" in " ".join(parsed(answer.content).text)
    assert "<script>alert" not in answer.text


def test_nobody_reads_without_airflows_permission(ask: Ask) -> None:
    assert ask(PAGE, "nobody").status_code == 401
    assert ask(PAGE, None).status_code == 403


def test_a_later_try_has_a_plan_of_its_own_on_the_same_page(ask: Ask, planned: Deployment) -> None:
    with planned.open() as app:
        for run_id in (f"{RUN_ID}.2", f"{RUN_ID}.x", f"{RUN_ID}2", f"{RUN_ID}.2.1"):
            app.expiration.plan(run_id)
        assert app.adapters.stores.deletions.tries_of(RUN_ID) == [RUN_ID, f"{RUN_ID}.2"]
        assert app.adapters.stores.deletions.tries_of(f"{RUN_ID}.2") == [f"{RUN_ID}.2.1"]
    text = " ".join(parsed(ask(PAGE).content).text)
    assert f"{RUN_ID}.2" in text
    assert f"{RUN_ID}.x" not in text


@pytest.mark.parametrize("option", ["Approve", "Reject"])
def test_an_answer_after_the_withdrawal_releases_nothing(ask: Ask, planned: Deployment, option: str) -> None:
    ask(WITHDRAW, "user", "POST", json=BODY, headers=SAME_ORIGIN)
    answers(DAG_ID, DAG_RUN, "olga", option)
    dag_run = SimpleNamespace(dag_id=DAG_ID, run_id=DAG_RUN)
    context: Any = {"run_id": DAG_RUN, "dag_run": dag_run, "params": {}}
    with pytest.raises(RunWithdrawnError, match="withdrawn by a user"):
        ReleaseOperator(task_id="release", planned_run_id=RUN_ID).execute(context)
    with pytest.raises(PlanWithdrawnError, match="withdrawn by a user"):
        ExpirationOutcomeOperator(task_id="outcome", planned_run_id=RUN_ID).execute(context)
    with planned.open() as app:
        assert {item.outcome for item in app.adapters.stores.deletions.items(RUN_ID)} == {DeletionOutcome.SKIPPED}


def test_a_database_that_is_away_is_said(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERING_METADATA__URL", "sqlite:////nowhere/at/all.sqlite")
    assert ask(PAGE).status_code == 503
    assert ask(WITHDRAW, "admin", "POST", json=BODY, headers=SAME_ORIGIN).status_code == 503
