"""The platform's own schema on SQLite in memory: fresh for each schedule, read past the product for invariants.

The schema is migrated once per Python process and copied page by page afterwards. A fuse makes any statement of a
transaction fail as a driver would report it, so that the product's own rollback and translation are at work.
"""

import sqlite3
from functools import cache
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from tests.simulation.world.direct_engine import DirectEngine


class Database:
    """One per Python process. `direct`: without SQLAlchemy's own way of running statements, which is slow."""

    def __init__(self, *, direct: bool = True) -> None:
        engine = open_engine("sqlite://")
        upgrade(engine)
        # The pool holds one connection for ever (in memory), so this one is the one that everybody uses.
        self.raw: sqlite3.Connection = engine.raw_connection().driver_connection  # type: ignore[assignment]
        self._template = self.copy()
        self.fuse: int | None = None
        self._owner = engine
        self.engine: Engine = engine
        if direct:
            self.engine = DirectEngine(self.raw, self._burn)  # type: ignore[assignment]
        else:
            event.listen(engine, "before_cursor_execute", self._burn)

    def copy(self) -> sqlite3.Connection:
        """A backup as of now."""
        backup = sqlite3.connect(":memory:", check_same_thread=False)
        self.raw.backup(backup)
        return backup

    def restore(self, backup: sqlite3.Connection) -> None:
        backup.backup(self.raw)

    def reset(self) -> None:
        self.fuse = None
        self.restore(self._template)

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self.raw.execute(query, parameters).fetchall()

    @property
    def changes(self) -> int:
        """Grows with every changed row."""
        return self.raw.total_changes

    def _burn(self, *_: object) -> None:
        if self.fuse is None:
            return
        self.fuse -= 1
        if self.fuse < 0:
            self.fuse = None
            raise OperationalError("a statement", {}, sqlite3.OperationalError("disk I/O error"))


@cache
def database() -> Database:
    return Database()
