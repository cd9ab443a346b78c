"""Tests that need a broker are skipped, with the reason, where none can be had."""

from functools import cache

import pytest

from include.tiering.errors import KafkaMissingError
from tests.doubles.kafka_lab.artifacts import class_path


def require_kafka(version: str = "4.3.1") -> None:
    """In a fixture or a test: skips it unless a broker of that version can be started. Fetches its jars once."""
    why_not = _why_not(version)
    if why_not:
        pytest.skip(why_not)


@cache
def _why_not(version: str) -> str:
    try:
        class_path(version)
    except KafkaMissingError as error:
        return str(error)
    return ""
