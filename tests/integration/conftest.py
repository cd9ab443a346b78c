"""Fixtures of more than one module: a session fixture that two modules import would be two."""

from collections.abc import Iterator

import pytest

from tests.doubles.spark import spark
from tests.doubles.whole_logs import WholeLogs, public_logs, tiered_logs

__all__ = ["public", "spark", "tiered"]


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeLogs]:
    with public_logs(tmp_path_factory.mktemp("public")) as logs:
        yield logs


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeLogs]:
    with tiered_logs(tmp_path_factory.mktemp("tiered")) as logs:
        yield logs
