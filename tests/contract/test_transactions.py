"""How commits are made, on every database."""

import pytest
from sqlalchemy import Engine

from include.tiering.database.transactions import writing
from tests.doubles.databases import EVERY

FULL, NORMAL = 2, 1


@pytest.fixture(scope="module", params=EVERY)
def database_kind(request: pytest.FixtureRequest) -> str:
    return request.param


def waits_for_disk(engine: Engine, *, durable: bool) -> bool:
    with writing(engine, durable=durable) as connection:
        if engine.dialect.name == "sqlite":
            return {FULL: True, NORMAL: False}[connection.exec_driver_sql("PRAGMA synchronous").scalar_one()]
        return {"on": True, "off": False}[connection.exec_driver_sql("SHOW synchronous_commit").scalar_one()]


def test_a_commit_waits_for_the_disk_unless_it_is_told_not_to(engine: Engine):
    assert waits_for_disk(engine, durable=True)
    assert not waits_for_disk(engine, durable=False)
    assert waits_for_disk(engine, durable=True)
