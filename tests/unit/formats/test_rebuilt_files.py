"""What is rebuilt from the batches of a `.log` is what real brokers wrote beside it.

What look-ups in rebuilt indexes lead to is compared in tests/property/test_index_look_ups.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from include.tiering.formats.indexes import (
    ProducerEntry,
    parse_producer_snapshot,
)
from include.tiering.formats.rebuilt_files import ProducerStates, RebuiltFiles, SegmentFilesBuilder
from include.tiering.formats.record_batch import HEADER_SIZE, LogBatch, iter_headers, transaction_marker
from tests.doubles.broker_data import appended_partitions, broker_data
from tests.doubles.memory_source import BytesSource

INTERVAL_BYTES = 4096
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Rolled:
    """A rolled segment, and what was rebuilt of it."""

    log: Path
    next_base: int
    rebuilt: RebuiltFiles

    @property
    def base(self) -> int:
        return int(self.log.stem)

    def beside(self, suffix: str) -> bytes:
        path = self.log.with_suffix(suffix)
        return path.read_bytes() if path.exists() else b""


def marker_of(log: bytes, batch: LogBatch):
    return transaction_marker(log, batch.position + HEADER_SIZE) if batch.header.is_control else None


def rebuild(log: bytes, base: int, producers: ProducerStates) -> RebuiltFiles:
    builder = SegmentFilesBuilder(base, INTERVAL_BYTES, producers)
    for batch in iter_headers(BytesSource(log)):
        builder.append(batch.position, batch.header, marker_of(log, batch))
    return builder.files()


def known_at(log: Path) -> tuple[ProducerEntry, ...]:
    """The broker's snapshot at the segment's start, and nothing where it has none: at the log's start."""
    path = log.with_suffix(".snapshot")
    return parse_producer_snapshot(path.read_bytes()) if path.exists() else ()


def rolled_in(directory: Path) -> Iterator[Rolled]:
    for log, successor in pairwise(sorted(directory.glob("*.log"))):
        rebuilt = rebuild(log.read_bytes(), int(log.stem), ProducerStates(known_at(log)))
        yield Rolled(log, int(successor.stem), rebuilt)


@pytest.fixture(scope="module")
def every_rolled() -> list[Rolled]:
    return [segment for directory in appended_partitions() for segment in rolled_in(directory)]


def test_indexes_are_those_of_the_broker_unless_it_began_to_count_anew(every_rolled: list[Rolled]) -> None:
    """It does when it restarts, or becomes a follower or leader: then the segment has more than one leader epoch."""
    others = [
        segment
        for segment in every_rolled
        if (segment.rebuilt.offset_index, segment.rebuilt.time_index)
        != (segment.beside(".index"), segment.beside(".timeindex"))
    ]
    assert (len(every_rolled), len(others)) == (150, 12)
    for segment in others:
        headers = [batch.header for batch in iter_headers(BytesSource(segment.log.read_bytes()))]
        assert len({header.partition_leader_epoch for header in headers}) > 1, segment.log


def test_transaction_indexes_are_those_of_the_broker(every_rolled: list[Rolled]) -> None:
    assert [segment.rebuilt.transaction_index or b"" for segment in every_rolled] == [
        segment.beside(".txnindex") for segment in every_rolled
    ]
    assert any(segment.rebuilt.aborted_transactions for segment in every_rolled)


def test_snapshots_hold_the_producers_of_the_broker_but_for_those_that_it_expired(every_rolled: list[Rolled]) -> None:
    compared = 0
    for segment in every_rolled:
        path = segment.log.with_name(f"{segment.next_base:020}.snapshot")
        if not path.exists() or not (segment.base == 0 or segment.log.with_suffix(".snapshot").exists()):
            continue
        theirs = set(parse_producer_snapshot(path.read_bytes()))
        ours = set(parse_producer_snapshot(segment.rebuilt.producer_snapshot))
        compared += len(theirs)
        assert theirs <= ours, segment.log
        assert all(not entry.has_open_transaction for entry in ours - theirs), segment.log
    assert compared > 100


def test_a_whole_log_is_replayed_from_its_start_as_from_each_snapshot() -> None:
    directory = broker_data("public") / "stopped" / "broker-1" / "payments.v1-eu-0"
    producers = ProducerStates()
    for log, successor in pairwise(sorted(directory.glob("*.log"))):
        rebuilt = rebuild(log.read_bytes(), int(log.stem), producers)
        theirs = successor.with_suffix(".snapshot")
        if theirs.exists():
            assert set(parse_producer_snapshot(theirs.read_bytes())) <= set(
                parse_producer_snapshot(rebuilt.producer_snapshot)
            )
        transactions = log.with_suffix(".txnindex")
        assert (rebuilt.transaction_index or b"") == (transactions.read_bytes() if transactions.exists() else b"")


def entry(producer_id: int, timestamp_ms: int, first_offset: int = -1) -> ProducerEntry:
    return ProducerEntry(producer_id, 0, 0, 10, 0, timestamp_ms, -1, first_offset)


def test_old_producers_expire_unless_their_transaction_is_open() -> None:
    producers = ProducerStates([entry(1, DAY_MS - 1), entry(2, DAY_MS), entry(3, 0, first_offset=5)])
    producers.expire(DAY_MS)
    assert [known.producer_id for known in parse_producer_snapshot(producers.snapshot())] == [2, 3]
