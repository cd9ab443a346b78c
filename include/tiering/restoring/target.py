"""The directory that a restore writes, and its manifest: what is in it, and what may be written into it.

The manifest is `_tiering-restore.jsonl` in the directory. Its first line says which restore the directory belongs to;
each further line is a part that is complete. A line counts once it is whole, so a crash leaves either a part or none.

    step             done when it is reached                     a crash right after it leaves       cleaned up by
    written          all files of a part are on disk, under      files `.partial`                    the next run, which
                     names that end in `.partial`                                                    writes them again
                                                                                                     or removes them
    entered          the manifest has the part, with the size    the part, some of its files still   the next run, which
                     of each file                                `.partial`                          renames the rest
    published        all files have their names                  the part                            -
    completed        the files beside the segments are there:    a partition that brokers can load   -
                     leader epochs, topic id, checkpoints

So the next run reads again only what had no line. A file that the manifest does not name is not of this restore: such a
directory is refused, and nothing is ever overwritten. One process at a time writes, which holds a lock on the manifest.
"""

import fcntl
import json
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final

from include.tiering.errors import SettingError, printable
from include.tiering.kafka.log_dirs.files import META_PROPERTIES
from include.tiering.model.histories import OffsetRange
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.reading.plan_scan import Bound
from include.tiering.restoring.plan import PartKey, RestoredPart, RestoreRequest

MANIFEST: Final = "_tiering-restore.jsonl"
"""Spark and Hive take no file for data whose name begins so, and brokers none in this place."""
PARTIAL: Final = ".partial"
_FORM: Final = 1
_SUBDIRECTORY: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*|date=[0-9A-Za-z_-]+")
_FILE: Final = re.compile(rf"(?:{_SUBDIRECTORY.pattern})/[A-Za-z0-9_-][A-Za-z0-9._-]*")
_MOST_MANIFEST_BYTES: Final = 1 << 30


class RestoreStep(StrEnum):
    """Steps of a part, in order; each is reported after it is done. See the table of this module."""

    WRITTEN = "written"
    ENTERED = "entered"
    PUBLISHED = "published"
    COMPLETED = "completed"


StepObserver = Callable[[RestoreStep], None]


@dataclass(frozen=True, slots=True)
class Resolved:
    """The offsets of each partition that a restore wants, as they were when it began; both inclusive; None: none."""

    offsets: Mapping[int, OffsetRange | None]
    restore_id: str = ""
    """Random: two directories never have the same, not even with the same path on two hosts."""


class RestoreTarget:
    """A directory for one restore. Thread-safe. Use `opened`.

    Args:
        directory: of the restore.
        manifest: the open manifest, at its end.
        resolved: as the manifest has it; None if the restore begins.
        done: parts that are in the manifest.
        observe: called after each step.
    """

    def __init__(
        self,
        directory: Path,
        manifest: BinaryIO,
        resolved: Resolved | None,
        done: Mapping[PartKey, RestoredPart],
        observe: StepObserver,
    ) -> None:
        self.directory = directory
        self.resolved = resolved
        self.done = dict(done)
        self._manifest = manifest
        self._observe = observe
        self._lock = threading.Lock()

    def begin(self, identity: Mapping[str, Any], resolved: Resolved) -> None:
        """Record which restore this directory belongs to, if that is not recorded yet."""
        if self.resolved is None:
            offsets = {str(partition): each and list(each) for partition, each in resolved.offsets.items()}
            self._append({"restore": _FORM, **identity, "restore_id": resolved.restore_id, "offsets": offsets})
            _sync_directory(self.directory)
            self.resolved = resolved

    @property
    def restore_id(self) -> str:
        """The id of this restore, which has begun."""
        return "" if self.resolved is None else self.resolved.restore_id

    def subdirectory(self, name: str) -> Path:
        """Return a directory of the target, which is made if it is absent: of a partition, or of a date."""
        if _SUBDIRECTORY.fullmatch(name) is None:
            raise SettingError(f"{printable(name)!r} cannot be the name of a directory in the target")
        path = self.directory / name
        path.mkdir(exist_ok=True, mode=0o700)
        if path.is_symlink():
            raise SettingError(f"{_shown(path)} is a link, which leads out of the target: name another directory")
        return path

    def require_own(self, names: Collection[str]) -> None:
        """Require that directories of partitions and dates have no file but those of entered parts.

        A broker, or a reader of Parquet files, would take others for records of the topic.

        Args:
            names: of further files that this restore writes in directories.

        Raises:
            SettingError: a file is not of this restore.
        """
        own = {name for part in self.done.values() for name in part.files}
        for directory in sorted(path for path in self.directory.iterdir() if path.is_dir()):
            for path in sorted(directory.iterdir()):
                is_own = f"{directory.name}/{path.name}" in own or path.name in names
                if not is_own and path.suffix != PARTIAL:
                    _require_free(path)

    def publish_entered(self) -> None:
        """Give all files of entered parts their names, for a run that a crash ended in between."""
        self._publish([name for part in self.done.values() for name in part.files])

    def remove_partial(self) -> None:
        """Remove the `.partial` files of parts that are not entered, when no part is under way any more.

        They are of parts that failed, or of an earlier run that was killed. Readers of Parquet files would take them
        for records.
        """
        for directory in (path for path in self.directory.iterdir() if path.is_dir() and not path.is_symlink()):
            for path in directory.glob(f"*{PARTIAL}"):
                if path.is_file() and _FILE.fullmatch(f"{directory.name}/{path.name}") is not None:
                    path.unlink()

    def new_file(self, name: str) -> BinaryIO:
        """Open the `.partial` file of a name in the target; one that a crash has left is replaced."""
        partial = self._partial(name)
        partial.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.fdopen(os.open(partial, flags, 0o600), "wb")

    def write_file(self, name: str, content: bytes) -> None:
        """Write a small `.partial` file to disk."""
        with self.new_file(name) as file:
            file.write(content)
            sync(file)

    def enter(self, part: RestoredPart) -> None:
        """Enter a part, all of whose files are written as `.partial`, and give them their names.

        Raises:
            SettingError: one of the names is taken.
        """
        self._observe(RestoreStep.WRITTEN)
        with self._lock:
            for name in part.files:
                _require_free(self.directory / name)
            self._append(_line_of(part))
            self.done[part.key] = part
        self._observe(RestoreStep.ENTERED)
        self._publish(part.files)
        self._observe(RestoreStep.PUBLISHED)

    def replace_file(self, name: str, content: bytes) -> None:
        """Write a file that follows from the parts; one with the same name is replaced, as this restore wrote it."""
        self.write_file(name, content)
        self._partial(name).replace(self.directory / name)

    def _publish(self, names: Iterable[str]) -> None:
        """Give the files of entered parts their names. Repeating it is harmless."""
        changed = set()
        for name in names:
            if (partial := self._partial(name)).exists():
                _require_free(self.directory / name)
                partial.rename(self.directory / name)
                changed.add(partial.parent)
        for directory in changed:
            _sync_directory(directory)

    def _partial(self, name: str) -> Path:
        return _partial(self.directory / name)

    def completed(self) -> None:
        _sync_directory(self.directory)
        self._observe(RestoreStep.COMPLETED)

    def _append(self, document: Mapping[str, Any]) -> None:
        self._manifest.write(json.dumps(document, separators=(",", ":")).encode() + b"\n")
        sync(self._manifest)


def identity_of(request: RestoreRequest, cluster_id: str) -> dict[str, Any]:
    """Return what tells one restore from another, for its manifest."""
    return {
        "form": request.form.value,
        "committed": request.committed,
        "place": None if request.place is None else str(request.place),
        "cluster_id": cluster_id,
        "topic": request.partitions[0].topic,
        "topic_id": str(request.partitions[0].topic_id),
        "partitions": None if request.names_none else [each.partition for each in request.partitions],
        "start": _bound(request.start),
        "end": _bound(request.end),
    }


def _bound(bound: Bound) -> list[Any]:
    return [bound.kind.value, bound.value]


@contextmanager
def opened(
    directory: Path, identity: Mapping[str, Any], *, observe: StepObserver = lambda _: None
) -> Iterator[RestoreTarget]:
    """Open a directory for a restore, or make it; it is locked while the context lasts.

    Raises:
        SettingError: the directory holds something else, or another restore; another process restores into it; another
            user owns it; or it cannot be made.
    """
    _require_usable(directory)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = directory / MANIFEST
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "r+b") as manifest:
        try:
            fcntl.flock(manifest, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SettingError(f"{_shown(directory)}: another process restores into it now") from error
        lines = _whole_lines(manifest)
        resolved = _resolved(lines[0], identity, directory) if lines else None
        target = RestoreTarget(directory, manifest, resolved, _present(directory, lines[1:]), observe)
        yield target


def read_done(directory: Path, identity: Mapping[str, Any]) -> tuple[Resolved | None, dict[PartKey, RestoredPart]]:
    """Return what a directory has of a restore, and change nothing. Raises like `opened`."""
    _require_usable(directory)
    path = directory / MANIFEST
    if not path.exists():
        return None, {}
    with path.open("rb") as manifest:
        lines = _whole_lines(manifest, trim=False)
    if not lines:
        return None, {}
    return _resolved(lines[0], identity, directory), _present(directory, lines[1:])


def _require_free(path: Path) -> None:
    if os.path.lexists(path):
        raise SettingError(
            f"{_shown(path)} exists already, and is not of this restore; nothing is overwritten: move it away, or name"
            " another target"
        )


def _present(directory: Path, lines: Iterable[Mapping[str, Any]]) -> dict[PartKey, RestoredPart]:
    """Return the entered parts whose files are all there."""
    entered = {part.key: part for part in map(_part_of, lines)}
    return {key: part for key, part in entered.items() if is_present(directory, part)}


def _require_usable(directory: Path) -> None:
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise SettingError(f"{_shown(directory)} is no directory: name another one")
    if not directory.exists():
        return
    if (directory / META_PROPERTIES).exists():
        raise SettingError(f"{_shown(directory)} is a broker's log directory by now: name another directory")
    if directory.stat().st_uid != os.geteuid():
        raise SettingError(f"{_shown(directory)} belongs to another user: name another directory")
    if not (directory / MANIFEST).exists() and (other := next(directory.iterdir(), None)) is not None:
        raise SettingError(
            f"{_shown(directory)} holds something else, such as {_shown(Path(other.name))}: a restore needs a directory"
            " that is empty or absent"
        )


def _whole_lines(manifest: BinaryIO, *, trim: bool = True) -> list[dict[str, Any]]:
    """Return the lines of the manifest that are whole; a torn one at its end is removed."""
    content = manifest.read(_MOST_MANIFEST_BYTES)
    whole_bytes = content.rfind(b"\n") + 1
    try:
        lines = [json.loads(line) for line in content[:whole_bytes].splitlines()]
    except ValueError as error:
        raise SettingError(f"{MANIFEST} is damaged: {error}; restore into another directory") from error
    if trim:
        manifest.truncate(whole_bytes)
        manifest.seek(whole_bytes)
    return lines


def _resolved(line: Mapping[str, Any], identity: Mapping[str, Any], directory: Path) -> Resolved:
    for name, wanted in {"restore": _FORM, **identity}.items():
        if line.get(name) != wanted:
            raise SettingError(
                f"{_shown(directory)} holds another restore: its {name} is {line.get(name)!r}, not {wanted!r}. Give the"
                " arguments with which it was begun, or name another directory"
            )
    try:
        offsets = {int(partition): each and OffsetRange(*each) for partition, each in line["offsets"].items()}
        return Resolved(offsets, str(line["restore_id"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SettingError(f"{MANIFEST} is damaged: {error!r}; restore into another directory") from error


def _line_of(part: RestoredPart) -> dict[str, Any]:
    return {
        "partition": part.key.partition,
        "base_offset": part.key.base_offset,
        "last_offset": part.last_offset,
        "next_offset": part.next_offset,
        "segment_id": part.key.segment_id,
        "crc32c": f"{part.crc32c:08x}",
        "batches": part.batches,
        "records": part.records,
        "log_bytes": part.log_bytes,
        "leader_epochs": [list(each) for each in part.leader_epochs],
        "files": dict(part.files),
    }


def _part_of(line: Mapping[str, Any]) -> RestoredPart:
    try:
        if not all(_FILE.fullmatch(name) for name in line["files"]):
            raise ValueError("a file is not in a directory of the target")
        return RestoredPart(
            PartKey(line["partition"], line["base_offset"], line["segment_id"]),
            line["last_offset"],
            line["next_offset"],
            line["files"],
            int(line["crc32c"], 16),
            line["batches"],
            line["records"],
            line["log_bytes"],
            LeaderEpochs.of(line["leader_epochs"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SettingError(f"{MANIFEST} is damaged: {error!r}; restore into another directory") from error


def is_present(directory: Path, part: RestoredPart) -> bool:
    """Return whether all files of an entered part are there, under their names or as `.partial`."""
    return all(
        size_bytes in (_size_of(directory / name), _size_of(_partial(directory / name)))
        for name, size_bytes in part.files.items()
    )


def _size_of(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() and not path.is_symlink() else None


def _partial(path: Path) -> Path:
    return path.with_name(path.name + PARTIAL)


def sync(file: BinaryIO) -> None:
    """Write a file to disk."""
    file.flush()
    os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _shown(path: Path) -> str:
    return printable(str(path))
