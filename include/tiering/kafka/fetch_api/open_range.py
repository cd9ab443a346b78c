"""One closed range of a leader's log, spooled for a copy, and the check that the leader did not change meanwhile.

The range was read when it was cut, and is read again for the copy. Both reads must give the same bytes.

What may happen during a copy            detected by
other bytes than when it was cut         size, CRC-32C               SourceChangedError
batches that do not continue the log     check of every answer       UnusableBatchesError
the spool's disk is damaged              check of every batch        CorruptFileError
the leader moved or was elected again    cluster metadata            SourceChangedError
topic deleted, compacted or tiered       cluster metadata            SourceChangedError
topic re-created under its name          the brokers' topic id       SourceVanishedError
log divergence below the range's end     ends of its leader epochs   SourceChangedError
records deleted                          log start above its end     SourceChangedError
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import (
    ClusterMetadataError,
    CorruptFileError,
    FormatError,
    SourceChangedError,
    SourceError,
    SourceVanishedError,
    UnknownTopicError,
)
from include.tiering.formats import checkpoints
from include.tiering.formats.indexes import check_offset_index, check_time_index, parse_producer_snapshot
from include.tiering.formats.log_batches import CheckedBatches, check_segment
from include.tiering.formats.rebuilt_files import ProducerStates, RebuiltFiles, SegmentFilesBuilder
from include.tiering.formats.record_batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    TransactionMarker,
    iter_headers,
    transaction_marker,
)
from include.tiering.kafka.cluster.contract import Brokers
from include.tiering.kafka.fetch_api.contract import FetchedRange, Leader, LeaderLogs
from include.tiering.kafka.fetch_api.spool import SpooledLog
from include.tiering.kafka.log_dirs.contract import CheckedSegment, LogSegment, Replica, SourceFingerprint
from include.tiering.kafka.log_dirs.evaluate_replicas import Ownership
from include.tiering.model.segments import LogSegmentData

_MARKER_BYTES: Final = 256
"""Enough for the header and the record of a control batch."""


@dataclass(frozen=True, slots=True)
class OpenedRange:
    """The range, what came before it, and the state of its partition when it was opened.

    `producer_snapshot` has the producers before the range. `fault` is why the read of the range for the copy ended
    early; None if it did not.
    """

    replica: Replica
    segment: LogSegment
    range: FetchedRange
    producer_snapshot: bytes
    index_interval_bytes: int
    leader: Leader
    ownership: Ownership
    log: SpooledLog
    crc32c: int
    fault: SourceError | None


class OpenFetchedRange:
    """`OpenSegment` over a spooled range.

    Args:
        opened: the range.
        logs: the leaders' logs.
        brokers: the brokers of the same cluster.
        ownership_now: refreshes the cluster metadata and returns the current ownership.
    """

    def __init__(
        self, opened: OpenedRange, logs: LeaderLogs, brokers: Brokers, ownership_now: Callable[[], Ownership]
    ) -> None:
        self._opened = opened
        self._logs = logs
        self._brokers = brokers
        self._ownership_now = ownership_now
        self._partition = opened.replica.topic_id_partition
        self._path = opened.log.path
        self._failure: SourceError | None = None

    @property
    def segment(self) -> LogSegment:
        return self._opened.segment

    @property
    def fingerprint(self) -> SourceFingerprint:
        opened = self._opened
        return SourceFingerprint(
            broker_id=opened.replica.replica_id.broker_id,
            directory_id=opened.replica.replica_id.directory_id,
            topic_id=self._partition.topic_id,
            leader_epoch=opened.leader.leader_epoch,
            # Of all that was found up to its end: a copy compares them with what is remote before it.
            leader_epochs=opened.replica.leader_epochs.range(-1, opened.range.next_offset),
            files=((str(opened.range.base_offset), 0, opened.crc32c, opened.log.size_bytes, 0),),
        )

    def check(self) -> CheckedSegment:
        try:
            return self._checked()
        except SourceError as error:
            self._failure = error
            raise

    def _checked(self) -> CheckedSegment:
        opened = self._opened
        if opened.fault is not None:
            raise opened.fault
        self._require_same_bytes()
        try:
            batches = self._check_batches()
            files = self._rebuilt()
            self._check_rebuilt(files)
        except FormatError as error:
            raise CorruptFileError(self._path, error.message, error.position) from error
        history = opened.replica.leader_epochs.range(-1, opened.range.next_offset)
        return CheckedSegment(
            data=LogSegmentData(
                log=opened.log,
                log_crc32c=batches.crc32c,
                offset_index=files.offset_index,
                time_index=files.time_index,
                producer_snapshot=opened.range.producer_snapshot,
                leader_epoch=checkpoints.serialize_leader_epochs(history),
                transaction_index=files.transaction_index,
                log_running_crc32c=batches.running_crc32c,
            ),
            first_offset=batches.first_offset,
            last_offset=batches.last_offset,
            max_timestamp_ms=opened.segment.max_timestamp_ms,
            batch_count=batches.batch_count,
            aborted_transactions=files.aborted_transactions,
        )

    def _require_same_bytes(self) -> None:
        known, opened = self._opened.range, self._opened
        for what, before, now in (
            ("size", known.size_bytes, opened.log.size_bytes),
            ("CRC-32C", f"{known.crc32c:08x}", f"{opened.crc32c:08x}"),
        ):
            if before != now:
                raise self._changed(what, before, now)

    def _check_batches(self) -> CheckedBatches:
        known = self._opened.range
        batches = check_segment(
            self._opened.log,
            base_offset=known.base_offset,
            end_offset=known.end_offset,
            leader_epochs=self._opened.replica.leader_epochs,
        )
        if batches.first_missing_offset is not None:
            raise CorruptFileError(self._path, f"lacks offset {batches.first_missing_offset}")
        if batches.crc32c != known.crc32c:
            raise CorruptFileError(self._path, f"the spool returns CRC-32C {batches.crc32c:08x}")
        return batches

    def _rebuilt(self) -> RebuiltFiles:
        opened = self._opened
        producers = ProducerStates(parse_producer_snapshot(opened.producer_snapshot))
        builder = SegmentFilesBuilder(opened.range.base_offset, opened.index_interval_bytes, producers)
        for batch in iter_headers(opened.log):
            marker = None if batch.control is None else self._marker(batch.position)
            builder.append(batch.position, batch.header, marker)
        return builder.files()

    def _marker(self, position: int) -> TransactionMarker:
        buffer = memoryview(bytearray(_MARKER_BYTES))
        count = self._opened.log.read_into(position, buffer)
        return transaction_marker(buffer[:count], HEADER_SIZE)

    def _check_rebuilt(self, files: RebuiltFiles) -> None:
        """Check the rebuilt files by the rules for a broker's files, and against the range as it was recorded.

        The recorded snapshot may lack producers that have expired, but none of its producers may be missing from the
        rebuilt snapshot.
        """
        known = self._opened.range
        check_offset_index(
            files.offset_index,
            base_offset=known.base_offset,
            end_offset=known.end_offset,
            size_bytes=known.size_bytes,
        )
        times = check_time_index(files.time_index, base_offset=known.base_offset, end_offset=known.end_offset)
        if times.largest_timestamp_ms != max(known.max_timestamp_ms, NO_TIMESTAMP):
            raise FormatError(f"largest timestamp {times.largest_timestamp_ms}, not {known.max_timestamp_ms}")
        recorded = set(parse_producer_snapshot(known.producer_snapshot))
        if unknown := recorded - set(parse_producer_snapshot(files.producer_snapshot)):
            raise FormatError(f"{len(unknown)} producers were recorded that the batches do not lead to")

    def recheck(self) -> None:
        if self._failure is not None:
            raise SourceChangedError(self._path, f"found unusable: {self._failure.message}")
        try:
            self._recheck_offsets()
            self._recheck_epochs()
            self._recheck_ownership()  # Last, because it requests by topic id; the others by the topic's name only.
        except UnknownTopicError as error:
            raise SourceVanishedError(self._path, str(error)) from error
        except ClusterMetadataError as error:
            raise SourceChangedError(self._path, f"cannot be evaluated now: {error}") from error

    def _recheck_ownership(self) -> None:
        change = self._opened.ownership.first_change(self._ownership_now())
        if change is not None:
            raise self._changed(*change)

    def _recheck_offsets(self) -> None:
        offsets = self._brokers.partition_offsets([self._partition]).of(self._partition)
        if (leader := Leader(offsets.leader, offsets.leader_epoch)) != self._opened.leader:
            raise self._changed("leader", self._opened.leader, leader)
        if offsets.earliest >= self._opened.range.next_offset:
            raise self._changed("log start offset", self._opened.replica.log_start_offset, offsets.earliest)
        stable = min(offsets.high_watermark, offsets.last_stable_offset)
        if stable < self._opened.range.next_offset:
            raise self._changed("last stable offset", self._opened.replica.last_stable_offset, stable)

    def _recheck_epochs(self) -> None:
        """Require that each epoch of the range ends in the leader's log where the next one begins in the range."""
        known = self._opened.range
        entries = known.leader_epochs.entries
        ends = [*(entry.start_offset for entry in entries[1:]), known.next_offset]
        for entry, expected in zip(entries, ends, strict=True):
            end = self._logs.epoch_end(self._partition, self._opened.leader, entry.epoch)
            agrees = end.end_offset == expected or (entry is entries[-1] and end.end_offset > expected)
            if end.leader_epoch != entry.epoch or not agrees:
                now = f"{end.leader_epoch} up to {end.end_offset}"
                raise self._changed("leader epoch", f"{entry.epoch} up to {expected}", now)

    def _changed(self, what: str, before: object, now: object) -> SourceChangedError:
        return SourceChangedError(self._path, f"{what} was {before}, now {now}")
