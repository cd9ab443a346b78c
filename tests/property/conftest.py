"""A database that all examples of a module share."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from tests.doubles.databases import migrated_database


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with migrated_database() as engine:
        yield engine
