"""What a manifest and a stored length say of a segment, beside what its row says."""

from enum import StrEnum

from include.tiering.errors import FormatError
from include.tiering.formats.manifest import parse_manifest
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata


class Suspicion(StrEnum):
    """Columns of `StoredMeasure`."""

    MISSING = "missing"
    UNKNOWN = "unknown"
    OTHER_SIZE = "other_size"
    OTHER_EPOCHS = "other_epochs"
    UNREADABLE = "unreadable"


def manifest_suspicion(metadata: RemoteLogSegmentMetadata, manifest: bytes) -> Suspicion | None:
    """What a manifest says of its segment, beside what the row says: id, offsets, size and leader epochs."""
    try:
        described = parse_manifest(manifest).metadata
    except FormatError:
        return Suspicion.UNREADABLE
    if described is None or _identity(described) != _identity(metadata):
        return Suspicion.OTHER_EPOCHS
    return None


def explains_length(manifest: bytes | None, log_bytes: int, stored_bytes: int) -> bool:
    """Whether the manifest says that a log of `log_bytes` is compressed or encrypted to `stored_bytes`."""
    if manifest is None:
        return False
    try:
        parsed = parse_manifest(manifest)
    except FormatError:
        return False
    chunks = parsed.chunk_index
    lengths = (chunks.original_file_size_bytes, chunks.stored_size_bytes)
    return not parsed.is_plain and lengths == (log_bytes, stored_bytes)


def _identity(metadata: RemoteLogSegmentMetadata) -> tuple[object, ...]:
    return (
        metadata.remote_log_segment_id,
        metadata.start_offset,
        metadata.end_offset,
        metadata.segment_size_bytes,
        metadata.segment_leader_epochs,
    )
