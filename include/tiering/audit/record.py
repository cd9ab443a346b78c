"""What audits found, kept; and the guards: why nothing may be removed, or may expire, by what an audit saw.

There is one row for each finding, whatever number of audits saw it. A finding is OPEN while audits see it. One that an
audit could have seen and did not is GONE. ACCEPTED is a person's decision: it stays in the list and fails no run.
ACTED: we removed it, and no audit has looked since.

An audit reports whatever it sees; it removes only if no guard objects. What is removed is never a complete copy
(`adoptable`), so none of these guards is the only one. Each is about a whole store or database that is not
what it seems:

    FOREIGN_STORE        the marker names another cluster, store or generation, or is not there; or keys lie in
                         another place than the settings name
    CLOCK_DISAGREES      the database's clock is contradicted by another one, or by its own events: how old an object is
                         and who works on its partition cannot be known
    EMPTY_DATABASE       the store holds segments and the database has never heard of any
    OLDER_DATABASE       a complete copy in the store began after everything that the database has stored: its row was
                         lost, so the database was set back, and other rows may be lost like it
    ROWS_BEFORE_LISTING  metadata was read before the listing had ended. In the other order an object without a row is
                         unknown for good, because a row is there before the first object of its segment is
    INCOMPLETE_LISTING   the store has an object that the listing lacks although its segment was FINISHED before it

A copy's manifest says when the attempt began by the clock of the worker that wrote the row too, so the two are
compared with neither the store's clock nor the database's.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from include.tiering.audit.finding import AuditFinding, FindingIdentity, FindingKind, PassedOver
from include.tiering.errors import DatabaseSetBackError, printable
from include.tiering.units import format_utc


class Guard(StrEnum):
    """Which guard objects."""

    FOREIGN_STORE = "foreign-store"
    CLOCK_DISAGREES = "clock-disagrees"
    EMPTY_DATABASE = "empty-database"
    OLDER_DATABASE = "older-database"
    ROWS_BEFORE_LISTING = "rows-before-listing"
    INCOMPLETE_LISTING = "incomplete-listing"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One guard's objection, in a sentence for a person. `memory_ms`: of OLDER_DATABASE, the newest that the database
    had stored.
    """

    guard: Guard
    sentence: str
    memory_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ActiveGuard:
    """An objection that an audit raised and no later one has cleared. `raised_at_ms` is the database's time of the
    first audit that raised it, `memory_ms` what the database had stored then.
    """

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
    """What the database has stored of segments in any state, tombstones included. `newest_ms` is the latest time that a
    worker wrote into one of them, None without segments.
    """

    segments: int
    newest_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvidence:
    """What the guards look at.

    Attributes:
        objection: why the store is not this database's, None if it is.
        clock_contradiction: why the database's clock is not believed, None if it is.
        segment_objects: objects of the listing whose keys are segments'.
        unknown_copies: complete ones; of very many the newest.
        listing_ended_ms, rows_began_ms: of one clock, whichever.
        unlisted: keys that the listing lacked and the store has, of segments that were FINISHED before it began.
    """

    objection: str | None
    clock_contradiction: str | None = None
    segment_objects: int
    memory: Memory
    unknown_copies: Sequence[UnknownCopy] = ()
    listing_ended_ms: int
    rows_began_ms: int
    unlisted: Sequence[str] = ()


def stays_active(refusal: Refusal) -> bool:
    """Whether it goes on after its audit: a database that was set back is set back until what it lost is known again,
    and what it would delete by may be as old as the rest of it.
    """
    return refusal.guard is Guard.OLDER_DATABASE


def known_before_restore(memory: Memory, active: Sequence[ActiveGuard]) -> Memory:
    """What the database has stored of the time before it was set back. Segments that were copied since say nothing
    about what it lost.
    """
    times = [active_guard.memory_ms for active_guard in active if active_guard.memory_ms is not None]
    return Memory(memory.segments, min((memory.newest_ms, *times)) if memory.newest_ms is not None else None)


def refusals(evidence: AuditEvidence) -> tuple[Refusal, ...]:
    """Every objection; empty: what was found may be removed, once somebody approved the plan."""
    return tuple(_objections(evidence))


def _objections(evidence: AuditEvidence) -> Iterator[Refusal]:
    if evidence.objection is not None:
        yield Refusal(Guard.FOREIGN_STORE, evidence.objection)
    if evidence.clock_contradiction is not None:
        yield Refusal(Guard.CLOCK_DISAGREES, evidence.clock_contradiction)
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
            f"the complete copy {printable(copy.key)} began at {copy.began_ms}, the newest that the database has stored"
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


def _younger_than_memory(evidence: AuditEvidence) -> UnknownCopy | None:
    newest_ms = evidence.memory.newest_ms
    if newest_ms is None:
        return None
    younger = [
        unknown_copy
        for unknown_copy in evidence.unknown_copies
        if unknown_copy.began_ms is not None and unknown_copy.began_ms >= newest_ms
    ]
    return max(younger, key=lambda copy: copy.began_ms or 0, default=None)


class FindingState(StrEnum):
    """The state of a finding."""

    OPEN = "open"
    GONE = "gone"
    ACTED = "acted"
    ACCEPTED = "accepted"


class AuditSource(StrEnum):
    """Where the keys came from."""

    LISTING = "listing"
    INVENTORY = "inventory"


@dataclass(frozen=True, slots=True)
class RecordedFinding:
    """A finding as it stands. Times are of what audits saw, and the database's unless that was an inventory.

    The finding's key and message are as they were stored: control characters escaped, of bounded length.
    """

    finding_id: int
    finding: AuditFinding
    state: FindingState
    first_seen_ms: int
    last_seen_ms: int
    author: str | None = None


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One audit that came to an end. What it saw is of `seen_at_ms` at the earliest: when it began, or of when its
    inventory is. `rows` counts the segments that were compared, tombstones included; `passed_over` the objects that
    were not classified.
    """

    run_id: str
    source: AuditSource
    began_at_ms: int
    seen_at_ms: int
    objects: int
    rows: int
    refusals: tuple[Refusal, ...] = ()
    passed_over: Mapping[PassedOver, int] = field(default_factory=dict)
    findings: int = 0


@dataclass(frozen=True, slots=True)
class AuditTally:
    """What an audit changed: findings it saw, of which `new` were never open before or were open no more; findings that
    went.
    """

    seen: int
    new: int
    gone: int


class AuditStore(Protocol):
    """Audits and findings of one cluster."""

    def now_ms(self) -> int:
        """The database's clock: when an audit begins, and how old an object is."""
        ...

    def memory(self) -> Memory:
        """What the database knows of segments in any state."""
        ...

    def record(
        self, audit: AuditRecord, findings: Iterable[AuditFinding], *, covers: Collection[FindingKind]
    ) -> AuditTally:
        """Store everything that one audit found. `audit.findings` is counted here.

        `covers`: kinds that this audit could have seen; what is open of them, was seen before and not by this one is
        GONE afterwards. What it saw before the last change of a finding's state does not change it again.
        What it refuses may stay active from then on; see `active_guards`.
        In pages, each a transaction of its own, the audit itself last: a crash leaves an audit that did not end, and
        the next one completes the rows. The same run again is harmless.
        """
        ...

    def active_guards(self) -> Sequence[ActiveGuard]:
        """Objections that are active until a later audit of the store's own listing ends without any. An inventory
        raises one and clears none: it may be of the time before.
        """
        ...

    def audit(self, run_id: str) -> AuditRecord:
        """Raises StateConflictError: no such audit came to an end."""
        ...

    def last_audit(self) -> AuditRecord | None:
        """The one that was recorded last, whatever the clock said."""
        ...

    def findings(self, states: Collection[FindingState] = (FindingState.OPEN,)) -> Sequence[RecordedFinding]:
        """By kind and key."""
        ...

    def seen_by(self, run_id: str, kinds: Collection[FindingKind]) -> Sequence[RecordedFinding]:
        """Findings of this audit, in whatever state, by kind and key.

        Raises:
            StateConflictError: no such audit, or a later one has seen the store since.
        """
        ...

    def acted(self, identities: Collection[FindingIdentity]) -> None:
        """These were removed."""
        ...

    def forget(self, older_than_ms: int) -> int:
        """Remove findings that ended, and audits that were recorded, longer ago, by the database's clock; returns how
        many. The last audit stays.
        """
        ...

    def accept(self, finding_ids: Collection[int], *, author: str) -> Sequence[RecordedFinding]:
        """Leave these as they are, with an event; all or none.

        Raises:
            StateConflictError: one of them is not open or accepted.
        """
        ...


class ActiveGuards:
    """The guards that an audit raised and no later one has cleared."""

    def __init__(self, audits: AuditStore) -> None:
        self._audits = audits

    def objection(self) -> str | None:
        """Why nothing may expire, in a sentence, since an audit found that the database was set back; None if no guard
        of an audit is active.
        """
        active = self._audits.active_guards()
        if not active:
            return None
        first = min(active, key=lambda guard: guard.raised_at_ms)
        return (
            f"nothing expires while the guard {first.guard} is active, since {format_utc(first.raised_at_ms)}: an audit"
            f" found that {first.sentence}. Set its dynamic configs as they were, adopt or accept what it lost, and the"
            " next ./tiering audit clears it; ./tiering take-over-store shows what it would delete by (docs/runbook.md,"
            ' "The database was restored from a backup")'
        )

    def require_expiration_allowed(self) -> None:
        """Raises DatabaseSetBackError while a guard of an audit is active."""
        if (objection := self.objection()) is not None:
            raise DatabaseSetBackError(objection)
