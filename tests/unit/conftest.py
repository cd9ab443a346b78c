"""What holds for unit tests."""

from collections.abc import Iterator

import pytest

from tests.doubles.quick_migrations import quick_migrations


@pytest.fixture(scope="session", autouse=True)
def _quick_migrations() -> Iterator[None]:
    with quick_migrations():
        yield
