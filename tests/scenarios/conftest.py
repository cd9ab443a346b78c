"""Fixtures that the scenarios share; a module whose archive begins otherwise defines its own `archive`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.archive import Archive, Command
from tests.doubles.databases import POSTGRESQL, SHARED, create_postgresql_database, new_name
from tests.doubles.quick_migrations import quick_migrations, shared_statements
from tests.doubles.shared_work import shared_commands, shared_service_models

__all__ = ["create_postgresql_database"]


@pytest.fixture(scope="session", autouse=True)
def _shared_work() -> Iterator[None]:
    with quick_migrations(), shared_statements(), shared_commands(), shared_service_models():
        yield


@pytest.fixture(params=SHARED)
def on_each_database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For stories that an attack on the archive tells: archives of the test have a database of this kind."""
    if request.param == POSTGRESQL:
        create_database = request.getfixturevalue("create_postgresql_database")
        monkeypatch.setattr(Archive, "new_database", staticmethod(lambda directory: create_database(new_name())))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Everything is copied."""
    archive = Archive.of(tmp_path)
    archive.copy()
    return archive


@pytest.fixture
def app(archive: Archive) -> Command:
    """Commands of the archive's deployment."""
    return archive.command


@pytest.fixture
def store(archive: Archive) -> Path:
    return archive.directory / "store"
