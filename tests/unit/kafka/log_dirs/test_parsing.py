"""Errors that name their file, and the last entry of a preallocated index."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import CorruptFileError, FormatError, OldMagicError, SourceVanishedError
from include.tiering.kafka.log_dirs.dirs import Tail, in_file, last_index_entry, read_meta_properties
from include.tiering.kafka.log_dirs.files import BrokerDirectory


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
