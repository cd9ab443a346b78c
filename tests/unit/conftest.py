"""What holds for unit tests."""

from collections.abc import Iterator

import pytest

from tests.doubles.quick_migrations import quick_migrations, shared_statements
from tests.doubles.shared_work import shared_commands, shared_service_models


@pytest.fixture(scope="session", autouse=True)
def _shared_work() -> Iterator[None]:
    with quick_migrations(), shared_statements(), shared_commands(), shared_service_models():
        yield
