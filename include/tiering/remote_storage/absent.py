"""Objects of a segment that are not there, or not there yet.

A mirror or a restore of the store that is under way shows some objects of a segment and not others, or an object of 0
bytes where its bytes are still to come. Both look alike, and neither is damage: nothing says that the object was ever
other than it should be. An object with bytes that are wrong is damage.
"""

from collections.abc import Collection, Iterable
from typing import Final

from include.tiering.remote_storage.contract import KeptObject, ObjectKind, StoredObject

_MAY_BE_EMPTY: Final = frozenset({ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX, ObjectKind.TRANSACTION_INDEX})
"""Indexes that are objects of their own: a small segment has no entry in them."""


def absent_kinds(
    stored: Iterable[StoredObject | KeptObject], required: Collection[ObjectKind]
) -> tuple[ObjectKind, ...]:
    """Which of the required objects of a segment are not in the store, or have 0 bytes where they cannot; in order."""
    there = {one.kind for one in stored if one.size_bytes or one.kind in _MAY_BE_EMPTY}
    return tuple(sorted(set(required) - there))
