"""The verbs of audits: look, plan what goes, ask, remove."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from include.tiering.audit.context import AuditContext, AuditMoment, PassedOver
from include.tiering.audit.finding import FindingKind
from include.tiering.audit.guards import Refusal
from include.tiering.audit.record_contract import AuditSource, FindingState, RecordedFinding
from include.tiering.audit.removal_contract import RemovalOutcome, RemovalStore
from include.tiering.audit.segment_facts import SegmentFact, SegmentFacts
from include.tiering.audit.whole import gather, judge
from include.tiering.errors import BrokersError, MetadataTopicError, SettingError
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.model.topic_owner import TopicOwner
from include.tiering.observability.audit_metrics import publish_audit
from include.tiering.observability.metrics import process_recorder
from include.tiering.remote_metadata.sql_audit import SqlSegmentFacts
from include.tiering.remote_storage.listing import ListedObject, ListingFacts, ObjectListing
from include.tiering.remote_storage.location import open_inventory, open_listing, open_strays
from include.tiering.remote_storage.strays import StoredStrays
from include.tiering.tasks.audit_brake import apply_removal_brake
from include.tiering.tasks.brake import BrakeReport
from include.tiering.tasks.conclude_audit import AuditEnd, AuditReport, SeenByAudit
from include.tiering.tasks.own_topics import SeenOwners
from include.tiering.tasks.plan_removals import RemovalPlan, plan_removals
from include.tiering.tasks.removal_batch import RemovalBatch, RemovalResult
from include.tiering.tasks.remove_strays import StrayRemover
from include.tiering.wiring.batches import around_deletion, deletion_limits
from include.tiering.wiring.guard_parts import GuardParts
from include.tiering.wiring.ingestion_verbs import IngestionVerbs
from include.tiering.wiring.layouts import form_of
from include.tiering.wiring.unwatched import ignore
from include.tiering.work.deletion_contract import DeletionRun
from include.tiering.work.sql_removals import SqlRemovalStore

_log: Final = logging.getLogger(__name__)
_AUTHOR: Final = "audit"
_RANGES: Final = 8


class AuditVerbs(IngestionVerbs, GuardParts):
    """Removes only what is planned, and only after a person approved the plan."""

    _observe: Callable[[StrEnum, TopicIdPartition, int], None]

    @cached_property
    def removals(self) -> RemovalStore:
        return SqlRemovalStore(self.engine, self.cluster_id)

    @cached_property
    def segment_facts(self) -> SegmentFacts:
        return SqlSegmentFacts(self.engine, self.cluster_id)

    @cached_property
    def object_listing(self) -> ObjectListing[Any]:
        """All that the store holds, now."""
        remote = self.settings.remote_storage
        return open_listing(remote.required_url(), layout=remote.layout, **self._access())

    def listing_of(self, inventory: str | None) -> ObjectListing[Any]:
        """All that the store holds now, or what an S3 Inventory says it held; `inventory` is its manifest.json."""
        if inventory is None:
            return self.object_listing
        return open_inventory(inventory, self.settings.remote_storage.required_url(), **self._access())

    @cached_property
    def strays(self) -> StoredStrays:
        remote = self.settings.remote_storage
        form = form_of(remote)
        return open_strays(
            remote.required_url(), self.require_our_store, layout=remote.layout, form=form, **self._access()
        )

    def audit_moment(self, facts: ListingFacts) -> AuditMoment:
        """Of a listing that begins now, or of one that was taken before; by the database's clock."""
        settings = self.effective_settings()
        listed_at_ms = facts.taken_at_ms if facts.taken_at_ms is not None else self.audits.now_ms()
        return AuditMoment(listed_at_ms, facts.settled_ms, settings.audit.min_age_ms, settings.superseded.hold_ms)

    def audit_context(self, moment: AuditMoment) -> AuditContext:
        """What is known beside objects and segments; to be asked after the segments were read."""
        facts, owners = self.segment_facts, self._seen_owners
        topics = {
            topic_id: replace(topic, owner=owners.owner(Uuid.parse(topic_id)))
            for topic_id, topic in facts.topics().items()
        }
        unread = frozenset((str(one.topic_id), one.partition) for one in self.ingestion.unread())
        read_ms = {(str(one.topic_id), one.partition): at_ms for one, at_ms in self.read_of_brokers().items()}
        return AuditContext(
            moment, self.strays.layout, topics, facts.worked_on(), self.strays.manifest, unread, read_ms
        )

    def audit(
        self,
        run_id: str,
        *,
        listing: ObjectListing[Any] | None = None,
        of_our_store: bool = True,
        on_listed: Callable[[int], None] = ignore,
    ) -> AuditReport:
        """Audit the store in this process, by its own listing or another one of it, and record what was found.

        The listing comes first, then the segments, then who works on them. `on_listed` gets the objects of each page.
        An audit that need not be `of_our_store` reports what it sees there, and refuses every removal.

        Raises:
            ForeignStoreError: the store, or the listing, is not this database's.
        """
        if of_our_store:
            self.require_our_store()
        listed = listing if listing is not None else self.object_listing
        facts, began_at_ms = listed.facts(), self.audits.now_ms()
        moment = self.audit_moment(facts)
        unread = AuditContext(moment, self.strays.layout, {}, frozenset())
        gathered = gather(_counted(listed, on_listed), listed.open_uploads(), unread)
        listing_ended_ms = self._monotonic_ms()
        rows_began_ms = self._monotonic_ms()
        segments = list(self._all_segments())
        result = judge(gathered, segments, self.audit_context(moment))
        return self.conclude_audit(
            SeenByAudit(
                run_id=run_id,
                source=AuditSource.LISTING if facts.taken_at_ms is None else AuditSource.INVENTORY,
                began_at_ms=began_at_ms,
                objects=result.objects,
                rows=result.rows,
                findings=result.findings,
                passed_over=result.passed_over,
                listing_ended_ms=listing_ended_ms,
                rows_began_ms=rows_began_ms,
                covers=covered_kinds(facts),
                seen_at_ms=seen_at_ms(facts),
            )
        )

    def conclude_audit(self, seen: SeenByAudit) -> AuditReport:
        """Look again, guard and record what an audit saw, wherever it looked; see the task. What ended longer ago than
        tombstones are kept is forgotten."""
        seen = self._believed_of_brokers(seen)
        report = AuditEnd(self.audits, self.metadata, self.strays, self.objection_to_store()).conclude(seen)
        ended_seconds, refusals = self.clock.now_ms() / 1000, len(report.record.refusals)
        remembered_ms = self.effective_settings().tombstone.ms
        self.audits.forget(remembered_ms)
        self.removals.forget(remembered_ms)
        publish_audit(process_recorder(), self.audits.findings(), ended_seconds=ended_seconds, refusals=refusals)
        return report

    def _believed_of_brokers(self, seen: SeenByAudit) -> SeenByAudit:
        """An object of a broker's segment may be missing because the broker deleted it a moment ago: what it wrote is
        read before the second look. While that cannot be, nobody can tell."""
        owners = self._seen_owners
        doubtful = [
            one
            for one in seen.findings
            if one.kind is FindingKind.DANGLING_REFERENCE
            and one.topic_id is not None
            and owners.owner(one.topic_id) is TopicOwner.BROKER
        ]
        if not doubtful or self.ingestion.topic() is None:
            return seen
        try:
            if not self.ingest().failed:
                return seen
        except (BrokersError, MetadataTopicError, SettingError) as error:
            _log.warning("what dangles of brokers' topics is not believed: %s", error)
        passed_over = Counter(seen.passed_over)
        passed_over[PassedOver.UNREAD] += len(doubtful)
        kept = [one for one in seen.findings if one not in doubtful]
        return replace(seen, findings=kept, passed_over=passed_over)

    def audit_findings(self, run_id: str) -> Sequence[RecordedFinding]:
        """What this audit saw, as it stands now. Raises StateConflictError if a later one has looked since."""
        return self.audits.seen_by(run_id, tuple(FindingKind))

    def plan_removals(self, run_id: str, audit_run_id: str, *, with_versions: bool = False) -> RemovalPlan:
        """Plan and store what goes of the findings of the last audit. A stored plan removes nothing by itself.

        Raises:
            StateConflictError: there is no such audit, or a later one has looked since.
            ForeignStoreError: the store is not this database's.
        """
        self.claim_store()
        audit = self.audits.audit(audit_run_id)
        seen = self.audits.seen_by(audit_run_id, tuple(FindingKind))
        plan = plan_removals(
            run_id,
            audit_run_id,
            [one.finding for one in seen],
            refusals=audit.refusals or [Refusal(one.guard, one.sentence) for one in self.audits.standing_guards()],
            min_age_ms=self.effective_settings().audit.min_age_ms,
            now_ms=self.audits.now_ms(),
            with_versions=with_versions,
            is_known=self._is_known,
            accepted={one.finding.identity for one in seen if one.state is FindingState.ACCEPTED},
        )
        self.removals.save_plan(run_id, plan.removals)
        return plan

    def stored_removals(self, run_id: str, audit_run_id: str) -> RemovalPlan:
        """A plan as it was stored. Raises StateConflictError if there is none."""
        self.removals.run(run_id)
        return RemovalPlan(run_id, audit_run_id, tuple(item.planned for item in self.removals.items(run_id)))

    def removal_brake(self, run_id: str) -> BrakeReport:
        """What the brake says of a stored plan; with anything in it, it needs an approval."""
        limits = deletion_limits(self.effective_settings())
        return apply_removal_brake(run_id, self.removals, limits, author=_AUTHOR)

    def approve_removals(self, run_id: str, plan_hash: str, *, author: str) -> DeletionRun:
        """Release the run if `plan_hash` is that of its plan. Raises StateConflictError otherwise. A copy of the
        database may have the same plan, so the store is claimed once more."""
        self.claim_store()
        return self.removals.approve(run_id, plan_hash, author=author)

    def remove_batch(
        self,
        run_id: str,
        batch_id: str,
        *,
        pool: str | None = None,
        parent_alive: Callable[[], bool] = lambda: True,
    ) -> RemovalResult:
        """Run one batch of a released run in this process.

        Raises:
            ApprovalRequiredError: the run is not released.
            ForeignStoreError: the store is not this database's.
        """
        self.require_our_store()
        settings = self.effective_settings()
        gate, heartbeat, room = around_deletion(self, settings, run_id, batch_id, pool=pool, parent_alive=parent_alive)
        result = RemovalBatch(
            StrayRemover(self.strays, self.removals, self.audits, self._seen_owners, self._observe),
            self.work,
            self.quotas,
            gate,
            heartbeat,
            room,
            self.clock,
            run_id=run_id,
            batch_id=batch_id,
            lease_ms=settings.copier.lease_ms,
        ).run()
        removed = Counter(
            item.planned.segment_id.topic_id_partition.topic for item in result.of(RemovalOutcome.REMOVED)
        )
        for topic, objects in removed.items():
            process_recorder().strays_removed(topic, objects)
        return result

    @property
    def _seen_owners(self) -> SeenOwners:
        return SeenOwners(self.registry, self.facts, self.cluster_id)

    def _is_known(self, segment_id: RemoteLogSegmentId) -> bool:
        row = self.metadata.segment(segment_id)
        return row is not None and row.metadata.state is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED

    def _all_segments(self) -> Iterator[SegmentFact]:
        for key_range in self.segment_facts.split(_RANGES):
            for page in self.segment_facts.export(key_range):
                yield from page

    def _monotonic_ms(self) -> int:
        return int(self.clock.monotonic() * 1000)


def covered_kinds(facts: ListingFacts) -> frozenset[FindingKind]:
    """What a listing like this can show."""
    hidden: set[FindingKind] = set()
    if not facts.shows_versions:
        hidden |= {FindingKind.OLD_VERSION, FindingKind.DELETE_MARKER}
    if not facts.shows_open_uploads:
        hidden.add(FindingKind.OPEN_MULTIPART_UPLOAD)
    return frozenset(FindingKind) - hidden


def seen_at_ms(facts: ListingFacts) -> int | None:
    """Since when all that a listing of an earlier time shows is so for sure; None for a listing of now."""
    return None if facts.taken_at_ms is None else facts.taken_at_ms - facts.settled_ms


def _counted(listing: ObjectListing[Any], on_listed: Callable[[int], None]) -> Iterator[Sequence[ListedObject]]:
    for part in listing.parts(1):
        for page in listing.pages(part):
            on_listed(len(page))
            yield page
