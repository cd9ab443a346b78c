"""Whether the store has all of a copy that the metadata describe: every object, the right lengths and checksums."""

from dataclasses import dataclass

from include.tiering.errors import RemoteStorageError, SegmentKeyError
from include.tiering.formats.crc32c import extend_crc32c
from include.tiering.formats.manifest import parse_manifest
from include.tiering.quotas.contract import Quotas
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage, StoredObject
from include.tiering.segments.contract import SegmentRow
from include.tiering.segments.suspicion import explains_length, manifest_suspicion


@dataclass(frozen=True, slots=True)
class WholeCopy:
    """Asks the store. What has to be read back for it is charged to the fetch quota."""

    storage: RemoteStorage
    quotas: Quotas

    def fault(self, row: SegmentRow) -> str | None:
        """Why this is no whole and right copy, in words that follow its name; None if it is one.

        The log must have the length and the CRC-32C that were read from the source; of the other objects the manifest
        says the length. A log that was compressed or encrypted on its way is read back.

        Raises:
            RemoteStorageError: retriable ones only.
        """
        try:
            return self._fault(row)
        except (RemoteStorageError, SegmentKeyError) as error:
            if error.retriable:
                raise
            return f"cannot be read: {error}"

    def is_in_parts(self, row: SegmentRow) -> bool:
        """Whether an object of it is certainly not there. What is there and cannot be read is no part of anything less.

        Raises:
            RemoteStorageError: the store cannot be asked.
        """
        found = {one.kind for one in self.storage.stat_log_segment(row.metadata)}
        return not self.storage.required_kinds <= found

    def is_there(self, row: SegmentRow) -> bool:
        """Whether it is a whole and right copy; not if the store cannot be asked."""
        try:
            return self.fault(row) is None
        except RemoteStorageError:
            return False

    def _fault(self, row: SegmentRow) -> str | None:
        found = {one.kind: one for one in self.storage.stat_log_segment(row.metadata)}
        missing = sorted(self.storage.required_kinds - found.keys())
        if missing:
            return f"has no {', '.join(missing)} in the store"
        if row.log_crc32c is None:
            return "has no known checksum to compare with"
        manifest = self.storage.fetch_manifest(row.metadata)
        if manifest is not None and (suspicion := manifest_suspicion(row.metadata, manifest)) is not None:
            return f"has a manifest of another segment: {suspicion}"
        if manifest is not None:
            stored, said = found[ObjectKind.INDEXES].size_bytes, parse_manifest(manifest).stored_indexes_bytes
            if stored != said:
                return f"has {stored} bytes of indexes, its manifest says {said}"
        return self._fault_of_log(row, found[ObjectKind.LOG], manifest)

    def _fault_of_log(self, row: SegmentRow, log: StoredObject, manifest: bytes | None) -> str | None:
        expected = (row.metadata.segment_size_bytes, row.log_crc32c)
        stored = (log.size_bytes, log.crc32c)
        if stored != expected and explains_length(manifest, expected[0], log.size_bytes):
            # Compressed or encrypted: the store's checksum is of other bytes than ours, so it is read.
            stored = self._read_back(row)
        if stored == expected:
            return None
        return f"has a log of {stored[0]} bytes with CRC-32C {stored[1]:08x}, not {expected[0]} with {expected[1]:08x}"

    def _read_back(self, row: SegmentRow) -> tuple[int, int]:
        limiter = self.quotas.fetch(row.metadata.broker_id, row.metadata.topic_id_partition.topic)
        size_bytes = crc32c = 0
        for block in self.storage.fetch_log_segment(row.metadata, limiter=limiter):
            size_bytes, crc32c = size_bytes + len(block), extend_crc32c(crc32c, block)
        return size_bytes, crc32c
