"""How commits are made, on every database."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from include.tiering.database.engine import open_engine
from include.tiering.database.transactions import writing

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
