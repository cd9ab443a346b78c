"""A log as it is stored: chunk by chunk compressed, encrypted, or both, while it is sent.

A store wants length and checksum of an object before its first byte, and a request that is sent again wants its bytes
again. So the log is gone through twice: once for these numbers, then as it is sent. Initialisation vectors are chosen
once, so both give the same bytes; a chunk whose source is not what it was the first time is never sent. The first
chunks are kept, as many as `KEPT_BYTES` hold: small segments are compressed once. Memory is that, and a few chunks.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from include.tiering.errors import FormatError, SettingError, SourceChangedError
from include.tiering.formats import aiven_chunks
from include.tiering.formats.aiven_chunks import (
    ENCRYPTION_OVERHEAD_BYTES,
    IV_BYTES,
    MAX_CHUNKS,
    ChunkIndex,
    FixedChunkIndex,
    VariableChunkIndex,
)
from include.tiering.formats.crc32c import extend_crc32c
from include.tiering.formats.record_batch import HEADER_SIZE, Codec, parse_header
from include.tiering.model.segment_data import RUNNING_CRC32C_STEP_BYTES, ByteSource, LogSegmentData
from include.tiering.remote_storage.bodies import filled_block
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.layouts.segment_keys import Cipher
from include.tiering.units import MIB

KEPT_BYTES: Final = 64 * MIB

ChunkSeal = Callable[[int, bytes], bytes]
"""(number of the chunk, its content) -> the content encrypted."""


@dataclass(frozen=True, slots=True)
class Transformation:
    """What is done with each chunk, in this order. `seal` gives the same bytes for the same chunk each time."""

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
    """A `ByteSource` of the stored form. `crc32c`, `running_crc32c` (as in `LogSegmentData`) and `chunk_index` are of
    that form. `name` is for errors.

    Raises:
        SourceChangedError: the log is not what the check pass saw.
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
        """The first time: sizes of the stored chunks, and all checksums."""
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
    """The log in this form; one that is neither compressed nor encrypted is the segment file itself.

    Raises:
        SettingError: more chunks than a reader takes.
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
    """Whether the first batch is compressed, or there is none that could be read: the plugin takes both alike."""
    head = bytearray(HEADER_SIZE)
    try:
        return log.read_into(0, memoryview(head)) < HEADER_SIZE or parse_header(head).codec is not Codec.NONE
    except (FormatError, ValueError):
        return True


def _sealing(cipher: Cipher, chunks: int, random_bytes: Callable[[int], bytes]) -> ChunkSeal:
    """Seals each chunk with an initialisation vector of its own, the same each time."""
    vectors = [random_bytes(IV_BYTES) for _ in range(chunks)]
    return lambda number, content: cipher.seal(content, vectors[number])


class RunningSum:
    """CRC-32C of all that came, and after each whole step of it."""

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
