"""The versions of the schema. No other module creates or changes tables.

The exception is the separate SQLite file in which quotas are shared out if the database is SQLite
(`quotas/shared_quotas.py`).

Several processes may upgrade at the same time: each takes the same lock (SQLite's write lock, or an advisory lock in
PostgreSQL) before it reads the revision. All changes of an upgrade are one transaction.

Crash safety: a killed upgrade leaves the revision and the tables as they were.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, inspect, select

from include.tiering.database.transactions import reading, serialise_writers, writing
from include.tiering.errors import MetadataUnavailableError, SettingError

if TYPE_CHECKING:
    from alembic.config import Config

HEAD: Final = "r0110"
"""The newest revision. A constant, because the library may be imported from an archive, which cannot be listed."""

_HERE: Final = Path(__file__).parent
_VERSION: Final = Table("alembic_version", MetaData(), Column("version_num", String))


def upgrade(engine: Engine) -> None:
    """Upgrade the schema to `HEAD`. Idempotent.

    Raises:
        MetadataUnavailableError: the database is locked or unreachable.
        SettingError: the schema is at a revision that this version does not know.
    """
    # Alembic takes 0.1 s to import, and most processes only read the revision.
    from alembic import command
    from alembic.util import CommandError

    with writing(engine) as connection:
        serialise_writers(connection, "schema of the tiering database")
        revision = _revision(connection)
        if revision == HEAD:
            return
        config = migration_config()
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, HEAD)
        except CommandError as error:
            raise SettingError(
                f"metadata.url: the schema is at {revision}, which this version does not know (it needs {HEAD}):"
                " use the version that created it, or another database"
            ) from error


def current_revision(engine: Engine) -> str | None:
    """Return the revision of the schema; None if the database is empty or has no record of one."""
    with reading(engine) as connection:
        return _revision(connection)


def is_at_head(engine: Engine) -> bool:
    """Return whether the database is at the revision of this version."""
    return current_revision(engine) == HEAD


def require_head(engine: Engine) -> None:
    """Raise MetadataUnavailableError unless the database is at the revision of this version."""
    revision = current_revision(engine)
    if revision != HEAD:
        found = "there is no schema yet" if revision is None else f"the schema is at {revision}"
        raise MetadataUnavailableError(f"{found}, this version needs {HEAD}: ./tiering migrate")


def _revision(connection: Connection) -> str | None:
    """Read the revision without Alembic, which writes two log lines at each call: runs wait here for a migration."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    return connection.execute(select(_VERSION.c.version_num)).scalar_one_or_none()


def migration_config() -> "Config":
    """Return Alembic's configuration; it is not read from a file."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_HERE).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
