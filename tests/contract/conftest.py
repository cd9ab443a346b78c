"""Fixtures that the contract suites share."""

import pytest
from sqlalchemy import Engine

from include.tiering.model.ownership import Fence
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.contract import WorkStore
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.sql import SqlRemoteLogMetadata
from tests.doubles.databases import (
    EVERY,
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
