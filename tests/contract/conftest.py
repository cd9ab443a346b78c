"""Fixtures that the contract suites share."""

from tests.doubles.databases import (
    create_postgresql_database,
    database_kind,
    database_url,
    engine,
    migrated_engine,
)

__all__ = ["create_postgresql_database", "database_kind", "database_url", "engine", "migrated_engine"]
