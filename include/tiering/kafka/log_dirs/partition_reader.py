"""One partition directory read as it is now: files, end, bounds.

What concerns one segment is reported and marks that segment; what makes the whole replica meaningless (no topic id, no
`.log`, the directory itself) is raised.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from include.tiering.errors import CorruptFileError, OldMagicError, SourceError, SourceVanishedError
from include.tiering.formats.log_end import iter_headers
from include.tiering.formats.record_batch import NO_TIMESTAMP
from include.tiering.kafka.log_dirs.dirs import Checkpoints, DirIdentity
from include.tiering.kafka.log_dirs.files import BrokerDirectory
from include.tiering.kafka.log_dirs.found_replica import FoundReplica, FoundSegment
from include.tiering.kafka.log_dirs.listing import Listing, LogFile, list_partition
from include.tiering.kafka.log_dirs.log_tail import find_active_end
from include.tiering.kafka.log_dirs.names import (
    DirectoryState,
    FileKind,
    PartitionDirectoryName,
    offset_file,
    parse_partition_directory,
)
from include.tiering.kafka.log_dirs.own_offsets import LogOrigin, OwnOffsets, own_offsets, times_are_kept
from include.tiering.kafka.log_dirs.parsing import in_file
from include.tiering.kafka.log_dirs.partition_files import begun_ns, read_leader_epochs, read_topic_id
from include.tiering.kafka.log_dirs.rolled_segments import KnownTimestamps, read_rolled_segments
from include.tiering.kafka.log_dirs.stable_offset import find_last_stable_offset
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.leader_epochs import LeaderEpochs

OnError = Callable[[SourceError], None]


@dataclass(frozen=True, slots=True)
class PartitionReader:
    """Reads partition directories of one log directory.

    `deep`: check every batch of every segment as a copy would, instead of names, sizes, indexes and the log's end.
    """

    root: BrokerDirectory
    identity: DirIdentity
    checkpoints: Checkpoints
    deep: bool
    on_error: OnError
    known: KnownTimestamps

    def read(self, directory_name: str, name: PartitionDirectoryName) -> FoundReplica:
        """Raises SourceError: the replica cannot be read, or is going away."""
        with self.root.directory(directory_name) as directory:
            topic_id_partition = TopicIdPartition(read_topic_id(directory), name.partition, name.topic)
            listing = list_partition(directory, self.on_error)
            epochs = self._epochs(directory)
            if name.state is not DirectoryState.LIVE:
                return self._leaving(directory_name, name.state, topic_id_partition, listing, epochs)
            return self._live(directory, directory_name, topic_id_partition, listing, epochs)

    def _live(
        self,
        directory: BrokerDirectory,
        directory_name: str,
        topic_id_partition: TopicIdPartition,
        listing: Listing,
        epochs: LeaderEpochs,
    ) -> FoundReplica:
        key = (topic_id_partition.topic, topic_id_partition.partition)
        active = self._active_segment(directory, listing)
        log_end = active.next_base_offset
        epochs = epochs.range(-1, log_end + 1)
        rolled = read_rolled_segments(
            directory, listing, epochs, deep=self.deep, on_error=self.on_error, known=self.known
        )
        own = self._own_offsets(directory, listing, active, key)
        log_start = self._log_start(directory, listing, epochs, own.log_start or 0)
        high_watermark = max(min(own.high_watermark or 0, log_end), min(log_start, log_end))
        return FoundReplica(
            identity=self.identity,
            directory_name=directory_name,
            state=DirectoryState.LIVE,
            topic_id_partition=topic_id_partition,
            leader_epochs=epochs,
            log_start_offset=log_start,
            checkpointed_log_start=own.log_start,
            log_end_offset=log_end,
            high_watermark=high_watermark,
            last_stable_offset=find_last_stable_offset(
                directory, listing, high_watermark=high_watermark, deep=self.deep, on_error=self.on_error
            ),
            recovery_point=min(own.recovery_point or 0, log_end),
            cleaned=key in self.checkpoints.cleaned.offsets,
            segments=(*rolled, active),
            doubt=own.doubt,
        )

    def _leaving(
        self,
        directory_name: str,
        state: DirectoryState,
        topic_id_partition: TopicIdPartition,
        listing: Listing,
        epochs: LeaderEpochs,
    ) -> FoundReplica:
        """Names and sizes only: nothing of it will ever be read."""
        segments = tuple(
            FoundSegment(
                base_offset=log.base_offset,
                next_base_offset=log.next_base_offset or log.base_offset,
                size_bytes=log.size_bytes,
                max_timestamp_ms=NO_TIMESTAMP,
                active=log.next_base_offset is None,
                has_producer_snapshot=False,
            )
            for log in listing.logs
        )
        first_offset = segments[0].base_offset
        return FoundReplica(
            identity=self.identity,
            directory_name=directory_name,
            state=state,
            topic_id_partition=topic_id_partition,
            leader_epochs=epochs,
            log_start_offset=first_offset,
            log_end_offset=segments[-1].next_base_offset,
            high_watermark=first_offset,
            last_stable_offset=first_offset,
            recovery_point=first_offset,
            checkpointed_log_start=None,
            cleaned=False,
            segments=segments,
        )

    def _epochs(self, directory: BrokerDirectory) -> LeaderEpochs:
        try:
            return read_leader_epochs(directory)
        except SourceVanishedError:
            return LeaderEpochs()
        except SourceError as error:
            self.on_error(error)
            return LeaderEpochs()

    def _active_segment(self, directory: BrokerDirectory, listing: Listing) -> FoundSegment:
        log = listing.active
        found = FoundSegment(
            base_offset=log.base_offset,
            next_base_offset=log.base_offset,
            size_bytes=log.size_bytes,
            max_timestamp_ms=NO_TIMESTAMP,
            active=True,
            has_producer_snapshot=False,
        )
        try:
            tail = find_active_end(directory, log.base_offset, deep=self.deep)
        except OldMagicError:
            return replace(found, is_old_magic=True)
        except SourceVanishedError:
            raise
        except SourceError as error:
            self.on_error(error)
            return replace(found, is_corrupt=True)
        end = tail.end
        if tail.indexed_offset is not None and tail.indexed_offset >= end.log_end_offset:
            what = f"its index knows {tail.indexed_offset}"
            self._report_short_log(directory, log, end.valid_bytes, end.log_end_offset, what)
        return replace(
            found,
            next_base_offset=end.log_end_offset,
            size_bytes=end.valid_bytes,
            max_timestamp_ms=end.max_timestamp_ms,
            batch_count=end.batch_count if self.deep else None,
        )

    def _own_offsets(
        self, directory: BrokerDirectory, listing: Listing, active: FoundSegment, key: tuple[str, int]
    ) -> OwnOffsets:
        """Checkpoints may lag, so a log that ends before what they say lost something, or they speak of another log."""
        begun = begun_ns(directory)
        kept = times_are_kept(begun, (log.modified_ms for log in listing.logs if log.size_bytes))
        is_damaged = active.is_corrupt or active.is_old_magic
        own = own_offsets(
            self.checkpoints,
            key,
            LogOrigin(begun, kept, cache(lambda: self._has_predecessor(*key))),
            None if is_damaged else active.next_base_offset,
        )
        if own.above_log_end is not None:
            what = f"the broker's checkpoints know {own.above_log_end}"
            self._report_short_log(directory, listing.active, active.size_bytes, active.next_base_offset, what)
        return own

    def _has_predecessor(self, topic: str, partition: int) -> bool:
        """Whether an older log of this name lies beside it, on its way out. Names that were cut short do not count."""
        parsed = (parse_partition_directory(entry.name) for entry in self.root.entries())
        leaving = (DirectoryState.DELETE, DirectoryState.STRAY)
        return any(
            name is not None and (name.topic, name.partition) == (topic, partition) and name.state in leaving
            for name in parsed
        )

    def _report_short_log(
        self, directory: BrokerDirectory, log: LogFile, position: int, log_end_offset: int, known: str
    ) -> None:
        path = directory.path_of(offset_file(log.base_offset, FileKind.LOG))
        self.on_error(CorruptFileError(path, f"the log ends at offset {log_end_offset}, {known}", position))

    def _log_start(self, directory: BrokerDirectory, listing: Listing, epochs: LeaderEpochs, checkpoint: int) -> int:
        """The checkpoint lags up to a minute and leaves out what the first file says; the epochs are cut at once. A
        segment whose `.log` is missing beside its indexes was not deleted by a broker: the log may start there.

        Epochs that begin above the first batch mean a raised log start only if that batch has an epoch itself: a log
        that was begun by an old broker has none there. Epochs that begin with the first batch, behind where its file
        begins, are those of a replica that was fetched after a log cleaner had taken all before: the log starts where
        it did.
        """
        first = listing.logs[0]
        log_start = max(checkpoint, min([first.base_offset, *listing.lost]))
        if not epochs.entries or epochs.entries[0].start_offset <= log_start:
            return log_start
        with directory.file(offset_file(first.base_offset, FileKind.LOG)) as log, in_file(log.path):
            for batch in iter_headers(log):
                begin = epochs.entries[0].start_offset
                was_cleaned = first.base_offset < batch.header.base_offset == begin
                return log_start if was_cleaned or batch.header.partition_leader_epoch < 0 else begin
        return log_start
