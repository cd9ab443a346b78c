"""The part *Quality and audit* of the page *Tiering*: what it shows, and that its numbers are those of the command."""

import json
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from include.tiering.cli.app import cli
from include.tiering.model.segments import Depth
from plugins.tiering_airflow.web.page import URL_PREFIX
from tests.airflow.conftest import Ask
from tests.airflow.test_needs_web import failed_and_lost, found_by_an_audit
from tests.doubles.airflow_home import Deployment

# Airflow's web application imports a test client.
pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`")

QUALITY: Final = f"{URL_PREFIX}/quality"


def said_by_command(deployed: Deployment) -> Any:
    result = CliRunner().invoke(cli, ["quality", "--json"], env=deployed.environment)
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def test_before_anything_was_counted_it_says_so(ask: Ask, deployed: Deployment) -> None:
    shown = ask(QUALITY).json()
    assert (shown["counted_at_ms"], shown["verdicts"], shown["failed"], shown["audit"]) == (None, [], [], None)
    assert CliRunner().invoke(cli, ["quality"], env=deployed.environment).exit_code == 0


def test_its_numbers_are_those_of_the_command_and_of_the_metrics(ask: Ask, deployed: Deployment) -> None:
    deployed.copied("audit_log", "orders")
    with deployed.open() as app:
        stores = app.adapters.stores
        partition = next(one for one in stores.metadata.partitions() if one.topic == "audit_log")
        first = stores.metadata.list_segments(partition)[0].metadata.remote_log_segment_id
        app.verification.verify_segments({partition: frozenset([first])}, Depth.DEEP)
        segments = sum(size.segments for size in stores.metadata.partition_sizes())
    failed_and_lost(deployed)
    found_by_an_audit(deployed, "a", "b")
    with deployed.open() as app:
        app.verification.publish_verdicts()
    shown, said = ask(QUALITY).json(), said_by_command(deployed)
    assert shown.pop("may")["accept"] is False
    assert shown.pop("as_of_ms") <= said.pop("as_of_ms")
    assert shown == said
    assert sum(cell["segments"] for cell in shown["verdicts"]) == segments
    cells = {(cell["verdict"], cell["depth"], cell["age_days"]): cell["segments"] for cell in shown["verdicts"]}
    assert cells["passed", "deep", "0-1"] == cells["failed", None, "0-1"] == 1
    assert cells["none", None, None] == segments - 2
    with deployed.open() as app:
        (published,) = (
            each for each in app.operations.monitoring.values() if each.metric.name == "tiering_verdict_segments_by_age"
        )
    assert sorted(value for _, value in published.values) == sorted(cells.values())
    (failed,) = shown["failed"]
    assert failed["lost_because"] is not None
    assert {finding["key"] for finding in shown["findings"]} == {"a", "b"}
    assert shown["audit"]["run_id"] == "audit"


def test_who_may_act_is_what_airflow_allows(ask: Ask) -> None:
    assert ask(QUALITY).json()["may"] == {"answer": [], "run": [], "accept": False, "skip": False}
    assert "tiering_audit" in ask(QUALITY, "op").json()["may"]["run"]
