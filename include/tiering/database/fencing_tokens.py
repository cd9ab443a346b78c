"""Fencing tokens: none is given twice, not even in two lives of one database.

A token is a time in milliseconds and, in its lowest bits, a random number. The time is the database's, or one more than
that of the token before it, whichever is later. So tokens of one database ascend; as long as its clock goes forward
they do across a restore from a backup, too, which takes rows back.

Where the clock was set back as well, the same time may be counted out before the restore and after it. Then the random
bits tell the two holders apart: a fence asks whether a token is the newest one, not whether it is lower.
"""

import secrets
from typing import Final

from sqlalchemy import ColumnElement, case

RANDOM_BITS: Final = 16
"""The others of a 64 bit integer hold milliseconds until the year 6429."""
_STEP: Final = 1 << RANDOM_BITS


def draw_token(now_ms: int) -> int:
    """The token of a claim at this time, if there was none before it."""
    return now_ms * _STEP + secrets.randbits(RANDOM_BITS)


def token_after(held: int, drawn: int) -> int:
    """The token that follows `held`, with the random bits of `drawn`."""
    return drawn if drawn > held else (held // _STEP + 1) * _STEP + drawn % _STEP


def sql_token_after(held: ColumnElement[int], drawn: ColumnElement[int]) -> ColumnElement[int]:
    """`token_after` as the database computes it."""
    return case((drawn > held, drawn), else_=(held // _STEP + 1) * _STEP + drawn % _STEP)
