"""Whether a run can start, which partitions are ready, and why a topic is not tiered."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from include.tiering.database.migrations import require_head
from include.tiering.errors import AirflowApiError, BrokersError, MetadataUnavailableError, SourceError
from include.tiering.log_source.contract import Replica, ScanReport, UnfinishedTransaction
from include.tiering.log_source.topic_patterns import matches
from include.tiering.model.failed_copies import FailedCopy, by_partition
from include.tiering.model.ids import TopicIdPartition
from include.tiering.pools.contract import COPIER_POOL, EXPIRATION_POOL, READER_POOL
from include.tiering.remote_metadata.contract import LeaseRole
from include.tiering.tasks.copy_plan import CopyPlan
from include.tiering.tasks.diagnose import Diagnosis, Evidence, diagnose
from include.tiering.tasks.handover.watchdog import diagnose_handovers
from include.tiering.tasks.left_damage import with_left_damage
from include.tiering.tasks.partition_readiness import NOTHING_PLANNED, partition_readiness, unread_partitions
from include.tiering.tasks.plan_copy import plan_copy
from include.tiering.tasks.readiness import Readiness, run_checks
from include.tiering.tasks.store_witness import StoreWitness
from include.tiering.tasks.whole_copy import WholeCopy
from include.tiering.wiring.ingestion_verbs import IngestionVerbs
from include.tiering.wiring.name_parts import NameParts
from include.tiering.wiring.pool_verbs import PoolVerbs
from include.tiering.wiring.set_up import HANDOVERS, LEASES, LOG_DIRS, PAUSE, TOPIC_FACTS, readiness_probes
from include.tiering.work.sql_handovers import SqlHandoverStore

_DELETES_WITHOUT: Final = {
    LOG_DIRS: "what was archived outlives its broker; bytes that are not copied yet count as 0, which deletes less",
    TOPIC_FACTS: "what to delete is decided from what the platform recorded itself",
}
_READS_WITHOUT: Final = {
    TOPIC_FACTS: "what is counted, verified and audited is what the platform recorded itself",
    PAUSE: "reading back sends nothing",
}
_DOES_WITHOUT: Final[Mapping[str | None, Mapping[str, str]]] = MappingProxyType(
    {EXPIRATION_POOL: _DELETES_WITHOUT, READER_POOL: _READS_WITHOUT}
)
"""What need not hold for the work behind a pool, and what it means that it does not."""
_NEVER_NEEDED: Final = {
    HANDOVERS: "other topics do not wait for it",
    LEASES: "nothing waits for it, and the next batch that takes the partition ends it",
}


class ReadinessVerbs(PoolVerbs, IngestionVerbs, NameParts):
    """Part of `Tiering`."""

    def require_schema(self) -> None:
        """Raises MetadataUnavailableError unless the database is at the revision of this version."""
        require_head(self.engine)

    def readiness(self, *, pool: str | None = None, topics: Collection[str] | None = None) -> Readiness:
        """Schema, store, log dirs, topic facts, pause and, if one is named, the pool; then partition by partition.

        `pool` says what work is asked about: without one, or with the copier pool, copying; expiration and what reads
        back do without some of it. What reads back leaves out partitions of brokers of which not all is read. Without
        `topics` (patterns) those of `topics.include`, for expiration all that is archived.
        """
        checks = run_checks(
            readiness_probes(self, pool, needs_log_dirs=pool not in _DOES_WITHOUT),
            does_without={**_DOES_WITHOUT.get(pool, {}), **_NEVER_NEEDED},
        )
        if not all(check.holds for check in checks):
            return Readiness(checks)
        if pool == READER_POOL:
            return Readiness(checks, unread_partitions(self.ingestion.unread()), needs_one=False)
        deletes = pool == EXPIRATION_POOL
        wanted = tuple(topics or (("*",) if deletes else self.settings.topics.include))
        report = None if deletes else self.source.scan(topics=wanted)
        partitions = partition_readiness(
            report,
            topics=wanted,
            metadata=self.metadata,
            registry=self.registry,
            facts=self.facts,
            paused=self.work.paused_topics(),
            plan=NOTHING_PLANNED if report is None else self.plan_of(report, "ready", wanted),
            deletions=self.topic_deletions.all(),
            expire_after_days=self.effective_settings().on_topic.expire_after_days,
        )
        # What expires of a paused topic is left for later: no reason to wait with the rest.
        return Readiness(checks, partitions, needs_one=not deletes)

    def plan_of(
        self,
        report: ScanReport,
        run_id: str,
        topics: Collection[str],
        *,
        failed: Mapping[TopicIdPartition, Sequence[FailedCopy]] | None = None,
        limit_bytes: int | None = None,
    ) -> CopyPlan:
        """What a copy of these topics (patterns) would do now, by their scan; every command judges by it. Nothing is
        stored."""
        if failed is None:
            failed = by_partition(self.failed_copies.all())
        return plan_copy(
            run_id,
            self.with_compacted(report, failed),
            metadata=self.metadata,
            registry=self.registry,
            facts=self.facts,
            now_ms=self.deletions.now_ms(),
            topics=topics,
            limit_bytes=limit_bytes,
            placements=self.placements(),
            retentions=self.retentions_of_copies(report),
            failed=failed,
            max_new_copies=self.effective_settings().superseded.max_copies,
            doubt=StoreWitness(self.metadata, lambda: self.storage).doubt_or_error,
            is_whole=lambda row: WholeCopy(self.storage, self.quotas).is_there(row),
        )

    def diagnose(self, topic: str) -> tuple[Diagnosis, ...]:
        """Why this topic (a name) is not tiered; first what a hand-over of it waits for. Nothing is stored."""
        with suppress(MetadataUnavailableError):
            store = SqlHandoverStore(self.engine, self.cluster_id)
            handovers = [one for one in store.open_handovers() if one.topic == topic]
            return (*diagnose_handovers(handovers), *self._diagnose_copies(topic))
        return self._diagnose_copies(topic)

    def _diagnose_copies(self, topic: str) -> tuple[Diagnosis, ...]:
        included = matches(topic, self.settings.topics.include)
        with suppress(AirflowApiError, MetadataUnavailableError):
            self.mirror_pools()
        readiness = self.readiness(pool=COPIER_POOL, topics=(topic,))
        if not readiness.holds:
            nothing = CopyPlan("doctor", (), (), ())
            return diagnose(
                Evidence(topic, included, readiness, nothing, (), self.clock.now_ms(), self._unfinished_transactions)
            )
        report = self.source.scan(topics=(topic,))
        now_ms = self.clock.now_ms()
        failed = by_partition(self.failed_copies.all())
        plan = self.plan_of(report, "doctor", (topic,), failed=failed)
        partitions = [planned.replica_id.topic_id_partition for planned in plan.partitions]
        holders = {partition: self.work.holder(partition, LeaseRole.COPY) for partition in partitions}
        found = diagnose(
            Evidence(
                topic,
                included,
                readiness,
                plan,
                [replica for replica in report.replicas if replica.chosen],
                now_ms,
                self._unfinished_transactions,
                quotas=self.quota_ledger.in_force(),
                workers=len(self.quota_ledger.workers()),
                topic_quotas=self.topic_quotas.report(),
                ahead=self.work.leases_ahead(),
                holders={partition: holder for partition, holder in holders.items() if holder is not None},
            )
        )
        return with_left_damage(found, failed)

    def _unfinished_transactions(self, replica: Replica) -> Sequence[UnfinishedTransaction]:
        """As the leader and the coordinators say, or where they may not be asked, as the log shows; none where the
        replica goes away meanwhile."""
        with suppress(BrokersError):
            if self.has_brokers:
                return [
                    UnfinishedTransaction(one.producer_id, one.start_offset, one.since_ms, one.transactional_id)
                    for one in self.brokers.open_transactions(replica.topic_id_partition)
                ]
        try:
            return self.source.unfinished_transactions(replica.replica_id)
        except SourceError:
            return ()
