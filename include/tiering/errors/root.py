"""The root of all errors, and how names that others chose are shown."""

from typing import ClassVar


class TieringError(Exception):
    """Root of all errors. The text names the thing and the number, never a secret or a payload."""

    retriable: ClassVar[bool] = False


def printable(name: str) -> str:
    """A name from disk or wire, safe for a terminal and a log line (control characters escaped)."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
