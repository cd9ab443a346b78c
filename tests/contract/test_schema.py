"""The declared schema, which is what migrations make, and rules that hold for every table of it."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect

from include.tiering.database.schema import metadata


# PostgreSQL shows the expression in other words than SQLite; `test_event_log` asserts what both compute.
@pytest.mark.filterwarnings("ignore:Computed default on events.topic")
def test_migrations_make_the_declared_schema(migrated_engine: Engine):
    with migrated_engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, metadata) == []
    inspector = inspect(migrated_engine)
    for table in metadata.sorted_tables:
        foreign_keys = {key["name"] for key in inspector.get_foreign_keys(table.name)}
        assert foreign_keys == {constraint.name for constraint in table.foreign_key_constraints}
        assert set(inspector.get_pk_constraint(table.name)["constrained_columns"]) == set(
            table.primary_key.columns.keys()
        )
        checks = {check["name"] for check in inspector.get_check_constraints(table.name)}
        assert checks == ({"ck_size_counters_not_negative"} if table.name == "size_counters" else set())


def test_every_table_says_whose_it_is():
    for table in metadata.sorted_tables:
        assert "cluster_id" in table.columns
        assert table.columns["cluster_id"].nullable is False
        if "partition" in table.columns and table.name != "batches":
            assert "topic_id" in table.columns


def test_names_fit_postgresql():
    names = [constraint.name for table in metadata.sorted_tables for constraint in table.constraints]
    names += [index.name for table in metadata.sorted_tables for index in table.indexes]
    assert all(name is not None and len(str(name)) <= 63 for name in names)
