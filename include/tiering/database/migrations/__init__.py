"""The schema's versions: the one place that creates or changes tables.

Upgrading is safe when several processes begin at once: each takes the same lock (SQLite's write lock, an advisory lock
of PostgreSQL) before it looks at the revision, and all changes are one transaction.

Crash safety: a killed upgrade leaves the revision and the tables it found.
"""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, inspect, select

from include.tiering.database.transactions import reading, serialise_writers, writing
from include.tiering.errors import MetadataUnavailableError, SettingError

HEAD: Final = "r0100"
"""Written out, so that a check works where the library was imported from an archive and no directory can be listed."""

_HERE: Final = Path(__file__).parent
_VERSION: Final = Table("alembic_version", MetaData(), Column("version_num", String))


def upgrade(engine: Engine) -> None:
    """Bring the schema to `HEAD`; harmless if it is there.

    Raises:
        MetadataUnavailableError: the database is locked or away.
        SettingError: it is at a revision that this version does not know.
    """
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
                " use the version that made it, or another database"
            ) from error


def current_revision(engine: Engine) -> str | None:
    """None for a database without our tables."""
    with reading(engine) as connection:
        return _revision(connection)


def is_at_head(engine: Engine) -> bool:
    """Whether this code and the database agree on the schema."""
    return current_revision(engine) == HEAD


def require_head(engine: Engine) -> None:
    """Raises MetadataUnavailableError unless the database is at the revision of this version."""
    revision = current_revision(engine)
    if revision != HEAD:
        found = "there is no schema yet" if revision is None else f"the schema is at {revision}"
        raise MetadataUnavailableError(f"{found}, this version needs {HEAD}: ./tiering migrate")


def _revision(connection: Connection) -> str | None:
    """Without Alembic's own question, which writes two lines to the log each time: a run that waits asks all day."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    return connection.execute(select(_VERSION.c.version_num)).scalar_one_or_none()


def migration_config() -> Config:
    """Alembic's configuration, without a file."""
    config = Config()
    config.set_main_option("script_location", str(_HERE).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
