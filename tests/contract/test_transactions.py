"""Transactions over each database: what they keep, what they undo, which errors they raise."""

from collections.abc import Callable

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from include.tiering.database.engine import open_engine
from include.tiering.database.schema import pauses
from include.tiering.database.transactions import reading, writing
from include.tiering.errors import MetadataUnavailableError, RemoteMetadataError
from tests.doubles.databases import EVERY

PASSWORD = "s3cr3t-word"


@pytest.fixture(scope="module", params=EVERY)
def database_kind(request: pytest.FixtureRequest) -> str:
    return request.param


def _pause(engine: Engine, *authors: str) -> None:
    with writing(engine) as connection:
        for author in authors:
            values = {"cluster_id": "c", "topic": "a", "author": author, "paused_at_ms": 1}
            connection.execute(pauses.insert().values(**values))


def _authors(engine: Engine) -> list[str]:
    with reading(engine) as connection:
        return list(connection.scalars(pauses.select().with_only_columns(pauses.c.author)))


def test_commits_at_the_end(engine: Engine):
    _pause(engine, "ops")
    assert _authors(engine) == ["ops"]


def test_rolls_back_on_any_error(engine: Engine):
    with pytest.raises(LookupError):
        _pause_and_fail(engine)
    assert _authors(engine) == []


def _pause_and_fail(engine: Engine) -> None:
    with writing(engine) as connection:
        connection.execute(pauses.insert().values(cluster_id="c", topic="a", author="ops", paused_at_ms=1))
        raise LookupError


def test_a_broken_rule_of_the_schema_is_not_retriable_and_shows_no_values(engine: Engine):
    with pytest.raises(RemoteMetadataError) as caught:
        _pause(engine, "first", PASSWORD)
    assert not caught.value.retriable
    assert isinstance(caught.value.__cause__, IntegrityError)
    assert PASSWORD not in f"{caught.value}{caught.value.__cause__}"
    assert _authors(engine) == []


def test_a_missing_table_is_unavailable(engine: Engine):
    with pytest.raises(MetadataUnavailableError), reading(engine) as connection:
        connection.execute(text("SELECT * FROM no_such_table"))


@pytest.mark.integration
def test_statements_of_postgresql_have_limits(create_postgresql_database: Callable[[str], str]):
    engine = open_engine(create_postgresql_database("limits"))
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "application_name")
    with reading(engine) as connection:
        found = [connection.execute(text(f"SHOW {name}")).scalar_one() for name in names]
    assert found == ["1min", "30s", "1min", "tiering"]
    with pytest.raises(MetadataUnavailableError, match="statement timeout"):
        _sleep_longer_than_allowed(engine)
    engine.dispose()


def _sleep_longer_than_allowed(engine: Engine) -> None:
    with reading(engine) as connection:
        connection.execute(text("SET LOCAL statement_timeout = 10"))
        connection.execute(text("SELECT pg_sleep(5)"))
