"""One closed range of a leader's log, spooled for a copy, and the check that the leader did not change meanwhile.

The range was read when it was cut, and is read again for the copy. Both reads must give the same bytes. What
belongs to the segment is rebuilt from them in the same pass that checks them and fills the spool. Nothing is read from
the spool again but to be sent: the store must have the CRC-32C of the bytes that were checked.

What may happen during a copy            detected by
other bytes than when it was cut         size, CRC-32C, batches      SourceChangedError
batches that do not continue the log     check of every answer       UnusableBatchesError
the spool returns other bytes            checksum of the object      RemoteChecksumError
the leader moved or was elected again    cluster metadata            SourceChangedError
topic deleted, compacted or tiered       cluster metadata            SourceChangedError
topic re-created under its name          the brokers' topic id       SourceVanishedError
log divergence below the range's end     ends of its leader epochs   SourceChangedError
records deleted                          log start above its end     SourceChangedError
"""

from collections.abc import Callable, Iterable
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
    UnusableBatchesError,
)
from include.tiering.formats import checkpoints
from include.tiering.formats.indexes import check_offset_index, check_time_index, parse_producer_snapshot
from include.tiering.formats.log_batches import EpochGuard
from include.tiering.formats.rebuilt_files import ProducerStates, RebuiltFiles, SegmentFilesBuilder
from include.tiering.formats.record_batch import NO_TIMESTAMP
from include.tiering.kafka.cluster.contract import Brokers
from include.tiering.kafka.fetch_api.contract import FetchedRange, Leader, LeaderLogs
from include.tiering.kafka.fetch_api.fetched_batches import FetchedBatches
from include.tiering.kafka.fetch_api.spool import SpooledLog
from include.tiering.kafka.log_dirs.contract import CheckedSegment, LogSegment, Replica, SourceFingerprint
from include.tiering.kafka.log_dirs.evaluate_replicas import Ownership
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RUNNING_CRC32C_STEP_BYTES, LogSegmentData

_NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class SpooledRange:
    """What was read of a range. Offsets are inclusive.

    Without a batch both offsets are -1. `running_crc32c` is as in `LogSegmentData`. `fault` is why the read ended
    early, `damage` the first batch whose leader epoch is not that of the partition's history; None without them.
    """

    files: RebuiltFiles
    crc32c: int
    running_crc32c: tuple[int, ...]
    first_offset: int
    last_offset: int
    batch_count: int
    fault: SourceError | None
    damage: FormatError | None


class SpoolingReader:
    """Reads one range into the spool.

    Args:
        known: the range.
        log: where its bytes go; nothing was appended yet.
        leader_epochs: of the partition, with which the epochs of the batches must agree.
        producer_snapshot: the producers before the range.
        index_interval_bytes: of the topic.
    """

    def __init__(
        self,
        known: FetchedRange,
        log: SpooledLog,
        *,
        leader_epochs: LeaderEpochs,
        producer_snapshot: bytes,
        index_interval_bytes: int,
    ) -> None:
        self._known = known
        self._log = log
        self._epochs = EpochGuard(leader_epochs)
        producers = ProducerStates(parse_producer_snapshot(producer_snapshot))
        self._files = SegmentFilesBuilder(known.base_offset, index_interval_bytes, producers)
        self._crc32c = 0
        self._running_crc32c: list[int] = []
        self._first_offset = self._last_offset = _NO_OFFSET
        self._batch_count = 0
        self._damage: FormatError | None = None

    def read(self, answers: Iterable[FetchedBatches]) -> SpooledRange:
        """Read until the range ends.

        Args:
            answers: from the range's first offset on, see `fetched`.

        Raises:
            SourceVanishedError: the partition does not exist any more.
            SourceUnreadableError: the spool's disk does not take the bytes.
            BrokersError, TieringError: as `fetched`.
        """
        fault: SourceError | None = None
        try:
            for found in answers:
                self._take(found)
                if self._last_offset >= self._known.end_offset:
                    break
        except (UnusableBatchesError, SourceChangedError) as error:
            fault = error
        except UnknownTopicError as error:
            raise SourceVanishedError(self._log.path, str(error)) from error
        return SpooledRange(
            self._files.files(),
            self._crc32c,
            tuple(self._running_crc32c),
            self._first_offset,
            self._last_offset,
            self._batch_count,
            fault,
            self._damage,
        )

    def _take(self, found: FetchedBatches) -> None:
        """Take the batches up to the end of the range, and append their bytes.

        Raises:
            SourceChangedError: the range has more bytes than it had, or ends within a batch.
        """
        epochs, files, start, end_offset = self._epochs, self._files, self._log.size_bytes, self._known.end_offset
        end, last = 0, self._last_offset
        for position, header, marker in found.batches:
            base = header.base_offset
            if base > end_offset:
                break
            end, last = position + header.size_bytes, header.last_offset
            if last > end_offset:
                raise SourceChangedError(self._log.path, f"ended at offset {end_offset}, now in a batch up to {last}")
            if start + end > self._known.size_bytes:
                raise SourceChangedError(self._log.path, f"had {self._known.size_bytes} bytes, and now has more")
            if header.partition_leader_epoch != epochs.epoch or last >= epochs.end_offset:
                self._enter(header.partition_leader_epoch, base, last, start + position)
            files.append(start + position, header, marker)
            if not self._batch_count:
                self._first_offset = base
            self._batch_count += 1
        self._last_offset = last
        self._checksum(found, end)
        self._log.append(found.answer.view[:end])

    def _enter(self, epoch: int, first_offset: int, last_offset: int, position: int) -> None:
        """Keep the first error: whether the leader has other bytes than before is known only at the range's end."""
        if self._damage is None:
            try:
                self._epochs.enter(epoch, first_offset, last_offset, position)
            except FormatError as error:
                self._damage = error

    def _checksum(self, found: FetchedBatches, end: int) -> None:
        at, done = 0, self._log.size_bytes
        while at < end:
            step = min(RUNNING_CRC32C_STEP_BYTES - (done + at) % RUNNING_CRC32C_STEP_BYTES, end - at)
            self._crc32c = found.answer.extend_crc32c(self._crc32c, at, at + step)
            at += step
            if (done + at) % RUNNING_CRC32C_STEP_BYTES == 0:
                self._running_crc32c.append(self._crc32c)


@dataclass(frozen=True, slots=True)
class OpenedRange:
    """The range, what came before it, and the state of its partition when it was opened.

    `read` is what was read of it for the copy, into `log`.
    """

    replica: Replica
    segment: LogSegment
    range: FetchedRange
    leader: Leader
    ownership: Ownership
    log: SpooledLog
    read: SpooledRange


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
            files=((str(opened.range.base_offset), 0, opened.read.crc32c, opened.log.size_bytes, 0),),
        )

    def check(self) -> CheckedSegment:
        try:
            return self._checked()
        except SourceError as error:
            self._failure = error
            raise

    def _checked(self) -> CheckedSegment:
        opened, read = self._opened, self._opened.read
        if read.fault is not None:
            raise read.fault
        self._require_same_bytes()
        try:
            if read.damage is not None:
                raise read.damage
            self._check_rebuilt(read.files)
        except FormatError as error:
            raise CorruptFileError(self._path, error.message, error.position) from error
        history = opened.replica.leader_epochs.range(-1, opened.range.next_offset)
        return CheckedSegment(
            data=LogSegmentData(
                log=opened.log,
                log_crc32c=read.crc32c,
                offset_index=read.files.offset_index,
                time_index=read.files.time_index,
                producer_snapshot=opened.range.producer_snapshot,
                leader_epoch=checkpoints.serialize_leader_epochs(history),
                transaction_index=read.files.transaction_index,
                log_running_crc32c=read.running_crc32c,
            ),
            first_offset=read.first_offset,
            last_offset=read.last_offset,
            max_timestamp_ms=opened.segment.max_timestamp_ms,
            batch_count=read.batch_count,
            aborted_transactions=read.files.aborted_transactions,
        )

    def _require_same_bytes(self) -> None:
        known, read = self._opened.range, self._opened.read
        for what, before, now in (
            ("size", known.size_bytes, self._opened.log.size_bytes),
            ("CRC-32C", f"{known.crc32c:08x}", f"{read.crc32c:08x}"),
            ("number of batches", known.batch_count, read.batch_count),
            ("first offset", known.base_offset, read.first_offset),
            ("last offset", known.end_offset, read.last_offset),
        ):
            if before != now:
                raise self._changed(what, before, now)

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
