"""Reading back: whole partitions into files, and records as a consumer asks for them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from include.tiering.clock import Clock
from include.tiering.model.ids import TopicIdPartition
from include.tiering.quotas.contract import Quotas
from include.tiering.quotas.fetch_admission import FetchAdmission
from include.tiering.quotas.metrics import process_quota_metrics
from include.tiering.quotas.scopes import QuotaKind
from include.tiering.reading.fetch_partition import FetchedSegment, fetch_partition
from include.tiering.reading.fetch_records import FetchedRecords, PartitionFetch, RecordReader
from include.tiering.reading.record_readers import RecordReaders
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.settings import TieringSettings


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
