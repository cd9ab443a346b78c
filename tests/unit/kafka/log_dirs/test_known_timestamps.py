"""The cache of segments' largest timestamps holds so many, and begins anew when it is full."""

from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.kafka.log_dirs import rolled_segments
from include.tiering.kafka.log_dirs.rolled_segments import KnownTimestamps

LOGS: Any = ("log 1", "log 2", "log 3")


def test_a_full_cache_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []

    def largest(_directory: object, log: object) -> int:
        read.append(log)
        return 7

    monkeypatch.setattr(rolled_segments, "_MAX_KNOWN", 2)
    monkeypatch.setattr(rolled_segments, "_largest_timestamp", largest)
    directory: Any = SimpleNamespace(identity=lambda: (1, 2))
    known = KnownTimestamps()
    first, second, third = LOGS
    for log in (first, second, second, first):
        assert known.largest(directory, log) == 7
    assert read == [first, second]
    for log in (third, first, third):
        assert known.largest(directory, log) == 7
    assert read == [first, second, third, first]
