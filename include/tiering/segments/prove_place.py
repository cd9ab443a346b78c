"""Whether the objects of the segments that the metadata knows lie in a place: under its keys, of their length and
checksum. Asked before the place of a store changes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import RemoteResourceNotFoundError
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.verdict import Verdict
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.contract import KeptObject, ObjectKind, RemoteStorage
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.segments.suspicion import explains_length

ALL_OF: Final = 200
"""So many segments are looked at in all, each one if there are no more."""
_EACH: Final = 2
_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class PlaceProof:
    """What was found. `missing` says of some segments what is not right; `wrong` is the number of all of them."""

    segments: int
    partitions: int
    looked_at: int
    wrong: int
    missing: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.wrong


def prove_place(storage: RemoteStorage, metadata: RemoteLogMetadata, *, read_back: bool = True) -> PlaceProof:
    """Look at FINISHED segments of every partition, the oldest and the newest always, evenly between them. What failed
    its verification is left out.

    Args:
        read_back: where the store keeps no checksums, objects are read for them; else lengths have to do there.

    Raises:
        RemoteStorageUnavailableError: the store cannot be asked.
    """
    by_partition = [
        [
            row
            for row in metadata.list_segments(partition)
            if row.metadata.is_finished and row.verdict is not Verdict.FAILED
        ]
        for partition in metadata.partitions()
    ]
    total = sum(map(len, by_partition))
    chosen = [row for rows in by_partition if rows for row in _some(rows, total)]
    wrong = [
        f"{row.metadata.remote_log_segment_id}: {fault}" for row, fault in _faults(storage, chosen, read_back=read_back)
    ]
    return PlaceProof(total, sum(map(bool, by_partition)), len(chosen), len(wrong), tuple(wrong[:_NAMED]))


def _some(rows: Sequence[SegmentRow], total: int) -> list[SegmentRow]:
    wanted = len(rows) if total <= ALL_OF else min(len(rows), max(_EACH, -(-ALL_OF * len(rows) // total)))
    if wanted < _EACH:
        return list(rows[:wanted])
    last = len(rows) - 1
    return [rows[number * last // (wanted - 1)] for number in range(wanted)]


def _faults(storage: RemoteStorage, rows: Iterable[SegmentRow], *, read_back: bool) -> Iterator[tuple[SegmentRow, str]]:
    for row in rows:
        stored = {one.kind: one for one in _objects(storage, row.metadata, read_back=read_back)}
        lacking = sorted(storage.required_kinds - stored.keys())
        if lacking:
            yield row, f"{', '.join(lacking)} not there"
            continue
        log, size_bytes = stored[ObjectKind.LOG], row.metadata.segment_size_bytes
        if log.size_bytes != size_bytes:
            try:
                manifest = storage.fetch_manifest(row.metadata)
            except RemoteResourceNotFoundError:
                manifest = None
            if not explains_length(manifest, size_bytes, log.size_bytes):
                yield row, f"the log has {log.size_bytes} bytes, expected {size_bytes}"
        elif _differs(row.log_crc32c, log.crc32c) and not _is_transformed(storage, row, log.size_bytes):
            yield row, f"the log is there with another CRC-32C than {row.log_crc32c:08x}"


def _differs(expected: int | None, found: int | None) -> bool:
    return expected is not None and found is not None and expected != found


def _objects(storage: RemoteStorage, metadata: RemoteLogSegmentMetadata, *, read_back: bool) -> Sequence[KeptObject]:
    if not read_back:
        return storage.open_log_segment(metadata, limiter=UnlimitedBytes()).objects()
    stored = storage.stat_log_segment(metadata)
    return [KeptObject(one.kind, one.key, one.size_bytes, one.crc32c) for one in stored]


def _is_transformed(storage: RemoteStorage, row: SegmentRow, stored_bytes: int) -> bool:
    """A transformed log may have the length of the plain one by chance."""
    return explains_length(storage.fetch_manifest(row.metadata), row.metadata.segment_size_bytes, stored_bytes)
