"""What the generation of the store costs in requests, counted at a real S3 server: the promise of ADR 49."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from include.tiering.app import open_app
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.remote_storage import segment_storage
from tests.doubles.archive import settings_of
from tests.doubles.marker_requests import counted, s3_deployment
from tests.doubles.s3_server import versitygw_or_skip

pytestmark = pytest.mark.integration

CLOCK = ("HEAD marker", "")
"""An expiration asks for the store's clock besides."""
GET, REPLACE = ("GET marker", ""), ("PUT marker", "if it is the expected one")


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """Set up, and one run was planned: the first one also finds out whether the server heeds conditions."""
    with versitygw_or_skip(tmp_path / "s3") as server:
        config = s3_deployment(tmp_path, server)
        with open_app(settings_of(config)) as app:
            app.set_up.migrate()
            app.copying.plan("first", limit_bytes=1)
        yield config


def test_a_plan_costs_one_get_and_one_conditional_put(config: Path) -> None:
    with open_app(settings_of(config)) as app, counted(app) as requests:
        app.copying.plan("second")
        assert requests.take() == {GET: 1, REPLACE: 1}
        app.expiration.plan("expire")
        assert requests.take() == {GET: 1, REPLACE: 1, CLOCK: 1}


def test_a_segment_costs_one_get_beside_its_three_objects(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the marker was read within the last second, as it is between two segments, nothing is asked before."""
    monkeypatch.setattr(segment_storage, "COPY_TRUST_SECONDS", 3600.0)
    of_each: list[dict[tuple[str, str], int]] = []

    def observe(step: CopyStep, *_segment: object) -> None:
        if step is CopyStep.FINISHED:
            of_each.append(requests.take())

    one_at_a_time = {"TIERING_COPIER__MAX__TRANSFERS": "1"}
    with open_app(settings_of(config, one_at_a_time), observe=observe) as app, counted(app) as requests:
        app.copying.plan("second")
        requests.take()
        result = app.copying.run_batch("second", "second/0")
    assert len(of_each) == len(result.copied) == 10
    assert result.failed == ()
    first, *others = of_each
    assert first[GET] == 2
    usual = {GET: 1, ("PUT object", ""): 3}
    assert [one for one in others if one != usual] == []


def test_a_plan_that_only_looks_changes_nothing(config: Path) -> None:
    with open_app(settings_of(config)) as app, counted(app) as requests:
        before = app.adapters.stores.generations.accepted()
        app.copying.plan("third", dry_run=True)
        assert requests.take() == {GET: 1}
        assert app.adapters.stores.generations.accepted() == before
