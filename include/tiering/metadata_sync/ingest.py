"""Ingest `__remote_log_metadata`: read each partition from its stored position to its end at the start of the run.

| step     | done when it is reached                       | a crash right after it leaves         | cleaned up by     |
|----------|-----------------------------------------------|---------------------------------------|-------------------|
| bounds   | the topic's offsets are stored, and new       | positions below the end: partitions   | the next run      |
| stored   | partitions have a position                    | that brokers tier are not ready       |                   |
| read     | a page of records is in memory                | nothing                               | -                 |
| applied  | the page and the position after it are        | positions below the end, each record  | the next run      |
|          | stored, in one transaction                    | before them applied once              | continues there   |
| stopped  | the reason why a partition stopped is stored  | the same                              | a person; the     |
|          |                                               |                                       | next run tries    |
| followed | brokers own the topics that they tier, and    | nothing                               | -                 |
|          | their deletions of our segments are applied   |                                       |                   |

Concurrent runs are harmless: a page is applied only at the stored position. The run that is later with its page gets an
error and reads no more of that partition; the next run continues there. While records are read, the partitions of the
topic are independent: a partition that is stopped, or has no leader, does not stop the others. The run fails if the
offsets of no partition can be read, or if brokers refuse a read. The step `followed` is left out if the reading of a
partition failed. That step does not change the owner of topics that are being handed over.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final

from include.tiering.errors import (
    MetadataTopicRangeError,
    MetadataTopicUnavailableError,
    PoisonRecordError,
    StateConflictError,
)
from include.tiering.kafka.metadata_topic.contract import (
    METADATA_TOPIC,
    MetadataTopic,
    MetadataTopicRecord,
    OffsetBounds,
)
from include.tiering.metadata_sync.metadata_events import event_of
from include.tiering.segments.ingestion_contract import (
    IngestPage,
    IngestPosition,
    MetadataEvent,
    MetadataIngestion,
    MetadataTopicIdentity,
    RecordOutcome,
)


@dataclass(frozen=True, slots=True)
class IngestedPartition:
    """The result of a run for one metadata partition.

    Attributes:
        from_offset, next_offset: its position before and after the run.
        end_offset: its end (exclusive) when the run began.
        records: number of records that the run read up to `next_offset`. `outcomes` counts them by their effect, except
            records of the first two states of a partition's deletion.
        holes: number of offsets without a record among those that the run passed.
        ends_in_a_hole: whether the run passed the last offset, and found no record there. A broker that starts then is
            not ready until another record is appended.
        stopped: why reading stopped, if a person has to act; otherwise None.
        failed: why reading stopped, if the next run may succeed without a person; otherwise None.
    """

    metadata_partition: int
    from_offset: int
    next_offset: int
    end_offset: int
    records: int
    holes: int
    ends_in_a_hole: bool
    outcomes: Mapping[RecordOutcome, int]
    stopped: str | None = None
    failed: str | None = None

    @property
    def lag_records(self) -> int:
        return max(0, self.end_offset - self.next_offset)


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The result of a run. `findings` are sentences for a person; `changes` describe changes of topics and segments."""

    topic: MetadataTopicIdentity
    partitions: tuple[IngestedPartition, ...]
    findings: tuple[str, ...]
    changes: tuple[str, ...]

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def lag_records(self) -> int:
        return sum(partition.lag_records for partition in self.partitions)

    @property
    def stopped(self) -> tuple[IngestedPartition, ...]:
        return tuple(partition for partition in self.partitions if partition.stopped is not None)

    @property
    def failed(self) -> tuple[IngestedPartition, ...]:
        return tuple(partition for partition in self.partitions if partition.failed is not None)


PAGE_RECORDS: Final = 1_000
"""The most records in one transaction."""

_WHAT_BROKERS_DO: Final = (
    "every broker that reads this record stops reading remote log metadata, also after a restart; only"
    " kafka-delete-records, or the partition's retention, removes the record, together with everything before it"
)


class IngestStep(StrEnum):
    """The steps of a run; see the table."""

    BOUNDS_STORED = "bounds stored"
    READ = "read"
    APPLIED = "applied"
    STOPPED = "stopped"
    FOLLOWED = "followed"


def _ignore_step(_step: IngestStep, _metadata_partition: int) -> None:
    """Ignore a step."""


def _ignore_progress(_metadata_partition: int, _next_offset: int, _end_offset: int) -> None:
    """Ignore the progress."""


@dataclass(frozen=True, slots=True)
class Ingester:
    """Reads one cluster's metadata topic.

    Attributes:
        author: name in the events about changes of owners and of our segments, and about a second reading.
        page_records: the most records in one transaction.
        observe: called after each step with the step and the metadata partition; the partition is -1 for a step of the
            whole topic.
        on_progress: called after each page with metadata partition, next offset and end offset (exclusive).
    """

    topic: MetadataTopic
    ingestion: MetadataIngestion
    author: str = "ingest"
    page_records: int = PAGE_RECORDS
    observe: Callable[[IngestStep, int], None] = _ignore_step
    on_progress: Callable[[int, int, int], None] = _ignore_progress

    def run(self) -> IngestReport:
        """Read every partition up to its present end, or until reading stops or fails.

        Raises:
            MetadataTopicReplacedError: the topic was created again, or got more partitions, since it was read;
                `read_again` resolves this.
            MetadataTopicUnavailableError: the topic's id or its partition count cannot be read now, or reading the
                offsets fails for every partition.
            MetadataTopicRefusedError: the brokers refuse access.
        """
        identity, bounds, unavailable = self._described()
        if not bounds and unavailable:
            raise next(iter(unavailable.values()))
        positions = self.ingestion.record_bounds(identity, bounds)
        self.observe(IngestStep.BOUNDS_STORED, -1)
        findings: list[str] = []
        known = {position.metadata_partition: position for position in positions}
        ingested = tuple(
            _not_read(number, known.get(number), unavailable[number])
            if number in unavailable
            else self._ingest(known[number], findings)
            for number in sorted({*known, *unavailable})
        )
        changes: tuple[str, ...] = ()
        if not any(partition.failed for partition in ingested):
            changes = tuple(self.ingestion.take_over(author=self.author))
            self.observe(IngestStep.FOLLOWED, -1)
        return IngestReport(identity, ingested, tuple(findings), changes)

    def read_again(self) -> None:
        """Reset every position to the beginning of the present topic; the next `run` reads from there."""
        identity, bounds, unavailable = self._described()
        if unavailable:
            # Segments without a record are removed after the second reading, so no partition may be left out of it.
            raise next(iter(unavailable.values()))
        self.ingestion.read_again(identity, bounds, author=self.author)
        self.observe(IngestStep.BOUNDS_STORED, -1)

    def _described(
        self,
    ) -> tuple[MetadataTopicIdentity, dict[int, OffsetBounds], dict[int, MetadataTopicUnavailableError]]:
        """Return identity and offsets of the topic, and why the offsets of other partitions are not known.

        A partition without a leader has none now. The identity is read twice, so that the offsets belong to it.
        """
        identity = self._identity()
        bounds: dict[int, OffsetBounds] = {}
        unavailable: dict[int, MetadataTopicUnavailableError] = {}
        for number in range(identity.partition_count):
            try:
                bounds[number] = self.topic.offsets(number, wait=not unavailable)
            except MetadataTopicUnavailableError as error:
                unavailable[number] = error
        if self._identity() != identity:
            raise MetadataTopicUnavailableError(f"{METADATA_TOPIC} was replaced while its offsets were read")
        return identity, bounds, unavailable

    def _identity(self) -> MetadataTopicIdentity:
        return MetadataTopicIdentity(self.topic.topic_id(), self.topic.partition_count())

    def _ingest(self, position: IngestPosition, findings: list[str]) -> IngestedPartition:
        reading = _Reading(self, position, findings)
        stopped = failed = None
        if position.is_lost:
            stopped = position.stopped
        else:
            try:
                stopped = reading.run()
            except (MetadataTopicUnavailableError, MetadataTopicRangeError, StateConflictError) as error:
                # If records were removed since the run began, the next run reports which records are lost.
                failed = str(error)
        where = f"{METADATA_TOPIC}-{position.metadata_partition}"
        if stopped is not None:
            findings.append(f"{where} is stopped at offset {reading.next_offset}: {stopped}")
        if reading.ends_in_a_hole:
            findings.append(
                f"{where} ends with offset {position.end_offset - 1}, which has no record: a broker that starts now"
                " is not ready until another record is appended"
            )
        return IngestedPartition(
            position.metadata_partition,
            position.next_offset,
            reading.next_offset,
            position.end_offset,
            reading.seen,
            reading.holes,
            reading.ends_in_a_hole,
            dict(reading.outcomes),
            stopped,
            failed,
        )


def _not_read(number: int, position: IngestPosition | None, error: MetadataTopicUnavailableError) -> IngestedPartition:
    """Return the result of a partition whose offsets are not known now. `position` is None if it was never read."""
    reached, end = (0, 0) if position is None else (position.next_offset, position.end_offset)
    stopped = None if position is None else position.stopped
    return IngestedPartition(number, reached, reached, end, 0, 0, False, {}, stopped, str(error))


class _Reading:
    """Reads one metadata partition page by page."""

    def __init__(self, ingester: Ingester, position: IngestPosition, findings: list[str]) -> None:
        self._ingester = ingester
        self._number = position.metadata_partition
        self._end_offset = position.end_offset
        self._findings = findings
        self.seen = 0
        self._from_offset = position.next_offset
        self.next_offset = position.next_offset
        self.outcomes: Counter[RecordOutcome] = Counter()
        self.ends_in_a_hole = False

    @property
    def holes(self) -> int:
        return self.next_offset - self._from_offset - self.seen

    def run(self) -> str | None:
        """Read to the end. Return the reason if the partition is stopped before the end, else None.

        Raises:
            MetadataTopicUnavailableError: the topic cannot be read now.
            MetadataTopicRangeError: records were removed meanwhile.
            StateConflictError: another run moved or stopped the position meanwhile.
        """
        if self.next_offset >= self._end_offset:
            return None
        records = self._ingester.topic.read(self._number, self.next_offset, end_offset=self._end_offset)
        last_offset = self.next_offset - 1
        while page := list(islice(records, self._ingester.page_records)):
            stopped = self._apply(page)
            if stopped is not None:
                return stopped
            last_offset = page[-1].offset
        self.ends_in_a_hole = last_offset < self._end_offset - 1
        if self.next_offset < self._end_offset:
            self._store((), self._end_offset)
        return None

    def _apply(self, page: list[MetadataTopicRecord]) -> str | None:
        self._ingester.observe(IngestStep.READ, self._number)
        events: list[tuple[int, MetadataEvent]] = []
        poison: tuple[int, str] | None = None
        for record in page:
            try:
                event = event_of(record.value)
            except PoisonRecordError as error:
                poison = record.offset, str(error)
                break
            if event is not None:
                events.append((record.offset, event))
        stopped = self._store(tuple(events), page[-1].offset + 1 if poison is None else poison[0])
        self.seen += sum(record.offset < self.next_offset for record in page)
        return self._stop(*poison) if stopped is None and poison is not None else stopped

    def _store(self, events: tuple[tuple[int, MetadataEvent], ...], next_offset: int) -> str | None:
        """Apply a page; return the reason if the partition was stopped."""
        if next_offset == self.next_offset:
            return None
        page = IngestPage(self._number, self.next_offset, next_offset, events)
        result = self._ingester.ingestion.apply(page)
        self._ingester.observe(IngestStep.APPLIED, self._number)
        self.next_offset = result.next_offset
        self.outcomes.update(result.outcomes)
        self._findings += result.findings
        self._ingester.on_progress(self._number, self.next_offset, self._end_offset)
        return None if result.stopped is None else f"{result.stopped}: {_WHAT_BROKERS_DO}"

    def _stop(self, offset: int, reason: str) -> str:
        reason = f"{reason}: {_WHAT_BROKERS_DO}"
        self._ingester.ingestion.stop(self._number, offset, reason)
        self._ingester.observe(IngestStep.STOPPED, self._number)
        return reason
