"""Migrations of each database, and transactions on it."""

from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

from include.tiering.database import migrations
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import HEAD, current_revision, is_at_head, migration_config, upgrade
from include.tiering.database.store_identity import known_clusters_if_migrated
from include.tiering.database.transactions import writing
from include.tiering.errors import MetadataUnavailableError, RemoteMetadataError, SettingError
from tests.doubles.quick_migrations import quick_migrations

# Migrations: they make the schema that the code declares, on both databases, and nothing is applied twice.


def test_head_is_the_last_script():
    scripts = ScriptDirectory.from_config(migration_config())
    assert scripts.get_heads() == [HEAD]
    newest_first = [script.revision for script in scripts.walk_revisions()]
    assert newest_first == [f"r{number:04}" for number in range(99 + len(newest_first), 99, -1)]


@pytest.mark.parametrize("revision", ["r9999", "r0000", "r0001", "r0024"])
def test_an_unknown_revision_is_refused_and_kept(new_engine: Engine, revision: str):
    upgrade(new_engine)
    with new_engine.begin() as connection:
        connection.execute(text("update alembic_version set version_num = :revision"), {"revision": revision})
    needed = f"the schema is at {revision}, which this version does not know .it needs {HEAD}.: use the version that"
    with pytest.raises(SettingError, match=needed):
        upgrade(new_engine)
    assert current_revision(new_engine) == revision


def test_a_new_database_is_brought_to_head_once(new_engine: Engine):
    assert current_revision(new_engine) is None
    assert known_clusters_if_migrated(new_engine) == []
    assert not is_at_head(new_engine)
    upgrade(new_engine)
    assert is_at_head(new_engine)
    upgrade(new_engine)
    assert current_revision(new_engine) == HEAD


def test_a_database_of_the_first_migration_is_brought_to_head(new_engine: Engine):
    with new_engine.begin() as connection:
        config = migration_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "r0100")
        # Databases are at this revision already: what its scripts create may not change.
        positions = {column["name"] for column in inspect(connection).get_columns("metadata_positions")}
        assert "first_offset" not in positions
        assert "retention_order" not in {column["name"] for column in inspect(connection).get_columns("handovers")}
    upgrade(new_engine)
    assert "retention_order" in {column["name"] for column in inspect(new_engine).get_columns("handovers")}
    assert "first_offset" in {column["name"] for column in inspect(new_engine).get_columns("metadata_positions")}
    assert "ix_batches_updated" in {index["name"] for index in inspect(new_engine).get_indexes("batches")}


def test_a_migration_that_fails_leaves_nothing(new_engine: Engine):
    with new_engine.begin() as connection:
        connection.execute(text("CREATE TABLE runs (a integer)"))
    with pytest.raises(RemoteMetadataError, match="runs"):
        upgrade(new_engine)
    assert current_revision(new_engine) is None
    assert inspect(new_engine).get_table_names() == ["runs"]


def test_an_older_revision_is_not_head(new_engine: Engine):
    upgrade(new_engine)
    with new_engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'r0000'"))
    assert current_revision(new_engine) == "r0000"
    assert not is_at_head(new_engine)


def test_an_unreachable_database_is_told():
    engine = open_engine("postgresql://me@127.0.0.1:1/db")
    with pytest.raises(MetadataUnavailableError):
        migrations.upgrade(engine)
    engine.dispose()


# Tables that are made without Alembic are those that Alembic makes.


def schema_of(engine):
    with engine.connect() as connection:
        return sorted(connection.execute(text("SELECT type, name, tbl_name, sql FROM sqlite_master")).all())


def test_the_schema_is_the_same(tmp_path):
    engines = [open_engine(f"sqlite:///{tmp_path / name}.db") for name in ("real", "first", "second")]
    real, *quick = engines
    upgrade(real)
    with quick_migrations():
        for engine in quick:
            upgrade(engine)
    assert schema_of(quick[0]) == schema_of(quick[1]) == schema_of(real)
    assert [current_revision(engine) for engine in engines] == [HEAD] * 3
    for engine in engines:
        engine.dispose()


# How commits are made, on every database.

FULL, NORMAL, OFF = 2, 1, 0


def waits_for_disk(engine: Engine, *, durable: bool) -> bool:
    with writing(engine, durable=durable) as connection:
        if engine.dialect.name == "sqlite":
            return {FULL: True, NORMAL: False}[connection.exec_driver_sql("PRAGMA synchronous").scalar_one()]
        return {"on": True, "off": False}[connection.exec_driver_sql("SHOW synchronous_commit").scalar_one()]


def test_a_commit_waits_for_the_disk_unless_it_is_told_not_to(engine: Engine):
    assert waits_for_disk(engine, durable=True)
    assert not waits_for_disk(engine, durable=False)
    assert waits_for_disk(engine, durable=True)


def test_a_commit_that_fails_leaves_the_connection_as_it_was(engine: Engine):
    with pytest.raises(ZeroDivisionError), writing(engine, durable=False):
        raise ZeroDivisionError
    assert waits_for_disk(engine, durable=True)


def test_an_engine_that_never_waits_is_left_alone(tmp_path: Path):
    engine = open_engine(f"sqlite:///{tmp_path}/ledger.db", durable=False)
    for durable in (True, False, True):
        with writing(engine, durable=durable) as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == OFF
    engine.dispose()
