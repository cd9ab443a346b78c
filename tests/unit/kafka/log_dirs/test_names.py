"""Names of a log directory: what a broker writes is understood, everything else is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.kafka.log_dirs.files import (
    DirectoryState,
    FileKind,
    PartitionDirectoryName,
    is_harmless,
    is_passing,
    offset_file,
    parse_offset_file,
    parse_partition_directory,
)
from tests.doubles.damage import HOSTILE_FILES, HOSTILE_NAMES

_HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("name", "topic", "partition", "state"),
    [
        ("orders-0", "orders", 0, DirectoryState.LIVE),
        ("payments.v1-eu-12", "payments.v1-eu", 12, DirectoryState.LIVE),
        ("a-1-2147483647", "a-1", 2**31 - 1, DirectoryState.LIVE),
        ("__consumer_offsets-49", "__consumer_offsets", 49, DirectoryState.LIVE),
        (f"orders-3.{_HEX}-delete", "orders", 3, DirectoryState.DELETE),
        (f"orders-3.{_HEX}-stray", "orders", 3, DirectoryState.STRAY),
        (f"orders-3.{_HEX}-future", "orders", 3, DirectoryState.FUTURE),
        # A topic may be called like this.
        (f"t.{_HEX}-delete-0", f"t.{_HEX}-delete", 0, DirectoryState.LIVE),
    ],
)
def test_partition_directories(name: str, topic: str, partition: int, state: DirectoryState) -> None:
    assert parse_partition_directory(name) == PartitionDirectoryName(topic, partition, state)


@pytest.mark.parametrize(
    "name", [*HOSTILE_NAMES, "", "..", "orders-2147483648", f"orders.{_HEX}-delete", "a/b-0", "orders-0\n"]
)
def test_no_broker_names_a_partition_directory_like_this(name: str) -> None:
    assert parse_partition_directory(name) is None


_topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda topic: topic not in (".", ".."))


@given(_topics, st.integers(0, 2**31 - 1))
def test_a_partition_directory_is_split_at_its_last_hyphen(topic: str, partition: int) -> None:
    parsed = parse_partition_directory(f"{topic}-{partition}")
    assert parsed == PartitionDirectoryName(topic, partition, DirectoryState.LIVE)


@given(st.integers(0, 2**63 - 1), st.sampled_from(FileKind))
def test_offset_files_round_trip(offset: int, kind: FileKind) -> None:
    assert parse_offset_file(offset_file(offset, kind)) == (offset, kind)


@given(st.text(max_size=40))
def test_an_offset_file_has_one_name(name: str) -> None:
    parsed = parse_offset_file(name)
    assert parsed is None or offset_file(*parsed) == name


@pytest.mark.parametrize(
    "name", [*HOSTILE_FILES, f"{2**63:020d}.log", f"{0:020d}.logs", f"{0:020d}-log", f"{0:020d}.log.deleted"]
)
def test_no_broker_names_a_segment_file_like_this(name: str) -> None:
    assert parse_offset_file(name) is None


@pytest.mark.parametrize("suffix", ["deleted", "cleaned", "swap", "tmp"])
def test_files_on_their_way_in_or_out(suffix: str) -> None:
    assert is_passing(f"{offset_file(0, FileKind.LOG)}.{suffix}")
    assert not is_passing(offset_file(0, FileKind.LOG))


@pytest.mark.parametrize("name", HOSTILE_FILES)
def test_hostile_files_are_not_harmless(name: str) -> None:
    assert not is_harmless(name)


@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "partition.metadata", "quorum-state", ".nfs0000000000000001"]
)
def test_other_plain_names_mean_nothing(name: str) -> None:
    assert is_harmless(name)
