"""Handovers and the publication of metadata records: the services, and what the steps of a handover need."""

import secrets
from functools import partial
from typing import TYPE_CHECKING, Final

from include.tiering.errors import SettingError
from include.tiering.handover.actions import HandoverActions, store_properties
from include.tiering.handover.drive import kept_alive
from include.tiering.handover.ports import HandoverLimits, HandoverPorts
from include.tiering.handover.service import HandoverService, require_publishable
from include.tiering.kafka.cluster.kafka_records import KafkaServedRecords
from include.tiering.metadata_sync.service import PublicationService
from include.tiering.model.segments import Depth

if TYPE_CHECKING:
    from include.tiering.app.app import App

_LEASE_MS: Final = 30_000


def publication_service(app: "App") -> PublicationService:
    """Return the service that publishes metadata records to the brokers' topic `__remote_log_metadata`."""
    adapters, stores = app.adapters, app.adapters.stores
    return PublicationService(
        settings=app.settings,
        publisher=lambda: adapters.publisher,
        brokers=lambda: adapters.brokers,
        publications=stores.publications,
        require_allowed=partial(require_publishable, stores.handovers),
        metadata=stores.metadata,
        registry=stores.registry,
        log_dirs=app.log_dirs,
        ownership=app.ownership,
        recorder=adapters.recorder,
    )


def handover_service(app: "App") -> HandoverService:
    """Return the service that hands topics over from this platform to their brokers."""
    adapters = app.adapters
    return HandoverService(
        handovers=adapters.stores.handovers,
        ports=lambda: app.handover_ports,
        brokers=lambda: adapters.brokers,
        require_free_broker_id=lambda: app.publication.require_free_broker_id(),
        ownership=app.ownership,
        recorder=adapters.recorder,
        random_bytes=adapters.random_bytes,
    )


def handover_ports(app: "App") -> HandoverPorts:
    """Return what the steps of a handover work with: brokers, stores and actions of the platform.

    Raises:
        SettingError: no bootstrap servers are set.
        MetadataUnavailableError, ForeignClusterError, BrokersError: as `ClusterLogDirs.require_cluster`.
    """
    adapters, stores = app.adapters, app.adapters.stores
    if not adapters.has_brokers:
        raise SettingError("cluster.bootstrap_servers is not set: a handover reads and changes the brokers' configs")
    app.log_dirs.require_cluster()
    settings = app.effective_configs.settings().handover
    return HandoverPorts(
        handovers=stores.handovers,
        brokers=adapters.brokers,
        source=adapters.source,
        metadata=stores.metadata,
        registry=stores.registry,
        work=stores.work,
        metadata_topic=adapters.metadata_topic_writer,
        publications=stores.publications,
        actions=HandoverActions(
            settings=app.settings,
            effective=app.effective_configs.settings,
            copying=app.copying,
            verification=app.verification,
            metadata=stores.metadata,
            storage=adapters.storage,
            quotas=adapters.quotas,
            ownership=app.ownership,
            publisher=adapters.publisher,
            served=KafkaServedRecords(adapters.client_config(), clock=adapters.clock),
            brokers=adapters.brokers,
            depth=Depth.DEEP if settings.verify_deep_enable else Depth.SHALLOW,
        ),
        store=store_properties(app.settings),
        clock=adapters.clock,
        new_run_id=lambda: f"handover-{secrets.token_hex(8)}",
        keep_alive=lambda drive: kept_alive(stores.handovers, drive, _LEASE_MS),
        limits=HandoverLimits(
            lease_ms=_LEASE_MS,
            hold_seconds=settings.hold_hours * 3600,
            watch_seconds=float(settings.watch_seconds),
            settle_seconds=float(settings.settle_seconds),
            local_steps=settings.local_steps,
            verify_deep=settings.verify_deep_enable,
            count_once=settings.brokers_count_once,
        ),
    )
