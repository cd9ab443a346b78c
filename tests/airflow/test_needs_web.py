"""The part *Needs you* of the page *Tiering*: what it shows, who decides there, and under whose name."""

import json
from typing import Any, Final

import pytest
from sqlalchemy import event, select, update
from typer.testing import CliRunner

from include.tiering.audit.finding import AuditFinding, FindingKind
from include.tiering.audit.record import AuditRecord, AuditSource, Guard, Refusal
from include.tiering.cli.app import cli
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.database.schema import events, segments
from include.tiering.model.segments import Verdict
from plugins.tiering_airflow.web.page import URL_PREFIX
from tests.airflow.conftest import Ask
from tests.doubles.airflow_home import Deployment

# Airflow's web application imports a test client.
pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`")

ATTENTION: Final = f"{URL_PREFIX}/attention"
ACCEPT: Final = f"{URL_PREFIX}/accept"
SKIP: Final = f"{URL_PREFIX}/skip"
SAME_ORIGIN: Final = {"Origin": "http://airflow", "Sec-Fetch-Site": "same-origin"}
MARKUP: Final = "<img src=x onerror=alert(1)>"
ROLES: Final = [("nobody", 401), (None, 403), ("viewer", 403), ("user", 200), ("op", 200), ("admin", 200)]


def asked_about(deployed: Deployment, topic: str = "audit_log") -> str:
    """Let a plan that deletes all of a topic wait for an answer; return the id of its run."""
    deployed.copied(topic)
    entity = ConfigEntity(EntityType.TOPICS, topic)
    with deployed.open() as app:
        app.configs.alter(entity, {"retention.bytes": "1073741824"}, author="olga")
        app.configs.alter(entity, {"retention.bytes": "0"}, author="otto")
        plan = app.expiration.plan("expire-manual__1")
        questions = app.adapters.stores.plan_questions
        asked_in = "tiering_expiration manual__1"
        questions.put(asked_in, subject=plan.run_id, plan_hash=plan.plan_hash, headline=MARKUP, body="All.")
        questions.show(asked_in)
    return plan.run_id


def found_by_an_audit(deployed: Deployment, *keys: str) -> list[int]:
    """Record an audit that saw an orphan under each of these keys; return the ids of its findings."""
    with deployed.open() as app:
        audits = app.adapters.stores.audits
        now_ms = audits.now_ms()
        seen = [AuditFinding(kind=FindingKind.ORPHAN, key=key, message=MARKUP, size_bytes=7) for key in keys]
        audits.record(
            AuditRecord("audit", AuditSource.LISTING, now_ms, now_ms, 7, 5), seen, covers=frozenset(FindingKind)
        )
        return [recorded.finding_id for recorded in audits.findings()]


def failed_and_lost(deployed: Deployment, topic: str = "orders") -> dict[str, Any]:
    """Let the first segment of a topic fail its verification, while its source does not have it any more."""
    deployed.copied(topic, run_id="copy of what fails")
    with deployed.open() as app:
        stores = app.adapters.stores
        partition = next(one for one in stores.metadata.partitions() if one.topic == topic)
        first = stores.metadata.list_segments(partition)[0].metadata
        # No source has a segment that ends where this one does.
        with app.adapters.engine.begin() as connection:
            own = segments.c.segment_id == str(first.remote_log_segment_id.id)
            connection.execute(
                update(segments).where(own).values(source_fingerprint=None, end_offset=first.end_offset - 1)
            )
        stores.metadata.record_verdict(first.remote_log_segment_id, Verdict.FAILED, detail=MARKUP)
        app.copying.plan("after the failure")
        (failed,) = stores.failed_copies.all()
    assert failed.lost_because is not None
    return {"topic": topic, "topic_id": str(partition.topic_id), "partition": partition.partition}


def said_by_command(deployed: Deployment) -> Any:
    result = CliRunner().invoke(cli, ["attention", "--json"], env=deployed.environment)
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def authors(deployed: Deployment, kind: str) -> list[str]:
    with deployed.open() as app, app.adapters.engine.connect() as connection:
        return list(connection.execute(select(events.c.author).where(events.c.kind == kind)).scalars())


def test_an_empty_platform_needs_nobody(ask: Ask, deployed: Deployment) -> None:
    shown = ask(ATTENTION).json()
    assert (shown["total"], shown["approvals"], shown["failed"], shown["findings"]) == (0, [], [], [])
    assert (shown["held"], shown["handovers"]) == ([], [])
    assert CliRunner().invoke(cli, ["attention"], env=deployed.environment).exit_code == 0


def test_it_shows_what_the_command_shows_with_who_cut_the_retention(ask: Ask, deployed: Deployment) -> None:
    run_id = asked_about(deployed)
    failed_and_lost(deployed)
    found_by_an_audit(deployed, MARKUP)
    shown, said = ask(ATTENTION).json(), said_by_command(deployed)
    assert shown.pop("may") == {"answer": [], "run": [], "accept": False, "skip": False}
    assert shown.pop("as_of_ms") <= said.pop("as_of_ms")
    assert shown == said
    (approval,), (failed,), (finding,) = shown["approvals"], shown["failed"], shown["findings"]
    assert (approval["dag_id"], approval["dag_run_id"]) == ("tiering_expiration", "manual__1")
    assert (approval["run_id"], approval["headline"]) == (run_id, MARKUP)
    (topic,) = approval["topics"]
    with deployed.open() as app:
        plan = app.adapters.stores.deletions.plan(run_id)
        total = next(each for each in app.operations.topic_list.all() if each.total.topic == "audit_log").total
    assert topic["segments"] == sum(len(planned.deletions) for planned in plan) == total.segments
    assert (topic["partitions"], topic["bytes"]) == (len(plan), total.finished_bytes)
    assert topic["oldest_ms"] <= topic["newest_ms"]
    assert [(cut["author"], cut["old_value"], cut["new_value"]) for cut in topic["cuts"]] == [("otto", 1 << 30, 0)]
    assert (failed["topic"], failed["detail"]) == ("orders", MARKUP)
    assert failed["runbook"].endswith("#a-failed-segment-is-lost")
    assert (finding["key"], finding["bytes"], finding["advice"]) == (MARKUP, 7, "./tiering audit --delete-orphans")
    assert shown["total"] == 3 + len(shown["held"])


def test_a_database_that_was_set_back_needs_a_person(ask: Ask, deployed: Deployment) -> None:
    with deployed.open() as app:
        audits = app.adapters.stores.audits
        now_ms = audits.now_ms()
        refusals = (Refusal(Guard.OLDER_DATABASE, "it was set back", 1),)
        audits.record(AuditRecord("audit", AuditSource.LISTING, now_ms, now_ms, 7, 5, refusals), (), covers=())
    shown, said = ask(ATTENTION).json(), said_by_command(deployed)
    assert shown["guards"] == said["guards"]
    (guard,) = shown["guards"]
    assert (shown["total"], guard["guard"], "it was set back" in guard["message"]) == (1, "older-database", True)
    assert guard["runbook"].endswith("#guards")


def test_each_entry_of_the_runbook_exists() -> None:
    from include.tiering.operations import attention, quality
    from tests.doubles.source_tree import ROOT

    text = (ROOT / "docs" / "runbook.md").read_text()
    heads = {line.lstrip("# ").lower().replace(" ", "-") for line in text.splitlines() if line.startswith("#")}
    names = {**vars(attention), **vars(quality)}
    entries = [value for name, value in names.items() if name.endswith("_ENTRY")]
    assert len(entries) == 8
    assert {entry.partition("#")[2] for entry in entries} <= heads


def test_what_a_user_may_do_is_what_airflow_allows(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {
        "answer": ["tiering_expiration", "tiering_audit", "tiering_handover"],
        "run": ["tiering_quality", "tiering_copy", "tiering_handover", "tiering_audit"],
        "accept": True,
        "skip": True,
    }
    for role in ("user", "op", "admin"):
        assert ask(ATTENTION, role).json()["may"] == everything
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVERS", "a op")
    assert ask(ATTENTION, "admin").json()["may"] == {**everything, "answer": []}
    assert ask(ATTENTION, "op").json()["may"] == everything


def test_it_takes_at_most_ten_statements(deployed: Deployment) -> None:
    asked_about(deployed)
    failed_and_lost(deployed)
    found_by_an_audit(deployed, "a", "b")
    statements: list[str] = []
    with deployed.open() as app:
        app.operations.attention.now()
        event.listen(app.adapters.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
        app.operations.attention.now()
    reads = [statement for statement in statements if statement.startswith("SELECT")]
    assert 0 < len(reads) <= 10, reads


@pytest.mark.parametrize(("role", "status"), ROLES)
def test_who_may_edit_the_dag_accepts_a_finding_by_name(
    ask: Ask, deployed: Deployment, role: str | None, status: int
) -> None:
    finding_ids = found_by_an_audit(deployed, "orphan.log")
    answer = ask(ACCEPT, role, "POST", json={"finding_ids": finding_ids}, headers=SAME_ORIGIN)
    assert answer.status_code == status
    assert authors(deployed, "audit finding accepted") == ([f"a {role} (page Tiering)"] if status == 200 else [])
    if status == 200:
        assert ask(ATTENTION, role).json()["findings"] == []
        assert answer.json()["accepted"][0]["key"] == "orphan.log"


@pytest.mark.parametrize(("role", "status"), ROLES)
def test_who_may_edit_the_dag_skips_what_is_lost_by_name_after_the_question(
    ask: Ask, deployed: Deployment, role: str | None, status: int
) -> None:
    wanted = {**failed_and_lost(deployed), "reason": "agreed in OPS-12", "confirm": None}
    asked = ask(SKIP, role, "POST", json=wanted, headers=SAME_ORIGIN)
    assert asked.status_code == status
    with deployed.open() as app:
        assert [copy.given_up for copy in app.adapters.stores.failed_copies.all()] == [False]
    if status != 200:
        return
    question = asked.json()
    assert "will be missing" in question["question"]
    assert question["recorded"] == []
    other = ask(SKIP, role, "POST", json={**wanted, "confirm": "0" * 64}, headers=SAME_ORIGIN).json()
    assert (other["question"], other["recorded"]) == (question["question"], [])
    done = ask(SKIP, role, "POST", json={**wanted, "confirm": question["confirm"]}, headers=SAME_ORIGIN).json()
    assert (done["question"], len(done["recorded"])) == (None, 1)
    with deployed.open() as app:
        assert [copy.given_up for copy in app.adapters.stores.failed_copies.all()] == [True]
        (decision,) = app.adapters.stores.metadata.skipped_offsets(app.adapters.stores.metadata.partitions()[0])
    assert (decision.author, decision.reason) == (f"a {role} (page Tiering)", "agreed in OPS-12")


@pytest.mark.parametrize("path", [ACCEPT, SKIP])
@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"finding_ids": []},
        {"finding_ids": [0]},
        {"finding_ids": [True]},
        {"finding_ids": ["1"]},
        {"finding_ids": list(range(1, 202))},
        {"finding_ids": [1], "more": 1},
        {"topic": "orders", "topic_id": None, "partition": 0, "reason": " ", "confirm": None},
        {"topic": "a/b", "topic_id": None, "partition": 0, "reason": "x", "confirm": None},
        {"topic": "orders", "topic_id": None, "partition": -1, "reason": "x", "confirm": None},
        {"topic": "orders", "topic_id": None, "partition": "0", "reason": "x", "confirm": None},
        {"topic": "orders", "topic_id": 7, "partition": 0, "reason": "x", "confirm": None},
        {"topic": "orders", "topic_id": None, "partition": 0, "reason": "x" * 5_000, "confirm": None},
    ],
)
def test_what_is_no_decision_changes_nothing(ask: Ask, deployed: Deployment, path: str, body: Any) -> None:
    answer = ask(path, "admin", "POST", json=body, headers=SAME_ORIGIN)
    assert (answer.status_code, list(answer.json())) == (400, ["detail"])
    assert authors(deployed, "audit finding accepted") == []


def test_a_finding_that_is_not_open_is_a_conflict(ask: Ask, deployed: Deployment) -> None:
    answer = ask(ACCEPT, "admin", "POST", json={"finding_ids": [7]}, headers=SAME_ORIGIN)
    assert (answer.status_code, "finding 7 is unknown" in answer.json()["detail"]) == (409, True)


def test_a_partition_that_no_log_dir_shows_is_not_skipped(ask: Ask, deployed: Deployment) -> None:
    wanted = {"topic": "nowhere", "topic_id": None, "partition": 0, "reason": "x", "confirm": None}
    answer = ask(SKIP, "admin", "POST", json=wanted, headers=SAME_ORIGIN)
    assert (answer.status_code, "nowhere-0" in answer.json()["detail"]) == (400, True)
