"""Whether a run can start, which partitions are ready, and why a topic is not tiered.

`DeploymentChecks` look at schema, store, log directories, brokers, pauses and pools before a run starts;
`OperationsService` answers `ready` and `doctor`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

from sqlalchemy import Engine

from include.tiering.clock import Clock
from include.tiering.configs.pools import BATCH_SLOTS, COPIER_POOL, EXPIRATION_POOL, READER_POOL, PoolMirror
from include.tiering.copying.plan import CopyPlan
from include.tiering.copying.plan_copy import CopyPlanner
from include.tiering.database.migrations import HEAD, require_head
from include.tiering.errors import (
    AirflowApiError,
    BrokersError,
    ClusterMetadataError,
    HandoverForgottenError,
    MetadataUnavailableError,
    SendingStoppedError,
    SettingError,
    SourceError,
)
from include.tiering.handover.contract import HandoverStore, forgotten_handovers
from include.tiering.kafka.cluster.contract import Brokers, ClusterMetadata
from include.tiering.kafka.log_dirs.contract import LogSource, Replica, UnfinishedTransaction, matches
from include.tiering.kafka.log_dirs.dirs import DirIdentity, identify, require_agreement
from include.tiering.model.ownership import LeaseRole
from include.tiering.operations.doctor import Diagnosis, Evidence, diagnose, diagnose_handovers, with_left_damage
from include.tiering.operations.readiness import (
    NOTHING_PLANNED,
    Readiness,
    partition_readiness,
    run_checks,
    unread_partitions,
)
from include.tiering.quotas.contract import QuotaLedger
from include.tiering.quotas.topic_quotas import TopicQuotas
from include.tiering.remote_storage.claim_store import SETTLE_SECONDS, StoreGenerations
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.segment_storage import GuardedStorage
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs, configured_log_dirs
from include.tiering.runs.contract import ALL_TOPICS, WorkStore, require_no_lease_ahead
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.failed_copies import FailedCopies, by_partition
from include.tiering.segments.ingestion_contract import MetadataIngestion
from include.tiering.segments.topics import TopicDeletions
from include.tiering.settings import TieringSettings

LOG_DIRS: Final = "log dirs"
CLUSTER_METADATA: Final = "topic facts"
PAUSE: Final = "pause"
HANDOVERS: Final = "hand-overs"
LEASES: Final = "leases"


class ClusterStores(Protocol):
    """The stores that readiness is asked of. They are there once the database serves a cluster: until then asking for
    them raises MetadataUnavailableError, which is what a check has to say.
    """

    @property
    def metadata(self) -> RemoteLogMetadata: ...
    @property
    def registry(self) -> TopicRegistry: ...
    @property
    def failed_copies(self) -> FailedCopies: ...
    @property
    def topic_deletions(self) -> TopicDeletions: ...
    @property
    def ingestion(self) -> MetadataIngestion: ...
    @property
    def work(self) -> WorkStore: ...
    @property
    def handovers(self) -> HandoverStore: ...
    @property
    def pool_mirror(self) -> PoolMirror: ...
    @property
    def generations(self) -> StoreGenerations: ...


class DeploymentChecks:
    """Each check opens what it looks at, so that it can say what cannot be opened."""

    def __init__(
        self,
        *,
        settings: TieringSettings,
        engine: Callable[[], Engine],
        cluster_id: Callable[[], str],
        stores: Callable[[], ClusterStores],
        storage: Callable[[], GuardedStorage],
        unguarded: Callable[[], RemoteStorage],
        cluster_metadata: Callable[[], ClusterMetadata],
        log_dirs: ClusterLogDirs,
        has_brokers: bool,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._cluster_id = cluster_id
        self._stores = stores
        self._storage = storage
        self._unguarded = unguarded
        self._cluster_metadata = cluster_metadata
        self._log_dirs = log_dirs
        self._has_brokers = has_brokers

    def probes(self, pool: str | None, *, needs_log_dirs: bool = True) -> dict[str, Callable[[], str]]:
        """What `run_checks` runs: each answers what it found or raises a TieringError.

        `needs_log_dirs`: settings without any are wrong. Else the brokers may be gone for good.
        """
        probes: dict[str, Callable[[], str]] = {
            "schema": self._schema,
            "storage": self._check_storage,
            LOG_DIRS: lambda: self._check_log_dirs() if needs_log_dirs or self._settings.log_dirs else "none is set",
            CLUSTER_METADATA: self._check_cluster_metadata,
            PAUSE: self._pause,
            HANDOVERS: self._check_handovers,
            LEASES: lambda: require_no_lease_ahead(self._stores().work.leases_ahead()),
        }
        if pool is not None:
            probes["pool"] = partial(self._pool, pool)
        return probes

    def _schema(self) -> str:
        require_head(self._engine())
        return f"at {HEAD}, cluster {self._cluster_id()}"

    def _check_storage(self) -> str:
        self._storage().check_writable()
        heeded = self._unguarded().replaces_conditionally()
        self._stores().generations.record_conditional_writes(heeded)
        url = self._settings.remote_storage.required_url()
        if heeded:
            return f"{url} is writable and ours"
        return (
            f"{url} is writable and ours; this server takes no notice of If-Match on PUT, so a copy of the database"
            f" that plans within {SETTLE_SECONDS:.0f} seconds of this one may not be refused at once: use a server that"
            " heeds it"
        )

    def _check_log_dirs(self) -> str:
        """One that cannot be read holds up its own partitions, all of them hold up the run."""
        unreadable: list[SourceError] = []
        seen: list[DirIdentity] = []
        for log_dir in configured_log_dirs(self._settings):
            try:
                identity = identify(log_dir)
                require_agreement(identity, seen, identity.cluster_id)
            except SourceError as error:
                unreadable.append(error)
                continue
            except ClusterMetadataError as error:
                # What the settings say of a directory: waiting does not change it.
                raise SettingError(f"{error}: correct log_dirs") from error
            seen.append(identity)
            if identity.cluster_id != self._cluster_id():
                raise SettingError(
                    f"{identity.path} belongs to cluster {identity.cluster_id}, not {self._cluster_id()}"
                )
        total = len(configured_log_dirs(self._settings))
        if not unreadable:
            return f"{total} readable"
        if len(unreadable) == total:
            raise unreadable[0]
        waiting = "; ".join(map(str, unreadable))
        return f"{total - len(unreadable)} of {total} readable; partitions of the others wait: {waiting}"

    def _check_cluster_metadata(self) -> str:
        self._log_dirs.require_cluster()
        self._cluster_metadata().refresh()
        if self._has_brokers:
            return "the brokers tell them, and exact offsets"
        return (
            "known"
            if self._cluster_metadata().cluster_id() is not None
            else "none: a topic is copied if it is named exactly"
        )

    def _pause(self) -> str:
        paused = self._stores().work.paused_topics()
        if ALL_TOPICS in paused:
            raise SendingStoppedError("all topics are paused: ./tiering resume")
        return f"paused topics: {', '.join(sorted(paused))}" if paused else "nothing is paused"

    def _check_handovers(self) -> str:
        """One that nobody carries on holds up nothing else, but its topic's retention."""
        store = self._stores().handovers
        under_way = store.open_handovers()
        if forgotten := forgotten_handovers(under_way, store.now_ms()):
            raise HandoverForgottenError("; ".join(forgotten_handover.message for forgotten_handover in forgotten))
        return ", ".join(f"{handover.topic} is at {handover.step}" for handover in under_way) or "none is on its way"

    def _pool(self, pool: str) -> str:
        seen = self._stores().pool_mirror.seen().get(pool)
        if seen is not None and seen.slots < BATCH_SLOTS:
            raise SendingStoppedError(f"pool {pool} has {seen.slots} slots: that is a pause; give it slots to go on")
        return f"{pool} has {'an unknown number of' if seen is None else seen.slots} slots"


_DELETES_WITHOUT: Final = {
    LOG_DIRS: "what was archived outlives its broker; bytes that are not copied yet count as 0, which deletes less",
    CLUSTER_METADATA: "what to delete is decided from what the platform recorded itself",
}
_READS_WITHOUT: Final = {
    CLUSTER_METADATA: "what is counted, verified and audited is what the platform recorded itself",
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
        cluster_metadata: Callable[[], ClusterMetadata],
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
        self._cluster_metadata = cluster_metadata
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
            cluster_metadata=self._cluster_metadata(),
            paused=self._stores().work.paused_topics(),
            plan=NOTHING_PLANNED if report is None else self._planner().plan(report, "ready", wanted),
            deletions=self._stores().topic_deletions.all(),
            expire_after_days=self._effective().on_topic.expire_after_days,
        )
        # What expires of a paused topic is left for later: no reason to wait with the rest.
        return Readiness(checks, partitions, needs_one=not deletes)

    def diagnose(self, topic: str) -> tuple[Diagnosis, ...]:
        """Why this topic (a name) is not tiered; first what a handover of it waits for. Nothing is stored."""
        with suppress(MetadataUnavailableError):
            store = self._stores().handovers
            handovers = [open_handover for open_handover in store.open_handovers() if open_handover.topic == topic]
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
        replica goes away meanwhile.
        """
        with suppress(BrokersError):
            if self._brokers is not None:
                return [
                    UnfinishedTransaction(
                        open_transaction.producer_id,
                        open_transaction.start_offset,
                        open_transaction.since_ms,
                        open_transaction.transactional_id,
                    )
                    for open_transaction in self._brokers().open_transactions(replica.topic_id_partition)
                ]
        try:
            return self._source().unfinished_transactions(replica.replica_id)
        except SourceError:
            return ()
