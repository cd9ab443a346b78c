"""The app that entry points use: one service per use case, with the adapters of one deployment."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from include.tiering.app.adapters import Adapters
from include.tiering.app.sources import scan_beside, source_of
from include.tiering.settings import TieringSettings, load_settings

if TYPE_CHECKING:
    from include.tiering.audit.record import ActiveGuards
    from include.tiering.audit.service import AuditService
    from include.tiering.configs.config_store import EffectiveConfigs
    from include.tiering.configs.service import ConfigService
    from include.tiering.copying.plan_copy import CopyPlanner
    from include.tiering.copying.service import CopyService
    from include.tiering.expiration.service import ExpirationService
    from include.tiering.handover.ports import HandoverPorts
    from include.tiering.handover.service import HandoverService
    from include.tiering.metadata_sync.service import IngestionService, PublicationService
    from include.tiering.operations.broker_configs import BrokerConfigService
    from include.tiering.operations.deployment_checks import DeploymentChecks
    from include.tiering.operations.service import OperationsService
    from include.tiering.operations.set_up import SetUpService
    from include.tiering.operations.store_owner import StoreOwnerService
    from include.tiering.reading.service import ReadService
    from include.tiering.recovery.service import RecoveryService
    from include.tiering.remote_storage.store_ownership import StoreOwnership
    from include.tiering.restoring.service import RestoreService
    from include.tiering.runs.approval import QuestionService
    from include.tiering.runs.cluster_log_dirs import ClusterLogDirs
    from include.tiering.runs.database_clock import ClockBounds, ClockGuard
    from include.tiering.segments.topics import TopicLifecycle
    from include.tiering.sizes.service import SizeService
    from include.tiering.verification.service import VerificationService


class App:
    """The services of one deployment. Use `open_app`, which closes the adapters.

    A service is constructed, and its module imported, when it is first used. The constructor takes the arguments of
    `Adapters`.
    """

    def __init__(self, settings: TieringSettings, **parts: Any) -> None:
        self.settings = settings
        self.adapters = Adapters(settings, **parts)

    # Use cases.

    @cached_property
    def copying(self) -> "CopyService":
        from include.tiering.copying.service import CopyService

        adapters, stores = self.adapters, self.adapters.stores
        return CopyService(
            topics=self.settings.topics.include,
            source=lambda: adapters.source,
            storage=lambda: adapters.storage,
            ownership=self.ownership,
            quotas=lambda: adapters.quotas,
            topic_quotas=lambda: adapters.topic_quotas,
            metadata=stores.metadata,
            registry=stores.registry,
            failed_copies=stores.failed_copies,
            work=stores.work,
            cluster_metadata=lambda: adapters.cluster_metadata,
            record_cluster_metadata=stores.seen_cluster_metadata.record,
            log_dirs=self.log_dirs,
            names=self.topic_lifecycle,
            planner=self.copy_planner,
            effective=self.effective_configs.settings,
            recorder=adapters.recorder,
            clock=adapters.clock,
            random_bytes=adapters.random_bytes,
            forgotten_copies=lambda partition: self.recovery.forgotten_copies(partition),
            observe=adapters.observe,
        )

    @cached_property
    def expiration(self) -> "ExpirationService":
        from include.tiering.expiration.service import ExpirationService

        adapters, stores = self.adapters, self.adapters.stores
        return ExpirationService(
            source=lambda: adapters.source,
            storage=lambda: adapters.storage,
            clocks=self._clock_guard,
            quotas=lambda: adapters.quotas,
            metadata=stores.metadata,
            registry=stores.registry,
            topic_deletions=stores.topic_deletions,
            deletions=stores.deletions,
            work=stores.work,
            configs=self.effective_configs,
            log_dirs=self.log_dirs,
            names=self.topic_lifecycle,
            guards=self.guards,
            ownership=self.ownership,
            held=lambda partition: stores.publications.held_segments(partition),
            sizes=stores.remote_log_sizes,
            publish_sizes=lambda: self.sizes.partition_sizes(),
            recorder=adapters.recorder,
            clock=adapters.clock,
            observe=adapters.observe,
        )

    @cached_property
    def verification(self) -> "VerificationService":
        from include.tiering.configs.rules import quotas_in_force
        from include.tiering.verification.service import VerificationService

        adapters, stores = self.adapters, self.adapters.stores
        return VerificationService(
            storage=lambda: adapters.storage,
            quotas=lambda: adapters.quotas,
            stored_quotas=lambda: quotas_in_force(stores.configs.snapshot()),
            metadata=stores.metadata,
            failed_copies=stores.failed_copies,
            verifications=stores.verifications,
            ingestion=stores.ingestion,
            log_dirs=self.log_dirs,
            ownership=self.ownership,
            segment_evaluator=adapters.segment_evaluator,
            partition_evaluator=adapters.partition_evaluator,
            effective=self.effective_configs.settings,
            now_ms=stores.now_ms,
            recorder=adapters.recorder,
            clock=adapters.clock,
        )

    @cached_property
    def audit(self) -> "AuditService":
        from include.tiering.audit.service import AuditService
        from include.tiering.remote_storage.location import access_of, open_inventory

        adapters, stores, remote = self.adapters, self.adapters.stores, self.settings.remote_storage
        return AuditService(
            cluster_id=adapters.cluster_id,
            listing=lambda: adapters.object_listing,
            inventory=lambda manifest: open_inventory(manifest, remote.required_url(), access_of(remote)),
            orphans=lambda: adapters.orphans,
            quotas=lambda: adapters.quotas,
            audits=stores.audits,
            removals=stores.removals,
            audited_metadata=stores.audited_metadata,
            metadata=stores.metadata,
            registry=stores.registry,
            ingestion=stores.ingestion,
            ingest=self.ingestion,
            work=stores.work,
            cluster_metadata=lambda: adapters.cluster_metadata,
            ownership=self.ownership,
            guards=self.guards,
            effective=self.effective_configs.settings,
            clocks=self._clock_guard,
            recorder=adapters.recorder,
            clock=adapters.clock,
            observe=adapters.observe,
        )

    @cached_property
    def sizes(self) -> "SizeService":
        from include.tiering.sizes.service import SizeService

        adapters, stores = self.adapters, self.adapters.stores
        return SizeService(
            settings=self.settings,
            sizes=stores.remote_log_sizes,
            metadata=stores.metadata,
            registry=stores.registry,
            failed_copies=stores.failed_copies,
            ingestion=stores.ingestion,
            cluster_metadata=lambda: adapters.cluster_metadata,
            log_dirs=self.log_dirs,
            names=self.topic_lifecycle,
            planner=self.copy_planner,
            recorder=adapters.recorder,
            clock=adapters.clock,
        )

    @cached_property
    def reading(self) -> "ReadService":
        from include.tiering.quotas.metrics import QuotaMetrics
        from include.tiering.reading.service import ReadService
        from include.tiering.remote_storage.object_cache import ObjectCache
        from include.tiering.settings.fields import index_cache_directory

        adapters, remote = self.adapters, self.settings.remote_storage
        directory = index_cache_directory(self.settings.metadata.url.get_secret_value(), os.environ)
        cache = ObjectCache(directory, f"{adapters.cluster_id} {remote.endpoint_url} {adapters.place}")
        return ReadService(
            metadata=adapters.stores.metadata,
            storage=adapters.unguarded_storage.cached(cache),
            quotas=adapters.quotas,
            effective=self.effective_configs.settings,
            threads=lambda: self.configs.reader_threads(),
            on_throttled=QuotaMetrics(adapters.recorder).refused,
        )

    @cached_property
    def ingestion(self) -> "IngestionService":
        from include.tiering.metadata_sync.service import IngestionService

        adapters = self.adapters
        return IngestionService(
            topic=lambda: adapters.metadata_topic_reader,
            ingestion=adapters.stores.ingestion,
            metadata=adapters.stores.metadata,
            log_dirs=self.log_dirs,
            recorder=adapters.recorder,
        )

    @cached_property
    def publication(self) -> "PublicationService":
        from include.tiering.app.handover import publication_service

        return publication_service(self)

    @cached_property
    def handover(self) -> "HandoverService":
        from include.tiering.app.handover import handover_service

        return handover_service(self)

    @cached_property
    def recovery(self) -> "RecoveryService":
        from include.tiering.app.recovery import recovery_service

        return recovery_service(self)

    @cached_property
    def restoring(self) -> "RestoreService":
        from include.tiering.app.recovery import restore_service

        return restore_service(self)

    # Operations.

    @cached_property
    def set_up(self) -> "SetUpService":
        from include.tiering.operations.set_up import SetUpService
        from include.tiering.segments.sql import SqlRemoteLogMetadata

        adapters = self.adapters
        return SetUpService(
            settings=self.settings,
            engine=adapters.create_database,
            unguarded=lambda: adapters.unguarded_storage,
            place=lambda: adapters.place,
            raised_by=lambda: adapters.raised_by(),
            brokers=(lambda: adapters.brokers) if adapters.has_brokers else None,
            metadata_of=lambda cluster_id: SqlRemoteLogMetadata(adapters.engine, cluster_id),
            ownership=self.ownership,
            random_bytes=adapters.random_bytes,
        )

    @cached_property
    def operations(self) -> "OperationsService":
        from include.tiering.app.metrics import METRICS
        from include.tiering.operations.service import OperationsService

        adapters = self.adapters
        return OperationsService(
            settings=self.settings,
            engine=lambda: adapters.engine,
            stores=lambda: adapters.stores,
            source=lambda: adapters.source,
            log_dirs=self.log_dirs,
            cluster_metadata=lambda: adapters.cluster_metadata,
            brokers=(lambda: adapters.brokers) if adapters.has_brokers else None,
            planner=lambda: self.copy_planner,
            checks=self.deployment_checks,
            ledger=lambda: adapters.quota_ledger,
            topic_quotas=lambda: adapters.topic_quotas,
            effective=lambda: self.effective_configs.settings(),
            mirror_pools=lambda: self.configs.mirror_pools(),
            series=lambda: adapters.metrics_writer.series,
            metrics=METRICS,
            quota_windows=lambda: self.effective_configs.quota_windows(),
            clock=adapters.clock,
        )

    @cached_property
    def deployment_checks(self) -> "DeploymentChecks":
        from include.tiering.operations.deployment_checks import DeploymentChecks
        from include.tiering.verification.suite_files import read_suites

        adapters = self.adapters
        return DeploymentChecks(
            settings=self.settings,
            engine=lambda: adapters.engine,
            cluster_id=lambda: adapters.cluster_id,
            stores=lambda: adapters.stores,
            storage=lambda: adapters.storage,
            unguarded=lambda: adapters.unguarded_storage,
            cluster_metadata=lambda: adapters.cluster_metadata,
            log_dirs=self.log_dirs,
            has_brokers=adapters.has_brokers,
            ledger=lambda: adapters.quota_ledger,
            suite_files=lambda: read_suites(self.settings.suites.path).changes,
        )

    @cached_property
    def configs(self) -> "ConfigService":
        from include.tiering.configs.service import ConfigService
        from include.tiering.segments.topics import gone_topics

        adapters, stores = self.adapters, self.adapters.stores
        return ConfigService(
            settings=self.settings,
            store=stores.configs,
            pools=lambda: adapters.pools,
            mirror=stores.pool_mirror,
            work=stores.work,
            ledger=lambda: adapters.quota_ledger,
            clock=adapters.clock,
            claim=self.ownership.claim_if_possible,
            gone=lambda: gone_topics(stores.registry, stores.topic_deletions),
        )

    @cached_property
    def broker_configs(self) -> "BrokerConfigService":
        """Raises SettingError without bootstrap servers."""
        from include.tiering.operations.broker_configs import BrokerConfigService

        return BrokerConfigService(brokers=self.adapters.brokers, log_dirs=self.log_dirs, clock=self.adapters.clock)

    @cached_property
    def questions(self) -> "QuestionService":
        from include.tiering.runs.approval import QuestionService

        stores = self.adapters.stores
        return QuestionService(
            settings=self.settings,
            questions=stores.plan_questions,
            configs=stores.configs,
            claim=self.ownership.claim_if_possible,
        )

    @cached_property
    def store_owner(self) -> "StoreOwnerService":
        from include.tiering.operations.store_owner import StoreOwnerService

        adapters, stores = self.adapters, self.adapters.stores
        return StoreOwnerService(
            settings=self.settings,
            unguarded=lambda: adapters.unguarded_storage,
            place=adapters.place,
            generations=stores.generations,
            metadata=stores.metadata,
            deletions=stores.deletions,
            work=stores.work,
            config_store=stores.configs,
            configs=self.effective_configs,
            audit=self.audit,
            audits=stores.audits,
            ownership=self.ownership,
        )

    # Shared by several use cases.

    @cached_property
    def ownership(self) -> "StoreOwnership":
        from include.tiering.remote_storage.location import access_of, open_storage
        from include.tiering.remote_storage.store_ownership import StoreOwnership

        adapters, remote = self.adapters, self.settings.remote_storage
        return StoreOwnership(
            storage=lambda: adapters.storage,
            unguarded=lambda: adapters.unguarded_storage,
            generations=lambda: adapters.stores.generations,
            place=lambda: adapters.place,
            raised_by=lambda: adapters.raised_by(),
            open_place=lambda place: open_storage(place.url, access_of(remote), layout=place.layout),
            clock=adapters.clock,
            random_bytes=adapters.random_bytes,
            observe=lambda step: adapters.observe_claim(step),
        )

    @cached_property
    def log_dirs(self) -> "ClusterLogDirs":
        from include.tiering.runs.cluster_log_dirs import ClusterLogDirs

        adapters = self.adapters
        return ClusterLogDirs(
            settings=self.settings,
            cluster_id=lambda: adapters.cluster_id,
            source=lambda: adapters.source,
            source_of=partial(source_of, adapters),
            beside=partial(scan_beside, adapters),
            queue_scans=lambda: adapters.stores.queue_scans,
            brokers=(lambda: adapters.brokers) if adapters.has_brokers else None,
        )

    @cached_property
    def effective_configs(self) -> "EffectiveConfigs":
        from include.tiering.configs.config_store import EffectiveConfigs

        return EffectiveConfigs(settings=self.settings, store=self.adapters.stores.configs)

    @cached_property
    def topic_lifecycle(self) -> "TopicLifecycle":
        from include.tiering.segments.topics import TopicLifecycle

        adapters, stores, configs = self.adapters, self.adapters.stores, self.effective_configs
        return TopicLifecycle(
            cluster_id=adapters.cluster_id,
            cluster_metadata=lambda: adapters.cluster_metadata,
            metadata=stores.metadata,
            registry=stores.registry,
            deletions=stores.topic_deletions,
            topic_retentions=configs.topic_retentions,
            expire_after_days=lambda: configs.settings().on_topic.expire_after_days,
            now_ms=stores.now_ms,
        )

    @cached_property
    def copy_planner(self) -> "CopyPlanner":
        from include.tiering.copying.plan_copy import CopyPlanner

        adapters, stores = self.adapters, self.adapters.stores
        return CopyPlanner(
            source=lambda: adapters.source,
            storage=lambda: adapters.storage,
            quotas=lambda: adapters.quotas,
            metadata=stores.metadata,
            registry=stores.registry,
            failed_copies=stores.failed_copies,
            cluster_metadata=lambda: adapters.cluster_metadata,
            log_dirs=self.log_dirs,
            names=self.topic_lifecycle,
            configs=self.effective_configs,
            now_ms=stores.now_ms,
        )

    @cached_property
    def guards(self) -> "ActiveGuards":
        from include.tiering.audit.record import ActiveGuards

        return ActiveGuards(self.adapters.stores.audits)

    @cached_property
    def handover_ports(self) -> "HandoverPorts":
        """The ports of a handover's steps. Raises SettingError without bootstrap servers."""
        from include.tiering.app.handover import handover_ports

        return handover_ports(self)

    def _clock_guard(self) -> "ClockGuard":
        """Return the check of clocks. It reads the store's time without checking the marker: it changes no object."""
        from include.tiering.runs.database_clock import ClockBounds, ClockGuard

        adapters, deletions = self.adapters, self.adapters.stores.deletions

        def bounds() -> "ClockBounds":
            settings = self.effective_configs.settings().clock
            return ClockBounds(settings.max_difference_ms, settings.ignored_until_ms)

        return ClockGuard(deletions, adapters.clock, lambda: adapters.unguarded_storage.clock_ms(), bounds)


@contextmanager
def open_app(settings: TieringSettings | None = None, **parts: Any) -> Iterator[App]:
    """Open an app, and close its adapters when the context exits. `parts` are further arguments of `Adapters`."""
    app = App(settings if settings is not None else load_settings(), **parts)
    try:
        yield app
    finally:
        app.adapters.close()
