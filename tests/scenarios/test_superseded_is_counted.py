"""Superseded segments may be the archive: the deletion limit counts them, and their objects go only once the copies in
their place are proved."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from include.tiering.cli.app import cli
from include.tiering.model.segments import Verdict
from include.tiering.remote_storage.contract import ObjectKind
from tests.doubles.archive import Archive

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("on_each_database")]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Every segment failed and was copied again, as after a look at a disk that was not mounted."""
    archive = Archive.of(tmp_path)
    archive.copy()
    with archive.open() as app:
        for partition in app.adapters.stores.metadata.partitions():
            for row in app.adapters.stores.metadata.list_segments(partition):
                app.adapters.stores.metadata.record_verdict(row.metadata.remote_log_segment_id, Verdict.FAILED)
    archive.set_default(tiering_superseded_hold_ms=0)
    while archive.copy().partitions:
        pass
    with archive.open() as app:
        for row in _rows(app):
            if row.metadata.is_finished:
                app.adapters.stores.metadata.record_verdict(row.metadata.remote_log_segment_id, Verdict.PASSED)
    return archive


def _rows(app):
    return [
        row
        for partition in app.adapters.stores.metadata.partitions()
        for row in app.adapters.stores.metadata.list_segments(partition)
    ]


def superseded(archive: Archive) -> int:
    with archive.open() as app:
        return sum(row.superseded_by is not None for row in _rows(app))


def lose_the_new_logs(archive: Archive) -> None:
    with archive.open() as app:
        for row in _rows(app):
            if row.metadata.is_finished:
                (log,) = [
                    one for one in app.adapters.storage.stat_log_segment(row.metadata) if one.kind is ObjectKind.LOG
                ]
                (archive.directory / "store" / log.key).unlink()


def test_the_limit_sees_them(archive: Archive) -> None:
    assert superseded(archive) == 10
    archive.set_default(tiering_expiration_min_bytes=0)
    run, result = archive.expire(approved=False)
    assert run.needs_approval
    (action,) = run.limit_report.actions
    assert action.share == pytest.approx(0.5)
    assert action.planned_bytes == action.remote_bytes / 2
    assert result is None
    assert superseded(archive) == 10


def test_they_go_once_the_copies_in_their_place_are_proved(archive: Archive) -> None:
    archive.expire()
    assert superseded(archive) == 0
    archive.require_served()
    archive.require_no_other_objects()


def test_none_goes_while_the_copy_in_its_place_is_not_there(archive: Archive) -> None:
    lose_the_new_logs(archive)
    result = CliRunner().invoke(cli, ["--config", str(archive.config), "expire", "--approve", "--json"])
    assert result.exit_code == 1
    shown = json.loads(result.stdout)
    assert {one["outcome"] for one in shown["decisions"]} == {"skipped"}
    assert {one["error"] for one in shown["decisions"]} == {"UnprovedReplacementError"}
    assert all("has no log in the store" in one["message"] for one in shown["decisions"])
    assert superseded(archive) == 10
    with archive.open() as app:
        old = [row.metadata for row in _rows(app) if row.superseded_by is not None]
        assert all(len(app.adapters.storage.stat_log_segment(one)) == 3 for one in old)
