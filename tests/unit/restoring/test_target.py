"""What may be written into the target of a restore, and what a crash leaves in it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from include.tiering.errors import SettingError
from include.tiering.model.histories import OffsetRange
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.reading.plan_scan import Bound, BoundKind
from include.tiering.restoring.plan import PartKey, RestoredPart, RestoreRequest
from include.tiering.restoring.target import MANIFEST, Resolved, RestoreStep, identity_of, opened, read_done

PARTITION = TopicIdPartition(Uuid(bytes(range(16))), 0, "orders")
IDENTITY = identity_of(RestoreRequest((PARTITION,)), "cluster")
RESOLVED = Resolved({0: OffsetRange(0, 99)})


def part(base: int, **files: int) -> RestoredPart:
    sizes = {f"orders-0/{base:020d}.{suffix}": size for suffix, size in files.items()}
    return RestoredPart(PartKey(0, base, "segment"), base + 9, base + 10, sizes, 0xABC, 1, 10, 100)


def write(directory: Path, restored: RestoredPart, **options: Any) -> None:
    with opened(directory, IDENTITY, **options) as target:
        target.begin(IDENTITY, RESOLVED)
        target.subdirectory("orders-0")
        for name, size_bytes in restored.files.items():
            target.write_file(name, b"x" * size_bytes)
        target.enter(restored)


class Died(BaseException):
    """In place of a SIGKILL."""


def test_what_was_entered_is_there_in_the_next_run(tmp_path: Path) -> None:
    target, wanted = tmp_path / "target", part(0, log=5, index=0)
    write(target, wanted)
    assert read_done(target, IDENTITY) == (RESOLVED, {wanted.key: wanted})
    assert sorted(f"orders-0/{path.name}" for path in (target / "orders-0").iterdir()) == sorted(wanted.files)


@pytest.mark.parametrize(("step", "counts"), [(RestoreStep.WRITTEN, False), (RestoreStep.ENTERED, True)])
def test_a_crash_leaves_a_part_or_none(tmp_path: Path, step: RestoreStep, counts: bool) -> None:
    target, wanted = tmp_path / "target", part(0, log=5, index=3)

    def die(reached: RestoreStep) -> None:
        if reached is step:
            raise Died

    with pytest.raises(Died):
        write(target, wanted, observe=die)
    assert (wanted.key in read_done(target, IDENTITY)[1]) is counts
    assert all(path.name.endswith(".partial") for path in (target / "orders-0").iterdir())
    if not counts:
        write(target, wanted)
    with opened(target, IDENTITY) as again:
        again.publish_entered()
    assert sorted(f"orders-0/{path.name}" for path in (target / "orders-0").iterdir()) == sorted(wanted.files)


def test_a_part_whose_file_is_gone_does_not_count(tmp_path: Path) -> None:
    target, wanted = tmp_path / "target", part(0, log=5, index=3)
    write(target, wanted)
    (target / "orders-0" / f"{0:020d}.index").write_bytes(b"longer")
    assert read_done(target, IDENTITY)[1] == {}
    with pytest.raises(SettingError, match="exists already"):
        write(target, wanted)


def test_a_file_that_came_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    target, wanted = tmp_path / "target", part(0, log=5)

    def die(reached: RestoreStep) -> None:
        if reached is RestoreStep.ENTERED:
            raise Died

    with pytest.raises(Died):
        write(target, wanted, observe=die)
    (log,) = wanted.files
    (target / log).write_bytes(b"of another one")
    with opened(target, IDENTITY) as again, pytest.raises(SettingError, match="exists already"):
        again.publish_entered()
    assert (target / log).read_bytes() == b"of another one"


def test_files_that_a_broker_or_reader_would_take_for_records_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    write(target, part(0, log=5))
    with opened(target, IDENTITY) as again:
        again.require_own(())
        (target / "orders-0" / f"{500:020d}.log").write_bytes(b"of another topic")
        with pytest.raises(SettingError, match="is not of this restore"):
            again.require_own(())


def test_what_a_crash_left_of_a_part_that_nobody_writes_again_is_removed(tmp_path: Path) -> None:
    """Of a part whose segment has expired since."""
    target, kept = tmp_path / "target", part(0, log=5)

    def die(reached: RestoreStep) -> None:
        raise Died

    write(target, kept)
    with pytest.raises(Died):
        write(target, part(500, log=3, index=1), observe=die)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "other.partial").write_text("of another one")
    (target / "link").symlink_to(tmp_path / "elsewhere")
    assert len(list((target / "orders-0").glob("*.partial"))) == 2
    with opened(target, IDENTITY) as again:
        again.publish_entered()
        again.remove_partial()
    assert [f"orders-0/{path.name}" for path in (target / "orders-0").iterdir()] == list(kept.files)
    assert (tmp_path / "elsewhere" / "other.partial").exists()


def test_two_segments_with_one_base_offset_are_two_parts(tmp_path: Path) -> None:
    """Of two histories, which are copied whole into another storage."""
    target, first = tmp_path / "target", replace(part(0), files={})
    second = replace(first, key=first.key._replace(segment_id="another"))
    write(target, first)
    write(target, second)
    assert read_done(target, IDENTITY)[1] == {first.key: first, second.key: second}


def test_a_target_that_a_broker_uses_by_now_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    write(target, part(0, log=5))
    (target / "meta.properties").write_text("version=1")
    with pytest.raises(SettingError, match="log directory by now"), opened(target, IDENTITY):
        """It never gets here."""


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "orders-0/../../outside", "outside"])
def test_a_manifest_names_no_file_outside_of_its_directories(tmp_path: Path, name: str) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    write(target, part(0, log=1))
    outside.write_bytes(b"kept")
    (tmp_path / "outside.partial").write_bytes(b"x")
    path = target / MANIFEST
    (log,) = part(0, log=1).files
    path.write_text(path.read_text().replace(log, name))
    with pytest.raises(SettingError, match="is damaged"), opened(target, IDENTITY) as again:
        again.publish_entered()
    assert outside.read_bytes() == b"kept"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with opened(target, IDENTITY), pytest.raises(SettingError, match="another process"), opened(target, IDENTITY):
        """It never gets here."""


def test_a_link_in_the_place_of_a_partition_is_refused(tmp_path: Path) -> None:
    target, elsewhere = tmp_path / "target", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with opened(target, IDENTITY) as found:
        (target / "orders-0").symlink_to(elsewhere)
        with pytest.raises(SettingError, match="is a link"):
            found.subdirectory("orders-0")


def test_a_manifest_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    target, elsewhere = tmp_path / "target", tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    target.mkdir()
    (target / MANIFEST).symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic links"), opened(target, IDENTITY):
        """It never gets here."""
    assert elsewhere.read_text() == "kept"


@pytest.mark.parametrize("name", ["../up", "a/b", "..", ".", "", ".hidden", "date=../x"])
def test_a_directory_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with opened(tmp_path / "target", IDENTITY) as found, pytest.raises(SettingError, match="cannot be the name"):
        found.subdirectory(name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["target"]


@pytest.mark.parametrize("topic", ["../up", "a/b", "..", "", "x" * 250])
def test_a_topic_name_that_leads_elsewhere_is_none(topic: str) -> None:
    with pytest.raises(ValueError, match="topic"):
        TopicIdPartition(Uuid(bytes(range(16))), 0, topic)


def test_a_damaged_manifest_is_said(tmp_path: Path) -> None:
    target = tmp_path / "target"
    write(target, part(0, log=1))
    path = target / MANIFEST
    first = path.read_text().splitlines()[0]
    for line in ("{", "[]", json.dumps({"partition": 0})):
        path.write_text(f"{first}\n{line}\n")
        with pytest.raises(SettingError, match="is damaged"):
            read_done(target, IDENTITY)


def test_another_request_is_another_restore(tmp_path: Path) -> None:
    target = tmp_path / "target"
    write(target, part(0, log=1))
    for other in (
        RestoreRequest((PARTITION,), start=Bound(BoundKind.TIMESTAMP, 5)),
        RestoreRequest((TopicIdPartition(Uuid(bytes(range(1, 17))), 0, "orders"),)),
    ):
        with pytest.raises(SettingError, match="holds another restore"):
            read_done(target, identity_of(other, "cluster"))
    with pytest.raises(SettingError, match="cluster_id"):
        read_done(target, identity_of(RestoreRequest((PARTITION,)), "another"))
