"""Cluster metadata without a connection: the replicas of `__cluster_metadata-0` in brokers' log directories.

Every broker keeps a replica in its metadata log directory. Of the readable replicas, the one with the highest log end
offset is used: replicas may lag, but each is a consistent view at some time. Values of records are never logged.

The first `refresh` of a `MetadataReplica` reads the newest complete snapshot and the log from it on, each later
`refresh` reads what was appended. The files are:

    <offset, 20 digits>-<epoch, 10 digits>.checkpoint   a snapshot of all records below the offset, in batches;
                                                        complete if its last batch is the snapshot footer
    <base offset, 20 digits>.log                        batches; the last file may end in zeros or in a torn batch

Only records below the quorum's high watermark are committed, and the high watermark is not on disk: the last records
may be uncommitted, and a follower may truncate them. So `refresh` first checks that the header (with the CRC) of the
batch that it read last is unchanged at its position. If the header is changed or gone, `refresh` reads as the first
time.
"""

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from include.tiering.errors import (
    ClusterMetadataError,
    CorruptFileError,
    FormatError,
    OldMagicError,
    SourceError,
    SourceVanishedError,
    printable,
)
from include.tiering.formats import indexes
from include.tiering.formats.cluster_metadata import RemoveTopicRecord, decode, record_values
from include.tiering.formats.log_batches import BatchStream
from include.tiering.formats.record_batch import HEADER, HEADER_SIZE, MAX_OFFSET, BatchHeader, ControlType, control_type
from include.tiering.kafka.cluster.contract import TopicMetadata
from include.tiering.kafka.cluster.metadata_image import ClusterImage
from include.tiering.kafka.log_dirs.dirs import Tail, in_file, last_index_entry, read_meta_properties
from include.tiering.kafka.log_dirs.files import (
    METADATA_LOG,
    BrokerDirectory,
    BrokerFile,
    FileKind,
    offset_file,
    parse_offset_file,
)
from include.tiering.model.segments import Uuid
from include.tiering.units import MIB

_CHECKPOINT: Final = re.compile(r"(?P<offset>[0-9]{20})-(?P<epoch>[0-9]{10})\.checkpoint")
_MAX_BATCH_BYTES: Final = 64 * MIB
"""A batch whose length is above 64 MiB is damaged: KRaft writes batches of at most 8 MiB."""
_SEARCHED_BYTES: Final = 4 * MIB
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class _Cursor:
    """Where to continue reading, and the header bytes (with the CRC) of the batch that was read last."""

    base_offset: int
    position: int
    last_position: int
    last_header: bytes


@dataclass(frozen=True, slots=True)
class _Listing:
    base_offsets: Sequence[int]
    checkpoints: Mapping[int, str]


class MetadataReplica:
    """The topics according to the metadata log of one log directory."""

    def __init__(self, log_dir: str) -> None:
        self.log_dir = log_dir
        self.cluster_id: str | None = None
        self._restart()

    def _restart(self) -> None:
        self.image = ClusterImage()
        self.log_end_offset = 0
        self._snapshot_offset = 0
        self._cursor: _Cursor | None = None

    def refresh(self) -> None:
        """Read the log, or only what was appended since the last call.

        Raises:
            SourceVanishedError: the log directory or its metadata log does not exist.
            SourceError: the metadata log cannot be read, or is corrupt.
            ClusterMetadataError: its records contradict each other, or no file has the records from an offset on.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with BrokerDirectory.open(self.log_dir) as root:
                    self.cluster_id = read_meta_properties(root).cluster_id
                    with root.directory(METADATA_LOG) as directory:
                        return self._read_on(directory, _list(directory))
            except SourceVanishedError:
                # A segment or snapshot was cleaned up between listing and opening.
                if attempt == _ATTEMPTS:
                    raise
            except (SourceError, ClusterMetadataError):
                self._restart()
                raise
        return None

    def find_removal(self, topic_id: Uuid) -> int | None:
        """Return the base offset of a batch that removes this topic; None if no such batch is found.

        Only batches below the offset of the snapshot that was read are searched, because they are committed. Files that
        cannot be read any more are skipped.
        """
        try:
            with BrokerDirectory.open(self.log_dir) as root, root.directory(METADATA_LOG) as directory:
                below = [base for base in _list(directory).base_offsets if base < self._snapshot_offset]
                found = (_removal_in(directory, base, self._snapshot_offset, topic_id) for base in below)
                return next((offset for offset in found if offset is not None), None)
        except SourceError:
            return None

    def _read_on(self, directory: BrokerDirectory, listing: _Listing) -> None:
        if not self._still_there(directory, listing):
            self._restart()
            self._read_newest_checkpoint(directory, listing)
        start = self._cursor.base_offset if self._cursor else self.log_end_offset
        first = max((base for base in listing.base_offsets if base <= start), default=None)
        if first is None:
            if listing.base_offsets or not listing.checkpoints:
                raise ClusterMetadataError(f"{directory.path}: no segment or complete snapshot covers offset {start}")
            return
        wanted = [base for base in listing.base_offsets if base >= first]
        for base, successor in pairwise([*wanted, None]):
            if base is not None:
                self._read_segment(directory, base, is_last=successor is None)

    def _still_there(self, directory: BrokerDirectory, listing: _Listing) -> bool:
        cursor = self._cursor
        if cursor is None or cursor.base_offset not in listing.base_offsets:
            return False
        with directory.file(offset_file(cursor.base_offset, FileKind.LOG)) as file:
            return file.read_at(cursor.last_position, HEADER_SIZE) == cursor.last_header

    def _read_newest_checkpoint(self, directory: BrokerDirectory, listing: _Listing) -> None:
        """Use the newest complete snapshot; incomplete and corrupt ones are skipped."""
        for offset in sorted(listing.checkpoints, reverse=True):
            image = ClusterImage()
            with directory.file(listing.checkpoints[offset]) as file:
                try:
                    complete = _read_checkpoint(file, image)
                except CorruptFileError:
                    continue
            if complete:
                self.image, self.log_end_offset, self._snapshot_offset = image, offset, offset
                return

    def _read_segment(self, directory: BrokerDirectory, base_offset: int, *, is_last: bool) -> None:
        cursor = self._cursor if self._cursor and self._cursor.base_offset == base_offset else None
        position = cursor.position if cursor else 0
        # Read before the log's size: brokers write the index after the log, so no entry can lie above the log's end.
        indexed = _last_indexed_offset(directory, base_offset)
        with directory.file(offset_file(base_offset, FileKind.LOG)) as file:
            for at, header, batch in _batches(file, position, may_be_torn=is_last):
                self._apply(file.path, at, header, batch)
                end = at + header.size_bytes
                self._cursor = _Cursor(base_offset, end, at, bytes(batch[:HEADER_SIZE]))
            if indexed >= self.log_end_offset:
                # A batch with a damaged length looks like a torn tail, so only the index shows that batches follow it.
                end = self._cursor.position if self._cursor else 0
                raise CorruptFileError(
                    file.path, f"ends at offset {self.log_end_offset}, but its index has {indexed}", end
                )

    def _apply(self, path: str, position: int, header: BatchHeader, batch: memoryview) -> None:
        if header.last_offset < self.log_end_offset:
            return
        if header.base_offset > self.log_end_offset:
            raise CorruptFileError(path, f"offset {header.base_offset} follows {self.log_end_offset - 1}", position)
        _apply_batch(self.image, header, batch, path, position)
        self.log_end_offset = header.last_offset + 1


def _last_indexed_offset(directory: BrokerDirectory, base_offset: int) -> int:
    """Return the last offset in the segment's offset index; -1 if there is no index, or the index has no entry."""
    try:
        with directory.file(offset_file(base_offset, FileKind.OFFSET_INDEX)) as index:
            entry = last_index_entry(index, indexes.OFFSET_ENTRY_BYTES)
    except SourceVanishedError:
        return -1
    return indexes.parse_offset_index(entry, base_offset=base_offset).lookup(MAX_OFFSET).offset if entry else -1


def _list(directory: BrokerDirectory) -> _Listing:
    names = [entry.name for entry in directory.entries()]
    files = [parsed for parsed in map(parse_offset_file, names) if parsed]
    base_offsets = sorted(base_offset for base_offset, kind in files if kind is FileKind.LOG)
    checkpoints = {int(found["offset"]): name for name in names if (found := _CHECKPOINT.fullmatch(name))}
    return _Listing(base_offsets, checkpoints)


def _batches(file: BrokerFile, start: int, *, may_be_torn: bool) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Iterate over the batches from the position `start` to the file's end, each with its position and its header.

    A batch that is incomplete or has a wrong CRC raises CorruptFileError. With `may_be_torn` it ends the iteration
    instead, if it can be an unfinished write (`_is_torn_tail`).
    """
    stream = iter(BatchStream(Tail(file, start)))
    while True:
        try:
            with in_file(file.path, start):
                found = next(stream, None)
        except CorruptFileError as error:
            if may_be_torn and _is_torn_tail(file, error.position or 0):
                return
            raise
        except OldMagicError as error:
            # KRaft has never written batches of magic 0 or 1: here they are damage.
            raise CorruptFileError(file.path, error.message, start + error.position) from error
        if found is None:
            return
        at, header = start + found[0], BatchHeader._make(found[1])
        if header.size_bytes > _MAX_BATCH_BYTES:
            raise CorruptFileError(file.path, f"batch of {header.size_bytes} bytes, KRaft writes 8 MiB at most", at)
        yield at, header, memoryview(file.read_at(at, header.size_bytes))


def _apply_batch(image: ClusterImage, header: BatchHeader, batch: memoryview, path: str, position: int) -> None:
    if header.is_control:
        return
    try:
        for value in record_values(batch, header):
            record = decode(value)
            if record is not None:
                image.apply(record)
    except FormatError as error:
        raise CorruptFileError(path, f"batch at offset {header.base_offset}: {error.message}", position) from error


def _removal_in(directory: BrokerDirectory, base_offset: int, below: int, topic_id: Uuid) -> int | None:
    with suppress(SourceError), directory.file(offset_file(base_offset, FileKind.LOG)) as file:
        if not _mentions(file, topic_id):
            return None
        for position, header, batch in _batches(file, 0, may_be_torn=True):
            if header.last_offset >= below:
                break
            if topic_id.value in bytes(batch) and not header.is_control:
                with in_file(file.path, position):
                    records = [decode(value) for value in record_values(batch, header)]
                if RemoveTopicRecord(topic_id) in records:
                    return header.base_offset
    return None


def _mentions(file: BrokerFile, topic_id: Uuid) -> bool:
    """Return whether the file contains the id's bytes. This works because KRaft does not compress.

    Most files do not contain it, and are skipped quickly: an idle week has a million batches.
    """
    overlap = len(topic_id.value) - 1
    chunks = range(0, file.size_bytes, _SEARCHED_BYTES)
    return any(topic_id.value in file.read_at(at, _SEARCHED_BYTES + overlap) for at in chunks)


def _read_checkpoint(file: BrokerFile, image: ClusterImage) -> bool:
    """Apply a snapshot to the image; return whether it ends in its footer."""
    last = None
    for position, header, batch in _batches(file, 0, may_be_torn=False):
        _apply_batch(image, header, batch, file.path, position)
        with in_file(file.path, position):
            last = control_type(batch, HEADER_SIZE) if header.is_control else None
    return last is ControlType.SNAPSHOT_FOOTER


def _is_torn_tail(file: BrokerFile, position: int) -> bool:
    """Return whether an unfinished write can begin at `position`.

    It can in three cases: fewer bytes follow than a batch header has; the next bytes, as many as a header has, are all
    zero; or the batch at `position` is the last one, which means that after it fewer bytes than a header or only zeros
    follow. A batch whose length is below that of a header is damage, and no unfinished write.
    """
    rest = file.read_at(position, HEADER_SIZE)
    if len(rest) < HEADER_SIZE or not any(rest):
        return True
    size_bytes = BatchHeader._make(HEADER.unpack(rest)).size_bytes
    if size_bytes < HEADER_SIZE:
        return False
    after = file.read_at(position + size_bytes, HEADER_SIZE)
    return len(after) < HEADER_SIZE or not any(after)


_LOG = logging.getLogger(__name__)


class MetadataLog:
    """`ClusterMetadata` over log directories. The constructor reads nothing.

    After a failed `refresh` everything is unknown until another `refresh` succeeds, because old metadata could hide the
    deletion of a topic.

    Args:
        log_dirs: log directories of one cluster; those without a metadata log are skipped.
    """

    def __init__(self, log_dirs: Sequence[Path]) -> None:
        self._replicas = [MetadataReplica(str(path)) for path in log_dirs]
        self._newest: MetadataReplica | None = None
        self._was_refreshed = False

    @staticmethod
    def is_in(log_dirs: Sequence[Path]) -> bool:
        """Return whether any of the directories holds a metadata log, or cannot be checked on this host."""
        return any(_may_hold_metadata(path) for path in log_dirs)

    def refresh(self) -> None:
        self._was_refreshed = True
        readable = []
        refused: list[tuple[MetadataReplica, SourceError | ClusterMetadataError]] = []
        for replica in self._replicas:
            try:
                replica.refresh()
                readable.append(replica)
            except (SourceError, ClusterMetadataError) as error:
                refused.append((replica, error))
        if not readable:
            self._newest = None
            raise self._nothing_readable(refused)
        for _, refusal in refused:
            _LOG.debug("metadata log skipped: %s", refusal)
        self._newest = max(readable, key=lambda replica: replica.log_end_offset)

    def cluster_id(self) -> str | None:
        self._image()
        return self._newest.cluster_id if self._newest else None

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        return self._image().topic(topic_id)

    def topic_named(self, name: str) -> TopicMetadata | None:
        return self._image().topic_named(name)

    def topic_names(self) -> Collection[str]:
        return self._image().topic_names()

    def is_removed(self, topic_id: Uuid) -> bool:
        return self._image().is_removed(topic_id)

    def removal_evidence(self, topic_id: Uuid) -> str | None:
        if self._image().topic(topic_id) is not None or self._newest is None:
            return None
        where = f"{METADATA_LOG} of {printable(self._newest.log_dir)}"
        if self._image().is_removed(topic_id):
            return f"RemoveTopicRecord in {where}, below offset {self._newest.log_end_offset}"
        offset = self._newest.find_removal(topic_id)
        return None if offset is None else f"RemoveTopicRecord in {where}, in the batch at offset {offset}"

    @property
    def log_end_offset(self) -> int:
        """The log end offset (exclusive) of the replica that is used; 0 after a `refresh` that found none readable.

        Before the first `refresh` it calls `refresh`, and raises ClusterMetadataError as that does.
        """
        self._image()
        return self._newest.log_end_offset if self._newest else 0

    def _image(self) -> ClusterImage:
        if not self._was_refreshed:
            self.refresh()
        return self._newest.image if self._newest else ClusterImage()

    def _nothing_readable(
        self, refused: Sequence[tuple[MetadataReplica, SourceError | ClusterMetadataError]]
    ) -> ClusterMetadataError:
        if not refused:
            return ClusterMetadataError("no log directory is configured that could hold a metadata log")
        dirs = ", ".join(printable(replica.log_dir) for replica, _ in refused)
        error = ClusterMetadataError(f"no readable metadata log in {dirs}: {refused[0][1]}")
        error.__cause__ = refused[0][1]
        return error


def _may_hold_metadata(log_dir: Path) -> bool:
    try:
        return (log_dir / METADATA_LOG).is_dir()
    except OSError:
        return True
