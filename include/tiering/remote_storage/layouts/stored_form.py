"""Reading a segment of the aiven layout back to what the broker wrote, whatever its manifest says was done with it.

A manifest is somebody's claim. What comes out of a chunk, and what is held of one at a time, is bounded by its chunk
size and by `MAX_CHUNK_BYTES`, before anything of it is read.
"""

from collections.abc import Iterator
from typing import Final

from include.tiering.errors import FormatError, RemoteResourceNotFoundError, SegmentKeyError, StoredChunkError
from include.tiering.formats import aiven_chunks
from include.tiering.formats.aiven_chunks import (
    ENCRYPTION_OVERHEAD_BYTES,
    MAX_CHUNKS,
    Chunk,
    chunk_count,
    chunks_over,
)
from include.tiering.formats.aiven_manifest import IndexPosition, SegmentManifest
from include.tiering.model.segment_data import IndexType
from include.tiering.remote_storage.layouts.contract import ReadObject, StreamObject
from include.tiering.remote_storage.layouts.segment_keys import Cipher, SegmentKeys
from include.tiering.units import KIB, MIB, format_bytes

MAX_CHUNK_BYTES: Final = 128 * MIB
"""A larger one is read of plain segments only, where no chunk is held."""


class StoredForm:
    """One segment by its manifest. `name` is for errors.

    Raises:
        SegmentKeyError: it is encrypted, and its key is not at hand.
        StoredChunkError: its key was wrapped for another pair of the same id, or changed.
    """

    def __init__(self, name: str, manifest: SegmentManifest, keys: SegmentKeys | None) -> None:
        self._name = name
        self._manifest = manifest
        self._cipher = _cipher(name, manifest, keys)

    def log(self, key: str, first: int, last: int, stream: StreamObject) -> Iterator[bytes]:
        """Bytes `first` to `last` (inclusive) of the segment file; those of all chunks needed come in one request.

        Raises:
            StoredChunkError, RemoteResourceNotFoundError: with the numbers of the chunks.
        """
        count = chunk_count(self._manifest.chunk_index)
        if count > MAX_CHUNKS:
            raise StoredChunkError(f"{self._name}: its manifest gives it {count} chunks: at most {MAX_CHUNKS} are read")
        chunks = list(chunks_over(self._manifest.chunk_index, first, last))
        for chunk in chunks:
            self._require_bounded(chunk)
        end = chunks[-1].stored_position + chunks[-1].stored_size_bytes - 1
        blocks = _Blocks(stream(key, chunks[0].stored_position, end))
        for chunk in chunks:
            content = self._content(chunk, self._stored(chunk, blocks))
            yield content[max(0, first - chunk.position) : last + 1 - chunk.position]

    def index(self, key: str, index_type: IndexType, read: ReadObject) -> bytes | None:
        """Raises StoredChunkError: it is encrypted, and was changed."""
        found = self._manifest.indexes[index_type]
        if found is None:
            return None
        stored = _slice(key, found, read)
        if self._cipher is None or not stored:
            return stored
        try:
            return self._cipher.open(stored)
        except FormatError as error:
            raise StoredChunkError(f"{self._name}: its {index_type.value} index: {error}") from None

    def indexes(self, key: str, read: ReadObject) -> bytes:
        """All of them as they are stored, one after another."""
        found = (self._manifest.indexes[index_type] for index_type in IndexType)
        return b"".join(_slice(key, index, read) for index in found if index is not None)

    def _content(self, chunk: Chunk, stored: bytes) -> bytes:
        try:
            content = stored if self._cipher is None else self._cipher.open(stored)
            if self._manifest.compression:
                content = aiven_chunks.decompress_frame(content, most_bytes=chunk.size_bytes)
            if len(content) != chunk.size_bytes:
                raise FormatError(f"{len(content)} bytes came out of it, it has {chunk.size_bytes}")
        except FormatError as error:
            raise StoredChunkError(f"{self._named(chunk)}: {error}") from None
        return content

    def _stored(self, chunk: Chunk, blocks: "_Blocks") -> bytes:
        try:
            stored = blocks.take(chunk.stored_size_bytes)
        except RemoteResourceNotFoundError as error:
            raise RemoteResourceNotFoundError(f"{self._named(chunk)}: {error}") from error
        if len(stored) != chunk.stored_size_bytes:
            raise StoredChunkError(f"{self._named(chunk)}: the object ends inside it")
        return stored

    def _require_bounded(self, chunk: Chunk) -> None:
        """What zstd makes of bytes that cannot be compressed, and no more."""
        most_bytes = chunk.size_bytes + chunk.size_bytes // 128 + KIB + ENCRYPTION_OVERHEAD_BYTES
        if chunk.stored_size_bytes > most_bytes:
            raise StoredChunkError(
                f"{self._named(chunk)}: its manifest gives it {chunk.stored_size_bytes} bytes, of {chunk.size_bytes}"
            )
        if chunk.size_bytes > MAX_CHUNK_BYTES:
            raise StoredChunkError(
                f"{self._named(chunk)}: it has {format_bytes(chunk.size_bytes)}: at most"
                f" {format_bytes(MAX_CHUNK_BYTES)} are undone at once"
            )

    def _named(self, chunk: Chunk) -> str:
        return f"{self._name}: chunk {chunk.number} of {chunk_count(self._manifest.chunk_index)}"


class _Blocks:
    """Blocks of any size, taken in other sizes."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")

    def take(self, size_bytes: int) -> bytes:
        """The next `size_bytes`, fewer at the end."""
        parts: list[memoryview] = []
        while size_bytes:
            if not self._rest:
                self._rest = memoryview(next(self._blocks, b""))
                if not self._rest:
                    break
            parts.append(self._rest[:size_bytes])
            self._rest = self._rest[size_bytes:]
            size_bytes -= len(parts[-1])
        return b"".join(parts)


def _cipher(name: str, manifest: SegmentManifest, keys: SegmentKeys | None) -> Cipher | None:
    if manifest.encryption is None:
        return None
    if keys is None:
        raise SegmentKeyError(
            f"{name}: it is encrypted for key pair {manifest.encryption.key_pair_id!r}, and no keys are set:"
            " name them in remote_storage.encryption_key_pairs"
        )
    try:
        return keys.cipher(manifest.encryption)
    except SegmentKeyError as error:
        raise SegmentKeyError(f"{name}: {error}") from None
    except FormatError as error:
        raise StoredChunkError(f"{name}: {error}") from None


def _slice(key: str, index: IndexPosition, read: ReadObject) -> bytes:
    return read(key, index.position, index.position + index.size_bytes - 1) if index.size_bytes else b""
