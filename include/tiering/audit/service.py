"""The service of audits: compare the store with the metadata, plan removals, record approvals, and remove objects."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from include.tiering.audit.compare import classify, gather
from include.tiering.audit.conclude_audit import AuditEnd, AuditReport, SeenByAudit
from include.tiering.audit.finding import (
    AuditContext,
    AuditedMetadata,
    AuditedSegment,
    AuditMoment,
    FindingKind,
    PassedOver,
)
from include.tiering.audit.metrics import count_removed, publish_audit
from include.tiering.audit.plan_removals import (
    RemovalOutcome,
    RemovalPlan,
    RemovalStore,
    WithdrawnRemovals,
    apply_removal_limits,
    plan_removals,
)
from include.tiering.audit.record import (
    ActiveGuards,
    AuditSource,
    AuditStore,
    FindingState,
    Guard,
    RecordedFinding,
    Refusal,
)
from include.tiering.audit.remove_orphans import OrphanRemover, RemovalBatch, RemovalResult
from include.tiering.clock import Clock
from include.tiering.errors import BrokersError, MetadataTopicError, SettingError
from include.tiering.kafka.cluster.contract import ClusterMetadata
from include.tiering.metadata_sync.service import IngestionService
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentState, Uuid
from include.tiering.quotas.contract import Quotas
from include.tiering.remote_storage.object_store import ListedObject, ListingProperties, ObjectListing
from include.tiering.remote_storage.orphan_objects import StoredOrphans
from include.tiering.remote_storage.store_ownership import StoreOwnership
from include.tiering.runs.contract import WorkStore
from include.tiering.runs.database_clock import ClockGuard, clock_contradiction
from include.tiering.runs.deletion_limits import DeletionLimitReport, deletion_limits
from include.tiering.runs.deletion_run import DeletionRun, deletion_loop
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.ingestion_contract import MetadataIngestion
from include.tiering.segments.topics import SeenOwners
from include.tiering.settings import TieringSettings
from include.tiering.telemetry.metrics import MetricsRecorder, RunKind, StepObserver, ignore

_log: Final = logging.getLogger(__name__)
_AUTHOR: Final = "audit"
_RANGES: Final = 8


class AuditService:
    """Runs audits, and removes only planned objects, after a person approved the plan.

    Args:
        listing: returns the current listing of the store.
        inventory: returns the listing of an S3 Inventory, by its manifest.json.
        orphans: returns access to objects without metadata, for reading and removing them.
        effective: the settings overridden by the current dynamic configs.
        clocks: returns a guard that compares the database's clock with others whenever it is asked to.
        observe: called after each step of a removal.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        listing: Callable[[], ObjectListing[Any]],
        inventory: Callable[[str], ObjectListing[Any]],
        orphans: Callable[[], StoredOrphans],
        quotas: Callable[[], Quotas],
        audits: AuditStore,
        removals: RemovalStore,
        audited_metadata: AuditedMetadata,
        metadata: RemoteLogMetadata,
        registry: TopicRegistry,
        ingestion: MetadataIngestion,
        ingest: IngestionService,
        work: WorkStore,
        cluster_metadata: Callable[[], ClusterMetadata],
        ownership: StoreOwnership,
        guards: ActiveGuards,
        effective: Callable[[], TieringSettings],
        clocks: Callable[[], ClockGuard],
        recorder: MetricsRecorder,
        clock: Clock,
        observe: StepObserver,
    ) -> None:
        self._cluster_id = cluster_id
        self._listing = listing
        self._inventory = inventory
        self._orphans = orphans
        self._quotas = quotas
        self._audits = audits
        self._removals = removals
        self._audited_metadata = audited_metadata
        self._metadata = metadata
        self._registry = registry
        self._ingestion = ingestion
        self._ingest = ingest
        self._work = work
        self._cluster_metadata = cluster_metadata
        self._ownership = ownership
        self._guards = guards
        self._effective = effective
        self._clocks = clocks
        self._recorder = recorder
        self._clock = clock
        self._observe = observe

    def listing_of(self, inventory: str | None) -> ObjectListing[Any]:
        """Return the store's listing, or that of the S3 Inventory with this manifest.json (a path or URL)."""
        return self._listing() if inventory is None else self._inventory(inventory)

    def moment(self, properties: ListingProperties, began_at_ms: int) -> AuditMoment:
        """Return the time of a listing, and the ages that classification compares with it.

        A listing that begins now has the time `began_at_ms`, an S3 Inventory the earlier time at which it was made.
        `began_at_ms` is the present time by the database's clock. The caller reads that clock only once, because it may
        jump between two readings.
        """
        settings = self._effective()
        listed_at_ms = began_at_ms if properties.taken_at_ms is None else min(properties.taken_at_ms, began_at_ms)
        return AuditMoment(listed_at_ms, properties.settled_ms, settings.audit.min_age_ms, settings.superseded.hold_ms)

    def context(self, moment: AuditMoment) -> AuditContext:
        """Return what classification needs besides objects and segments. Call it after the segments were read."""
        segments, owners = self._audited_metadata, self._seen_owners
        topics = {
            topic_id: replace(topic, owner=owners.owner(Uuid.parse(topic_id)))
            for topic_id, topic in segments.topics().items()
        }
        unread = frozenset((str(partition.topic_id), partition.partition) for partition in self._ingestion.unread())
        read_ms = {
            (str(partition.topic_id), partition.partition): at_ms
            for partition, at_ms in self._ingest.read_of_brokers().items()
        }
        store = self._orphans()
        return AuditContext(moment, store.layout, topics, segments.leased_partitions(), store.manifest, unread, read_ms)

    def run(
        self,
        run_id: str,
        *,
        listing: ObjectListing[Any] | None = None,
        of_our_store: bool = True,
        on_listed: Callable[[int], None] = ignore,
    ) -> AuditReport:
        """Audit the store in this process and record the findings.

        The listing is read first, then the segments, then the leases.

        Args:
            run_id: the id of the audit.
            listing: a listing of the store; None: list it now.
            of_our_store: if True, the audit does not begin unless the store is this database's; if False, an audit of
                another database's store is recorded too, with an objection of FOREIGN_STORE, which forbids removals.
            on_listed: called after each page of the listing with the number of its objects.

        Raises:
            ForeignStoreError: `of_our_store` is True, and the store is not this database's; or, in both cases, the
                listing has no marker object.
        """
        if of_our_store:
            self._ownership.require()
        listed = listing if listing is not None else self._listing()
        properties, began_at_ms = listed.properties(), self._audits.now_ms()
        moment = self.moment(properties, began_at_ms)
        unread = AuditContext(moment, self._orphans().layout, {}, frozenset())
        gathered = gather(_counted(listed, on_listed), listed.open_uploads(), unread)
        listing_ended_ms = self._monotonic_ms()
        rows_began_ms = self._monotonic_ms()
        segments = list(self._all_segments())
        result = classify(gathered, segments, self.context(moment))
        return self.conclude(
            SeenByAudit(
                run_id=run_id,
                source=AuditSource.LISTING if properties.taken_at_ms is None else AuditSource.INVENTORY,
                began_at_ms=began_at_ms,
                objects=result.objects,
                rows=result.rows,
                findings=result.findings,
                passed_over=result.passed_over,
                listing_ended_ms=listing_ended_ms,
                rows_began_ms=rows_began_ms,
                covers=covered_kinds(properties),
                seen_at_ms=seen_at_ms(properties),
            )
        )

    def conclude(self, seen: SeenByAudit) -> AuditReport:
        """Check findings again, evaluate the guards and record an audit; see `AuditEnd`.

        Afterwards old rows are deleted, unless the guard CLOCK_DISAGREES objects: audits except the last one, findings
        that are GONE or ACTED, and removals that have an outcome, each if that is older than `tiering.tombstone.ms`.
        """
        seen = self._believed_of_brokers(seen)
        report = AuditEnd(
            self._audits,
            self._metadata,
            self._orphans(),
            self._ownership.objection(),
            clock_contradiction(self._clocks(), seen.began_at_ms),
        ).conclude(seen)
        ended_seconds, refusals = self._clock.now_ms() / 1000, len(report.record.refusals)
        keep_ms = self._effective().tombstone.ms
        if not any(refusal.guard is Guard.CLOCK_DISAGREES for refusal in report.record.refusals):
            self._audits.forget(keep_ms)
            self._removals.forget(keep_ms)
        publish_audit(self._recorder, self._audits.findings(), ended_seconds=ended_seconds, refusals=refusals)
        self._recorder.ended(RunKind.AUDIT)
        return report

    def _believed_of_brokers(self, seen: SeenByAudit) -> SeenByAudit:
        """Read the brokers' newest records before dangling references of brokers' topics are checked again.

        A broker may just have deleted the missing object, and its record of this may not have been read yet. If the
        records cannot be read now, it stays unknown whether it did: these findings are dropped, and counted as UNREAD.
        A database that has never read the brokers' metadata topic does not read it here: it keeps the findings.
        """
        owners = self._seen_owners
        doubtful = [
            finding
            for finding in seen.findings
            if finding.kind is FindingKind.DANGLING_REFERENCE
            and finding.topic_id is not None
            and owners.owner(finding.topic_id) is TopicOwner.BROKER
        ]
        if not doubtful or self._ingestion.topic() is None:
            return seen
        try:
            if not self._ingest.run().failed:
                return seen
        except (BrokersError, MetadataTopicError, SettingError) as error:
            _log.warning("brokers' records were not read, their dangling references are not reported: %s", error)
        passed_over = Counter(seen.passed_over)
        passed_over[PassedOver.UNREAD] += len(doubtful)
        kept = [finding for finding in seen.findings if finding not in doubtful]
        return replace(seen, findings=kept, passed_over=passed_over)

    def findings(self, run_id: str) -> Sequence[RecordedFinding]:
        """Return this audit's findings as they are now. Raises StateConflictError unless this audit is the last."""
        return self._audits.seen_by(run_id, tuple(FindingKind))

    def plan_removals(self, run_id: str, audit_run_id: str, *, with_versions: bool = False) -> RemovalPlan:
        """Plan the removals for the findings of the last audit and store the plan, which removes nothing by itself.

        Args:
            run_id: the run that gets the plan.
            audit_run_id: the last audit.
            with_versions: also plan old versions and delete markers.

        Raises:
            StateConflictError: there is no such audit, a later one has ended since, or the run has another plan.
            ForeignStoreError: the store is not this database's.
            ClockDisagreesError: another clock, or an event in the database, contradicts the database's clock.
            RemoteStorageUnavailableError: the store does not answer, so its clock cannot be compared.
        """
        self._ownership.claim()
        clocks = self._clocks()
        clocks.require()
        audit = self._audits.audit(audit_run_id)
        seen = self._audits.seen_by(audit_run_id, tuple(FindingKind))
        plan = plan_removals(
            run_id,
            audit_run_id,
            [recorded.finding for recorded in seen],
            refusals=audit.refusals
            or [Refusal(active.guard, active.objection) for active in self._audits.active_guards()],
            min_age_ms=self._effective().audit.min_age_ms,
            now_ms=clocks.now_ms(),
            with_versions=with_versions,
            is_known=self._is_known,
            accepted={recorded.finding.identity for recorded in seen if recorded.state is FindingState.ACCEPTED},
        )
        self._removals.save_plan(run_id, plan.removals)
        return plan

    def stored_removals(self, run_id: str, audit_run_id: str) -> RemovalPlan:
        """Return the removals of the run's stored plan. Raises StateConflictError if no such run was planned."""
        self._removals.run(run_id)
        return RemovalPlan(run_id, audit_run_id, tuple(item.planned for item in self._removals.items(run_id)))

    def apply_removal_limits(self, run_id: str) -> DeletionLimitReport:
        """Apply the deletion limits to a stored plan and record the result; a plan with removals needs an approval."""
        limits = deletion_limits(self._effective())
        return apply_removal_limits(run_id, self._removals, limits, author=_AUTHOR)

    def approve_removals(self, run_id: str, plan_hash: str, *, author: str) -> DeletionRun:
        """Release the run if `plan_hash` is that of its plan; otherwise raise StateConflictError.

        A withdrawn run is not released: RunWithdrawnError is raised. A copy of the database may have the same plan.
        Therefore the store's generation is raised first, so that the store refuses this copy. An audit may have raised
        an objection since the plan: while a guard is active (see `record`), DatabaseSetBackError is raised.
        """
        self._ownership.claim()
        self._guards.require_deletion_allowed()
        return self._removals.approve(run_id, plan_hash, author=author)

    def withdraw_removals(self, run_id: str, *, author: str) -> WithdrawnRemovals:
        """Withdraw a run for good: nothing more of it is removed. Idempotent.

        A running batch stops before its next group. A copy of the database may have the same released plan. Therefore
        the store's generation is raised after the withdrawal, so that the store refuses this copy. If that fails, the
        run is withdrawn all the same, and `not_claimed` of the result says why it failed.

        Raises:
            StateConflictError: no such run was planned.
        """
        run = self._removals.withdraw(run_id, author=author)
        return WithdrawnRemovals(run, tuple(self._removals.items(run_id)), self._ownership.claim_if_possible())

    def run_removal_batch(
        self,
        run_id: str,
        batch_id: str,
        *,
        pool: str | None = None,
        parent_alive: Callable[[], bool] = lambda: True,
    ) -> RemovalResult:
        """Run one batch of a released run in this process.

        Args:
            run_id: the run.
            batch_id: the id of the batch. A batch takes over the leases of an earlier process with the same id.
            pool: the Airflow pool of the batch, which ends once the pool has no slot for it; None: it has no pool.
            parent_alive: returns whether the process that started this one still runs; if not, the batch ends.

        Raises:
            ApprovalRequiredError: the run is not released.
            RunWithdrawnError: the run was withdrawn.
            StateConflictError: no such run was planned.
            ForeignStoreError: the store is not this database's.
            DatabaseSetBackError: a guard is active, or became active during the batch; the rest stays planned.
        """
        self._ownership.require()
        self._guards.require_deletion_allowed()
        settings = self._effective()
        loop = deletion_loop(self._work, self._clock, settings, run_id, batch_id, pool=pool, parent_alive=parent_alive)
        result = RemovalBatch(
            OrphanRemover(self._orphans(), self._removals, self._audits, self._seen_owners, self._observe),
            self._quotas(),
            loop,
            self._guards.require_deletion_allowed,
            self._clock,
            run_id=run_id,
            batch_id=batch_id,
            lease_ms=settings.copier.lease_ms,
        ).run()
        removed = Counter(
            item.planned.segment_id.topic_id_partition.topic for item in result.of(RemovalOutcome.REMOVED)
        )
        for topic, objects in removed.items():
            count_removed(self._recorder, topic, objects)
        return result

    @property
    def _seen_owners(self) -> SeenOwners:
        return SeenOwners(self._registry, self._cluster_metadata(), self._cluster_id)

    def _is_known(self, segment_id: RemoteLogSegmentId) -> bool:
        row = self._metadata.segment(segment_id)
        return row is not None and row.metadata.state is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED

    def _all_segments(self) -> Iterator[AuditedSegment]:
        for key_range in self._audited_metadata.split(_RANGES):
            for page in self._audited_metadata.export(key_range):
                yield from page

    def _monotonic_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


def covered_kinds(properties: ListingProperties) -> frozenset[FindingKind]:
    """Return the kinds of findings that the listing can show."""
    hidden: set[FindingKind] = set()
    if not properties.shows_versions:
        hidden |= {FindingKind.OLD_VERSION, FindingKind.DELETE_MARKER}
    if not properties.shows_open_uploads:
        hidden.add(FindingKind.OPEN_MULTIPART_UPLOAD)
    return frozenset(FindingKind) - hidden


def seen_at_ms(properties: ListingProperties) -> int | None:
    """Return the time (exclusive) up to which an S3 Inventory has all changes; None for a listing that begins now."""
    return None if properties.taken_at_ms is None else properties.taken_at_ms - properties.settled_ms


def _counted(listing: ObjectListing[Any], on_listed: Callable[[int], None]) -> Iterator[Sequence[ListedObject]]:
    for part in listing.parts(1):
        for page in listing.pages(part):
            on_listed(len(page))
            yield page
