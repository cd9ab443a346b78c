"""What every `RangeStore` keeps of the logs of leaders: in every database, and in the double."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest
from sqlalchemy import Engine, select

from include.tiering.database.schema import events
from include.tiering.formats.indexes import ProducerEntry, serialize_producer_snapshot
from include.tiering.kafka.fetch_api.contract import FetchedRange, RangeStore
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition
from include.tiering.segments.sql_fetched_ranges import SqlFetchedRanges
from tests.doubles.databases import SHARED, AdjustableNow, each_database
from tests.doubles.leader_logs import MemoryRanges
from tests.doubles.segments import CLUSTER_ID, partition_of

# A database that several threads can use.
database_kind = each_database(SHARED)

ORDERS = partition_of("orders", 3)
SNAPSHOT = serialize_producer_snapshot([ProducerEntry(7, 1, 2, 9, 0, 5, -1, 3)])


def range_of(base: int, end: int, *, closed: bool = True) -> FetchedRange:
    return FetchedRange(
        base,
        end,
        start_offset=base + 1,
        size_bytes=2**31,
        batch_count=3,
        first_timestamp_ms=1,
        max_timestamp_ms=2**40,
        crc32c=2**32 - 1,
        leader_epochs=LeaderEpochs.of([(0, base), (4, base + 1)]),
        producer_snapshot=SNAPSHOT,
        closed=closed,
    )


CLOSED, NEXT, OPEN, LONGER = (
    range_of(0, 9),
    range_of(10, 19),
    range_of(10, 12, closed=False),
    range_of(10, 15, closed=False),
)


def kept(store: RangeStore, partition: TopicIdPartition = ORDERS) -> list[FetchedRange]:
    return [recorded.range for recorded in store.ranges(partition)]


@pytest.fixture
def sql(engine: Engine, now: AdjustableNow) -> SqlFetchedRanges:
    return SqlFetchedRanges(engine, CLUSTER_ID, now_ms=now)


class RangeStoreContract:
    def test_ranges_are_returned_as_they_were_recorded(self, store: RangeStore) -> None:
        assert store.record(ORDERS, None, [CLOSED, OPEN])
        assert kept(store) == [CLOSED, OPEN]
        assert [recorded.recorded_at_ms for recorded in store.ranges(ORDERS)] == [store.now_ms()] * 2
        assert kept(store, partition_of("orders", 4)) == []

    def test_the_open_range_is_replaced_by_what_was_found_after_it(self, store: RangeStore) -> None:
        assert store.record(ORDERS, None, [CLOSED, OPEN])
        assert store.record(ORDERS, OPEN, [LONGER])
        assert kept(store) == [CLOSED, LONGER]
        after = range_of(20, 21, closed=False)
        assert store.record(ORDERS, LONGER, [NEXT, after])
        assert kept(store) == [CLOSED, NEXT, after]

    @pytest.mark.parametrize(
        ("below_offset", "first"), [(0, 0), (10, 0), (19, 0), (20, 10), (29, 10), (30, 20), (10**6, 20)]
    )
    def test_what_is_left_begins_with_the_range_before(self, store: RangeStore, below_offset: int, first: int) -> None:
        ranges = [CLOSED, NEXT, range_of(20, 29), range_of(30, 31, closed=False)]
        store.record(ORDERS, None, ranges)
        store.record(partition_of("orders", 4), None, ranges)
        for _ in range(2):
            store.delete_below(ORDERS, below_offset)
            assert kept(store) == [known for known in ranges if known.base_offset >= first]
        assert kept(store, partition_of("orders", 4)) == ranges
        assert store.record(ORDERS, ranges[-1], [range_of(30, 39), range_of(40, 41, closed=False)])

    @pytest.mark.parametrize("before", [None, replace(OPEN, end_offset=11), replace(OPEN, crc32c=5)])
    def test_who_has_read_another_open_range_records_nothing(
        self, store: RangeStore, before: FetchedRange | None
    ) -> None:
        store.record(ORDERS, None, [CLOSED, OPEN])
        assert not store.record(ORDERS, before, [LONGER])
        assert kept(store) == [CLOSED, OPEN]

    def test_a_closed_range_is_never_replaced(self, store: RangeStore) -> None:
        store.record(ORDERS, None, [CLOSED, NEXT])
        assert not store.record(ORDERS, None, [range_of(10, 15)])
        assert not store.record(ORDERS, None, [range_of(5, 30)])
        assert kept(store) == [CLOSED, NEXT]

    def test_after_a_jump_the_open_range_goes(self, store: RangeStore) -> None:
        store.record(ORDERS, None, [CLOSED, OPEN])
        later = range_of(50, 60, closed=False)
        assert store.record(ORDERS, OPEN, [later])
        assert kept(store) == [CLOSED, later]

    def test_what_is_forgotten_reaches_the_offset(self, store: RangeStore) -> None:
        store.record(ORDERS, None, [CLOSED, NEXT, range_of(20, 22, closed=False)])
        store.forget(ORDERS, 20, reason="why")
        store.forget(ORDERS, 20, reason="again")
        assert kept(store) == [CLOSED, NEXT]
        store.forget(ORDERS, 19, reason="why")
        assert kept(store) == [CLOSED]
        assert store.record(ORDERS, None, [OPEN])


class TestMemoryRanges(RangeStoreContract):
    @pytest.fixture
    def store(self) -> RangeStore:
        return MemoryRanges()


class TestSqlFetchedRanges(RangeStoreContract):
    @pytest.fixture
    def store(self, sql: SqlFetchedRanges) -> RangeStore:
        return sql


def test_what_is_forgotten_is_an_event(sql: SqlFetchedRanges, engine: Engine) -> None:
    sql.record(ORDERS, None, [CLOSED, NEXT])
    sql.forget(ORDERS, 10, reason="another history")
    sql.forget(ORDERS, 10, reason="nothing is left")
    with engine.connect() as connection:
        details = connection.execute(select(events.c.detail).where(events.c.kind == "leader-epochs")).scalars().all()
    assert details == ["1 ranges from offset 10 on are cut again: another history"]


def in_parallel(actions: list[Callable[[], bool]]) -> list[bool]:
    barrier = Barrier(len(actions))

    def run(action: Callable[[], bool]) -> bool:
        barrier.wait()
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))


def test_of_workers_that_record_at_the_same_time_one_wins(sql: SqlFetchedRanges) -> None:
    def ending_at(end: int) -> Callable[[], bool]:
        return lambda: sql.record(ORDERS, None, [range_of(0, end), range_of(end + 1, end + 5, closed=False)])

    assert sorted(in_parallel([ending_at(end) for end in (9, 9, 12, 15)])) == [False, False, False, True]
    assert len(kept(sql)) == 2
