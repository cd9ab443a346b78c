"""What a test knows to be there, though its type says that it may be missing."""

from typing import TypeVar

_Value = TypeVar("_Value")


def present(value: _Value | None) -> _Value:
    """Return the value; fails if it is missing."""
    assert value is not None
    return value
