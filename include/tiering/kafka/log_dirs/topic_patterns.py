"""Which topics are meant: shell style patterns, as in ``orders-*``."""

from collections.abc import Collection
from fnmatch import fnmatchcase


def matches(topic: str, patterns: Collection[str] | None) -> bool:
    """True if one of the patterns matches; None means all topics, an empty collection none."""
    return patterns is None or any(fnmatchcase(topic, pattern) for pattern in patterns)
