"""Files of a running broker: nothing is followed, nothing blocks, every failure has a type and a path."""

import os
from pathlib import Path

import pytest

from include.tiering.errors import (
    CorruptFileError,
    HostileNameError,
    SourceChangedError,
    SourceUnreadableError,
    SourceVanishedError,
)
from include.tiering.kafka.log_dirs.files import BrokerDirectory
from include.tiering.units import MIB


def _fill(path: Path, size: int) -> bytes:
    data = os.urandom(size)
    path.write_bytes(data)
    return data


def test_reads_at_any_position_and_short_only_at_the_end(tmp_path: Path) -> None:
    data = _fill(tmp_path / "f", 1000)
    with BrokerDirectory.open(str(tmp_path)) as directory, directory.file("f") as file:
        assert file.size_bytes == 1000
        buffer = bytearray(300)
        assert file.read_into(100, memoryview(buffer)) == 300
        assert bytes(buffer) == data[100:400]
        assert file.read_into(900, memoryview(buffer)) == 100
        assert file.read_into(1000, memoryview(buffer)) == 0
        assert file.read_into(2000, memoryview(buffer)) == 0
        assert file.read_at(990, 50) == data[990:]
        assert file.read_at(5000, 50) == b""


def test_bulk_reads_give_the_same_bytes(tmp_path: Path) -> None:
    data = _fill(tmp_path / "f", 20 * MIB + 7)
    with BrokerDirectory.open(str(tmp_path)) as directory, directory.file("f", bulk=True) as file:
        blocks = [file.read_at(position, MIB) for position in range(0, file.size_bytes, MIB)]
        again = file.read_at(0, 100)
    assert b"".join(blocks) == data
    assert again == data[:100]


def test_a_file_that_shrinks_is_noticed(tmp_path: Path) -> None:
    _fill(tmp_path / "f", 1000)
    with BrokerDirectory.open(str(tmp_path)) as directory, directory.file("f") as file:
        os.truncate(tmp_path / "f", 400)
        with pytest.raises(SourceChangedError, match="had 1000 bytes when it was opened, now 400") as raised:
            file.read_at(0, 1000)
        assert raised.value.position == 400


def test_a_file_that_grows_keeps_its_size(tmp_path: Path) -> None:
    _fill(tmp_path / "f", 100)
    with BrokerDirectory.open(str(tmp_path)) as directory, directory.file("f") as file:
        with (tmp_path / "f").open("ab") as grown:
            grown.write(b"more")
        assert len(file.read_at(0, 1000)) == 100


def test_links_are_not_followed(tmp_path: Path) -> None:
    _fill(tmp_path / "target", 10)
    (tmp_path / "inside").symlink_to("target")
    (tmp_path / "outside").symlink_to("/etc/passwd")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dir").symlink_to("/etc")
    with BrokerDirectory.open(str(tmp_path)) as directory:
        for name in ("inside", "outside", "dangling", "loop"):
            with pytest.raises(HostileNameError, match="symbolic link"):
                directory.file(name)
        with pytest.raises(HostileNameError, match="symbolic link"):
            directory.directory("dir")


def test_the_users_own_directory_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "f").write_bytes(b"data")
    (tmp_path / "link").symlink_to("real")
    with BrokerDirectory.open(str(tmp_path / "link")) as directory:
        assert directory.read("f", 10) == b"data"


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dir").mkdir()
    _fill(tmp_path / "f", 1)
    with BrokerDirectory.open(str(tmp_path)) as directory:
        for name in ("pipe", "dir"):
            with pytest.raises(SourceUnreadableError, match="not a regular file"):
                directory.file(name)
        with pytest.raises(SourceUnreadableError, match="not a directory"):
            directory.directory("f")


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceVanishedError):
        BrokerDirectory.open(str(tmp_path / "nowhere"))
    with BrokerDirectory.open(str(tmp_path)) as directory:
        for ask in (directory.file, directory.directory, directory.stat):
            with pytest.raises(SourceVanishedError, match="no such file") as raised:
                ask("nothing")
            assert raised.value.path == f"{tmp_path}/nothing"


def test_a_file_of_unbelievable_size_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    os.truncate(tmp_path / "f", 1 << 40)
    with BrokerDirectory.open(str(tmp_path)) as directory, pytest.raises(CorruptFileError, match="at most 1024"):
        directory.read("f", 1024)


def test_names_are_looked_up_in_the_directory_that_was_opened(tmp_path: Path) -> None:
    """A directory that is renamed, and another put in its place, does not confuse who holds it open."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "f").write_bytes(b"old")
    with BrokerDirectory.open(str(tmp_path / "dir")) as directory:
        (tmp_path / "dir").rename(tmp_path / "aside")
        (tmp_path / "dir").mkdir()
        (tmp_path / "dir" / "f").write_bytes(b"new")
        assert directory.read("f", 10) == b"old"
        assert [entry.name for entry in directory.entries()] == ["f"]
        with BrokerDirectory.open(str(tmp_path / "dir")) as other:
            assert other.identity() != directory.identity()


def test_no_file_descriptor_is_left(tmp_path: Path) -> None:
    _fill(tmp_path / "f", 1)
    os.mkfifo(tmp_path / "pipe")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with BrokerDirectory.open(str(tmp_path)) as directory:
        directory.read("f", 10)
        for name in ("pipe", "nothing"):
            with pytest.raises((SourceUnreadableError, SourceVanishedError)):
                directory.file(name)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
