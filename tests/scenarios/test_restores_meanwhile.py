"""A restore that is begun, and continued while the archive changes; and places where no restore may write."""

import json
from pathlib import Path
from typing import Any

import pytest

from include.tiering.formats import checkpoints
from include.tiering.model.segments import Verdict
from include.tiering.restoring.restore_segments import LOG_STARTS
from include.tiering.restoring.target import MANIFEST
from tests.doubles.archive import EVERYTHING, Archive

pytestmark = pytest.mark.integration


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive.of(tmp_path)
    made.copy()
    with made.open() as app:
        metadata = app.adapters.stores.metadata
        for partition in metadata.partitions():
            for row in metadata.list_segments(partition):
                metadata.record_verdict(row.metadata.remote_log_segment_id, Verdict.PASSED)
    return made


def restore(archive: Archive, output: Path, *options: str, code: int = 0) -> dict[str, Any]:
    result = archive.command("restore", "orders", "--output", str(output), "--json", *options)
    assert result.exit_code == code, result.output
    return dict(json.loads(result.stdout)) if code in (0, 1) else {"error": result.output}


def set_verdict(archive: Archive, number: int, start_offset: int, verdict: Verdict) -> str:
    with archive.open() as app:
        metadata = app.adapters.stores.metadata
        (row,) = (
            row
            for partition in metadata.partitions()
            if partition.partition == number
            for row in metadata.list_segments(partition)
            if row.metadata.start_offset == start_offset
        )
        metadata.record_verdict(row.metadata.remote_log_segment_id, verdict)
        return str(row.metadata.remote_log_segment_id.id)


@pytest.mark.parametrize("start_offset", [EVERYTHING[0][0], EVERYTHING[0][-1]])
def test_a_segment_at_an_end_that_is_not_served_is_named_in_each_run(
    archive: Archive, tmp_path: Path, start_offset: int
) -> None:
    segment_id = set_verdict(archive, 0, start_offset, Verdict.NONE)
    for _ in range(2):
        found = restore(archive, tmp_path / "target", "--partition", "0", code=1)
        assert not found["complete"]
        assert any(segment_id in sentence for sentence in found["said"]), found["said"]
    set_verdict(archive, 0, start_offset, Verdict.PASSED)
    if start_offset:
        assert restore(archive, tmp_path / "target", "--partition", "0")["complete"]


def test_offsets_that_are_not_there_are_lacking_in_each_run(archive: Archive, tmp_path: Path) -> None:
    options = ("--partition", "0", "--to-offset", "100000")
    for _ in range(2):
        found = restore(archive, tmp_path / "target", *options, code=1)
        assert any("100000 is outside" in sentence for sentence in found["said"]), found["said"]


def test_a_partition_without_wanted_records_lacks_nothing_in_each_run(archive: Archive, tmp_path: Path) -> None:
    with archive.open() as app:
        newest = {
            partition.partition: max(
                row.metadata.max_timestamp_ms for row in app.adapters.stores.metadata.list_segments(partition)
            )
            for partition in app.adapters.stores.metadata.partitions()
        }
    after = str(min(newest.values()) + 1)
    for _ in range(2):
        found = restore(archive, tmp_path / "target", "--from-time", after)
        assert (found["complete"], len(found["partitions"])) == (True, 1)


def test_a_range_without_records_is_said_in_each_run(archive: Archive, tmp_path: Path) -> None:
    for _ in range(2):
        found = restore(archive, tmp_path / "target", "--from-time", "2200-01-01T00:00:00Z", code=1)
        assert found["said"] == ["orders: it has no record in the wanted offsets and times"]
    for begin, end in (("--from-offset", "--to-offset"), ("--from-time", "--to-time")):
        found = restore(archive, tmp_path / "other", "--partition", "0", begin, "90", end, "90", code=2)
        assert "the begin 90 is not below the end 90" in found["error"]
    assert not (tmp_path / "other").exists()


def forget(target: Path, base_offset: int) -> None:
    """Make a target that of a restore that was killed before it had the segment with this base offset."""
    begin, *lines = (target / MANIFEST).read_text().splitlines(keepends=True)
    (forgotten,) = (line for line in lines if json.loads(line)["base_offset"] == base_offset)
    for name in json.loads(forgotten)["files"]:
        (target / name).unlink()
    (target / MANIFEST).write_text("".join([begin, *(line for line in lines if line != forgotten)]))


@pytest.mark.parametrize("form", ["segments", "parquet"])
def test_what_expires_behind_a_restore_stays_a_part_of_it(archive: Archive, tmp_path: Path, form: str) -> None:
    target, options = tmp_path / "target", ("--partition", "0", "--form", form)
    found = restore(archive, target, *options)
    before = {path: path.read_bytes() for path in sorted(target.rglob("*")) if path.is_file()}
    forget(target, EVERYTHING[0][-1])
    archive.set(retention_bytes=60_000)
    archive.expire()
    left = archive.offsets(0)
    assert 0 < len(left) < len(EVERYTHING[0])
    again = restore(archive, target, *options)
    assert (again["complete"], again["cost"]["segments"]) == (True, 1)
    assert again["partitions"] == found["partitions"]
    manifest, files = (
        before.pop(target / MANIFEST),
        {path: path.read_bytes() for path in target.rglob("*") if path.is_file()},
    )
    assert sorted(files.pop(target / MANIFEST).splitlines()) == sorted(manifest.splitlines())
    assert files == before
    if form == "segments":
        epochs = checkpoints.parse_leader_epochs((target / "orders-0" / "leader-epoch-checkpoint").read_bytes())
        assert epochs.entries[0].start_offset == 0
        assert checkpoints.parse_offset_checkpoint((target / LOG_STARTS).read_bytes()) == {("orders", 0): 0}


def test_what_expires_before_it_is_restored_is_lacking_in_each_run(archive: Archive, tmp_path: Path) -> None:
    target = tmp_path / "target"
    restore(archive, target, "--partition", "0")
    forget(target, EVERYTHING[0][1])
    archive.set(retention_bytes=60_000)
    archive.expire()
    for _ in range(2):
        found = restore(archive, target, "--partition", "0", code=1)
        assert any("offset 96 is outside" in sentence for sentence in found["said"]), found["said"]
        assert found["partitions"][0]["restored_segments"] == len(EVERYTHING[0]) - 1


def test_another_segment_with_the_same_offsets_does_not_continue_a_restore(archive: Archive, tmp_path: Path) -> None:
    target = tmp_path / "target"
    restore(archive, target, "--partition", "0")
    manifest = (target / MANIFEST).read_text()
    segment_id = json.loads(manifest.splitlines()[1])["segment_id"]
    (target / MANIFEST).write_text(manifest.replace(segment_id, "A" * 21 + "Q"))
    assert "has other segments by now" in restore(archive, target, "--partition", "0", code=2)["error"]


def test_no_restore_writes_into_a_log_dir_or_the_archive(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(archive.brokers / "broker-1")
    for output in (archive.brokers / "broker-1" / "copy", tmp_path / "link" / "copy", tmp_path / "store" / "orders"):
        for options in ((), ("--dry-run",)):
            assert "nothing may be written" in restore(archive, output, *options, code=2)["error"]
        assert not output.exists()


def test_no_other_storage_lies_in_a_log_dir(archive: Archive, tmp_path: Path) -> None:
    """A broker does not start with a directory in its log directory that is no partition's."""
    config, place = tmp_path / "other.toml", archive.brokers / "broker-1" / "tiered"
    config.write_text(f'[remote_storage]\nurl = "{place.as_uri()}"\n')
    for options in ((), ("--dry-run",)):
        wanted = ("--form", "storage", "--into", str(config), *options)
        error = restore(archive, tmp_path / "target", *wanted, code=2)["error"]
        assert "nothing may be written" in error, error
    assert not place.exists()


@pytest.mark.parametrize("options", [(), ("--offset", "0")])
def test_no_fetch_writes_into_a_log_dir_or_the_archive(
    archive: Archive, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Where its files would replace those of a broker."""
    logs = {path: path.stat().st_ino for path in (archive.brokers / "broker-1").rglob("*") if path.is_file()}
    for output in (archive.brokers / "broker-1", tmp_path / "store"):
        result = archive.command("fetch", "orders", "0", "--output", str(output), *options)
        assert result.exit_code == 2, result.output
        assert "nothing may be written" in result.output
    assert {path: path.stat().st_ino for path in (archive.brokers / "broker-1").rglob("*") if path.is_file()} == logs


def test_a_fetch_of_a_partition_follows_no_link(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "orders-0").symlink_to(tmp_path / "elsewhere")
    result = archive.command("fetch", "orders", "0", "--output", str(tmp_path / "out"))
    assert (result.exit_code, list((tmp_path / "elsewhere").iterdir())) == (2, []), result.output


def test_the_archive_is_no_other_storage_under_another_spelling(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(tmp_path)
    config = tmp_path / "other.toml"
    for place in ("alias/store", "alias/store/below", "store//"):
        config.write_text(f'[remote_storage]\nurl = "file://{tmp_path}/{place}"\n')
        error = restore(archive, tmp_path / "target", "--form", "storage", "--into", str(config), code=2)["error"]
        assert "overlaps the storage" in error, error
    assert not (tmp_path / "store" / "below").exists()
