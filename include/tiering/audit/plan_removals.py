"""Runs that remove what no metadata knows: which findings go, the contract of such runs, and their limit.

Of each segment id that no metadata knows all goes or nothing. Orphans and open uploads go; old versions and delete
markers where that is asked for by name. A complete copy (`adoptable`, or superfluous beside another) never goes this
way: adopted, it is a segment like any other, with an owner, a retention and a deletion limit. Foreign objects are not
ours to delete. Planning changes nothing.

A run has one plan each, and is released only by an approval of exactly that plan, by a person who sees first what it
is. The rules of expiration are asked as well (share of a topic, with a floor, within 24 hours); what they say is shown
with the question. A plan that names segments which metadata knows by now is said to be stale: it would remove less.

An id whose objects are about to be removed is first marked for deletion: from then on no segment may begin under it,
neither a copy nor an adoption. Marking an id and beginning a segment exclude each other in one transaction of the
database, so a process that was stopped in between is refused, however late it continues.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.audit.finding import AuditFinding, FindingIdentity, FindingKind
from include.tiering.audit.record import Refusal
from include.tiering.model.ownership import PartitionLease
from include.tiering.model.reasons import Reason
from include.tiering.model.segments import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.runs.deletion_limits import WINDOW_MS, DeletionLimitReport, DeletionLimits, TopicAction, excesses
from include.tiering.runs.deletion_run import DeletionRun, DeletionRuns, hash_of


@dataclass(frozen=True, slots=True)
class PlannedRemoval:
    """One object, open upload or old version to remove, of a segment id that metadata does not know.

    `token`: version id or upload id; None for the object itself. `last_modified_ms` is by the store's clock.
    """

    segment_id: RemoteLogSegmentId
    kind: FindingKind
    key: str
    token: str | None
    size_bytes: int
    last_modified_ms: int

    @property
    def finding_identity(self) -> FindingIdentity:
        is_upload = self.kind is FindingKind.OPEN_MULTIPART_UPLOAD
        token = self.token or ""
        return (self.kind.value, self.key, "" if is_upload else token, token if is_upload else "")


class RemovalOutcome(StrEnum):
    """What became of it.

    GONE: it was not there any more. KEPT: it is not what was planned, or metadata knows its segment now. FAILED: the
    store refuses; the next audit finds it again.
    """

    PLANNED = "planned"
    REMOVED = "removed"
    GONE = "gone"
    KEPT = "kept"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RemovalItem:
    """A planned removal with its outcome; `message` is for a person."""

    planned: PlannedRemoval
    outcome: RemovalOutcome
    message: str | None = None


@dataclass(frozen=True, slots=True)
class WithdrawnRemovals:
    """A run that was withdrawn, and all that it planned with what became of it.

    `not_claimed` says why the store could not be claimed since: a copy of the database may go on with the same plan.
    """

    run: DeletionRun
    items: tuple[RemovalItem, ...]
    not_claimed: str | None = None

    def of(self, *outcomes: RemovalOutcome) -> list[RemovalItem]:
        return [item for item in self.items if item.outcome in outcomes]


@dataclass(frozen=True, slots=True)
class RemovalTotals:
    """What the database itself adds up for one topic of a run.

    Attributes:
        planned_bytes, planned_objects: of the plan, as it is stored.
        known_objects: of these, how many belong to a segment that metadata knows (none should).
        recent_bytes: what audits removed and expiration began to delete within the window that was asked for.
        remote_bytes: stored now, in any state.
    """

    topic_id: Uuid
    topic: str
    planned_objects: int
    planned_bytes: int
    known_objects: int
    recent_bytes: int
    remote_bytes: int


class RemovalStore(DeletionRuns, Protocol):
    """Runs of one cluster that remove what has no metadata.

    A withdrawal sets what is still PLANNED to KEPT; to FAILED where the id is marked for deletion already, as a batch
    may be removing it. A withdrawal clears no mark.
    """

    def save_plan(self, run_id: str, removals: Sequence[PlannedRemoval]) -> DeletionRun:
        """Store a plan. The same run id with the same plan is harmless, with another one a StateConflictError."""
        ...

    def totals(self, run_id: str, *, window_ms: int) -> Sequence[RemovalTotals]:
        """Of every topic in the plan, by name; the window ends now by the database's clock."""
        ...

    def remaining(self, lease: PartitionLease) -> Sequence[PlannedRemoval]:
        """What is still PLANNED of the leased partition, in order."""
        ...

    def mark_for_deletion(self, lease: PartitionLease, segment_ids: Collection[RemoteLogSegmentId]) -> frozenset[Uuid]:
        """Decide, for each of these ids of the leased partition, that no segment begins under it any more.

        Returns those that are marked now. The others are in the metadata in some state that is not a tombstone:
        nothing of theirs may be removed. One transaction.

        Raises:
            LeaseLostError
        """
        ...

    def record_outcomes(self, lease: PartitionLease, items: Sequence[RemovalItem]) -> None:
        """Outcomes of planned removals of the leased partition; those that have one keep it.

        Raises:
            LeaseLostError
        """
        ...

    def items(self, run_id: str) -> Sequence[RemovalItem]:
        """All planned removals with their outcome, in order."""
        ...

    def forget(self, older_than_ms: int) -> int:
        """Remove planned removals that were settled longer ago, by the database's clock; returns how many. Their ids
        are no longer marked for deletion, as those of tombstones that are forgotten.
        """
        ...


def removal_hash(removals: Sequence[PlannedRemoval]) -> str:
    """SHA-256 of what a plan removes, whatever its run id and order: two with one hash remove the same objects, each as
    it was written when the other saw it.
    """
    content = sorted(
        [removal.kind.value, removal.key, removal.token or "", removal.size_bytes, removal.last_modified_ms]
        for removal in removals
    )
    return hash_of(content)


ORPHANS_AND_UPLOADS: Final = (FindingKind.OPEN_MULTIPART_UPLOAD, FindingKind.ORPHAN)
VERSIONS: Final = (FindingKind.OLD_VERSION, FindingKind.DELETE_MARKER)
"""In the order of removal: with a marker gone first, an old version would be what a read gives."""
_ORDER: Final = {kind: position for position, kind in enumerate((*ORPHANS_AND_UPLOADS, *VERSIONS))}
_COMPLETE: Final = (FindingKind.ADOPTABLE, FindingKind.DUPLICATE)


class Spared(Reason):
    """Why a finding of a kind that may be removed is not in the plan."""

    YOUNG = "young", "something of its segment is younger than the age guard", True
    AGE_UNKNOWN = "age-unknown", "how old something of its segment is cannot be known"
    KNOWN = "known", "metadata knows its segment"
    ACCEPTED = "accepted", "somebody decided to leave something of its segment"
    COMPLETE = "complete", "its segment is a complete copy: ./tiering adopt"
    NO_SEGMENT = "no-segment", "its key is not a segment's"


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """What one run removes, by partition and segment. With `refusals` it removes nothing, whatever was found."""

    run_id: str
    audit_run_id: str
    removals: tuple[PlannedRemoval, ...]
    spared: Mapping[Spared, int] = field(default_factory=Counter)
    refusals: tuple[Refusal, ...] = ()

    @property
    def plan_hash(self) -> str:
        return removal_hash(self.removals)

    @property
    def size_bytes(self) -> int:
        return sum(removal.size_bytes for removal in self.removals)


def plan_removals(
    run_id: str,
    audit_run_id: str,
    findings: Iterable[AuditFinding],
    *,
    refusals: Sequence[Refusal],
    min_age_ms: int,
    now_ms: int,
    with_versions: bool = False,
    is_known: Callable[[RemoteLogSegmentId], bool] = lambda _: False,
    accepted: Collection[FindingIdentity] = frozenset(),
) -> RemovalPlan:
    """Decide what goes.

    `findings` are all of one audit, `now_ms` is the database's clock. `is_known`: whether metadata has the id in any
    state but a tombstone; asked of ids with open uploads or old versions, as an orphan is by its kind of none.
    `accepted`: of findings that a person decided to leave.
    """
    if refusals:
        return RemovalPlan(run_id, audit_run_id, (), refusals=tuple(refusals))
    wanted = (*ORPHANS_AND_UPLOADS, *VERSIONS) if with_versions else ORPHANS_AND_UPLOADS
    spared: Counter[Spared] = Counter()
    attempts: dict[RemoteLogSegmentId, list[AuditFinding]] = defaultdict(list)
    kept: dict[RemoteLogSegmentId, Spared] = {}
    for finding in findings:
        segment_id = _segment_id(finding)
        if segment_id is None:
            spared[Spared.NO_SEGMENT] += finding.kind in wanted
        elif finding.kind in _COMPLETE:
            kept[segment_id] = Spared.COMPLETE
        elif finding.kind in wanted:
            attempts[segment_id].append(finding)
            if finding.identity in accepted:
                kept.setdefault(segment_id, Spared.ACCEPTED)
    removals: list[PlannedRemoval] = []
    for segment_id, found in sorted(attempts.items(), key=lambda item: _place(item[0])):
        why = kept.get(segment_id) or _too_young(found, now_ms - min_age_ms)
        if why is None and any(one.kind is not FindingKind.ORPHAN for one in found) and is_known(segment_id):
            why = Spared.KNOWN
        if why is not None:
            spared[why] += len(found)
            continue
        ordered = sorted(found, key=lambda one: (_ORDER[one.kind], one.key, one.version_id or one.upload_id or ""))
        removals += (_planned(segment_id, one) for one in ordered)
    return RemovalPlan(run_id, audit_run_id, tuple(removals), +spared)


def _segment_id(finding: AuditFinding) -> RemoteLogSegmentId | None:
    if finding.segment_id is None or finding.topic_id is None or finding.partition is None or finding.topic is None:
        return None
    return RemoteLogSegmentId(TopicIdPartition(finding.topic_id, finding.partition, finding.topic), finding.segment_id)


def _too_young(found: Sequence[AuditFinding], newest_ms: int) -> Spared | None:
    """The youngest decides for all: whoever still writes or removes there is not yet forgotten."""
    times = [finding.last_modified_ms for finding in found]
    if any(time_ms is None for time_ms in times):
        return Spared.AGE_UNKNOWN
    return Spared.YOUNG if any(time_ms is not None and time_ms > newest_ms for time_ms in times) else None


def _planned(segment_id: RemoteLogSegmentId, finding: AuditFinding) -> PlannedRemoval:
    return PlannedRemoval(
        segment_id,
        finding.kind,
        finding.key,
        finding.upload_id or finding.version_id,
        finding.size_bytes,
        finding.last_modified_ms or 0,
    )


def _place(segment_id: RemoteLogSegmentId) -> tuple[object, ...]:
    partition = segment_id.topic_id_partition
    return (partition.topic, partition.topic_id, partition.partition, segment_id.id)


ALWAYS: Final = "what no metadata knows is removed only with an approval"


def apply_removal_limits(
    run_id: str, removals: RemovalStore, limits: DeletionLimits, *, author: str
) -> DeletionLimitReport:
    """Evaluate a stored plan and record the answer with the run: it needs an approval, always.

    Raises:
        StateConflictError: no such run was planned.
    """
    run, totals = removals.run(run_id), removals.totals(run_id, window_ms=WINDOW_MS)
    actions = tuple(map(_action, totals))
    reasons = (ALWAYS, *excesses(actions, limits).values(), *_known_by_now(totals)) if totals else ()
    detail = "; ".join(reasons) or "nothing to remove"
    removals.record_limit_check(run_id, needs_approval=bool(reasons), detail=detail, author=author)
    return DeletionLimitReport(
        run_id, run.plan_hash, actions, reasons, run.approval, frozenset(total.topic_id for total in totals)
    )


def _action(totals: RemovalTotals) -> TopicAction:
    """What is removed counts beside what is FINISHED: the share is of all that the topic occupies."""
    occupied_bytes = totals.remote_bytes + totals.planned_bytes
    return TopicAction(totals.topic_id, totals.topic, totals.planned_bytes, totals.recent_bytes, occupied_bytes)


def _known_by_now(totals: Sequence[RemovalTotals]) -> list[str]:
    return [
        f"{total.topic}: {total.known_objects} of {total.planned_objects} are of segments that metadata knows now,"
        " and stay"
        for total in totals
        if total.known_objects
    ]
