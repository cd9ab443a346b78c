"""Scans of random ranges against a plain oracle: decode everything, then filter."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import (
    RemoteAccessDeniedError,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
    TieringError,
)
from include.tiering.formats.record_columns import RecordColumns
from include.tiering.model.histories import OffsetRange
from include.tiering.model.segments import SeenRecord, TopicIdPartition
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.reading import plan_scan, scan
from include.tiering.reading.plan_scan import (
    ALL_OFFSETS,
    EARLIEST,
    LATEST,
    Bound,
    BoundKind,
    PartitionScan,
    ScanPlan,
    ScanRequest,
    ScanTask,
)
from include.tiering.reading.scan import Scanner
from include.tiering.remote_storage import parallel_reads, segment_reader
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.remote_storage.parallel_reads import RANGE_BYTES
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.doubles.partial import Partial
from tests.doubles.quotas import NoQuotas
from tests.doubles.whole_logs import (
    OracleRecord,
    WholeLogs,
    last_stable_offset,
    oracle_of,
    public_logs,
    records_in,
    tiered_logs,
)

TOPICS = {
    "public": ("payments.v1-eu", "orders", "audit_log", "sensor-old", "state-compacted", "trimmed", "replicated"),
    "tiered": ("tier.tx", "tier-a", "tier_exp", "tier-cut"),
}


@pytest.fixture(scope="module", params=["public", "tiered"])
def logs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeLogs]:
    planted = {"public": public_logs, "tiered": tiered_logs}[request.param]
    with planted(tmp_path_factory.mktemp(request.param)) as opened:
        yield opened


@pytest.fixture(scope="module")
def oracles(logs: WholeLogs) -> dict[TopicIdPartition, tuple[list[OracleRecord], int, int]]:
    """Of each partition: its records, the first offset that is served, and the end (exclusive)."""
    stores, found = logs.app.adapters.stores, {}
    for partition in logs.logs:
        log_start = stores.metadata.retention_state(partition).log_start_offset
        end = max(row.metadata.end_offset for row in stores.metadata.list_segments(partition)) + 1
        records = [each for each in oracle_of(logs.logs[partition]) if each.record.offset >= log_start]
        found[partition] = (records, log_start, end)
    return found


@given(data=st.data())
def test_a_range_equals_the_decoded_log_filtered(
    logs: WholeLogs, oracles: dict[TopicIdPartition, tuple[list[OracleRecord], int, int]], data: st.DataObject
) -> None:
    wanted = [each for each in logs.logs if each.topic in (*TOPICS["public"], *TOPICS["tiered"])]
    partition = data.draw(st.sampled_from(wanted))
    records, earliest, end = oracles[partition]
    committed = data.draw(st.booleans(), label="committed")
    latest = last_stable_offset(records, end) if committed else end
    times = sorted({each.record.timestamp_ms for each in records})
    bounds = st.integers(earliest, latest).map(lambda offset: Bound(BoundKind.OFFSET, offset)) | st.sampled_from(
        [*times, times[0] - 1, times[-1] + 1]
    ).map(lambda ms: Bound(BoundKind.TIMESTAMP, max(ms, 0)))
    start = data.draw(st.just(EARLIEST) | bounds, label="start")
    stop = data.draw(st.just(LATEST) | bounds, label="end")
    offsets = data.draw(
        st.just(ALL_OFFSETS)
        | st.tuples(st.integers(0, end), st.integers(0, end)).map(lambda pair: OffsetRange(*sorted(pair))),
        label="pushed offsets",
    )
    request = ScanRequest(
        (PartitionScan(partition, start, stop),),
        committed=committed,
        offsets=offsets,
        min_tasks=data.draw(st.none() | st.integers(1, 30), label="tasks"),
    )

    first = max(found(start, records, earliest, latest), offsets.first)
    last = min(found(stop, records, earliest, latest) - 1, offsets.last)
    expected = [
        each.record
        for each in records
        if first <= each.record.offset <= last and not each.is_control and not (committed and each.is_aborted)
    ]
    with large_above(data.draw(RANGES)):
        assert list(scanned(logs.app.reading.scan, logs.app.reading.plan_scan(request))) == expected


def found(bound: Bound, records: Sequence[OracleRecord], earliest: int, latest: int) -> int:
    match bound.kind:
        case BoundKind.EARLIEST:
            return earliest
        case BoundKind.LATEST:
            return latest
        case BoundKind.OFFSET:
            return bound.value
    younger = (each.record.offset for each in records if each.record.timestamp_ms >= bound.value)
    return min(next(younger, latest), latest)


def scanned(
    read: Callable[[ScanTask, RecordColumns], Iterator[pa.RecordBatch]], plan: ScanPlan
) -> Iterator[SeenRecord]:
    for task in plan.tasks:
        partition = task[0].segment.topic_id_partition
        columns = RecordColumns(partition.topic, partition.partition, include_headers=True, max_rows=100)
        for batch in read(task, columns):
            yield from records_in(batch)


RANGES = st.sampled_from([RANGE_BYTES, 7_777, 1_000])


@contextmanager
def large_above(range_bytes: int) -> Iterator[None]:
    """Logs that have more bytes than this are large."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (parallel_reads, plan_scan, scan, segment_reader):
            patch.setattr(module, "RANGE_BYTES", range_bytes)
        yield


Answer = Callable[[Callable[..., Iterator[bytes]], str, int, int], Iterator[bytes]]
"""From the store's own `read`, a key, the first and the last byte."""


def denied(read: Callable[..., Iterator[bytes]], key: str, first: int, last: int) -> Iterator[bytes]:
    raise RemoteAccessDeniedError("403")


def gone(read: Callable[..., Iterator[bytes]], key: str, first: int, last: int) -> Iterator[bytes]:
    raise RemoteResourceNotFoundError("expired meanwhile")


def cut(read: Callable[..., Iterator[bytes]], key: str, first: int, last: int) -> Iterator[bytes]:
    yield from read(key, first, (first + last) // 2)
    raise RemoteStorageUnavailableError("the connection broke off")


def earlier(read: Callable[..., Iterator[bytes]], key: str, first: int, last: int) -> Iterator[bytes]:
    yield from read(key, 0, last - first)


def changed(read: Callable[..., Iterator[bytes]], key: str, first: int, last: int) -> Iterator[bytes]:
    content = bytearray(b"".join(read(key, first, last)))
    content[len(content) // 2] ^= 1
    yield bytes(content)


def slow(read: Callable[..., Iterator[bytes]], key: str, first: int, last: int) -> Iterator[bytes]:
    time.sleep(0.05)
    yield from read(key, first, last)


@dataclass
class WrongStore(Partial):
    """Answers reads of one byte of one log as `answer` does."""

    store: Any
    key: str
    position: int
    answer: Answer

    def read(self, key: str, first: int = 0, last: int | None = None, *, limiter: ByteLimiter) -> Iterator[bytes]:
        read = partial(self.store.read, limiter=limiter)
        if key == self.key and last is not None and first <= self.position <= last:
            return self.answer(read, key, first, last)
        return read(key, first, last)


@given(data=st.data())
def test_whatever_a_store_answers_no_record_is_missing_before_others_or_comes_twice(
    logs: WholeLogs, oracles: dict[TopicIdPartition, tuple[list[OracleRecord], int, int]], data: st.DataObject
) -> None:
    """A scan gives the first records, all up to an error, or all of them."""
    wanted = [each for each in logs.logs if len(logs.logs[each]) > 1 and each.topic != "state-compacted"]
    partition = data.draw(st.sampled_from(wanted))
    records, earliest, _ = oracles[partition]
    expected = [each.record for each in records if each.record.offset >= earliest and not each.is_control]
    storage: Any = logs.app.adapters.storage
    with large_above(data.draw(RANGES)):
        plan = logs.app.reading.plan_scan(ScanRequest((PartitionScan(partition),)))
        segment = data.draw(st.sampled_from([each.segment for task in plan.tasks for each in task]))
        (key,) = (key for kind, key in storage._layout.keys(segment) if kind is ObjectKind.LOG)
        position = data.draw(st.integers(0, segment.segment_size_bytes - 1))
        answer = data.draw(st.sampled_from([denied, gone, cut, earlier, changed, slow]))
        wrong = SegmentStorage(WrongStore(storage._store, key, position, answer), storage._layout)
        scanner = Scanner(wrong, NoQuotas(), at_once=data.draw(st.integers(1, 8)))
        found: list[SeenRecord] = []
        error: TieringError | None = None
        try:
            found.extend(scanned(scanner.read, plan))
        except TieringError as raised:
            error = raised
    if error is None:
        assert found == expected
    else:
        assert answer is not slow
        assert found == expected[: len(found)]
        assert len(found) < len(expected)
