"""Each guard objects to what it is for, and to nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from include.tiering.audit.record import (
    ActiveGuard,
    AuditEvidence,
    Guard,
    Memory,
    UnknownCopy,
    known_before_restore,
    refusals,
)

SOUND = AuditEvidence(
    objection=None,
    segment_objects=9,
    memory=Memory(3, 1_000),
    listing_ended_ms=50,
    rows_began_ms=50,
)


def guards(**changes: Any) -> list[Guard]:
    return [refusal.guard for refusal in refusals(replace(SOUND, **changes))]


def test_none_objects_to_a_sound_store() -> None:
    assert guards() == []
    assert guards(unknown_copies=(UnknownCopy("a", 999), UnknownCopy("b", None))) == []


def test_a_store_that_is_not_this_databases() -> None:
    assert guards(objection="the store belongs to another database") == [Guard.FOREIGN_STORE]


def test_a_clock_that_others_contradict() -> None:
    assert guards(disbelief="the database's clock says 2038, this worker's says 2026") == [Guard.CLOCK_DISAGREES]


def test_an_empty_database() -> None:
    assert guards(memory=Memory(0, None)) == [Guard.EMPTY_DATABASE]
    assert guards(memory=Memory(0, None), segment_objects=0) == []


@pytest.mark.parametrize(("began_ms", "objects"), [(999, False), (1_000, True), (1_001, True)])
def test_a_copy_that_began_when_the_database_remembers_nothing(began_ms: int, objects: bool) -> None:
    copies = (UnknownCopy("old", 1), UnknownCopy("key", began_ms), UnknownCopy("silent", None))
    found = refusals(replace(SOUND, unknown_copies=copies))
    assert [one.guard for one in found] == [Guard.OLDER_DATABASE] * objects
    assert all("key" in one.sentence and "restored from a backup?" in one.sentence for one in found)


def test_rows_before_the_listing() -> None:
    assert guards(rows_began_ms=49) == [Guard.ROWS_BEFORE_LISTING]
    assert guards(rows_began_ms=51) == []


def test_a_listing_that_lacks_something() -> None:
    found = refusals(replace(SOUND, unlisted=("hostile\x1b[31m", "other")))
    assert [one.guard for one in found] == [Guard.INCOMPLETE_LISTING]
    assert found[0].sentence.isprintable()


def test_several_object_at_once() -> None:
    assert guards(objection="another store", memory=Memory(0, None), rows_began_ms=1, unlisted=("a",)) == [
        Guard.FOREIGN_STORE,
        Guard.EMPTY_DATABASE,
        Guard.ROWS_BEFORE_LISTING,
        Guard.INCOMPLETE_LISTING,
    ]


def test_what_was_remembered_when_the_database_was_set_back_counts_until_that_is_cleared() -> None:
    active = [ActiveGuard(Guard.OLDER_DATABASE, "because", 5, memory_ms) for memory_ms in (None, 700, 800)]
    assert known_before_restore(Memory(3, 1_000), []) == Memory(3, 1_000)
    assert known_before_restore(Memory(3, 1_000), active[:1]) == Memory(3, 1_000)
    assert known_before_restore(Memory(3, 1_000), active) == Memory(3, 700)
    assert known_before_restore(Memory(0, None), active) == Memory(0, None)
