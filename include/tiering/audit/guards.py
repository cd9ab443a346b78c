"""Why nothing may be removed by what an audit saw. It reports whatever it sees; it removes only if no guard objects.

What is removed is never a complete copy (`adoptable`), so none of these guards stands alone. Each is about a whole
store or database that is not what it seems:

    FOREIGN_STORE        the marker names another cluster, store or generation, or is not there; or keys lie in
                         another place than the settings name
    EMPTY_DATABASE       the store holds segments and the database has never heard of any
    OLDER_DATABASE       a complete copy in the store began after everything that the database remembers: its row was
                         lost, so the database was set back, and other rows may be lost like it
    ROWS_BEFORE_LISTING  metadata was read before the listing had ended. In the other order an object without a row is
                         unknown for good, because a row is there before the first object of its segment is
    INCOMPLETE_LISTING   the store has an object that the listing lacks although its segment was FINISHED before it

A copy's manifest says when the attempt began by the clock of the worker that wrote the row too, so the two are compared
with neither the store's clock nor the database's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from include.tiering.errors import printable


class Guard(StrEnum):
    """Which guard objects."""

    FOREIGN_STORE = "foreign-store"
    EMPTY_DATABASE = "empty-database"
    OLDER_DATABASE = "older-database"
    ROWS_BEFORE_LISTING = "rows-before-listing"
    INCOMPLETE_LISTING = "incomplete-listing"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One guard's objection, in a sentence for a person. `memory_ms`: of OLDER_DATABASE, the newest that the database
    remembered."""

    guard: Guard
    sentence: str
    memory_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StandingGuard:
    """An objection that an audit raised and no later one has cleared. `raised_at_ms` is the database's time of the
    first audit that raised it, `memory_ms` what the database remembered then."""

    guard: Guard
    sentence: str
    raised_at_ms: int
    memory_ms: int | None


@dataclass(frozen=True, slots=True)
class UnknownCopy:
    """A complete copy that the database does not know. `began_ms` is from its manifest, None if it does not say."""

    key: str
    began_ms: int | None


@dataclass(frozen=True, slots=True)
class Memory:
    """What the database remembers of segments in any state, tombstones included. `newest_ms` is the latest time that a
    worker wrote into one of them, None without segments."""

    segments: int
    newest_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the guards look at.

    Attributes:
        objection: why the store is not this database's, None if it is.
        segment_objects: objects of the listing whose keys are segments'.
        unknown_copies: complete ones; of very many the newest.
        listing_ended_ms, rows_began_ms: of one clock, whichever.
        unlisted: keys that the listing lacked and the store has, of segments that were FINISHED before it began.
    """

    objection: str | None
    segment_objects: int
    memory: Memory
    unknown_copies: Sequence[UnknownCopy] = ()
    listing_ended_ms: int
    rows_began_ms: int
    unlisted: Sequence[str] = ()


def stands(refusal: Refusal) -> bool:
    """Whether it goes on after its audit: a database that was set back is set back until what it lost is known again,
    and what it would delete by may be as old as the rest of it."""
    return refusal.guard is Guard.OLDER_DATABASE


def remembered(memory: Memory, standing: Sequence[StandingGuard]) -> Memory:
    """What the database remembers of the time before it was set back. Segments that were copied since say nothing about
    what it lost."""
    times = [one.memory_ms for one in standing if one.memory_ms is not None]
    return Memory(memory.segments, min((memory.newest_ms, *times)) if memory.newest_ms is not None else None)


def refusals(evidence: Evidence) -> tuple[Refusal, ...]:
    """Every objection; empty: what was found may be removed, once somebody approved the plan."""
    return tuple(_objections(evidence))


def _objections(evidence: Evidence) -> Iterator[Refusal]:
    if evidence.objection is not None:
        yield Refusal(Guard.FOREIGN_STORE, evidence.objection)
    memory = evidence.memory
    if not memory.segments and evidence.segment_objects:
        yield Refusal(
            Guard.EMPTY_DATABASE,
            f"the store holds {evidence.segment_objects} objects of segments and the database knows no segment at all,"
            " not even a deleted one: was it emptied or made anew? ./tiering rebuild reads it back from the manifests",
        )
    elif (copy := _younger_than_memory(evidence)) is not None:
        yield Refusal(
            Guard.OLDER_DATABASE,
            f"the complete copy {printable(copy.key)} began at {copy.began_ms}, the newest that the database remembers"
            f" is of {memory.newest_ms} (UTC milliseconds): was the database restored from a backup? What it lost is in"
            " the store: ./tiering adopt takes it back, or says why not",
            memory.newest_ms,
        )
    if evidence.rows_began_ms < evidence.listing_ended_ms:
        yield Refusal(
            Guard.ROWS_BEFORE_LISTING,
            f"metadata was read {evidence.listing_ended_ms - evidence.rows_began_ms} ms before the listing had ended:"
            " what was copied meanwhile looks like orphans",
        )
    if evidence.unlisted:
        yield Refusal(
            Guard.INCOMPLETE_LISTING,
            f"the listing lacks objects that the store has, such as {printable(evidence.unlisted[0])}: what else it"
            " lacks cannot be known",
        )


def _younger_than_memory(evidence: Evidence) -> UnknownCopy | None:
    newest_ms = evidence.memory.newest_ms
    if newest_ms is None:
        return None
    younger = [one for one in evidence.unknown_copies if one.began_ms is not None and one.began_ms >= newest_ms]
    return max(younger, key=lambda one: one.began_ms or 0, default=None)
