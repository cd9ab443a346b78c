"""`expire`: what is deleted once somebody agreed, and in how many batches. Each test has a deployment of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from include.tiering.expiration.delete_segments import DeleteResult
from include.tiering.expiration.service import ExpirationService
from include.tiering.runs.batch import BatchEnd
from include.tiering.sizes.metrics import LOG_SIZE_BYTES
from tests.doubles.recorded_metrics import stored_value
from tests.doubles.tiny_deployment import TinyDeployment


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
