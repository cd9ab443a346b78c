"""Remove objects without metadata, partition by partition in groups: the protocol with its crash table, and the batch.

A copy writes its segment's row before the first object. An adoption (a complete copy without a row gets one) writes a
row too, for an id that it names. So an object whose segment id has no row, or only a tombstone, belongs to no segment.
The planned removals of an id are marked before its objects are removed; from then on no copy and no adoption can write
a row with this id (`marked_for_deletion_by` in `database/transactions.py`).

    step        done when it is reached                        a crash right after it leaves          cleaned up by
    CHECKED     the store read again for each segment id; ids  nothing                                -
                with changed or unplanned objects are kept
    MARKED      in one transaction, under the lease: ids that  marked ids, which no segment can get;  A
                have a row other than a tombstone are kept,    all their objects
                the others are marked for deletion
    REMOVED     open multipart uploads, then objects, then     marked ids without objects; their      A
                old versions, then delete markers              removals are still PLANNED
    RECORDED    outcomes stored with the plan; the audit's     nothing                                -
                findings of done removals set to ACTED

A: the same run, started again, continues with the removals that are still PLANNED; or the next audit finds what is left
   in the store, and its plan removes that. Both tolerate absent objects.

A batch claims a partition in the role to expire, does the partition's planned removals in groups, releases the lease
and takes the next partition, as the batch of `expiration.delete_segments` does. Before each group the batch waits while
the partition's topic or all topics are paused. It takes one request from the delete quota for a group, also if the
group needs several requests. It never waits for a copy, and no copy waits for it. A batch that is killed leaves a
lease, which expires, and its last group in one of the states that the table describes.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from include.tiering.audit.finding import FindingKind
from include.tiering.audit.plan_removals import PlannedRemoval, RemovalItem, RemovalOutcome, RemovalStore
from include.tiering.audit.record import AuditStore
from include.tiering.clock import Clock
from include.tiering.errors import ApprovalRequiredError, TieringError
from include.tiering.model.ownership import PartitionLease, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentId, TopicIdPartition
from include.tiering.quotas.contract import Quotas
from include.tiering.remote_storage.object_store import SeenObject
from include.tiering.remote_storage.orphan_objects import NO_VERSION, Orphan, OrphanKind, OrphanStorage
from include.tiering.runs.batch import BatchEnd, BatchLoop
from include.tiering.segments.topics import Owners
from include.tiering.telemetry import for_partition, get_logger

ATTEMPTS_PER_GROUP: Final = 333
"""Segment ids per group. With three objects each (log, indexes, manifest) they have 999 keys, which S3 deletes in one
request; a group with more keys takes more requests."""

_OURS: Final = (TopicOwner.PLATFORM, TopicOwner.NONE)
_CHECKS_AT_ONCE: Final = 8
_REMOVAL: Final[Mapping[FindingKind, OrphanKind]] = {
    FindingKind.ORPHAN: OrphanKind.OBJECT,
    FindingKind.OPEN_MULTIPART_UPLOAD: OrphanKind.UPLOAD,
    FindingKind.OLD_VERSION: OrphanKind.VERSION,
    FindingKind.DELETE_MARKER: OrphanKind.VERSION,
}
_MS_PER_SECOND: Final = 1000
_log: Final = get_logger(__name__)


class RemovalStep(StrEnum):
    """The steps of the protocol, in order.

    Each is reported to `OrphanRemover.observe` when it is done, with the number of the group's planned removals.
    """

    CHECKED = "checked again"
    MARKED = "ids marked for deletion"
    REMOVED = "objects removed"
    RECORDED = "outcomes recorded"


RemovalObserver = Callable[[RemovalStep, TopicIdPartition, int], None]
Attempt = tuple[RemoteLogSegmentId, Sequence[PlannedRemoval]]


@dataclass(frozen=True, slots=True)
class RemovedGroup:
    """The outcomes of a group. Removals in `waiting` failed, may succeed if they are tried again, and stay PLANNED."""

    items: tuple[RemovalItem, ...]
    waiting: tuple[RemovalItem, ...]


@dataclass(frozen=True, slots=True)
class OrphanRemover:
    """Removes the objects of one group per call. Methods may raise LeaseLostError and MetadataUnavailableError."""

    storage: OrphanStorage
    removals: RemovalStore
    audits: AuditStore
    registry: Owners
    observe: RemovalObserver

    def is_ours(self, lease: PartitionLease, planned: Sequence[PlannedRemoval]) -> bool:
        """Return whether the topic's owner is the platform or no one; otherwise record all of `planned` as kept."""
        owner = self.registry.owner(lease.fence.topic_id_partition.topic_id)
        if owner in _OURS:
            return True
        self._record(lease, [_kept(removal, f"the topic's owner is now: {owner}") for removal in planned])
        return False

    def remove(self, lease: PartitionLease, planned: Sequence[PlannedRemoval]) -> RemovedGroup:
        """Do the planned removals of at most `ATTEMPTS_PER_GROUP` segment ids of the leased partition.

        Raises:
            RemoteStorageError: a request to the store failed as a whole. No outcome of the group was recorded: all of
                it is still PLANNED, although some of its objects may have been removed.
        """
        partition = lease.fence.topic_id_partition
        pending, items = self._check_again(planned)
        self.observe(RemovalStep.CHECKED, partition, len(planned))
        marked = (
            self.removals.mark_for_deletion(lease, {removal.segment_id for removal in pending})
            if pending
            else frozenset()
        )
        self.observe(RemovalStep.MARKED, partition, len(planned))
        known = [removal for removal in pending if removal.segment_id.id not in marked]
        items += (_kept(removal, "the metadata has its segment") for removal in known)
        tried = self._remove([removal for removal in pending if removal.segment_id.id in marked])
        self.observe(RemovalStep.REMOVED, partition, len(planned))
        waiting = tuple(item for item in tried if item.outcome is RemovalOutcome.PLANNED)
        settled = (*items, *(item for item in tried if item.outcome is not RemovalOutcome.PLANNED))
        self._record(lease, settled)
        self.observe(RemovalStep.RECORDED, partition, len(planned))
        return RemovedGroup(settled, waiting)

    def _check_again(self, planned: Sequence[PlannedRemoval]) -> tuple[list[PlannedRemoval], list[RemovalItem]]:
        """Return the removals that are unchanged since the plan, and the outcomes of the others."""
        attempts = by_attempt(planned)
        with ThreadPoolExecutor(_CHECKS_AT_ONCE, "check-again") as threads:
            seen = list(threads.map(lambda attempt: self._all_of(attempt[1]), attempts))
        pending: list[PlannedRemoval] = []
        items: list[RemovalItem] = []
        for (_, removals), found in zip(attempts, seen, strict=True):
            if (why := _changed(removals, found)) is not None:
                items += (_kept(removal, why) for removal in removals)
                continue
            for removal in removals:
                if removal.kind is FindingKind.ORPHAN and removal.key not in found:
                    items.append(RemovalItem(removal, RemovalOutcome.GONE, "was gone already"))
                else:
                    pending.append(removal)
        return pending, items

    def _all_of(self, planned: Sequence[PlannedRemoval]) -> Mapping[str, SeenObject]:
        """Return the objects that the store has of one segment id, for each key (without its suffix) in the plan."""
        places = {removal.key.rpartition(".")[0]: removal.key for removal in planned}
        return {key: seen for named in places.values() for key, seen in self.storage.attempt(named).items()}

    def _remove(self, pending: Sequence[PlannedRemoval]) -> list[RemovalItem]:
        """Remove delete markers last, and only if every other planned removal under the same key was done."""
        markers = [removal for removal in pending if removal.kind is FindingKind.DELETE_MARKER]
        items = self._remove_at_once([removal for removal in pending if removal.kind is not FindingKind.DELETE_MARKER])
        hidden = {item.planned.key for item in items if item.outcome is not RemovalOutcome.REMOVED}
        items += (_kept(marker, "the key still has an old version") for marker in markers if marker.key in hidden)
        return items + self._remove_at_once([marker for marker in markers if marker.key not in hidden])

    def _remove_at_once(self, pending: Sequence[PlannedRemoval]) -> list[RemovalItem]:
        if not pending:
            return []
        orphans = {_orphan(removal): removal for removal in pending}
        failures = {failure.orphan: failure for failure in self.storage.remove(tuple(orphans))}
        items = []
        for orphan, removal in orphans.items():
            failure = failures.get(orphan)
            if failure is None:
                items.append(RemovalItem(removal, RemovalOutcome.REMOVED))
            else:
                outcome = RemovalOutcome.PLANNED if failure.retriable else RemovalOutcome.FAILED
                items.append(RemovalItem(removal, outcome, failure.message))
        return items

    def _record(self, lease: PartitionLease, items: Sequence[RemovalItem]) -> None:
        self.removals.record_outcomes(lease, items)
        removed = [item.planned.finding_identity for item in items if item.outcome is RemovalOutcome.REMOVED]
        self.audits.acted(removed)


def by_attempt(planned: Sequence[PlannedRemoval]) -> list[Attempt]:
    """Group removals by segment id; ids and the removals of an id stay in the order of `planned`."""
    attempts: dict[RemoteLogSegmentId, list[PlannedRemoval]] = defaultdict(list)
    for removal in planned:
        attempts[removal.segment_id].append(removal)
    return list(attempts.items())


def _changed(planned: Sequence[PlannedRemoval], found: Mapping[str, SeenObject]) -> str | None:
    """Return why a segment id must be kept, None if it may be removed.

    The id is kept if an object was written again, is not planned, or is an old version that became current again.
    """
    orphans = {removal.key: removal for removal in planned if removal.kind is FindingKind.ORPHAN}
    versions = {
        (removal.key, removal.token)
        for removal in planned
        if removal.kind in (FindingKind.OLD_VERSION, FindingKind.DELETE_MARKER)
    }
    for key, seen in found.items():
        if (key, seen.version_id) in versions:
            return f"the planned version of {key} is the current object again"
        if key not in orphans:
            return f"the store has {key}, which was not planned"
        if not _is_same(orphans[key], seen):
            return f"{key} was written again after the plan"
    return None


def _is_same(planned: PlannedRemoval, seen: SeenObject) -> bool:
    """Return whether an object has the planned size, time of writing and, if the plan has one, version.

    Whole seconds are compared, because some stores answer without milliseconds.
    """
    same_time = planned.last_modified_ms // _MS_PER_SECOND == seen.last_modified_ms // _MS_PER_SECOND
    same_version = planned.token is None or planned.token == seen.version_id
    return same_time and same_version and planned.size_bytes == seen.size_bytes


def _orphan(planned: PlannedRemoval) -> Orphan:
    """Convert a removal.

    An object is removed without its version id, so a bucket with versions keeps it below a delete marker. The next
    audit reports both, and a removal of old versions can be planned.
    """
    kind = _REMOVAL[planned.kind]
    return Orphan(kind, planned.key, NO_VERSION if kind is OrphanKind.OBJECT else planned.token or NO_VERSION)


def _kept(planned: PlannedRemoval, why: str) -> RemovalItem:
    return RemovalItem(planned, RemovalOutcome.KEPT, why)


@dataclass(frozen=True, slots=True)
class RemovalResult:
    """The outcomes of one batch.

    Removals in `waiting` failed, may succeed later, and stay PLANNED. The batch may have left others PLANNED untried.
    """

    items: tuple[RemovalItem, ...]
    waiting: tuple[RemovalItem, ...]
    seconds: float
    ended: BatchEnd

    def of(self, outcome: RemovalOutcome) -> list[RemovalItem]:
        return [item for item in self.items if item.outcome is outcome]


class RemovalBatch:
    """One batch of a run that is released, which means that a person approved its plan; `run` is called once.

    `require_allowed` is called before each group and raises DatabaseSetBackError while an objection of a guard is
    active (see `audit.record`).
    """

    def __init__(
        self,
        remover: OrphanRemover,
        quotas: Quotas,
        loop: BatchLoop,
        require_allowed: Callable[[], None],
        clock: Clock,
        *,
        run_id: str,
        batch_id: str,
        lease_ms: int,
        attempts_per_group: int = ATTEMPTS_PER_GROUP,
    ) -> None:
        self._remover = remover
        self._quotas = quotas
        self._loop = loop
        self._require_allowed = require_allowed
        self._clock = clock
        self._run_id = run_id
        self._batch_id = batch_id
        self._lease_ms = lease_ms
        self._attempts_per_group = attempts_per_group
        self._items: list[RemovalItem] = []
        self._waiting: list[RemovalItem] = []

    def run(self) -> RemovalResult:
        """Claim partitions and do their planned removals, until `BatchLoop.pull` has a reason to end.

        Raises:
            ApprovalRequiredError: the run is not released.
            RunWithdrawnError: the run was withdrawn.
            DatabaseSetBackError: a guard became active during the batch; the rest stays planned.
            StateConflictError: no such run was planned.
        """
        removals = self._remover.removals
        run = removals.run(self._run_id)
        run.require_not_withdrawn()
        if not run.is_released:
            raise ApprovalRequiredError(
                f"run {self._run_id}: nothing is removed before plan {run.plan_hash} is approved"
            )
        started = self._clock.monotonic()
        with self._loop.heartbeat:
            ended = self._loop.pull(
                self._claim,
                self._work_on,
                has_work=lambda: removals.has_work(self._run_id),
                is_withdrawn=lambda: removals.run(self._run_id).withdrawal is not None,
            )
        return RemovalResult(tuple(self._items), tuple(self._waiting), self._clock.monotonic() - started, ended)

    def _claim(self, excluded: Set[TopicIdPartition]) -> PartitionLease | None:
        return self._remover.removals.claim(self._run_id, self._batch_id, lease_ms=self._lease_ms, exclude=excluded)

    def _work_on(self, lease: PartitionLease) -> None:
        planned = self._remover.removals.remaining(lease)
        self._loop.heartbeat.add_planned(sum(removal.size_bytes for removal in planned))
        limiter = self._quotas.delete(lease.fence.topic_id_partition.topic, go_on=self._loop.cancellation.check)
        groups = deque(self._groups(planned))

        def remove_next() -> bool:
            limiter.take()
            self._require_allowed()
            return self._remover.is_ours(lease, planned) and self._remove(lease, groups.popleft()) and bool(groups)

        if groups:
            self._loop.in_groups(remove_next)

    def _groups(self, planned: Sequence[PlannedRemoval]) -> Iterator[list[PlannedRemoval]]:
        attempts = by_attempt(planned)
        for first in range(0, len(attempts), self._attempts_per_group):
            yield [each for _, removals in attempts[first : first + self._attempts_per_group] for each in removals]

    def _remove(self, lease: PartitionLease, group: Sequence[PlannedRemoval]) -> bool:
        """Remove a group; return whether the batch continues with this partition.

        It leaves the partition after an error, or if a failed removal may succeed later.
        """
        partition = lease.fence.topic_id_partition
        with self._loop.setting_aside(partition, lambda error: self._give_up(lease, group, error)):
            outcome = self._remover.remove(lease, group)
            self._items.extend(outcome.items)
            self._loop.heartbeat.add_done(sum(item.planned.size_bytes for item in outcome.items))
            self._waiting.extend(outcome.waiting)
            if outcome.waiting:
                self._loop.set_aside.add(partition)
        return partition not in self._loop.set_aside

    def _give_up(self, lease: PartitionLease, group: Sequence[PlannedRemoval], error: TieringError) -> None:
        """Record all removals of the group as FAILED; after a retriable error they stay PLANNED instead."""
        for_partition(_log, lease.fence.topic_id_partition).warning("removal stopped: %s", error)
        outcome = RemovalOutcome.PLANNED if error.retriable else RemovalOutcome.FAILED
        failed = [RemovalItem(removal, outcome, f"{type(error).__name__}: {error}") for removal in group]
        settled, waiting = ([], failed) if error.retriable else (failed, [])
        self._remover.removals.record_outcomes(lease, settled)
        self._items.extend(settled)
        self._waiting.extend(waiting)
