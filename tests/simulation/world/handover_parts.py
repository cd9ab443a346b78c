"""Publishing and handovers of one process, put together as `wiring` does, over the model brokers and their metadata
topic. What is compared through consumers is made of the model's records."""

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from include.tiering.errors import BrokersRefusedError, RemoteChecksumError, UnknownSegmentError
from include.tiering.handover.actions import HandoverActions
from include.tiering.handover.checks import StoreProperties
from include.tiering.handover.drive import kept_alive
from include.tiering.handover.ports import HandoverLimits, HandoverPorts, StoredDigest
from include.tiering.handover.store import SqlHandoverStore
from include.tiering.kafka.cluster.contract import Brokers
from include.tiering.metadata_sync.publish import Publisher
from include.tiering.metadata_sync.sql_publication import SqlPublicationStore
from include.tiering.model.histories import OffsetRange
from include.tiering.model.segments import Depth, RangeDigest, RecordDigest, SeenRecord, TopicIdPartition
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.admin import ModelAdmin
from tests.simulation.world.contracts import HANDOVERS, PUBLICATIONS
from tests.simulation.world.metadata_topic import ModelMetadataTopic
from tests.simulation.world.records import crc32c

PUBLISHER_ID: Final = 424_242
SETTLE_MS: Final = 40_000
LEASE_MS: Final = 60_000
"""Shorter than usual, as schedules are short."""
LIMITS: Final = HandoverLimits(
    count_once=True,  # The brokers of the model count a byte that is local and remote once.
    lease_ms=30_000,
    watch_seconds=20.0,
    poll_seconds=2.0,
    settle_seconds=8.0,
    local_steps=2,
    max_rounds=8,
)


def handover_parts(
    world: Any,
    process: Process,
    app: Any,
    proxy: Callable[[str, object, Any], Any],
    observe: Callable[[Any, Any, int], None],
) -> dict[str, object]:
    """Of an `App`, by name. `proxy` puts a contract behind scheduling points."""
    db, cluster_id = world.db, world.cluster.cluster_id

    def now_ms(_connection: object) -> int:
        return int(world.scheduler.database_ms)

    def observe_record(step: Any, partition: TopicIdPartition, number: int) -> None:
        observe(f"record {step}", partition, number)

    numbers = iter(range(1, 1_000_000))
    brokers, topic = ModelAdmin(world, process), ModelMetadataTopic(world, process)
    publications = proxy("publications", SqlPublicationStore(db.engine, cluster_id, now_ms=now_ms), PUBLICATIONS)
    handovers = proxy("handovers", SqlHandoverStore(db.engine, cluster_id, now_ms=now_ms), HANDOVERS)
    publisher = Publisher(
        topic,
        publications,
        app.adapters.stores.metadata,
        app.adapters.stores.registry,
        app.adapters.stores.work,
        process,
        observe_record,
        broker_id=PUBLISHER_ID,
        settle_ms=SETTLE_MS,
        lease_ms=LEASE_MS,
    )
    ports = HandoverPorts(
        handovers=handovers,
        brokers=cast(Brokers, brokers),
        source=app.adapters.source,
        metadata=app.adapters.stores.metadata,
        registry=app.adapters.stores.registry,
        work=app.adapters.stores.work,
        metadata_topic=topic,
        publications=publications,
        actions=_Actions(world, process, app, publisher, cast(Brokers, brokers)),
        store=StoreProperties("aiven", None, wants_custom_metadata=False),
        clock=process,
        new_run_id=lambda: f"{process.name}-{next(numbers)}",
        keep_alive=lambda drive: kept_alive(handovers, drive, LIMITS.lease_ms),
        limits=LIMITS,
    )
    return {
        "brokers": brokers,
        "publications": publications,
        "publisher": publisher,
        "handovers": handovers,
        "handover_ports": ports,
    }


class _Actions(HandoverActions):
    """The product's, but for what looks into records."""

    def __init__(self, world: Any, process: Process, app: Any, publisher: Publisher, brokers: Brokers) -> None:
        stores = app.adapters.stores
        super().__init__(
            settings=app.settings,
            effective=app.effective_configs.settings,
            copying=app.copying,
            verification=app.verification,
            metadata=stores.metadata,
            storage=app.adapters.storage,
            quotas=app.adapters.quotas,
            brokers=brokers,
            ownership=app.ownership,
            publisher=publisher,
            served=None,  # type: ignore[arg-type]
            depth=Depth.SHALLOW,
        )
        self._world = world
        self._process = process

    def stored_digest(self, partition: TopicIdPartition, start_offset: int, end_offset: int) -> StoredDigest:
        for row in self._metadata.list_segments(partition):
            found = row.metadata
            if found.is_finished and found.start_offset <= start_offset and end_offset <= found.end_offset:
                known = self._world.watch.rows.known[str(found.remote_log_segment_id.id)]
                content = self._world.store.objects.get(known.key("log"), b"")
                if row.log_crc32c is not None and crc32c(content) != row.log_crc32c:
                    raise RemoteChecksumError(f"{found.remote_log_segment_id}: other bytes")
                return StoredDigest(_digest(content, start_offset, end_offset))
        raise UnknownSegmentError(
            f"{partition}: no segment of this platform has all offsets {start_offset}..{end_offset}"
        )

    def served_digest(
        self, partition: TopicIdPartition, start_offset: int, end_offset: int, leave_out: Sequence[OffsetRange] = ()
    ) -> RangeDigest:
        self._process.scheduler.point(self._process, "brokers.consume", "sleep")
        log, served = self._world.cluster.logs.get(partition), b""
        for offset in range(start_offset, end_offset + 1):
            record = None if log is None else self._world.managers.fetch(log, offset)
            if record is None:
                raise BrokersRefusedError(f"{partition}: offset {offset} is out of range")
            served += record
        return _digest(served, start_offset, end_offset)


def _digest(content: bytes, start_offset: int, end_offset: int) -> RangeDigest:
    digest = RecordDigest()
    for record in content.split(b";")[:-1]:
        offset = int(record.rpartition(b":")[2])
        if start_offset <= offset <= end_offset:
            digest.add(SeenRecord(offset, False, 0, None, record))
    return digest.result()
