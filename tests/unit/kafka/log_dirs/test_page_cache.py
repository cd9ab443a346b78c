"""What was not in memory when a file was opened is not there either once it is closed; what was there stays."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from include.tiering.kafka.log_dirs import files
from include.tiering.kafka.log_dirs.files import BrokerDirectory, cold_ranges
from include.tiering.units import MIB

SIZE = 8 * MIB + 7
HOT = 3 * MIB


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A directory that does not lie in memory, as temporary ones may."""
    with TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def cold_file(on_disk: Path) -> Path:
    """On the disk and not in memory, but for the MiB at `HOT`. Skips where that cannot be told."""
    path = on_disk / "f"
    path.write_bytes(os.urandom(SIZE))
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(fd, MIB, HOT)
    finally:
        os.close(fd)
    if _cold(path) != [(0, HOT), (HOT + MIB, SIZE // MIB * MIB - HOT)]:
        pytest.skip("this kernel or file system does not tell, or does not drop")
    return path


def _cold(path: Path) -> list[tuple[int, int]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return list(cold_ranges(fd, SIZE))
    finally:
        os.close(fd)


def test_a_file_that_was_read_twice_leaves_memory_as_it_was(cold_file: Path) -> None:
    before = _cold(cold_file)
    with BrokerDirectory.open(str(cold_file.parent)) as directory, directory.file("f", bulk=True) as file:
        for _check_then_send in range(2):
            file.read_at(0, SIZE)
        assert _cold(cold_file) == []
    assert _cold(cold_file) == before


def test_what_is_not_read_in_bulk_stays_in_memory(cold_file: Path) -> None:
    with BrokerDirectory.open(str(cold_file.parent)) as directory, directory.file("f") as file:
        file.read_at(0, SIZE)
    assert _cold(cold_file) == []


def test_where_nobody_can_tell_everything_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(SIZE))
    monkeypatch.setattr(files, "_CACHESTAT", -1)
    assert _cold(path) == [(0, 9 * MIB)]


def test_of_a_file_that_pretends_to_be_endless_so_much_is_asked_as_a_segment_can_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    with path.open("wb") as sparse:
        sparse.truncate(1 << 42)
    monkeypatch.setattr(files, "_MOST_BYTES", 2 * MIB)
    fd = os.open(path, os.O_RDONLY)
    try:
        assert list(cold_ranges(fd, 1 << 42)) == [(0, 2 * MIB)]
    finally:
        os.close(fd)
