"""How long the objects beside a manifest must be. Source of the rules: the manifest's format (`formats.manifest`)."""

from include.tiering.formats.manifest import FixedChunkIndex, SegmentManifest


def stored_log_bytes(manifest: SegmentManifest) -> int | None:
    """Length of the log object; None for a compressed one, whose chunk sizes stay encoded."""
    chunks = manifest.chunk_index
    if not isinstance(chunks, FixedChunkIndex):
        return None
    before_last = max(0, -(-chunks.original_file_size_bytes // chunks.original_chunk_size_bytes) - 1)
    return before_last * chunks.transformed_chunk_size_bytes + chunks.final_transformed_chunk_size_bytes


def stored_indexes_bytes(manifest: SegmentManifest) -> int:
    """Length of the object that holds all indexes, one after another."""
    return max((index.position + index.size_bytes for index in manifest.indexes.values() if index), default=0)
