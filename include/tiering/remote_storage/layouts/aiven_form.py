"""Forms in which the aiven layout stores a segment: the settings, the reader, and the transformation while sending.

`AivenForm` says how segments are written; segments of all forms are read, independent of it. `SegmentKeys` is the
protocol of a key store, which `key_ring` implements, so that a process without keys loads no cipher.

`StoredForm` restores what the broker wrote from a segment of any form. A manifest is untrusted input: before a chunk is
read, its stored size is checked against its restored size, and its restored size against `MAX_CHUNK_BYTES`.

`TransformedLog` is a log as it is stored: compressed, encrypted, or both, chunk by chunk, while it is sent. A store
needs length and checksum of an object before its first byte, and a request that is sent again needs its bytes again. So
the log is read for length and checksum first, then as it is sent. Initialisation vectors are chosen once, so all passes
give the same bytes; a chunk whose source changed since the first pass is never sent. Stored chunks of up to
`KEPT_BYTES` in all are kept in memory from the first pass, so small segments are read and compressed once. Memory use
is `KEPT_BYTES` and a few chunks.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Final, Protocol

from include.tiering.errors import (
    FormatError,
    RemoteResourceNotFoundError,
    SegmentKeyError,
    SettingError,
    SourceChangedError,
    StoredChunkError,
)
from include.tiering.formats import aiven_chunks
from include.tiering.formats.aiven_chunks import (
    ENCRYPTION_OVERHEAD_BYTES,
    IV_BYTES,
    MAX_CHUNK_SIZE_BYTES,
    MAX_CHUNKS,
    Chunk,
    ChunkIndex,
    FixedChunkIndex,
    VariableChunkIndex,
    chunk_count,
    chunks_over,
)
from include.tiering.formats.aiven_manifest import CustomMetadataField, Encryption, IndexPosition, SegmentManifest
from include.tiering.formats.record_batch import HEADER_SIZE, Codec, extend_crc32c, parse_header
from include.tiering.model.segments import RUNNING_CRC32C_STEP_BYTES, ByteSource, IndexType, LogSegmentData
from include.tiering.remote_storage.layouts.contract import ReadObject, StoredRange
from include.tiering.remote_storage.object_store import filled_block
from include.tiering.units import KIB, MIB, format_bytes


class Cipher(Protocol):
    """Encrypts and decrypts what one segment stores; see `key_ring.SegmentCipher`."""

    def seal(self, content: bytes, iv: bytes) -> bytes:
        """Encrypt and authenticate. An `iv` may be used for one content only."""
        ...

    def open(self, stored: bytes) -> bytes:
        """Decrypt. Raises FormatError if `stored` was changed, or encrypted with another key."""
        ...


class SegmentKeys(Protocol):
    """Data keys of segments."""

    def new_segment(self) -> tuple[Encryption, Cipher]:
        """Create a data key; return it as the manifest carries it, and its cipher.

        Raises:
            SettingError: no key pair is active, or its public key cannot be used.
        """
        ...

    def check(self) -> None:
        """Check the active key pair.

        Raises:
            SettingError: it cannot encrypt new segments, or its private key, if it is here, cannot decrypt them.
        """
        ...

    def cipher(self, encryption: Encryption) -> Cipher:
        """Return the cipher of a stored segment.

        Raises:
            SettingError: the key pair that the segment is encrypted for is not available.
            FormatError: the data key was wrapped for another key pair with this id, or was changed.
        """
        ...


MAX_CHUNK_BYTES: Final = 128 * MIB
"""The largest chunk of a compressed or encrypted segment. Such a chunk is held in memory; other chunks are not."""


class StoredForm:
    """Reads one segment by its manifest. `name` is for error messages.

    Raises:
        SettingError: the key pair that the segment is encrypted for is not available.
        StoredChunkError: the data key was wrapped for another key pair with the same id, or was changed.
    """

    def __init__(self, name: str, manifest: SegmentManifest, keys: SegmentKeys | None) -> None:
        self._name = name
        self._manifest = manifest
        self._cipher = _cipher(name, manifest, keys)

    def log(self, key: str, first: int, last: int) -> StoredRange:
        """Return where the chunks with bytes `first` to `last` (inclusive) of the segment file are.

        Raises:
            StoredChunkError: there are too many chunks, or a chunk is too large.
        """
        count = chunk_count(self._manifest.chunk_index)
        if count > MAX_CHUNKS:
            raise StoredChunkError(f"{self._name}: its manifest has {count} chunks: at most {MAX_CHUNKS} are read")
        chunks = list(chunks_over(self._manifest.chunk_index, first, last))
        for chunk in chunks:
            self._require_bounded(chunk)
        end = chunks[-1].stored_position + chunks[-1].stored_size_bytes - 1
        return StoredRange(key, chunks[0].stored_position, end, partial(self._restored, chunks, first, last))

    def _restored(self, chunks: Sequence[Chunk], first: int, last: int, stored: Iterator[bytes]) -> Iterator[bytes]:
        blocks = _Blocks(stored)
        for chunk in chunks:
            content = self._content(chunk, self._stored(chunk, blocks))
            yield content[max(0, first - chunk.position) : last + 1 - chunk.position]

    def index(self, key: str, index_type: IndexType, read: ReadObject) -> bytes | None:
        """Read one index; None if the segment has none. Raises StoredChunkError if it cannot be decrypted."""
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
        """Read all indexes as they are stored, one after another."""
        found = (self._manifest.indexes[index_type] for index_type in IndexType)
        return b"".join(_slice(key, index, read) for index in found if index is not None)

    def _content(self, chunk: Chunk, stored: bytes) -> bytes:
        try:
            content = stored if self._cipher is None else self._cipher.open(stored)
            if self._manifest.compression:
                content = aiven_chunks.decompress_frame(content, max_bytes=chunk.size_bytes)
            if len(content) != chunk.size_bytes:
                raise FormatError(f"it has {len(content)} bytes, its manifest says {chunk.size_bytes}")
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
        """Refuse a chunk above `MAX_CHUNK_BYTES`, or stored with more bytes than zstd and encryption make of it."""
        max_bytes = chunk.size_bytes + chunk.size_bytes // 128 + KIB + ENCRYPTION_OVERHEAD_BYTES
        if chunk.stored_size_bytes > max_bytes:
            raise StoredChunkError(
                f"{self._named(chunk)}: its manifest says {chunk.stored_size_bytes} stored bytes for {chunk.size_bytes}"
            )
        if chunk.size_bytes > MAX_CHUNK_BYTES:
            raise StoredChunkError(
                f"{self._named(chunk)}: it has {format_bytes(chunk.size_bytes)}: at most"
                f" {format_bytes(MAX_CHUNK_BYTES)} are held in memory"
            )

    def _named(self, chunk: Chunk) -> str:
        return f"{self._name}: chunk {chunk.number} of {chunk_count(self._manifest.chunk_index)}"


class _Blocks:
    """A stream of blocks of any size, read in other sizes."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")

    def take(self, size_bytes: int) -> bytes:
        """Return the next `size_bytes`; fewer at the end."""
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


BROKERS_LIMIT_BYTES: Final = 128
"""Default of the brokers' `remote.log.metadata.custom.metadata.max.bytes`."""


@dataclass(frozen=True, slots=True)
class AivenForm:
    """How segments are written; most attributes correspond to settings of the plugin, see docs/layouts.md.

    Attributes:
        chunk_size_bytes: how many bytes a broker requests at once: 1 to 2^30-1, and at most `MAX_CHUNK_BYTES` if
            segments are compressed or encrypted.
        compresses: whether the log is compressed, with zstd, chunk by chunk.
        unless_compressed: `compresses` applies only if the log's first batch is uncompressed.
        encrypts: whether segments are encrypted, for the active key pair.
        custom_metadata: the fields of custom metadata.
        custom_metadata_max_bytes: how many bytes of custom metadata brokers accept.
        key_prefix: prepended to every key of a segment as it is, inside the store's own prefix.
        brokers_prefix: `key.prefix` of the brokers: the prefix of the store's URL, then `key_prefix`.
        with_txn_index_empty: manifests have the member `txnIdxEmpty`, which brokers from 4.0 on write; the plugin never
            reads it.

    Raises:
        SettingError: `chunk_size_bytes` is out of bounds.
    """

    chunk_size_bytes: int = 4 * MIB
    compresses: bool = False
    unless_compressed: bool = False
    encrypts: bool = False
    custom_metadata: frozenset[CustomMetadataField] = frozenset()
    custom_metadata_max_bytes: int = BROKERS_LIMIT_BYTES
    key_prefix: str = ""
    brokers_prefix: str = ""
    with_txn_index_empty: bool = False

    def __post_init__(self) -> None:
        max_bytes = MAX_CHUNK_BYTES if self.compresses or self.encrypts else MAX_CHUNK_SIZE_BYTES - 1
        if not 0 < self.chunk_size_bytes <= max_bytes:
            raise SettingError(
                f"remote_storage.chunk_size {self.chunk_size_bytes}: 1 to {max_bytes} bytes are possible"
                f" (compressed or encrypted up to {format_bytes(MAX_CHUNK_BYTES)}: chunks are held in memory)"
            )


KEPT_BYTES: Final = 64 * MIB

ChunkSeal = Callable[[int, bytes], bytes]
"""(number of the chunk, its content) -> the content encrypted."""


@dataclass(frozen=True, slots=True)
class Transformation:
    """What is done with each chunk: it is compressed if `compresses`, then encrypted by `seal`, unless that is None.

    `seal` returns the same bytes for a chunk each time.
    """

    chunk_size_bytes: int
    compresses: bool
    seal: ChunkSeal | None

    def stored(self, number: int, content: bytes) -> bytes:
        stored = aiven_chunks.compress_frame(content) if self.compresses else content
        return stored if self.seal is None else self.seal(number, stored)

    def index(self, file_size_bytes: int, stored_sizes_bytes: Sequence[int]) -> ChunkIndex:
        if self.compresses:
            return VariableChunkIndex(self.chunk_size_bytes, file_size_bytes, tuple(stored_sizes_bytes))
        overhead_bytes = 0 if self.seal is None else ENCRYPTION_OVERHEAD_BYTES
        return FixedChunkIndex.plain(self.chunk_size_bytes, file_size_bytes, overhead_bytes)


class TransformedLog:
    """A `ByteSource` of the stored form of a log.

    `crc32c`, `running_crc32c` (as in `LogSegmentData`) and `chunk_index` are those of the stored form. `name` is for
    error messages.

    Raises:
        SourceChangedError: the log differs from what the check pass read.
    """

    def __init__(self, name: str, data: LogSegmentData, transformation: Transformation) -> None:
        self._name = name
        self._log = data.log
        self._transformation = transformation
        self._checksums: list[int] = []
        self._kept: dict[int, bytes] = {}
        self._current: tuple[int, bytes] = (-1, b"")
        sizes = self._survey(data.log_crc32c)
        self._ends = list(accumulate(sizes))
        self.chunk_index = transformation.index(data.log.size_bytes, sizes)

    @property
    def size_bytes(self) -> int:
        return self._ends[-1] if self._ends else 0

    def read_into(self, position: int, buffer: memoryview) -> int:
        filled = 0
        while filled < len(buffer) and position + filled < self.size_bytes:
            number = bisect_right(self._ends, position + filled)
            stored = memoryview(self._stored(number))
            part = stored[position + filled - (self._ends[number] - len(stored)) :][: len(buffer) - filled]
            buffer[filled : filled + len(part)] = part
            filled += len(part)
        return filled

    def _survey(self, log_crc32c: int) -> list[int]:
        """Run the first pass: compute all checksums, and return the sizes of the stored chunks."""
        sizes = []
        read_crc32c = kept_bytes = 0
        sums = RunningSum()
        for number in range(-(-self._log.size_bytes // self._transformation.chunk_size_bytes)):
            content = self._content(number)
            read_crc32c = extend_crc32c(read_crc32c, content)
            stored = self._transformation.stored(number, content)
            sums.extend(stored)
            sizes.append(len(stored))
            self._checksums.append(extend_crc32c(0, stored))
            if kept_bytes + len(stored) <= KEPT_BYTES:
                kept_bytes += len(stored)
                self._kept[number] = stored
        if read_crc32c != log_crc32c:
            raise SourceChangedError(
                self._name, f"its CRC-32C is {read_crc32c:08x} now and was {log_crc32c:08x} when it was checked"
            )
        self.crc32c, self.running_crc32c = sums.crc32c, tuple(sums.steps)
        return sizes

    def _stored(self, number: int) -> bytes:
        kept = self._kept.get(number)
        if kept is not None:
            return kept
        if self._current[0] != number:
            stored = self._transformation.stored(number, self._content(number))
            if extend_crc32c(0, stored) != self._checksums[number]:
                raise SourceChangedError(self._name, f"chunk {number} is not what it was when the copy began")
            self._current = (number, stored)
        return self._current[1]

    def _content(self, number: int) -> bytes:
        first = number * self._transformation.chunk_size_bytes
        content = bytearray(min(self._transformation.chunk_size_bytes, self._log.size_bytes - first))
        filled = 0
        while filled < len(content):
            filled += len(filled_block(self._log, first + filled, memoryview(content)[filled:]))
        return bytes(content)


@dataclass(frozen=True, slots=True)
class StoredLog:
    """A log object as it will be sent: its body, checksums (as in `LogSegmentData`) and chunks."""

    body: ByteSource
    crc32c: int
    running_crc32c: tuple[int, ...]
    chunk_index: ChunkIndex


def stored_log(
    name: str,
    data: LogSegmentData,
    form: AivenForm,
    cipher: Cipher | None,
    random_bytes: Callable[[int], bytes],
) -> StoredLog:
    """Return the log in this form; without compression and encryption it is the segment file itself.

    Raises:
        SettingError: a compressed or encrypted log would have more chunks than a reader accepts.
        SourceChangedError: as `TransformedLog`.
    """
    size_bytes = data.log.size_bytes
    chunks = -(-size_bytes // form.chunk_size_bytes)
    compresses = form.compresses and not (form.unless_compressed and begins_compressed(data.log))
    if cipher is None and not compresses:
        plain = FixedChunkIndex.plain(form.chunk_size_bytes, size_bytes)
        return StoredLog(data.log, data.log_crc32c, data.log_running_crc32c, plain)
    if chunks > MAX_CHUNKS:
        raise SettingError(
            f"{name}: {chunks} chunks of remote_storage.chunk_size {form.chunk_size_bytes}: at most {MAX_CHUNKS}"
        )
    seal = None if cipher is None else _sealing(cipher, chunks, random_bytes)
    body = TransformedLog(name, data, Transformation(form.chunk_size_bytes, compresses, seal))
    return StoredLog(body, body.crc32c, body.running_crc32c, body.chunk_index)


def begins_compressed(log: ByteSource) -> bool:
    """Return whether the log's first batch is compressed or cannot be read: the plugin treats both cases alike."""
    head = bytearray(HEADER_SIZE)
    try:
        return log.read_into(0, memoryview(head)) < HEADER_SIZE or parse_header(head).codec is not Codec.NONE
    except (FormatError, ValueError):
        return True


def _sealing(cipher: Cipher, chunks: int, random_bytes: Callable[[int], bytes]) -> ChunkSeal:
    """Return a function that encrypts each chunk with an initialisation vector of its own, the same each time."""
    vectors = [random_bytes(IV_BYTES) for _ in range(chunks)]
    return lambda number, content: cipher.seal(content, vectors[number])


class RunningSum:
    """CRC-32C of all bytes so far, and the values after each whole step (`RUNNING_CRC32C_STEP_BYTES`)."""

    def __init__(self) -> None:
        self.crc32c = 0
        self.steps: list[int] = []
        self._size_bytes = 0

    def extend(self, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            part = rest[: RUNNING_CRC32C_STEP_BYTES - self._size_bytes % RUNNING_CRC32C_STEP_BYTES]
            self.crc32c = extend_crc32c(self.crc32c, part)
            self._size_bytes += len(part)
            if not self._size_bytes % RUNNING_CRC32C_STEP_BYTES:
                self.steps.append(self.crc32c)
            rest = rest[len(part) :]
