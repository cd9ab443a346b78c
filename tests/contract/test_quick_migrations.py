"""Tables that are made without Alembic are those that Alembic makes."""

from sqlalchemy import text

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import HEAD, current_revision, upgrade
from tests.doubles.quick_migrations import quick_migrations


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
