"""Files of a Spark job: the library as one zip file for `--py-files`, and a directory of its own.

The zip has the same bytes for the same sources and interpreter. Each module is packed as source and as bytecode, which
an interpreter does not compare with the source (times in the zip are fixed), so jobs do not compile the library. An
interpreter of another version uses the source.

The directory is the job's java.io.tmpdir, spark.local.dir and TMPDIR.

| crash | leaves | removed by |
|---|---|---|
| the job's JVM is killed | spark-*, blockmgr-*, liblz4-* in the job's directory | `scratch_directory`, as it ends |
| the Airflow task is killed | the job's directory with its lock file, unlocked | `sweep`, when the next job starts |

An open file of the task holds the lock, so the lock ends with the task.
"""

import fcntl
import hashlib
import importlib.util
import marshal
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_UNCHECKED_HASH: Final = (0b01).to_bytes(4, "little")
_PACKED_SUFFIXES: Final = frozenset({".py", ".toml", ".sql", ".mako", ".ini"})


def packed_library(root: Path, packages: Iterable[str], into: Path) -> Path:
    """Return a zip in `into` with the `packages` below `root`. It is made once per content; tasks may do so at once."""
    files = sorted(path for package in packages for path in (root / package).rglob("*") if _is_packed(path))
    contents = [(path.relative_to(root).as_posix(), path.read_bytes()) for path in files]
    target = into / f"tiering-library-{_digest(contents)}.zip"
    if not target.exists():
        into.mkdir(parents=True, exist_ok=True)
        descriptor, stage = tempfile.mkstemp(prefix=f"{target.name}.", dir=into)
        with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in contents:
                _add(archive, name, content)
                if name.endswith(".py"):
                    _add(archive, name + "c", _bytecode(name, content))
        Path(stage).rename(target)
    return target


def _is_packed(path: Path) -> bool:
    return path.suffix in _PACKED_SUFFIXES and "__pycache__" not in path.parts and path.is_file()


def _digest(contents: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256(importlib.util.MAGIC_NUMBER)
    for name, content in contents:
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def _bytecode(name: str, source: bytes) -> bytes:
    """Return a .pyc with unchecked hash. Marshal version 2 has no back references: equal code gives equal bytes."""
    code = compile(source, name, "exec", dont_inherit=True)
    header = importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + importlib.util.source_hash(source)
    return header + marshal.dumps(code, 2)


_PREFIX: Final = "spark-job-"
_LOCK: Final = "owner.lock"


@contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """Create a directory below `parent`, and remove it at the end; first remove directories of dead tasks."""
    parent.mkdir(parents=True, exist_ok=True)
    sweep(parent)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        with (directory / _LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove directories whose task is dead. A directory without a lock file is just being created, and is kept."""
    for directory in parent.glob(f"{_PREFIX}*"):
        try:
            with (directory / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue
