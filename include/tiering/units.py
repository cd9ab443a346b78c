"""Byte and time units, and their formats in text."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
TIB: Final = 1024 * GIB

_DAYS_FROM_HOURS: Final = 48
_SCALE: Final = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))


class Quantity(str):
    """A number formatted for people, together with the `number` itself, which a table for programs shows instead.

    Where a cell has several numbers, `number` is the text that has them exactly.
    """

    number: float | str

    def __new__(cls, text: str, number: float | str) -> "Quantity":
        """Return `text` that remembers `number`."""
        quantity = super().__new__(cls, text)
        quantity.number = number
        return quantity

    def __reduce__(self) -> tuple[type["Quantity"], tuple[str, float | str]]:
        """Return what makes a copy, also in another process."""
        return Quantity, (str(self), self.number)


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
    """``1700000000000`` -> ``"2023-11-14 22:13:20 UTC"``.

    A time in no year from 1 to 9999 is shown as its number: timestamps of records are what producers wrote, such as
    microseconds instead of milliseconds.
    """
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError):
        return f"{milliseconds} ms after 1970"


_BYTES: Final = {"KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB}
_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES_EXAMPLE: Final = "also with KiB, MiB, GiB or TiB, such as 50MiB"
_DURATION_EXAMPLE: Final = "also with ms, s, m, h or d, such as 7d"
_SUFFIXES: Final[Mapping[str, tuple[Mapping[str, int], int, str]]] = {
    "bytes": (_BYTES, 1, _BYTES_EXAMPLE),
    "bytes a second": (_BYTES, 1, _BYTES_EXAMPLE),
    "milliseconds": (_MS, 1, _DURATION_EXAMPLE),
    "seconds": (_MS, 1_000, _DURATION_EXAMPLE),
    "hours": (_MS, 3_600_000, _DURATION_EXAMPLE),
    "days": (_MS, 86_400_000, _DURATION_EXAMPLE),
}
_AMOUNT: Final = re.compile(r"\s*([0-9]{1,19}(?:\.[0-9]{1,9})?) ?([a-zA-Z]{1,3})\s*\Z")


def without_suffix(text: str, unit: str | None) -> str:
    """Return an amount as a whole number of `unit`: ``"50MiB"`` in bytes -> ``"52428800"``, ``"7d"`` in seconds.

    A text without a suffix, with one that does not belong to the unit, or that is no whole number of units is returned
    unchanged: the caller checks the number and says what is accepted.
    """
    found = _AMOUNT.match(text)
    if found is None or unit is None or unit not in _SUFFIXES:
        return text
    factors, one_unit, _ = _SUFFIXES[unit]
    if found[2] not in factors:
        return text
    amount = Decimal(found[1]) * factors[found[2]] / one_unit
    return str(int(amount)) if amount == int(amount) else text


def accepted_suffixes(unit: str | None) -> str:
    """Return, for the end of a message, which suffixes an amount in this unit may have; empty if none."""
    return f"; {_SUFFIXES[unit][2]}" if unit is not None and unit in _SUFFIXES else ""


def parse_time_ms(text: str) -> int:
    """Parse a time into UTC milliseconds: milliseconds since 1970, or ISO 8601; without an offset from UTC it is UTC.

    Raises:
        ValueError: it is neither; the message says what is accepted.
    """
    try:
        if text.isdecimal():
            return int(text)
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return int(aware.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise ValueError("accepted: milliseconds since 1970, or a time such as 2026-11-27T03:12:05Z") from error
