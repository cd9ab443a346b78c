"""The service that reads archived records: partitions into files, batches for fetch requests, columns for scans.

A pool of reader threads serves fetches of several partitions from a queue that is bounded by requests and bytes. Each
partition of a request that must be read is one entry of the queue. While it waits it weighs its `max_bytes`, although
it holds nothing. Its reader reserves what the read will really hold, which may be more: the index of the segment, then
a first batch that is larger than `max_bytes`. It waits while all others hold the bound. What the records hold counts
until the caller has taken the response and requests the next one, so the bound covers the records in memory and not
just the reads. A caller that makes two requests in one thread must not leave responses of the first one to wait.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from include.tiering.errors import QueueClosedError, QueueFullError, TieringError
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.quotas.byte_bounded_queue import ByteBoundedQueue, Taken
from include.tiering.quotas.contract import NAMELESS_CLIENT, Quotas, Scope, fetch_scopes
from include.tiering.reading.fetch import FetchedRecords, PartitionFetch, RecordReader, Reserve
from include.tiering.reading.files import FetchedSegment, fetch_partition
from include.tiering.reading.plan_scan import ScanPlan, ScanPlanner, ScanRequest, ScanTask
from include.tiering.reading.scan import Scanner
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.settings import TieringSettings
from include.tiering.telemetry import for_partition, get_logger

if TYPE_CHECKING:
    from include.tiering.formats.record_columns import ColumnBatch, RecordColumns

_log: Final = get_logger(__name__)
OnThrottled = Callable[[str, int, float], None]
"""Called with topic, requested bytes, and seconds for each fetch whose response is a throttle time."""

PUT_SECONDS: Final = 0.5
"""How long a partition waits for space in the queue if its call awaits no other response.

This is the default of Kafka's `remote.fetch.max.wait.ms`."""


@dataclass(frozen=True, slots=True)
class _Task:
    fetch: PartitionFetch
    segment: RemoteLogSegmentMetadata
    client: str
    answers: "SimpleQueue[_Answer]"


@dataclass(frozen=True, slots=True)
class _Answer:
    """A response; `fetched` is None if the reader raised an exception other than a TieringError."""

    taken: Taken[_Task]
    fetched: FetchedRecords | None


class RecordReaders:
    """A pool of `threads` reader threads, which run while the context lasts and serve all requests made in it."""

    def __init__(
        self,
        reader: RecordReader,
        *,
        threads: int,
        max_requests: int,
        max_bytes: int,
        on_throttled: OnThrottled,
        put_seconds: float = PUT_SECONDS,
    ) -> None:
        self._reader = reader
        self._on_throttled = on_throttled
        self._put_seconds = put_seconds
        self._queue: ByteBoundedQueue[_Task] = ByteBoundedQueue(max_requests, max_bytes)
        self._threads = [
            threading.Thread(target=self._serve, name=f"reader-{number}", daemon=True) for number in range(threads)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.close()
        for thread in self._threads:
            thread.join()

    @property
    def held_bytes(self) -> int:
        """Most bytes of memory that all reads hold, and all responses that the caller has not let go."""
        return self._queue.reserved_bytes

    def fetch(self, fetches: Sequence[PartitionFetch], client: str = NAMELESS_CLIENT) -> Iterator[FetchedRecords]:
        """Yield one response for each partition, in the order of completion.

        A TieringError or throttle time of one partition does not affect the others. Records count as held until the
        next response is requested, or the iterator is closed. A partition whose quota is exhausted gets its response
        without waiting for a reader. If the queue has no space in time, the response has a QueueFullError.
        """
        answers: SimpleQueue[_Answer] = SimpleQueue()
        outstanding = 0
        try:
            for fetch in fetches:
                found = self._found(fetch, client, answers)
                while isinstance(found, _Task) and (
                    error := self._offer(found, 0 if outstanding else self._put_seconds)
                ):
                    if outstanding:
                        # This call itself may fill the queue: release a response before waiting for others.
                        outstanding -= 1
                        yield from self._handed_over(answers.get())
                    else:
                        found = FetchedRecords.without_records(fetch, error=error)
                if isinstance(found, FetchedRecords):
                    yield self._reported(found)
                else:
                    outstanding += 1
            while outstanding:
                outstanding -= 1
                yield from self._handed_over(answers.get())
        finally:
            for _ in range(outstanding):
                answers.get().taken.done()

    def _found(self, fetch: PartitionFetch, client: str, answers: "SimpleQueue[_Answer]") -> _Task | FetchedRecords:
        """Return the task for a reader, or a response that needs no reader (a throttle time or an error)."""
        try:
            segment = self._reader.find(fetch)
            throttle_ms = self._reader.throttle_ms(segment, client)
        except TieringError as error:
            return FetchedRecords.without_records(fetch, error=error)
        if throttle_ms:
            return FetchedRecords.without_records(fetch, throttle_ms=throttle_ms)
        return _Task(fetch, segment, client, answers)

    def _offer(self, task: _Task, seconds: float) -> TieringError | None:
        """Put a task into the queue; return None, or the error if the queue stays full or is closed."""
        try:
            self._queue.put(task, task.fetch.max_bytes, seconds)
        except (QueueFullError, QueueClosedError) as error:
            return error
        return None

    def _serve(self) -> None:
        while True:
            try:
                taken = self._queue.get()
            except QueueClosedError:
                return
            taken.item.answers.put(_Answer(taken, self._read(taken.item, taken.reserve)))

    def _read(self, task: _Task, reserve: Reserve) -> FetchedRecords | None:
        try:
            return self._reader.read(task.fetch, task.segment, task.client, reserve)
        except TieringError as error:
            return FetchedRecords.without_records(task.fetch, error=error)
        except Exception:
            logger = for_partition(_log, task.fetch.partition)
            logger.exception("a reader crashed at offset %s", task.fetch.offset)
            return None

    def _handed_over(self, answer: _Answer) -> Iterator[FetchedRecords]:
        """Yield one response; its weight is released when the caller requests the next response."""
        with answer.taken as task:
            if answer.fetched is None:
                raise RuntimeError(
                    f"{task.fetch.partition}: a reader crashed at offset {task.fetch.offset}, see the log"
                )
            yield self._reported(answer.fetched)

    def _reported(self, fetched: FetchedRecords) -> FetchedRecords:
        if fetched.throttle_ms:
            fetch = fetched.fetch
            self._on_throttled(fetch.partition.topic, fetch.max_bytes, fetched.throttle_ms / 1000)
        return fetched


class ReadService:
    """Reads remote segments under the fetch quota.

    Args:
        effective: returns the settings overridden by the current dynamic configs.
        threads: returns how many segments are read concurrently.
    """

    def __init__(
        self,
        *,
        metadata: RemoteLogMetadata,
        storage: RemoteStorage,
        quotas: Quotas,
        effective: Callable[[], TieringSettings],
        threads: Callable[[], int],
        on_throttled: OnThrottled,
    ) -> None:
        self._metadata = metadata
        self._storage = storage
        self._quotas = quotas
        self._effective = effective
        self._threads = threads
        self._on_throttled = on_throttled

    def fetch_partition(
        self, partition: TopicIdPartition, output_dir: Path, client: str = NAMELESS_CLIENT
    ) -> Iterator[FetchedSegment]:
        """Write the segments of a partition into a directory, several at a time; see `files.fetch_partition`."""
        return fetch_partition(
            partition,
            output_dir,
            client,
            metadata=self._metadata,
            storage=self._storage,
            quotas=self._quotas,
            at_once=self._effective().read.max_segments,
        )

    def plan_scan(self, request: ScanRequest, client: str = NAMELESS_CLIENT) -> ScanPlan:
        """Return which ranges of segments a scan reads; see `ScanPlanner.plan`."""
        at_once = self._effective().read.max_segments
        return ScanPlanner(self._metadata, self._storage, self._quotas, at_once=at_once, client=client).plan(request)

    def least_seconds(self, plan: ScanPlan, client: str = NAMELESS_CLIENT) -> float:
        """Return for how many seconds the fetch quotas hold a scan, if nobody else reads; 0 without a quota."""
        window = self._effective().fetch_quota_window
        admission = self._quotas.admission(samples=window.num, sample_ms=window.size_seconds * 1000)
        scope_bytes: Counter[Scope] = Counter()
        for each in (each for task in plan.tasks for each in task):
            topic = each.segment.topic_id_partition.topic
            scope_bytes.update(dict.fromkeys(fetch_scopes(each.segment.broker_id, topic, client), each.size_bytes))
        quotas = ((size_bytes, admission.lowest_quota((scope,))) for scope, size_bytes in scope_bytes.items())
        return max((size_bytes / quota for size_bytes, quota in quotas if quota), default=0.0)

    def scan(self, task: ScanTask, columns: "RecordColumns", client: str = NAMELESS_CLIENT) -> "Iterator[ColumnBatch]":
        """Yield the records of a task of a plan; see `Scanner.read`."""
        at_once = self._effective().read.max_segments
        return Scanner(self._storage, self._quotas, client=client, at_once=at_once).read(task, columns)

    @contextmanager
    def record_readers(self) -> Iterator[RecordReaders]:
        """Run the reader pool under the fetch quota while the context lasts."""
        settings = self._effective()
        window = settings.fetch_quota_window
        admission = self._quotas.admission(samples=window.num, sample_ms=window.size_seconds * 1000)
        with RecordReaders(
            RecordReader(self._metadata, self._storage, self._quotas, admission),
            threads=self._threads(),
            max_requests=settings.queue.max_requests,
            max_bytes=settings.queue.max_bytes,
            on_throttled=self._on_throttled,
        ) as readers:
            yield readers

    def fetch_records(
        self, fetches: Sequence[PartitionFetch], client: str = NAMELESS_CLIENT
    ) -> Iterator[FetchedRecords]:
        """Yield one response for each partition; see `RecordReaders.fetch`."""
        with self.record_readers() as readers:
            yield from readers.fetch(fetches, client)
