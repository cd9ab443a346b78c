"""Recorded findings of audits, and the guards: reasons why nothing may be removed, or may expire, after an audit.

There is one row for each finding, however many audits saw it. A finding is OPEN while audits see it, and GONE when an
audit could have seen it and did not. ACCEPTED is a person's decision: the finding stays in the list and fails no run.
ACTED: the platform removed it, and no audit has run since.

An audit reports all that it sees; it removes only if no guard objects. Complete copies (`adoptable`) are never removed,
which is a protection besides these guards. Each guard is about a store, database or listing that is not the right one
or not complete:

    FOREIGN_STORE        the marker is missing, or names another cluster, store or generation; or the store's place is
                         not that of the settings
    CLOCK_DISAGREES      another clock, or the database's own events, contradict the database's clock: ages of objects
                         and live leases are not reliable
    EMPTY_DATABASE       the store has segments and the database has no row at all
    OLDER_DATABASE       a complete copy in the store began after everything that the database has stored: its row was
                         lost, so the database was set back, and other rows may be lost like it
    ROWS_BEFORE_LISTING  metadata was read before the listing had ended. In the right order an object without a row will
                         never get one, because a row is written before the first object of its segment
    INCOMPLETE_LISTING   the store has an object that the listing lacks, although its segment was FINISHED before it

A copy's manifest has the start time of the attempt by the clock of the worker that also wrote the row, so this
comparison depends on neither the store's clock nor the database's.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from include.tiering.audit.finding import AuditFinding, FindingIdentity, FindingKind, PassedOver
from include.tiering.errors import DatabaseSetBackError, printable
from include.tiering.units import format_utc


class Guard(StrEnum):
    """The guard that objects."""

    FOREIGN_STORE = "foreign-store"
    CLOCK_DISAGREES = "clock-disagrees"
    EMPTY_DATABASE = "empty-database"
    OLDER_DATABASE = "older-database"
    ROWS_BEFORE_LISTING = "rows-before-listing"
    INCOMPLETE_LISTING = "incomplete-listing"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One guard's objection, as a sentence. `memory_ms` of OLDER_DATABASE: the newest time that the database had."""

    guard: Guard
    sentence: str
    memory_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ActiveGuard:
    """An objection that an audit raised and no later one has cleared.

    `raised_at_ms` is the database's time of the first audit that raised it, `memory_ms` the newest time that the
    database had stored then.
    """

    guard: Guard
    sentence: str
    raised_at_ms: int
    memory_ms: int | None


@dataclass(frozen=True, slots=True)
class UnknownCopy:
    """A complete copy without a row. `began_ms` is from its manifest, None if the manifest lacks it."""

    key: str
    began_ms: int | None


@dataclass(frozen=True, slots=True)
class Memory:
    """The number of segments in the database in any state, tombstones included.

    `newest_ms` is the latest time that a worker wrote into one of them, None without segments.
    """

    segments: int
    newest_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvidence:
    """What the guards decide from.

    Attributes:
        objection: why the store is not this database's, None if it is.
        clock_contradiction: how another clock contradicts the database's, None if none does.
        segment_objects: objects of the listing with keys of segments.
        unknown_copies: complete copies without a row; if there are very many, the newest.
        listing_ended_ms, rows_began_ms: both by the process's monotonic clock; comparable only with each other.
        unlisted: keys of segments that were FINISHED before the listing began, which it lacks and the store has.
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
    """Return whether the objection stays active after its audit.

    A database that was set back stays so until the lost rows are back, and its retention settings may be old, too.
    """
    return refusal.guard is Guard.OLDER_DATABASE


def known_before_restore(memory: Memory, active: Sequence[ActiveGuard]) -> Memory:
    """Return what the database had stored before it was set back, without the segments copied since."""
    times = [active_guard.memory_ms for active_guard in active if active_guard.memory_ms is not None]
    return Memory(memory.segments, min((memory.newest_ms, *times)) if memory.newest_ms is not None else None)


def refusals(evidence: AuditEvidence) -> tuple[Refusal, ...]:
    """Return every objection; if empty, findings may be removed after a person approved the plan."""
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
            f"the store has {evidence.segment_objects} objects of segments and the database has no segment, not even a"
            " deleted one: was it emptied or created again? ./tiering rebuild restores it from the manifests",
        )
    elif (copy := _younger_than_memory(evidence)) is not None:
        yield Refusal(
            Guard.OLDER_DATABASE,
            f"the complete copy {printable(copy.key)} began at {copy.began_ms}, and the newest row of the database is"
            f" of {memory.newest_ms} (UTC milliseconds): was the database restored from a backup? The store has what it"
            " lost: ./tiering adopt restores it, or reports why it cannot",
            memory.newest_ms,
        )
    if evidence.rows_began_ms < evidence.listing_ended_ms:
        yield Refusal(
            Guard.ROWS_BEFORE_LISTING,
            f"metadata was read {evidence.listing_ended_ms - evidence.rows_began_ms} ms before the listing had ended:"
            " objects that were copied meanwhile would count as orphans",
        )
    if evidence.unlisted:
        yield Refusal(
            Guard.INCOMPLETE_LISTING,
            f"the listing lacks objects that the store has, for example {printable(evidence.unlisted[0])}; it may lack"
            " others",
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
    """The source of the keys."""

    LISTING = "listing"
    INVENTORY = "inventory"


@dataclass(frozen=True, slots=True)
class RecordedFinding:
    """A finding with its current state. Times are those of audits by the database's clock, or those of inventories.

    The finding's key and message are in their stored form: control characters escaped, length bounded.
    """

    finding_id: int
    finding: AuditFinding
    state: FindingState
    first_seen_ms: int
    last_seen_ms: int
    author: str | None = None


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One audit that ended.

    `seen_at_ms` is the earliest time of what it saw: its start, or the time of its inventory. `rows` counts the
    compared segments, tombstones included; `passed_over` the objects that were not classified.
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
    """What an audit changed: `seen` findings, of which `new` ones were not open before, and `gone` findings."""

    seen: int
    new: int
    gone: int


class AuditStore(Protocol):
    """Audits and findings of one cluster."""

    def now_ms(self) -> int:
        """Return the time by the database's clock: for the start of audits and the age of objects."""
        ...

    def memory(self) -> Memory:
        """Return the number and the newest time of segments in any state."""
        ...

    def record(
        self, audit: AuditRecord, findings: Iterable[AuditFinding], *, covers: Collection[FindingKind]
    ) -> AuditTally:
        """Store all findings of one audit; `audit.findings` is counted here. Idempotent for a run id.

        Findings are written in pages, each a transaction of its own, and the audit last: a crash leaves an audit that
        did not end, and the next one completes the rows. An audit does not change a finding whose state changed after
        `audit.seen_at_ms`. Refusals of the audit may stay active; see `active_guards`.

        Args:
            audit: the audit that ended.
            findings: all of its findings.
            covers: kinds that this audit could have seen; open findings of these kinds that it did not see are GONE.
        """
        ...

    def active_guards(self) -> Sequence[ActiveGuard]:
        """Return objections that are active until an audit of the store's own listing ends without any.

        An audit of an inventory may raise an objection and clears none, because the inventory may be older.
        """
        ...

    def audit(self, run_id: str) -> AuditRecord:
        """Return an audit. Raises StateConflictError if no such audit ended."""
        ...

    def last_audit(self) -> AuditRecord | None:
        """Return the audit that was recorded last, independent of the clock; None if there is none."""
        ...

    def findings(self, states: Collection[FindingState] = (FindingState.OPEN,)) -> Sequence[RecordedFinding]:
        """Return the findings in these states, by kind and key."""
        ...

    def seen_by(self, run_id: str, kinds: Collection[FindingKind]) -> Sequence[RecordedFinding]:
        """Return the findings of this audit, in any state, by kind and key.

        Raises:
            StateConflictError: there is no such audit, or a later one has ended since.
        """
        ...

    def acted(self, identities: Collection[FindingIdentity]) -> None:
        """Set the findings that were removed to ACTED."""
        ...

    def forget(self, older_than_ms: int) -> int:
        """Delete findings that ended, and audits that were recorded, before `older_than_ms`; return how many.

        Ages are in milliseconds by the database's clock. The last audit stays.
        """
        ...

    def accept(self, finding_ids: Collection[int], *, author: str) -> Sequence[RecordedFinding]:
        """Set these findings to ACCEPTED and record an event for each; all or none.

        Raises:
            StateConflictError: a finding is neither open nor accepted.
        """
        ...


class ActiveGuards:
    """The guards that an audit raised and no later one has cleared."""

    def __init__(self, audits: AuditStore) -> None:
        self._audits = audits

    def objection(self) -> str | None:
        """Return why nothing may expire after an audit found the database set back; None if no guard is active."""
        active = self._audits.active_guards()
        if not active:
            return None
        first = min(active, key=lambda guard: guard.raised_at_ms)
        return (
            f"nothing expires while the guard {first.guard} is active, since {format_utc(first.raised_at_ms)}: an audit"
            f" found that {first.sentence}. Restore its dynamic configs and adopt or accept the lost segments; then"
            " the next ./tiering audit clears the guard. ./tiering take-over-store shows the retention settings that"
            ' would be used (docs/runbook.md, "The database was restored from a backup")'
        )

    def require_expiration_allowed(self) -> None:
        """Raise DatabaseSetBackError while a guard of an audit is active."""
        if (objection := self.objection()) is not None:
            raise DatabaseSetBackError(objection)
