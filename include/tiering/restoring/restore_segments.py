"""Restore the parts of a plan in the form that is asked for, and complete what brokers need beside segment files.

The head of `target.py` has the steps of a part, and what a crash after each leaves. A part whose segment is damaged,
or is not in the store, is named in the result, and all other parts are restored. The partition of such a part is not
completed.

With the form of Kafka's segment files a partition is completed when all its parts are in the target:

    leader-epoch-checkpoint     the leader epochs of what was restored
    partition.metadata          the topic's id

and once all partitions are completed, these follow in the target itself, which then lacks only `meta.properties` to be
a log directory:

    log-start-offset-checkpoint           of each partition the first offset that is wanted and stored
    recovery-point-offset-checkpoint      the end: all of it was written to disk
    replication-offset-checkpoint         the end: all of it was committed
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from include.tiering.errors import FormatError, RemoteStorageError, SegmentKeyError, SendingStoppedError
from include.tiering.formats import checkpoints
from include.tiering.kafka.log_dirs.files import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    FileKind,
    offset_file,
)
from include.tiering.quotas.contract import QuotaKind, Quotas
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.parallel_reads import MOST_RANGES, RANGE_BYTES, Reading, in_order
from include.tiering.restoring.forms import RestoreForm
from include.tiering.restoring.plan import PartitionRestore, RestoredPart, RestorePart, leader_epochs_of
from include.tiering.restoring.segment_files import StoredFiles, WrittenLog, stored_files, write_log
from include.tiering.restoring.target import RestoreTarget, sync

if TYPE_CHECKING:
    from include.tiering.restoring.copy_elsewhere import OtherStorage

LOG_STARTS: Final = "log-start-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
COMPLETION: Final = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
"""Files in the directory of a partition that are no part of a segment."""

OnBytes = Callable[[int], None]
"""Called with how many more bytes of logs were read; with a negative number if a part failed."""


@dataclass(frozen=True, slots=True)
class FailedPart:
    """A part that cannot be restored; `reason` says why."""

    part: RestorePart
    reason: str


@dataclass(frozen=True, slots=True)
class SegmentRestorer:
    """Restores parts. Thread-safe.

    Args:
        other: where `RestoreForm.STORAGE` copies to; else None.
        on_bytes: called from several threads.
        stop: returns whether the run is to end.
    """

    storage: RemoteStorage
    quotas: Quotas
    target: RestoreTarget
    client: str
    form: RestoreForm
    other: "OtherStorage | None"
    on_bytes: OnBytes
    stop: Callable[[], bool]

    def restored(self, parts: Sequence[RestorePart], *, at_once: int) -> Iterator[RestoredPart | FailedPart]:
        """Restore the parts; yield the results in their order.

        Up to `at_once` small logs are read at the same time. A large log is read alone, several ranges of it at the
        same time. So after a kill one large log, or some small ones, have to be read again.

        Raises:
            SendingStoppedError: `stop` returned True. What is restored stays.
            SettingError: the target has a file that is not of this restore, under a name that it writes.
            TieringError: what is worth retrying, such as RemoteStorageUnavailableError.
        """
        for is_large, group in groupby(parts, key=lambda part: part.size_bytes > RANGE_BYTES):
            if is_large:
                yield from (self._restored(part, Reading(ranges=MOST_RANGES)) for part in group)
            else:
                tasks = [partial(self._restored, part) for part in group]
                yield from in_order(tasks, at_once=at_once, ahead=len(tasks))

    def _restored(self, part: RestorePart, reading: Reading) -> RestoredPart | FailedPart:
        counted = 0

        def count(more_bytes: int) -> None:
            nonlocal counted
            counted += more_bytes
            self.on_bytes(more_bytes)

        try:
            return self._restore(part, reading, count)
        except (FormatError, RemoteStorageError, SegmentKeyError) as error:
            if error.retriable:
                raise
            self.on_bytes(-counted)
            return FailedPart(part, str(error))

    def _restore(self, part: RestorePart, reading: Reading, on_bytes: OnBytes) -> RestoredPart:
        segment = part.segment

        def go_on() -> None:
            if self.stop():
                raise SendingStoppedError("the restore was stopped; the next run continues")
            reading.go_on()

        limiter = self.quotas.fetch(segment.broker_id, part.partition.topic, self.client, go_on=go_on)
        reading.limiter = limiter
        try:
            reader = self.storage.open_log_segment(segment, limiter=limiter, ranges=reading.ranges)
            blocks = _counted(reader.log(0, segment.segment_size_bytes - 1), go_on, on_bytes)
            if self.form is RestoreForm.PARQUET:
                from include.tiering.restoring.parquet_files import write_parquet

                restored = write_parquet(part, blocks, self.target)
            elif self.other is not None:
                from include.tiering.restoring.copy_elsewhere import copy_segment

                sending = self.quotas.copy(segment.broker_id, part.partition.topic, go_on=go_on)
                restored = copy_segment(part, reader, blocks, self.other, self.target, sending)
            else:
                before = partial(self.storage.open_log_segment, limiter=limiter)
                restored = self._write_segment(part, blocks, stored_files(part, reader, before))
        finally:
            self.quotas.held_back(QuotaKind.FETCH, limiter.waited_seconds)
        self.target.enter(restored)
        return restored

    def _write_segment(self, part: RestorePart, blocks: Iterable[bytes], stored: StoredFiles) -> RestoredPart:
        directory, base = self.target.subdirectory(str(part.partition)).name, part.base_offset
        log = f"{directory}/{offset_file(base, FileKind.LOG)}"
        with self.target.new_file(log) as file:
            written, files = write_log(part, blocks, stored, file.write)
            sync(file)
        contents = {
            offset_file(base, FileKind.OFFSET_INDEX): files.offset_index,
            offset_file(base, FileKind.TIME_INDEX): files.time_index,
            offset_file(base, FileKind.TRANSACTION_INDEX): files.transaction_index,
            offset_file(base, FileKind.PRODUCER_SNAPSHOT): files.snapshot_before,
            offset_file(written.next_offset, FileKind.PRODUCER_SNAPSHOT): files.producer_snapshot,
        }
        sizes = {log: written.size_bytes}
        for name, content in contents.items():
            if content is not None:
                self.target.write_file(f"{directory}/{name}", content)
                sizes[f"{directory}/{name}"] = len(content)
        return restored_part(part, written, sizes)


def restored_part(part: RestorePart, written: WrittenLog, files: Mapping[str, int]) -> RestoredPart:
    """Return a part as the manifest has it; `files` are the sizes of its files by name."""
    return RestoredPart(
        part.key,
        part.last_offset,
        written.next_offset,
        files,
        written.crc32c,
        written.batches,
        written.records,
        written.source_bytes,
        part.leader_epochs.range(part.base_offset, written.next_offset),
    )


def _counted(blocks: Iterator[bytes], go_on: Callable[[], None], on_bytes: OnBytes) -> Iterator[bytes]:
    for block in blocks:
        go_on()
        on_bytes(len(block))
        yield block


def complete(target: RestoreTarget, partitions: Sequence[PartitionRestore], *, all_are_complete: bool) -> None:
    """Write the files beside the segments of complete partitions, see the head. Repeating it is harmless.

    Args:
        target: of the restore.
        partitions: those of which every part is in the target.
        all_are_complete: whether the restore has no others.
    """
    starts: dict[tuple[str, int], int] = {}
    ends: dict[tuple[str, int], int] = {}
    for each in partitions:
        partition, directory = each.partition, target.subdirectory(str(each.partition)).name
        end_offset, epochs = each.restored[-1].next_offset, leader_epochs_of(each.restored)
        target.replace_file(f"{directory}/{LEADER_EPOCH_CHECKPOINT}", checkpoints.serialize_leader_epochs(epochs))
        identity = checkpoints.serialize_partition_metadata(partition.topic_id)
        target.replace_file(f"{directory}/{PARTITION_METADATA}", identity)
        first = each.restored[0].key.base_offset if each.expired else each.parts[0].first_offset
        starts[partition.topic, partition.partition] = max(each.offsets.first, first)
        ends[partition.topic, partition.partition] = end_offset
    if all_are_complete:
        for name, offsets in ((LOG_STARTS, starts), (RECOVERY_POINTS, ends), (HIGH_WATERMARKS, ends)):
            target.replace_file(name, checkpoints.serialize_offset_checkpoint(offsets))
    target.completed()
