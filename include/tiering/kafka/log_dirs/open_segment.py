"""One rolled segment of a log directory, held open for a copy, and the check that it did not change during the copy.

What may happen during a copy        detected by
.log deleted, renamed away           no file of its name                      SourceVanishedError
index, snapshot deleted or renamed   no file of its name                      SourceChangedError
file replaced, truncated, rewritten  inode, size, time of the .log            SourceChangedError
segment active again, log truncated  no successor .log, or a different one    SourceChangedError
partition directory replaced         device and inode at its path             SourceChangedError
partition directory moved, deleted   no directory at its path                 SourceVanishedError
topic re-created under its name      partition.metadata                       SourceChangedError
log directory replaced               meta.properties                          SourceChangedError
leader moved, topic deleted,
compacted or tiered by its broker    cluster metadata, refreshed              SourceChangedError
log divergence below segment's end   leader-epoch-checkpoint                  SourceChangedError
records deleted                      log start above segment's last offset    SourceChangedError
"""

from collections.abc import Callable
from dataclasses import dataclass

from include.tiering.errors import (
    ClusterMetadataError,
    CompactedSegmentError,
    CorruptFileError,
    OldMagicError,
    SourceChangedError,
    SourceError,
    SourceVanishedError,
)
from include.tiering.formats import checkpoints
from include.tiering.kafka.log_dirs.contract import CheckedSegment, LogSegment, Replica, SourceFingerprint
from include.tiering.kafka.log_dirs.dirs import (
    LOG_STARTS,
    DirIdentity,
    LogDirLocation,
    identify,
    open_root,
    read_checkpoint,
    read_leader_epochs,
    read_topic_id,
)
from include.tiering.kafka.log_dirs.evaluate_replicas import Ownership
from include.tiering.kafka.log_dirs.files import (
    LOG_SUFFIX,
    BrokerDirectory,
    BrokerFile,
    FileKind,
    offset_file,
    parse_offset_file,
)
from include.tiering.kafka.log_dirs.found_replica import what_is_missing
from include.tiering.kafka.log_dirs.rolled_segments import CheckedFiles, SegmentFiles
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import LogSegmentData


@dataclass(frozen=True, slots=True)
class OpenedReplica:
    """The location of the segment, and the state of its replica when it was opened."""

    log_dir: LogDirLocation
    identity: DirIdentity
    directory: BrokerDirectory
    directory_name: str
    replica: Replica
    ownership: Ownership


class OpenLogSegment:
    """`OpenSegment` over the files of a broker.

    Args:
        opened: the replica when it was opened.
        segment: the segment as it was listed.
        files: the segment's files, held open by the caller.
        ownership_now: refreshes the cluster metadata and returns the current ownership; raises ClusterMetadataError if
            the metadata cannot be read.
    """

    def __init__(
        self,
        opened: OpenedReplica,
        segment: LogSegment,
        files: SegmentFiles,
        ownership_now: Callable[[], Ownership],
    ) -> None:
        self._opened = opened
        self._segment = segment
        self._files = files
        self._ownership_now = ownership_now
        self._leader_epochs = opened.replica.leader_epochs.range(-1, segment.end_offset + 1)
        self._corruption: CorruptFileError | CompactedSegmentError | None = None

    @property
    def segment(self) -> LogSegment:
        return self._segment

    @property
    def fingerprint(self) -> SourceFingerprint:
        identity = self._opened.identity
        return SourceFingerprint(
            broker_id=identity.broker_id,
            directory_id=identity.directory_id,
            topic_id=self._opened.replica.topic_id_partition.topic_id,
            leader_epoch=self._opened.ownership.leader_epoch,
            leader_epochs=self._leader_epochs,
            files=tuple(_file_fingerprint(file) for file in self._files.all),
        )

    def check(self) -> CheckedSegment:
        try:
            checked = self._checked_files()
            if checked.producer_snapshot is None:
                name = offset_file(self._segment.end_offset + 1, FileKind.PRODUCER_SNAPSHOT)
                raise CorruptFileError(self._opened.directory.path_of(name), "no producer snapshot at the segment end")
            self._require_whole(checked)
        except (CorruptFileError, CompactedSegmentError) as error:
            self._corruption = error
            raise
        batches = checked.batches
        return CheckedSegment(
            data=LogSegmentData(
                log=self._files.log,
                log_crc32c=batches.crc32c,
                offset_index=checked.offset_index,
                time_index=checked.time_index,
                producer_snapshot=checked.producer_snapshot,
                leader_epoch=checkpoints.serialize_leader_epochs(self._leader_epochs),
                transaction_index=checked.transaction_index,
                log_running_crc32c=batches.running_crc32c,
            ),
            first_offset=batches.first_offset,
            last_offset=batches.last_offset,
            max_timestamp_ms=checked.max_timestamp_ms,
            batch_count=batches.batch_count,
            aborted_transactions=checked.aborted_transactions,
        )

    def _require_whole(self, checked: CheckedFiles) -> None:
        missing, path = checked.batches.first_missing_offset, self._files.log.path
        if missing is None:
            return
        what = what_is_missing(missing, self._segment.base_offset, self._segment.end_offset)
        if self._opened.replica.was_compacted:
            raise CompactedSegmentError(path, f"{what}: it was compacted away before it was copied; see ./tiering skip")
        raise CorruptFileError(path, f"{what}: a file is missing, or the segment was compacted")

    def _checked_files(self) -> CheckedFiles:
        try:
            return self._files.check(self._opened.replica.leader_epochs)
        except OldMagicError as error:
            raise CorruptFileError(self._files.log.path, error.message, error.position) from error

    def recheck(self) -> None:
        if self._corruption is not None:
            raise SourceChangedError(self._corruption.path, f"found corrupt or compacted: {self._corruption.message}")
        try:
            self._recheck_all()
        except (SourceChangedError, SourceVanishedError):
            raise
        except SourceError as error:
            raise SourceChangedError(error.path, f"was readable before, and is not now: {error.message}") from error
        except ClusterMetadataError as error:
            raise SourceChangedError(self._opened.directory.path, f"cannot be evaluated now: {error}") from error

    def _recheck_all(self) -> None:
        self._recheck_ownership()
        self._recheck_directory()
        for file in self._files.all:
            self._recheck_file(file)
        self._recheck_successor()
        self._recheck_offsets()

    def _changed(self, what: str, before: object, now: object) -> SourceChangedError:
        return SourceChangedError(self._opened.directory.path, f"{what} was {before}, now {now}")

    def _recheck_ownership(self) -> None:
        change = self._opened.ownership.first_change(self._ownership_now())
        if change is not None:
            raise self._changed(*change)

    def _recheck_directory(self) -> None:
        """Open the log directory and the partition directory by their paths again, and compare owner, inode and id."""
        opened = self._opened
        now = identify(opened.log_dir)
        if now != opened.identity:
            raise self._changed("log directory", opened.identity, now)
        with open_root(opened.identity.path) as root, root.directory(opened.directory_name) as directory:
            if directory.identity() != opened.directory.identity():
                raise self._changed("directory inode", opened.directory.identity(), directory.identity())
            topic_id = read_topic_id(directory)
        if topic_id != opened.replica.topic_id_partition.topic_id:
            raise self._changed("topic id", opened.replica.topic_id_partition.topic_id, topic_id)

    def _recheck_file(self, file: BrokerFile) -> None:
        name, before = file.name, file.status
        try:
            now = self._opened.directory.stat(name)
        except SourceVanishedError:
            if file is self._files.log:
                raise
            raise self._changed(name, "present", "missing") from None
        for what, old, new in (
            ("inode", (before.st_dev, before.st_ino), (now.st_dev, now.st_ino)),
            ("size", before.st_size, now.st_size),
        ):
            if old != new:
                raise self._changed(f"{what} of {name}", old, new)
        if file is self._files.log and before.st_mtime_ns != now.st_mtime_ns:
            raise self._changed(f"modification time of {name}", before.st_mtime_ns, now.st_mtime_ns)

    def _recheck_successor(self) -> None:
        """Require the same successor `.log`; a segment without a successor may be the active segment again."""
        # A partition may have thousands of files: only the names of `.log` files are parsed.
        logs = (entry.name for entry in self._opened.directory.entries() if entry.name.endswith(LOG_SUFFIX))
        later = [
            parsed[0] for name in logs if (parsed := parse_offset_file(name)) and parsed[0] > self._segment.base_offset
        ]
        before, now = self._segment.end_offset + 1, min(later, default=None)
        if now != before:
            raise self._changed("base offset of the successor", before, now)

    def _recheck_offsets(self) -> None:
        """Compare the leader epochs up to the segment's end; the log start must not be above its last offset.

        During a copy the log start may rise, which cuts the leader epochs at the front. No other change of them is
        allowed.
        """
        end = self._segment.end_offset + 1
        now = read_leader_epochs(self._opened.directory).range(-1, end)
        if not _is_cut_of(now, self._leader_epochs):
            raise self._changed(f"leader epochs up to {end}", list(self._leader_epochs), list(now))
        partition = self._opened.replica.topic_id_partition
        with open_root(self._opened.identity.path) as root:
            log_starts = read_checkpoint(root, LOG_STARTS)
        cut_at = now.entries[0].start_offset if now != self._leader_epochs else 0
        log_start = max(log_starts.offsets.get((partition.topic, partition.partition), 0), cut_at)
        if log_start >= end:
            raise self._changed("log start offset", self._opened.replica.log_start_offset, log_start)


def _is_cut_of(now: LeaderEpochs, before: LeaderEpochs) -> bool:
    """Return whether `now` equals `before`, or equals the part of `before` that remains after the log start rose."""
    if now == before or not now.entries:
        return now == before
    return now == before.truncated_from_start(now.entries[0].start_offset)


def _file_fingerprint(file: BrokerFile) -> tuple[str, int, int, int, int]:
    status = file.status
    return file.name, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
