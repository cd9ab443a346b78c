"""Logs of leaders are cut alike by everyone, and where brokers cut them."""

from itertools import pairwise
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.clock import SystemClock
from include.tiering.errors import BrokersForbiddenError, BrokersUnavailableError, SendingStoppedError
from include.tiering.formats.indexes import parse_producer_snapshot, parse_transaction_index
from include.tiering.formats.record_batch import ControlType
from include.tiering.kafka.fetch_api import cut_log
from include.tiering.kafka.fetch_api.spool import Spool
from include.tiering.kafka.log_dirs.contract import IneligibleReason, Replica
from include.tiering.model.segments import TopicIdPartition
from tests.doubles.broker_data import broker_data, expected
from tests.doubles.leader_logs import FetchWorld, headers_of
from tests.doubles.record_batches import data_batch, marker, record_batch

BATCH = len(record_batch(0, count=5))


def batches(*bases: int, leader_epoch: int = 0, timestamp_ms: int = 1_700_000_000_000) -> bytes:
    """Of five records each."""
    return b"".join(record_batch(base, count=5, leader_epoch=leader_epoch, timestamp_ms=timestamp_ms) for base in bases)


def world_of(tmp_path: Path, log: bytes, segment_bytes: int = 2 * BATCH, find_bytes: int = 1 << 30) -> FetchWorld:
    return FetchWorld(Spool(tmp_path, 1 << 24, SystemClock()), log, segment_bytes=segment_bytes, find_bytes=find_bytes)


def scanned(world: FetchWorld) -> Replica:
    report = world.scan()
    assert report.errors == ()
    (replica,) = report.replicas
    return replica


def spans(world: FetchWorld) -> list[tuple[int, int, bool]]:
    return [(known.base_offset, known.end_offset, known.closed) for known in world.stored()]


def test_a_range_is_closed_by_the_batch_that_does_not_fit(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5, 10))
    replica = scanned(world)
    assert spans(world) == [(0, 9, True), (10, 14, False)]
    assert [segment.reason for segment in replica.segments] == [None, IneligibleReason.ACTIVE]


def test_a_range_is_closed_by_record_time(tmp_path: Path) -> None:
    week_ms = 7 * 86_400_000
    at_the_limit = batches(0) + batches(5, timestamp_ms=1_700_000_000_000 + week_ms)
    world = world_of(tmp_path, at_the_limit, segment_bytes=1 << 20)
    scanned(world)
    assert spans(world) == [(0, 9, False)]
    world.append(batches(10, timestamp_ms=1_700_000_000_001 + week_ms))
    scanned(world)
    assert spans(world) == [(0, 9, True), (10, 14, False)]


def test_a_batch_larger_than_a_segment_is_a_range_of_its_own(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5, 10), segment_bytes=BATCH // 2)
    scanned(world)
    assert spans(world) == [(0, 4, True), (5, 9, True), (10, 14, False)]


@pytest.mark.parametrize(
    ("log_start", "copied_to", "first"),
    [(0, 29, 0), (30, None, 0), (30, 9, 0), (30, 19, 10), (25, 39, 10), (30, 39, 20)],
)
def test_ranges_that_are_copied_and_deleted_by_the_leader_are_forgotten(
    tmp_path: Path, log_start: int, copied_to: int | None, first: int
) -> None:
    """All but one: the producers before the next range are those at its end."""
    world = world_of(tmp_path, batches(*range(0, 50, 5)))
    scanned(world)
    before = world.stored()
    world.model.earliest = world.model.earliest_local = log_start
    errors = world.source.find_segments(topics=None, copied_to=lambda _: copied_to, go_on=lambda _topic: None)
    assert errors == []
    assert world.stored() == [known for known in before if known.base_offset >= first]
    with world.source.open_segment(scanned(world).replica_id, 30) as opened:
        assert opened.check().first_offset == 30


@pytest.mark.parametrize(
    ("log_start", "copied_to", "expected"),
    [
        (15, 9, [(0, 9), (15, 24), (25, 34), (35, 44), (45, 49)]),  # The rest of 10..19 is there, and not copied yet.
        (17, None, [(0, 9), (15, 24), (25, 34), (35, 44), (45, 49)]),
        (15, 19, [(0, 9), (10, 19), (20, 29), (30, 39), (40, 49)]),
        (20, 9, [(0, 9), (10, 19), (20, 29), (30, 39), (40, 49)]),
        (45, 39, [(30, 39), (45, 49)]),
    ],
)
def test_what_is_left_of_a_range_whose_first_records_were_deleted_is_cut_again(
    tmp_path: Path, log_start: int, copied_to: int | None, expected: list[tuple[int, int]]
) -> None:
    world = world_of(tmp_path, batches(*range(0, 50, 5)))
    scanned(world)
    world.model.earliest = world.model.earliest_local = log_start
    errors = world.source.find_segments(topics=None, copied_to=lambda _: copied_to, go_on=lambda _topic: None)
    assert errors == []
    assert [(base, end) for base, end, _ in spans(world)] == expected
    replica = world.source.scan().replicas[0]
    first = next(segment for segment in replica.segments if segment.eligible or segment.active)
    assert first.base_offset <= max(log_start, -1 if copied_to is None else copied_to + 1) <= first.end_offset
    if first.eligible:
        with world.source.open_segment(replica.replica_id, first.base_offset) as opened:
            assert opened.check().last_offset == first.end_offset


def test_a_scan_reads_on_where_the_last_one_ended_and_nothing_twice(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5, 10))
    scanned(world)
    assert [offset for offset, _ in world.logs.reads] == [0]
    scanned(world)
    assert [offset for offset, _ in world.logs.reads] == [0]
    world.append(batches(15, 20))
    scanned(world)
    assert spans(world) == [(0, 9, True), (10, 19, True), (20, 24, False)]
    assert [offset for offset, _ in world.logs.reads] == [0, 15]


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=40),
    stops=st.lists(st.integers(1, 4 * BATCH), min_size=1, max_size=4),
)
def test_however_often_a_cut_is_interrupted_the_ranges_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], stops: list[int]
) -> None:
    """The plain oracle takes batches one by one into lists."""
    log, base, expected_spans, size, begin = b"", 0, [], 0, 0
    for count in counts:
        batch = record_batch(base, count=count)
        if size and size + len(batch) > 2 * BATCH:
            expected_spans.append((begin, base - 1, True))
            size, begin = 0, base
        size, base, log = size + len(batch), base + count, log + batch
    expected_spans.append((begin, base - 1, False))
    tmp_path = tmp_path_factory.getbasetemp()
    whole, pieces = world_of(tmp_path, log), world_of(tmp_path, log)
    scanned(whole)
    for find_bytes in (stops * len(counts))[: len(counts)]:
        pieces.source = pieces.new_source(Spool(tmp_path, 1 << 24, SystemClock()), find_bytes)
        scanned(pieces)
    assert spans(whole) == spans(pieces) == expected_spans
    assert whole.stored() == pieces.stored()
    for known in whole.stored():
        at = next(position for position, header in headers_of(log) if header.base_offset == known.base_offset)
        assert google_crc32c.value(log[at : at + known.size_bytes]) == known.crc32c


def test_of_two_workers_that_cut_the_same_log_one_records(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5, 10))
    other = world.new_source(Spool(tmp_path, 1 << 20, SystemClock()))
    read, first = world.logs.read, True

    def read_while_the_other_cuts(*arguments):
        nonlocal first
        if first:
            first = False
            world.scan(other)
        return read(*arguments)

    world.logs.read = read_while_the_other_cuts  # type: ignore[method-assign]
    scanned(world)
    assert spans(world) == [(0, 9, True), (10, 14, False)]
    assert world.ranges.forgotten == []


def test_ranges_of_a_lost_history_are_cut_again_and_those_before_it_stay(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5) + batches(10, 15, 20, leader_epoch=3))
    world.model.leader_epoch = 3
    scanned(world)
    kept = world.stored()[0]
    world.replace(batches(0, 5) + batches(10, 15, 20, 25, leader_epoch=4))
    world.model.leader_epoch = 4
    scanned(world)
    assert world.stored()[0] == kept
    assert spans(world) == [(0, 9, True), (10, 19, True), (20, 29, False)]
    assert [epoch for known in world.stored() for epoch, _ in known.leader_epochs] == [0, 4, 4]
    assert world.ranges.forgotten == [(10, "broker 1 has another history since epoch 4")]


def test_a_log_start_inside_of_a_batch_begins_with_the_whole_batch(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5, 10, 15))
    world.model.earliest = world.model.earliest_local = 7
    replica = scanned(world)
    assert spans(world) == [(5, 14, True), (15, 19, False)]
    assert replica.segments[0].eligible
    with world.source.open_segment(replica.replica_id, 5) as opened:
        assert opened.check().first_offset == 5
        opened.recheck()


def test_a_range_whose_first_batch_was_deleted_cannot_be_read_any_more(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5, 10))
    scanned(world)
    world.model.earliest = world.model.earliest_local = 6
    assert scanned(world).segments[0].reason is IneligibleReason.BELOW_LOG_START


def test_what_a_broker_has_tiered_is_not_fetched(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5, 10, 15))
    world.model.earliest_local = 10
    scanned(world)
    assert spans(world)[0] == (10, 19, False)


def test_after_a_jump_of_the_log_start_the_log_is_cut_from_there(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5, 10))
    scanned(world)
    world.append(batches(15, 20, 25, 30))
    world.model.earliest = world.model.earliest_local = 20
    scanned(world)
    assert spans(world) == [(0, 9, True), (20, 29, True), (30, 34, False)]


def test_what_is_not_stable_waits(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5, 10))
    world.model.last_stable_offset = 9
    assert scanned(world).segments[0].reason is IneligibleReason.ABOVE_LAST_STABLE_OFFSET


def test_what_is_not_replicated_waits_until_its_range_is_known_for_long_enough(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5, 10))
    world.model.isr = (1,)
    assert scanned(world).segments[0].reason is IneligibleReason.NOT_FLUSHED
    world.ranges.time_ms += 59_999
    assert scanned(world).segments[0].reason is IneligibleReason.NOT_FLUSHED
    world.ranges.time_ms += 1
    assert scanned(world).segments[0].eligible


def nothing_copied(_partition: TopicIdPartition) -> None:
    return None


def test_a_scan_reads_no_log_and_says_what_is_unread(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5, 10))
    (replica,) = world.source.scan().replicas
    assert (replica.segments, replica.found_to, replica.unread_offsets) == ((), 0, 15)
    replica = scanned(world)
    assert (replica.found_to, replica.unread_offsets) == (15, 0)
    world.append(batches(15, 20))
    reads = len(world.logs.reads)
    (replica,) = world.source.scan(deep=True).replicas
    assert (replica.found_to, replica.unread_offsets, len(world.logs.reads)) == (15, 10, reads)


def test_topics_that_are_not_asked_for_are_not_read(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5, 10))
    world.source.find_segments(topics=["payments"], copied_to=nothing_copied, go_on=lambda _: None)
    assert world.logs.reads == []


def test_no_more_is_found_ahead_of_what_is_copied_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_log, "FETCH_BYTES", BATCH)
    world = world_of(tmp_path, batches(*range(0, 50, 5)), find_bytes=4 * BATCH)

    def find(copied_to: int | None) -> list[tuple[int, int, bool]]:
        world.source.find_segments(topics=None, copied_to=lambda _: copied_to, go_on=lambda _: None)
        return spans(world)

    assert find(None) == [(0, 9, True), (10, 19, False)]
    assert find(None)[-1] == (20, 29, False)  # What is closed and not copied counts, the open range does not.
    assert find(None)[-1] == (20, 29, False)
    assert find(9)[-1] == (30, 39, False)
    assert find(49)[-1] == (40, 49, False)


def test_a_paused_topic_is_not_read_and_keeps_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_log, "FETCH_BYTES", BATCH)
    world = world_of(tmp_path, batches(0, 5, 10, 15))

    def pause(topic: str) -> None:
        if len(world.logs.reads) == 3:
            raise SendingStoppedError(f"{topic} is paused")

    assert world.source.find_segments(topics=None, copied_to=nothing_copied, go_on=pause) == []
    assert spans(world) == [(0, 9, True), (10, 14, False)]


def test_a_leader_that_moves_while_its_log_is_cut_leaves_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_log, "FETCH_BYTES", BATCH)
    world = world_of(tmp_path, batches(0, 5, 10, 15))
    read = world.logs.read

    def move_then(partition, leader, offset, max_bytes, go_on):
        if offset == 15:
            raise BrokersUnavailableError("the leader has changed")
        return read(partition, leader, offset, max_bytes, go_on)

    world.logs.read = move_then  # type: ignore[assignment, method-assign]
    report = world.scan()
    assert [error.error for error in report.errors] == ["BrokersUnavailableError"]
    assert spans(world) == [(0, 9, True), (10, 14, False)]


def test_transactions_cross_ranges(tmp_path: Path) -> None:
    log = data_batch(0, 7, count=5) + data_batch(5, 8, count=5) + data_batch(10, 7, count=5)
    log += marker(15, 7, ControlType.ABORT) + marker(16, 8, ControlType.COMMIT) + batches(17, 22, 27)
    world = world_of(tmp_path, log)
    replica = scanned(world)
    first, second = world.stored()[:2]
    assert [known.current_txn_first_offset for known in parse_producer_snapshot(first.producer_snapshot)] == [0, 5]
    with world.source.open_segment(replica.replica_id, second.base_offset) as opened:
        index = opened.check().data.transaction_index
    assert index is not None
    assert list(parse_transaction_index(index)) == [(7, 0, 15, 5)]


# Real brokers' logs.

APPENDED = ("audit_log-0", "audit_log-1", "orders-0", "payments.v1-eu-0", "sensor-old-0", "bigrecs-0", "retained-0")


def partitions() -> list[Path]:
    roots = [broker_data("public") / "stopped" / broker for broker in ("broker-1", "broker-2")]
    return [root / name for root in roots for name in APPENDED if len(list((root / name).glob("*.log"))) > 2]


@pytest.mark.parametrize("directory", partitions(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_log_of_a_real_broker_is_cut_where_the_broker_cut_it(directory: Path, tmp_path: Path) -> None:
    logs = sorted(directory.glob("*.log"))
    topics = expected("public")["facts"]["topics"]
    configs = topics[directory.name.rpartition("-")[0]]["configs"]
    segment_bytes = int(configs["internal.segment.bytes"])
    world = world_of(tmp_path, b"", segment_bytes=segment_bytes)
    world.append(b"".join(log.read_bytes() for log in logs))
    world.model.earliest = world.model.earliest_local = int(logs[0].stem)
    world.model.leader_epoch = 1 << 20
    replica = scanned(world)
    theirs = [(int(log.stem), int(after.stem) - 1) for log, after in pairwise(logs)]
    ours = [(known.base_offset, known.end_offset) for known in world.stored() if known.closed]
    assert ours == theirs
    for base, _ in ours:
        with world.source.open_segment(replica.replica_id, base) as opened:
            data = opened.check().data
            read = bytearray(data.log.size_bytes)
            data.log.read_into(0, memoryview(read))
        assert bytes(read) == (directory / f"{base:020}.log").read_bytes()
        index = directory / f"{base:020}.txnindex"
        assert (data.transaction_index or b"") == (index.read_bytes() if index.exists() else b"")


def test_a_topic_that_may_not_be_described_is_named_and_others_are_read(tmp_path: Path) -> None:
    world = world_of(tmp_path, batches(0, 5, 10))
    world.brokers.create_topic("payments")
    topics = world.brokers.topics

    def described(names=None):
        if names == ["payments"]:
            raise BrokersForbiddenError("topic payments: not authorised for its configs")
        return topics(names)

    world.brokers.topics = described  # type: ignore[method-assign]
    report = world.scan()
    assert [(error.path, error.error) for error in report.errors] == [("topic payments", "BrokersForbiddenError")]
    assert spans(world) == [(0, 9, True), (10, 14, False)]
