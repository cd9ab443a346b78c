"""Copy the segments of a restore into another remote storage, from which `./tiering rebuild` makes their metadata.

A segment is copied whole, under its id, with its indexes, in the layout and form of the other storage. Its log is
written into a file without a name in the target's directory first, where it is checked: a store needs a checksum before
the first byte, and a request that is repeated needs the same bytes. Afterwards the other store must have all objects
with the lengths and checksums that were sent.

    step      a crash right after it leaves                     cleaned up by
    marker    a marker with the id of the restore's manifest    nobody: the next run finds it
    copied    objects of a segment that is not entered          the next run, which deletes them and copies it again
    entered   a complete segment                                -

The other storage must be empty when the restore begins, and belongs to the restore until a rebuild takes it over. Each
run lists it: an entered segment of which an object is absent by now is copied again.
"""

import socket
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.errors import ForeignStoreError, NoSuchIndexError, RemoteChecksumError, RemoteObjectExistsError
from include.tiering.formats.indexes import check_offset_index, check_time_index
from include.tiering.kafka.fetch_api.spool import SpooledLog
from include.tiering.model.ownership import RaisedBy, StoreMarker, StorePlace
from include.tiering.model.segments import (
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage, SegmentReader
from include.tiering.restoring.plan import PartKey, RestoredPart, RestorePart
from include.tiering.restoring.restore_segments import restored_part
from include.tiering.restoring.segment_files import stored_files, write_log
from include.tiering.restoring.target import RestoreTarget
from include.tiering.telemetry.metrics import ignore

_STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED


@dataclass(frozen=True, slots=True)
class OtherStorage:
    """Another remote storage, without a check of its marker, and its place."""

    storage: RemoteStorage
    place: StorePlace


def claim_other(
    other: OtherStorage,
    target: RestoreTarget,
    cluster_id: str,
    *,
    now_ms: int,
    random_bytes: Callable[[int], bytes],
) -> None:
    """Give the other storage a marker of this restore, if it has none.

    Raises:
        ForeignStoreError: it has objects and no marker, or the marker of something else.
    """
    restore, restore_id = f"restore into {target.directory.absolute()}", target.restore_id
    found = other.storage.read_marker()
    if found is None:
        if next(other.storage.list_objects(), None) is not None:
            raise ForeignStoreError(f"{other.place}: it has objects, and no marker: a restore needs an empty place")
        marker = StoreMarker(
            cluster_id,
            restore_id,
            1,
            str(Uuid.random(random_bytes)),
            other.place,
            RaisedBy(socket.gethostname(), restore, now_ms),
        )
        found = other.storage.create_marker(marker)
    if (found.cluster_id, found.store_id) != (cluster_id, restore_id):
        raise ForeignStoreError(f"{other.place} belongs to {found}, which is not this restore: name another place")


def present_elsewhere(
    other: OtherStorage, partitions: Iterable[TopicIdPartition], done: Mapping[PartKey, RestoredPart]
) -> dict[PartKey, RestoredPart]:
    """Return the entered parts all of whose objects are in the other storage. It is listed only if there is one."""
    kinds: dict[str, set[ObjectKind]] = defaultdict(set)
    for partition in partitions if done else ():
        for each in other.storage.list_segment_objects(partition):
            kinds[str(each.segment_id.id)].add(each.kind)
    required = other.storage.required_kinds
    return {key: part for key, part in done.items() if required <= kinds[key.segment_id]}


def copy_segment(
    part: RestorePart,
    reader: SegmentReader,
    blocks: Iterable[bytes],
    other: OtherStorage,
    target: RestoreTarget,
    limiter: ByteLimiter,
) -> RestoredPart:
    """Copy the segment of a part; if an earlier run left some of its objects, they are deleted, and written again.

    Raises:
        FormatError: the log is damaged.
        RemoteChecksumError: the other store has other bytes than were sent.
        RemoteStorageError: one of the stores refused or failed.
    """
    metadata = replace(part.segment, custom_metadata=None)
    stored = stored_files(part, reader, lambda _: reader)
    with tempfile.TemporaryFile(dir=target.directory, buffering=0) as file:
        log = SpooledLog(file, str(part.segment.remote_log_segment_id))
        written, _ = write_log(part, blocks, stored, log.append)
        data = _data_of(part.segment, reader, log, written.crc32c)
        try:
            sent = other.storage.copy_log_segment(metadata, data, limiter=limiter, on_sent=ignore)
        except RemoteObjectExistsError:
            other.storage.delete_log_segments([replace(metadata, state=_STARTED)])
            sent = other.storage.copy_log_segment(metadata, data, limiter=limiter, on_sent=ignore)
    found = {each.kind: each for each in other.storage.stat_log_segment(metadata)}
    for each in sent:
        if found.get(each.kind) != each:
            raise RemoteChecksumError(f"{other.place}: {each.key} was sent, and is not stored as it was sent")
    return restored_part(part, written, {})


def _data_of(segment: RemoteLogSegmentMetadata, reader: SegmentReader, log: SpooledLog, crc32c: int) -> LogSegmentData:
    """Return what is copied of a segment. Raises FormatError for an offset or time index that is not of this log."""
    offset_index, time_index = reader.index(IndexType.OFFSET), reader.index(IndexType.TIMESTAMP)
    base, end, size_bytes = segment.start_offset, segment.end_offset, segment.segment_size_bytes
    check_offset_index(offset_index, base_offset=base, end_offset=end, size_bytes=size_bytes)
    check_time_index(time_index, base_offset=base, end_offset=end)
    try:
        transactions: bytes | None = reader.index(IndexType.TRANSACTION)
    except NoSuchIndexError:
        transactions = None
    return LogSegmentData(
        log=log,
        log_crc32c=crc32c,
        offset_index=offset_index,
        time_index=time_index,
        producer_snapshot=reader.index(IndexType.PRODUCER_SNAPSHOT),
        leader_epoch=reader.index(IndexType.LEADER_EPOCH),
        transaction_index=transactions,
    )
