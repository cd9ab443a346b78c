"""An audit that is asked to delete: not without an approval, not from a database that may be wrong, never a copy."""

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, delete, select

from include.tiering.app import App, open_app
from include.tiering.audit.finding import AuditContext, AuditMoment, FindingKind
from include.tiering.audit.plan_removals import RemovalOutcome
from include.tiering.audit.remove_orphans import RemovalStep
from include.tiering.database.schema import metadata, segment_epochs, segments, stores
from include.tiering.errors import ForeignStoreError, RemoteAccessDeniedError
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.store_ownership import MARKER_KEY
from tests.doubles.archive import Archive, Command, document, settings_of
from tests.doubles.orphans import (
    TinyCopies,
    missing_objects,
    plant_orphan,
    plant_upload,
    remove_all_orphans,
    stored_files,
)
from tests.doubles.segments import partition_of

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def half_copied(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """About half of what there is to copy was copied. Not to be changed."""
    archive = Archive.of(tmp_path_factory.mktemp("half-copied"))
    archive.copy(limit_bytes=150_000)
    return archive


@pytest.fixture
def archive(half_copied: Archive, tmp_path: Path) -> Archive:
    """A store and a database of this test's own; nobody changes the log dirs."""
    shutil.copytree(half_copied.directory / "store", tmp_path / "store")
    shutil.copy2(half_copied.directory / "metadata.sqlite", tmp_path)
    archive = Archive(tmp_path, half_copied.brokers, runs=half_copied.runs)
    archive.config = tmp_path / "tiering.toml"
    text = half_copied.config.read_text()
    for name in ("store", "metadata.sqlite"):
        text = text.replace(str(half_copied.directory / name), str(tmp_path / name))
    archive.config.write_text(text)
    _say_where_keys_lie(tmp_path, before=half_copied.directory)
    return archive


def _say_where_keys_lie(directory: Path, *, before: Path) -> None:
    """In the marker and in the database, as if both had never been anywhere else."""
    marker = directory / "store" / MARKER_KEY
    marker.write_text(marker.read_text().replace(str(before), str(directory)))
    with contextlib.closing(sqlite3.connect(directory / "metadata.sqlite")) as database, database:
        database.execute("UPDATE stores SET url = replace(url, ?, ?)", (str(before), str(directory)))


def deny_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a policy without s3:GetObject, or in a storage class that is not read at once."""
    read = FileObjectStore.read

    def denied(self: FileObjectStore, key: str, *positions: Any, **options: Any) -> Any:
        if key.endswith(".rsm-manifest"):
            raise RemoteAccessDeniedError("denied")
        return read(self, key, *positions, **options)

    monkeypatch.setattr(FileObjectStore, "read", denied)


def audited(app: Command, code: int, *flags: str) -> Any:
    return document(app("audit", "--json", *flags), code)


def kinds(found: Any) -> list[str]:
    return [one["kind"] for one in found["findings"] if one["state"] == "open"]


class TestApproval:
    def test_nothing_goes_without_one(self, app, store):
        orphan = plant_orphan(store)
        before = stored_files(store)
        assert kinds(audited(app, 1)) == ["orphan", "orphan"]
        refused = audited(app, 1, "--delete-orphans")["removal"]
        assert refused["needs_approval"]
        assert refused["plan_hash"] in refused["refusal"]
        assert [one["outcome"] for one in refused["removals"]] == ["planned", "planned"]
        other = audited(app, 1, "--delete-orphans", "--approve-plan", "f" * 64)["removal"]
        assert "and not the approved one" in other["refusal"]
        assert stored_files(store) == before > set(orphan)
        shown = app("audit", "--delete-orphans").stdout
        assert all(
            text in shown for text in (orphan[0], refused["plan_hash"], "needs an approval", "nothing was removed")
        )

    def test_exactly_the_approved_plan_goes_and_a_second_run_finds_nothing(self, app, store):
        before = stored_files(store)
        plant_orphan(store)
        upload = plant_upload(store)
        plan = audited(app, 1, "--delete-orphans")["removal"]
        assert sorted(one["kind"] for one in plan["removals"]) == ["open-multipart-upload", "orphan", "orphan"]
        assert upload in stored_files(store)
        done = audited(app, 0, "--delete-orphans", "--approve-plan", plan["plan_hash"])
        assert {one["outcome"] for one in done["removal"]["removals"]} == {"removed"}
        assert {one["state"] for one in done["findings"]} == {"acted"}
        assert stored_files(store) == before
        again = audited(app, 0, "--delete-orphans", "--approve")
        assert (again["findings"], again["new"], again["removal"]["removals"]) == ([], 0, [])

    def test_another_orphan_is_another_plan(self, app, store):
        plant_orphan(store)
        plan = audited(app, 1, "--delete-orphans")["removal"]
        plant_orphan(store, 2)
        before = stored_files(store)
        refused = audited(app, 1, "--delete-orphans", "--approve-plan", plan["plan_hash"])
        assert "and not the approved one" in refused["removal"]["refusal"]
        assert stored_files(store) == before

    def test_what_is_young_waits(self, app, store, archive):
        plant_orphan(store, age_seconds=60)
        found = audited(app, 0, "--delete-orphans", "--approve")
        assert (found["findings"], found["passed_over"]) == ([], {"young": 2})
        archive.set_default(tiering_audit_min_age_ms=0)
        assert len(audited(app, 0, "--delete-orphans", "--approve")["removal"]["removals"]) == 2

    def test_flags_that_make_no_sense(self, app):
        for flags in ("--approve", "--approve-plan x", "--old-versions", "--delete-orphans --accept 1"):
            assert app("audit", *flags.split()).exit_code == 2

    def test_an_accepted_finding_fails_no_audit(self, app, store):
        plant_orphan(store)
        ids = [one["finding_id"] for one in audited(app, 1)["findings"]]
        accept = [flag for number in ids for flag in ("--accept", str(number))]
        assert [one["finding_id"] for one in audited(app, 0, *accept)["accepted"]] == ids
        assert {one["state"] for one in audited(app, 0)["findings"]} == {"accepted"}
        assert audited(app, 0, "--delete-orphans")["removal"]["removals"] == []
        assert app("audit", "--accept", "999").exit_code == 1


class TestGuards:
    """Each with an orphan that would go otherwise, an approval given in advance, and no age guard."""

    @pytest.fixture(autouse=True)
    def _orphan(self, archive, store):
        archive.set_default(tiering_audit_min_age_ms=0)
        plant_orphan(store)

    def require_refusal(self, app: Command, store: Path, guard: str, sentence: str) -> None:
        before = stored_files(store)
        found = audited(app, 1, "--delete-orphans", "--approve")
        assert [one["guard"] for one in found["refusals"]] == [guard]
        assert sentence in found["removal"]["refusal"]
        assert found["removal"]["removals"] == []
        assert stored_files(store) == before

    def test_an_empty_database(self, app, store, archive):
        with archive.open() as opened:
            empty_but_for_the_store(opened.adapters.engine)
        self.require_refusal(app, store, "empty-database", "the database has no segment")

    def test_a_database_restored_from_a_backup(self, app, store, archive):
        database = archive.directory / "metadata.sqlite"
        with archive.open() as opened:
            opened.adapters.engine.dispose()
        shutil.copy(database, archive.directory / "backup.sqlite")
        archive.copy()
        assert kinds(audited(app, 1)) == ["orphan", "orphan"]
        for file in archive.directory.glob("metadata.sqlite*"):
            file.unlink()
        shutil.copy(archive.directory / "backup.sqlite", database)
        assert app("take-over-store", "--approve").exit_code == 0
        self.require_refusal(app, store, "older-database", "restored from a backup?")

    def test_a_restored_database_and_a_store_that_denies_reading_manifests(self, app, store, archive, monkeypatch):
        """Nothing says when their copies began; when they were stored is known."""
        database = archive.directory / "metadata.sqlite"
        shutil.copy(database, archive.directory / "backup.sqlite")
        archive.copy()
        for file in archive.directory.glob("metadata.sqlite*"):
            file.unlink()
        shutil.copy(archive.directory / "backup.sqlite", database)
        assert app("take-over-store", "--approve").exit_code == 0
        deny_manifests(monkeypatch)
        self.require_refusal(app, store, "older-database", "restored from a backup?")

    def test_a_restored_database_before_the_copies_are_as_old_as_the_guard(self, app, store, archive):
        """They are the evidence, whatever their age."""
        database = archive.directory / "metadata.sqlite"
        shutil.copy(database, archive.directory / "backup.sqlite")
        archive.copy()
        for file in archive.directory.glob("metadata.sqlite*"):
            file.unlink()
        shutil.copy(archive.directory / "backup.sqlite", database)
        archive.set_default(tiering_audit_min_age_ms=None)
        assert app("take-over-store", "--approve").exit_code == 0
        self.require_refusal(app, store, "older-database", "restored from a backup?")

    def test_a_database_of_another_store(self, app, store, archive):
        with archive.open() as opened, opened.adapters.engine.begin() as connection:
            connection.execute(stores.update().values(store_id="A" * 21 + "Q"))
        before = stored_files(store)
        refused = app("audit", "--delete-orphans", "--approve")
        assert refused.exit_code == 1
        assert "the store belongs to" in refused.stderr
        assert stored_files(store) == before

    @pytest.mark.parametrize("change", ["generation", "cluster", "none"])
    def test_a_marker_of_another_time_or_place(self, app, store, archive, change):
        marker = store / "_tiering-store.json"
        content = json.loads(marker.read_text())
        if change == "none":
            marker.unlink()
        elif change == "generation":
            marker.write_text(json.dumps({**content, "generation": content["generation"] + 1}))
        else:
            marker.write_text(json.dumps({**content, "cluster_id": "another-cluster-1234567"}))
        before = stored_files(store)
        assert app("audit", "--delete-orphans", "--approve").exit_code == 1
        assert stored_files(store) == before

    def test_a_marker_that_changes_between_plan_and_removal(self, store, archive):
        before = stored_files(store)
        with archive.open() as opened:
            opened.audit.run("one")
            plan = opened.audit.plan_removals("remove", "one")
            opened.audit.apply_removal_limits("remove")
            opened.audit.approve_removals("remove", plan.plan_hash, author="test")
            marker = store / "_tiering-store.json"
            content = json.loads(marker.read_text())
            marker.write_text(json.dumps({**content, "generation": content["generation"] + 1}))
            with pytest.raises(ForeignStoreError, match="another database has used store"):
                opened.audit.run_removal_batch("remove", "remove/0")
        assert stored_files(store) == before

    def test_a_plan_that_the_restored_database_never_made(self, app, store, archive):
        """Approved, then the database was set back: nobody knows the plan any more."""
        with archive.open() as opened:
            opened.audit.run("one")
            plan = opened.audit.plan_removals("remove", "one")
            opened.audit.apply_removal_limits("remove")
            opened.audit.approve_removals("remove", plan.plan_hash, author="test")
            empty_but_for_the_store(opened.adapters.engine)
            with pytest.raises(Exception, match="no run remove"):
                opened.audit.run_removal_batch("remove", "remove/0")

    def test_a_listing_that_lacks_what_the_store_has(self, store, archive):
        before = stored_files(store)
        with archive.open() as opened:
            report = opened.audit.run("one", listing=Lacking(opened.adapters.object_listing, ".rsm-manifest"))
            assert [one.guard.value for one in report.record.refusals] == ["incomplete-listing"]
            assert {one.kind for one in report.findings} == {FindingKind.ORPHAN}
            assert opened.audit.plan_removals("remove", "one").removals == ()
        assert stored_files(store) == before

    @pytest.mark.parametrize("readable", [True, False], ids=["readable", "denied"])
    def test_an_adoptable_copy_is_offered_and_stays(self, app, store, archive, monkeypatch, readable):
        with archive.open() as opened, opened.adapters.engine.begin() as connection:
            oldest = select(segments.c.segment_key).order_by(segments.c.segment_key).limit(1).scalar_subquery()
            connection.execute(delete(segment_epochs).where(segment_epochs.c.segment_key == oldest))
            connection.execute(delete(segments).where(segments.c.segment_key == oldest))
        if not readable:
            deny_manifests(monkeypatch)
        found = audited(app, 1, "--delete-orphans", "--approve")
        adoptable = [one for one in found["findings"] if one["kind"] == "adoptable"]
        assert [("cannot be read: denied" in one["message"]) for one in adoptable] == [not readable]
        assert {one["outcome"] for one in found["removal"]["removals"]} == {"removed"}
        assert all(adoptable[0]["segment_id"] not in one["key"] for one in found["removal"]["removals"])
        assert adoptable[0]["key"] in stored_files(store)


class TestDanglingReferences:
    def test_are_found_and_confirmed(self, app, store):
        manifest = min(store.rglob("*.rsm-manifest"))
        manifest.unlink()
        found = audited(app, 1)
        assert [(one["kind"], one["key"]) for one in found["findings"]] == [
            ("dangling-reference", manifest.relative_to(store).as_posix())
        ]

    def test_vanish_when_the_segment_went_meanwhile(self, archive, monkeypatch):
        """Not in the listing, FINISHED when rows were read, deleted when they are asked again."""
        with archive.open() as opened:
            context = opened.audit.context

            def expire_first(moment: AuditMoment) -> AuditContext:
                archive.set(retention_ms=0, retention_bytes=0)
                archive.expire()
                return context(moment)

            monkeypatch.setattr(opened.audit, "context", expire_first)
            report = opened.audit.run("one", listing=Lacking(opened.adapters.object_listing, ".rsm-manifest"))
            assert report.record.rows > 0
            assert FindingKind.DANGLING_REFERENCE not in {one.kind for one in report.findings}
            assert report.record.refusals == ()


class TestVanished:
    def test_findings_are_gone_and_come_back(self, app, store, archive):
        orphan = plant_orphan(store)
        audited(app, 1)
        for key in orphan:
            (store / key).rename(archive.directory / Path(key).name)
        assert (lambda found: (found["findings"], found["gone"]))(audited(app, 0)) == ([], 2)
        for key in orphan:
            (archive.directory / Path(key).name).rename(store / key)
        found = audited(app, 1)
        assert found["new"] == 2
        assert {one["first_seen_ms"] < one["last_seen_ms"] for one in found["findings"]} == {True}


PARTITION = partition_of("raced", 0)


@pytest.fixture
def raced(archive: Archive) -> Iterator[App]:
    """No age guard: nothing but the metadata stands between the audit and a copy."""
    archive.set_default(tiering_audit_min_age_ms=0)
    with open_app(settings_of(archive.config)) as opened:
        yield opened


class TestCopyInFlight:
    @pytest.mark.parametrize("step", ["started", "sending", "sent", "finished"])
    def test_an_audit_at_any_step_of_a_copy(self, raced, store, step):
        """The whole audit, with its removal, while the copy stands still there."""
        copies = TinyCopies.into(raced, PARTITION)
        copies.copy()
        orphan = plant_orphan(store)
        results: list[Any] = []

        def audit(reached: str) -> None:
            if reached == step and not results:
                results.append(remove_all_orphans(raced, f"at {step}"))

        copies.copy(audit)
        assert {item.planned.key for item in results[0].items} == set(orphan)
        assert {item.outcome for item in results[0].items} == {RemovalOutcome.REMOVED}
        assert missing_objects(raced) == []

    @pytest.mark.parametrize("step", [RemovalStep.CHECKED, RemovalStep.MARKED, RemovalStep.REMOVED])
    def test_a_copy_at_any_step_of_a_removal(self, archive, store, step):
        archive.set_default(tiering_audit_min_age_ms=0)
        plant_orphan(store)
        copied = []

        def copy(reached: object, *_: object) -> None:
            if reached is step:
                copied.append(copies.copy())

        with open_app(settings_of(archive.config), observe=copy) as opened:
            copies = TinyCopies.into(opened, PARTITION)
            result = remove_all_orphans(opened, "one")
            assert {item.outcome for item in result.items} == {RemovalOutcome.REMOVED}
            assert copied
            assert missing_objects(opened) == []

    def test_an_attempt_that_nobody_works_on_is_expirations_to_delete(self, raced, store):
        copies = TinyCopies.into(raced, PARTITION)
        abandoned = copies.copy(give_up=True)
        raced.adapters.stores.work.release(copies.lease)
        result = remove_all_orphans(raced, "one")
        assert result.items == ()
        assert len(raced.adapters.storage.stat_log_segment(abandoned)) == 3
        assert [one.finding.kind for one in raced.adapters.stores.audits.findings()] == [FindingKind.ABANDONED_COPY]

    def test_running_free_a_hundred_times(self, raced, store):
        """Each time one copy and one whole audit with its removal begin at once, in threads of their own. Whatever they
        do to each other: no copy loses an object, and every orphan goes."""
        with open_app(raced.settings) as other, ThreadPoolExecutor(1) as threads:
            copies = TinyCopies.into(other, PARTITION)
            removed = []
            for number in range(100):
                planted = plant_orphan(store, number)
                copying = threads.submit(copies.copy)
                removed += [item.planned.key for item in remove_all_orphans(raced, f"run {number}").items]
                copying.result()
                assert not stored_files(store).intersection(planted)
        assert len(removed) == 200
        assert missing_objects(raced) == []


class Lacking:
    """A listing without some of the keys."""

    def __init__(self, inner: Any, suffix: str) -> None:
        self._inner = inner
        self._suffix = suffix

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def pages(self, part: Any) -> Any:
        for page in self._inner.pages(part):
            yield [listed for listed in page if not listed.key.endswith(self._suffix)]


def empty_but_for_the_store(engine: Engine) -> None:
    with engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            if table.name not in ("stores", "dynamic_configs", "dynamic_config_changes"):
                connection.execute(delete(table))
