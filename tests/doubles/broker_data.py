"""Log directories that real brokers wrote: unpacked once, read only; `copy_of` for a test that writes.

The archives and what is in them: tests/data/README.md. The unpacked tree lives under `.cache/`, named after the
archive's SHA-256, so a new archive never meets an old tree. It appears by one rename: workers that run side by side
may all unpack, the first rename wins and the others throw theirs away.
"""

import functools
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final, Literal

import zstandard

DataSet = Literal["public", "tiered", "crash"]

_ROOT: Final = Path(__file__).resolve().parents[2]
_ARCHIVES: Final = _ROOT / "tests" / "data" / "broker_log_dirs"
_CACHE: Final = _ROOT / ".cache" / "broker-data"
# The archives were written with a 128 MiB window; a decoder refuses that unless it is told.
_MAX_WINDOW_BYTES: Final = 2**27


@functools.cache
def broker_data(name: DataSet) -> Path:
    """The unpacked tree of one data set, directories and files without write permission.

    Raises:
        FileNotFoundError: no archive of that name.
    """
    archive = _ARCHIVES / f"kafka-{name}.tar.zst"
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    unpacked = _CACHE / f"{name}-{digest}"
    if not unpacked.exists():
        _unpack_by_rename(archive, unpacked)
    return unpacked


_NOT_APPENDED: Final = (
    "state-compacted",
    "both-policies",
    "__consumer_offsets",
    "__transaction_state",
    "__cluster_metadata",
)
"""Compaction rewrites a log and its indexes, and brokers write these topics in another way."""


def appended_partitions() -> list[Path]:
    """The partitions' directories of all data sets in which brokers only ever appended, so that they can be rebuilt."""
    roots = [
        *(broker_data("public") / copy / of for copy in ("running", "stopped") for of in ("broker-1", "broker-2")),
        *(broker_data("tiered") / copy for copy in ("data-running", "data-stopped")),
        *(broker_data("crash") / copy for copy in ("running", "recovered-stopped")),
    ]
    directories = [directory for root in roots for directory in sorted(root.glob("*-[0-9]*"))]
    return [directory for directory in directories if not directory.name.startswith(_NOT_APPENDED)]


def expected(name: DataSet) -> dict[str, Any]:
    """The oracle beside a data set: what Kafka's own classes and tools say of it."""
    return dict(json.loads((broker_data(name) / "expected.json").read_text()))


def copy_of(name: DataSet, tmp_path: Path, *, part: str = "") -> Path:
    """A writable copy under `tmp_path`, times and holes kept; `part` (``"stopped/broker-1"``) copies only that.

    Returns the directory that holds what `part` holds. Each call needs a `tmp_path` of its own.
    """
    target = tmp_path / name / part
    shutil.copytree(broker_data(name) / part, target, copy_function=_copy_sparse)
    for directory, _, files in os.walk(target):
        Path(directory).chmod(0o755)
        for file in files:
            Path(directory, file).chmod(0o644)
    return target


def _unpack_by_rename(archive: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
    with (
        archive.open("rb") as packed,
        decompressor.stream_reader(packed) as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        tar.extractall(stage, filter="data")
    (tree,) = stage.iterdir()
    _make_read_only(tree)
    try:
        tree.rename(target)
    except OSError:
        if not target.exists():
            raise
        _make_writable(tree)
    shutil.rmtree(stage)


def _make_read_only(tree: Path) -> None:
    """The top directory stays writable: renaming a directory needs that."""
    for directory, _, files in os.walk(tree, topdown=False):
        for file in files:
            Path(directory, file).chmod(0o444)
        if Path(directory) != tree:
            Path(directory).chmod(0o555)


def _make_writable(tree: Path) -> None:
    for directory, _, _ in os.walk(tree):
        Path(directory).chmod(0o755)


def _copy_sparse(source: str, target: str) -> str:
    """`shutil.copy2` that leaves holes where the source has holes (preallocated indexes are 10 MiB of nothing)."""
    with Path(source).open("rb") as reader, Path(target).open("xb") as writer:
        size_bytes = os.fstat(reader.fileno()).st_size
        position = 0
        while position < size_bytes:
            try:
                start = os.lseek(reader.fileno(), position, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(reader.fileno(), start, os.SEEK_HOLE)
            os.pwrite(writer.fileno(), os.pread(reader.fileno(), end - start, start), start)
            position = end
        writer.truncate(size_bytes)
    shutil.copystat(source, target)
    return target
