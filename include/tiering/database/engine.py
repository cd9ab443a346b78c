"""Open the database: SQLite for one host, PostgreSQL for many.

SQLite uses a write-ahead log. A durable commit is on disk before it returns: if a power failure undid the state
DELETE_SEGMENT_STARTED after the objects were deleted, the metadata would still describe a stored segment. Writers queue
for the single write lock. The SQLite file has to be on a local file system, and only its owner may access it. With
PostgreSQL the engine has a small pool of connections, and limits the duration of statements and of waits for locks.
"""

import errno
import os
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, StaticPool, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, OperationalError

from include.tiering.clock import Clock, SystemClock
from include.tiering.errors import SettingError, printable

WRITES: Final = "tiering_writes"
"""Execution option of a connection whose transactions write: SQLite then takes the write lock at BEGIN."""

LOCK_WAIT_MS: Final = 30_000
_STATEMENT_LIMIT_MS: Final = 60_000
_IDLE_LIMIT_MS: Final = 60_000
_CONNECT_SECONDS: Final = 10
_CONNECTIONS: Final = 8
"""The highest number of connections of a process to PostgreSQL; a connection that was opened stays open.

A copy batch has more threads than this, but each thread spends a few milliseconds in the database for each segment, and
holds one connection at a time. If further connections were allowed and closed after use, a batch would open several a
second."""
_KEEP_ALIVE: Final = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
"""With these options a connection to a server that vanished fails within about 30 seconds, not after two hours."""
_WAL_PAUSE_SECONDS: Final = 0.05
_LOCKED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_PRIMARY_CODE: Final = 0xFF


def open_engine(
    url: str, *, clock: Clock | None = None, patience_ms: int = LOCK_WAIT_MS, durable: bool = True
) -> Engine:
    """Return an engine for `sqlite:///path`, `sqlite://` (in memory, one thread) or `postgresql[+psycopg]://...`.

    The function does not connect, but creates the SQLite file if it is absent. `patience_ms` limits each wait for a
    lock; if it is below the default, PostgreSQL must also complete each statement within that time. Without `durable`,
    a power failure may lose the last commits to SQLite, or damage its file. Errors and logs show no parameters.

    Raises:
        SettingError: the URL is none of these, or the SQLite file cannot be kept private on a local disk.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise SettingError(
            "metadata.url is not a database URL such as sqlite:///path or postgresql+psycopg://..."
        ) from None
    if parsed.get_backend_name() == "sqlite":
        return _open_sqlite(parsed, clock if clock is not None else SystemClock(), patience_ms, durable)
    if parsed.drivername in ("postgresql", "postgresql+psycopg"):
        return _open_postgresql(parsed, patience_ms)
    raise SettingError(f"metadata.url: {parsed.drivername} is not supported: use sqlite or postgresql+psycopg")


def is_created(url: str) -> bool:
    """Return whether the SQLite file of this URL exists. True for other databases and URLs: opening them tells more."""
    with suppress(ArgumentError, ValueError):
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:"):
            return Path(str(parsed.database)).exists()
    return True


def _open_postgresql(url: URL, patience_ms: int) -> Engine:
    impatient = patience_ms < LOCK_WAIT_MS
    limits = {
        "statement_timeout": patience_ms if impatient else _STATEMENT_LIMIT_MS,
        "lock_timeout": patience_ms,
        "idle_in_transaction_session_timeout": _IDLE_LIMIT_MS,
    }
    return create_engine(
        url.set(drivername="postgresql+psycopg"),
        hide_parameters=True,
        pool_size=_CONNECTIONS,
        max_overflow=0,
        pool_timeout=_CONNECT_SECONDS,
        pool_pre_ping=not impatient,
        isolation_level="READ COMMITTED",
        connect_args={
            **_KEEP_ALIVE,
            **({"tcp_user_timeout": 2 * patience_ms} if impatient else {}),
            "connect_timeout": 2 if impatient else _CONNECT_SECONDS,
            "application_name": "tiering",
            "options": " ".join(f"-c {name}={value}" for name, value in limits.items()),
        },
    )


def _open_sqlite(url: URL, clock: Clock, patience_ms: int, durable: bool) -> Engine:
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise SettingError(f"metadata.url: {url.drivername} is not supported: use sqlite")
    in_memory = url.database in (None, "", ":memory:")
    if in_memory:
        engine = create_engine(url, hide_parameters=True, poolclass=StaticPool)
    else:
        if str(url.database).startswith("file:"):
            raise SettingError("metadata.url: give the path of the SQLite file, not a file: URI")
        if url.query or "\0" in str(url.database):
            raise SettingError("metadata.url: a SQLite URL is a path and nothing else: sqlite:///path")
        prepare_database_file(Path(str(url.database)))
        engine = create_engine(url, hide_parameters=True, connect_args={"timeout": patience_ms / 1000})

    def configure(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        if not in_memory:
            _use_write_ahead_log(connection, clock, patience_ms)
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")

    event.listen(engine, "connect", configure)
    event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    """Begin a transaction. A writer takes the write lock now, so that it does not fail half way.

    The statement goes to the driver directly: through SQLAlchemy it would take a quarter of the time of a short
    transaction.
    """
    options: Any = connection.get_execution_options()
    statement = "BEGIN IMMEDIATE" if options.get(WRITES) else "BEGIN"
    driver_connection: Any = connection.connection.driver_connection
    try:
        driver_connection.execute(statement)
    except sqlite3.Error as error:
        raise OperationalError(statement, None, error) from error


def _use_write_ahead_log(connection: sqlite3.Connection, clock: Clock, patience_ms: int) -> None:
    """Switch to the write-ahead log, unless the file already uses it.

    Without exclusive access to a new file the switch fails at once, whatever the driver's own limit is, so it is tried
    again, for at most `patience_ms` altogether. Any other error (a full disk, for example) is raised at once.
    """
    deadline = clock.monotonic() + patience_ms / 1000
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            if mode != "wal":
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            is_locked = error.sqlite_errorcode & _PRIMARY_CODE in _LOCKED
            if not is_locked or clock.monotonic() >= deadline:
                raise
            clock.sleep(_WAL_PAUSE_SECONDS)
            continue
        if mode != "wal":
            raise SettingError(f"metadata.url: this file system keeps SQLite in journal mode {mode}: use another path")
        return


_MOUNTS: Final = Path("/proc/self/mountinfo")
_NETWORK_TYPES: Final = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2"}
    | {"orangefs", "pvfs2", "smb3", "smbfs"}
)
# A FUSE mount does not show where it stores files; these two types are known to use a disk of this host.
_LOCAL_FUSE: Final = frozenset({"fuseblk", "fuse.fuse-overlayfs"})
_PRIVATE_FILE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700


def prepare_database_file(path: Path, mounts: Path = _MOUNTS) -> None:
    """Create the file (empty) and its directory if they are absent, and set the mode of the file to 0600.

    SQLite gives its -wal and -shm files the same mode. The file is never opened here: closing it would release the
    locks that SQLite holds on it elsewhere in this process (POSIX locks belong to the process). Another process that
    ends would then remove the log to which this process still writes.

    Raises:
        SettingError: the file is on a network file system, is no regular file, or cannot be created or made private.
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
    """Return whether this is a type of network file system, or a FUSE type that is not known to use a local disk."""
    return name in _NETWORK_TYPES or (name.startswith("fuse") and name not in _LOCAL_FUSE)


def filesystem_type(path: Path, mountinfo: str) -> str | None:
    """Return the type of the file system that holds `path`, according to the text of /proc/self/mountinfo.

    `path` is absolute and has no symbolic links. If several mounts are on the same directory, the last one counts. The
    result is None if no line matches.
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
            f"metadata.url: {printable(str(path))} lies on a {kind} file system; SQLite is for a single host and its"
            " own disk: use a local path, or PostgreSQL (postgresql+psycopg://...)"
        )


def _unescaped(mount_point: str) -> str:
    """Undo the kernel's escapes: it writes space, tab, newline and backslash as a backslash and three octal digits."""
    for octal in ("\\040", "\\011", "\\012", "\\134"):
        mount_point = mount_point.replace(octal, chr(int(octal[1:], 8)))
    return mount_point
