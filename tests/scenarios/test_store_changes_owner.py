"""By decision of a person: a restored database becomes the owner of the store, and a store lies in another place."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from include.tiering.cli.app import cli
from include.tiering.errors import ForeignStoreError
from include.tiering.model.ownership import LeaseRole, PartitionLease
from include.tiering.runs.sql_batches import take
from tests.doubles.archive import Archive

pytestmark = pytest.mark.integration


def run(archive: Archive, *arguments: str) -> tuple[int, str]:
    found = CliRunner(env={"COLUMNS": "300"}).invoke(
        cli, ["--config", str(archive.config), *arguments], prog_name="./tiering"
    )
    return found.exit_code, found.output


def document(archive: Archive, *arguments: str) -> Any:
    code, output = run(archive, *arguments, "--json")
    assert code == 0, output
    return json.loads(output)


def test_a_restored_database_becomes_the_owner_and_the_other_is_refused(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    archive.copy(limit_bytes=1)
    right = archive.config.read_text()
    shutil.copy(tmp_path / "metadata.sqlite", tmp_path / "restored.sqlite")
    archive.copy()
    copied = sum(map(len, archive.remote().values()))

    archive.config.write_text(right.replace("metadata.sqlite", "restored.sqlite"))
    code, output = run(archive, "take-over-store")
    assert (code, "without a terminal it needs --approve" in output) == (1, True)
    assert f"{copied - 1} adoptable: copies without metadata in this database; ./tiering adopt adds them" in output
    with pytest.raises(ForeignStoreError):
        archive.copy()

    taken = document(archive, "take-over-store", "--approve")
    assert taken["marker"]["generation"] == taken["found"]["generation"] + 1
    assert (taken["marker"]["raised_by"], taken["nothing_published"]) == (None, False)
    document(archive, "adopt", "--all", "--approve")
    assert archive.copy().partitions == ()
    assert sum(map(len, archive.remote().values())) == copied
    archive.require_served()
    archive.require_no_other_objects()
    with archive.open() as app, app.adapters.engine.connect() as connection:
        events = connection.exec_driver_sql("SELECT detail FROM events WHERE kind = 'store-taken-over'").scalars().all()
        assert len(events) == 1
    archive.config.write_text(right)
    with pytest.raises(ForeignStoreError, match=r"restored\.sqlite"):
        archive.copy()
    assert run(archive, "take-over-store", "--approve")[0] == 0


def test_another_store_is_not_taken_over(tmp_path: Path) -> None:
    archive, other = Archive.of(tmp_path / "one"), Archive.of(tmp_path / "other")
    archive.config.write_text(archive.config.read_text().replace("/one/store", "/other/store"))
    code, output = run(archive, "take-over-store", "--approve")
    assert (code, "the store belongs to" in output) == (1, True)
    assert other.copy().partitions


def test_a_snapshot_of_the_store_is_refused_until_a_person_takes_it_over(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    archive.copy(limit_bytes=1)
    shutil.copytree(tmp_path / "store", tmp_path / "snapshot")
    archive.copy()
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "snapshot").rename(tmp_path / "store")
    both = r"at generation 2.*is at 3\. Either .* older copy.*take-over-store\. Or this database .* set metadata\.url"
    with pytest.raises(ForeignStoreError, match=both):
        archive.copy()
    code, output = run(archive, "take-over-store")
    assert code == 1
    assert "dangling-reference: missing objects of segments in this database" in output
    taken = document(archive, "take-over-store", "--nothing-published", "--approve")
    assert (taken["marker"]["generation"], taken["nothing_published"]) == (4, True)
    assert archive.expire() is not None


def test_an_old_marker_in_an_empty_place_is_named_before_anything_is_taken_over(tmp_path: Path) -> None:
    """Found by simulation, seed 3002797: where a disk is not mounted, all that is missing looked like deleted."""
    archive = Archive.of(tmp_path)
    (tmp_path / "old").mkdir()
    archive.copy(limit_bytes=1)
    shutil.copy(tmp_path / "store" / "_tiering-store.json", tmp_path / "old")
    archive.copy()
    (tmp_path / "store").rename(tmp_path / "unmounted")
    (tmp_path / "old").rename(tmp_path / "store")
    code, output = run(archive, "take-over-store")
    assert code == 1
    assert "no segment of this database is there: check that it is the right place and its disk is mounted" in output


def test_a_store_that_was_moved_is_used_after_its_objects_were_looked_at(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    archive.copy()
    right, moved = archive.config.read_text(), tmp_path / "moved"
    archive.config.write_text(right.replace('/store"', '/moved"'))
    segments = sum(map(len, archive.remote().values()))

    code, output = run(archive, "relocate-store", "--approve")
    assert code == 1
    assert f"{segments} of {segments} checked segments are not in" in output
    shutil.copytree(tmp_path / "store", moved)
    lost = next(moved.rglob("*.indexes"))
    lost.rename(tmp_path / "lost")
    code, output = run(archive, "relocate-store", "--approve")
    assert (code, f"1 of {segments} checked segments" in output, "indexes not there" in output) == (1, True, True)
    (tmp_path / "lost").rename(lost)
    log = next(moved.rglob("*.log"))
    whole = log.read_bytes()
    log.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    code, output = run(archive, "relocate-store", "--approve")
    assert (code, "another CRC-32C" in output) == (1, True)
    log.write_bytes(whole)
    assert run(archive, "relocate-store")[0] == 1

    report = document(archive, "relocate-store", "--approve")
    assert (report["looked_at"], report["to"]["url"]) == (segments, moved.as_uri())
    archive.copy()
    archive.require_served()
    archive.config.write_text(right)
    with pytest.raises(ForeignStoreError, match="the keys of this store lie in"):
        archive.copy()


def test_a_key_prefix_changes_when_the_objects_have_it(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    archive.copy()
    for directory in [one for one in (tmp_path / "store").iterdir() if one.is_dir()]:
        directory.rename(directory.with_name(f"tiered-{directory.name}"))
    archive.config.write_text(archive.config.read_text().replace('store"\n', 'store"\nkey_prefix = "tiered-"\n'))
    with pytest.raises(ForeignStoreError, match="relocate-store"):
        archive.copy()
    assert document(archive, "relocate-store", "--approve")["to"]["key_prefix"] == "tiered-"
    archive.copy()
    archive.require_served()


def test_a_move_without_a_marker_there_gives_it_one(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    archive.copy()
    shutil.copytree(tmp_path / "store", tmp_path / "moved")
    (tmp_path / "moved" / "_tiering-store.json").unlink()
    archive.config.write_text(archive.config.read_text().replace('/store"', '/moved"'))
    document(archive, "relocate-store", "--approve")
    archive.copy()
    archive.require_served()


def split_again(archive: Archive) -> None:
    """The same objects by another URL and no prefix."""
    text = archive.config.read_text().replace('/store"', '/store/tiered"').replace('key_prefix = "tiered/"\n', "")
    archive.config.write_text(text)


def prefixed(tmp_path: Path) -> Archive:
    """Keys lie in `store` with the prefix `tiered/`; three segments of a copy that goes on."""
    archive = Archive.of(tmp_path)
    archive.config.write_text(archive.config.read_text().replace('store"\n', 'store"\nkey_prefix = "tiered/"\n'))
    assert run(archive, "migrate")[0] == 0
    archive.copy(limit_bytes=1)
    return archive


def test_a_copy_of_the_database_does_not_own_the_same_objects_by_another_url(tmp_path: Path) -> None:
    archive = prefixed(tmp_path)
    right = archive.config.read_text()
    shutil.copy(tmp_path / "metadata.sqlite", tmp_path / "clone.sqlite")
    archive.copy()
    archive.config.write_text(right.replace("metadata.sqlite", "clone.sqlite"))
    split_again(archive)
    code, output = run(archive, "relocate-store", "--approve")
    assert (code, "another database has used store" in output) == (1, True), output
    assert not (tmp_path / "store" / "tiered" / "_tiering-store.json").exists()
    with pytest.raises(ForeignStoreError):
        archive.expire()
    archive.config.write_text(right)
    archive.copy()
    archive.require_served()


def test_the_owner_may_name_the_same_objects_by_another_url_and_back(tmp_path: Path) -> None:
    """A copy of the database that was made before is refused at the old place, and cannot take the new one."""
    archive = prefixed(tmp_path)
    right = archive.config.read_text()
    shutil.copy(tmp_path / "metadata.sqlite", tmp_path / "clone.sqlite")
    split_again(archive)
    document(archive, "relocate-store", "--approve")
    archive.copy()
    archive.require_served()
    moved = archive.config.read_text()

    archive.config.write_text(right.replace("metadata.sqlite", "clone.sqlite"))
    with pytest.raises(ForeignStoreError, match="another database has used store"):
        archive.copy()
    code, output = run(archive, "take-over-store", "--approve")
    assert (code, "the keys of this store lie in" in output) == (1, True), output
    archive.config.write_text(moved.replace("metadata.sqlite", "clone.sqlite"))
    code, output = run(archive, "relocate-store", "--approve")
    assert (code, "another database has used store" in output) == (1, True), output

    archive.config.write_text(right)
    document(archive, "relocate-store", "--approve")
    archive.copy()
    archive.require_served()


def test_the_same_objects_need_the_marker_of_the_old_place(tmp_path: Path) -> None:
    archive = prefixed(tmp_path)
    (tmp_path / "store" / "_tiering-store.json").rename(tmp_path / "kept.json")
    split_again(archive)
    code, output = run(archive, "relocate-store", "--approve")
    assert (code, "name the same objects" in output) == (1, True), output
    assert not (tmp_path / "store" / "tiered" / "_tiering-store.json").exists()
    (tmp_path / "kept.json").rename(tmp_path / "store" / "_tiering-store.json")
    document(archive, "relocate-store", "--approve")
    archive.copy()


def test_a_move_from_a_place_that_is_gone(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    archive.copy(limit_bytes=1)
    (tmp_path / "store").rename(tmp_path / "moved")
    (tmp_path / "moved" / "_tiering-store.json").unlink()
    archive.config.write_text(archive.config.read_text().replace('/store"', '/moved"'))
    document(archive, "relocate-store", "--approve")
    assert not (tmp_path / "store").exists()
    archive.copy()
    archive.require_served()


@pytest.mark.parametrize("role", [LeaseRole.COPY, LeaseRole.EXPIRE])
def test_nothing_is_moved_while_a_batch_works(tmp_path: Path, role: LeaseRole) -> None:
    archive = Archive.of(tmp_path)
    archive.copy(limit_bytes=1)
    (partition,) = [one for one, found in archive.remote().items() if found]
    with archive.open() as app:
        now_ms = app.adapters.clock.now_ms()
        with app.adapters.engine.begin() as connection:
            fence = take(
                connection,
                app.adapters.cluster_id,
                partition,
                role,
                run_id="run-7",
                batch_id="run-7/0",
                now_ms=now_ms,
                lease_ms=60_000,
            )
            assert fence is not None
        accepted = app.adapters.stores.generations.accepted()
    shutil.copytree(tmp_path / "store", tmp_path / "moved")
    archive.config.write_text(archive.config.read_text().replace('/store"', '/moved"'))
    code, output = run(archive, "relocate-store", "--approve")
    assert code != 0
    assert f"batch run-7/0 of run run-7 holds the lease to {role}" in output
    with archive.open() as app:
        assert app.adapters.stores.generations.accepted() == accepted
        app.adapters.stores.work.release(
            PartitionLease(run_id="run-7", batch_id="run-7/0", fence=fence, expires_at_ms=0)
        )
    document(archive, "relocate-store", "--approve")
