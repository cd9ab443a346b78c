"""What the store has for one segment: asked once, read once, charged."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from include.tiering.errors import RemoteResourceNotFoundError, RemoteStorageError
from include.tiering.formats.crc32c import extend_crc32c
from include.tiering.model.segment_data import IndexType
from include.tiering.model.segment_metadata import Depth, RemoteLogSegmentMetadata
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.contract import (
    KeptObject,
    ObjectKind,
    RemoteStorage,
    StoredObject,
    TransformedSizes,
    absent_kinds,
)

_T = TypeVar("_T")


class SegmentContents:
    """The objects of a segment. A refusal is repeated to who asks again.

    A shallow measure takes a store that keeps no checksums (a file system) at its word: it reads the log to answer.
    A deep one reads the log itself, once. Every method raises what the store raises.
    """

    def __init__(
        self, metadata: RemoteLogSegmentMetadata, storage: RemoteStorage, limiter: ByteLimiter, depth: Depth
    ) -> None:
        self.metadata = metadata
        self._reader = storage.open_log_segment(metadata, limiter=limiter)
        self._required_kinds = storage.required_kinds
        is_deep = depth is Depth.DEEP
        self._stored = _attempt(lambda: self._reader.objects() if is_deep else storage.stat_log_segment(metadata))

    @property
    def bytes_read(self) -> int:
        return self._reader.bytes_read

    def absent_kinds(self) -> tuple[ObjectKind, ...]:
        """Objects that every segment has and this one has not, or without their bytes."""
        return absent_kinds(self.stored_objects(), self._required_kinds)

    @property
    def indexes_are_objects(self) -> bool:
        """Whether each index is an object of its own."""
        return ObjectKind.OFFSET_INDEX in self._required_kinds

    def stored_objects(self) -> tuple[StoredObject | KeptObject, ...]:
        if isinstance(self._stored, RemoteStorageError):
            raise self._stored
        return self._stored

    def log_size_and_crc32c(self) -> tuple[int, int | None]:
        """The store's own; None where it keeps no checksum and the log is to be read anyway. Of a compressed or
        encrypted log: its length as the broker wrote it, if the object has all chunks, and None."""
        stored = next((one for one in self.stored_objects() if one.kind is ObjectKind.LOG), None)
        if stored is None:
            raise RemoteResourceNotFoundError("the log is not in the store")
        sizes = self._transformed_sizes()
        if sizes is None:
            return stored.size_bytes, stored.crc32c
        if stored.size_bytes != sizes.stored_bytes:
            raise RemoteStorageError(
                f"the log object has {stored.size_bytes} bytes, its manifest says {sizes.stored_bytes}"
            )
        return sizes.log_bytes, None

    def _transformed_sizes(self) -> TransformedSizes | None:
        """None, too, where there is no manifest that could say so: others find that."""
        try:
            return self._reader.transformed_sizes()
        except RemoteStorageError as error:
            if error.retriable:
                raise
            return None

    def log_bytes(self) -> int:
        """How much of the log can be read: what the metadata says, or less if the store has less."""
        return min(self.metadata.segment_size_bytes, self.log_size_and_crc32c()[0])

    def index(self, index_type: IndexType) -> bytes:
        return self._reader.index(index_type)

    def transaction_index(self) -> bytes:
        """Empty if the segment has none."""
        try:
            return self._reader.index(IndexType.TRANSACTION)
        except RemoteResourceNotFoundError:
            return b""

    def manifest(self) -> bytes | None:
        return self._reader.manifest()

    def holds_what_is_read(self, stored: StoredObject | KeptObject) -> bool:
        """Whether an object beside the log is what its parts make up, in length and checksum."""
        content = self._reader.whole(stored.kind)
        crc32c = self._reader.read_crc32c(stored.key) if stored.crc32c is None else stored.crc32c
        return (stored.size_bytes, crc32c) == (len(content), extend_crc32c(0, content))

    def log_part(self, first_position: int, last_position: int) -> "LogPart":
        """For reading these bytes (both inclusive) of the log in order."""
        return LogPart(self._reader.log(first_position, last_position), first_position, last_position + 1)


class LogPart:
    """A `ByteSource` over blocks that follow each other: bytes from `first_position` up to `size_bytes` (exclusive).

    Reads must be in order. `crc32c` covers what was read.
    """

    def __init__(self, blocks: Iterator[bytes], first_position: int, size_bytes: int) -> None:
        self.crc32c = 0
        self._blocks = blocks
        self._position = first_position
        self._size_bytes = size_bytes
        self._block = memoryview(b"")

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Raises ValueError if `position` is not where the last read ended."""
        if position != self._position:
            raise ValueError(f"read at {position}, expected {self._position}")
        filled = 0
        while filled < len(buffer) and self._fill_block():
            count = min(len(self._block), len(buffer) - filled)
            buffer[filled : filled + count] = self._block[:count]
            self._block = self._block[count:]
            filled += count
        self._position += filled
        return filled

    def skip_rest(self) -> None:
        """Read what is left for its checksum alone."""
        while self._fill_block():
            self._block = memoryview(b"")

    def _fill_block(self) -> bool:
        """False at the end."""
        while not self._block:
            block = next(self._blocks, None)
            if block is None:
                return False
            self.crc32c = extend_crc32c(self.crc32c, block)
            self._block = memoryview(block)
        return True


def _attempt(ask: Callable[[], _T]) -> _T | RemoteStorageError:
    try:
        return ask()
    except RemoteStorageError as error:
        if error.retriable:
            raise
        return error
