"""Read all replicas of a log directory, or one of them. Damage of one replica never hides another.

An error of one segment is reported, and the segment is marked. If an error makes the whole replica unusable (no topic
id, no `.log`, an unreadable directory), `DirReader.replica` raises it, and `DirReader.replicas` returns an
`UnreadReplica`. `with_leader_read_last` reads the leader's directory again if a follower's directory is ahead of it,
because the follower's may have been read later.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from os import DirEntry
from typing import Final

from include.tiering.errors import (
    CorruptFileError,
    HostileNameError,
    OldMagicError,
    SourceError,
    SourceUnreadableError,
    SourceVanishedError,
)
from include.tiering.formats.record_batch import NO_TIMESTAMP, iter_headers
from include.tiering.kafka.cluster.contract import ClusterMetadata
from include.tiering.kafka.log_dirs.contract import ScanError, matches, scan_error
from include.tiering.kafka.log_dirs.dirs import (
    Checkpoints,
    DirIdentity,
    Listing,
    LogFile,
    created_ns,
    in_file,
    list_partition,
    open_root,
    read_checkpoints,
    read_leader_epochs,
    read_topic_id,
)
from include.tiering.kafka.log_dirs.files import (
    NOT_PARTITIONS,
    BrokerDirectory,
    DirectoryState,
    FileKind,
    PartitionDirectoryName,
    is_harmless,
    offset_file,
    parse_partition_directory,
)
from include.tiering.kafka.log_dirs.found_replica import (
    CheckpointedOffsets,
    FoundReplica,
    FoundSegment,
    LogOrigin,
    UnreadReplica,
    ahead_of_leader,
    checkpointed_offsets,
    times_are_kept,
)
from include.tiering.kafka.log_dirs.log_tail import find_active_end, find_last_stable_offset
from include.tiering.kafka.log_dirs.rolled_segments import KnownTimestamps, read_rolled_segments
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition

_ATTEMPTS: Final = 3
"""How often a partition is listed at most, if files vanish between listing and opening."""


@dataclass(frozen=True, slots=True)
class DirReader:
    """Read the replicas of the log directory `root`, which belongs to `identity`.

    Errors of the log directory itself go to `on_error`.
    """

    root: BrokerDirectory
    identity: DirIdentity
    checkpoints: Checkpoints
    on_error: Callable[[SourceError], None]
    known: KnownTimestamps

    @classmethod
    def of(
        cls,
        root: BrokerDirectory,
        identity: DirIdentity,
        on_error: Callable[[SourceError], None],
        known: KnownTimestamps | None = None,
    ) -> "DirReader":
        """Read the checkpoints before anything is listed, so that no listing is older than they are."""
        return cls(root, identity, read_checkpoints(root, on_error), on_error, known or KnownTimestamps())

    def replicas(self, topics: Collection[str] | None, *, deep: bool) -> Iterator[FoundReplica | UnreadReplica]:
        """Read the replicas whose topic matches a pattern, in the order of directory names.

        A replica that cannot be read becomes an `UnreadReplica`. A directory that is not live is left out if it or a
        file in it vanishes.

        Raises:
            SourceError: the log directory cannot be listed.
        """
        for entry in sorted(self.root.entries(), key=lambda entry: entry.name):
            name = self._partition_name(entry)
            if name is None or not matches(name.topic, topics):
                continue
            try:
                yield self._read(entry.name, name, deep)[0]
            except SourceError as error:
                # A replica that is being deleted may vanish at any time.
                if name.state is DirectoryState.LIVE or not isinstance(error, SourceVanishedError):
                    yield UnreadReplica(self.identity, name, self._error_of(error, name))

    def replica(self, directory_name: str, name: PartitionDirectoryName, *, deep: bool = False) -> FoundReplica:
        """Read one replica, again if a file vanishes meanwhile. The replica's errors also go to `on_error`.

        Raises:
            SourceError: it cannot be read.
        """
        found, errors = self._read(directory_name, name, deep)
        for error in errors:
            self.on_error(error)
        return found

    def _read(
        self, directory_name: str, name: PartitionDirectoryName, deep: bool
    ) -> tuple[FoundReplica, list[SourceError]]:
        for attempt in range(1, _ATTEMPTS + 1):
            errors: list[SourceError] = []
            reader = PartitionReader(
                self.root, self.identity, self.checkpoints, deep=deep, on_error=errors.append, known=self.known
            )
            try:
                found = reader.read(directory_name, name)
            except SourceVanishedError:
                if attempt == _ATTEMPTS:
                    raise
            else:
                listed = tuple(self._error_of(error, name) for error in errors)
                return replace(found, errors=listed), errors
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _error_of(self, error: SourceError, name: PartitionDirectoryName) -> ScanError:
        return scan_error(error, self.identity.path, f"{name.topic}-{name.partition}")

    def _partition_name(self, entry: DirEntry[str]) -> PartitionDirectoryName | None:
        """Return the parsed name of a partition directory; None for any other entry.

        Links, names that no broker writes, and files with the name of a partition directory are reported.
        """
        path = self.root.path_of(entry.name)
        name = parse_partition_directory(entry.name)
        if entry.is_dir(follow_symlinks=False):
            if name is None and entry.name not in NOT_PARTITIONS:
                self.on_error(HostileNameError(path, "no broker writes a directory of this name"))
            return None if entry.name in NOT_PARTITIONS else name
        if entry.is_symlink():
            self.on_error(HostileNameError(path, "a symbolic link, which is not followed"))
        elif name is not None:
            self.on_error(SourceUnreadableError(path, "not a directory"))
        elif not is_harmless(entry.name):
            self.on_error(HostileNameError(path, "no broker writes a file of this name"))
        return None


def with_leader_read_last(
    group: Sequence[FoundReplica], cluster_metadata: ClusterMetadata, known: KnownTimestamps, *, deep: bool
) -> Sequence[FoundReplica]:
    """Return the replicas of a partition in the same order, with the leader's read again if a follower is ahead of it.

    The leader's directory is then read last. So a follower that is still ahead is not ahead because it was read later.

    Raises:
        ClusterMetadataError: the topic's metadata cannot be read.
    """
    partition = group[0].topic_id_partition
    topic = cluster_metadata.topic(partition.topic_id)
    partition_metadata = topic.partitions.get(partition.partition) if topic else None
    return [
        _read_again(found, known, deep=deep) if ahead_of_leader(found, partition_metadata, group) else found
        for found in group
    ]


def _read_again(found: FoundReplica, known: KnownTimestamps, *, deep: bool) -> FoundReplica:
    """Read a replica again; return `found` if it cannot be read, or now belongs to another topic id."""
    partition = found.topic_id_partition
    name = PartitionDirectoryName(partition.topic, partition.partition, found.state)
    with suppress(SourceError), open_root(found.identity.path) as root:
        again = DirReader.of(root, found.identity, _ignore, known).replica(found.directory_name, name, deep=deep)
        if again.topic_id_partition == partition:
            return again
    return found


def _ignore(_error: SourceError) -> None:
    """Ignore an error: `FoundReplica.errors` has the replica's own, and others were reported by the first read."""


OnError = Callable[[SourceError], None]


@dataclass(frozen=True, slots=True)
class PartitionReader:
    """Read partition directories of one log directory.

    With `deep`, every batch of a live directory is read and checked, in rolled segments by `SegmentFiles.check`.
    Otherwise batches of rolled segments are not checked.
    """

    root: BrokerDirectory
    identity: DirIdentity
    checkpoints: Checkpoints
    deep: bool
    on_error: OnError
    known: KnownTimestamps

    def read(self, directory_name: str, name: PartitionDirectoryName) -> FoundReplica:
        """Read one replica. Raises SourceError if it cannot be read, or if its files are removed meanwhile."""
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
        checkpointed = self._checkpointed_offsets(directory, listing, active, key)
        log_start = self._log_start(directory, listing, epochs, checkpointed.log_start or 0)
        high_watermark = max(min(checkpointed.high_watermark or 0, log_end), min(log_start, log_end))
        return FoundReplica(
            identity=self.identity,
            directory_name=directory_name,
            state=DirectoryState.LIVE,
            topic_id_partition=topic_id_partition,
            leader_epochs=epochs,
            log_start_offset=log_start,
            checkpointed_log_start=checkpointed.log_start,
            log_end_offset=log_end,
            high_watermark=high_watermark,
            last_stable_offset=find_last_stable_offset(
                directory, listing, high_watermark=high_watermark, deep=self.deep, on_error=self.on_error
            ),
            recovery_point=min(checkpointed.recovery_point or 0, log_end),
            cleaned=key in self.checkpoints.cleaned.offsets,
            segments=(*rolled, active),
            doubt=checkpointed.doubt,
        )

    def _leaving(
        self,
        directory_name: str,
        state: DirectoryState,
        topic_id_partition: TopicIdPartition,
        listing: Listing,
        epochs: LeaderEpochs,
    ) -> FoundReplica:
        """Return a replica with only base offsets, sizes and epochs: a directory that is not live is never copied."""
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
        except SourceUnreadableError as error:
            self.on_error(error)
            return replace(found, is_unreadable=True)
        except SourceError as error:
            self.on_error(error)
            return replace(found, is_corrupt=True)
        end = tail.end
        if tail.indexed_offset is not None and tail.indexed_offset >= end.log_end_offset:
            what = f"but its index has {tail.indexed_offset}"
            self._report_short_log(directory, log, end.valid_bytes, end.log_end_offset, what)
        return replace(
            found,
            next_base_offset=end.log_end_offset,
            size_bytes=end.valid_bytes,
            max_timestamp_ms=end.max_timestamp_ms,
            batch_count=end.batch_count if self.deep else None,
        )

    def _checkpointed_offsets(
        self, directory: BrokerDirectory, listing: Listing, active: FoundSegment, key: tuple[str, int]
    ) -> CheckpointedOffsets:
        """Select the offsets of this log, and report a log that ends below them.

        Offsets in checkpoints may be lower than the broker's, but not higher. So a log that ends below them lost
        records, or the offsets belong to another log.
        """
        begun = created_ns(directory)
        kept = times_are_kept(begun, (log.modified_ms for log in listing.logs if log.size_bytes))
        is_damaged = active.is_corrupt or active.is_unreadable or active.is_old_magic
        checkpointed = checkpointed_offsets(
            self.checkpoints,
            key,
            LogOrigin(begun, kept, cache(lambda: self._has_predecessor(*key))),
            None if is_damaged else active.next_base_offset,
        )
        if checkpointed.above_log_end is not None:
            what = f"but the broker's checkpoints have {checkpointed.above_log_end}"
            self._report_short_log(directory, listing.active, active.size_bytes, active.next_base_offset, what)
        return checkpointed

    def _has_predecessor(self, topic: str, partition: int) -> bool:
        """Return whether the log directory holds a deleted or stray directory of an older log of this name.

        Directories with shortened names are not found.
        """
        parsed = (parse_partition_directory(entry.name) for entry in self.root.entries())
        leaving = (DirectoryState.DELETE, DirectoryState.STRAY)
        return any(
            name is not None and (name.topic, name.partition) == (topic, partition) and name.state in leaving
            for name in parsed
        )

    def _report_short_log(
        self, directory: BrokerDirectory, log: LogFile, position: int, log_end_offset: int, evidence: str
    ) -> None:
        path = directory.path_of(offset_file(log.base_offset, FileKind.LOG))
        self.on_error(CorruptFileError(path, f"the log ends at offset {log_end_offset}, {evidence}", position))

    def _log_start(self, directory: BrokerDirectory, listing: Listing, epochs: LeaderEpochs, checkpoint: int) -> int:
        """Find the log start from the checkpoint, the first file and the leader epochs.

        The checkpoint may be a minute old, and has no entry if the log starts at its first file. Leader epochs are
        truncated immediately. A segment with an index but without its `.log` counts as a possible start of the log,
        because a broker does not delete a `.log` and leave its indexes.

        Epochs that begin above the first batch mean a raised log start only if that batch has an epoch: batches of old
        brokers have none. If the epochs begin exactly at the first batch, and that batch begins above the base offset
        of its file, the log start was not raised: the replica was fetched after a log cleaner had removed all earlier
        records.
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
