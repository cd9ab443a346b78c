"""The files of one rolled segment, opened together, and the check of all of them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, Self

from include.tiering.errors import CorruptFileError, FormatError, SourceError, SourceVanishedError
from include.tiering.formats import offset_index, producer_snapshot, time_index, transaction_index
from include.tiering.formats.producer_snapshot import ProducerEntry
from include.tiering.formats.record_batch import HEADER_SIZE, NO_TIMESTAMP
from include.tiering.formats.segment_check import SegmentFacts, check_segment
from include.tiering.kafka.log_dirs.files import BrokerDirectory, BrokerFile
from include.tiering.kafka.log_dirs.index_check import check_offset_index, check_time_index, check_transaction_index
from include.tiering.kafka.log_dirs.names import FileKind, offset_file
from include.tiering.kafka.log_dirs.parsing import in_file
from include.tiering.kafka.log_dirs.partition_files import MAX_SNAPSHOT_BYTES
from include.tiering.model.leader_epochs import LeaderEpochs

_MARKER_BYTES: Final = HEADER_SIZE + 10
"""The least that an ABORT marker takes in the `.log`."""


@dataclass(frozen=True, slots=True)
class CheckedFiles:
    """What the files hold, indexes trimmed. `max_timestamp_ms` is that of the batches, else the `.log`'s own time."""

    facts: SegmentFacts
    max_timestamp_ms: int
    offset_index: bytes
    time_index: bytes
    transaction_index: bytes | None
    aborted_transactions: int
    producer_snapshot: bytes | None


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """Held open, so that a delete cannot take them away. `next_base_offset` is the successor's base offset.

    `producer_snapshot` is the one at the segment's end, which is copied; `base_snapshot`, at its start, only helps to
    check and is no part of the segment.
    """

    base_offset: int
    next_base_offset: int
    log: BrokerFile
    offset_index: BrokerFile
    time_index: BrokerFile
    transaction_index: BrokerFile | None
    producer_snapshot: BrokerFile | None
    base_snapshot: BrokerFile | None

    @classmethod
    @contextmanager
    def open(cls, directory: BrokerDirectory, base_offset: int, next_base_offset: int) -> Iterator[Self]:
        """Transaction index and snapshots may be absent.

        Raises:
            SourceVanishedError: the segment is gone.
            SourceError: one of its files cannot be opened.
        """
        with ExitStack() as stack:

            def required(offset: int, kind: FileKind) -> BrokerFile:
                name = offset_file(offset, kind)
                return stack.enter_context(directory.file(name, bulk=kind is FileKind.LOG))

            def optional(offset: int, kind: FileKind, absence: type[SourceError]) -> BrokerFile | None:
                try:
                    return required(offset, kind)
                except absence:
                    return None

            log = required(base_offset, FileKind.LOG)
            try:
                indexes = required(base_offset, FileKind.OFFSET_INDEX), required(base_offset, FileKind.TIME_INDEX)
            except SourceVanishedError as error:
                directory.stat(log.name)
                raise CorruptFileError(error.path, "missing beside its .log") from error
            yield cls(
                base_offset,
                next_base_offset,
                log,
                *indexes,
                optional(base_offset, FileKind.TRANSACTION_INDEX, SourceVanishedError),
                optional(next_base_offset, FileKind.PRODUCER_SNAPSHOT, SourceVanishedError),
                optional(base_offset, FileKind.PRODUCER_SNAPSHOT, SourceError),
            )

    @property
    def all(self) -> tuple[BrokerFile, ...]:
        """Those that are copied."""
        every = (self.log, self.offset_index, self.time_index, self.transaction_index, self.producer_snapshot)
        return tuple(file for file in every if file is not None)

    def check(self, leader_epochs: LeaderEpochs) -> CheckedFiles:
        """Read every batch and every index.

        Raises:
            CorruptFileError: with file and position of the first rule that broke.
            OldMagicError: a batch of magic 0 or 1.
            SourceError: as the files raise.
        """
        base_offset, end_offset, log_bytes = self.base_offset, self.next_base_offset - 1, self.log.size_bytes
        facts = self._check_log(leader_epochs)
        max_batches = log_bytes // HEADER_SIZE + 1
        offsets = self.offset_index.read_all(max_batches * offset_index.ENTRY_BYTES)
        with in_file(self.offset_index.path):
            by_offset = offset_index.check(
                offsets, base_offset=base_offset, end_offset=end_offset, size_bytes=log_bytes
            )
        timestamps = self.time_index.read_all((max_batches + 1) * time_index.ENTRY_BYTES)
        with in_file(self.time_index.path):
            by_time = time_index.check(timestamps, base_offset=base_offset, end_offset=end_offset)
        check_offset_index(self.log, by_offset, self.offset_index.path)
        check_time_index(self.log, by_time, by_offset, self.time_index.path)
        transactions, aborted = self._check_transactions(facts)
        largest = facts.max_timestamp_ms
        return CheckedFiles(
            facts=facts,
            max_timestamp_ms=largest if largest != NO_TIMESTAMP else self.log.status.st_mtime_ns // 1_000_000,
            offset_index=offsets,
            time_index=timestamps,
            transaction_index=transactions,
            aborted_transactions=aborted,
            producer_snapshot=self._check_snapshot(),
        )

    def _check_log(self, leader_epochs: LeaderEpochs) -> SegmentFacts:
        with in_file(self.log.path):
            facts = check_segment(
                self.log,
                base_offset=self.base_offset,
                end_offset=self.next_base_offset - 1,
                leader_epochs=leader_epochs,
            )
        if not facts.batch_count:
            raise CorruptFileError(self.log.path, "a rolled segment without a batch", 0)
        return facts

    def _check_transactions(self, facts: SegmentFacts) -> tuple[bytes | None, int]:
        """Trimmed bytes and number of the aborted transactions; None if the broker wrote no such index."""
        path = f"{self.log.path.removesuffix(FileKind.LOG)}{FileKind.TRANSACTION_INDEX}"
        data, entries = None, transaction_index.parse(b"")
        if self.transaction_index is not None:
            limit = (self.log.size_bytes // _MARKER_BYTES + 1) * transaction_index.ENTRY_BYTES
            data = transaction_index.trim(self.transaction_index.read_all(limit))
            with in_file(path):
                entries = transaction_index.check(
                    data, base_offset=self.base_offset, end_offset=self.next_base_offset - 1
                )
        if len(entries) > facts.abort_marker_count:
            message = f"{len(entries)} aborted transactions, the .log has {facts.abort_marker_count} ABORT markers"
            raise CorruptFileError(path, message, facts.abort_marker_count * transaction_index.ENTRY_BYTES)
        if facts.abort_marker_count:
            check_transaction_index(self.log, entries, self._producers_before(), path)
        return data, len(entries)

    def _producers_before(self) -> tuple[ProducerEntry, ...]:
        """At the segment's start, as far as that is known: transactions that began there are then checked too."""
        if self.base_snapshot is None:
            return ()
        try:
            return producer_snapshot.parse(self.base_snapshot.read_all(MAX_SNAPSHOT_BYTES))
        except FormatError:
            return ()

    def _check_snapshot(self) -> bytes | None:
        if self.producer_snapshot is None:
            return None
        data = self.producer_snapshot.read_all(MAX_SNAPSHOT_BYTES)
        with in_file(self.producer_snapshot.path):
            producer_snapshot.parse(data)
        return data
