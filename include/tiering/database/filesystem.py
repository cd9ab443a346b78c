"""Where a SQLite file may lie: on a file system of this host, readable by its owner alone."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from include.tiering.errors import SettingError, printable

_MOUNTS: Final = Path("/proc/self/mountinfo")
_NETWORK_TYPES: Final = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2"}
    | {"orangefs", "pvfs2", "smb3", "smbfs"}
)
# FUSE hides what is behind it; these two are known to be a disk of this host.
_LOCAL_FUSE: Final = frozenset({"fuseblk", "fuse.fuse-overlayfs"})
_PRIVATE_FILE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700


def prepare_database_file(path: Path, mounts: Path = _MOUNTS) -> None:
    """Create the file (empty) and its directory if absent, and take it away from group and others.

    SQLite gives its -wal and -shm files the same mode. The file is never opened here: closing it would take away the
    locks that SQLite holds on it elsewhere in this process (POSIX locks belong to the process), and another process
    that ends would then remove the log into which this one still writes.

    Raises:
        SettingError: on a network file system, no regular file, or it cannot be made private.
    """
    absolute = path.absolute()
    try:
        absolute.parent.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        _refuse_network(absolute, mounts)
        target = Path(os.path.realpath(absolute))
        with suppress(FileExistsError):
            os.mknod(target, stat.S_IFREG | _PRIVATE_FILE)
        if not target.is_file():
            raise OSError(errno.EINVAL, "not a regular file")
        target.chmod(_PRIVATE_FILE)
    except OSError as error:
        where = printable(str(absolute))
        raise SettingError(f"metadata.url: cannot use {where} as a SQLite file: {error.strerror}") from error


def is_network_type(name: str) -> bool:
    """Whether files of this type may be used by another host at the same time, or nobody can tell."""
    return name in _NETWORK_TYPES or (name.startswith("fuse") and name not in _LOCAL_FUSE)


def filesystem_type(path: Path, mountinfo: str) -> str | None:
    """Type of the file system that holds `path` (absolute, without links), by the text of /proc/self/mountinfo.

    Of several mounts over one another the last counts. None if no line fits.
    """
    longest, found = -1, None
    for line in mountinfo.splitlines():
        fields, separator, rest = line.partition(" - ")
        columns, types = fields.split(" "), rest.split(" ")
        if not separator or len(columns) < 5:
            continue
        mount_point = Path(_unescaped(columns[4]))
        depth = len(mount_point.parts)
        if depth >= longest and path.is_relative_to(mount_point):
            longest, found = depth, types[0]
    return found


def _refuse_network(path: Path, mounts: Path) -> None:
    try:
        mountinfo = mounts.read_text(errors="surrogateescape")
    except OSError:
        return
    kind = filesystem_type(Path(os.path.realpath(path)), mountinfo)
    if kind is not None and is_network_type(kind):
        raise SettingError(
            f"metadata.url: {printable(str(path))} lies on a {kind} file system; SQLite is for one host and its own"
            " disk: use a local path, or PostgreSQL (postgresql+psycopg://...)"
        )


def _unescaped(mount_point: str) -> str:
    """The kernel writes space, tab, newline and backslash as three octal digits behind a backslash."""
    for octal in ("\\040", "\\011", "\\012", "\\134"):
        mount_point = mount_point.replace(octal, chr(int(octal[1:], 8)))
    return mount_point
