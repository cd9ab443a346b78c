"""The sample of segments that a throw-away broker serves, and how it is copied."""

import os
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.broker_process.sample import (
    PartitionSample,
    copy_sample,
    require_free_space,
    sample_of,
    samples_of,
)
from include.tiering.errors import (
    HostileNameError,
    RehearsalError,
    RehearsalSpaceError,
    SourceChangedError,
    SourceVanishedError,
    UnknownTopicError,
)
from include.tiering.formats import checkpoints
from include.tiering.kafka.cluster.contract import PartitionMetadata, TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica, ScanError, ScanReport
from include.tiering.model.segments import Uuid
from include.tiering.units import MIB
from tests.doubles.broker_data import broker_data, copy_of
from tests.doubles.segments import ORDERS, replica
from tests.doubles.stored_log import BROKER, sampled, scanned

# Which segments are rehearsed, and what is refused before a byte is copied.

OTHER = Uuid(b"orders-topic-id1")


def topic_metadata(partitions: int) -> TopicMetadata:
    return TopicMetadata(
        "orders",
        ORDERS,
        partitions={number: PartitionMetadata(number, 7, 0, (7,), (7,)) for number in range(partitions)},
    )


def report(*replicas: Replica, errors: tuple[ScanError, ...] = ()) -> ScanReport:
    return ScanReport("cluster", replicas, errors)


def bases(sample: PartitionSample) -> list[int]:
    return [segment.base_offset for segment in sample.segments]


@given(st.lists(st.integers(0, 100), min_size=1, max_size=8), st.integers(1, 500))
def test_the_newest_segments_that_fit_are_taken_without_a_gap_up_to_the_end(sizes: list[int], bound: int) -> None:
    sample = sample_of(replica(sizes), bound)
    suffixes = [sizes[start:] for start in range(len(sizes))]
    fitting = [one for one in suffixes if sum(one) <= bound or len(one) <= min(2, len(sizes))]
    assert [segment.size_bytes for segment in sample.segments] == max(fitting, key=len)
    assert all(one.end_offset + 1 == after.base_offset for one, after in pairwise(sample.segments))
    assert (sample.log_end_offset, sample.active.active) == (10 * len(sizes), True)
    assert sample.size_bytes == sum(segment.size_bytes for segment in sample.segments)


def test_the_newest_rolled_segment_is_taken_whatever_the_bound() -> None:
    assert bases(sample_of(replica([100, 100, 100]), 1)) == [10, 20]


def test_nothing_below_the_log_start_is_taken() -> None:
    below = {0: IneligibleReason.BELOW_LOG_START, 1: IneligibleReason.BELOW_LOG_START}
    assert bases(sample_of(replica([1, 1, 1, 1], reasons=below), 1_000)) == [20, 30]


def test_a_log_start_within_the_first_segment_is_kept() -> None:
    cut = replace(replica([1, 1, 1]), log_start_offset=13)
    assert sample_of(cut, 2).log_start_offset == 13
    assert sample_of(replace(cut, log_start_offset=3), 2).log_start_offset == 10


def test_epochs_are_those_of_the_sampled_records() -> None:
    epochs = ((3, 0), (5, 12), (9, 27), (12, 30))
    sample = sample_of(replica([1, 1, 1], epochs=epochs), 2)
    assert bases(sample) == [10, 20]
    assert list(sample.leader_epochs) == [(3, 10), (5, 12), (9, 27)]
    assert sample.leader_epoch == 12, "the last one, though no record of it is there"


@pytest.mark.parametrize(
    "reason", [IneligibleReason.CORRUPT, IneligibleReason.COMPACTED, IneligibleReason.BROKER_TIERED]
)
def test_what_a_hand_over_would_refuse_is_refused_at_once(reason: IneligibleReason) -> None:
    with pytest.raises(RehearsalError, match=f"orders-0, segment at offset 10: {reason}"):
        sample_of(replica([1, 1, 1], reasons={1: reason}), 1_000)
    assert bases(sample_of(replica([1, 1, 1, 1], reasons={0: reason}), 3)) == [10, 20, 30], "it is not looked at"


def test_every_partition_is_sampled_in_order() -> None:
    found = samples_of(
        "orders", report(replica([1], partition=1), replica([1, 1]), replica([1], chosen=False)), None, 9
    )
    assert [sample.partition for sample in found] == [0, 1]
    assert samples_of("orders", report(*(replica([1, 1], partition=one) for one in (0, 1))), topic_metadata(2), 9)


def test_an_unknown_topic_is_named_with_what_could_not_be_read() -> None:
    unreadable = ScanError("/kafka/a", None, "SourceUnreadableError", "permission denied")
    with pytest.raises(UnknownTopicError, match=r"topic orders \(/kafka/a: permission denied\)"):
        samples_of("orders", report(errors=(unreadable,)), None, 9)
    with pytest.raises(UnknownTopicError):
        samples_of("orders", report(replica([1, 1], topic_id=OTHER)), topic_metadata(1), 9)


def test_a_partition_that_cannot_be_read_here_is_named_with_its_leader() -> None:
    with pytest.raises(RehearsalError, match="2 of 3 partitions cannot be read here: partition 1, led by broker 7"):
        samples_of("orders", report(replica([1, 1]), replica([1, 1], partition=1, chosen=False)), topic_metadata(3), 9)
    with pytest.raises(RehearsalError, match="1 of 2 partitions cannot be read here: partition 0 is in no directory"):
        samples_of("orders", report(replica([1, 1], partition=1)), None, 9)


def test_two_topics_of_one_name_are_not_mixed() -> None:
    with pytest.raises(RehearsalError, match="2 topics of this name"):
        samples_of("orders", report(replica([1, 1]), replica([1, 1], partition=1, topic_id=OTHER)), None, 9)


def test_without_a_rolled_segment_there_is_nothing_to_rehearse() -> None:
    with pytest.raises(RehearsalError, match="no partition has a rolled segment above its log start"):
        samples_of("orders", report(replica([1]), replica([1], partition=1)), None, 9)


# Bytes of real brokers' log directories copied for another broker; the originals are read, and no more.


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
