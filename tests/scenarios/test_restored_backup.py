"""A database is restored from a backup: what was copied since is in the store, and is taken in again."""

import shutil
from pathlib import Path

import pytest

from include.tiering.errors import ForeignStoreError
from include.tiering.model.segments import Verdict
from tests.doubles.archive import Archive
from tests.doubles.copied_state import fetched

pytestmark = pytest.mark.integration


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
        found = app.adapters.unguarded_storage.read_marker()
        assert found is not None
        app.store_owner.take_over(found, author="test")
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
