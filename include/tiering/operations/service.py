"""Whether a run can start, which partitions are ready, and why a topic is not tiered.

`DeploymentChecks` check the schema, the store, log directories, cluster metadata, pauses, handovers, leases and the
pool and the quota ledger before a run starts. `OperationsService` evaluates readiness and diagnoses topics.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

from sqlalchemy import Engine

from include.tiering.clock import Clock
from include.tiering.configs.config_store import ConfigStore, topic_quota_configs
from include.tiering.configs.pools import (
    BATCH_SLOTS,
    COPIER_POOL,
    EXPIRATION_POOL,
    READER_POOL,
    PoolMirror,
    pool_missing,
)
from include.tiering.configs.rules import quotas_in_force
from include.tiering.copying.plan import CopyPlan
from include.tiering.copying.plan_copy import CopyPlanner
from include.tiering.copying.run_scope import AS_CONFIGURED, RunScope
from include.tiering.database.migrations import HEAD, require_head
from include.tiering.errors import (
    AirflowApiError,
    BrokersError,
    ClusterMetadataError,
    HandoverForgottenError,
    MetadataUnavailableError,
    RemoteStorageFullError,
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
from include.tiering.operations.known_names import KnownNames, NamedStores
from include.tiering.operations.readiness import (
    NOTHING_PLANNED,
    Doubt,
    Probe,
    Readiness,
    partition_readiness,
    run_checks,
    unread_partitions,
)
from include.tiering.presentation import count
from include.tiering.quotas.contract import QuotaLedger
from include.tiering.quotas.topic_quotas import TopicQuotas
from include.tiering.remote_storage.claim_store import SETTLE_SECONDS, StoreGenerations
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.segment_storage import GuardedStorage
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs, configured_log_dirs
from include.tiering.runs.contract import ALL_TOPICS, WorkStore, require_no_lease_ahead
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.failed_copies import FailedCopies, by_partition
from include.tiering.segments.ingestion_contract import MetadataIngestion
from include.tiering.segments.topics import TopicDeletions
from include.tiering.settings import TieringSettings

LOG_DIRS: Final = "log dirs"
CLUSTER_METADATA: Final = "topic facts"
PAUSE: Final = "pause"
HANDOVERS: Final = "hand-overs"
LEASES: Final = "leases"
QUOTAS: Final = "quotas"


class ClusterStores(NamedStores, Protocol):
    """The stores that readiness is read from.

    They exist once the database serves a cluster. Until then an access raises MetadataUnavailableError, which becomes
    the message of the check.
    """

    @property
    def metadata(self) -> RemoteLogMetadata:
        """Segment metadata."""

    @property
    def failed_copies(self) -> FailedCopies:
        """Copies that failed verification."""

    @property
    def topic_deletions(self) -> TopicDeletions:
        """Topics that were deleted in the cluster."""

    @property
    def ingestion(self) -> MetadataIngestion:
        """Progress of reading the brokers' metadata topic."""

    @property
    def work(self) -> WorkStore:
        """Leases and pauses."""

    @property
    def handovers(self) -> HandoverStore:
        """Handovers of topics to their brokers."""

    @property
    def configs(self) -> ConfigStore:
        """Dynamic configs."""

    @property
    def pool_mirror(self) -> PoolMirror:
        """Sizes of Airflow's pools."""

    @property
    def generations(self) -> StoreGenerations:
        """Generations of the store's marker."""


class DeploymentChecks:
    """The checks of a deployment. Each one opens what it needs, so that its message says what cannot be opened."""

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
        ledger: Callable[[], QuotaLedger],
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
        self._ledger = ledger

    def probes(
        self, pool: str | None, in_airflow: Collection[str] | None, *, needs_log_dirs: bool
    ) -> dict[str, Probe]:
        """Return the probes for `run_checks`, by name: each returns what it found or raises a TieringError.

        Args:
            pool: the pool whose size is checked; None: none. For that of expiration the store may have no free space.
            in_airflow: the names of the pools that Airflow has now; None: unknown.
            needs_log_dirs: whether settings without log_dirs are an error. False for work that also has to run after
                the brokers were shut down permanently.
        """
        probes: dict[str, Probe] = {
            "schema": self._schema,
            "storage": self._check_storage_for_deletions if pool == EXPIRATION_POOL else self._check_storage,
            LOG_DIRS: lambda: self._check_log_dirs() if needs_log_dirs or self._settings.log_dirs else "none is set",
            CLUSTER_METADATA: self._check_cluster_metadata,
            PAUSE: self._pause,
            HANDOVERS: self._check_handovers,
            LEASES: lambda: require_no_lease_ahead(self._stores().work.leases_ahead()),
            QUOTAS: self._check_quotas,
        }
        if pool is not None:
            probes["pool"] = partial(self._pool, pool, in_airflow)
        return probes

    def _schema(self) -> str:
        require_head(self._engine())
        return f"at {HEAD}, cluster {self._cluster_id()}"

    def _check_storage(self) -> str | Doubt:
        url = self._settings.remote_storage.required_url()
        if not self._serves_a_cluster():
            marker = self._unguarded().read_marker()
            belongs = "has no marker of a database" if marker is None else f"belongs to {marker}"
            return Doubt(f"{url} can be read and {belongs}; whether it can be written is tried with a database only")
        self._storage().check_writable()
        is_conditional = self._unguarded().replaces_conditionally()
        self._stores().generations.record_conditional_writes(is_conditional)
        found = f"{url} is writable and belongs to this database"
        if is_conditional:
            return found
        return (
            f"{found}; this server ignores If-Match on PUT, so a copy of the"
            f" database that plans within {SETTLE_SECONDS:.0f} seconds of this one may not be refused at once: use a"
            " server that supports it"
        )

    def _check_storage_for_deletions(self) -> str | Doubt:
        """Check the store for deletions, which need no free space, but free some."""
        try:
            return self._check_storage()
        except RemoteStorageFullError as error:
            return f"belongs to this database; it has no space, which deletions do not need: {error}"

    def _serves_a_cluster(self) -> bool:
        """Return whether the database can be read and is set up; the check of the schema says why not."""
        with suppress(MetadataUnavailableError):
            self._cluster_id()
            return True
        return False

    def _check_log_dirs(self) -> str | Doubt:
        """Check the log directories. Unreadable ones delay their partitions; the check fails if all are unreadable."""
        unreadable: list[SourceError] = []
        seen: list[DirIdentity] = []
        expected = self._cluster_id() if self._serves_a_cluster() else None
        for log_dir in configured_log_dirs(self._settings):
            try:
                identity = identify(log_dir)
                require_agreement(identity, seen, identity.cluster_id)
            except SourceError as error:
                unreadable.append(error)
                continue
            except ClusterMetadataError as error:
                # The settings contradict the directory: waiting does not change that.
                raise SettingError(f"{error}: correct log_dirs") from error
            seen.append(identity)
            if expected not in (None, identity.cluster_id):
                raise SettingError(f"{identity.path} belongs to cluster {identity.cluster_id}, not {expected}")
        total = len(configured_log_dirs(self._settings))
        if not unreadable:
            return f"{total} readable"
        if len(unreadable) == total:
            raise unreadable[0]
        waiting = "; ".join(map(str, unreadable))
        return Doubt(
            f"{total - len(unreadable)} of {total} readable; partitions of the others wait: {waiting}: correct"
            " log_dirs, or make the directories readable"
        )

    def _check_cluster_metadata(self) -> str:
        self._log_dirs.require_cluster()
        self._cluster_metadata().refresh()
        if self._has_brokers:
            return "read from the brokers, with exact offsets"
        if self._cluster_metadata().cluster_id() is None:
            return "none: a topic is copied only if topics.include has its exact name"
        return "known"

    def _pause(self) -> str:
        paused = self._stores().work.paused_topics()
        if ALL_TOPICS in paused:
            raise SendingStoppedError("all topics are paused: ./tiering resume")
        return f"paused topics: {', '.join(sorted(paused))}" if paused else "nothing is paused"

    def _check_handovers(self) -> str:
        """Describe the open handovers.

        Raises:
            HandoverForgottenError: a handover has made no progress for too long. Other work goes on; only the retention
                or the copies of its topic are suspended.
        """
        store = self._stores().handovers
        under_way = store.open_handovers()
        if forgotten := forgotten_handovers(under_way, store.now_ms()):
            raise HandoverForgottenError("; ".join(forgotten_handover.message for forgotten_handover in forgotten))
        return ", ".join(f"{handover.topic} is at {handover.step}" for handover in under_way) or "none is under way"

    def _check_quotas(self) -> str:
        """Describe the ledger of quotas, and configs without effect.

        Raises:
            MetadataUnavailableError: the ledger does not answer, and a quota is set, so nothing is sent or read.
        """
        try:
            workers = len(self._ledger().workers())
            said = f"the ledger answers, {count(workers, 'worker')}"
        except MetadataUnavailableError as error:
            if not quotas_in_force(self._stores().configs.snapshot()).set_no_limit:
                raise MetadataUnavailableError(
                    f"the quota ledger does not answer, so nothing is sent while a quota is set: {error}"
                ) from error
            said = f"no quota is set, so work goes on although the ledger does not answer: {error}"
        values = self._stores().configs.snapshot().values
        without_effect = topic_quota_configs(values, enabled=self._settings.topic_quotas.enable).without_effect
        return said if without_effect is None else f"{said}; {without_effect}"

    def _pool(self, pool: str, in_airflow: Collection[str] | None) -> str:
        """Check that Airflow has the pool, and slots for the batches of copies and deletions.

        Jobs that read hold nothing before they start, so Airflow lets their tasks wait for slots, without a time limit.
        """
        if in_airflow is not None and pool not in in_airflow:
            raise SendingStoppedError(pool_missing(pool))
        seen = self._stores().pool_mirror.seen().get(pool)
        if seen is not None and seen.slots < BATCH_SLOTS and pool == READER_POOL:
            return f"{pool} has {seen.slots} slots: its tasks wait in Airflow until it has some"
        if seen is not None and seen.slots < BATCH_SLOTS:
            raise SendingStoppedError(
                f"pool {pool} has {seen.slots} slots, which pauses its batches: give it slots to continue"
            )
        return f"{pool} has {'an unknown number of' if seen is None else seen.slots} slots"


_DELETES_WITHOUT: Final = {
    LOG_DIRS: "archived segments need no broker; bytes that are not copied yet count as 0, so less is deleted",
    CLUSTER_METADATA: "deletions are decided from what the platform has recorded itself",
}
_READS_WITHOUT: Final = {
    CLUSTER_METADATA: "the platform counts, verifies and audits what it has recorded itself",
    PAUSE: "reading back sends nothing",
}
_DOES_WITHOUT: Final[Mapping[str | None, Mapping[str, str]]] = MappingProxyType(
    {EXPIRATION_POOL: _DELETES_WITHOUT, READER_POOL: _READS_WITHOUT}
)
"""Checks that may fail for the work of a pool, each with what the failure means for that work."""
_NEVER_NEEDED: Final = {
    HANDOVERS: "other topics do not wait for the handover",
    LEASES: "no work waits for such a lease, and the next batch that takes the partition ends it",
}


class OperationsService:
    """Evaluate readiness and diagnose topics.

    Only the sizes of Airflow's pools, and whether the store replaces objects conditionally, are recorded. The check of
    the store for copies writes probe objects and deletes them.

    Stores, source and brokers are opened by the call that needs them, so a deployment that is not set up can be
    diagnosed, too.

    Args:
        settings: the settings without dynamic configs.
        engine: opens the database.
        stores: opens the stores of the cluster.
        source: opens the log directories.
        cluster_metadata: opens the cluster metadata.
        brokers: connects to the brokers; None if the settings have no bootstrap servers.
        planner: builds the planner of copies.
        checks: the checks of the deployment.
        ledger: opens the quota ledger.
        topic_quotas: opens the topic quotas.
        effective: returns the settings with the present dynamic configs over them.
        mirror_pools: reads the sizes of Airflow's pools, stores them, and returns the pools by name.
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
        mirror_pools: Callable[[], Collection[str]],
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
        self.names = KnownNames(settings=settings, stores=stores, cluster_metadata=cluster_metadata, brokers=brokers)

    def require_schema(self) -> None:
        """Require that the database is at the revision of this version.

        Raises:
            MetadataUnavailableError: the database is at another revision, or cannot be reached.
        """
        require_head(self._engine())

    def ready(self, *, pool: str | None = None, scope: RunScope = AS_CONFIGURED) -> Readiness:
        """Run the checks of the deployment; if all hold, evaluate readiness partition by partition.

        Args:
            pool: the pool of the work, whose size is checked, too. With None (no pool is checked) and with the copier
                pool, readiness is evaluated for copies. Work of the expiration and reader pools needs fewer checks. For
                the reader pool the result has only the partitions whose metadata records are not all read.
            scope: which partitions the run takes; a scope without topics means those of `topics.include`, for
                expiration all archived topics. The reader pool ignores the scope.
        """
        checks = run_checks(
            self._checks.probes(
                pool, self._pools_in_airflow() if pool else None, needs_log_dirs=pool not in _DOES_WITHOUT
            ),
            does_without={**_DOES_WITHOUT.get(pool, {}), **_NEVER_NEEDED},
        )
        if not all(check.holds for check in checks):
            return Readiness(checks)
        if pool == READER_POOL:
            return Readiness(checks, unread_partitions(self._stores().ingestion.unread()), needs_one=False)
        deletes = pool == EXPIRATION_POOL
        scope = scope.or_topics(("*",) if deletes else self._settings.topics.include)
        report = None if deletes else scope.scan(self._source().scan)
        partitions = partition_readiness(
            report,
            scope=scope,
            metadata=self._stores().metadata,
            registry=self._stores().registry,
            cluster_metadata=self._cluster_metadata(),
            paused=self._stores().work.paused_topics(),
            plan=NOTHING_PLANNED if report is None else self._planner().plan(report, "ready", scope),
            deletions=self._stores().topic_deletions.all(),
            expire_after_days=self._effective().on_topic.expire_after_days,
        )
        # Expiration leaves out a paused topic; the other topics need not wait for it.
        return Readiness(checks, partitions, needs_one=not deletes)

    def _pools_in_airflow(self) -> Collection[str] | None:
        """Store the sizes of Airflow's pools, and return the names of the pools.

        If Airflow does not give the sizes, the last sizes apply, and None is returned. The check of the schema reports
        an unavailable database.
        """
        with suppress(AirflowApiError, MetadataUnavailableError):
            return self._mirror_pools()
        return None

    def diagnose(self, topic: str) -> tuple[Diagnosis, ...]:
        """Return why the topic of this name is not tiered: a line per open handover, then those of `diagnose`."""
        with suppress(MetadataUnavailableError):
            store = self._stores().handovers
            handovers = [open_handover for open_handover in store.open_handovers() if open_handover.topic == topic]
            return (*diagnose_handovers(handovers), *self._diagnose_copies(topic))
        return self._diagnose_copies(topic)

    def _diagnose_copies(self, topic: str) -> tuple[Diagnosis, ...]:
        included = matches(topic, self._settings.topics.include)
        scope = RunScope((topic,))
        readiness = self.ready(pool=COPIER_POOL, scope=scope)
        if not readiness.holds:
            nothing = CopyPlan("doctor", (), (), ())
            return diagnose(
                Evidence(topic, included, readiness, nothing, (), self._clock.now_ms(), self._unfinished_transactions)
            )
        report = scope.scan(self._source().scan)
        now_ms = self._clock.now_ms()
        failed = by_partition(self._stores().failed_copies.all())
        plan = self._planner().plan(report, "doctor", scope, failed=failed)
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
        """Return open transactions from the leader and the coordinators; without an answer of theirs, from the log.

        The result is empty if the log cannot be read, for example because the replica has disappeared.
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
