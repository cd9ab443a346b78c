"""Callbacks by which long work tells what it does."""

from collections.abc import Callable
from typing import Any

from include.tiering.model.segments import TopicIdPartition

StepObserver = Callable[[Any, TopicIdPartition, int], None]
"""Is told each step of a protocol (a member of its `StrEnum`), the partition, and an offset."""


def ignore(*_: object) -> None:
    """Do nothing, with whatever a callback is told."""
