"""`audit --delete-orphans`: what has to hold before anything is removed. Each test has a deployment of its own."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.audit.remove_orphans import RemovalResult
from include.tiering.audit.service import AuditService
from include.tiering.runs.batch import BatchEnd
from tests.doubles.orphans import TWO_DAYS_SECONDS, make_old, plant_orphan, stored_files
from tests.doubles.tiny_deployment import TinyDeployment
from tests.unit.cli.conftest import Run


@pytest.fixture
def deployment(tmp_path: Path) -> TinyDeployment:
    deployment = TinyDeployment(tmp_path)
    deployment.copied(2)
    return deployment


def removal(deployment: TinyDeployment, *flags: str) -> Any:
    return json.loads(deployment.run("audit", "--delete-orphans", "--json", *flags).stdout)["removal"]


def test_nothing_to_remove_is_refused_by_nothing(deployment: TinyDeployment) -> None:
    found = removal(deployment)
    assert (found["removals"], found["refusal"], found["needs_approval"]) == ([], None, False)


def test_nothing_goes_before_somebody_agreed_to_this_plan(deployment: TinyDeployment) -> None:
    orphan = plant_orphan(deployment.store)
    before = stored_files(deployment.store)
    plan = removal(deployment)
    assert plan["refusal"] == f"it needs --approve, or --approve-plan {plan['plan_hash']}"
    assert "and not the approved one" in removal(deployment, "--approve-plan", "f" * 64)["refusal"]
    assert stored_files(deployment.store) == before
    done = removal(deployment, "--approve-plan", plan["plan_hash"])
    assert ([one["outcome"] for one in done["removals"]], done["refusal"]) == (["removed"] * 2, None)
    assert stored_files(deployment.store) == before - set(orphan)


def test_a_guard_that_objects_is_not_overruled_by_an_approval(tmp_path: Path) -> None:
    """The database the database has no segment: whatever is stored looks like an orphan."""
    deployment = TinyDeployment(tmp_path)
    make_old(deployment.plant_log(), TWO_DAYS_SECONDS)
    before = stored_files(deployment.store)
    refused = removal(deployment, "--approve")
    assert "the database has no segment" in refused["refusal"]
    assert refused["removals"] == []
    assert stored_files(deployment.store) == before


@pytest.mark.parametrize("last", [end for end in BatchEnd if end is not BatchEnd.TIME_OVER], ids=lambda end: end.name)
def test_batches_follow_each_other_while_their_time_ends_them(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch, last: BatchEnd
) -> None:
    ends, batches = [BatchEnd.TIME_OVER, BatchEnd.TIME_OVER, last], []

    def remove_batch(_self: Any, run_id: str, batch_id: str, *, parent_alive: Any) -> RemovalResult:
        batches.append((batch_id.removeprefix(run_id), parent_alive()))
        return RemovalResult((), (), 0.0, ends.pop(0))

    monkeypatch.setattr(AuditService, "run_removal_batch", remove_batch)
    plant_orphan(deployment.store)
    deployment.run("audit", "--delete-orphans", "--approve")
    assert (batches, ends) == ([(".0", True), (".1", True), (".2", True)], [])


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--approve",), "go with --delete-orphans"),
        (("--approve-plan", "f" * 64), "go with --delete-orphans"),
        (("--old-versions",), "go with --delete-orphans"),
        (("--delete-orphans", "--approve", "--approve-plan", "f" * 64), "exclude each other"),
        (("--accept", "1", "--delete-orphans"), "--accept excludes"),
        (("--accept", "1", "--inventory", "manifest.json"), "--accept excludes"),
        (("--withdraw", "run-1", "--delete-orphans"), "--withdraw excludes"),
        (("--withdraw", "run-1", "--old-versions"), "--withdraw excludes"),
        (("--withdraw", "run-1", "--approve"), "--withdraw excludes"),
        (("--withdraw", "run-1", "--approve-plan", "f" * 64), "--withdraw excludes"),
        (("--withdraw", "run-1", "--accept", "1"), "--withdraw excludes"),
        (("--withdraw", "run-1", "--inventory", "manifest.json"), "--withdraw excludes"),
    ],
    ids=str,
)
def test_flags_that_contradict_each_other_are_refused(run: Run, flags: tuple[str, ...], says: str) -> None:
    refused = run("audit", *flags)
    assert (refused.exit_code, says in refused.stderr) == (2, True), refused.stderr


def test_a_finding_that_is_accepted_fails_no_audit_any_more(deployment: TinyDeployment) -> None:
    plant_orphan(deployment.store)
    found = deployment.run("audit", "--json")
    findings = json.loads(found.stdout)["findings"]
    assert (found.exit_code, {one["kind"] for one in findings}) == (1, {"orphan"})
    flags = [flag for one in findings for flag in ("--accept", str(one["finding_id"]))]
    accepted = deployment.run("audit", "--json", *flags)
    assert accepted.exit_code == 0
    assert {one["state"] for one in json.loads(accepted.stdout)["accepted"]} == {"accepted"}
    again = deployment.run("audit", "--json")
    assert again.exit_code == 0
    assert {one["state"] for one in json.loads(again.stdout)["findings"]} == {"accepted"}


def test_a_removal_that_is_withdrawn_is_never_carried_out(deployment: TinyDeployment) -> None:
    plant_orphan(deployment.store)
    before = stored_files(deployment.store)
    run_id = removal(deployment)["run_id"]
    done = deployment.run("audit", "--withdraw", run_id, "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["run_id"], document["kept"], document["removed"]) == (0, run_id, 2, 0)
    assert stored_files(deployment.store) == before


@pytest.mark.parametrize(
    ("waiting", "outcome", "code"), [(False, "kept", 1), (True, "kept", 3), (True, "failed", 1)], ids=str
)
def test_the_exit_code_of_a_removal_says_whether_another_try_may_help(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch, waiting: bool, outcome: str, code: int
) -> None:
    plant_orphan(deployment.store)
    one: Any = SimpleNamespace(outcome=outcome, message="why")
    result: Any = SimpleNamespace(items=(one,), waiting=waiting, ended=BatchEnd.NO_WORK)
    monkeypatch.setattr(AuditService, "run_removal_batch", lambda *_, **__: result)
    assert deployment.run("audit", "--delete-orphans", "--approve").exit_code == code
