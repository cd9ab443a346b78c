"""Whether a run can start, which partitions are ready, and why a topic is not tiered."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from sqlalchemy import Engine

from include.tiering.clock import Clock
from include.tiering.configs.pools import COPIER_POOL, EXPIRATION_POOL, READER_POOL
from include.tiering.copying.plan import CopyPlan
from include.tiering.copying.plan_copy import CopyPlanner
from include.tiering.database.migrations import require_head
from include.tiering.errors import AirflowApiError, BrokersError, MetadataUnavailableError, SourceError
from include.tiering.kafka.cluster.contract import Brokers, ClusterFacts
from include.tiering.kafka.log_dirs.contract import LogSource, Replica, UnfinishedTransaction, matches
from include.tiering.model.ownership import LeaseRole
from include.tiering.operations.checks import (
    HANDOVERS,
    LEASES,
    LOG_DIRS,
    PAUSE,
    TOPIC_FACTS,
    ClusterStores,
    DeploymentChecks,
)
from include.tiering.operations.diagnose import Diagnosis, Evidence, diagnose
from include.tiering.operations.diagnose_handovers import diagnose_handovers
from include.tiering.operations.left_damage import with_left_damage
from include.tiering.operations.partition_readiness import NOTHING_PLANNED, partition_readiness, unread_partitions
from include.tiering.operations.readiness import Readiness, run_checks
from include.tiering.quotas.contract import QuotaLedger
from include.tiering.quotas.topic_quotas import TopicQuotas
from include.tiering.segments.failed_copies import by_partition
from include.tiering.settings import TieringSettings

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


class OperationsService:
    """Answers `ready` and `doctor`. Nothing is stored.

    What it asks is opened by the call that asks: a deployment that is not set up has an answer, too.

    Args:
        brokers: those of the cluster; None where the settings name none.
        effective: the settings with the dynamic configs of now over them.
        mirror_pools: asks Airflow for the sizes of its pools.
    """

    def __init__(
        self,
        *,
        settings: TieringSettings,
        engine: Callable[[], Engine],
        stores: Callable[[], ClusterStores],
        source: Callable[[], LogSource],
        facts: Callable[[], ClusterFacts],
        brokers: Callable[[], Brokers] | None,
        planner: Callable[[], CopyPlanner],
        checks: DeploymentChecks,
        ledger: Callable[[], QuotaLedger],
        topic_quotas: Callable[[], TopicQuotas],
        effective: Callable[[], TieringSettings],
        mirror_pools: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._stores = stores
        self._source = source
        self._facts = facts
        self._brokers = brokers
        self._planner = planner
        self._checks = checks
        self._ledger = ledger
        self._topic_quotas = topic_quotas
        self._effective = effective
        self._mirror_pools = mirror_pools
        self._clock = clock

    def require_schema(self) -> None:
        """Raises MetadataUnavailableError unless the database is at the revision of this version."""
        require_head(self._engine())

    def ready(self, *, pool: str | None = None, topics: Collection[str] | None = None) -> Readiness:
        """Schema, store, log dirs, topic facts, pause and, if one is named, the pool; then partition by partition.

        `pool` says what work is asked about: without one, or with the copier pool, copying; expiration and what reads
        back do without some of it. What reads back leaves out partitions of brokers of which not all is read. Without
        `topics` (patterns) those of `topics.include`, for expiration all that is archived.
        """
        checks = run_checks(
            self._checks.probes(pool, needs_log_dirs=pool not in _DOES_WITHOUT),
            does_without={**_DOES_WITHOUT.get(pool, {}), **_NEVER_NEEDED},
        )
        if not all(check.holds for check in checks):
            return Readiness(checks)
        if pool == READER_POOL:
            return Readiness(checks, unread_partitions(self._stores().ingestion.unread()), needs_one=False)
        deletes = pool == EXPIRATION_POOL
        wanted = tuple(topics or (("*",) if deletes else self._settings.topics.include))
        report = None if deletes else self._source().scan(topics=wanted)
        partitions = partition_readiness(
            report,
            topics=wanted,
            metadata=self._stores().metadata,
            registry=self._stores().registry,
            facts=self._facts(),
            paused=self._stores().work.paused_topics(),
            plan=NOTHING_PLANNED if report is None else self._planner().plan(report, "ready", wanted),
            deletions=self._stores().topic_deletions.all(),
            expire_after_days=self._effective().on_topic.expire_after_days,
        )
        # What expires of a paused topic is left for later: no reason to wait with the rest.
        return Readiness(checks, partitions, needs_one=not deletes)

    def diagnose(self, topic: str) -> tuple[Diagnosis, ...]:
        """Why this topic (a name) is not tiered; first what a hand-over of it waits for. Nothing is stored."""
        with suppress(MetadataUnavailableError):
            store = self._stores().handovers
            handovers = [one for one in store.open_handovers() if one.topic == topic]
            return (*diagnose_handovers(handovers), *self._diagnose_copies(topic))
        return self._diagnose_copies(topic)

    def _diagnose_copies(self, topic: str) -> tuple[Diagnosis, ...]:
        included = matches(topic, self._settings.topics.include)
        with suppress(AirflowApiError, MetadataUnavailableError):
            self._mirror_pools()
        readiness = self.ready(pool=COPIER_POOL, topics=(topic,))
        if not readiness.holds:
            nothing = CopyPlan("doctor", (), (), ())
            return diagnose(
                Evidence(topic, included, readiness, nothing, (), self._clock.now_ms(), self._unfinished_transactions)
            )
        report = self._source().scan(topics=(topic,))
        now_ms = self._clock.now_ms()
        failed = by_partition(self._stores().failed_copies.all())
        plan = self._planner().plan(report, "doctor", (topic,), failed=failed)
        partitions = [planned.replica_id.topic_id_partition for planned in plan.partitions]
        holders = {partition: self._stores().work.holder(partition, LeaseRole.COPY) for partition in partitions}
        found = diagnose(
            Evidence(
                topic,
                included,
                readiness,
                plan,
                [replica for replica in report.replicas if replica.chosen],
                now_ms,
                self._unfinished_transactions,
                quotas=self._ledger().in_force(),
                workers=len(self._ledger().workers()),
                topic_quotas=self._topic_quotas().report(),
                ahead=self._stores().work.leases_ahead(),
                holders={partition: holder for partition, holder in holders.items() if holder is not None},
            )
        )
        return with_left_damage(found, failed)

    def _unfinished_transactions(self, replica: Replica) -> Sequence[UnfinishedTransaction]:
        """As the leader and the coordinators say, or where they may not be asked, as the log shows; none where the
        replica goes away meanwhile."""
        with suppress(BrokersError):
            if self._brokers is not None:
                return [
                    UnfinishedTransaction(one.producer_id, one.start_offset, one.since_ms, one.transactional_id)
                    for one in self._brokers().open_transactions(replica.topic_id_partition)
                ]
        try:
            return self._source().unfinished_transactions(replica.replica_id)
        except SourceError:
            return ()
