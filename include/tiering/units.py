"""Byte and time units, and their formats in text."""

from datetime import UTC, datetime
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

_DAYS_FROM_HOURS: Final = 48
_SCALE: Final = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))


class Quantity(str):
    """A number formatted for people, together with the `number` itself, which a table for programs shows instead."""

    number: float

    def __new__(cls, text: str, number: float) -> "Quantity":
        """Return `text` that remembers `number`."""
        quantity = super().__new__(cls, text)
        quantity.number = number
        return quantity


def format_bytes(size_bytes: int) -> Quantity:
    """``1536`` -> ``"1.5 KiB"``; a size below one KiB is shown exactly, as in ``"900 B"``."""
    for factor, name in _SCALE:
        if abs(size_bytes) >= factor:
            return Quantity(f"{size_bytes / factor:.1f} {name}", size_bytes)
    return Quantity(f"{size_bytes} B", size_bytes)


def format_duration(seconds: float) -> Quantity:
    """``75`` -> ``"1m 15s"``.

    Below a minute: seconds with one decimal. From one hour on: hours and minutes. From 48 hours on: days and hours.
    """
    return Quantity(_duration(seconds), seconds)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= _DAYS_FROM_HOURS:
        return f"{hours // 24}d {hours % 24:02d}h"
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {rest:02d}s"


def format_utc(milliseconds: int) -> str:
    """``1700000000000`` -> ``"2023-11-14 22:13:20 UTC"``."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
