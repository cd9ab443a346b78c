"""Whatever is read in parallel has the verdict of a sequential read: sizes, bounds, damage and failures of any kind."""

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from include.tiering.errors import (
    RemoteAccessDeniedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageUnavailableError,
    TieringError,
)
from include.tiering.model.segments import Depth
from include.tiering.quotas.contract import ByteLimiter, UnlimitedBytes
from include.tiering.remote_storage import parallel_reads as module
from include.tiering.remote_storage import segment_reader
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.parallel_reads import Reading, in_order, plan_ranges, read_ranges
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.verification.measure_segment import measure_segment
from include.tiering.verification.measures import SegmentMeasure
from include.tiering.verification.verify_segments import Measurer
from tests.doubles.memory_stores import MemoryMetadata
from tests.doubles.quotas import SameLimiter
from tests.doubles.stored_log import CopiedPartition, CountingLimiter, copied_partition, some_bytes

LOG_BYTES = 4_000
ERRORS = [RemoteStorageUnavailableError("503"), RemoteResourceNotFoundError("short"), RemoteAccessDeniedError("403")]


class Failure(NamedTuple):
    position: int
    error: RemoteStorageError


class Store:
    """An object that gives blocks of `block_bytes`, and fails each read that reaches one of some positions."""

    def __init__(self, content: bytes, block_bytes: int, failures: tuple[Failure, ...]) -> None:
        self.content = content
        self.block_bytes = block_bytes
        self.failures = sorted(failures, key=lambda failure: failure.position)

    def read(self, key: str, first: int, last: int, *, limiter: ByteLimiter) -> Iterator[bytes]:
        position = first
        while position <= last:
            failing = next((each for each in self.failures if each.position >= position), None)
            end = min(last + 1, position + self.block_bytes, len(self.content) if failing is None else failing.position)
            if failing is not None and end <= position:
                raise failing.error
            end = position + limiter.take(end - position)
            yield self.content[position:end]
            position = end


def outcome(blocks: Iterator[bytes]) -> tuple[bytes, TieringError | None]:
    """All bytes that came, and the error behind them."""
    found = bytearray()
    try:
        for block in blocks:
            found += block
    except TieringError as error:
        return bytes(found), error
    return bytes(found), None


@given(
    first=st.integers(0, LOG_BYTES - 1),
    size_bytes=st.integers(1, LOG_BYTES),
    range_bytes=st.integers(1, 2 * LOG_BYTES),
    block_bytes=st.integers(1, LOG_BYTES),
    at_once=st.integers(1, 9),
    failures=st.lists(st.builds(Failure, st.integers(0, LOG_BYTES), st.sampled_from(ERRORS)), max_size=3).map(tuple),
)
@settings(max_examples=150)
def test_ranges_give_the_bytes_and_the_error_of_one_read(
    first: int,
    size_bytes: int,
    range_bytes: int,
    block_bytes: int,
    at_once: int,
    failures: tuple[Failure, ...],
) -> None:
    last = min(first + size_bytes, LOG_BYTES) - 1
    store = Store(some_bytes(LOG_BYTES), block_bytes, failures)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RANGE_BYTES", max(range_bytes, (last + 1 - first) // 50))
        limiter = CountingLimiter()
        found = outcome(read_ranges(store.read, "key", first, last, limiter=limiter, at_once=at_once))
    assert found == outcome(store.read("key", first, last, limiter=UnlimitedBytes()))
    assert limiter.total_bytes >= len(found[0])
    if found[1] is None:
        assert limiter.total_bytes == last + 1 - first, "each byte is charged once"


@given(first=st.integers(0, 2**40), size_bytes=st.integers(1, 2**40), at_once=st.integers(1, 64))
@settings(max_examples=50)
def test_planned_ranges_follow_each_other_and_none_is_too_large(first: int, size_bytes: int, at_once: int) -> None:
    size_bytes = min(size_bytes, 500 * module.RANGE_BYTES)
    planned = plan_ranges(first, first + size_bytes - 1, at_once)
    assert (planned[0][0], planned[-1][1]) == (first, first + size_bytes - 1)
    assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(planned))
    assert all(begin <= end for begin, end in planned)
    if at_once == 1:
        assert len(planned) == 1
    else:
        assert max(end + 1 - begin for begin, end in planned) <= module.RANGE_BYTES
        assert len(planned) == -(-size_bytes // module.RANGE_BYTES), "no more requests than needed"


@given(
    failing=st.sets(st.integers(0, 30)), tasks=st.integers(0, 30), at_once=st.integers(1, 8), ahead=st.integers(1, 40)
)
@settings(max_examples=100)
def test_results_come_in_order_up_to_the_first_error(failing: set[int], tasks: int, at_once: int, ahead: int) -> None:
    begun, lock = set[int](), threading.Lock()

    def task(number: int) -> Callable[[Reading], int]:
        def run(_: Reading) -> int:
            with lock:
                begun.add(number)
            if number in failing:
                raise RemoteStorageError(str(number))
            return number

        return run

    found: list[int] = []
    first_failing = min((number for number in failing if number < tasks), default=None)
    results = in_order([task(number) for number in range(tasks)], at_once=at_once, ahead=ahead)
    if first_failing is None:
        found.extend(results)
        assert found == list(range(tasks))
    else:
        with pytest.raises(RemoteStorageError, match=f"^{first_failing}$"):
            found.extend(results)
        assert found == list(range(first_failing))
    assert begun >= set(found)
    if at_once > 1:
        assert max(begun, default=0) < len(found) + ahead + 1


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> CopiedPartition:
    return copied_partition(tmp_path_factory.mktemp("store"), segments=4)


class BrokenStore(FileObjectStore):
    """A directory that gives some logs only up to a position, and then an error."""

    failing: dict[str, tuple[float, RemoteStorageError]]

    def read(self, key: str, first: int = 0, last: int | None = None, *, limiter: ByteLimiter) -> Iterator[bytes]:
        share, error = next((self.failing[name] for name in self.failing if name in key), (None, None))
        if share is None or not key.endswith(".log") or last is None:
            yield from super().read(key, first, last, limiter=limiter)
            return
        stat = self.head(key)
        assert stat is not None
        assert error is not None
        fails_at = int(share * stat.size_bytes)
        if first < fails_at:
            yield from super().read(key, first, min(last, fails_at - 1), limiter=limiter)
        if last >= fails_at:
            raise error


@given(data=st.data(), range_bytes=st.integers(300, 20_000), at_once=st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_segments_read_in_parallel_have_the_measures_of_a_sequential_read(
    partition: CopiedPartition, data: st.DataObject, range_bytes: int, at_once: int
) -> None:
    """Some are damaged, some cannot be read to their end: the others are measured as if they were alone."""
    damaged = data.draw(st.dictionaries(st.integers(0, 3), st.floats(0, 0.99), max_size=2), "damaged")
    cut = data.draw(
        st.dictionaries(st.integers(0, 3), st.tuples(st.floats(0, 1), st.sampled_from(ERRORS)), max_size=2), "cut"
    )
    whole = {number: partition.object_path(partition.rows[number], "log") for number in damaged}
    kept = {number: path.read_bytes() for number, path in whole.items()}
    store = BrokenStore(partition.root)
    store.failing = {
        str(partition.rows[number].metadata.remote_log_segment_id.id): where for number, where in cut.items()
    }
    storage = SegmentStorage(store, AivenLayout(AivenForm(with_txn_index_empty=True)))

    def measured(at_once: int) -> list[SegmentMeasure | str]:
        measurer = Measurer(MemoryMetadata(), storage, SameLimiter(UnlimitedBytes()), at_once=at_once)
        found: list[SegmentMeasure | str] = []
        try:
            found.extend(
                measurer.in_order(
                    partition.rows,
                    lambda row, reading: measure_segment(
                        row,
                        previous=None,
                        storage=storage,
                        limiter=UnlimitedBytes(reading.go_on),
                        depth=Depth.DEEP,
                        ranges=1 if at_once == 1 else at_once,
                    ),
                )
            )
        except RemoteStorageUnavailableError as error:
            found.append(str(error))
        return found

    try:
        for number, share in damaged.items():
            content = bytearray(kept[number])
            content[int(share * len(content))] ^= 0x10
            whole[number].write_bytes(content)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "RANGE_BYTES", range_bytes)
            patch.setattr(segment_reader, "RANGE_BYTES", range_bytes)
            parallel = measured(at_once)
        assert parallel == measured(1)
    finally:
        for number, path in whole.items():
            path.write_bytes(kept[number])
