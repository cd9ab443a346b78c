"""The end of the active segment: the index shortens the way, and is not believed blindly."""

import os
import struct
from pathlib import Path

import pytest

from include.tiering.formats.log_batches import LogEnd
from include.tiering.kafka.log_dirs.files import BrokerDirectory
from include.tiering.kafka.log_dirs.log_tail import find_active_end
from tests.doubles.disturbed_directory import DisturbedDirectory
from tests.doubles.log_dirs import BrokerLogDir, PartitionDirectory
from tests.doubles.record_batches import record_batch

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
