"""The reader pool: one answer for each partition, weights until the answer is let go, no partition keeps another."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from include.tiering.errors import (
    OffsetOutOfRangeError,
    QueueClosedError,
    QueueFullError,
    RemoteStorageUnavailableError,
)
from include.tiering.model.segments import RemoteLogSegmentMetadata
from include.tiering.reading.fetch import FetchedRecords, PartitionFetch, Reserve
from include.tiering.reading.service import RecordReaders
from tests.doubles.partial import Partial
from tests.doubles.patience import PATIENCE_SECONDS
from tests.doubles.segments import partition_of, segment_of

Read = Callable[[PartitionFetch], bytes]


class ScriptedReader(Partial):
    """Reads by a function of the test; `throttles` are by offset."""

    def __init__(self, read: Read = lambda fetch: bytes(fetch.max_bytes)) -> None:
        self.on_read = read
        self.throttles: dict[int, int] = {}
        self.clients: list[str | None] = []
        self.first_batch_bytes = 0

    def find(self, fetch: PartitionFetch) -> RemoteLogSegmentMetadata:
        """Segment n holds offset n alone."""
        if fetch.offset >= 1_000:
            raise OffsetOutOfRangeError(f"no segment holds {fetch.offset}")
        return segment_of(fetch.partition, fetch.offset, fetch.offset, fetch.offset)

    def throttle_ms(self, segment: RemoteLogSegmentMetadata, client: str | None) -> int:
        return self.throttles.get(segment.start_offset, 0)

    def read(
        self, fetch: PartitionFetch, first: RemoteLogSegmentMetadata, client: str | None, reserve: Reserve
    ) -> FetchedRecords:
        assert first.start_offset == fetch.offset
        self.clients.append(client)
        reserve(self.first_batch_bytes or fetch.max_bytes)
        return FetchedRecords(fetch, fetch.offset, fetch.offset + 1, self.on_read(fetch))


def readers(reader: ScriptedReader, **options: Any) -> RecordReaders:
    defaults = {
        "threads": 2,
        "max_requests": 10,
        "max_bytes": 1_000,
        "put_seconds": PATIENCE_SECONDS,
        "on_throttled": lambda *_: None,
    }
    return RecordReaders(reader, **{**defaults, **options})


def asked(*offsets: int, max_bytes: int = 100) -> list[PartitionFetch]:
    return [PartitionFetch(partition_of(partition=number), offset, max_bytes) for number, offset in enumerate(offsets)]


def test_every_partition_gets_one_answer() -> None:
    reader = ScriptedReader()
    with readers(reader) as pool:
        answers = list(pool.fetch(asked(*range(50)), "reports"))
    assert sorted(answer.fetch.offset for answer in answers) == list(range(50))
    assert all(len(answer.records) == 100 and answer.error is None for answer in answers)
    assert set(reader.clients) == {"reports"}
    assert pool.held_bytes == 0


def test_a_throttled_partition_is_answered_at_once_and_the_others_go_on() -> None:
    reader = ScriptedReader()
    reader.throttles = {1: 700}
    told: list[tuple[str, int, float]] = []
    with readers(reader, on_throttled=lambda *throttle: told.append(throttle)) as pool:
        answers = {answer.fetch.offset: answer for answer in pool.fetch(asked(0, 1, 2))}
    assert (answers[1].throttle_ms, answers[1].records, answers[1].next_offset) == (700, b"", 1)
    assert answers[0].records == answers[2].records == bytes(100)
    assert told == [("orders", 100, 0.7)]


def test_an_error_is_the_answer_of_its_partition() -> None:
    def read(fetch: PartitionFetch) -> bytes:
        if fetch.offset == 1:
            raise RemoteStorageUnavailableError("503")
        return b"records"

    with readers(ScriptedReader(read)) as pool:
        answers = {answer.fetch.offset: answer for answer in pool.fetch(asked(0, 1, 2, 5_000))}
    assert isinstance(answers[1].error, RemoteStorageUnavailableError)
    assert isinstance(answers[5_000].error, OffsetOutOfRangeError)
    assert answers[0].records == answers[2].records == b"records"


def test_what_is_held_stays_below_the_bound_and_one_request() -> None:
    with readers(ScriptedReader(), threads=4, max_bytes=250) as pool:
        held = [pool.held_bytes for _ in pool.fetch(asked(*range(40)))]
    assert max(held) <= 249 + 100
    assert pool.held_bytes == 0


def test_first_batches_that_are_larger_than_requested_count_with_what_they_hold() -> None:
    reader = ScriptedReader(lambda fetch: bytes(100))
    reader.first_batch_bytes = 100
    with readers(reader, threads=8, max_requests=100, max_bytes=250) as pool:
        answers = list(pool.fetch(asked(*range(60), max_bytes=1)))
        held = [pool.held_bytes for _ in pool.fetch(asked(*range(60), max_bytes=1))]
    assert len(answers) == 60
    assert max(held) <= 249 + 100
    assert pool.held_bytes == 0


def test_a_pool_that_is_left_wakes_readers_that_wait_for_memory() -> None:
    reader = ScriptedReader(lambda fetch: bytes(100))
    reader.first_batch_bytes = 500
    with readers(reader, max_bytes=100) as pool:
        answers = pool.fetch(asked(*range(8), max_bytes=1))
        next(answers)
    assert any(isinstance(answer.error, QueueClosedError) for answer in answers)
    assert pool.held_bytes == 0


def test_one_request_larger_than_the_bound_passes_alone() -> None:
    with readers(ScriptedReader(), max_bytes=10) as pool:
        assert [len(answer.records) for answer in pool.fetch(asked(0, 1, 2, max_bytes=500))] == [500] * 3


def test_a_full_queue_is_an_error_of_the_partition_that_finds_no_room() -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def read(fetch: PartitionFetch) -> bytes:
        begun.release()
        go_on.wait(PATIENCE_SECONDS)
        return b"late"

    with readers(ScriptedReader(read), threads=1, max_bytes=100, put_seconds=0) as pool:
        slow: Iterator[FetchedRecords] = pool.fetch(asked(0))
        other = threading.Thread(target=lambda: late.extend(slow))
        late: list[FetchedRecords] = []
        other.start()
        assert begun.acquire(timeout=PATIENCE_SECONDS)
        (refused,) = pool.fetch(asked(7))
        assert isinstance(refused.error, QueueFullError)
        go_on.set()
        other.join()
        assert [answer.records for answer in late] == [b"late"]
        (accepted,) = pool.fetch(asked(8))
        assert accepted.error is None


def test_an_iterator_that_is_left_gives_everything_back() -> None:
    with readers(ScriptedReader()) as pool:
        answers: Any = pool.fetch(asked(*range(8)))
        next(answers)
        assert pool.held_bytes > 0
        answers.close()
        assert pool.held_bytes == 0


def test_a_reader_that_breaks_is_told_and_the_pool_lives_on() -> None:
    def read(fetch: PartitionFetch) -> bytes:
        if fetch.offset < 4:
            raise ZeroDivisionError("a bug")
        return b"records"

    with readers(ScriptedReader(read)) as pool:
        for offset in range(4):
            with pytest.raises(RuntimeError, match=f"orders-0: a reader crashed at offset {offset}"):
                list(pool.fetch(asked(offset)))
        assert [answer.records for answer in pool.fetch(asked(4, 5))] == [b"records"] * 2
    assert pool.held_bytes == 0
