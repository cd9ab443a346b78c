"""Fixtures that the scenarios share; a module whose archive begins otherwise defines its own `archive`."""

from pathlib import Path

import pytest

from tests.doubles.archive import Archive, Command


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
