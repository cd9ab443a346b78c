"""Databases that are rebuilt and restored."""

import json
import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from include.tiering.app import App, open_app
from include.tiering.audit.finding import FindingKind
from include.tiering.cli.app import cli
from include.tiering.cli.command import author
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.copying.plan import HeldBack
from include.tiering.errors import ForeignStoreError, StateConflictError
from include.tiering.expiration.delete_segments import DeleteStep
from include.tiering.model.histories import OffsetRange
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition, Verdict
from include.tiering.runs.deletion_run import DeletionOutcome
from include.tiering.verification.suites import PARTITION_RULES
from include.tiering.verification.verify_partitions import verify_partitions
from include.tiering.verification.verify_segments import verify_segments
from tests.doubles.archive import Archive, settings_of
from tests.doubles.copied_state import fetched
from tests.doubles.plain_evaluator import PlainEvaluator

# An archive with a hole that somebody decided about loses its database. The decision is nowhere in the store;
# without one the quality gate would fail the segment behind the hole, and nothing could ever mend that.

pytestmark = pytest.mark.integration


def test_holes_are_decisions_of_the_rebuild_and_the_archive_goes_on(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    while len(archive.offsets(0)) < 2:
        archive.copy(limit_bytes=1)
    archive.raise_broker_log_start(0, 664)
    with archive.open() as app:
        app.copying.skip_offsets(app.copying.plan_skip("orders", 0), reason="agreed", author="test")
    archive.copy()
    before = archive.remote()

    archive.config.write_text(archive.config.read_text().replace("metadata.sqlite", "new.sqlite"))

    arguments = ["--config", str(archive.config), "rebuild", "--approve", "--json"]
    done = CliRunner().invoke(cli, arguments, prog_name="./tiering")
    report = json.loads(done.stdout)
    holes = {(one["topic"], one["partition"]): one["holes"] for one in report["partitions"] if one["holes"]}
    assert (done.exit_code, holes) == (1, {("orders", 0): [{"first_offset": 188, "last_offset": 663}]})
    with archive.open() as app:
        parts: dict[str, Any] = {"quotas": app.adapters.quotas, "clock": app.adapters.clock}
        assert (
            verify_segments(app.adapters.stores.metadata, app.adapters.storage, PlainEvaluator(), **parts).failed == ()
        )
        evaluator = PlainEvaluator(PARTITION_RULES)
        assert (
            verify_partitions(app.adapters.stores.metadata, evaluator, app.adapters.stores.metadata.partitions()).failed
            == ()
        )
        (partition,) = [one for one in before if one.partition == 0]
        (decision,) = app.adapters.stores.metadata.skipped_offsets(partition)
        assert (decision.offsets, decision.author) == (OffsetRange(188, 663), author())
    assert {partition: [one.start_offset for one in found] for partition, found in archive.remote().items()} == {
        partition: [one.start_offset for one in found] for partition, found in before.items()
    }
    assert archive.copy().partitions == ()
    archive.require_served()
    archive.require_no_other_objects()


# A database is restored from a backup: what was copied since is in the store, and is taken in again.


def test_what_a_backup_has_forgotten_is_adopted_and_not_copied_again(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    database, backup = tmp_path / "metadata.sqlite", tmp_path / "backup.sqlite"
    archive.copy(limit_bytes=1)
    shutil.copy(database, backup)
    archive.copy()
    copied = archive.remote()
    for path in tmp_path.glob("metadata.sqlite*"):
        path.unlink()
    shutil.copy(backup, database)
    assert archive.remote() != copied

    with archive.open() as app:
        with pytest.raises(ForeignStoreError, match="another database has used store"):
            app.recovery.plan_adoption()
        _take_over(app)
        plan = app.recovery.plan_adoption()
        report = app.recovery.adopt(plan, "adopt-1", author="test")
        assert (report.refused, len(report.adopted)) == ((), sum(map(len, copied.values())) - 1)
        verdicts = {
            row.verdict
            for partition in app.adapters.stores.metadata.partitions()
            for row in app.adapters.stores.metadata.list_segments(partition)
        }
        assert verdicts == {Verdict.NONE}
        for segments in archive.remote().values():
            for one in segments:
                assert len(fetched(app, one)) == one.segment_size_bytes
    adopted = archive.remote()
    assert {partition: [one.remote_log_segment_id for one in found] for partition, found in adopted.items()} == {
        partition: [one.remote_log_segment_id for one in found] for partition, found in copied.items()
    }
    assert archive.copy().partitions == ()
    archive.require_served()
    archive.require_no_other_objects()


# The same, and the brokers have deleted meanwhile what the database has forgotten: for its plans that is a hole.


def _with_forgotten_copies(archive: Archive, directory: Path) -> Sequence[RemoteLogSegmentMetadata]:
    """Return all copies of the partition: the database knows the first one, and the broker has the last one alone."""
    database, backup = directory / "metadata.sqlite", directory / "backup.sqlite"
    while len(archive.offsets(PARTITION)) < 1:
        archive.copy(limit_bytes=1)
    _copy(database, backup)
    archive.copy()
    copied = next(found for p, found in archive.remote().items() if p.partition == PARTITION)
    archive.raise_broker_log_start(PARTITION, copied[-1].start_offset)
    _copy(backup, database)
    return copied


def _take_over(app: App) -> None:
    found = app.adapters.unguarded_storage.read_marker()
    assert found is not None
    app.store_owner.take_over(found, author="test")


def test_what_the_store_has_is_not_skipped_before_it_is_adopted(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    copied = _with_forgotten_copies(archive, tmp_path)
    partition = copied[0].remote_log_segment_id.topic_id_partition
    with archive.open() as app:
        _take_over(app)
        app.audit.run("audit-1")
        assert "older-database" in str(app.guards.objection())
        with pytest.raises(StateConflictError, match=r"the store has a complete copy of offsets .*adopt --all"):
            app.copying.plan_skip("orders", PARTITION)
        # The first of them is lost: only what lies before the next one may be skipped, and then the rest is adopted.
        lost = copied[1]
        for path in (tmp_path / "store").rglob(f"*{lost.remote_log_segment_id.id}*"):
            path.unlink()
        planned = app.copying.plan_skip("orders", PARTITION)
        assert planned.hole == OffsetRange(lost.start_offset, lost.end_offset)
        app.copying.skip_offsets(planned, reason="lost", author="test")
        app.recovery.adopt(app.recovery.plan_adoption(), "adopt-1", author="test")
        adopted = app.adapters.stores.metadata.list_segments(partition)
        assert [row.metadata.start_offset for row in adopted] == [
            each.start_offset for each in copied if each is not lost
        ]


def test_what_a_person_leaves_in_the_store_may_be_skipped(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    copied = _with_forgotten_copies(archive, tmp_path)
    with archive.open() as app:
        _take_over(app)
        app.audit.run("audit-1")
        audits = app.adapters.stores.audits
        adoptable = [each.finding_id for each in audits.findings() if each.finding.kind is FindingKind.ADOPTABLE]
        assert adoptable
        audits.accept(adoptable, author="test")
        hole = app.copying.plan_skip("orders", PARTITION).hole
    assert hole == OffsetRange(copied[1].start_offset, copied[-1].start_offset - 1)


def test_an_accepted_finding_about_single_objects_lets_no_complete_copy_be_skipped(tmp_path: Path) -> None:
    """As when the bucket is replicated back, and the manifest comes last: its other objects were orphans until then."""
    archive = Archive.of(tmp_path)
    copied = _with_forgotten_copies(archive, tmp_path)
    segment_id = copied[1].remote_log_segment_id.id
    (manifest,) = (tmp_path / "store").rglob(f"*{segment_id}*manifest")
    with archive.open() as app:
        _take_over(app)
        manifest.rename(tmp_path / "late")
        for path in (tmp_path / "store").rglob(f"*{segment_id}*"):
            os.utime(path, (0, 0))  # Young objects may belong to a copy that has just begun.
        app.audit.run("audit-1")
        audits = app.adapters.stores.audits
        about = [each for each in audits.findings() if each.finding.segment_id == segment_id]
        assert {each.finding.kind for each in about} == {FindingKind.ORPHAN}
        audits.accept([each.finding_id for each in about], author="test")
        (tmp_path / "late").rename(manifest)
        with pytest.raises(StateConflictError, match=f"complete copy .*{segment_id}"):
            app.copying.plan_skip("orders", PARTITION)


# A backup is made after a plan of expiration was approved and before it is carried out: it is of the database that
# planned last, and names as FINISHED what is deleted afterwards.


def test_a_backup_from_between_the_approval_and_the_deletion_is_refused(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    database, backup = tmp_path / "metadata.sqlite", tmp_path / "backup.sqlite"
    archive.copy()
    archive.set(retention_bytes=0)
    with archive.open() as app:
        plan = app.expiration.plan("expire-1")
        app.expiration.apply_limits("expire-1")
        app.expiration.approve("expire-1", plan.plan_hash, author="admin")
        _copy(database, backup)
        assert app.expiration.run_batch("expire-1", "expire-1/0").failed == ()
        assert app.ownership.objection() is None
    assert not any(archive.left().values())
    _copy(backup, database)
    assert sum(map(len, archive.left().values())) == plan.segments
    with archive.open() as app:
        assert "another database has used store" in str(app.ownership.objection())
        with pytest.raises(ForeignStoreError, match="another database has used store"):
            app.expiration.run_batch("expire-1", "expire-1/1")
        with pytest.raises(ForeignStoreError, match="another database has used store"):
            app.copying.plan("copy-2")


def test_a_backup_that_is_restored_under_a_batch_before_it_claims_the_store_keeps_the_group(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    database, backup = tmp_path / "metadata.sqlite", tmp_path / "backup.sqlite"
    archive.copy()
    archive.set(retention_bytes=0)
    restored: list[int] = []

    def observe(step: str, partition: TopicIdPartition, offset: int) -> None:
        if step == DeleteStep.LOG_START:
            _copy(database, backup)
        elif step == DeleteStep.DELETE_STARTED and not restored:
            _copy(backup, database)
            restored.append(partition.partition)

    with open_app(settings_of(archive.config), observe=observe) as app:
        plan = app.expiration.plan("expire-1")
        app.expiration.apply_limits("expire-1")
        app.expiration.approve("expire-1", plan.plan_hash, author="admin")
        assert app.expiration.run_batch("expire-1", "expire-1/0").failed == ()
        assert app.ownership.objection() is None
    left = archive.left()
    assert {number for number, offsets in left.items() if offsets} == set(restored) != set()
    archive.require_served()
    archive.require_no_other_objects()


# A database is set back to the middle of a copy, and the broker has deleted meanwhile what was copied. For the
# restored database the copy was never finished, and its complete objects are all that there is of its offsets.

PARTITION = 1
TWO_DAYS_MS = 2 * 86_400_000


class SetBack:
    """All is copied. The database is that of right before the second segment of a partition became FINISHED."""

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
        if (step, partition.partition) == (CopyStep.RECHECKED, PARTITION):
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
    assert {(one.outcome, one.error) for one in run.items} == {(DeletionOutcome.SKIPPED, "UnprovedReplacementError")}
    assert [
        one
        for one in result.held
        if f"no other copy that passed verification has offsets {world.sent.start_offset}.." in str(one.message)
    ]
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
    assert {one.outcome for one in run.items} == {DeletionOutcome.SKIPPED}
    with world.archive.open() as app:
        assert len(app.adapters.storage.stat_log_segment(world.sent)) == 2
