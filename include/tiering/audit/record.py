"""Findings of audits as they are recorded, and the guards, which can forbid removals and expirations after an audit.

An audit compares the objects in the store with the metadata; a finding is one thing that does not fit. A removal
deletes objects that findings name, an expiration deletes segments, for example by retention.

There is one row for each finding, however many audits saw it. A finding is OPEN from the first audit that sees it, and
GONE when an audit that covers its kind does not see it. ACCEPTED is a person's decision: audits still report the
finding, and no longer fail because of it. ACTED: the platform removed what the finding names. A finding that is GONE or
ACTED is OPEN again if a later audit sees it, even if it had been accepted before it was GONE.

An audit reports all that it sees, whatever the guards say. After the audit, objects are removed only if this audit
raised no objection, and no objection of an earlier one is active. Complete copies (`adoptable`, or `duplicate` of a
segment) are not removed even then. An objection of OLDER_DATABASE stays active after its audit; while it is active,
nothing expires either. These guards raise an objection:

    FOREIGN_STORE        the marker is missing, unreadable or not this database's; or the database has not recorded
                         under which URL, layout and prefix the keys of its store are; or the database or the marker
                         has recorded another URL, layout or prefix than the settings name
    CLOCK_DISAGREES      the clock of this host or of the store, an event or lease in the database, or the start of the
                         audit contradicts the database's clock (see `runs/database_clock.py`): ages of objects, and
                         whether a lease is live, are not reliable
    EMPTY_DATABASE       the store has objects or uploads of segments, and the database has no row of a segment, not
                         even a tombstone
    OLDER_DATABASE       a complete copy without a row, which no person accepted, began at or after the newest time of
                         all segments in the database: its row was lost, so the database was set back, and other rows
                         may be lost too
    ROWS_BEFORE_LISTING  rows were read before the listing had ended. A copy writes its row before its first object. So
                         a listed object without a row belongs to no running copy only if rows are read afterwards
    INCOMPLETE_LISTING   the store has an object that the listing lacks, although the object's segment was FINISHED
                         before the listing began

No audit raises or clears the last guard, which forbids removals and expirations as OLDER_DATABASE does. A take-over or
a rebuild raises it; reading the brokers' records, or a person's declaration, clears it:

    UNREAD_RECORDS       the database took over the store from another database, or was rebuilt from the store, so it
                         may not know which segments were published to brokers, and brokers would still read segments
                         that it deletes (see `database/unread_records.py`)

OLDER_DATABASE compares the start time in the copy's manifest with the newest time in rows. While the guard is active,
it compares with the newest time that the rows had when the guard was first raised. These times are by the clocks of the
workers that wrote manifests and rows (for segments of brokers, by the brokers' clocks), so the comparison depends on
neither the store's clock nor the database's.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.audit.finding import AuditFinding, FindingIdentity, FindingKind, PassedOver
from include.tiering.errors import DatabaseSetBackError, printable
from include.tiering.model.ownership import UNREAD_GUARD
from include.tiering.presentation import listed
from include.tiering.segments.ingestion_contract import UnreadRecords
from include.tiering.units import format_utc


class Guard(StrEnum):
    """The guards; the head of this module says when each of them raises an objection."""

    FOREIGN_STORE = "foreign-store"
    CLOCK_DISAGREES = "clock-disagrees"
    EMPTY_DATABASE = "empty-database"
    OLDER_DATABASE = "older-database"
    ROWS_BEFORE_LISTING = "rows-before-listing"
    INCOMPLETE_LISTING = "incomplete-listing"
    UNREAD_RECORDS = UNREAD_GUARD


@dataclass(frozen=True, slots=True)
class Refusal:
    """One guard's objection, as a sentence.

    `memory_ms` is the newest time of segments (`Memory.newest_ms`) with which OLDER_DATABASE compared; None for
    the other guards.
    """

    guard: Guard
    sentence: str
    memory_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ActiveGuard:
    """An objection that an audit raised and no later audit has cleared; or UNREAD_RECORDS.

    Of an audit's objection `raised_at_ms` is when the first audit that raised it was recorded, by the database's clock,
    `memory_ms` is the `Refusal.memory_ms` of this first audit, and `unread` is empty. Of UNREAD_RECORDS `raised_at_ms`
    is when the guard was raised last, `memory_ms` is None, and `unread` says why reading the brokers' records has not
    cleared the guard.
    """

    guard: Guard
    sentence: str
    raised_at_ms: int
    memory_ms: int | None
    unread: UnreadRecords = field(default_factory=UnreadRecords)

    @property
    def objection(self) -> str:
        """Why nothing may be deleted now, and what clears the guard."""
        since = (
            f"nothing expires, and no orphan object is removed, while the guard {self.guard} is active, since"
            f" {format_utc(self.raised_at_ms)}"
        )
        if self.guard is Guard.UNREAD_RECORDS:
            return f"{since}: {self.sentence}, {_unread(self.unread)}"
        return (
            f"{since}: an audit found that {self.sentence}. Restore the database's dynamic configs and adopt or accept"
            " the lost segments; then a ./tiering audit without objections clears the guard. ./tiering take-over-store"
            " shows the retention settings in this database now"
            ' (docs/runbook.md, "The database was restored from a backup")'
        )


_MOST_NAMED: Final = 3


def _unread(unread: UnreadRecords) -> str:
    text = (
        "so segments of which this database does not know may have been published to brokers. ./tiering ingest reads"
        " what brokers know, and clears the guard"
    )
    if unread.not_read:
        text += (
            f"; not read yet: {listed(unread.not_read, _MOST_NAMED)}. ./tiering ingest shows each partition of the"
            " brokers' metadata topic, and docs/runbook.md, \"The brokers' metadata are not read\", how to mend one"
        )
    if unread.deleted:
        text += (
            f"; records that were deleted cannot be read: {listed(unread.deleted, _MOST_NAMED)}. If they were about no"
            " segments but those whose publication this database has recorded, and the rest is read"
        )
    else:
        text += "; if no segment was ever published, because no handover came as far as its step publish"
    return (
        f"{text}, ./tiering take-over-store --nothing-published clears the guard"
        ' (docs/runbook.md, "The database was restored from a backup")'
    )


@dataclass(frozen=True, slots=True)
class UnknownCopy:
    """A complete copy without a row.

    `began_ms` is when the copy began, by its manifest; None, which no guard compares, if the manifest is gone or
    damaged. If the manifest cannot be read, is of another release or lacks the time, `began_ms` is when the copy was
    stored. This is not earlier, so a guard may raise an objection without need, and misses none.
    """

    key: str
    began_ms: int | None


@dataclass(frozen=True, slots=True)
class Memory:
    """What the database knows: its number of segments in any state, tombstones included, and their newest time.

    `newest_ms` is the latest time at which one of these segments changed its state, by the clock of the worker or
    broker that changed it; None without segments.
    """

    segments: int
    newest_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvidence:
    """What the guards decide from.

    Attributes:
        objection: why the store is not this database's; None if it is.
        clock_contradiction: how a time from another source contradicts the database's clock; None if none does.
        segment_objects: number of objects and uploads that the audit did not classify (`passed_over`), and of findings
            about segments. Without rows these are all objects of segments, of which those of one complete copy count as
            one; if there are any, EMPTY_DATABASE raises an objection with this number.
        unknown_copies: the newest complete copies without a row, at most 100; accepted ones are left out.
        listing_ended_ms, rows_began_ms: both by the process's monotonic clock; comparable only with each other.
        unlisted: keys of objects that the store has and the listing lacks, although their segments were FINISHED before
            the listing began.
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
    """Return whether the objection stays active after its audit: only that of OLDER_DATABASE does.

    A database that was set back (restored to an earlier state) lacks rows also after the audit, and its retention
    settings may be those of the backup.
    """
    return refusal.guard is Guard.OLDER_DATABASE


def known_before_restore(memory: Memory, active: Sequence[ActiveGuard]) -> Memory:
    """Return `memory` with the newest time that the database had when OLDER_DATABASE was first raised.

    Segments that were copied after that have later times and would hide the lost ones. Unless this guard is active,
    `memory` is returned unchanged.
    """
    times = [active_guard.memory_ms for active_guard in active if active_guard.memory_ms is not None]
    return Memory(memory.segments, min((memory.newest_ms, *times)) if memory.newest_ms is not None else None)


def refusals(evidence: AuditEvidence) -> tuple[Refusal, ...]:
    """Return every objection; if there is one, nothing may be removed after this audit."""
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
            f"the store has {evidence.segment_objects} objects or copies of segments, the database has no segment, not"
            " even a deleted one: was it emptied or created again? ./tiering rebuild restores it from the manifests",
        )
    elif (copy := _younger_than_memory(evidence)) is not None:
        yield Refusal(
            Guard.OLDER_DATABASE,
            f"the complete copy {printable(copy.key)} began at {copy.began_ms}, and the newest row of the database is"
            f" of {memory.newest_ms} (UTC milliseconds): was the database restored from a backup? ./tiering adopt"
            " restores the segments that the database lost, or reports why it cannot",
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
    """Where an audit has the keys of the objects from: a listing of the store, or an inventory that the store wrote."""

    LISTING = "listing"
    INVENTORY = "inventory"


@dataclass(frozen=True, slots=True)
class RecordedFinding:
    """A finding with its current state.

    `first_seen_ms` and `last_seen_ms` are the `seen_at_ms` of the first and of the last audit that saw it. `author` is
    the person who accepted it; None if no person did. The finding's texts are as `stored_text` in
    `database/transactions.py` makes them.
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

    All changes of objects before `seen_at_ms` are certainly in its listing. This time is the start of the audit, or for
    an inventory the earlier time up to which the inventory is complete. `rows` counts the compared segments, tombstones
    included; `passed_over` the objects and uploads that were not classified, by reason.
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
    """Numbers of findings.

    `seen` counts those of an audit, `new` those among them that are new or open again, and `gone` those that became
    GONE because the audit did not see them.
    """

    seen: int
    new: int
    gone: int


class AuditStore(Protocol):
    """Audits and findings of one cluster."""

    def now_ms(self) -> int:
        """Return the time by the database's clock: for the start of audits and the age of objects."""
        ...

    def memory(self) -> Memory:
        """Return the number of all segments, whatever their states, and when the latest of them changed its state."""
        ...

    def record(
        self, audit: AuditRecord, findings: Iterable[AuditFinding], *, covers: Collection[FindingKind]
    ) -> AuditTally:
        """Store an audit and all its findings, which are counted here; `audit.findings` is ignored.

        Repeating a call with the same run id is harmless. Findings are written in pages, each in a transaction of its
        own, and the audit last. A crash may leave findings of an audit that is not recorded. The next audit writes all
        of its own findings, and sets left findings that it does not see to GONE.

        A finding that became GONE or ACTED after `audit.seen_at_ms` is not opened again, unless it became so at a time
        in the future, which only a wrong clock explains. An objection may stay active; see `active_guards`.

        Args:
            audit: the audit that ended.
            findings: all of its findings.
            covers: kinds that this audit could have seen; findings of these kinds that are open or accepted become GONE
                if neither it nor an audit with a later `seen_at_ms` saw them. A later `seen_at_ms` that is in the
                future does not count.
        """
        ...

    def active_guards(self) -> Sequence[ActiveGuard]:
        """Return the active guards, ordered by name.

        An audit of the store's own listing that ends without objections clears them. An audit of an inventory may raise
        an objection but clears none, because the inventory may be older than the objection. No audit clears
        UNREAD_RECORDS.
        """
        ...

    def declare_nothing_published(self, *, author: str) -> None:
        """Clear UNREAD_RECORDS, because a person declares that this database knows every published segment.

        An event records the declaration. If this database has published segments itself, the declaration can only be
        about records that the metadata topic has deleted, which nobody can read. If the guard is not active, and this
        database has published nothing, nothing is done.

        Raises:
            StateConflictError: this database has published segments, and the guard is not active, or the metadata topic
                has records that can be read and were not: `./tiering ingest` reads them.
        """
        ...

    def audit(self, run_id: str) -> AuditRecord:
        """Return the audit of this run. Raises StateConflictError if none was recorded."""
        ...

    def last_audit(self) -> AuditRecord | None:
        """Return the audit that was recorded last, independently of the clock; None if there is no audit."""
        ...

    def findings(self, states: Collection[FindingState] = (FindingState.OPEN,)) -> Sequence[RecordedFinding]:
        """Return the findings in these states, ordered by kind and key."""
        ...

    def newest_open(self, *, leave_out: Collection[FindingKind], at_most: int) -> Sequence[RecordedFinding]:
        """Return at most `at_most` open findings of all kinds except `leave_out`, the last seen first."""
        ...

    def seen_by(self, run_id: str, kinds: Collection[FindingKind]) -> Sequence[RecordedFinding]:
        """Return the findings of these kinds that this audit saw, in any state, ordered by kind and key.

        Findings that a later audit saw too, which crashed before it was recorded, are left out: they name that audit.

        Raises:
            StateConflictError: there is no such audit, or a later one has ended since.
        """
        ...

    def acted(self, identities: Collection[FindingIdentity]) -> None:
        """Set the findings whose objects were removed to ACTED."""
        ...

    def forget(self, older_than_ms: int) -> int:
        """Delete findings that became GONE or ACTED, and audits that were recorded, more than `older_than_ms` ago.

        The age is in milliseconds by the database's clock. The last audit stays.

        Returns:
            How many findings and audits were deleted, in total.
        """
        ...

    def accept(self, finding_ids: Collection[int], *, author: str) -> Sequence[RecordedFinding]:
        """Set these findings to ACCEPTED and record an event for each; all or none.

        Raises:
            StateConflictError: a finding is unknown, or neither open nor accepted.
        """
        ...


class ActiveGuards:
    """Says whether an active objection of an earlier audit, or UNREAD_RECORDS, forbids deletions."""

    def __init__(self, audits: AuditStore) -> None:
        self._audits = audits

    def objection(self) -> str | None:
        """Return why nothing may be deleted: the active objections, one after another; None if no guard is active."""
        return "; ".join(active.objection for active in self._audits.active_guards()) or None

    def require_deletion_allowed(self) -> None:
        """Raise DatabaseSetBackError while a guard is active, also UNREAD_RECORDS."""
        if (objection := self.objection()) is not None:
            raise DatabaseSetBackError(objection)
