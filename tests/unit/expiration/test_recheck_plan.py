"""What became of the reasons of a plan while it waited for an approval, over a real deployment."""

from pathlib import Path

import pytest

from include.tiering.runs.deletion_run import PlannedDeletion
from tests.doubles.archive import Archive


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive.of(tmp_path)
    made.copy()
    return made


def _planned(archive: Archive) -> list[PlannedDeletion]:
    with archive.open() as app:
        app.expiration.plan("approved")
        return [
            deletion for planned in app.adapters.stores.deletions.plan("approved") for deletion in planned.deletions
        ]


def _withdrawn(archive: Archive) -> list[PlannedDeletion]:
    with archive.open() as app:
        return list(app.expiration.withdrawn("approved"))


def test_a_plan_stands_while_its_reasons_do(archive: Archive) -> None:
    archive.set(retention_bytes=100_000)
    planned = _planned(archive)
    assert planned
    assert _withdrawn(archive) == []
    archive.set(retention_bytes=0)
    assert _withdrawn(archive) == []


def test_what_would_stay_now_is_named(archive: Archive) -> None:
    archive.set(retention_bytes=0)
    planned = _planned(archive)
    archive.set(retention_bytes=100_000)
    kept = _withdrawn(archive)
    assert 0 < len(kept) < len(planned)
    assert set(kept) < set(planned)
    archive.set(retention_bytes=None)
    assert _withdrawn(archive) == planned


def test_what_another_run_deleted_is_nobodys_loss(archive: Archive) -> None:
    archive.set(retention_bytes=0)
    planned = _planned(archive)
    run, _ = archive.expire()
    assert len(run.items) == len(planned)
    archive.set(retention_bytes=None)
    assert _withdrawn(archive) == []
