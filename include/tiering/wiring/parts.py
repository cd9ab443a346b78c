"""The adapters of one deployment, chosen by its settings and made when they are first used."""

import secrets
from collections.abc import Collection
from contextlib import suppress
from functools import cached_property

from sqlalchemy import Engine

from include.tiering.clock import Clock, SystemClock
from include.tiering.cluster.contract import ClusterFacts
from include.tiering.cluster.metadata_log import MetadataLog
from include.tiering.cluster.missed_facts import MissedFacts
from include.tiering.cluster.unknown_facts import UnknownFacts
from include.tiering.database.engine import LOCK_WAIT_MS
from include.tiering.database.facts_memory import FactsMemory
from include.tiering.errors import (
    ClusterFactsError,
    MetadataUnavailableError,
    SettingError,
    SourceError,
)
from include.tiering.log_source.contract import LogSource, ScanReport
from include.tiering.log_source.log_dir.dirs import LogDir, identify
from include.tiering.log_source.log_dir.misnamed import kept
from include.tiering.log_source.log_dir.source import LogDirSource
from include.tiering.observability.counted_topic_quotas import CountedTopicQuotas
from include.tiering.observability.metrics import process_recorder
from include.tiering.pools.contract import PoolMirror, Pools
from include.tiering.pools.sql_mirror import SqlPoolMirror
from include.tiering.quota.book_ledger import AnnouncingLedger, BookLedger
from include.tiering.quota.config_rules import quotas_in_force
from include.tiering.quota.config_store import ALL_BROKERS, ConfigStore, EntityType
from include.tiering.quota.contract import QuotaLedger, QuotaObserver, Quotas, QuotasInForce
from include.tiering.quota.scopes import QuotaKind
from include.tiering.quota.shared_quotas import SharedQuotas
from include.tiering.quota.sql_configs import SqlConfigStore
from include.tiering.quota.sql_ledger import SqlBookLedger, open_ledger_engine
from include.tiering.quota.sql_topic_meters import SqlTopicQuotas
from include.tiering.quota.topic_quota import TopicQuotas
from include.tiering.quota.topic_quota_configs import FreshTopicQuotaConfigs
from include.tiering.quota.topic_retention import TopicRetention
from include.tiering.remote_metadata.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.remote_metadata.failed_copies_contract import FailedCopies
from include.tiering.remote_metadata.sql import SqlRemoteLogMetadata
from include.tiering.remote_metadata.sql_failed_copies import SqlFailedCopies
from include.tiering.remote_metadata.sql_topics import SqlTopicRegistry
from include.tiering.settings import TieringSettings, with_dynamic
from include.tiering.wiring.broker_parts import BrokerParts
from include.tiering.wiring.store_parts import StoreParts
from include.tiering.work.contract import ANYWHERE, Placement, WorkStore
from include.tiering.work.deletion_contract import DeletionStore
from include.tiering.work.sql import SqlWorkStore
from include.tiering.work.sql_deletions import SqlDeletionStore


class Parts(StoreParts, BrokerParts):
    """Contracts outside, adapters inside. Nothing is opened before it is asked for; `close` what was."""

    def __init__(self, settings: TieringSettings, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()

    def close(self) -> None:
        if isinstance(quotas := self.__dict__.get("quotas"), SharedQuotas):
            quotas.close()
            process_recorder().settle()
        if "pools" in self.__dict__:
            self.pools.close()
        self.close_brokers()
        for engine in self.__dict__.keys() & {"_ledger_engine", "_patient_ledger_engine", "engine"}:
            self.__dict__[engine].dispose()
        for storage in ("storage", "unguarded_storage", "object_listing", "strays"):
            self.__dict__.pop(storage, None)  # Else a directory's root stays open, and its disk busy.

    @cached_property
    def facts(self) -> ClusterFacts:
        """From the brokers where they can be asked, else from what log dirs show."""
        paths = [log_dir.path for log_dir in self.settings.log_dirs]
        has_log = MetadataLog.is_in(paths)
        if self.has_brokers:
            return self.broker_facts(MetadataLog(paths) if has_log else UnknownFacts())
        return MetadataLog(paths) if has_log else MissedFacts(UnknownFacts(), self._facts_were_known)

    @cached_property
    def facts_memory(self) -> FactsMemory:
        return FactsMemory(self.engine, self.cluster_id)

    @cached_property
    def source(self) -> LogSource:
        """Raises SettingError without log dirs."""
        brokers = self.brokers if self.has_brokers else None
        return LogDirSource(
            self.log_dirs(),
            self.facts,
            named_topics=self.settings.topics.include,
            recorded=kept(lambda topic_id: self.registry.recorded_name(topic_id)),
            brokers=brokers,
        )

    @cached_property
    def metadata(self) -> RemoteLogMetadata:
        return SqlRemoteLogMetadata(self.engine, self.cluster_id)

    @cached_property
    def failed_copies(self) -> FailedCopies:
        return SqlFailedCopies(self.engine, self.cluster_id)

    @cached_property
    def registry(self) -> TopicRegistry:
        return SqlTopicRegistry(self.engine, self.cluster_id)

    @cached_property
    def work(self) -> WorkStore:
        return SqlWorkStore(self.engine, self.cluster_id)

    @cached_property
    def pools(self) -> Pools:
        """Airflow is first asked, and a login first looked for, by a call."""
        # An HTTP client takes half a second to import: only those who ask Airflow wait.
        from include.tiering.pools.airflow_pools import AirflowPools

        airflow = self.settings.airflow
        token = None if airflow.token is None else airflow.token.get_secret_value()
        return AirflowPools.at(airflow.url, login_file=airflow.login_file, token=token)

    @cached_property
    def pool_mirror(self) -> PoolMirror:
        return SqlPoolMirror(self.engine, self.cluster_id)

    @cached_property
    def deletions(self) -> DeletionStore:
        return SqlDeletionStore(self.engine, self.cluster_id)

    @cached_property
    def quotas(self) -> Quotas:
        """Shared by all that sends or reads for this cluster, through the ledger."""
        return SharedQuotas(
            self._books,
            self.clock,
            random_bytes=secrets.token_bytes,
            stored_quotas=self._stored_quotas,
            observer=self._quota_observer(),
        )

    @cached_property
    def configs(self) -> ConfigStore:
        return SqlConfigStore(self.engine, self.cluster_id)

    @cached_property
    def topic_quotas(self) -> TopicQuotas:
        """Admission of segments by what their topic brings in, over meters that all workers share."""
        configs = FreshTopicQuotaConfigs(self.configs, self.clock, enabled=self.settings.topic_quotas.enable)
        return CountedTopicQuotas(SqlTopicQuotas(self.engine, self.cluster_id, configs), process_recorder())

    @cached_property
    def quota_ledger(self) -> QuotaLedger:
        """For people: rounds give up before their shares end, a command waits for a worker that holds the book."""
        books = SqlBookLedger(self._patient_ledger_engine, self.cluster_id)
        return AnnouncingLedger(books, self.clock)

    @cached_property
    def _books(self) -> BookLedger:
        return SqlBookLedger(self._ledger_engine, self.cluster_id)

    @cached_property
    def _ledger_engine(self) -> Engine:
        return open_ledger_engine(self.settings.metadata.url.get_secret_value(), self.clock)

    @cached_property
    def _patient_ledger_engine(self) -> Engine:
        url = self.settings.metadata.url.get_secret_value()
        return open_ledger_engine(url, self.clock, patience_ms=LOCK_WAIT_MS)

    def effective_settings(self) -> TieringSettings:
        """The settings with the dynamic configs of now over them."""
        return with_dynamic(self.settings, self.configs.of_entity(ALL_BROKERS))

    def topic_retentions(self) -> dict[str, TopicRetention]:
        """What is set on topics, by name."""
        values = self.configs.snapshot().values
        return {
            entity.entity_name: TopicRetention.of(configs)
            for entity, configs in values.items()
            if entity.entity_type is EntityType.TOPICS
        }

    def scan_of_our_cluster(self, topics: Collection[str]) -> ScanReport:
        """Replicas of topics that match. Raises SettingError if they are of another cluster than the database, and
        ForeignClusterError if the brokers are."""
        self.require_cluster(self.cluster_id)
        report = self.source.scan(topics=topics)
        if report.cluster_id not in (None, self.cluster_id):
            raise SettingError(
                f"log_dirs belong to cluster {report.cluster_id}, the database serves cluster {self.cluster_id}"
            )
        return report

    def log_dirs(self) -> list[LogDir]:
        """Raises SettingError if none is set."""
        if not self.settings.log_dirs:
            raise SettingError("log_dirs is empty: name the brokers' log directories ({broker_id, path})")
        return [LogDir(log_dir.broker_id, log_dir.path) for log_dir in self.settings.log_dirs]

    def placements(self) -> dict[tuple[int, str], Placement]:
        """Placement by broker id and directory id, of the log dirs that name one and can be identified here."""
        placements = {}
        for log_dir in self.settings.log_dirs:
            placement = Placement(log_dir.queue, log_dir.spark_resource)
            if placement == ANYWHERE:
                continue
            # One that is unreadable, or not what the settings say, is an error of the scan: nothing of it is planned.
            with suppress(SourceError, ClusterFactsError):
                identity = identify(LogDir(log_dir.broker_id, log_dir.path))
                placements[identity.broker_id, identity.directory_id] = placement
        return placements

    @cached_property
    def _were_known(self) -> bool:
        return self.facts_memory.were_known()

    def _facts_were_known(self) -> bool:
        """As this process found it first. Not as far as we know where there is no database: then nothing is copied."""
        with suppress(MetadataUnavailableError):
            return self._were_known
        return False

    def _quota_observer(self) -> QuotaObserver:
        recorder, settings = process_recorder(), self.effective_settings()
        copy, fetch = settings.copy_quota_window, settings.fetch_quota_window
        recorder.measure_over(
            {
                QuotaKind.COPY: (copy.num, copy.size_seconds * 1000),
                QuotaKind.FETCH: (fetch.num, fetch.size_seconds * 1000),
            }
        )
        return recorder

    def _stored_quotas(self) -> QuotasInForce:
        return quotas_in_force(self.configs.snapshot())
