"""`expire`: what is deleted once somebody agreed, and in how many batches. Each test has a deployment of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from include.tiering.expiration.delete_segments import DeleteResult, FailedDeletion
from include.tiering.expiration.service import ExpirationService
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.deletion_run import DeletionItem, DeletionOutcome
from include.tiering.sizes.metrics import LOG_SIZE_BYTES
from tests.doubles.recorded_metrics import stored_value
from tests.doubles.segments import FINISHED, partition_of, planned_deletion, segment_of
from tests.doubles.tiny_deployment import TinyDeployment
from tests.unit.cli.conftest import Run


@pytest.fixture
def deployment(tmp_path: Path) -> TinyDeployment:
    """All that is remote expires."""
    deployment = TinyDeployment(tmp_path)
    deployment.copied(3)
    deployment.set(retention_ms="1000")
    return deployment


def expire(deployment: TinyDeployment, *flags: str) -> Any:
    return json.loads(deployment.run("expire", "--json", *flags).stdout)


def test_what_expires_goes_once_somebody_agreed(deployment: TinyDeployment) -> None:
    plan = expire(deployment, "--dry-run")
    assert [one["outcome"] for one in plan["decisions"]] == ["planned"] * 3
    refused = expire(deployment)
    assert refused["refusal"].startswith("without a terminal it needs --approve, or --approve-plan ")
    assert "and not the approved one" in expire(deployment, "--approve-plan", "f" * 64)["refusal"]
    done = expire(deployment, "--approve")
    assert [one["outcome"] for one in done["decisions"]] == ["deleted"] * 3
    assert (done["bytes"], done["deleted_bytes"], done["refusal"]) == (1_500, 1_500, None)
    assert expire(deployment, "--approve")["decisions"] == []


@pytest.mark.parametrize(
    "flags", [("--dry-run",), (), ("--approve-plan", "f" * 64)], ids=["dry run", "refused", "other"]
)
def test_what_nobody_agreed_to_does_not_wait_to_be_deleted(deployment: TinyDeployment, flags: tuple[str, ...]) -> None:
    expire(deployment, *flags)
    assert json.loads(deployment.run("sizes", "--json").stdout)["delete_lag"] == []


@pytest.mark.parametrize("flags", [("--dry-run",), ()], ids=["dry run", "refused"])
def test_every_plan_publishes_the_sizes(deployment: TinyDeployment, flags: tuple[str, ...]) -> None:
    with deployment.open() as app:
        app.adapters.recorder.show(LOG_SIZE_BYTES, {("orders",): 0})
    expire(deployment, *flags)
    with deployment.open() as app:
        assert stored_value(app.adapters.metrics_writer.series, "RemoteLogSizeBytes", {"topic": "orders"}) == 1_500


@pytest.mark.parametrize("last", [end for end in BatchEnd if end is not BatchEnd.TIME_OVER], ids=lambda end: end.name)
def test_batches_follow_each_other_while_their_time_ends_them(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch, last: BatchEnd
) -> None:
    ends, batches = [BatchEnd.TIME_OVER, BatchEnd.TIME_OVER, last], []

    def delete_batch(_self: Any, run_id: str, batch_id: str, *, parent_alive: Any) -> DeleteResult:
        batches.append((batch_id.removeprefix(run_id), parent_alive()))
        return DeleteResult((), (), 0.0, ends.pop(0))

    monkeypatch.setattr(ExpirationService, "run_batch", delete_batch)
    deployment.run("expire", "--approve")
    assert (batches, ends) == ([(".0", True), (".1", True), (".2", True)], [])


@pytest.mark.parametrize(
    "flags",
    [
        ("--dry-run", "--approve"),
        ("--approve", "--approve-plan", "f" * 64),
        ("--dry-run", "--withdraw", "run-1"),
        ("--withdraw", "run-1", "--topic", "orders"),
    ],
    ids=" ".join,
)
def test_flags_that_contradict_each_other_are_refused(run: Run, flags: tuple[str, ...]) -> None:
    refused = run("expire", *flags)
    assert (refused.exit_code, "--withdraw" in refused.stderr) == (2, True)


def test_a_plan_that_is_withdrawn_is_never_carried_out(deployment: TinyDeployment) -> None:
    run_id = expire(deployment)["run_id"]
    done = deployment.run("expire", "--withdraw", run_id, "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["run_id"]) == (0, run_id)
    assert (document["kept"], document["kept_bytes"], document["deleted"]) == (3, 1_500, 0)
    assert "@" in document["withdrawn_by"]


ONE = DeletionItem(planned_deletion(segment_of(partition_of(), 1, 0, 9, state=FINISHED)), DeletionOutcome.PLANNED)


@pytest.mark.parametrize(
    ("retriable", "code"), [((), 0), ((True,), 3), ((True, True), 3), ((True, False), 1), ((False,), 1)], ids=str
)
def test_the_exit_code_says_whether_another_try_may_help(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch, retriable: tuple[bool, ...], code: int
) -> None:
    failed = tuple(FailedDeletion(ONE, each) for each in retriable)
    result = DeleteResult((), failed, 0.0, BatchEnd.NO_WORK)
    monkeypatch.setattr(ExpirationService, "run_batch", lambda *_, **__: result)
    assert deployment.run("expire", "--approve").exit_code == code


def truncated(deployment: TinyDeployment, before_offset: int, *flags: str) -> tuple[int, Any]:
    where = ("orders", "--partition", "0", "--before-offset", str(before_offset))
    done = deployment.run("delete-records", *where, "--json", *flags)
    return done.exit_code, json.loads(done.stdout) if done.stdout else None


def test_the_beginning_of_an_archive_goes_once_somebody_agreed(deployment: TinyDeployment) -> None:
    code, refused = truncated(deployment, 30)
    assert (code, refused["refusal"]) == (1, "without a terminal it needs --approve")
    code, done = truncated(deployment, 30, "--approve")
    assert (code, done["from"], done["to"], done["segments"], done["refusal"]) == (0, 0, 30, 2, None)
    # It is there already: there is nothing to agree to.
    code, again = truncated(deployment, 25)
    assert (code, again["from"], again["to"], again["refusal"]) == (0, 30, 30, None)


def test_what_another_retention_would_delete_is_shown_and_nothing_is_changed(deployment: TinyDeployment) -> None:
    shown = deployment.run("retention", "orders", "--retention-ms", "-1", "--retention-bytes", "600", "--json")
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["topic"] == "orders"
    assert [one["outcome"] for one in expire(deployment, "--dry-run")["decisions"]] == ["planned"] * 3
