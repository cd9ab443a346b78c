"""Byte sources in memory, and decorators that watch or disturb another source."""

from pathlib import Path

from include.tiering.errors import SourceChangedError
from include.tiering.model.segments import ByteSource


class BytesSource:
    """A `ByteSource` over bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @classmethod
    def of_file(cls, path: Path) -> "BytesSource":
        return cls(path.read_bytes())

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def read_into(self, position: int, buffer: memoryview) -> int:
        part = self._data[position : position + len(buffer)]
        buffer[: len(part)] = part
        return len(part)


class RecordingSource:
    """Remembers every read as (position, bytes asked for)."""

    def __init__(self, inner: ByteSource) -> None:
        self._inner = inner
        self.reads: list[tuple[int, int]] = []

    @property
    def size_bytes(self) -> int:
        return self._inner.size_bytes

    def read_into(self, position: int, buffer: memoryview) -> int:
        self.reads.append((position, len(buffer)))
        return self._inner.read_into(position, buffer)


class ShrinkingSource:
    """Was cut to `shrunk_bytes` after it was opened: reads beyond raise, as the contract says."""

    def __init__(self, inner: ByteSource, shrunk_bytes: int, path: str = "shrinking.log") -> None:
        self._inner = inner
        self._shrunk_bytes = shrunk_bytes
        self._path = path

    @property
    def size_bytes(self) -> int:
        return self._inner.size_bytes

    def read_into(self, position: int, buffer: memoryview) -> int:
        wanted = min(position + len(buffer), self.size_bytes)
        if wanted > self._shrunk_bytes:
            raise SourceChangedError(self._path, f"shrank from {self.size_bytes} to {self._shrunk_bytes} bytes")
        return self._inner.read_into(position, buffer)
