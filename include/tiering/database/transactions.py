"""What all stores share: transactions, the time, statements, and locks of partitions.

**Transactions** turn the driver's errors into those of `include.tiering.errors`. Keep write transactions short: SQLite
has one writer at a time.

**Time**: the database's clock dates leases, verdicts (results of verifications) and tombstones (rows of deleted
segments), so that no worker's clock matters. With PostgreSQL this is the server's clock, with SQLite the clock of the
host on which all processes that use the file run.

**Statements**: most are built once and executed with parameters, because building a statement takes several times as
long as executing it.

**Locks** are taken in this order: leases, partitions, segments, size_counters. A partition's row is locked before a
segment of the partition changes its state, because triggers on `segments` then change the partition's row. Rows of
topics and partitions are created when first needed.

**Ids that are marked for deletion**: no segment may begin under an id whose objects are removed as orphans. The removal
that marks an id and the copy that begins a segment under that id both lock the partition's row first, so the second of
them sees the change of the first.

**Fencing tokens** of a partition and role ascend. A token is a time in milliseconds and, in its lowest bits, a random
number. The time is the database's time. If the token would then not be higher than the previous token, the time is that
of the previous token plus 1 ms. A restore from a backup brings back earlier rows; if the clock goes forward, tokens
ascend across the restore as well. If the clock was set back, the same time may be used before and after the restore.
Then the random bits distinguish the two holders, except in one of 65,536 cases. This suffices, because a change needs
the newest token itself: a higher token is refused as a lower one is.

**Live leases**: a lease that ends more than its length and `LEASE_MARGIN_MS` in the future was taken, or renewed, while
the clock was ahead. It counts as no lease: otherwise its partition would be blocked until that time. Once the partition
has been claimed again in the same role, the fencing token of the earlier holder is refused.

**Fences**: the right to change a partition in a role is checked inside the transaction of the change. A token is valid
until a later claim of the partition in the same role is made, its lease is given back, or the run that holds the lease
is withdrawn (`DeletionRuns.withdraw`). The token stays valid after the lease has expired: until the next claim in this
role, no other batch works on the partition in this role, so the late change does no harm. From the next claim on, the
token is refused. The lease's row stays locked until the transaction ends, so a claim waits for a running change, and no
change overlaps a claim. Leases in other roles do not count: if holders of two roles want to change the same segment,
the segment's state decides.
"""

import os
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Table,
    and_,
    bindparam,
    case,
    cast,
    extract,
    func,
    select,
    update,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.sql.dml import ReturningInsert

from include.tiering.database.engine import WRITES
from include.tiering.database.schema import leases, partitions, planned_removals, topics
from include.tiering.errors import LeaseLostError, MetadataUnavailableError, RemoteMetadataError, printable
from include.tiering.model.ownership import Fence, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.settings.fields import is_secret_parameter, mask_url
from include.tiering.units import format_bytes

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

_UNDEFINED_TABLE_OR_COLUMN: Final = ("42P01", "42703")
_PRIMARY_CODE: Final = 0xFF
"""The bits of SQLite's result codes that say which kind of error it is."""
_SHORT_PASSWORD: Final = 8
_NORMAL: Final = 1
"""The highest `synchronous` of SQLite at which a commit to the write-ahead log does not wait for the disk."""


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Begin a read transaction: a single snapshot on SQLite; on PostgreSQL each statement sees all earlier commits.

    Within `reading_together` it is the one that has begun there. Raises as `writing`.
    """
    with _typed_errors(engine), ExitStack() as own:
        stack, begun = _TOGETHER.get() or (own, {})
        if engine not in begun:
            stack.enter_context(_typed_errors(engine))
            begun[engine] = stack.enter_context(engine.connect())
            stack.enter_context(begun[engine].begin())
        yield begun[engine]


_TOGETHER: Final[ContextVar[tuple[ExitStack, dict[Engine, Connection]] | None]] = ContextVar("together", default=None)


@contextmanager
def reading_together() -> Iterator[None]:
    """Let all `reading` in this context be one transaction of each engine, with fewer messages; an error ends it."""
    with ExitStack() as stack:
        stack.callback(_TOGETHER.reset, _TOGETHER.set((stack, {})))
        yield


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """Begin a read transaction that is a single snapshot on both databases. Raises as `writing`."""
    with _typed_errors(engine), engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


@contextmanager
def writing(engine: Engine, *, durable: bool = True) -> Iterator[Connection]:
    """Begin a write transaction; commit at the end, roll back on any error.

    Without `durable` the commit does not wait for the disk, and a power failure before the next durable commit can undo
    it. Use this only for data that can be determined again.

    Raises:
        MetadataUnavailableError: the database is locked, unreachable or without the tables, or its driver reports
            another operational error, such as a full disk.
        RemoteMetadataError: any other error of the driver.
    """
    with _typed_errors(engine), engine.connect() as connection:
        marked = connection.execution_options(**{WRITES: True})
        with nullcontext() if durable else _without_sync(marked), marked.begin():
            if not durable and engine.dialect.name == "postgresql":
                marked.exec_driver_sql("SET LOCAL synchronous_commit = off")
            yield marked


@contextmanager
def _without_sync(connection: Connection) -> Iterator[None]:
    """Lower SQLite's `synchronous` for one transaction: set it before the transaction, and back after its end."""
    if connection.dialect.name != "sqlite":
        yield
        return
    driver_connection: Any = connection.connection.driver_connection
    (mode,) = driver_connection.execute("PRAGMA synchronous").fetchone()
    driver_connection.execute(f"PRAGMA synchronous = {min(mode, _NORMAL)}")
    try:
        yield
    finally:
        driver_connection.execute(f"PRAGMA synchronous = {mode}")


@contextmanager
def _typed_errors(engine: Engine) -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeoutError) as error:
        raise MetadataUnavailableError(_describe(engine, error)) from error
    except DBAPIError as error:
        unmigrated = getattr(error.orig, "sqlstate", None) in _UNDEFINED_TABLE_OR_COLUMN
        kind = MetadataUnavailableError if unmigrated or error.connection_invalidated else RemoteMetadataError
        raise kind(_describe(engine, error)) from error


def _describe(engine: Engine, error: SQLAlchemyError) -> str:
    """Return the database's URL and the first line of the driver's message, both without the URL's password."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    first_line = next(iter(str(cause).strip().splitlines()), type(cause).__name__)
    for secret in secrets_of(engine.url):
        first_line = _without(secret, first_line)
    place = mask_url(engine.url.render_as_string(hide_password=True))
    return f"database {place}: {printable(first_line)}{_free_space(engine, cause)}"


def _free_space(engine: Engine, cause: BaseException) -> str:
    """Return how much space a SQLite file's disk has left, as the end of an error; "" for an error not of the disk."""
    code = getattr(cause, "sqlite_errorcode", 0) & _PRIMARY_CODE
    if code not in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL) or not engine.url.database:
        return ""
    try:
        space = os.statvfs(Path(engine.url.database).parent)
    except OSError:
        return ""
    return f"; its disk has {format_bytes(space.f_bavail * space.f_frsize)} left"


def secrets_of(url: URL) -> list[str]:
    """Return the passwords in a database URL: the user's, and values of parameters whose name looks like a secret."""
    named = [value for name, value in url.normalized_query.items() if is_secret_parameter(name)]
    found = [str(url.password or ""), *(text for values in named for text in values)]
    return sorted(filter(None, found), key=len, reverse=True)


def _without(password: str, message: str) -> str:
    """Mask a password in a driver's message.

    One of less than `_SHORT_PASSWORD` characters is masked only as a whole word, because other words may contain it.
    """
    pattern = re.escape(password)
    if len(password) < _SHORT_PASSWORD:
        pattern = rf"(?<![^\W_]){pattern}(?![^\W_])"
    return re.sub(pattern, "***", message)


NowMs = Callable[[Connection], int]


def database_now_ms(connection: Connection) -> int:
    """Return the database's time in UTC milliseconds: that of the call, not of the start of the transaction."""
    if connection.dialect.name == "sqlite":
        return time.time_ns() // 1_000_000
    milliseconds = func.floor(extract("epoch", func.clock_timestamp()) * 1000)
    return connection.execute(select(cast(milliseconds, BigInteger))).scalar_one()


class ClusterStore:
    """A store of one cluster in one database."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    @contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[tuple[Connection, int]]:
        """Begin a write transaction; yield its connection and the database's time in UTC milliseconds."""
        with writing(self._engine, durable=durable) as connection:
            yield connection, self._now_ms(connection)


class DatedStore(ClusterStore):
    """A store that also returns the time by which it dates its rows."""

    def now_ms(self) -> int:
        """Return the database's time in UTC milliseconds.

        Raises:
            MetadataUnavailableError: the database is locked, unreachable, or without the tables.
        """
        with reading(self._engine) as connection:
            return self._now_ms(connection)


_MOST_CHARACTERS: Final = 2_000


def insert_for(dialect_name: str, table: Table) -> "sqlite.Insert | postgresql.Insert":
    """Return an INSERT of this dialect, to which the caller can add ON CONFLICT."""
    if dialect_name == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


def insert_if_absent(connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert the row unless its primary key, or another unique key of it, exists; return whether it was inserted."""
    return connection.execute(_insert_if_absent(connection.dialect.name, table), values).one_or_none() is not None


@cache
def _insert_if_absent(dialect_name: str, table: Table) -> ReturningInsert[Any]:
    return insert_for(dialect_name, table).on_conflict_do_nothing().returning(next(iter(table.primary_key)))


def upsert(connection: Connection, table: Table, values: Mapping[str, Any], *, keep: Sequence[str] = ()) -> None:
    """Insert the row. If its primary key exists, set the columns of `values` other than the key and those in `keep`."""
    key = [column.name for column in table.primary_key]
    changed = tuple(name for name in values if name not in key and name not in keep)
    connection.execute(_upsert(connection.dialect.name, table, changed), values)


@cache
def _upsert(dialect_name: str, table: Table, changed: Sequence[str]) -> "sqlite.Insert | postgresql.Insert":
    statement = insert_for(dialect_name, table)
    new = {name: statement.excluded[name] for name in changed}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=new)


def serialise_writers(connection: Connection, what: str) -> None:
    """Block other calls with the same `what` until this transaction ends; SQLite has one writer in any case."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(what, 0))))


def stored_text(text: str) -> str:
    """Return text from outside as it may be stored: cut after 2000 characters, then unprintable characters escaped."""
    return printable(text[:_MOST_CHARACTERS])


def of_partition(table: Table, cluster_id: str, partition: TopicIdPartition) -> ColumnElement[bool]:
    """Return the condition that a row belongs to the partition, by cluster id, topic id and partition number."""
    return and_(
        table.c.cluster_id == cluster_id,
        table.c.topic_id == str(partition.topic_id),
        table.c.partition == partition.partition,
    )


def in_partition(table: Table) -> ColumnElement[bool]:
    """Return the condition of `of_partition` for a statement that is built once; `key_of` returns its parameters."""
    return and_(
        table.c.cluster_id == bindparam("of_cluster"),
        table.c.topic_id == bindparam("of_topic"),
        table.c.partition == bindparam("of_partition"),
    )


def key_of(cluster_id: str, partition: TopicIdPartition) -> dict[str, Any]:
    """Return the parameters of `in_partition`."""
    return {"of_cluster": cluster_id, "of_topic": str(partition.topic_id), "of_partition": partition.partition}


_STOPPED_REASON: Final = select(partitions.c.stopped_reason).where(in_partition(partitions))
_LOCK: Final = _STOPPED_REASON.with_for_update()


@lru_cache(maxsize=10_000)
def partition_from(topic_id: str, partition: int, name: str) -> TopicIdPartition:
    """Return the partition with these values. Cached, because most rows are of the same partition as the row before."""
    return TopicIdPartition(Uuid.parse(topic_id), partition, name)


def ensure_topic(connection: Connection, cluster_id: str, topic_id: Uuid, name: str) -> None:
    """Register the topic, unless it is registered, with the owner NONE: see `TopicOwner`."""
    values = {"cluster_id": cluster_id, "topic_id": str(topic_id), "name": name, "owner": TopicOwner.NONE}
    insert_if_absent(connection, topics, values)


def ensure_partition(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> None:
    """Register the partition and its topic, unless they are registered."""
    ensure_topic(connection, cluster_id, partition.topic_id, partition.topic)
    values = {
        "cluster_id": cluster_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "log_start_offset": 0,
        "leader_epochs": "",
    }
    insert_if_absent(connection, partitions, values)


def lock_partition(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> str | None:
    """Lock the partition's row until the transaction ends, and return what `stopped_reason_of` returns."""
    return connection.execute(_LOCK, key_of(cluster_id, partition)).scalar_one_or_none()


def lock_or_create_partition(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> None:
    """Lock the partition's row until the transaction ends; first register it, and its topic, if they are absent."""
    key = key_of(cluster_id, partition)
    if connection.execute(_LOCK, key).one_or_none() is None:
        ensure_partition(connection, cluster_id, partition)
        connection.execute(_LOCK, key)


def set_stopped_reason(
    connection: Connection, cluster_id: str, partition: TopicIdPartition, reason: str | None
) -> None:
    condition = of_partition(partitions, cluster_id, partition)
    connection.execute(update(partitions).where(condition).values(stopped_reason=reason))


def stopped_reason_of(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> str | None:
    """Return why the partition is stopped; None if it is not stopped, or not registered.

    A segment that failed verification stops its partition. Until that is mended, a segment of the platform becomes
    FINISHED only if it is a new copy that replaces a failed one.
    """
    return connection.execute(_STOPPED_REASON, key_of(cluster_id, partition)).scalar_one_or_none()


_MARKED_FOR_DELETION: Final = (
    select(planned_removals.c.run_id)
    .where(in_partition(planned_removals), planned_removals.c.segment_id == bindparam("of_segment"))
    .where(planned_removals.c.marked_for_deletion_at_ms.is_not(None))
    .limit(1)
)


def marked_for_deletion_by(connection: Connection, cluster_id: str, segment_id: RemoteLogSegmentId) -> str | None:
    """Return the id of a run (any, if there are several) that marked this segment id for deletion; None without one.

    The caller has locked the partition's row.
    """
    key = key_of(cluster_id, segment_id.topic_id_partition) | {"of_segment": str(segment_id.id)}
    return connection.execute(_MARKED_FOR_DELETION, key).scalar_one_or_none()


TOKEN_RANDOM_BITS: Final = 16
"""How many bits of a token, a signed 64 bit integer, are random; the 47 above them hold ms until the year 6429."""
_STEP: Final = 1 << TOKEN_RANDOM_BITS


def draw_token(now_ms: int) -> int:
    """Return a token with this time and random bits. The first claim of a partition in a role gets it unchanged."""
    return now_ms * _STEP + secrets.randbits(TOKEN_RANDOM_BITS)


def token_after(held: int, drawn: int) -> int:
    """Return the token after `held`: `drawn` if it is higher, else `held` plus 1 ms with the random bits of `drawn`."""
    return drawn if drawn > held else (held // _STEP + 1) * _STEP + drawn % _STEP


def sql_token_after(held: ColumnElement[int], drawn: ColumnElement[int]) -> ColumnElement[int]:
    """Return the SQL expression that computes `token_after`."""
    return case((drawn > held, drawn), else_=(held // _STEP + 1) * _STEP + drawn % _STEP)


LEASE_MARGIN_MS: Final = 60_000
"""A live lease ends at most this time plus its length after now: the clock may have been set back since its renewal."""
_LENGTH_UNKNOWN_MS: Final = 60 * 60 * 1000
_RENEWED_AT_MS: Final = leases.c.expires_at_ms - func.coalesce(leases.c.lease_ms, _LENGTH_UNKNOWN_MS)


def is_live_lease(now_ms: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition that a lease is live: not expired, and not dated too far in the future.

    Its end minus its length, which is the time of its renewal, may be after now by `LEASE_MARGIN_MS`, because the clock
    may have been set back since. A lease that was given back has expired.
    """
    return and_(leases.c.expires_at_ms > now_ms, now_ms >= _RENEWED_AT_MS - LEASE_MARGIN_MS)


def is_lease_ahead(now_ms: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition that a lease does not count: it ends later than its length plus the margin after now."""
    return and_(leases.c.expires_at_ms > now_ms, now_ms < _RENEWED_AT_MS - LEASE_MARGIN_MS)


def is_within_lease(until_ms: int, *, now_ms: int, lease_ms: int) -> bool:
    """Return whether a lease of another table, of length `lease_ms` and ending at `until_ms` (exclusive), is live."""
    return now_ms < until_ms <= now_ms + lease_ms + LEASE_MARGIN_MS


_NEWEST: Final = (
    select(leases.c.token, leases.c.expires_at_ms, leases.c.run_id, leases.c.batch_id)
    .where(in_partition(leases), leases.c.role == bindparam("of_role"))
    .with_for_update()
)


@dataclass(frozen=True, slots=True)
class FenceHolder:
    """The batch that got the newest token."""

    run_id: str
    batch_id: str


def hold_fence(connection: Connection, cluster_id: str, fence: Fence) -> FenceHolder:
    """Lock the partition's lease in the role of `fence`, and check that the fence has the newest token.

    Raises:
        LeaseLostError: a later claim was made, the lease was given back, its run was withdrawn, or there was never a
            lease in this role.
    """
    where = fence.topic_id_partition
    row = connection.execute(_NEWEST, key_of(cluster_id, where) | {"of_role": fence.role}).one_or_none()
    if row is None:
        raise LeaseLostError(
            f"{where}: there was never a lease to {fence.role}, but the change has token {fence.token}"
        )
    if row.token != fence.token:
        raise LeaseLostError(f"{where}: fencing token {fence.token} was superseded by {row.token} ({fence.role})")
    if row.expires_at_ms == 0:
        raise LeaseLostError(f"{where}: the lease to {fence.role} with token {fence.token} was given back or withdrawn")
    return FenceHolder(row.run_id, row.batch_id)
