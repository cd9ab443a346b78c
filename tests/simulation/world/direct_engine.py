"""SQLAlchemy's statements on one SQLite connection, without SQLAlchemy's own way of running them.

Running a statement costs SQLAlchemy ten times what it costs SQLite, and in a schedule nothing else runs meanwhile: one
connection, no pool, no thread, no event but the fuse. What is run is what SQLAlchemy compiles, with its types; a test
compares traces of schedules over this engine and over SQLAlchemy's own.

A statement that is run again is found by its identity, any other by SQLAlchemy's key of it.
"""

import re
import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, Final, Protocol

from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, MultipleResultsFound, NoResultFound

from include.tiering.database.engine import WRITES

_SAVEPOINT: Final = "tiering_savepoint"
_MOST_STATEMENTS: Final = 2_000
_WAITS_FOR_THE_DISK: Final = 2


_WRITES: Final = re.compile(r"(?:INSERT (?:OR \w+ )?INTO|UPDATE|DELETE FROM) (\w+)")


def written_table(sql: str) -> str:
    """The one whose rows this statement of SQLAlchemy's changes; empty: none."""
    found = _WRITES.match(sql)
    return found[1] if found else ""


class Observer(Protocol):
    """Told what the engine does. `durable`: the commit waits for the disk."""

    def before_each(self) -> None:
        """A statement comes; may raise."""
        ...

    def wrote(self, table: str) -> None:
        """A statement changed rows of this table."""
        ...

    def begins(self, *, durable: bool) -> None:
        """A transaction that writes."""
        ...

    def ends(self, *, durable: bool, committed: bool) -> None: ...


class DirectEngine:
    """What adapters use of `sqlalchemy.Engine`."""

    def __init__(self, raw: sqlite3.Connection, observer: Observer) -> None:
        self.dialect = sqlite.dialect(paramstyle="qmark")
        self.url = make_url("sqlite://")
        self._connection = DirectConnection(self, raw, observer)

    def connect(self) -> "DirectConnection":
        return self._connection


class DirectConnection:
    """What adapters use of `sqlalchemy.Connection`. Reading needs no transaction: nobody writes meanwhile."""

    def __init__(self, engine: DirectEngine, raw: sqlite3.Connection, observer: Observer) -> None:
        self.dialect = engine.dialect
        self.driver_connection = _Driver()
        self._raw = raw
        self._observer = observer
        self._before_each = observer.before_each
        self._prepared: dict[tuple[object, ...], _Prepared] = {}
        self._compiled: dict[Any, Any] = {}
        self._shared: dict[Any, _Compiled] = {}
        self._writes = False

    @property
    def connection(self) -> "DirectConnection":
        """The driver's one is below it."""
        return self

    def __enter__(self) -> "DirectConnection":
        return self

    def __exit__(self, *_: object) -> None: ...

    def execution_options(self, **options: Any) -> "DirectConnection":
        self._writes = options[WRITES]
        return self

    @contextmanager
    def begin(self) -> Iterator[None]:
        writes, self._writes = self._writes, False
        if not writes:
            yield
            return
        durable = self.driver_connection.synchronous == _WAITS_FOR_THE_DISK
        self._observer.begins(durable=durable)
        try:
            self.exec_driver_sql("BEGIN IMMEDIATE")
        except BaseException:
            self._observer.ends(durable=durable, committed=False)
            raise
        try:
            yield
        except BaseException:
            self._raw.execute("ROLLBACK")
            self._observer.ends(durable=durable, committed=False)
            raise
        self._raw.execute("COMMIT")
        self._observer.ends(durable=durable, committed=True)

    @contextmanager
    def begin_nested(self) -> Iterator["_Savepoint"]:
        savepoint = _Savepoint(self)
        self.exec_driver_sql(f"SAVEPOINT {_SAVEPOINT}")
        try:
            yield savepoint
        except BaseException:
            savepoint.rollback()
            raise
        if savepoint.is_open:
            self.exec_driver_sql(f"RELEASE SAVEPOINT {_SAVEPOINT}")

    def exec_driver_sql(self, text: str) -> sqlite3.Cursor:
        self._before_each()
        return self._typed(self._raw.execute, text, ())

    def execute(self, statement: Any, parameters: Any = None) -> "_Result":
        self._before_each()
        many = parameters if type(parameters) is list and len(parameters) > 1 else None
        one: Mapping[str, Any] = parameters[0] if type(parameters) is list else parameters or {}
        key = (id(statement), *one, many is None)
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepare(statement, sorted(one), many is not None)
            if len(self._prepared) == _MOST_STATEMENTS:
                self._prepared.clear()
            self._prepared[key] = prepared
        shared = prepared.shared
        if many is not None:
            cursor = self._typed(self._raw.executemany, shared.sql, [prepared.values(row) for row in many])
            if shared.writes and cursor.rowcount:
                self._observer.wrote(shared.writes)
            return _Result(cursor.rowcount, [], ())
        sql, values = prepared.expanded(one) if shared.expands else (shared.sql, prepared.values(one))
        cursor = self._typed(self._raw.execute, sql, values)
        rows = shared.rows(cursor.fetchall())
        if shared.writes and (rows if shared.columns else cursor.rowcount):
            self._observer.wrote(shared.writes)
        return _Result(cursor.rowcount, rows, shared.columns)

    def scalars(self, statement: Any) -> "_Result":
        return self.execute(statement).scalars()

    def _prepare(self, statement: Any, names: list[str], many: bool) -> "_Prepared":
        compiled, extracted, _, _ = statement._compile_w_cache(
            dialect=self.dialect, compiled_cache=self._compiled, column_keys=names, for_executemany=many
        )
        shared = self._shared.get(compiled)
        if shared is None:
            shared = self._shared[compiled] = _Compiled(compiled)
        return _Prepared(statement, shared, extracted)

    def _typed(self, run: Callable[..., sqlite3.Cursor], sql: str, values: Any) -> sqlite3.Cursor:
        try:
            return run(sql, values)
        except sqlite3.Error as error:
            raise DBAPIError.instance(sql, None, error, sqlite3.Error, dialect=self.dialect) from error


class _Driver:
    """What is asked of the driver past SQLAlchemy: whether commits wait for the disk. Here it is cached alone."""

    def __init__(self) -> None:
        self.synchronous = _WAITS_FOR_THE_DISK

    def execute(self, pragma: str) -> "_Driver":
        _, _, mode = pragma.partition("=")
        self.synchronous = int(mode or self.synchronous)
        return self

    def fetchone(self) -> tuple[int]:
        return (self.synchronous,)


class _Savepoint:
    def __init__(self, connection: DirectConnection) -> None:
        self._connection = connection
        self.is_open = True

    def rollback(self) -> None:
        self.is_open = False
        self._connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")


class _Compiled:
    """SQL with the order of its values and the shape of its rows."""

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled
        self.sql: str = compiled.string
        self.writes = written_table(self.sql)
        self.expands = bool(compiled.post_compile_params)
        self.key_of = {name: bind.key for bind, name in compiled.bind_names.items()}
        self.converts: Mapping[str, Any] = compiled._bind_processors
        self.order = [(name, self.key_of[name], self.converts.get(name)) for name in compiled.positiontup or ()]
        entries = compiled._result_columns
        self.columns: tuple[str, ...] = tuple(entry.keyname for entry in entries)
        self._row: Any = namedtuple("Row", self.columns, rename=True)  # type: ignore[misc]
        found = [entry.type._cached_result_processor(compiled.dialect, None) for entry in entries]
        self._converted = [(place, convert) for place, convert in enumerate(found) if convert is not None]

    def rows(self, found: list[tuple[Any, ...]]) -> list[Any]:
        if not self.columns:
            return []
        if not self._converted:
            return list(map(self._row._make, found))
        rows = []
        for one in found:
            values = list(one)
            for place, convert in self._converted:
                values[place] = convert(values[place])
            rows.append(self._row._make(values))
        return rows


class _Prepared:
    """A compiled statement with the values that are its own; the caller's come with each run."""

    def __init__(self, statement: Any, shared: _Compiled, extracted: Any) -> None:
        self.statement = statement  # kept: its identity is what it is found by
        self.shared = shared
        self._own: dict[str, Any] = shared.compiled.construct_params(extracted_parameters=extracted, _check=False)
        self._plan = [(key, self._own[name], convert) for name, key, convert in shared.order]

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        """In the order of the statement's question marks."""
        values = []
        for key, own, convert in self._plan:
            value = given.get(key, own)
            values.append(value if convert is None else convert(value))
        return values

    def expanded(self, given: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """The statement and its values, where the statement depends on how long a list is."""
        shared = self.shared
        named = {name: given.get(shared.key_of[name], own) for name, own in self._own.items()}
        state = shared.compiled._process_parameters_for_postcompile(named)
        converts = {**shared.converts, **state.processors}
        values = [state.parameters[name] for name in state.positiontup]
        return state.statement, [
            value if (convert := converts.get(name)) is None else convert(value)
            for name, value in zip(state.positiontup, values, strict=True)
        ]


class _Result:
    """What adapters use of `sqlalchemy.CursorResult`, read whole."""

    __slots__ = ("_columns", "_rows", "rowcount")

    def __init__(self, rowcount: int, rows: list[Any], columns: Sequence[str]) -> None:
        self.rowcount = rowcount
        self._rows = rows
        self._columns = columns

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def all(self) -> list[Any]:
        return self._rows

    @property
    def cursor(self) -> "_Result":
        """The driver's cursor is read already."""
        return self

    def fetchall(self) -> list[Any]:
        return self._rows

    def close(self) -> None: ...

    def scalars(self) -> "_Result":
        return _Result(self.rowcount, list(map(itemgetter(0), self._rows)), ())

    def mappings(self) -> "_Result":
        return _Result(self.rowcount, [dict(zip(self._columns, row, strict=True)) for row in self._rows], ())

    def first(self) -> Any:
        return self._rows[0] if self._rows else None

    def one_or_none(self) -> Any:
        if len(self._rows) > 1:
            raise MultipleResultsFound(f"{len(self._rows)} rows")
        return self._rows[0] if self._rows else None

    def one(self) -> Any:
        if not self._rows:
            raise NoResultFound("no row")
        return self.one_or_none()

    def scalar_one_or_none(self) -> Any:
        row = self.one_or_none()
        return None if row is None else row[0]

    def scalar_one(self) -> Any:
        return self.one()[0]
