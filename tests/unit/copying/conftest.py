"""What tests of copying share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.deployment import World, copy_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with copy_world(tmp_path) as world:
        yield world
