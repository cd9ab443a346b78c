"""An audit has seen that the database was set back: nothing expires until an audit says that all is known again."""

import shutil
from pathlib import Path

import pytest

from include.tiering.audit.plan_removals import RemovalOutcome
from include.tiering.audit.record import AuditRecord, AuditSource, Guard, Refusal
from include.tiering.errors import DatabaseSetBackError, TieringError
from include.tiering.expiration.delete_segments import DeleteStep
from include.tiering.runs.deletion_run import DeletionOutcome
from tests.doubles.archive import Archive, Command, document
from tests.doubles.orphans import plant_orphan, stored_files

pytestmark = pytest.mark.integration

SENTENCE = "guard older-database"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Its database was restored from a backup, with the retention of that time, and owns the store."""
    archive = Archive.of(tmp_path)
    archive.copy(limit_bytes=250_000)
    archive.set(retention_bytes=0)
    shutil.copy(tmp_path / "metadata.sqlite", tmp_path / "backup.sqlite")
    archive.set(retention_bytes=None)
    archive.copy()
    for file in tmp_path.glob("metadata.sqlite*"):
        file.unlink()
    shutil.copy(tmp_path / "backup.sqlite", tmp_path / "metadata.sqlite")
    return archive


def test_nothing_expires_until_an_audit_has_cleared_it(archive: Archive, app: Command, store: Path) -> None:
    document(app("take-over-store", "--nothing-published", "--approve", "--json"))
    before = stored_files(store)
    refused = app("expire", "--approve")
    assert refused.exit_code == 1
    assert all(word in refused.output for word in (SENTENCE, "since 20", "./tiering audit", "take-over-store"))
    assert "The database was restored from a backup" in refused.output
    assert stored_files(store) == before

    shown = document(app("expire", "--dry-run", "--json"), 1)
    assert shown["decisions"]
    assert SENTENCE in shown["refusal"]
    assert SENTENCE in app("expire", "--dry-run").output

    document(app("adopt", "--all", "--approve", "--json"))
    assert app("expire", "--approve").exit_code == 1
    document(app("audit", "--json"))
    assert app("expire", "--approve").exit_code == 0
    assert stored_files(store) < before


def test_it_stays_though_newer_segments_are_known_by_now(archive: Archive, app: Command, store: Path) -> None:
    """A restored database that copies on has newer rows than what it lost; it lost it all the same."""
    document(app("take-over-store", "--nothing-published", "--approve", "--json"))
    archive.copy()
    before = stored_files(store)
    found = document(app("audit", "--json"), 1)
    assert [one["guard"] for one in found["refusals"]] == ["older-database"]
    assert SENTENCE in app("expire", "--approve").output
    assert stored_files(store) == before

    plant_orphan(store)
    removal = document(app("audit", "--delete-orphans", "--approve", "--json"), 1)["removal"]
    assert (removal["removals"], "restored from a backup?" in removal["refusal"]) == ([], True)

    open_ones = [one["finding_id"] for one in found["findings"] if one["kind"] in ("adoptable", "duplicate")]
    assert open_ones
    app("audit", *[flag for number in open_ones for flag in ("--accept", str(number))])
    assert document(app("audit", "--json"), 1)["refusals"] == []
    assert app("expire", "--approve").exit_code == 0


def test_what_was_released_before_is_not_carried_out(archive: Archive, app: Command, store: Path) -> None:
    with archive.open() as opened:
        found = opened.adapters.unguarded_storage.read_marker()
        assert found is not None
        opened.store_owner.take_over(found, author="test", nothing_published=True)
        plan = opened.expiration.plan("released")
        opened.expiration.apply_limits("released")
        opened.expiration.approve("released", plan.plan_hash, author="test")
        opened.expiration.plan("planned")
        before = stored_files(store)
        opened.audit.run("one")
        for refused in (
            lambda: opened.expiration.run_batch("released", "released/0"),
            lambda: opened.expiration.apply_limits("planned"),
            lambda: opened.expiration.approve("planned", plan.plan_hash, author="test"),
            lambda: opened.expiration.plan("another"),
        ):
            with pytest.raises(TieringError, match=SENTENCE):
                refused()
        assert not opened.adapters.stores.deletions.run("planned").is_released
    assert stored_files(store) == before


def test_a_batch_at_work_stops_before_its_next_group(archive: Archive) -> None:
    """The audit looked before the batch began, and ends while it deletes."""
    audited: list[str] = []
    with archive.open() as opened:

        def audit(step: object, *_: object) -> None:
            if step is DeleteStep.RECORDED and not audited:
                audited.append("one")
                refusal = Refusal(Guard.OLDER_DATABASE, "a copy is younger than all that is remembered", 1)
                now_ms = opened.adapters.stores.audits.now_ms()
                record = AuditRecord("one", AuditSource.LISTING, now_ms, now_ms, 1, 1, (refusal,))
                opened.adapters.stores.audits.record(record, [], covers=())

        opened.adapters.observe = audit
        found = opened.adapters.unguarded_storage.read_marker()
        assert found is not None
        opened.store_owner.take_over(found, author="test", nothing_published=True)
        plan = opened.expiration.plan("run")
        opened.expiration.apply_limits("run")
        opened.expiration.approve("run", plan.plan_hash, author="test")
        with pytest.raises(TieringError, match=SENTENCE):
            opened.expiration.run_batch("run", "run/0")
        outcomes = [item.outcome for item in opened.adapters.stores.deletions.items("run")]
    assert {DeletionOutcome.DELETED, DeletionOutcome.PLANNED} == set(outcomes)


def test_what_was_planned_before_is_not_removed(archive: Archive, app: Command, store: Path) -> None:
    """Removals of orphan objects were planned, and one of these plans approved, before an audit raised the guard."""
    document(app("take-over-store", "--nothing-published", "--approve", "--json"))
    document(app("adopt", "--all", "--approve", "--json"))
    plant_orphan(store)
    before = stored_files(store)
    with archive.open() as opened:
        opened.audit.run("one")
        plans = [opened.audit.plan_removals(run_id, "one") for run_id in ("released", "planned")]
        for plan in plans:
            assert plan.removals
            opened.audit.apply_removal_limits(plan.run_id)
        opened.audit.approve_removals("released", plans[0].plan_hash, author="test")
        audits = opened.adapters.stores.audits
        refusal = Refusal(Guard.OLDER_DATABASE, "a copy is younger than all that is remembered", 1)
        now_ms = audits.now_ms()
        audits.record(AuditRecord("two", AuditSource.LISTING, now_ms, now_ms, 1, 1, (refusal,)), [], covers=())
        for refused in (
            lambda: opened.audit.run_removal_batch("released", "released/0"),
            lambda: opened.audit.approve_removals("planned", plans[1].plan_hash, author="test"),
        ):
            with pytest.raises(DatabaseSetBackError, match=SENTENCE):
                refused()
        assert not opened.adapters.stores.removals.run("planned").is_released
        assert stored_files(store) == before

        audits.record(AuditRecord("three", AuditSource.LISTING, now_ms, now_ms, 1, 1), [], covers=())
        assert opened.audit.run_removal_batch("released", "released/0").of(RemovalOutcome.REMOVED)
    assert stored_files(store) < before
