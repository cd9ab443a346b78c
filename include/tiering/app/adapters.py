"""Adapters to what is outside of this process: database, remote store, log directories, brokers, Airflow, metrics.

The settings determine which adapters are used. Each adapter is opened at its first use; `close` closes those that were
opened. The module of an adapter is imported at that first use, too: a command or a batch needs few of the modules, and
importing all of them takes longer than planning a copy.
"""

import logging
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from include.tiering.app.sql_stores import Stores
from include.tiering.clock import Clock, SystemClock
from include.tiering.database.engine import LOCK_WAIT_MS, is_created, open_engine
from include.tiering.database.migrations import current_revision, require_head
from include.tiering.database.store_identity import description_of, known_clusters_if_migrated, require_whole
from include.tiering.errors import MetadataUnavailableError
from include.tiering.model.ownership import RaisedBy
from include.tiering.remote_storage.location import (
    access_of,
    form_of,
    layout_options,
    open_listing,
    open_orphans,
    open_storage,
    place_of,
)
from include.tiering.settings import TieringSettings
from include.tiering.settings.connections import check_connection, librdkafka_config, publisher_connection
from include.tiering.settings.load import database_words
from include.tiering.telemetry.metrics import StepObserver, ignore

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from include.tiering.configs.pools import Pools
    from include.tiering.database.metric_series import MetricSeries
    from include.tiering.database.metrics_writer import MetricsWriter
    from include.tiering.kafka.cluster.contract import Brokers, ClusterMetadata
    from include.tiering.kafka.fetch_api.leader_logs import KafkaLeaderLogs
    from include.tiering.kafka.log_dirs.contract import LogSource
    from include.tiering.kafka.metadata_topic.contract import MetadataTopic
    from include.tiering.metadata_sync.publish import Publisher
    from include.tiering.model.ownership import StorePlace
    from include.tiering.quotas.contract import QuotaLedger, Quotas
    from include.tiering.quotas.topic_quotas import TopicQuotas
    from include.tiering.remote_storage.claim_store import ClaimStep
    from include.tiering.remote_storage.object_store import ObjectListing
    from include.tiering.remote_storage.orphan_objects import StoredOrphans
    from include.tiering.remote_storage.segment_storage import GuardedStorage, SegmentStorage
    from include.tiering.telemetry.metrics import MetricsRecorder
    from include.tiering.verification.measures import PartitionMeasure, SegmentMeasure
    from include.tiering.verification.rules import RuleEvaluator
    from include.tiering.verification.suite_files import SuitesInForce
    from include.tiering.verification.suites import Suite


class Adapters:
    """The adapters of one deployment.

    Attributes:
        observe: called with each step of a protocol, the partition, and a number, usually an offset.
        observe_claim: called with each step of raising the store's generation.
    """

    def __init__(
        self,
        settings: TieringSettings,
        *,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        quotas: "Quotas | None" = None,
        observe: StepObserver = ignore,
    ) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.random_bytes = random_bytes
        self.observe = observe
        self.observe_claim: Callable[[ClaimStep], None] = ignore
        if quotas is not None:
            self.quotas = quotas

    def close(self) -> None:
        """Write the metrics that are not written yet, and close the adapters that were opened.

        These are quotas (unless the caller passed them), Airflow's pools, Kafka's clients, database engines and
        directories. An error in closing one of them is raised after the others were closed.
        """
        opened = self.__dict__
        with ExitStack() as last_to_first:
            for storage in ("storage", "unguarded_storage", "object_listing", "orphans"):
                # Otherwise a store's directory stays open, and its disk cannot be unmounted.
                last_to_first.callback(opened.pop, storage, None)
            for engine in opened.keys() & {"_ledger_engine", "_patient_ledger_engine", "engine"}:
                last_to_first.callback(opened[engine].dispose)
            last_to_first.callback(self._dispose_metrics_engine)
            for client in opened.keys() & {"leader_logs", "pools", "metadata_topic_reader", "metadata_topic_writer"}:
                last_to_first.callback(opened[client].close)
            if "metrics_writer" in opened:
                last_to_first.callback(self.metrics_writer.close)
            if "brokers" in opened:
                last_to_first.callback(self._close_brokers)
            if "quotas" in opened:
                last_to_first.callback(self._close_quotas)

    # The database.

    @cached_property
    def engine(self) -> "Engine":
        """The database. Raises MetadataUnavailableError if it is a SQLite file that does not exist."""
        if not is_created(self._database_url):
            raise MetadataUnavailableError(f"there is no {database_words(self.settings)}")
        return self.create_database()

    def create_database(self) -> "Engine":
        """Return the database; a SQLite file that does not exist is created. Only for setting a deployment up."""
        self.engine = self.__dict__.get("engine") or open_engine(self._database_url, clock=self.clock)
        return self.engine

    def has_schema(self) -> bool:
        """Return whether the database has tables. Raises MetadataUnavailableError if they are of another revision."""
        if not is_created(self._database_url) or current_revision(self.engine) is None:
            return False
        require_head(self.engine)
        return True

    @cached_property
    def cluster_id(self) -> str:
        """The id of the cluster that the database was set up for.

        Raises:
            MetadataUnavailableError: the database is not set up or not migrated, its metadata is being rebuilt, or the
                database cannot be reached.
        """
        known = known_clusters_if_migrated(self.engine)
        if len(known) != 1:
            raise MetadataUnavailableError(f"{len(known)} clusters instead of one in {database_words(self.settings)}")
        require_head(self.engine)
        require_whole(self.engine)
        return known[0]

    @cached_property
    def stores(self) -> Stores:
        """The SQL stores. Raises MetadataUnavailableError as `cluster_id` does."""
        return Stores(self.engine, self.cluster_id)

    # The remote store.

    @cached_property
    def place(self) -> "StorePlace":
        """The place of the store according to the settings."""
        remote = self.settings.remote_storage
        return place_of(remote.required_url(), remote.layout, remote.key_prefix)

    @cached_property
    def storage(self) -> "GuardedStorage":
        """The remote store. It refuses changes if this database does not accept the store's marker."""
        return self.unguarded_storage.guarded(self.stores.generations.accepted, self.clock, self.place)

    @cached_property
    def unguarded_storage(self) -> "SegmentStorage":
        """The remote store without a check of its marker: for set-up, checks, claims, moves, and rebuilding."""
        remote = self.settings.remote_storage
        return open_storage(remote.required_url(), access_of(remote), **layout_options(remote))

    @cached_property
    def object_listing(self) -> "ObjectListing[Any]":
        """Listing of all objects in the store."""
        remote = self.settings.remote_storage
        return open_listing(remote.required_url(), access_of(remote), layout=remote.layout)

    @cached_property
    def orphans(self) -> "StoredOrphans":
        remote = self.settings.remote_storage
        return open_orphans(
            remote.required_url(),
            lambda: self.storage.check_marker(),
            access_of(remote),
            layout=remote.layout,
            form=form_of(remote),
        )

    def raised_by(self) -> RaisedBy:
        """Return this host, this database and the time: the store's marker says who raised its generation, and when."""
        return RaisedBy(socket.gethostname(), description_of(self._database_url), self.clock.now_ms())

    # Log directories and brokers. Only processes that connect to brokers load librdkafka.

    @cached_property
    def cluster_metadata(self) -> "ClusterMetadata":
        """Cluster metadata from the brokers; without bootstrap servers from a log directory's metadata log, if any."""
        from include.tiering.kafka.cluster.cluster_metadata import (
            AdminClusterMetadata,
            LostClusterMetadata,
            UnknownClusterMetadata,
        )
        from include.tiering.kafka.cluster.metadata_log import MetadataLog

        paths = [log_dir.path for log_dir in self.settings.log_dirs]
        has_log = MetadataLog.is_in(paths)
        if self.has_brokers:
            return AdminClusterMetadata(self.brokers, MetadataLog(paths) if has_log else UnknownClusterMetadata())
        return MetadataLog(paths) if has_log else LostClusterMetadata(self._metadata_was_known)

    @cached_property
    def source(self) -> "LogSource":
        """Where segments are read. Raises SettingError and MetadataUnavailableError as `sources.log_source` does."""
        from include.tiering.app.sources import log_source

        return log_source(self)

    @cached_property
    def leader_logs(self) -> "KafkaLeaderLogs":
        """Connections to the leaders, opened when they are needed. Raises SettingError without bootstrap servers."""
        from include.tiering.copying.metrics import LEADER_THROTTLED_SECONDS
        from include.tiering.kafka.fetch_api.leader_logs import KafkaLeaderLogs
        from include.tiering.kafka.protocol.login import BrokerLogin

        login, pace = BrokerLogin.from_config(self.client_config()), self.settings.leaders.max_bytes_per_second
        return KafkaLeaderLogs(
            login,
            self.clock,
            pace,
            on_throttled=lambda topic, seconds: self.recorder.add(LEADER_THROTTLED_SECONDS, seconds, topic),
        )

    @property
    def has_brokers(self) -> bool:
        return self.settings.cluster.bootstrap_servers is not None

    @cached_property
    def brokers(self) -> "Brokers":
        """The admin client of the brokers. It connects with the first request.

        Raises:
            SettingError: no bootstrap servers, or unusable settings of the connection.
        """
        from include.tiering.kafka.cluster.kafka_admin import KafkaBrokers

        return KafkaBrokers(self.client_config(), self.clock)

    def client_config(self) -> dict[str, str | int]:
        """Return the config of all librdkafka clients but the publisher's. Contains secrets; raises SettingError."""
        check_connection(self.settings.cluster, "cluster")
        return dict(librdkafka_config(self.settings.cluster))

    def _publisher_config(self) -> dict[str, str | int]:
        """Return the config of the client that writes the metadata topic. Contains secrets; raises SettingError."""
        publisher = publisher_connection(self.settings.cluster, self.settings.metadata_topic)
        check_connection(publisher, "metadata_topic")
        return dict(librdkafka_config(publisher))

    @cached_property
    def metadata_topic_reader(self) -> "MetadataTopic":
        """The metadata topic with the reading principal. Raises SettingError without bootstrap servers."""
        from include.tiering.kafka.metadata_topic.kafka import KafkaMetadataTopic

        return KafkaMetadataTopic(self.client_config(), clock=self.clock)

    @cached_property
    def metadata_topic_writer(self) -> "MetadataTopic":
        """The metadata topic with the publisher's principal. Raises SettingError without bootstrap servers."""
        from include.tiering.kafka.metadata_topic.kafka import KafkaMetadataTopic

        return KafkaMetadataTopic(self._publisher_config(), clock=self.clock)

    @cached_property
    def publisher(self) -> "Publisher":
        """The publisher of metadata records. Raises SettingError without bootstrap servers."""
        from include.tiering.metadata_sync.publish import Publisher

        topic, stores = self.settings.metadata_topic, self.stores
        return Publisher(
            self.metadata_topic_writer,
            stores.publications,
            stores.metadata,
            stores.registry,
            stores.work,
            self.clock,
            ignore,
            broker_id=topic.broker_id,
            settle_ms=topic.settle_ms,
        )

    # Airflow's pools, and quotas.

    @cached_property
    def pools(self) -> "Pools":
        """Airflow's pools. The login file is read, and Airflow is called, with the first request."""
        # An HTTP client takes half a second to import: only processes that call Airflow wait for it.
        from include.tiering.configs.airflow_pools import AirflowPools

        airflow = self.settings.airflow
        token = None if airflow.token is None else airflow.token.get_secret_value()
        return AirflowPools.at(airflow.url, login_file=airflow.login_file, token=token)

    @cached_property
    def quotas(self) -> "Quotas":
        """The quotas, which all processes that send or read for this cluster share through the ledger."""
        from include.tiering.configs.rules import quotas_in_force
        from include.tiering.quotas.metrics import QuotaMetrics
        from include.tiering.quotas.shared_quotas import SharedQuotas, SqlLedgerStore

        # The cluster id comes first: without a database it raises, before a file for the ledger is created.
        ledger = SqlLedgerStore(cluster_id=self.cluster_id, engine=self._ledger_engine)
        return SharedQuotas(
            ledger,
            self.clock,
            random_bytes=secrets.token_bytes,
            stored_quotas=lambda: quotas_in_force(self.stores.configs.snapshot()),
            observer=QuotaMetrics(self.recorder),
        )

    @cached_property
    def quota_ledger(self) -> "QuotaLedger":
        """The ledger for commands: it waits longer for the ledger's lock than workers do."""
        from include.tiering.quotas.shared_quotas import AnnouncingLedger, SqlLedgerStore

        store = SqlLedgerStore(cluster_id=self.cluster_id, engine=self._patient_ledger_engine)
        return AnnouncingLedger(store, self.clock)

    @cached_property
    def topic_quotas(self) -> "TopicQuotas":
        """Admission of segments by the bytes-in rate of their topic, with meters that all workers share."""
        from include.tiering.configs.config_store import FreshTopicQuotaConfigs
        from include.tiering.quotas.metrics import CountedTopicQuotas
        from include.tiering.quotas.sql_topic_quotas import SqlTopicQuotas
        from include.tiering.segments.topics import gone_topics

        stores, enabled = self.stores, self.settings.topic_quotas.enable
        gone = partial(gone_topics, stores.registry, stores.topic_deletions)
        configs = FreshTopicQuotaConfigs(stores.configs, self.clock, enabled=enabled, gone=gone)
        return CountedTopicQuotas(SqlTopicQuotas(self.engine, self.cluster_id, configs), self.recorder)

    # Metrics.

    @property
    def recorder(self) -> "MetricsRecorder":
        """Collects the metrics of this process; they are written each minute, and when the adapters are closed."""
        return self.metrics_writer.recorder

    @cached_property
    def metrics_writer(self) -> "MetricsWriter":
        """Writes the metrics of this process into the database, where `series` has those of all processes."""
        from include.tiering.database.metrics_writer import MetricsWriter

        return MetricsWriter(lambda: self._metric_series, self.clock)

    @cached_property
    def _metric_series(self) -> "MetricSeries":
        """The metrics of all processes. Their separate engine gives up early, so that no work waits long for them."""
        from include.tiering.database.metric_series import MetricSeries

        cluster_id = self.cluster_id  # First: it raises without a database, where the engine below would create one.
        return MetricSeries(self._metrics_engine, cluster_id)

    # Rules, evaluated by Great Expectations. It takes seconds to import: only processes that need it wait.

    @cached_property
    def suites(self) -> "SuitesInForce":
        """The suites; Great Expectations has loaded and tried what files add. Raises SettingError for a wrong file."""
        from include.tiering.verification.suite_files import read_suites

        suites = read_suites(self.settings.suites.path)
        if suites.has_expectations:
            logging.getLogger("great_expectations").setLevel(logging.WARNING)
            from include.tiering.verification.great_expectations_evaluator import check_expectations

            check_expectations(suites)
        return suites

    def segment_evaluator(self, results_dir: Path | None = None) -> "RuleEvaluator[SegmentMeasure]":
        from include.tiering.verification.suites import LazyRuleEvaluator

        return LazyRuleEvaluator(self.suites.segments, partial(great_expectations, results_dir=results_dir))

    def partition_evaluator(self, results_dir: Path | None = None) -> "RuleEvaluator[PartitionMeasure]":
        from include.tiering.verification.suites import LazyRuleEvaluator

        return LazyRuleEvaluator(self.suites.partitions, partial(great_expectations, results_dir=results_dir))

    def _close_quotas(self) -> None:
        """Close the quotas, unless a caller passed other quotas."""
        from include.tiering.quotas.shared_quotas import SharedQuotas

        if isinstance(self.quotas, SharedQuotas):
            self.quotas.close()

    def _close_brokers(self) -> None:
        from include.tiering.kafka.cluster.kafka_admin import KafkaBrokers

        if isinstance(self.brokers, KafkaBrokers):
            self.brokers.close()

    def _dispose_metrics_engine(self) -> None:
        """Close the database connections of metrics. They may have been opened as late as in `metrics_writer.close`."""
        if (engine := self.__dict__.get("_metrics_engine")) is not None:
            engine.dispose()

    @property
    def _database_url(self) -> str:
        return self.settings.metadata.url.get_secret_value()

    @cached_property
    def _ledger_engine(self) -> "Engine":
        from include.tiering.quotas.shared_quotas import open_ledger_engine

        return open_ledger_engine(self._database_url, self.clock)

    @cached_property
    def _patient_ledger_engine(self) -> "Engine":
        from include.tiering.quotas.shared_quotas import open_ledger_engine

        return open_ledger_engine(self._database_url, self.clock, patience_ms=LOCK_WAIT_MS)

    @cached_property
    def _metrics_engine(self) -> "Engine":
        from include.tiering.database.metrics_writer import WRITER_PATIENCE_MS

        return open_engine(self._database_url, clock=self.clock, patience_ms=WRITER_PATIENCE_MS)

    @cached_property
    def _were_known(self) -> bool:
        return self.stores.seen_cluster_metadata.were_known()

    def _metadata_was_known(self) -> bool:
        """Return whether cluster metadata was read before this process first checked; False without the database."""
        with suppress(MetadataUnavailableError):
            return self._were_known
        return False


def reconnect(adapters: Adapters) -> None:
    """Close idle connections to the database, so that what is used next is the file or server of that moment.

    Raises:
        MetadataUnavailableError: as `Adapters.cluster_id` does, and if the database is another cluster's now.
    """
    opened = adapters.__dict__
    for engine in opened.keys() & {"engine", "_ledger_engine", "_patient_ledger_engine", "_metrics_engine"}:
        opened[engine].dispose()
    if (known := opened.pop("cluster_id", None)) not in (None, adapters.cluster_id):
        raise MetadataUnavailableError(f"{database_words(adapters.settings)} is of another cluster than {known} now")


def great_expectations(suites: "Sequence[Suite]", results_dir: Path | None = None) -> "RuleEvaluator[Any]":
    """Return an evaluator of the rules in `suites`. It stores results below `results_dir`, unless that is None."""
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    from include.tiering.verification.great_expectations_evaluator import GreatExpectationsEvaluator

    return GreatExpectationsEvaluator(suites, results_dir=results_dir)
