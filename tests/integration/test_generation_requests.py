"""What the generation of the store costs in requests, counted at a real S3 server: the promise of ADR 49."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from include.tiering.remote_storage import marker
from include.tiering.tasks.copy_one_segment import CopyStep
from include.tiering.wiring import open_tiering
from tests.doubles.marker_requests import counted, s3_deployment
from tests.doubles.planned_run import settings_of
from tests.doubles.s3_server import NO_VERSITYGW, find_versitygw, versitygw_server

pytestmark = pytest.mark.integration

CLOCK = ("HEAD marker", "")
"""An expiration asks for the store's clock besides."""
GET, REPLACE = ("GET marker", ""), ("PUT marker", "if it is the expected one")


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """Set up, and one run was planned: the first one also finds out whether the server heeds conditions."""
    binary = find_versitygw()
    if binary is None:
        pytest.skip(NO_VERSITYGW)
    with versitygw_server(binary, tmp_path / "s3") as server:
        config = s3_deployment(tmp_path, server)
        with open_tiering(settings_of(config)) as tiering:
            tiering.migrate()
            tiering.plan_copy("first", limit_bytes=1)
        yield config


def test_a_plan_costs_one_get_and_one_conditional_put(config: Path) -> None:
    with open_tiering(settings_of(config)) as tiering, counted(tiering) as requests:
        tiering.plan_copy("second")
        assert requests.take() == {GET: 1, REPLACE: 1}
        tiering.plan_expiration("expire")
        assert requests.take() == {GET: 1, REPLACE: 1, CLOCK: 1}


def test_a_segment_costs_one_get_beside_its_three_objects(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the marker was read within the last second, as it is between two segments, nothing is asked before."""
    monkeypatch.setattr(marker, "COPY_TRUST_SECONDS", 3600.0)
    of_each: list[dict[tuple[str, str], int]] = []

    def observe(step: CopyStep, *_segment: object) -> None:
        if step is CopyStep.FINISHED:
            of_each.append(requests.take())

    with open_tiering(settings_of(config), observe=observe) as tiering, counted(tiering) as requests:
        tiering.plan_copy("second")
        requests.take()
        result = tiering.copy_batch("second", "second/0")
    assert len(of_each) == len(result.copied) == 10
    assert result.failed == ()
    first, *others = of_each
    assert first[GET] == 2
    usual = {GET: 1, ("PUT object", ""): 3}
    assert [one for one in others if one != usual] == []


def test_a_plan_that_only_looks_changes_nothing(config: Path) -> None:
    with open_tiering(settings_of(config)) as tiering, counted(tiering) as requests:
        before = tiering.generations.accepted()
        tiering.plan_copy("third", dry_run=True)
        assert requests.take() == {GET: 1}
        assert tiering.generations.accepted() == before
