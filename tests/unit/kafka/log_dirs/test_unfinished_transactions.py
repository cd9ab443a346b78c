"""Which transactions are open, and since when: the brokers' own answers about their logs."""

from pathlib import Path
from typing import Any

import pytest

from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.source import LogDirSource
from tests.doubles.broker_data import broker_data, copy_of, expected

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
