"""Whether a run can start, which partitions are ready, and why a topic is not tiered."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

from sqlalchemy import Engine

from include.tiering.clock import Clock
from include.tiering.configs.pools import (
    COPIER_POOL,
    EXPIRATION_POOL,
    READER_POOL,
)
from include.tiering.copying.plan import CopyPlan
from include.tiering.copying.plan_copy import CopyPlanner
from include.tiering.copying.run_scope import AS_CONFIGURED, RunScope
from include.tiering.database.event_log import Event, EventKind
from include.tiering.database.metric_series import MetricSeries
from include.tiering.database.migrations import require_head
from include.tiering.errors import (
    AirflowApiError,
    BrokersError,
    ClusterMetadataError,
    MetadataUnavailableError,
    SettingError,
    SourceError,
)
from include.tiering.handover.report import latest_checks
from include.tiering.kafka.cluster.contract import Brokers, ClusterMetadata
from include.tiering.kafka.log_dirs.contract import LogSource, Replica, UnfinishedTransaction, matches
from include.tiering.model.ownership import LeaseRole, TopicOwner
from include.tiering.operations.attention import AttentionService
from include.tiering.operations.backfill import BackfillService
from include.tiering.operations.checks import run_checks
from include.tiering.operations.deployment_checks import (
    DOES_WITHOUT,
    NEVER_NEEDED,
    RESTORES_WITHOUT,
    ClusterStores,
    DeploymentChecks,
)
from include.tiering.operations.doctor import (
    Diagnosis,
    Evidence,
    diagnose,
    diagnose_handovers,
    diagnose_published,
    with_left_damage,
)
from include.tiering.operations.known_names import KnownNames
from include.tiering.operations.monitoring import MonitoringService
from include.tiering.operations.overview import OverviewService
from include.tiering.operations.quality import QualityService
from include.tiering.operations.readiness import (
    NOTHING_PLANNED,
    Readiness,
    partition_readiness,
    unread_partitions,
)
from include.tiering.operations.throughput import ThroughputService
from include.tiering.operations.timeline import TimelineService
from include.tiering.operations.topic_details import TopicDetailsService
from include.tiering.operations.topic_list import TopicListService
from include.tiering.quotas.contract import QuotaKind, QuotaLedger
from include.tiering.quotas.topic_quotas import TopicQuotas
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs
from include.tiering.segments.failed_copies import by_partition
from include.tiering.settings import TieringSettings
from include.tiering.telemetry.metrics import Metric


class OperationsService:
    """Evaluate readiness and diagnose topics.

    Of what it finds, this service stores only the sizes of Airflow's pools, and whether the store replaces objects
    conditionally. The check of the store writes probe objects and deletes them.

    Stores, source and brokers are opened by the call that needs them, so a deployment that is not set up can be
    diagnosed, too.

    Args:
        settings: the settings without dynamic configs.
        engine: opens the database.
        stores: opens the stores of the cluster.
        source: opens the log directories, to read open transactions in a log, which no scan reports.
        log_dirs: scans the log directories for replicas and their segments.
        cluster_metadata: opens the cluster metadata.
        brokers: connects to the brokers; None if the settings have no bootstrap servers.
        planner: builds the planner of copies.
        checks: the checks of the deployment.
        ledger: opens the quota ledger.
        topic_quotas: opens the topic quotas.
        effective: returns the settings with the present dynamic configs over them.
        mirror_pools: reads the sizes of Airflow's pools, stores them, and returns the pools by name.
        series: opens the values of metrics that all processes have stored.
        metrics: the definitions of all metrics, in the order of docs/metrics.md.
        quota_windows: returns, for each kind of quota, how many samples the window of its byte rate has, and how many
            milliseconds a sample has.
    """

    def __init__(
        self,
        *,
        settings: TieringSettings,
        engine: Callable[[], Engine],
        stores: Callable[[], ClusterStores],
        source: Callable[[], LogSource],
        log_dirs: ClusterLogDirs,
        cluster_metadata: Callable[[], ClusterMetadata],
        brokers: Callable[[], Brokers] | None,
        planner: Callable[[], CopyPlanner],
        checks: DeploymentChecks,
        ledger: Callable[[], QuotaLedger],
        topic_quotas: Callable[[], TopicQuotas],
        effective: Callable[[], TieringSettings],
        mirror_pools: Callable[[], Collection[str]],
        series: Callable[[], MetricSeries],
        metrics: Sequence[Metric],
        quota_windows: Callable[[], Mapping[QuotaKind, tuple[int, int]]],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._stores = stores
        self._source = source
        self._log_dirs = log_dirs
        self._cluster_metadata = cluster_metadata
        self._brokers = brokers
        self._planner = planner
        self._checks = checks
        self._ledger = ledger
        self._topic_quotas = topic_quotas
        self._effective = effective
        self._mirror_pools = mirror_pools
        self._series = series
        self._metrics = metrics
        self._quota_windows = quota_windows
        self._clock = clock
        self.names = KnownNames(settings=settings, stores=stores, cluster_metadata=cluster_metadata, brokers=brokers)

    @cached_property
    def monitoring(self) -> MonitoringService:
        """The values of all metrics."""
        return MonitoringService(
            series=self._series(), metrics=self._metrics, windows=self._quota_windows, clock=self._clock
        )

    @cached_property
    def overview(self) -> OverviewService:
        """The present state: totals, work, limits, what waits, and alarms."""
        stores = self._stores()
        return OverviewService(
            sizes=stores.remote_log_sizes,
            work=stores.work,
            mirror=stores.pool_mirror,
            configs=stores.configs,
            series=self._series,
            prices=self._settings.prices.table(),
            clock=self._clock,
        )

    @cached_property
    def throughput(self) -> ThroughputService:
        """What was sent, read and deleted minute by minute."""
        return ThroughputService(series=self._series, configs=self._stores().configs, clock=self._clock)

    @cached_property
    def attention(self) -> AttentionService:
        """What waits for a person."""
        stores = self._stores()
        return AttentionService(
            questions=stores.plan_questions,
            deletions=stores.deletions,
            configs=stores.configs,
            failed_copies=stores.failed_copies,
            audits=stores.audits,
            handovers=stores.handovers,
            mirror=stores.pool_mirror,
            series=self._series,
            clock=self._clock,
        )

    @cached_property
    def quality(self) -> QualityService:
        """What was verified, and what is wrong."""
        stores = self._stores()
        return QualityService(
            failed_copies=stores.failed_copies, audits=stores.audits, series=self._series, clock=self._clock
        )

    @cached_property
    def backfill(self) -> BackfillService:
        """How much waits to be copied, at which rate it can be copied, and what that costs."""
        stores, prices = self._stores(), self._settings.prices.table()
        return BackfillService(
            prices=prices,
            work=stores.work,
            configs=stores.configs,
            mirror=stores.pool_mirror,
            series=self._series,
            clock=self._clock,
        )

    @cached_property
    def topic_list(self) -> TopicListService:
        """The topics of the archive."""
        stores = self._stores()
        return TopicListService(
            settings=self._settings, sizes=stores.remote_log_sizes, configs=stores.configs, series=self._series
        )

    @cached_property
    def topic_details(self) -> TopicDetailsService:
        """One topic of the archive."""
        stores = self._stores()
        return TopicDetailsService(
            settings=self._settings,
            topics=self.topic_list,
            sizes=stores.remote_log_sizes,
            failed_copies=stores.failed_copies,
            configs=stores.configs,
            events=stores.events,
            series=self._series,
            clock=self._clock,
        )

    @cached_property
    def timeline(self) -> TimelineService:
        """A partition of the archive, segment by segment."""
        stores = self._stores()
        return TimelineService(sizes=stores.remote_log_sizes, metadata=lambda: stores.metadata, work=stores.work)

    def require_schema(self) -> None:
        """Require that the database is at the revision of this version.

        Raises:
            MetadataUnavailableError: the database is at another revision, or cannot be reached.
        """
        require_head(self._engine())

    def ready(
        self, *, pool: str | None = None, scope: RunScope = AS_CONFIGURED, store_alone: bool = False
    ) -> Readiness:
        """Run the checks of the deployment; if all hold, evaluate readiness partition by partition.

        Args:
            pool: the pool of the work, whose size is checked, too. With None (no pool is checked) and with the copier
                pool, readiness is evaluated for copies. For the expiration and reader pools some checks may fail,
                because their work does not need what these check. For the reader pool the result has only the
                partitions whose metadata records are not all read.
            scope: which partitions the run takes; a scope without topics means those of `topics.include`, for
                expiration all archived topics. The reader pool ignores the scope.
            store_alone: whether the work reads remote storage and no log directory, so that these may be lost.
        """
        checks = run_checks(
            self._checks.probes(
                pool, self._pools_in_airflow() if pool else None, needs_log_dirs=pool not in DOES_WITHOUT
            ),
            does_without={**DOES_WITHOUT.get(pool, {}), **(RESTORES_WITHOUT if store_alone else {}), **NEVER_NEEDED},
        )
        if not all(check.holds for check in checks):
            return Readiness(checks)
        if pool == READER_POOL:
            return Readiness(checks, unread_partitions(self._stores().ingestion.unread()), needs_one=False)
        deletes = pool == EXPIRATION_POOL
        scope = scope.or_topics(("*",) if deletes else self._settings.topics.include)
        report = None if deletes else scope.scan(self._log_dirs.scan_all)
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
        # Expiration leaves out a paused topic; the other topics need not wait for it. A run of copies first lets the
        # workers of queues scan: partitions that they have not reported yet are not known to wait.
        return Readiness(checks, partitions, needs_one=not deletes and not self._log_dirs.reported()[1])

    def _pools_in_airflow(self) -> Collection[str] | None:
        """Store the sizes of Airflow's pools, and return the names of the pools.

        If Airflow does not give the sizes, the sizes that were stored last apply, and None is returned. None is also
        returned if the database cannot be used: then the check `schema` fails and says so.
        """
        try:
            self._stores()
        except (MetadataUnavailableError, SettingError):
            return None
        with suppress(AirflowApiError, MetadataUnavailableError):
            return self._mirror_pools()
        return None

    def last_drill(self, topic: str) -> Event | None:
        """Return the result of the last recovery drill of this topic; None without one or without a database."""
        with suppress(MetadataUnavailableError, SettingError):
            return self._stores().events.last(EventKind.DRILL, topic)
        return None

    def diagnose(self, topic: str) -> tuple[Diagnosis, ...]:
        """Return why the topic of this name is not tiered.

        There is a line for each open handover, then one if brokers know segments of the topic, then those of the
        function `diagnose`.
        """
        with suppress(MetadataUnavailableError):
            store = self._stores().handovers
            handovers = [
                (open_handover, latest_checks(store, open_handover))
                for open_handover in store.open_handovers()
                if open_handover.topic == topic
            ]
            published = diagnose_published(topic, self._published_segments(topic))
            return (*diagnose_handovers(handovers), *published, *self._diagnose_copies(topic))
        return self._diagnose_copies(topic)

    def _published_segments(self, topic: str) -> int:
        """Return how many segments brokers know of the topic that has this name now, if the platform archives it.

        A topic that was deleted does not count: brokers need nothing of it. If the cluster does not say which topic id
        has the name, all topic ids count that have or had it, except those whose deletion was recorded.
        """
        stores = self._stores()
        topic_ids = {topic_id for topic_id, name in stores.registry.names_in_use().items() if name == topic}
        topic_ids -= stores.topic_deletions.all().keys()
        with suppress(ClusterMetadataError):
            if (named := self._cluster_metadata().topic_named(topic)) is not None:
                topic_ids &= {named.topic_id}
        archived = {topic_id for topic_id in topic_ids if stores.registry.owner(topic_id) is TopicOwner.PLATFORM}
        partitions = stores.metadata.partitions() if archived else ()
        return sum(
            len(stores.publications.held_segments(partition))
            for partition in partitions
            if partition.topic_id in archived
        )

    def _diagnose_copies(self, topic: str) -> tuple[Diagnosis, ...]:
        included = matches(topic, self._settings.topics.include)
        scope = RunScope((topic,))
        readiness = self.ready(pool=COPIER_POOL, scope=scope)
        if not readiness.holds:
            nothing = CopyPlan("doctor", (), (), ())
            return diagnose(
                Evidence(topic, included, readiness, nothing, (), self._clock.now_ms(), self._unfinished_transactions)
            )
        report = scope.scan(self._log_dirs.scan_all)
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
                has_all=self._is_in_the_cluster(topic),
            )
        )
        return with_left_damage(found, failed)

    def _is_in_the_cluster(self, topic: str) -> bool:
        """Return whether the cluster's metadata have a topic of this name, and so its partitions."""
        with suppress(ClusterMetadataError):
            return self._cluster_metadata().topic_named(topic) is not None
        return False

    def _unfinished_transactions(self, replica: Replica) -> Sequence[UnfinishedTransaction]:
        """Return open transactions, as the brokers report them; if they do not answer, as the log shows them.

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
