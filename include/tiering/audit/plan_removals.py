"""Runs that remove objects without metadata: which findings are removed, the contract of such runs, and their limit.

For each segment id without metadata, either all findings of the wanted kinds are planned, or none. Orphans and open
uploads are always wanted; old versions and delete markers only on request. A complete copy (`adoptable` or `duplicate`)
is never removed by these runs: after adoption it is a normal segment, with an owner, a retention and a deletion limit.
Foreign objects are never removed. Planning removes nothing.

A run has one plan. If this plan has removals, the run is released only when a person approves exactly this plan. The
limit that expiration applies to each topic is evaluated too: within 24 hours a topic may lose at most a share of its
bytes, or few bytes whatever their share is (`runs/deletion_limits.py`). The person who is asked for the approval sees
the result. If the metadata has rows of planned segment ids when the limit is evaluated, the person sees this as well:
the objects of these segments stay.

An id is marked for deletion before its objects are removed: from then on no copy and no adoption may begin a segment
under it. Database transactions ensure that an id is either marked or begun, never both. So a copy or an adoption that
was suspended before it wrote its row is refused as long as the mark is kept (see `RemovalStore.forget`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.audit.finding import COMPLETE_COPIES, AuditFinding, FindingIdentity, FindingKind
from include.tiering.audit.record import Refusal
from include.tiering.model.ownership import PartitionLease
from include.tiering.model.reasons import Reason
from include.tiering.model.segments import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.runs.deletion_limits import WINDOW_MS, DeletionLimitReport, DeletionLimits, TopicAction, excesses
from include.tiering.runs.deletion_run import DeletionRun, DeletionRuns, hash_of


@dataclass(frozen=True, slots=True)
class PlannedRemoval:
    """One object, open upload, old version or delete marker to remove, of a segment id without metadata.

    `token` is the upload id of an open upload, and otherwise the version id, which is None if the store keeps no
    versions. `last_modified_ms` is by the store's clock.
    """

    segment_id: RemoteLogSegmentId
    kind: FindingKind
    key: str
    token: str | None
    size_bytes: int
    last_modified_ms: int

    @property
    def finding_identity(self) -> FindingIdentity:
        """Return the identity of the finding that is removed."""
        is_upload = self.kind is FindingKind.OPEN_MULTIPART_UPLOAD
        token = self.token or ""
        return (self.kind.value, self.key, "" if is_upload else token, token if is_upload else "")


class RemovalOutcome(StrEnum):
    """The outcome of a planned removal.

    PLANNED: not done yet, or failed in a way that may pass. REMOVED: this run removed it. GONE: the orphan was absent
    when it was checked again. KEPT: not removed, because the store differs from the plan, the metadata has its segment
    now, the topic has another owner, the run was withdrawn, or it is a delete marker and another removal under its key
    was not done. FAILED: the store refused the removal, the removals of its group failed together for good, or the run
    was withdrawn when a batch may have begun the removal; the next audit finds the object if it still exists.
    """

    PLANNED = "planned"
    REMOVED = "removed"
    GONE = "gone"
    KEPT = "kept"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RemovalItem:
    """A planned removal with its outcome; `message` explains the outcome, None if there is nothing to explain."""

    planned: PlannedRemoval
    outcome: RemovalOutcome
    message: str | None = None


@dataclass(frozen=True, slots=True)
class WithdrawnRemovals:
    """A run that was withdrawn, and its planned removals with their outcomes.

    After a withdrawal the store is claimed for this database, so that a copy of the database is refused. `not_claimed`
    says why this failed: then such a copy may still carry out the same plan. It is None if the store was claimed.
    """

    run: DeletionRun
    items: tuple[RemovalItem, ...]
    not_claimed: str | None = None

    def of(self, *outcomes: RemovalOutcome) -> list[RemovalItem]:
        return [item for item in self.items if item.outcome in outcomes]


@dataclass(frozen=True, slots=True)
class RemovalTotals:
    """The totals of one topic in a run, computed by the database.

    Attributes:
        planned_bytes, planned_objects: of the stored plan.
        known_objects: planned objects of segments that the metadata has now (none should).
        recent_bytes: the bytes that removal runs removed within the requested window, and the bytes of segments that
            the platform deleted: of superseded segments whose deletion ended within the window, and of others whose
            deletion began within it (of segments that were never FINISHED, only those that a run deleted).
        remote_bytes: bytes of the segments that the metadata has now, in any state except a tombstone.
    """

    topic_id: Uuid
    topic: str
    planned_objects: int
    planned_bytes: int
    known_objects: int
    recent_bytes: int
    remote_bytes: int


class RemovalStore(DeletionRuns, Protocol):
    """Runs of one cluster that remove objects without metadata.

    A withdrawal sets removals that are still PLANNED to KEPT, or to FAILED if the id is already marked for deletion,
    because a batch may be removing the object. A withdrawal clears no mark.
    """

    def save_plan(self, run_id: str, removals: Sequence[PlannedRemoval]) -> DeletionRun:
        """Store a plan. Idempotent for one run id and plan; raises StateConflictError if the run has another plan."""
        ...

    def totals(self, run_id: str, *, window_ms: int) -> Sequence[RemovalTotals]:
        """Return totals of the topics in the plan, ordered by name. The window ends now, by the database's clock."""
        ...

    def remaining(self, lease: PartitionLease) -> Sequence[PlannedRemoval]:
        """Return the removals of the leased partition that are still PLANNED, in the order of the plan."""
        ...

    def mark_for_deletion(self, lease: PartitionLease, segment_ids: Collection[RemoteLogSegmentId]) -> frozenset[Uuid]:
        """Mark ids of the leased partition for deletion: until `forget`, no segment may begin under them.

        This is one transaction. Ids that the metadata has in any state except a tombstone are not marked.

        Returns:
            The given ids that are marked now. No object of the other ids may be removed.

        Raises:
            LeaseLostError: the lease is no longer held.
        """
        ...

    def record_outcomes(self, lease: PartitionLease, items: Sequence[RemovalItem]) -> None:
        """Store outcomes of planned removals of the leased partition; an existing outcome stays.

        Raises:
            LeaseLostError: the lease is no longer held.
        """
        ...

    def items(self, run_id: str) -> Sequence[RemovalItem]:
        """Return all planned removals with their outcomes, in the order of the plan."""
        ...

    def forget(self, older_than_ms: int) -> int:
        """Delete the rows of removals whose outcome was stored more than `older_than_ms` ago; return how many.

        The age is in milliseconds, by the database's clock. This deletes their marks too: a segment may begin under
        such an id again, as after a tombstone was deleted.
        """
        ...


def removal_hash(removals: Sequence[PlannedRemoval]) -> str:
    """Return the SHA-256 of a plan's removals, independent of run id and order.

    Plans with equal hashes remove the same objects, with the same lengths and modification times.
    """
    content = sorted(
        [removal.kind.value, removal.key, removal.token or "", removal.size_bytes, removal.last_modified_ms]
        for removal in removals
    )
    return hash_of(content)


ORPHANS_AND_UPLOADS: Final = (FindingKind.OPEN_MULTIPART_UPLOAD, FindingKind.ORPHAN)
VERSIONS: Final = (FindingKind.OLD_VERSION, FindingKind.DELETE_MARKER)
"""The kinds, in the order of removal: if a delete marker were removed first, reads would return an old version."""
_ORDER: Final = {kind: position for position, kind in enumerate((*ORPHANS_AND_UPLOADS, *VERSIONS))}


class Spared(Reason):
    """The reason why a finding of a wanted kind is not in the plan."""

    YOUNG = "young", "an object of its segment is younger than the age guard", True
    AGE_UNKNOWN = "age-unknown", "the age of an object of its segment is unknown"
    KNOWN = "known", "the metadata has its segment"
    ACCEPTED = "accepted", "a finding of its segment was accepted"
    COMPLETE = "complete", "its segment is a complete copy, which no removal run deletes"
    NO_SEGMENT = "no-segment", "its key is not the key of a segment"


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """The removals of one run, ordered by partition and segment.

    `spared` counts, by reason, the findings of the wanted kinds that are not planned; findings of other kinds are not
    counted. With `refusals` both `removals` and `spared` are empty.
    """

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
    """Decide which objects, uploads and versions that an audit found are removed.

    With `refusals` none is removed. A segment id is spared if any of its findings of the wanted kinds is younger than
    `min_age_ms` or has no known age. `now_ms` is the time by the database's clock. `is_known` returns
    whether the metadata has an id in any state except a tombstone; it is not called for ids that only have orphans,
    which have no such row by definition, nor for ids that are spared already. `accepted` are the identities of accepted
    findings.
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
        elif finding.kind in COMPLETE_COPIES:
            kept[segment_id] = Spared.COMPLETE
        elif finding.kind in wanted:
            attempts[segment_id].append(finding)
            if finding.identity in accepted:
                kept.setdefault(segment_id, Spared.ACCEPTED)
    removals: list[PlannedRemoval] = []
    for segment_id, found in sorted(attempts.items(), key=lambda item: _place(item[0])):
        why = kept.get(segment_id) or _too_young(found, now_ms - min_age_ms)
        if why is None and any(finding.kind is not FindingKind.ORPHAN for finding in found) and is_known(segment_id):
            why = Spared.KNOWN
        if why is not None:
            spared[why] += len(found)
            continue
        ordered = sorted(found, key=lambda each: (_ORDER[each.kind], each.key, each.version_id or each.upload_id or ""))
        removals += (_planned(segment_id, each) for each in ordered)
    return RemovalPlan(run_id, audit_run_id, tuple(removals), +spared)


def _segment_id(finding: AuditFinding) -> RemoteLogSegmentId | None:
    if finding.segment_id is None or finding.topic_id is None or finding.partition is None or finding.topic is None:
        return None
    return RemoteLogSegmentId(TopicIdPartition(finding.topic_id, finding.partition, finding.topic), finding.segment_id)


def _too_young(found: Sequence[AuditFinding], newest_ms: int) -> Spared | None:
    """Return why a segment id is spared for its age, None if it is old enough.

    The youngest object decides: its writer may still be running.
    """
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


ALWAYS: Final = "objects without metadata are removed only with an approval"


def apply_removal_limits(
    run_id: str, removals: RemovalStore, limits: DeletionLimits, *, author: str
) -> DeletionLimitReport:
    """Evaluate a stored plan and record the result with the run; a plan with removals always needs an approval.

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
    """Return the removals of the topic. `remote_bytes` lacks the planned objects, which have no metadata: add both."""
    occupied_bytes = totals.remote_bytes + totals.planned_bytes
    return TopicAction(totals.topic_id, totals.topic, totals.planned_bytes, totals.recent_bytes, occupied_bytes)


def _known_by_now(totals: Sequence[RemovalTotals]) -> list[str]:
    return [
        f"{total.topic}: {total.known_objects} of {total.planned_objects} planned objects belong to segments that the"
        " metadata has now, and stay"
        for total in totals
        if total.known_objects
    ]
