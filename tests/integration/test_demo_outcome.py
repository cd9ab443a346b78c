"""The demo says that all held only if it did."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from include.tiering.app import App, open_app
from include.tiering.settings import load_settings
from local.outcome import PartitionOutcome, outcomes
from local.sample_data import broker_log_dirs
from tests.doubles.airflow_home import Deployment, deployment
from tests.doubles.broker_data import broker_data

LOG_DIRS = broker_log_dirs(broker_data("public") / "stopped")


@pytest.fixture
def deployed(tmp_path: Path) -> Deployment:
    return deployment(tmp_path, topics='["audit_log"]')


@pytest.fixture
def app(deployed: Deployment) -> Iterator[App]:
    with open_app(load_settings(deployed.config)) as opened:
        opened.copying.plan("r")
        opened.copying.run_batch("r", "b")
        yield opened


def _audit_log(app: App, into: Path) -> list[PartitionOutcome]:
    return [found for found in outcomes(app, LOG_DIRS, into) if found.partition.topic == "audit_log"]


def test_copied_verified_and_read_back_holds(app: App, tmp_path: Path) -> None:
    app.verification.verify_run("r")
    found = _audit_log(app, tmp_path / "back")
    assert [(one.eligible, len(one.rows), one.differences, one.held) for one in found] == [
        (2, 2, (), True),
        (1, 1, (), True),
    ]


def test_a_copy_without_a_verdict_does_not_hold(app: App, tmp_path: Path) -> None:
    assert not any(one.held for one in _audit_log(app, tmp_path / "back"))


def test_an_object_that_changed_after_its_verdict_does_not_hold(app: App, deployed: Deployment, tmp_path: Path) -> None:
    app.verification.verify_run("r")
    damaged = max(deployed.remote.rglob("*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(damaged.read_bytes())
    content[100] ^= 1
    damaged.chmod(0o644)
    damaged.write_bytes(content)
    found = _audit_log(app, tmp_path / "back")
    assert sorted(one.held for one in found) == [False, True]
    assert sum(len(one.differences) for one in found) == 1


def test_a_source_that_differs_from_what_was_copied_does_not_hold(app: App, tmp_path: Path) -> None:
    app.verification.verify_run("r")
    other = dict.fromkeys(LOG_DIRS, tmp_path / "empty")
    for one in _audit_log(app, tmp_path / "first"):
        directory = tmp_path / "empty" / str(one.partition)
        directory.mkdir(parents=True)
        for row in one.rows:
            (directory / f"{row.metadata.start_offset:020d}.log").write_bytes(b"not this")
    found = [one for one in outcomes(app, other, tmp_path / "second") if one.partition.topic == "audit_log"]
    assert [len(one.differences) for one in found] == [2, 1]
