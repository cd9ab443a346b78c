"""The services that bring data back: metadata from a store, and topics into another place."""

from typing import TYPE_CHECKING

from include.tiering.database.migrations import upgrade
from include.tiering.recovery.service import RecoveryService
from include.tiering.recovery.sql_recovery import SqlMetadataRecovery
from include.tiering.restoring.service import RestoreService

if TYPE_CHECKING:
    from include.tiering.app.app import App


def recovery_service(app: "App") -> RecoveryService:
    adapters = app.adapters
    return RecoveryService(
        upgrade_schema=lambda: upgrade(adapters.create_database()),
        has_schema=adapters.has_schema,
        unguarded=lambda: adapters.unguarded_storage,
        storage=lambda: adapters.storage,
        place=lambda: adapters.place,
        raised_by=adapters.raised_by,
        recovery_of=lambda cluster_id: SqlMetadataRecovery(adapters.engine, cluster_id),
        adoption=lambda: adapters.stores.recovery,
        metadata=lambda: adapters.stores.metadata,
        registry=lambda: adapters.stores.registry,
        work=lambda: adapters.stores.work,
        log_dirs=app.log_dirs,
        ownership=app.ownership,
        clock=adapters.clock,
        random_bytes=adapters.random_bytes,
    )


def restore_service(app: "App") -> RestoreService:
    adapters = app.adapters
    return RestoreService(
        cluster_id=adapters.cluster_id,
        metadata=adapters.stores.metadata,
        storage=adapters.storage,
        quotas=adapters.quotas,
        reading=app.reading,
        effective=app.effective_configs.settings,
        recorder=adapters.recorder,
        clock=adapters.clock,
    )
