"""The platform's own schema on SQLite in memory: fresh for each schedule, read past the product for invariants.

The schema is migrated once per Python process; a new schedule finds its tables empty, and statements that SQLite has
prepared already. A fuse makes any statement of a transaction fail as a driver would report it, so that the product's
own rollback and translation are at work.
"""

import sqlite3
from collections import Counter
from functools import cache
from typing import Any, Final

from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from tests.simulation.world.direct_engine import DirectEngine, written_table

_STATEMENTS: Final = 1_000
_TABLES: Final = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('alembic_version', 'sqlite_sequence')"
)
_REFERRED: Final = 2
"""Of what SQLite says of a foreign key: the table that it refers to."""


class Database:
    """One per Python process. `direct`: without SQLAlchemy's own way of running statements, which is slow; only then a
    power failure takes what did not wait for the disk."""

    def __init__(self, *, direct: bool = True) -> None:
        engine = open_engine("sqlite://")
        upgrade(engine)
        self.fuse: int | None = None
        self._owner = engine
        # The pool holds one connection for ever (in memory), so this one is the one that everybody uses.
        self.raw: sqlite3.Connection = engine.raw_connection().driver_connection  # type: ignore[assignment]
        self.engine: Engine = engine
        if direct:
            migrated = self.raw
            self.raw = sqlite3.connect(":memory:", isolation_level=None, cached_statements=_STATEMENTS)
            migrated.backup(self.raw)
            self.raw.execute("PRAGMA foreign_keys = ON")
            self.engine = DirectEngine(self.raw, self)  # type: ignore[assignment]
        else:
            event.listen(engine, "before_cursor_execute", lambda *_: self.before_each())
            event.listen(engine, "after_cursor_execute", self._after_usual)
        self._tables = [name for (name,) in self.raw.execute(_TABLES)]
        self._clearing = [f"DELETE FROM {table}" for table in (*self._tables, "sqlite_sequence")]  # noqa: S608
        self._going_with = {table: [table] for table in self._tables}
        for table in self._tables:
            for key in self.raw.execute(f"PRAGMA foreign_key_list({table})"):
                self._going_with[key[_REFERRED]].append(table)
        self.power_fails = False
        self._not_on_disk: list[sqlite3.Connection] = []
        self.versions: Counter[str] = Counter()
        """By table: grows with every statement that changes rows there."""

    def copy(self) -> sqlite3.Connection:
        """A backup as of now."""
        backup = sqlite3.connect(":memory:", check_same_thread=False)
        self.raw.backup(backup)
        return backup

    def restore(self, backup: sqlite3.Connection) -> None:
        """What is there then is on disk."""
        backup.backup(self.raw)
        self._not_on_disk.clear()
        self.versions.update(self._tables)

    def reset(self) -> None:
        """No row is left, and numbers that SQLite gives begin anew."""
        self.fuse = None
        self.power_fails = False
        self._not_on_disk.clear()
        self.raw.execute("PRAGMA foreign_keys = OFF")
        self.raw.execute("BEGIN")
        for clear in self._clearing:
            self.raw.execute(clear)
        self.raw.execute("COMMIT")
        self.raw.execute("PRAGMA foreign_keys = ON")
        self.versions.update(self._tables)

    def version(self, *tables: str) -> int:
        """Another one as soon as one of these tables is another."""
        return sum([self.versions[table] for table in tables])

    def wrote(self, table: str) -> None:
        """A statement changed rows there, or may have; rows that refer to them may have gone with them."""
        for one in self._going_with[table]:
            self.versions[one] += 1

    def _after_usual(self, _connection: Any, _cursor: Any, sql: str, *_: Any) -> None:
        """Of a statement that returns rows, SQLite does not know yet how many it changed."""
        if table := written_table(sql):
            self.wrote(table)

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self.raw.execute(query, parameters).fetchall()

    @property
    def changes(self) -> int:
        """Grows with every changed row."""
        return self.raw.total_changes

    # Commits that do not wait for the disk.

    def begins(self, *, durable: bool) -> None:
        if self.power_fails and not durable:
            self._not_on_disk.append(self.copy())

    def ends(self, *, durable: bool, committed: bool) -> None:
        """The next commit that waits takes along what did not."""
        if durable and committed:
            self._not_on_disk.clear()
        elif not (durable or committed) and self._not_on_disk:
            self._not_on_disk.pop()

    @property
    def not_on_disk(self) -> int:
        """How many commits a power failure may take, the last ones first."""
        return len(self._not_on_disk)

    def lose_power(self, kept: int) -> None:
        """All of them but the first `kept` are gone."""
        self.restore(self._not_on_disk[kept])

    def before_each(self) -> None:
        if self.fuse is None:
            return
        self.fuse -= 1
        if self.fuse < 0:
            self.fuse = None
            raise OperationalError("a statement", {}, sqlite3.OperationalError("disk I/O error"))


@cache
def database() -> Database:
    return Database()


@cache
def another_database() -> Database:
    """For a copy of it."""
    return Database()
