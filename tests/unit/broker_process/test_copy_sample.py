"""Bytes of real brokers' log directories copied for another broker; the originals are read, and no more."""

import os
import shutil
from pathlib import Path

import pytest

from include.tiering.broker_process.sample import copy_sample, require_free_space
from include.tiering.errors import HostileNameError, RehearsalSpaceError, SourceChangedError, SourceVanishedError
from include.tiering.formats import checkpoints
from include.tiering.kafka.log_dirs.contract import LogSegment
from include.tiering.model.segments import Uuid
from include.tiering.units import MIB
from tests.doubles.broker_data import broker_data, copy_of
from tests.doubles.sampled_partitions import BROKER, sampled, scanned


def ignore(_: int) -> None:
    """For those who do not count."""


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    made = tmp_path / "copy"
    made.mkdir()
    return made


def test_a_running_brokers_partition_is_the_same_partition_in_the_copy(target: Path) -> None:
    source = broker_data("public") / BROKER
    sample = sampled(source, "orders")
    copied_bytes: list[int] = []
    copy_sample(sample, source, target, copied_bytes.append)
    assert sum(copied_bytes) >= sample.size_bytes

    was, is_now = files(source / "orders-0"), files(target / "orders-0")
    active = f"{sample.active.base_offset:020d}"
    assert is_now[f"{active}.log"] == was[f"{active}.log"][: sample.active.size_bytes]
    assert {f"{active}.index", f"{active}.timeindex"}.isdisjoint(is_now), "the broker's recovery makes them"
    for name in is_now.keys() - {f"{active}.log", "leader-epoch-checkpoint", "partition.metadata"}:
        assert is_now[name] == was[name]
        assert (target / "orders-0" / name).stat().st_mtime_ns == (source / "orders-0" / name).stat().st_mtime_ns
    assert checkpoints.parse_leader_epochs(is_now["leader-epoch-checkpoint"]) == sample.leader_epochs
    assert is_now["partition.metadata"] == was["partition.metadata"]

    shutil.copy(source / "meta.properties", target)
    (found,) = scanned(target, "orders")
    assert [_bytes(one) for one in found.segments] == [_bytes(one) for one in sample.segments]
    assert found.leader_epochs == sample.leader_epochs
    assert not [one for one in found.segments if one.reason and "corrupt" in one.reason.code]


def _bytes(segment: LogSegment) -> tuple[int, int, int, int]:
    return segment.base_offset, segment.end_offset, segment.size_bytes, segment.max_timestamp_ms


def test_only_the_newest_segments_are_there_and_their_epochs(target: Path) -> None:
    source = broker_data("public") / BROKER
    whole, sample = sampled(source, "orders"), sampled(source, "orders", 1)
    copy_sample(sample, source, target, ignore)
    bases = {int(path.stem) for path in (target / "orders-0").glob("*.log")}
    assert bases == {segment.base_offset for segment in whole.segments[-2:]}
    assert sample.leader_epochs.entries[0].start_offset == sample.start_offset > 0
    assert (target / "orders-0" / f"{sample.start_offset:020d}.snapshot").exists(), "what producers had written before"


def test_nothing_is_linked_and_nothing_of_the_broker_changes(tmp_path: Path, target: Path) -> None:
    source = copy_of("public", tmp_path, part=BROKER)
    before = _seen(source)
    copy_sample(sampled(source, "orders"), source, target, ignore)
    assert _seen(source) == before
    inodes = {path.stat().st_ino for path in source.rglob("*")}
    for path in (target / "orders-0").iterdir():
        status = path.lstat()
        assert (status.st_nlink, status.st_ino in inodes, path.is_symlink()) == (1, False, False)


def _seen(directory: Path) -> dict[str, tuple[int, int, int, int]]:
    statuses = {str(path): path.lstat() for path in directory.rglob("*")}
    return {path: (one.st_ino, one.st_size, one.st_mtime_ns, one.st_nlink) for path, one in statuses.items()}


def test_a_link_in_the_place_of_a_log_is_not_followed(tmp_path: Path, target: Path) -> None:
    source = copy_of("public", tmp_path, part=BROKER)
    sample = sampled(source, "orders")
    log = source / "orders-0" / f"{sample.start_offset:020d}.log"
    secret = tmp_path / "secret"
    log.rename(secret)
    log.symlink_to(secret)
    with pytest.raises(HostileNameError, match="a symbolic link"):
        copy_sample(sample, source, target, ignore)


def test_a_directory_that_is_a_link_is_not_followed(tmp_path: Path, target: Path) -> None:
    source = copy_of("public", tmp_path, part=BROKER)
    sample = sampled(source, "orders")
    (source / "orders-0").rename(tmp_path / "elsewhere")
    (source / "orders-0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HostileNameError):
        copy_sample(sample, source, target, ignore)


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex"])
def test_a_file_that_retention_took_meanwhile_is_worth_another_try(tmp_path: Path, target: Path, suffix: str) -> None:
    source = copy_of("public", tmp_path, part=BROKER)
    sample = sampled(source, "orders")
    (source / "orders-0" / f"{sample.start_offset:020d}.{suffix}").unlink()
    with pytest.raises(SourceVanishedError) as raised:
        copy_sample(sample, source, target, ignore)
    assert raised.value.retriable


def test_a_log_that_was_cut_meanwhile_is_named_with_both_sizes(tmp_path: Path, target: Path) -> None:
    source = copy_of("public", tmp_path, part=BROKER)
    sample = sampled(source, "orders")
    os.truncate(source / "orders-0" / f"{sample.active.base_offset:020d}.log", 17)
    with pytest.raises(SourceChangedError, match=f"had {sample.active.size_bytes} bytes when it was listed, now 17"):
        copy_sample(sample, source, target, ignore)


def test_a_topic_that_was_created_anew_meanwhile_is_another_one(tmp_path: Path, target: Path) -> None:
    source = copy_of("public", tmp_path, part=BROKER)
    sample = sampled(source, "orders")
    metadata = source / "orders-0" / "partition.metadata"
    metadata.write_bytes(checkpoints.serialize_partition_metadata(Uuid(b"another-topic-id")))
    with pytest.raises(SourceChangedError, match="topic id was"):
        copy_sample(sample, source, target, ignore)


def test_room_is_asked_for_three_times_and_the_way_out_is_named() -> None:
    needed = 3 * 100 * MIB + 64 * MIB
    require_free_space(100 * MIB, needed, Path("/scratch"))
    with pytest.raises(RehearsalSpaceError, match=r"/scratch has 364\.0 MiB free.*100\.0 MiB needs 364\.0 MiB.*TMPDIR"):
        require_free_space(100 * MIB, needed - 1, Path("/scratch"))
