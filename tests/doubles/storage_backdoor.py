"""Ways to the medium of an object store that do not go through the store, so that a bug in `put` cannot hide one in
`read`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Backdoor(Protocol):
    """Keys are relative to the store's prefix."""

    def raw_keys(self) -> set[str]:
        """Everything that a stranger would see, temporary files included."""
        ...

    def raw_read(self, key: str) -> bytes: ...

    def raw_write(self, key: str, content: bytes) -> None: ...

    def raw_delete(self, key: str) -> None: ...


@dataclass(frozen=True)
class DirectoryBackdoor:
    """Files below a directory; `ignored` names directories that belong to a server's own bookkeeping."""

    root: Path
    ignored: frozenset[str] = frozenset()

    def raw_keys(self) -> set[str]:
        files = (path.relative_to(self.root) for path in self.root.rglob("*") if not path.is_dir())
        return {path.as_posix() for path in files if self.ignored.isdisjoint(path.parts)}

    def raw_read(self, key: str) -> bytes:
        return (self.root / key).read_bytes()

    def raw_write(self, key: str, content: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def raw_delete(self, key: str) -> None:
        (self.root / key).unlink()
