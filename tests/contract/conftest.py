"""Fixtures that the contract suites share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from include.tiering.database.engine import open_engine
from include.tiering.model.ownership import Fence
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.contract import WorkStore
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.sql import SqlRemoteLogMetadata
from tests.doubles.databases import (
    EVERY,
    POSTGRESQL,
    SQLITE_FILE,
    AdjustableNow,
    create_postgresql_database,
    database_url,
    each_database,
    engine,
    migrated_engine,
)
from tests.doubles.segments import CLUSTER_ID, fence_of, partition_of

__all__ = ["create_postgresql_database", "database_url", "engine", "migrated_engine"]

database_kind = each_database(EVERY)


@pytest.fixture
def now() -> AdjustableNow:
    return AdjustableNow()


@pytest.fixture
def metadata(engine: Engine, now: AdjustableNow) -> RemoteLogMetadata:
    return SqlRemoteLogMetadata(engine, CLUSTER_ID, now_ms=now)


@pytest.fixture
def work(engine: Engine, now: AdjustableNow) -> WorkStore:
    return SqlWorkStore(engine, CLUSTER_ID, now_ms=now)


@pytest.fixture
def partition() -> TopicIdPartition:
    return partition_of("orders", 3)


@pytest.fixture
def fence(engine: Engine, partition: TopicIdPartition) -> Fence:
    return fence_of(engine, partition)


@pytest.fixture
def new_engine(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A database without tables."""
    url = "sqlite://"
    if database_kind == SQLITE_FILE:
        url = f"sqlite:///{tmp_path / 'new.db'}"
    if database_kind == POSTGRESQL:
        url = request.getfixturevalue("create_postgresql_database")(request.node.name)
    engine = open_engine(url)
    yield engine
    engine.dispose()
