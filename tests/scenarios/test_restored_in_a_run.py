"""A database is set back to the middle of a copy, and the broker has deleted meanwhile what was copied.

For the restored database the copy was never finished, and its complete objects are all that there is of its offsets.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from include.tiering.app import open_app
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.copying.plan import HeldBack
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.runs.deletion_run import DeletionOutcome
from tests.doubles.archive import Archive
from tests.doubles.planned_run import settings_of

pytestmark = pytest.mark.integration

PARTITION = 1
TWO_DAYS_MS = 2 * 86_400_000


class SetBack:
    """All is copied. The database is that of when the second segment of a partition had been sent."""

    def __init__(self, directory: Path) -> None:
        self.archive = Archive.of(directory)
        self._database, self._backup = directory / "metadata.sqlite", directory / "backup.sqlite"
        self._seen: list[int] = []
        with open_app(settings_of(self.archive.config), observe=self._observe) as app:
            app.copying.plan("first")
            assert app.copying.run_batch("first", "first/0").failed == ()
        _, self.sent, self.following, *_ = self.segments()
        assert self.sent.start_offset == self._seen[1]

    def _observe(self, step: CopyStep, partition: TopicIdPartition, base_offset: int) -> None:
        if (step, partition.partition) == (CopyStep.SENT, PARTITION):
            self._seen.append(base_offset)
            if len(self._seen) == 2:
                _copy(self._database, self._backup)

    def segments(self) -> list[RemoteLogSegmentMetadata]:
        return next(found for p, found in self.archive.remote().items() if p.partition == PARTITION)

    def broker_deletes_it(self) -> None:
        self.archive.raise_broker_log_start(PARTITION, self.following.start_offset)

    def restore(self) -> None:
        """Two days later, so that an expiration takes it for abandoned."""
        _copy(self._backup, self._database)
        self.sql("update segments set event_timestamp_ms = event_timestamp_ms - ?", TWO_DAYS_MS)
        self.sql("update leases set expires_at_ms = expires_at_ms - ?", TWO_DAYS_MS)
        assert len(self.segments()) == 1

    def sql(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self._database)) as database, database:
            database.execute(statement, values)

    def is_stored(self) -> bool:
        with self.archive.open() as app:
            return len(app.adapters.storage.stat_log_segment(self.sent)) == 3


@pytest.fixture
def world(tmp_path: Path) -> SetBack:
    return SetBack(tmp_path)


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
        read.backup(written)


def test_the_copy_is_finished_where_the_broker_has_nothing_any_more(world: SetBack) -> None:
    world.broker_deletes_it()
    world.restore()
    world.archive.copy()
    assert world.segments()[1].remote_log_segment_id == world.sent.remote_log_segment_id
    world.archive.copy()
    assert [one.start_offset for one in world.segments()[1:3]] == [
        world.sent.start_offset,
        world.following.start_offset,
    ]
    world.archive.require_served()


def test_the_copy_is_finished_and_not_sent_again_where_the_broker_still_has_it(world: SetBack) -> None:
    world.restore()
    world.archive.copy()
    assert world.segments()[1].remote_log_segment_id == world.sent.remote_log_segment_id
    world.archive.require_served()


def test_an_expiration_keeps_the_only_copy(world: SetBack) -> None:
    world.broker_deletes_it()
    world.restore()
    run, result = world.archive.expire()
    assert world.is_stored()
    assert result is not None
    assert [(one.outcome, one.error) for one in run.items] == [(DeletionOutcome.SKIPPED, "UnprovedReplacementError")]
    (held,) = result.held
    assert f"no other that passed verification has offsets {world.sent.start_offset}.." in str(held.message)
    world.archive.copy()
    assert world.segments()[1].remote_log_segment_id == world.sent.remote_log_segment_id


def test_parts_stay_where_the_broker_has_nothing_any_more(world: SetBack) -> None:
    """Its manifest is lost as well. What is left of it may be wanted by somebody; a hole is decided by a person."""
    world.broker_deletes_it()
    world.restore()
    (manifest,) = (world.archive.directory / "store").rglob(f"*{world.sent.remote_log_segment_id.id}*manifest*")
    manifest.unlink()
    plan = world.archive.copy()
    assert HeldBack.HOLE in [one.reason for one in plan.held_back]
    run, _ = world.archive.expire()
    assert [one.outcome for one in run.items] == [DeletionOutcome.SKIPPED]
    with world.archive.open() as app:
        assert len(app.adapters.storage.stat_log_segment(world.sent)) == 2
