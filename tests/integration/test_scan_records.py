"""Records that a scan reads are those that a real consumer got, in both isolation levels: real logs, real stores."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from benchmarks.generated_log_dir import Shape
from benchmarks.quota_scene import TOTAL_FETCH
from benchmarks.served_archive import served_archive
from include.tiering.app import open_app
from include.tiering.configs.config_catalogue import TOTAL_FETCH_QUOTA
from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.errors import OffsetOutOfRangeError, RemoteChecksumError, RemoteResourceNotFoundError
from include.tiering.formats.record_batch import CODEC_MASK, Codec, parse_header
from include.tiering.formats.record_columns import RecordColumns
from include.tiering.model.segments import TopicIdPartition, Verdict
from include.tiering.quotas.contract import ByteLimiter, Scope
from include.tiering.reading import scan
from include.tiering.reading.plan_scan import (
    EARLIEST,
    LATEST,
    Bound,
    BoundKind,
    PartitionScan,
    ScanPlan,
    ScanPlanner,
    ScanRequest,
)
from include.tiering.reading.report import said_of_scan
from include.tiering.reading.scan import Scanner, batches_of
from include.tiering.remote_storage import parallel_reads, segment_reader
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.remote_storage.parallel_reads import RANGE_BYTES
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.segments.contract import SegmentRow
from include.tiering.settings import load_settings
from include.tiering.units import format_duration
from tests.doubles.manual_clock import ManualClock
from tests.doubles.partial import Partial
from tests.doubles.quotas import NoQuotas, SameLimiter
from tests.doubles.stored_log import CountingLimiter
from tests.doubles.whole_logs import (
    WholeLogs,
    consumed,
    digest_of,
    oracle_of,
    public_logs,
    records_in,
)

COMMITTED = pytest.mark.parametrize("committed", [False, True], ids=["read_uncommitted", "read_committed"])


def columns_of(partition: TopicIdPartition) -> RecordColumns:
    return RecordColumns(partition.topic, partition.partition, include_headers=True)


def read(logs: WholeLogs, plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    for task in plan.tasks:
        yield from logs.app.reading.scan(task, columns_of(task[0].segment.topic_id_partition))


def planned(
    logs: WholeLogs,
    partition: TopicIdPartition,
    *,
    start: Bound = EARLIEST,
    end: Bound = LATEST,
    committed: bool = False,
    fail_on_data_loss: bool = True,
) -> ScanPlan:
    scan = PartitionScan(partition, start, end)
    request = ScanRequest((scan,), committed=committed, fail_on_data_loss=fail_on_data_loss)
    return logs.app.reading.plan_scan(request)


def offset(number: int) -> Bound:
    return Bound(BoundKind.OFFSET, number)


def rows_of(logs: WholeLogs, partition: TopicIdPartition) -> Sequence[SegmentRow]:
    return logs.app.adapters.stores.metadata.list_segments(partition)


def test_the_logs_that_are_compared_have_all_that_brokers_write(public: WholeLogs, tiered: WholeLogs) -> None:
    logs = [of_one for each in (public, tiered) for of_one in each.logs.values()]
    headers = [[header for log in of_one for _, header, _ in batches_of([log], 0)] for of_one in logs]
    assert {header.attributes & CODEC_MASK for of_one in headers for header in of_one} == set(Codec)
    assert max(len({header.partition_leader_epoch for header in of_one}) for of_one in headers) > 1
    records = [record for of_one in logs for record in oracle_of(of_one)]
    assert {outcome for record in records for outcome in record.outcome} == {"none", "committed", "aborted", "open"}
    assert any(record.is_control for record in records)
    written = [record.record for record in records if not record.is_control]
    for has in (lambda each: each.key is None, lambda each: each.value is None, lambda each: each.headers):
        assert any(map(has, written))


@COMMITTED
def test_what_consumers_got_of_two_brokers(public: WholeLogs, committed: bool) -> None:
    assert len(public.logs) == 13
    for partition in public.logs:
        found = digest_of(read(public, planned(public, partition, committed=committed)))
        assert found == consumed("public", partition, committed=committed), partition


@COMMITTED
def test_what_consumers_got_of_a_broker_that_tiers(tiered: WholeLogs, committed: bool) -> None:
    compared = 0
    for partition in tiered.logs:
        found = digest_of(read(tiered, planned(tiered, partition, committed=committed)))
        assert found == consumed("tiered", partition, committed=committed), partition
        compared += 1
    assert compared >= 4


def test_whole_logs_are_read_with_few_bytes_beside_them(public: WholeLogs) -> None:
    stores, partition, counting = public.app.adapters.stores, public.partition("orders"), CountingLimiter()
    quotas = SameLimiter(counting)
    planner = ScanPlanner(stores.metadata, public.app.adapters.storage, quotas)
    plan = planner.plan(ScanRequest((PartitionScan(partition),)))
    assert counting.total_bytes == 0
    assert (plan.segments, len(plan.tasks), plan.requests) == (7, 1, 14)
    assert plan.size_bytes == sum(map(len, public.logs[partition]))
    for _ in Scanner(public.app.adapters.storage, quotas).read(plan.tasks[0], columns_of(partition)):
        """Only the bytes count."""
    assert plan.size_bytes < counting.total_bytes <= 1.1 * plan.size_bytes


def test_a_range_of_offsets_is_read_where_the_index_says_it_is(public: WholeLogs) -> None:
    partition = public.partition("orders")
    segment = rows_of(public, partition)[0].metadata
    number = segment.end_offset - 1
    plan = planned(public, partition, start=offset(number), end=offset(number + 1))
    ((each,),) = plan.tasks
    assert each.segment == segment
    assert 0 < each.start_position < each.end_position
    assert [record.offset for batch in read(public, plan) for record in records_in(batch)] == [number]


def test_segments_are_divided_if_more_tasks_are_wanted(public: WholeLogs) -> None:
    partition = public.partition("orders")
    whole = planned(public, partition)
    plan = public.app.reading.plan_scan(ScanRequest((PartitionScan(partition),), min_tasks=12))
    assert len(plan.tasks) >= 12 > whole.segments
    assert plan.size_bytes == whole.size_bytes
    assert digest_of(read(public, plan)) == consumed("public", partition, committed=False)


def test_segments_with_only_older_records_are_not_read(public: WholeLogs) -> None:
    partition = public.partition("sensor-old")
    newest_ms = max(row.metadata.max_timestamp_ms for row in rows_of(public, partition))
    request = ScanRequest((PartitionScan(partition),), min_timestamp_ms=newest_ms)
    plan = public.app.reading.plan_scan(request)
    assert plan.segments == 1 < len(public.logs[partition])


def test_offsets_that_are_not_served(public: WholeLogs) -> None:
    partition = public.partition("orders")
    second = rows_of(public, partition)[1].metadata
    metadata = public.app.adapters.stores.metadata
    metadata.record_verdict(second.remote_log_segment_id, Verdict.NONE)
    try:
        with pytest.raises(OffsetOutOfRangeError, match=f"{second.start_offset}..{second.end_offset}"):
            planned(public, partition)
        plan = planned(public, partition, fail_on_data_loss=False)
        assert any("verdict is none" in sentence for sentence in plan.said)
        offsets = [record.offset for batch in read(public, plan) for record in records_in(batch)]
        assert offsets == [*range(second.start_offset), *range(second.end_offset + 1, 1750)]
    finally:
        metadata.record_verdict(second.remote_log_segment_id, Verdict.PASSED)


def test_a_start_below_what_is_served_is_data_loss(public: WholeLogs) -> None:
    partition = public.partition("retained")
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 5 is outside of 388\.\.600"):
        planned(public, partition, start=offset(5))
    plan = planned(public, partition, start=offset(5), fail_on_data_loss=False)
    assert digest_of(read(public, plan)) == consumed("public", partition, committed=False)


@pytest.mark.parametrize(("start", "end"), [(offset(5), LATEST), (EARLIEST, offset(5))])
def test_named_offsets_of_a_partition_of_which_nothing_is_served_are_data_loss(
    public: WholeLogs, start: Bound, end: Bound
) -> None:
    partition = public.partition("orders")
    metadata, rows = public.app.adapters.stores.metadata, rows_of(public, partition)
    for row in rows:
        metadata.record_verdict(row.metadata.remote_log_segment_id, Verdict.NONE)
    try:
        with pytest.raises(OffsetOutOfRangeError, match="no segment of it is served"):
            planned(public, partition, start=start, end=end)
        lossy = planned(public, partition, start=start, end=end, fail_on_data_loss=False)
        for plan in (lossy, planned(public, partition)):
            assert (plan.tasks, len(plan.said)) == ((), 1)
    finally:
        for row in rows:
            metadata.record_verdict(row.metadata.remote_log_segment_id, Verdict.PASSED)


@pytest.mark.parametrize(("lost_offset", "first_in_doubt", "was_aborted"), [(120, 0, False), (524, 424, True)])
def test_a_transaction_whose_marker_is_not_served_is_in_doubt(
    public: WholeLogs, lost_offset: int, first_in_doubt: int, was_aborted: bool
) -> None:
    partition, end = public.partition("payments.v1-eu"), offset(lost_offset)
    lost = next(row.metadata for row in rows_of(public, partition) if row.metadata.start_offset == lost_offset)
    before = [each for each in oracle_of(public.logs[partition]) if each.record.offset < lost_offset]
    in_doubt = [each for each in before if each.record.offset >= first_in_doubt and each.is_transactional]
    assert {each.is_aborted for each in in_doubt} == {was_aborted}
    metadata = public.app.adapters.stores.metadata
    metadata.record_verdict(lost.remote_log_segment_id, Verdict.NONE)
    try:
        with pytest.raises(OffsetOutOfRangeError, match=f"from offset {first_in_doubt} on was committed"):
            planned(public, partition, committed=True, end=end)
        plan = planned(public, partition, committed=True, end=end, fail_on_data_loss=False)
        offsets = [record.offset for batch in read(public, plan) for record in records_in(batch)]
        assert planned(public, partition, end=end).said == ()
    finally:
        metadata.record_verdict(lost.remote_log_segment_id, Verdict.PASSED)
    known = [each for each in before if not each.is_control and not each.is_aborted and each not in in_doubt]
    assert offsets == [each.record.offset for each in known]


@dataclass
class SlowLimiter(CountingLimiter):
    """Every grant has waited for `seconds`, in which time passes."""

    clock: ManualClock = field(default_factory=ManualClock)
    seconds: float = 3.0

    def take(self, wanted_bytes: int) -> int:
        self.waited_seconds += self.seconds
        self.clock.advance(self.seconds)
        return super().take(wanted_bytes)


def test_a_read_that_the_quota_holds_back_says_so(public: WholeLogs, caplog: pytest.LogCaptureFixture) -> None:
    """Also if none of its segments alone is held back for long: it is about the task."""
    for topic, seconds, said in (
        ("bigrecs", 3.0, "[bigrecs-0] the fetch quota has held back this read for 6.0s, now at offsets 0..2"),
        ("sensor-old", 1.0, "[sensor-old-0] the fetch quota has held back this read for 6.0s, now at"),
    ):
        partition, limiter = public.partition(topic), SlowLimiter(seconds=seconds)
        plan, quotas = planned(public, partition), SameLimiter(limiter)
        with caplog.at_level("WARNING"):
            scanner = Scanner(public.app.adapters.storage, quotas, clock=limiter.clock)
            read_bytes = sum(batch.nbytes for batch in scanner.read(plan.tasks[0], columns_of(partition)))
        assert read_bytes > 0
        assert said in caplog.text
        assert max(quotas.held) == limiter.waited_seconds


class SpentLimiter:
    """Is spent again and again: grants what `fill` gave last, and then nothing."""

    waited_seconds = 0.0

    def __init__(self) -> None:
        self.total_bytes = 0
        self._changed = threading.Condition()
        self._left_bytes = self._waiting = 0

    @property
    def waits_for(self) -> Scope | None:
        return TOTAL_FETCH if self._waiting else None

    def fill(self, size_bytes: int) -> None:
        with self._changed:
            self._left_bytes = size_bytes
            self._changed.notify_all()

    def take(self, wanted_bytes: int) -> int:
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: self._left_bytes > 0)
            self._waiting -= 1
            granted_bytes = min(wanted_bytes, self._left_bytes)
            self._left_bytes -= granted_bytes
            self.total_bytes += granted_bytes
            return granted_bytes


@pytest.mark.parametrize("range_bytes", [RANGE_BYTES, 4_000])
def test_a_quota_that_is_spent_while_the_read_is_ahead_delays_it_and_no_byte_is_charged_twice(
    public: WholeLogs, monkeypatch: pytest.MonkeyPatch, range_bytes: int
) -> None:
    for module in (parallel_reads, scan, segment_reader):
        monkeypatch.setattr(module, "RANGE_BYTES", range_bytes)
    partition, limiter, done = public.partition("payments.v1-eu"), SpentLimiter(), threading.Event()
    plan = planned(public, partition)

    def fill() -> None:
        while not done.wait(0.005):
            limiter.fill(3_000)

    with ThreadPoolExecutor(1) as filling:
        filling.submit(fill)
        try:
            scanner = Scanner(public.app.adapters.storage, SameLimiter(limiter), at_once=8)
            found = digest_of(batch for task in plan.tasks for batch in scanner.read(task, columns_of(partition)))
        finally:
            done.set()
    assert found == consumed("public", partition, committed=False)
    manifests = [path.stat().st_size for path in (public.config.parent / "store").rglob("payments*/0/*.rsm-manifest")]
    assert limiter.total_bytes == plan.size_bytes + sum(manifests)


def test_what_the_quota_lets_a_read_take_at_least(public: WholeLogs) -> None:
    plan = planned(public, public.partition("orders"))
    assert public.app.reading.least_seconds(plan) == 0
    public.app.configs.alter(ALL_BROKERS, {TOTAL_FETCH_QUOTA: "20000"}, author="test")
    try:
        with open_app(load_settings(public.config)) as app:
            least_seconds = app.reading.least_seconds(plan)
    finally:
        public.app.configs.alter(ALL_BROKERS, {TOTAL_FETCH_QUOTA: None}, author="test")
    assert least_seconds == plan.size_bytes / 20_000
    said = said_of_scan(plan, least_seconds)
    assert said.startswith("reads 7 segments of 1 partition, ")
    assert said.endswith(f"; the fetch quota holds it for {format_duration(least_seconds)} at least")


def test_indexes_that_are_lost_are_not_taken_for_none(tmp_path: Path) -> None:
    with public_logs(tmp_path) as logs:
        partition = logs.partition("payments.v1-eu")
        (stored,) = (tmp_path / "store").rglob(f"payments*/0/{120:020d}-*.indexes")
        stored.unlink()
        with pytest.raises(RemoteResourceNotFoundError, match="indexes"):
            planned(logs, partition, committed=True)
        assert planned(logs, partition).segments == 9


def test_damage_is_said_and_nothing_damaged_returned(tmp_path: Path) -> None:
    with public_logs(tmp_path) as logs:
        partition = logs.partition("replicated")
        (stored,) = (tmp_path / "store").rglob(f"replicated-*/0/{0:020d}-*.log")
        content = bytearray(stored.read_bytes())
        content[len(content) // 2] ^= 1
        stored.write_bytes(content)
        with pytest.raises(RemoteChecksumError, match="CRC-32C"):
            list(read(logs, planned(logs, partition)))


BATCH_BYTES: Final = 1_000
SEGMENT: Final = Shape(1, 3, 16 * BATCH_BYTES, BATCH_BYTES)


@dataclass
class Elsewhere(Partial):
    """A store in which a read of one range, or of one log, gets the bytes of another one, which are whole batches."""

    store: Any
    key: str
    first: int
    found_key: str
    found_first: int

    def read(self, key: str, first: int = 0, last: int | None = None, *, limiter: ByteLimiter) -> Iterator[bytes]:
        if (key, first) == (self.key, self.first) and last is not None:
            key, first, last = self.found_key, self.found_first, last + self.found_first - first
        return self.store.read(key, first, last, limiter=limiter)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ((0, 1), (0, 0)),
        ((0, 1), (0, 2)),
        ((0, 0), (0, 3)),
        ((0, 3), (0, 0)),
        ((1, 0), (0, 0)),
        ((1, 3), (2, 3)),
    ],
    ids=["earlier", "later", "last first", "first last", "another log", "the end of another log"],
)
def test_whole_batches_of_elsewhere_are_damage_and_no_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[int, int], found: tuple[int, int]
) -> None:
    """Each pair is the number of a segment, and of a part of its log. All batches have valid checksums."""
    for module in (parallel_reads, scan, segment_reader):
        monkeypatch.setattr(module, "RANGE_BYTES", SEGMENT.segment_bytes // 4)
    with served_archive(tmp_path, SEGMENT) as app:
        (partition,) = app.adapters.stores.metadata.partitions()
        storage: Any = app.adapters.storage
        segments = [row.metadata for row in app.adapters.stores.metadata.list_segments(partition)]
        keys = [dict(storage._layout.keys(each))[ObjectKind.LOG] for each in segments]
        (asked_key, asked_first), (found_key, found_first) = (
            (keys[number], part * SEGMENT.segment_bytes // 4) for number, part in (asked, found)
        )
        wrong = Elsewhere(storage._store, asked_key, asked_first, found_key, found_first)
        scanner = Scanner(SegmentStorage(wrong, storage._layout), NoQuotas(), at_once=4)
        plan = app.reading.plan_scan(ScanRequest((PartitionScan(partition),)))
        offsets: list[int] = []

        def read_all() -> None:
            for task in plan.tasks:
                for batch in scanner.read(task, RecordColumns(partition.topic, 0, max_rows=1)):
                    offsets.extend(batch.column("offset").to_pylist())

        with pytest.raises(RemoteChecksumError, match="damaged"):
            read_all()
    assert offsets == sorted(set(offsets)), "none comes twice before the error"


def test_a_wrong_base_offset_ends_no_scan_early(tmp_path: Path) -> None:
    """No checksum of a batch covers its base offset: here one bit makes a batch begin above the last wanted offset."""
    with served_archive(tmp_path, Shape(1, 1, 64 * BATCH_BYTES, BATCH_BYTES)) as app:
        (partition,) = app.adapters.stores.metadata.partitions()
        (stored,) = tmp_path.rglob(f"*/{0:020d}-*.log")
        content = bytearray(stored.read_bytes())
        headers = [header for _, header, _ in batches_of([bytes(content)], 0)]
        wanted, position = headers[2], sum(header.size_bytes for header in headers[:2])
        wrong = wanted.base_offset ^ (1 << wanted.base_offset.bit_length())
        assert headers[4].base_offset < wrong <= headers[-2].base_offset
        content[position : position + 8] = wrong.to_bytes(8, "big")
        stored.write_bytes(content)
        scan_of = PartitionScan(partition, EARLIEST, offset(headers[4].base_offset))
        plan = app.reading.plan_scan(ScanRequest((scan_of,)))
        (task,) = plan.tasks
        with pytest.raises(RemoteChecksumError, match="damaged"):
            list(app.reading.scan(task, columns_of(partition)))


def test_a_wrong_base_offset_of_the_first_batch_that_is_read_leaves_no_record_out(tmp_path: Path) -> None:
    """One bit makes it end below the first wanted offset, and the batches behind it follow all the same."""
    with served_archive(tmp_path, Shape(1, 1, 64 * BATCH_BYTES, BATCH_BYTES)) as app:
        (partition,) = app.adapters.stores.metadata.partitions()
        (stored,) = tmp_path.rglob(f"*/{0:020d}-*.log")
        content = bytearray(stored.read_bytes())
        first = next(
            header
            for _, header, _ in batches_of([bytes(content)], 0)
            if header.base_offset.bit_count() > 1 and header.base_offset > 20
        )
        (task,) = app.reading.plan_scan(ScanRequest((PartitionScan(partition, offset(first.base_offset)),))).tasks
        at = task[0].start_position
        header = parse_header(content, at)
        content[at : at + 8] = (header.base_offset ^ (1 << (header.base_offset.bit_length() - 1))).to_bytes(8, "big")
        stored.write_bytes(content)
        with pytest.raises(RemoteChecksumError, match="damaged"):
            list(app.reading.scan(task, columns_of(partition)))


def test_a_task_that_gets_the_bytes_of_another_one_gives_no_record(tmp_path: Path) -> None:
    """Both are whole batches of one segment, which is divided because more tasks are wanted."""
    with served_archive(tmp_path, Shape(1, 1, 64 * BATCH_BYTES, BATCH_BYTES)) as app:
        (partition,) = app.adapters.stores.metadata.partitions()
        storage: Any = app.adapters.storage
        plan = app.reading.plan_scan(ScanRequest((PartitionScan(partition),), min_tasks=4))
        positions = [each.start_position for (each,) in plan.tasks]
        assert len(positions) > 2
        key = dict(storage._layout.keys(plan.tasks[0][0].segment))[ObjectKind.LOG]
        for asked, found in ((0, 1), (1, 0), (1, 2), (2, 1)):
            wrong = Elsewhere(storage._store, key, positions[asked], key, positions[found])
            scanner = Scanner(SegmentStorage(wrong, storage._layout), NoQuotas())
            with pytest.raises(RemoteChecksumError, match="damaged"):
                list(scanner.read(plan.tasks[asked], columns_of(partition)))
