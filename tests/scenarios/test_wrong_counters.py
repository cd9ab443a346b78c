"""A database that somebody wrote to beside the platform, so that its size counters are wrong."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from include.tiering.expiration import plan as planning
from include.tiering.expiration.plan import ExpirationPlan
from include.tiering.model.segments import RemoteLogSegmentState, Uuid
from tests.doubles.archive import Archive

pytestmark = pytest.mark.integration

TOO_HIGH = 1 << 40


def planned(archive: Archive, run_id: str) -> ExpirationPlan:
    with archive.open() as app:
        return app.expiration.plan(run_id)


def deleted_by(plan: ExpirationPlan) -> set[Uuid]:
    return {deletion.segment_id.id for planned in plan.expirations for deletion in planned.deletions}


def add_to_counters(archive: Archive, size_bytes: int) -> None:
    with closing(sqlite3.connect(archive.directory / "metadata.sqlite")) as database, database:
        state = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        database.execute("update size_counters set size_bytes = size_bytes + ? where state = ?", (size_bytes, state))


@pytest.mark.parametrize("wrong_by", [0, 40_000, TOO_HIGH])
def test_a_counter_that_is_too_high_deletes_no_more_than_the_rows_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong_by: int
) -> None:
    """The log has as many bytes as it may, and 40,000 bytes are more than its oldest segment and what is local."""
    monkeypatch.setattr(planning, "_FIRST_READ", 4)
    archive = Archive.of(tmp_path)
    archive.copy()
    segments = next(found for partition, found in archive.remote().items() if partition.partition == 0)
    assert len(segments) > 4
    assert segments[0].segment_size_bytes < 40_000
    archive.set(retention_bytes=sum(one.segment_size_bytes for one in segments))
    assert deleted_by(planned(archive, "right")) == set()
    add_to_counters(archive, wrong_by)
    assert deleted_by(planned(archive, "wrong")) == set()


def test_a_row_that_somebody_deleted_counts_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest segment would go by size, if the newest one were still there."""
    monkeypatch.setattr(planning, "_FIRST_READ", 4)
    archive = Archive.of(tmp_path)
    archive.copy()
    segments = next(found for partition, found in archive.remote().items() if partition.partition == 0)
    oldest, *_, newest = segments
    archive.set(retention_bytes=sum(one.segment_size_bytes for one in segments) - oldest.segment_size_bytes)
    assert oldest.remote_log_segment_id.id in deleted_by(planned(archive, "all"))
    with closing(sqlite3.connect(archive.directory / "metadata.sqlite")) as database, database:
        database.execute("pragma foreign_keys = on")
        database.execute("delete from segments where segment_id = ?", (str(newest.remote_log_segment_id.id),))
    assert deleted_by(planned(archive, "one is missing")) == set()


@pytest.mark.parametrize("wrong_by", [0, TOO_HIGH])
def test_a_counter_that_is_too_high_hides_no_large_share(tmp_path: Path, wrong_by: int) -> None:
    """Beside a counter of a terabyte a run that deletes nearly everything would be a share of nothing."""
    archive = Archive.of(tmp_path)
    archive.copy()
    archive.set_default(tiering_expiration_min_bytes=0)
    archive.set(retention_bytes=25_000)
    add_to_counters(archive, wrong_by)
    with archive.open() as app:
        assert app.expiration.plan("run").segments
        report = app.expiration.apply_limits("run")
    assert report.needs_approval
    assert all(0.2 < action.share <= 1 for action in report.actions)


@pytest.mark.parametrize("wrong_by", [0, 5])
def test_a_counter_that_is_too_high_hides_no_topic_that_loses_everything(tmp_path: Path, wrong_by: int) -> None:
    archive = Archive.of(tmp_path)
    archive.copy()
    with archive.open() as app, app.adapters.engine.connect() as connection:
        before = connection.execute(sa.text("select count(*) from segments where state = 1")).scalar_one()
    archive.set(retention_ms=1)
    with closing(sqlite3.connect(archive.directory / "metadata.sqlite")) as database, database:
        state = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        database.execute("update size_counters set segments = segments + ? where state = ?", (wrong_by, state))
    with archive.open() as app:
        assert app.expiration.plan("run").segments == before
        (action,) = app.expiration.apply_limits("run").actions
    assert action.loses_everything
