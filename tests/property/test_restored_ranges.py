"""Any range of any real log is restored as a plain reading of it says, and its indexes lead to the right batches."""

import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from include.tiering.formats import indexes
from include.tiering.model.segments import TopicIdPartition
from include.tiering.reading.plan_scan import Bound, BoundKind
from include.tiering.reading.scan import batches_of
from include.tiering.restoring.plan import RestoreRequest
from tests.doubles.whole_logs import OracleRecord, WholeLogs, last_stable_offset, oracle_of, public_logs

COMPACTED = ("state-compacted", "both-policies")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeLogs]:
    with public_logs(tmp_path_factory.mktemp("public")) as found:
        yield found


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_range(logs: WholeLogs, data: st.DataObject) -> None:
    # Compacted topics are never tiered: where offsets are missing, the end of a batch is not that of its last record.
    partition = data.draw(st.sampled_from(sorted((each for each in logs.logs if each.topic not in COMPACTED), key=str)))
    whole = oracle_of(logs.logs[partition])
    log_start = logs.app.adapters.stores.metadata.retention_state(partition).log_start_offset
    end = whole[-1].record.offset + 1
    first = data.draw(st.integers(log_start, end - 1))
    behind = data.draw(st.integers(first + 1, end))
    request = RestoreRequest((partition,), Bound(BoundKind.OFFSET, first), Bound(BoundKind.OFFSET, behind))
    directory = Path(tempfile.mkdtemp())
    try:
        report = logs.app.restoring.run(request, directory / "target")
        assert report.is_complete
        _require_range(directory / "target" / str(partition), whole, first, behind)
    finally:
        shutil.rmtree(directory)
    _require_cost(logs, partition, report.plan.cost.size_bytes, first, behind)


def _require_range(directory: Path, whole: list[OracleRecord], first: int, behind: int) -> None:
    files = sorted(directory.glob("*.log"))
    found = oracle_of([path.read_bytes() for path in files])
    assert [each.record for each in found if first <= each.record.offset < behind] == [
        each.record for each in whole if first <= each.record.offset < behind
    ]
    for path in files:
        _require_indexes(path)
    _require_transactions(directory, whole, found)


def _require_indexes(path: Path) -> None:
    log, base = path.read_bytes(), int(path.stem)
    batches = [(position, header) for position, header, _ in batches_of([log], 0)]
    starts = [header.base_offset for _, header in batches]
    end = batches[-1][1].last_offset
    index = indexes.check_offset_index(
        path.with_suffix(".index").read_bytes(), base_offset=base, end_offset=end, size_bytes=len(log)
    )
    for offset in (header.base_offset for _, header in batches):
        position, _ = batches[bisect_right(starts, offset) - 1]
        assert index.lookup(offset).position <= position
    positions = {position for position, _ in batches}
    assert {int(each) for each in index.positions} <= positions
    times = indexes.check_time_index(path.with_suffix(".timeindex").read_bytes(), base_offset=base, end_offset=end)
    assert times.largest_timestamp_ms == max((header.max_timestamp for _, header in batches), default=-1)


def _require_transactions(directory: Path, whole: list[OracleRecord], found: list[OracleRecord]) -> None:
    """What the files say is aborted or open is what a reading of the whole log finds."""
    first, last = found[0].record.offset, found[-1].record.offset
    aborted = [
        each
        for path in sorted(directory.glob("*.txnindex"))
        for each in indexes.parse_transaction_index(path.read_bytes())
    ]
    for each in whole:
        if first <= each.record.offset <= last and each.is_aborted and not each.is_control:
            hidden = [txn for txn in aborted if txn.producer_id == each.producer_id]
            marker_is_here = any(
                control.is_control and control.producer_id == each.producer_id
                for control in found
                if control.record.offset > each.record.offset
            )
            covered = any(txn.first_offset <= each.record.offset < txn.last_offset for txn in hidden)
            assert covered == marker_is_here
    newest = max(directory.glob("*.snapshot"))
    assert int(newest.stem) == last + 1
    producers = indexes.parse_producer_snapshot(newest.read_bytes())
    opened = [entry.current_txn_first_offset for entry in producers if entry.has_open_transaction]
    until = oracle_of_prefix(whole, last + 1)
    assert min(opened, default=last + 1) == last_stable_offset(until, last + 1)


def oracle_of_prefix(whole: list[OracleRecord], end: int) -> list[OracleRecord]:
    """The records below an offset, with the outcome that their transactions had there."""
    ended = {(each.producer_id, each.record.offset) for each in whole if each.is_control and each.record.offset < end}
    found = []
    for each in whole:
        if each.record.offset >= end:
            break
        is_ended = any(producer == each.producer_id and offset > each.record.offset for producer, offset in ended)
        outcome = each.outcome if is_ended or each.outcome == ["none"] or each.is_control else ["open"]
        found.append(OracleRecord(each.record, each.producer_id, each.is_transactional, each.is_control, outcome))
    return found


def _require_cost(logs: WholeLogs, partition: TopicIdPartition, size_bytes: int, first: int, behind: int) -> None:
    rows = logs.app.adapters.stores.metadata.list_segments(partition)
    wanted = [
        each.metadata for each in rows if each.metadata.end_offset >= first and each.metadata.start_offset < behind
    ]
    assert size_bytes == sum(each.segment_size_bytes for each in wanted)
