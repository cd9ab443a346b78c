"""The last stable offset, and transactions that have not ended."""

import os
from pathlib import Path
from typing import Any

import pytest

from include.tiering.errors import CorruptFileError, SourceError
from include.tiering.formats.indexes import ProducerEntry
from include.tiering.formats.record_batch import ControlType
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.kafka.log_dirs.dirs import LogDirLocation, list_partition
from include.tiering.kafka.log_dirs.files import BrokerDirectory
from include.tiering.kafka.log_dirs.log_tail import find_last_stable_offset
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.units import MIB
from tests.doubles.broker_data import broker_data, copy_of, expected
from tests.doubles.log_dirs import BrokerLogDir, PartitionDirectory
from tests.doubles.record_batches import data_batch, marker, record_batch

# The last stable offset as seen from files, below a high watermark that lags.


def _open(producer_id: int, first_offset: int) -> ProducerEntry:
    return ProducerEntry(producer_id, 1, 0, first_offset, 0, 0, 9, first_offset)


@pytest.fixture
def partition(tmp_path: Path) -> PartitionDirectory:
    return BrokerLogDir(tmp_path / "data").partition()


def _stable(
    partition: PartitionDirectory, high_watermark: int, *, deep: bool = False, errors: list[SourceError] | None = None
) -> int:
    found: list[SourceError] = [] if errors is None else errors
    with BrokerDirectory.open(str(partition.path)) as directory:
        listing = list_partition(directory, found.append)
        offset = find_last_stable_offset(
            directory, listing, high_watermark=high_watermark, deep=deep, on_error=found.append
        )
    if errors is None:
        assert found == []
    return offset


def test_without_transactions_all_is_stable(partition: PartitionDirectory) -> None:
    partition.segment(0, [record_batch(0, count=10)])
    assert _stable(partition, 10) == 10
    assert _stable(partition, 4) == 4


def test_an_open_transaction_holds_it_back(partition: PartitionDirectory) -> None:
    partition.segment(0, [record_batch(0, count=5), data_batch(5, 7), record_batch(6, count=4)])
    assert _stable(partition, 10) == 5


@pytest.mark.parametrize("control", [ControlType.COMMIT, ControlType.ABORT])
def test_a_marker_ends_it(partition: PartitionDirectory, control: ControlType) -> None:
    partition.segment(0, [data_batch(0, 7), marker(1, 7, control), record_batch(2, count=3)])
    assert _stable(partition, 5) == 5


def test_a_marker_that_is_not_replicated_does_not_count(partition: PartitionDirectory) -> None:
    """The snapshot at 10 knows nothing of the transaction, but the high watermark is still below the marker."""
    partition.segment(
        0,
        [record_batch(0, count=5), data_batch(5, 7), record_batch(6, count=3), marker(9, 7, ControlType.COMMIT)],
        next_base=10,
    )
    partition.segment(10, [])
    assert _stable(partition, 10) == 10
    assert _stable(partition, 9) == 5


def test_the_snapshot_tells_of_transactions_that_began_before(partition: PartitionDirectory) -> None:
    partition.segment(0, [data_batch(0, 7), record_batch(1, count=9)], next_base=10, snapshot=[_open(7, 0)])
    partition.segment(10, [record_batch(10, count=5)])
    assert _stable(partition, 15) == 0
    partition.segment(10, [record_batch(10, count=4), marker(14, 7, ControlType.COMMIT)])
    assert _stable(partition, 15) == 15


def test_a_broken_snapshot_is_reported_and_the_older_one_taken(partition: PartitionDirectory) -> None:
    partition.segment(0, [data_batch(0, 7), record_batch(1, count=9)], next_base=10, snapshot=[_open(7, 0)])
    partition.segment(10, [record_batch(10, count=10)], next_base=20, snapshot=[_open(7, 0)])
    partition.segment(20, [])
    partition.file(20, "snapshot").write_bytes(b"broken")
    errors: list[SourceError] = []
    assert _stable(partition, 20, errors=errors) == 0
    assert [type(error) for error in errors] == [CorruptFileError]
    assert errors[0].path.endswith("00020.snapshot")


def test_without_any_snapshot_the_log_is_followed_from_its_start(partition: PartitionDirectory) -> None:
    partition.segment(0, [data_batch(0, 7), record_batch(1, count=9)], next_base=10)
    partition.segment(10, [record_batch(10, count=5)])
    partition.file(10, "snapshot").unlink()
    assert _stable(partition, 15) == 0


def test_damage_ends_what_is_known(partition: PartitionDirectory) -> None:
    """What comes behind an unreadable batch may hold an open transaction."""
    first, second = record_batch(0, count=5), record_batch(5, count=5)
    partition.segment(0, [first, second, record_batch(10, count=5)], next_base=15)
    partition.segment(15, [record_batch(15, count=5)])
    partition.file(15, "snapshot").unlink()
    with partition.file(0, "log").open("r+b") as log:
        log.seek(len(first) + 16)
        log.write(b"\x09")
    assert _stable(partition, 20) == 5


def test_a_long_log_behind_the_snapshot_is_followed_only_by_a_deep_look(partition: PartitionDirectory) -> None:
    partition.segment(0, [record_batch(0, count=10)], next_base=10)
    partition.segment(10, [record_batch(10, count=5)])
    os.truncate(partition.file(10, "log"), 9 * MIB)
    assert _stable(partition, 15) == 10
    assert _stable(partition, 15, deep=True) == 15
    # An open transaction is worth a longer way: its marker decides about rolled segments.
    partition.snapshot(10, [_open(7, 3)])
    partition.segment(10, [marker(10, 7, ControlType.COMMIT), record_batch(11, count=4)])
    os.truncate(partition.file(10, "log"), 9 * MIB)
    assert _stable(partition, 15) == 15


# Which transactions are open, and since when: the brokers' own answers about their logs.

TOPIC = "payments.v1-eu"
DAY_MS = 1_704_326_400_000


def _source(brokers: Path) -> LogDirSource:
    paths = [brokers / "broker-1", brokers / "broker-2"]
    return LogDirSource([LogDirLocation(n, path) for n, path in enumerate(paths, 1)], MetadataLog(paths))


def _replica_id(source: LogDirSource) -> ReplicaId:
    return next(one.replica_id for one in source.scan(topics=[TOPIC]).replicas if one.chosen)


def _producers() -> list[dict[str, Any]]:
    partitions = expected("public")["facts"]["topics"][TOPIC]["partitions"]
    return list(partitions["0"]["active_producers"])


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_the_open_transaction_that_the_broker_reports(state: str) -> None:
    source = _source(broker_data("public") / state)
    (found,) = source.unfinished_transactions(_replica_id(source))
    hanging = [one for one in _producers() if one["txn_start_offset"] >= 0]
    assert [(found.producer_id, found.first_offset)] == [
        (one["producer_id"], one["txn_start_offset"]) for one in hanging
    ]
    assert found.first_offset == 727
    # Records of this topic carry timestamps of January 2024.
    assert DAY_MS <= found.since_ms < DAY_MS + 24 * 60 * 60 * 1000


def test_a_missing_or_broken_index_only_costs_time(tmp_path: Path) -> None:
    brokers = copy_of("public", tmp_path, part="stopped")
    before = _source(brokers)
    want = before.unfinished_transactions(_replica_id(before))
    for index in brokers.glob(f"broker-*/{TOPIC}-0/*.index"):
        index.write_bytes(b"\x7f" * 8)
    source = _source(brokers)
    assert source.unfinished_transactions(_replica_id(source)) == want
