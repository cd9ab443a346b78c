"""Reading back: whole partitions into files, and records as a consumer asks for them, by a pool of readers.

The pool is threads that answer fetches of several partitions, behind a queue bounded by requests and bytes. Each
partition of a request is a request to the queue that weighs its `max_bytes`. The weight counts until whoever asked has
taken the answer and comes back for the next one, so the bound holds the records and not just the reads. (A first batch
larger than `max_bytes` is read all the same; a broker's `max.message.bytes` says how large it may be.)
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Self

from include.tiering.clock import Clock
from include.tiering.errors import QueueClosedError, QueueFullError, TieringError
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.quotas.byte_bounded_queue import ByteBoundedQueue, Taken
from include.tiering.quotas.contract import QuotaKind, Quotas
from include.tiering.quotas.fetch_admission import FetchAdmission
from include.tiering.quotas.metrics import process_quota_metrics
from include.tiering.reading.fetch import FetchedRecords, FetchedSegment, PartitionFetch, RecordReader, fetch_partition
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.settings import TieringSettings
from include.tiering.telemetry import for_partition, get_logger

_log: Final = get_logger(__name__)
OnThrottled = Callable[[str, int, float], None]
"""Gets topic, bytes asked for, and seconds of each fetch that was answered with a throttle time."""

PUT_SECONDS: Final = 0.5
"""How long a partition waits for room in the queue: Kafka's `remote.fetch.max.wait.ms`."""


@dataclass(frozen=True, slots=True)
class _Task:
    fetch: PartitionFetch
    segment: RemoteLogSegmentMetadata
    client: str | None
    answers: "SimpleQueue[_Answer]"


@dataclass(frozen=True, slots=True)
class _Answer:
    """`fetched` is None if the reader broke."""

    taken: Taken[_Task]
    fetched: FetchedRecords | None


class RecordReaders:
    """`threads` readers that run from `with` to its end; what was asked before the end is answered."""

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
        """Weights of the fetches that wait, are read, or whose answer was not let go."""
        return self._queue.held_bytes

    def fetch(self, fetches: Sequence[PartitionFetch], client: str | None = None) -> Iterator[FetchedRecords]:
        """One answer for each partition, as they come; an error or a throttle time of one does not keep the others.

        Records are counted as held until the next answer is asked for, or the iterator is closed. A partition whose
        quota is exhausted is answered without waiting for a reader; one that finds no room in the queue in time gets
        a QueueFullError.
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
                        # The room may be our own: let an answer go before waiting for others.
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

    def _found(
        self, fetch: PartitionFetch, client: str | None, answers: "SimpleQueue[_Answer]"
    ) -> _Task | FetchedRecords:
        """What a reader has to do, or the answer that needs none: a throttle time, or no such offset."""
        try:
            segment = self._reader.find(fetch)
        except TieringError as error:
            return FetchedRecords.without_records(fetch, error=error)
        throttle_ms = self._reader.throttle_ms(segment, client)
        if throttle_ms:
            return FetchedRecords.without_records(fetch, throttle_ms=throttle_ms)
        return _Task(fetch, segment, client, answers)

    def _offer(self, task: _Task, seconds: float) -> TieringError | None:
        """None if a reader will answer, else why none will."""
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
            taken.item.answers.put(_Answer(taken, self._read(taken.item)))

    def _read(self, task: _Task) -> FetchedRecords | None:
        try:
            return self._reader.read(task.fetch, task.segment, task.client)
        except TieringError as error:
            return FetchedRecords.without_records(task.fetch, error=error)
        except Exception:
            logger = for_partition(_log, task.fetch.partition)
            logger.exception("a reader broke at offset %s", task.fetch.offset)
            return None

    def _handed_over(self, answer: _Answer) -> Iterator[FetchedRecords]:
        """The one answer; what it weighs is given back when the next one is asked for."""
        with answer.taken as task:
            if answer.fetched is None:
                raise RuntimeError(f"{task.fetch.partition}: a reader broke at offset {task.fetch.offset}, see the log")
            yield self._reported(answer.fetched)

    def _reported(self, fetched: FetchedRecords) -> FetchedRecords:
        if fetched.throttle_ms:
            fetch = fetched.fetch
            self._on_throttled(fetch.partition.topic, fetch.max_bytes, fetched.throttle_ms / 1000)
        return fetched


class ReadService:
    """Reads remote segments under the fetch quota.

    Args:
        effective: the settings with the dynamic configs of now over them.
        threads: how many segments are read side by side.
    """

    def __init__(
        self,
        *,
        metadata: RemoteLogMetadata,
        storage: RemoteStorage,
        quotas: Quotas,
        effective: Callable[[], TieringSettings],
        threads: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._metadata = metadata
        self._storage = storage
        self._quotas = quotas
        self._effective = effective
        self._threads = threads
        self._clock = clock

    def fetch_partition(self, partition: TopicIdPartition, output_dir: Path) -> Iterator[FetchedSegment]:
        """Write the segments of a partition into a directory, one after the other."""
        return fetch_partition(
            partition, output_dir, metadata=self._metadata, storage=self._storage, quotas=self._quotas
        )

    @contextmanager
    def record_readers(self) -> Iterator[RecordReaders]:
        """The reader pool, for as long as the context lasts, under the fetch quota."""
        settings = self._effective()
        window = settings.fetch_quota_window
        admission = FetchAdmission(
            self._quotas.share, self._clock, samples=window.num, sample_ms=window.size_seconds * 1000
        )
        with RecordReaders(
            RecordReader(self._metadata, self._storage, self._quotas, admission),
            threads=self._threads(),
            max_requests=settings.queue.max_requests,
            max_bytes=settings.queue.max_bytes,
            on_throttled=partial(process_quota_metrics().throttled, QuotaKind.FETCH),
        ) as readers:
            yield readers

    def fetch_records(self, fetches: Sequence[PartitionFetch], client: str | None = None) -> Iterator[FetchedRecords]:
        """One answer for each partition, as they come; see `RecordReaders.fetch`."""
        with self.record_readers() as readers:
            yield from readers.fetch(fetches, client)
