"""Scans of random ranges against a plain oracle: decode everything, then filter."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.formats.record_columns import RecordColumns
from include.tiering.model.histories import OffsetRange
from include.tiering.model.segments import SeenRecord, TopicIdPartition
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
)
from include.tiering.remote_storage import parallel_reads, segment_reader
from include.tiering.remote_storage.parallel_reads import RANGE_BYTES
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
    range_bytes = data.draw(st.sampled_from([RANGE_BYTES, 7_777, 1_000]), label="bytes of a large range")
    with pytest.MonkeyPatch.context() as patch:
        for module in (parallel_reads, plan_scan, scan, segment_reader):
            patch.setattr(module, "RANGE_BYTES", range_bytes)
        assert list(scanned(logs, logs.app.reading.plan_scan(request))) == expected


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


def scanned(logs: WholeLogs, plan: ScanPlan) -> Iterator[SeenRecord]:
    for task in plan.tasks:
        partition = task[0].segment.topic_id_partition
        columns = RecordColumns(partition.topic, partition.partition, include_headers=True, max_rows=100)
        for batch in logs.app.reading.scan(task, columns):
            yield from records_in(batch)
