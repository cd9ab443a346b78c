"""Small objects of segments, kept on this host: the manifests and indexes that each look-up of an offset needs.

An object of a segment is never changed, so an entry never grows old. But nothing that is read from the disk is trusted:

    entry                                          is
    cut off, damaged, or of another object         removed, and read from the store again
    whole, but its content cannot be right         removed by the reader that finds this out (`forget`), and read from
                                                   the store again: the object may have been mended there since
    half written by a process that was killed      a file with another name, which is removed after an hour

Several processes may use a directory at the same time: an entry appears by a rename, and its checksum also covers the
store, the key and the range that the entry belongs to. All entries together have at most `MOST_BYTES`; each process
that writes at the same time may exceed this by a 32nd. The entries whose last use is longest ago are removed first.
After an I/O error a process does not use the directory any more.

A process also holds the entries that it used last in memory, with or without a directory: so a manifest that was read
to find an index is not read again to find the log. What is kept are the stored bytes: of an encrypted segment they are
encrypted.
"""

import hashlib
import os
import struct
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from include.tiering.formats.record_batch import extend_crc32c
from include.tiering.telemetry import get_logger
from include.tiering.units import KIB, MIB

MOST_BYTES: Final = 256 * MIB
_log: Final = get_logger(__name__)
_HEADER: Final = struct.Struct(">8sIQ")
_MAGIC: Final = b"tiering1"
_PARTIAL: Final = "partial-"
_PARTIAL_SECONDS: Final = 3_600.0
_SHARE: Final = 32
_IN_MEMORY: Final = 64
_IN_MEMORY_BYTES: Final = 64 * KIB


class ObjectCache:
    """Parts of objects, by key and range. Thread-safe.

    Args:
        directory: where entries are kept; it is created when it is needed. None: only in memory.
        place: names the store that the keys belong to; any text that no other store has.
        max_bytes: the limit of all entries in the directory together.
    """

    def __init__(self, directory: Path | None, place: str, max_bytes: int = MOST_BYTES) -> None:
        self._directory = directory
        self._place = place
        self._max_bytes = max_bytes
        self._unchecked_bytes = max_bytes
        self._recent: OrderedDict[tuple[str, int, int | None], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, key: str, first: int, last: int | None, fetch: Callable[[], bytes]) -> bytes:
        """Return bytes `first` to `last` (both inclusive; `last` None: to the end) of an object.

        Args:
            key: of an object that never changes.
            first: the first byte.
            last: the last byte; None for the end of the object.
            fetch: reads them from the store; called if no valid entry has them.
        """
        part = key, first, last
        with self._lock:
            if (recent := self._recent.get(part)) is not None:
                self._recent.move_to_end(part)
                return recent
        content = self._loaded(part)
        if content is None:
            content = fetch()
            self._keep(part, content)
        if len(content) <= _IN_MEMORY_BYTES:
            with self._lock:
                self._recent[part] = content
                while len(self._recent) > _IN_MEMORY:
                    self._recent.popitem(last=False)
        return content

    def forget(self, keys: Collection[str]) -> bool:
        """Remove all entries of these objects, because they cannot be right; return whether there was one."""
        with self._lock:
            parts = [part for part in self._recent if part[0] in keys]
            for part in parts:
                del self._recent[part]
        directory = self._directory
        files = [] if directory is None else [path for key in keys for path in directory.glob(f"{self._stem(key)}.*")]
        for path in files:
            with suppress(OSError):
                path.unlink()
        return bool(parts or files)

    def _stem(self, key: str) -> str:
        """Return what the names of all entries of an object begin with: a hash, as keys are input from outside."""
        return hashlib.sha256(f"{self._place}\n{key}".encode()).hexdigest()[:40]

    def _path(self, directory: Path, part: tuple[str, int, int | None]) -> Path:
        key, first, last = part
        return directory / f"{self._stem(key)}.{first}.{'end' if last is None else last}"

    def _sum(self, part: tuple[str, int, int | None], content: bytes) -> int:
        return extend_crc32c(extend_crc32c(0, f"{self._place}\n{part}".encode()), content)

    def _loaded(self, part: tuple[str, int, int | None]) -> bytes | None:
        """Return the entry in the directory; None if there is none. A damaged entry is removed."""
        if (directory := self._directory) is None:
            return None
        path = self._path(directory, part)
        try:
            stored = path.read_bytes()
            content = stored[_HEADER.size :]
            if stored[: _HEADER.size] == _HEADER.pack(_MAGIC, self._sum(part, content), len(content)):
                os.utime(path)
                return content
            _log.warning("%s is damaged: it is read from the store again", path)
            path.unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            self._give_up(error)
        return None

    def _keep(self, part: tuple[str, int, int | None], content: bytes) -> None:
        directory, size_bytes = self._directory, _HEADER.size + len(content)
        if directory is None or size_bytes > self._max_bytes // _SHARE:
            return
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._make_space(directory, size_bytes)
            with tempfile.NamedTemporaryFile(prefix=_PARTIAL, dir=directory, delete=False) as file:
                partial = Path(file.name)
                file.write(_HEADER.pack(_MAGIC, self._sum(part, content), len(content)) + content)
            partial.replace(self._path(directory, part))
        except OSError as error:
            self._give_up(error)

    def _make_space(self, directory: Path, size_bytes: int) -> None:
        """Remove the entries that were not used for longest. The directory is looked through only now and then."""
        with self._lock:
            self._unchecked_bytes += size_bytes
            if self._unchecked_bytes <= self._max_bytes // _SHARE:
                return
            self._unchecked_bytes = 0
        abandoned = directory.stat().st_mtime - _PARTIAL_SECONDS
        found: list[tuple[float, int, Path]] = []
        for path in directory.iterdir():
            with suppress(FileNotFoundError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        left_bytes = sum(each[1] for each in found)
        most_bytes = self._max_bytes - self._max_bytes // _SHARE
        for used, entry_bytes, path in sorted(found):
            if path.name.startswith(_PARTIAL):
                if used > abandoned:
                    continue
            elif left_bytes <= most_bytes:
                continue
            path.unlink(missing_ok=True)
            left_bytes -= entry_bytes

    def _give_up(self, error: OSError) -> None:
        """Keep entries in memory only from now on: a disk that fails is no reason to fail a read."""
        _log.warning("manifests and indexes are not kept in %s any more: %s", self._directory, error.strerror or error)
        self._directory = None
