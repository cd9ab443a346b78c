"""Whole record batches out of consecutive bytes of a `.log`: what a fetch from an offset gives."""

from include.tiering.errors import FormatError
from include.tiering.formats.crc32c import extend_crc32c
from include.tiering.formats.record_batch import CRC_START, HEADER_SIZE, BatchHeader, parse_header


class WholeBatches:
    """Collects batches from the first one that reaches `next_offset` on, up to `max_bytes`; the first even if larger.

    Feed it blocks from the start of any batch at or before that one. `missing_bytes` says how many bytes on from the
    last block it can use at most, as far as it knows by then; 0 once it is full. A new segment goes on where the last
    one ended: `begin` it. No batch is taken that begins behind `last_offset` (inclusive), if there is one. Memory: what
    was collected, and the part of the last block that is no whole batch yet.
    """

    def __init__(self, next_offset: int, max_bytes: int, last_offset: int | None = None) -> None:
        self.records = bytearray()
        self.next_offset = next_offset
        self.base_offset: int | None = None
        self.full = False
        self._max_bytes = max_bytes
        self._last_offset = last_offset
        self._pending = bytearray()
        self._position = 0
        self._size_bytes = 0
        self._skip_bytes = 0

    def begin(self, position: int, size_bytes: int, next_offset: int) -> None:
        """The next block is at `position`, the start of a batch, of a segment of `size_bytes`.

        Offsets below `next_offset` are not wanted of it.
        """
        self._position, self._size_bytes, self._skip_bytes = position, size_bytes, 0
        self.next_offset = max(self.next_offset, next_offset)

    def feed(self, block: bytes) -> None:
        """Take the bytes that follow those of the last block.

        Raises:
            FormatError: a batch is damaged; its position is that in the segment.
            OldMagicError
        """
        skipped_bytes = min(self._skip_bytes, len(block))
        self._skip_bytes -= skipped_bytes
        self._position += skipped_bytes
        self._pending += memoryview(block)[skipped_bytes:]
        at = 0
        while not self.full and len(self._pending) - at >= HEADER_SIZE:
            header = self._header(at)
            end = at + header.size_bytes
            if header.last_offset < self.next_offset:
                self._skip_bytes = max(0, end - len(self._pending))
            elif self._is_behind_the_last(header.base_offset) or (
                self.records and len(self.records) + header.size_bytes > self._max_bytes
            ):
                self.full = True
                break
            elif end > len(self._pending):
                break
            else:
                self._collect(header, at, end)
            at = min(end, len(self._pending))
        del self._pending[:at]
        self._position += at

    @property
    def missing_bytes(self) -> int:
        if self.full:
            return 0
        room_bytes = self._max_bytes - len(self.records) - len(self._pending)
        if len(self._pending) < HEADER_SIZE:
            return max(self._skip_bytes + room_bytes, HEADER_SIZE - len(self._pending))
        return max(room_bytes, self._header(0).size_bytes - len(self._pending))

    def end(self) -> None:
        """Nothing more comes of this segment.

        Raises:
            FormatError: it ended inside of a batch.
        """
        if self._pending and not self.full:
            raise FormatError(f"{len(self._pending)} bytes are left over", self._position)
        self._pending.clear()

    def _header(self, at: int) -> BatchHeader:
        """Raises FormatError for a batch that cannot be, or does not fit into what is left of the segment."""
        position = self._position + at
        try:
            header = parse_header(self._pending, at)
        except FormatError as error:
            raise type(error)(error.message, position) from None
        if position + header.size_bytes > self._size_bytes:
            left_bytes = self._size_bytes - position
            raise FormatError(f"batch of {header.size_bytes} bytes, {left_bytes} are left of its segment", position)
        return header

    def _collect(self, header: BatchHeader, at: int, end: int) -> None:
        batch = bytes(self._pending[at:end])
        crc = extend_crc32c(0, memoryview(batch)[CRC_START:])
        if crc != header.crc:
            message = f"CRC-32C of the batch at offset {header.base_offset} is {crc:08x}, not {header.crc:08x}"
            raise FormatError(message, self._position + at)
        self.records += batch
        if self.base_offset is None:
            self.base_offset = header.base_offset
        self.next_offset = header.last_offset + 1
        self.full = len(self.records) + HEADER_SIZE > self._max_bytes
        if self._last_offset is not None and header.last_offset >= self._last_offset:
            self.next_offset, self.full = self._last_offset + 1, True

    def _is_behind_the_last(self, offset: int) -> bool:
        return self._last_offset is not None and offset > self._last_offset
