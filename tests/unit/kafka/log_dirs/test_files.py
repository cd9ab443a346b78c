"""Files of log dirs: how they are read, their tails, and the page cache."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from include.tiering.errors import (
    CorruptFileError,
    HostileNameError,
    SourceChangedError,
    SourceUnreadableError,
    SourceVanishedError,
)
from include.tiering.formats.log_batches import LogEnd
from include.tiering.kafka.log_dirs import files
from include.tiering.kafka.log_dirs.files import BrokerDirectory, cold_ranges
from include.tiering.kafka.log_dirs.log_tail import find_active_end
from include.tiering.units import MIB
from tests.doubles.disturbed_directory import DisturbedDirectory
from tests.doubles.log_dirs import BrokerLogDir, PartitionDirectory
from tests.doubles.record_batches import record_batch

# Files of a running broker: nothing is followed, nothing blocks, every failure has a type and a path.


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


# What was not in memory when a file was opened is not there either once it is closed; what was there stays.

CACHED_SIZE = 8 * MIB + 7
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
    path.write_bytes(os.urandom(CACHED_SIZE))
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(fd, MIB, HOT)
    finally:
        os.close(fd)
    if _cold(path) != [(0, HOT), (HOT + MIB, CACHED_SIZE // MIB * MIB - HOT)]:
        pytest.skip("this kernel or file system does not tell, or does not drop")
    return path


def _cold(path: Path) -> list[tuple[int, int]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return list(cold_ranges(fd, CACHED_SIZE))
    finally:
        os.close(fd)


def test_a_file_that_was_read_twice_leaves_memory_as_it_was(cold_file: Path) -> None:
    before = _cold(cold_file)
    with BrokerDirectory.open(str(cold_file.parent)) as directory, directory.file("f", bulk=True) as file:
        for _check_then_send in range(2):
            file.read_at(0, CACHED_SIZE)
        assert _cold(cold_file) == []
    assert _cold(cold_file) == before


def test_what_is_not_read_in_bulk_stays_in_memory(cold_file: Path) -> None:
    with BrokerDirectory.open(str(cold_file.parent)) as directory, directory.file("f") as file:
        file.read_at(0, CACHED_SIZE)
    assert _cold(cold_file) == []


def test_where_nobody_can_tell_everything_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(CACHED_SIZE))
    monkeypatch.setattr(files, "_CACHESTAT", -1)
    assert _cold(path) == [(0, 9 * MIB)]


def test_of_a_file_that_pretends_to_be_endless_so_much_is_asked_as_a_segment_can_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    with path.open("wb") as sparse:
        sparse.truncate(1 << 42)
    monkeypatch.setattr(files, "_MAX_DROPPED_BYTES", 2 * MIB)
    fd = os.open(path, os.O_RDONLY)
    try:
        assert list(cold_ranges(fd, 1 << 42)) == [(0, 2 * MIB)]
    finally:
        os.close(fd)


# The end of the active segment: the index shortens the way, and is not believed blindly.

T0 = 1_700_000_000_000
BATCHES = [record_batch(base, count=10, timestamp_ms=T0 + base) for base in range(100, 200, 10)]
SIZE = sum(map(len, BATCHES))


@pytest.fixture
def partition(tmp_path: Path) -> PartitionDirectory:
    made = BrokerLogDir(tmp_path / "data").partition()
    made.segment(100, BATCHES, preallocated_bytes=SIZE + 5000)
    return made


def _end(partition: PartitionDirectory, *, deep: bool = False) -> LogEnd:
    with BrokerDirectory.open(str(partition.path)) as directory:
        return find_active_end(directory, 100, deep=deep).end


def _as_found(end: LogEnd) -> tuple[int, int, int]:
    return end.log_end_offset, end.valid_bytes, end.max_timestamp_ms


WHOLE = (200, SIZE, T0 + 199)


def test_a_cheap_look_finds_the_same_end_as_a_deep_one(partition: PartitionDirectory) -> None:
    assert _as_found(_end(partition)) == _as_found(_end(partition, deep=True)) == WHOLE
    assert _end(partition, deep=True).batch_count == 10


def test_a_cheap_look_reads_the_tail_only(partition: PartitionDirectory) -> None:
    """Damage far before the tail is found by a deep look; recovery would cut there."""
    with partition.file(100, "log").open("r+b") as log:
        log.seek(len(BATCHES[0]) + 70)
        log.write(b"\xff")
    assert _as_found(_end(partition)) == WHOLE
    assert _end(partition, deep=True).log_end_offset == 110


def test_the_largest_timestamp_may_lie_before_the_tail(tmp_path: Path) -> None:
    partition = BrokerLogDir(tmp_path / "data").partition()
    stamps = [T0 + 1000, T0, T0 + 5]
    partition.segment(100, [record_batch(100 + n, timestamp_ms=stamp) for n, stamp in enumerate(stamps)])
    assert _end(partition).max_timestamp_ms == T0 + 1000


@pytest.mark.parametrize(
    "entry",
    [
        struct.pack(">ii", 99, SIZE - len(BATCHES[-1]) + 1),
        struct.pack(">ii", 99, SIZE + 10_000),
        struct.pack(">ii", 99, -5),
        struct.pack(">ii", -300, 61),
        struct.pack(">ii", 50, SIZE - len(BATCHES[-1])),
        struct.pack(">ii", 500, SIZE - len(BATCHES[-1])),
    ],
    ids=[
        "between batches",
        "behind the file",
        "negative",
        "offset below base",
        "batch above offset",
        "offset not reached",
    ],
)
def test_an_index_that_lies_only_costs_time(partition: PartitionDirectory, entry: bytes) -> None:
    partition.file(100, "index").write_bytes(entry + bytes(80))
    assert _as_found(_end(partition)) == WHOLE


@pytest.mark.parametrize(("relative_offset", "log_end"), [(99, 200), (100, 110), (101, 110)])
def test_an_index_that_names_records_behind_the_end_makes_the_whole_log_be_read(
    partition: PartitionDirectory, relative_offset: int, log_end: int
) -> None:
    """The log ends at 200. Of a log that lost records the tail alone says too little: 110..119 are damaged."""
    with partition.file(100, "log").open("r+b") as log:
        log.seek(len(BATCHES[0]) + 70)
        log.write(b"\xff")
    partition.file(100, "index").write_bytes(struct.pack(">ii", relative_offset, SIZE - len(BATCHES[-1])))
    assert _end(partition).log_end_offset == log_end


@pytest.mark.parametrize(("past_the_last_header", "is_believed"), [(0, True), (1, False)])
def test_an_entry_may_name_the_last_batch_there_can_be(
    tmp_path: Path, past_the_last_header: int, is_believed: bool
) -> None:
    """A batch without records is a header alone; behind it there is no room for another one."""
    partition = BrokerLogDir(tmp_path / "data").partition()
    header = len(record_batch(100, records=b""))
    partition.segment(100, [record_batch(100), record_batch(101, records=b"")])
    size = partition.file(100, "log").stat().st_size
    partition.file(100, "index").write_bytes(struct.pack(">ii", 1, size - header + past_the_last_header))
    assert _end(partition).batch_count == (1 if is_believed else 2)


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_a_missing_or_strange_index_only_costs_time(partition: PartitionDirectory, kind: str) -> None:
    partition.file(100, kind).unlink()
    assert _as_found(_end(partition)) == WHOLE
    os.mkfifo(partition.file(100, kind))
    assert _as_found(_end(partition)) == WHOLE


def test_older_brokers_index_whole_appends(partition: PartitionDirectory) -> None:
    """Such an entry has the last offset of several batches, and the position of the first of them."""
    partition.file(100, "index").write_bytes(struct.pack(">ii", 89, 6 * len(BATCHES[0])))
    assert _as_found(_end(partition)) == WHOLE


def test_a_torn_batch_is_left_out(partition: PartitionDirectory) -> None:
    os.truncate(partition.file(100, "log"), SIZE - 1)
    end = _end(partition)
    assert (end.log_end_offset, end.valid_bytes, end.torn) == (190, SIZE - len(BATCHES[-1]), True)


def test_an_empty_active_segment_ends_where_it_begins(partition: PartitionDirectory) -> None:
    os.truncate(partition.file(100, "log"), 0)
    partition.file(100, "index").write_bytes(bytes(80))
    assert _as_found(_end(partition)) == (100, 0, -1)


def test_the_last_indexed_offset(partition: PartitionDirectory) -> None:
    with BrokerDirectory.open(str(partition.path)) as directory:
        assert find_active_end(directory, 100, deep=False).indexed_offset == 199
        partition.file(100, "index").unlink()
        assert find_active_end(directory, 100, deep=False).indexed_offset is None


@pytest.mark.parametrize("deep", [False, True])
def test_a_broker_that_appends_meanwhile_has_lost_nothing(partition: PartitionDirectory, deep: bool) -> None:
    """Its index may grow beyond the log as it was when we looked; so the index is looked at first."""
    partition.segment(100, BATCHES[:5])
    grown = False

    def append(name: str) -> None:
        nonlocal grown
        if name.endswith(".log") and not grown:
            grown = True
            partition.segment(100, BATCHES)

    with DisturbedDirectory(str(partition.path), before_opening=append) as directory:
        found = find_active_end(directory, 100, deep=deep)
    assert grown
    assert found.indexed_offset == 149
    assert found.end.log_end_offset == 200
