"""Before the objects of a superseded segment go: the copy in its place is there, whole and right, and has passed.

A failed segment was superseded because of what a verification saw. If that was the mistake (another disk, another
prefix, a store that lied), the superseded objects are the real ones, and the row that is FINISHED refers to nothing. So
the new copy is looked at once more, at the last moment. What cannot be proved keeps the old objects: they cost storage.
"""

from dataclasses import dataclass
from typing import Final

from include.tiering.errors import RemoteStorageError, UnprovedReplacementError
from include.tiering.formats.crc32c import extend_crc32c
from include.tiering.model.ids import RemoteLogSegmentId
from include.tiering.model.verdict import Verdict
from include.tiering.quota.contract import Quotas
from include.tiering.remote_metadata.contract import RemoteLogMetadata, SegmentRow
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage, StoredObject
from include.tiering.tasks.compare_stored import explains_length, manifest_suspicion

_MOST_COPIES: Final = 1_000
"""No segment was ever copied so often: a longer chain is damage."""

_PASSED_ONCE: Final = (Verdict.PASSED, Verdict.EXPIRED)
"""An expired verdict is of a copy that passed and is served; its length and checksum are looked at here anyway."""


@dataclass(frozen=True, slots=True)
class ReplacementCheck:
    """Looks at the copy in the place of a superseded segment. What is read back is charged to the fetch quota."""

    metadata: RemoteLogMetadata
    storage: RemoteStorage
    quotas: Quotas

    def require(self, superseded: RemoteLogSegmentId) -> None:
        """Return if the objects of this segment may go as far as its replacement is concerned.

        Nothing is asked for below the log start: retention has decided about these offsets.

        Raises:
            UnprovedReplacementError: of the last copy in its place something is missing, other, or not known.
            RemoteStorageUnavailableError: the store does not answer (retriable).
        """
        old = self.metadata.segment(superseded)
        partition = superseded.topic_id_partition
        if old is None or self.metadata.partition_truth(partition).log_start_offset > old.metadata.end_offset:
            return
        new = self._last_copy(old)
        if not new.metadata.is_finished:
            raise _unproved(old, new, f"is {new.metadata.state.name}, and the log start has not passed its offsets")
        if new.verdict not in _PASSED_ONCE:
            raise _unproved(old, new, f"has not passed verification: {new.verdict}")
        try:
            fault = self._fault(new)
        except RemoteStorageError as error:
            if error.retriable:
                raise
            fault = f"cannot be read: {error}"
        if fault is not None:
            raise _unproved(old, new, fault)

    def _last_copy(self, old: SegmentRow) -> SegmentRow:
        """The end of the chain: a new copy may have failed and have been superseded itself."""
        row = old
        for _ in range(_MOST_COPIES):
            if row.superseded_by is None:
                return row
            new_id = RemoteLogSegmentId(old.metadata.topic_id_partition, row.superseded_by)
            found = self.metadata.segment(new_id)
            if found is None:
                break
            row = found
        raise UnprovedReplacementError(
            f"{old.metadata.remote_log_segment_id} is kept: no metadata has {row.superseded_by}, the copy in its place"
        )

    def _fault(self, new: SegmentRow) -> str | None:
        """What is wrong with the objects of a copy."""
        found = {one.kind: one for one in self.storage.stat_log_segment(new.metadata)}
        missing = sorted(self.storage.required_kinds - found.keys())
        if missing:
            return f"has no {', '.join(missing)} in the store"
        if new.log_crc32c is None:
            return "has no known checksum to compare with"
        manifest = self.storage.fetch_manifest(new.metadata)
        if manifest is not None and (suspicion := manifest_suspicion(new.metadata, manifest)) is not None:
            return f"has a manifest of another segment: {suspicion}"
        return self._fault_of_log(new, found[ObjectKind.LOG], manifest)

    def _fault_of_log(self, new: SegmentRow, log: StoredObject, manifest: bytes | None) -> str | None:
        expected = (new.metadata.segment_size_bytes, new.log_crc32c)
        stored = (log.size_bytes, log.crc32c)
        if stored != expected and explains_length(manifest, expected[0], log.size_bytes):
            # Compressed or encrypted: the store's checksum is of other bytes than ours, so it is read.
            stored = self._read_back(new)
        if stored == expected:
            return None
        return f"has a log of {stored[0]} bytes with CRC-32C {stored[1]:08x}, not {expected[0]} with {expected[1]:08x}"

    def _read_back(self, new: SegmentRow) -> tuple[int, int]:
        limiter = self.quotas.fetch(new.metadata.broker_id, new.metadata.topic_id_partition.topic)
        size_bytes = crc32c = 0
        for block in self.storage.fetch_log_segment(new.metadata, limiter=limiter):
            size_bytes, crc32c = size_bytes + len(block), extend_crc32c(crc32c, block)
        return size_bytes, crc32c


def _unproved(old: SegmentRow, new: SegmentRow, why: str) -> UnprovedReplacementError:
    return UnprovedReplacementError(
        f"{old.metadata.remote_log_segment_id} is kept: {new.metadata.remote_log_segment_id.id}, the copy in its place,"
        f" {why}"
    )
