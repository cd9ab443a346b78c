"""What holds for unit tests."""

from collections.abc import Iterator

import pytest

from tests.doubles.quick_migrations import quick_migrations, shared_statements


@pytest.fixture(scope="session", autouse=True)
def _shared_databases() -> Iterator[None]:
    with quick_migrations(), shared_statements():
        yield
