"""Names of directories, files and topics."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import CorruptFileError, FormatError, OldMagicError, SourceVanishedError
from include.tiering.kafka.log_dirs.contract import matches
from include.tiering.kafka.log_dirs.dirs import Tail, in_file, last_index_entry, read_meta_properties
from include.tiering.kafka.log_dirs.files import (
    BrokerDirectory,
    DirectoryState,
    FileKind,
    PartitionDirectoryName,
    is_harmless,
    is_passing,
    offset_file,
    parse_offset_file,
    parse_partition_directory,
)
from include.tiering.kafka.log_dirs.found_replica import cache_names
from include.tiering.model.segments import Uuid
from tests.doubles.damage import HOSTILE_FILES, HOSTILE_NAMES

# Names of a log directory: what a broker writes is understood, everything else is not.

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


# Errors that name their file, and the last entry of a preallocated index.


def test_a_format_error_gets_its_path() -> None:
    with pytest.raises(CorruptFileError, match=r"/d/f at byte 107: bad") as raised, in_file("/d/f", 100):
        raise FormatError("bad", 7)
    assert (raised.value.path, raised.value.position, raised.value.message) == ("/d/f", 107, "bad")


def test_an_old_record_format_is_not_damage() -> None:
    with pytest.raises(OldMagicError), in_file("/d/f"):
        raise OldMagicError("magic 1")


def test_meta_properties(tmp_path: Path) -> None:
    with BrokerDirectory.open(str(tmp_path)) as root:
        with pytest.raises(SourceVanishedError):
            read_meta_properties(root)
        (tmp_path / "meta.properties").write_text("version=1\nnode.id=4\ncluster.id=abc\n")
        meta = read_meta_properties(root)
        assert (meta.node_id, meta.cluster_id, meta.directory_id) == (4, "abc", None)
        (tmp_path / "meta.properties").write_text("version=7\n")
        with pytest.raises(CorruptFileError, match="version"):
            read_meta_properties(root)


@given(entries=st.integers(0, 40), zeros=st.integers(0, 200))
def test_the_last_entry_before_the_zeros(tmp_path_factory: pytest.TempPathFactory, entries: int, zeros: int) -> None:
    directory = tmp_path_factory.mktemp("index", numbered=True)
    data = b"".join(struct.pack(">ii", number + 1, number * 7) for number in range(entries))
    (directory / "index").write_bytes(data + bytes(8 * zeros))
    with BrokerDirectory.open(str(directory)) as opened, opened.file("index") as index:
        assert last_index_entry(index, 8) == (data[-8:] or None)


def test_the_last_entry_of_a_preallocated_index_costs_few_reads(tmp_path: Path) -> None:
    with (tmp_path / "index").open("wb") as file:
        file.write(struct.pack(">iiii", 1, 1, 2, 2))
        file.truncate(1 << 40)
    with BrokerDirectory.open(str(tmp_path)) as directory, directory.file("index") as index:
        assert last_index_entry(index, 8) == struct.pack(">ii", 2, 2)


def test_a_tail_is_the_rest_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    buffer = bytearray(4)
    with BrokerDirectory.open(str(tmp_path)) as directory, directory.file("f") as file:
        tail = Tail(file, 7)
        assert tail.size_bytes == 3
        assert tail.read_into(1, memoryview(buffer)) == 2
        assert Tail(file, 20).size_bytes == 0
    assert bytes(buffer[:2]) == b"89"


# Shell style patterns of topics.


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (None, True),
        ([], False),
        (["*"], True),
        (["orders"], True),
        (["ord*"], True),
        (["ORDERS"], False),
        (["a", "o?ders"], True),
    ],
)
def test_patterns(patterns: list[str] | None, expected: bool) -> None:
    assert matches("orders", patterns) is expected


# Names that were recorded of topic ids: how often they are asked for.

ORDERS, PAYMENTS = Uuid(b"o" * 16), Uuid(b"p" * 16)


def test_a_recorded_name_is_asked_for_once_and_a_missing_one_each_time() -> None:
    asked: list[Uuid] = []
    known: dict[Uuid, str] = {ORDERS: "orders"}

    def recorded(topic_id: Uuid) -> str | None:
        asked.append(topic_id)
        return known.get(topic_id)

    name = cache_names(recorded)
    assert [name(ORDERS), name(ORDERS), name(PAYMENTS)] == ["orders", "orders", None]
    known[PAYMENTS] = "payments"
    assert [name(PAYMENTS), name(PAYMENTS)] == ["payments", "payments"]
    assert asked == [ORDERS, PAYMENTS, PAYMENTS]
