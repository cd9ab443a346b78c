"""What audits found, kept: one row for each finding, whatever number of audits saw it.

A finding is OPEN while audits see it. One that an audit could have seen and did not is GONE. ACCEPTED is a person's
decision: it stays in the list and fails no run. ACTED: we removed it, and no audit has looked since.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from include.tiering.audit.context import PassedOver
from include.tiering.audit.finding import AuditFinding, FindingIdentity, FindingKind
from include.tiering.audit.guards import Memory, Refusal, StandingGuard


class FindingState(StrEnum):
    """Where a finding stands."""

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
    were not judged."""

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
    went."""

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
        What it refuses may stand from then on; see `standing_guards`.
        In pages, each a transaction of its own, the audit itself last: a crash leaves an audit that did not end, and
        the next one completes the rows. The same run again is harmless.
        """
        ...

    def standing_guards(self) -> Sequence[StandingGuard]:
        """Objections that stand until a later audit of the store's own listing ends without any. An inventory raises
        one and clears none: it may be of the time before."""
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
        many. The last audit stays."""
        ...

    def accept(self, finding_ids: Collection[int], *, author: str) -> Sequence[RecordedFinding]:
        """Leave these as they are, with an event; all or none.

        Raises:
            StateConflictError: one of them is not open or accepted.
        """
        ...
