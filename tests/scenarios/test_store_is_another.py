"""The settings, the disk or the database are not those of the store: nothing is written, nothing is deleted there."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from include.tiering.copying.run_scope import RunScope
from include.tiering.database.schema import stores
from include.tiering.database.store_identity import description_of
from include.tiering.errors import ForeignStoreError
from include.tiering.model.ownership import StoreMarker
from include.tiering.model.segments import Depth
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.remote_storage.store_ownership import marker_to_bytes
from include.tiering.verification.plan import VerificationSample
from tests.doubles.archive import Archive

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("on_each_database")]


def objects(archive: Archive) -> dict[str, int]:
    """Of the store's directory, by path; without the marker, which every plan changes."""
    root = archive.directory / "store"
    return {
        path.relative_to(root).as_posix(): path.stat().st_size
        for path in root.rglob("*")
        if path.is_file() and path.name != "_tiering-store.json"
    }


def verify_all(archive: Archive) -> None:
    with archive.open() as app:
        app.verification.plan("verify-all", VerificationSample(everything=True), depth=Depth.SHALLOW)
        app.verification.run_planned("verify-all")


def refusals(*actions: Callable[[], object]) -> list[str]:
    """What each of them said; empty where it was not refused."""
    said = []
    for action in actions:
        try:
            action()
        except ForeignStoreError as error:
            said.append(str(error))
        else:
            said.append("")
    return said


def delete_everything(archive: Archive) -> None:
    """What a batch of deletions does with the store, after it was planned."""
    segments = [one for found in archive.remote().values() for one in found]
    with archive.open() as app:
        app.adapters.storage.delete_log_segments(segments)


def take_over(archive: Archive) -> None:
    with archive.open() as app:
        found = app.adapters.unguarded_storage.read_marker()
        assert found is not None
        app.store_owner.take_over(found, author="test")


def lose_the_oldest_segment(archive: Archive) -> None:
    """At the brokers: what the archive has of it is the only copy."""
    oldest = archive.offsets(0)[1]
    archive.raise_broker_log_start(0, oldest)


def migrate(archive: Archive) -> None:
    with archive.open() as app:
        app.set_up.migrate()


def change_prefix(archive: Archive) -> None:
    archive.config.write_text(archive.config.read_text().replace('store"\n', 'store"\nkey_prefix = "tiered-"\n'))


def change_layout(archive: Archive) -> None:
    text = archive.config.read_text().replace('store"\n', 'store"\nlayout = "local_tiered_storage"\n')
    archive.config.write_text(text)


def change_url(archive: Archive) -> None:
    archive.config.write_text(archive.config.read_text().replace('/store"', '/store-of-a-typing-error"'))
    refusals(lambda: migrate(archive))


@pytest.mark.parametrize("mistake", [change_prefix, change_layout, change_url])
def test_settings_that_name_another_place_cost_nothing(tmp_path: Path, mistake: Callable[[Archive], None]) -> None:
    archive = Archive.of(tmp_path)
    archive.set_default(tiering_superseded_hold_ms=0)
    archive.copy()
    verify_all(archive)
    before, finished, right = objects(archive), archive.remote(), archive.config.read_text()

    mistake(archive)
    said = refusals(lambda: verify_all(archive))
    lose_the_oldest_segment(archive)
    said += refusals(archive.copy, archive.expire)
    archive.config.write_text(right)
    archive.copy()
    archive.expire()

    assert objects(archive) == before
    assert archive.remote() == finished
    archive.require_served()
    assert all("the keys of this store lie in" in one for one in said)
    with archive.open() as app:
        assert app.operations.ready(scope=RunScope(("orders",))).missing == ()
    mistake(archive)
    with archive.open() as app:
        (missing,) = app.operations.ready(scope=RunScope(("orders",))).missing
        assert "run ./tiering relocate-store" in missing


def test_a_disk_that_is_not_mounted_gets_no_marker(tmp_path: Path) -> None:
    """`migrate` is what a host runs when it starts."""
    archive = Archive.of(tmp_path)
    archive.set_default(tiering_superseded_hold_ms=0)
    archive.copy()
    verify_all(archive)
    before, finished = objects(archive), archive.remote()

    store, disk = tmp_path / "store", tmp_path / "disk"
    store.rename(disk)
    store.mkdir()
    said = refusals(lambda: migrate(archive), lambda: verify_all(archive))
    lose_the_oldest_segment(archive)
    said += refusals(archive.copy)
    assert list(store.iterdir()) == []
    shutil.rmtree(store)
    disk.rename(store)
    archive.copy()
    archive.expire()

    assert objects(archive) == before
    assert archive.remote() == finished
    archive.require_served()
    assert all("is its disk mounted and its URL right?" in one for one in said)


def test_a_set_up_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    """Without a segment in any state a marker may be made again, and the place may change."""
    archive = Archive.of(tmp_path)
    (tmp_path / "store" / "_tiering-store.json").unlink()
    migrate(archive)
    change_prefix(archive)
    migrate(archive)
    archive.copy()
    archive.require_served()
    with archive.open() as app:
        found = app.adapters.unguarded_storage.read_marker()
        assert found is not None
        assert found.place == app.adapters.place
        assert found.place.key_prefix == "tiered-"


def test_a_copy_of_the_database_neither_copies_nor_deletes(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    archive.copy(limit_bytes=1)
    clone, database = archive.with_copied_database(), description_of(archive.database_url)
    archive.copy()
    before, right = objects(archive), archive.config.read_text()

    archive.config.write_text(clone)
    archive.set(retention_bytes=0)
    said = refusals(
        archive.copy,
        archive.expire,
        lambda: verify_all(archive),
        lambda: migrate(archive),
    )
    with archive.open() as app:
        (missing,) = app.operations.ready(scope=RunScope(("orders",))).missing
        assert len(app.log_dirs.scan_all().replicas) > 0
        assert app.sizes.partition_sizes() is not None
    archive.config.write_text(right)

    assert objects(archive) == before
    archive.require_served()
    assert archive.copy().partitions == ()
    assert len(set(said)) == 1
    assert said[0] in missing
    assert f"raised by {database} on " in said[0]
    assert "./tiering take-over-store" in said[0]


def as_the_version_before_left_it(archive: Archive) -> None:
    """No token, no place, a marker of version 1."""
    with archive.open() as app:
        owned = app.adapters.stores.generations.accepted().current
        with app.adapters.engine.begin() as connection:
            none = dict.fromkeys(("generation_token", "url", "layout", "key_prefix", "conditional_writes"))
            connection.execute(stores.update().values(**none))
    before = StoreMarker(owned.cluster_id, owned.store_id, owned.generation)
    (archive.directory / "store" / "_tiering-store.json").write_bytes(marker_to_bytes(before))


def test_a_store_of_the_version_before_goes_on(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    archive.copy(limit_bytes=1)
    as_the_version_before_left_it(archive)
    before, finished, right = objects(archive), archive.remote(), archive.config.read_text()
    archive.set(retention_bytes=0)
    change_prefix(archive)
    said = refusals(lambda: migrate(archive))
    assert "none of 1 checked segments is in" in said[0]
    # The schema is that of this version now, and nothing says where keys lie: nothing may say it but that command.
    said = refusals(
        archive.copy,
        archive.expire,
        lambda: verify_all(archive),
        lambda: delete_everything(archive),
        lambda: take_over(archive),
    )
    assert all("does not say where the keys of its store lie: run ./tiering migrate" in one for one in said)
    with archive.open() as app:
        accepted = app.adapters.stores.generations.accepted()
        assert (accepted.current.place, accepted.pending) == (None, None)
    archive.config.write_text(right)
    assert "run ./tiering migrate" in refusals(archive.copy)[0]
    assert (objects(archive), archive.remote()) == (before, finished)
    archive.set(retention_bytes=None)
    migrate(archive)
    with archive.open() as app:
        found = app.adapters.unguarded_storage.read_marker()
        assert found is not None
        assert (found.generation, found.place) == (3, app.adapters.place)
        assert found == app.adapters.stores.generations.accepted().current
    change_prefix(archive)
    assert "the keys of this store lie in" in refusals(archive.copy)[0]
    archive.config.write_text(right)
    archive.copy()
    archive.require_served()


@pytest.mark.parametrize("version_before", [False, True])
def test_a_rebuild_with_another_key_prefix_is_refused(tmp_path: Path, version_before: bool) -> None:
    archive = Archive.of(tmp_path)
    archive.copy()
    if version_before:
        as_the_version_before_left_it(archive)
    right = archive.config.read_text().replace(archive.database_url, Archive.new_database(tmp_path / "new"))
    archive.config.write_text(right)
    change_prefix(archive)
    with archive.open() as app:
        said = refusals(app.recovery.plan_rebuild)
    assert ("correct these settings" if version_before else "the keys of this store lie in") in said[0]
    archive.config.write_text(right)
    with archive.open() as app:
        assert app.recovery.rebuild(app.recovery.plan_rebuild(), author="test").segments > 5
        assert app.adapters.stores.generations.accepted().current.place == app.adapters.place
    migrate(archive)


def test_ready_says_that_a_server_takes_no_notice_of_a_condition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive.of(tmp_path)
    monkeypatch.setattr(SegmentStorage, "replaces_conditionally", lambda self: False)
    with archive.open() as app:
        details = {check.name: check.message for check in app.operations.ready(scope=RunScope(("orders",))).checks}
        assert "this server ignores If-Match on PUT" in details["storage"]
        assert app.adapters.stores.generations.accepted().conditional is False
