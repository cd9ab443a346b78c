"""The newest scan of each queue in SQL: one row for each queue, replaced by each scan.

The report of a scan is stored as compressed JSON. What another version stored in another form is not read.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sqlalchemy import Engine, select

from include.tiering.database.schema import queue_scans
from include.tiering.database.transactions import DatedStore, insert_for, reading
from include.tiering.kafka.log_dirs.contract import (
    BoundsQuality,
    IneligibleReason,
    LogSegment,
    Replica,
    ReplicaId,
    ScanError,
    ScanReport,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.runs.cluster_log_dirs import KnownLogDir, QueueScan

_FORM: Final = 1
_QUICKLY: Final = 1
"""The level of the compression: most of it is repetition."""


class SqlQueueScans(DatedStore):
    """The newest scan of each queue of one cluster."""

    def __init__(self, engine: Engine, cluster_id: str) -> None:
        super().__init__(engine, cluster_id)
        self._read: dict[str, tuple[tuple[str, int], QueueScan | None]] = {}

    def save(self, scan: QueueScan) -> None:
        """Store a scan in the place of the queue's earlier one; the database sets its time. Idempotent.

        Raises:
            MetadataUnavailableError: the database is locked, unreachable, or without the table.
        """
        log_dirs = [[log_dir.broker_id, log_dir.path, log_dir.directory_id, log_dir.error] for log_dir in scan.log_dirs]
        with self._writing() as (connection, now_ms):
            values = {
                "scanned_at_ms": now_ms,
                "run_id": scan.run_id,
                "host": scan.host,
                "topics": json.dumps(scan.topics),
                "log_dirs": json.dumps(log_dirs),
                "report": report_to_bytes(scan.report),
            }
            insert = insert_for(connection.dialect.name, queue_scans)
            statement = insert.values(cluster_id=self._cluster_id, queue=scan.queue, **values)
            connection.execute(statement.on_conflict_do_update(index_elements=["cluster_id", "queue"], set_=values))

    def runs(self) -> Mapping[str, str]:
        """Return the run id of each scan, by queue. Raises MetadataUnavailableError."""
        statement = select(queue_scans.c.queue, queue_scans.c.run_id).where(
            queue_scans.c.cluster_id == self._cluster_id
        )
        with reading(self._engine) as connection:
            return {row.queue: row.run_id for row in connection.execute(statement)}

    def all(self) -> Mapping[str, QueueScan]:
        """Return the scans by queue, without those that another version stored in another form.

        A report that this object has read before is not read again.

        Raises:
            MetadataUnavailableError: the database is locked, unreachable, or without the table.
        """
        of_cluster = queue_scans.c.cluster_id == self._cluster_id
        with reading(self._engine) as connection:
            known = connection.execute(
                select(queue_scans.c.queue, queue_scans.c.run_id, queue_scans.c.scanned_at_ms).where(of_cluster)
            ).all()
            versions = {row.queue: (row.run_id, row.scanned_at_ms) for row in known}
            self._read = {queue: read for queue, read in self._read.items() if versions.get(queue) == read[0]}
            new = connection.execute(
                select(queue_scans).where(of_cluster, queue_scans.c.queue.in_(versions.keys() - self._read.keys()))
            ).all()
        for row in new:
            self._read[row.queue] = (row.run_id, row.scanned_at_ms), _scan_of(row)
        return {queue: scan for queue, (_, scan) in self._read.items() if scan is not None}


def _scan_of(row: Any) -> QueueScan | None:
    report = report_of_bytes(row.report)
    if report is None:
        return None
    log_dirs = tuple(KnownLogDir(*values) for values in json.loads(row.log_dirs))
    topics = tuple(json.loads(row.topics))
    return QueueScan(row.queue, row.run_id, row.host, topics, log_dirs, report, row.scanned_at_ms)


def report_to_bytes(report: ScanReport) -> bytes:
    """Return a report as bytes."""
    document = {
        "form": _FORM,
        "cluster_id": report.cluster_id,
        "replicas": [_of_replica(replica) for replica in report.replicas],
        "errors": [_of_error(error) for error in report.errors],
        "notes": [_of_error(note) for note in report.notes],
    }
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), _QUICKLY)


def report_of_bytes(stored: bytes) -> ScanReport | None:
    """Return the report of `report_to_bytes`; None if another version of the library wrote it in another form."""
    document = json.loads(zlib.decompress(stored))
    if document["form"] != _FORM:
        return None
    return ScanReport(
        document["cluster_id"],
        tuple(_replica(values) for values in document["replicas"]),
        tuple(ScanError(*values) for values in document["errors"]),
        tuple(ScanError(*values) for values in document["notes"]),
    )


def _of_error(error: ScanError) -> list[Any]:
    return [error.path, error.position, error.error, error.message, error.partition]


def _of_replica(replica: Replica) -> list[Any]:
    partition = replica.topic_id_partition
    return [
        [str(partition.topic_id), partition.topic, partition.partition],
        replica.replica_id.broker_id,
        replica.replica_id.directory_id,
        replica.log_start_offset,
        replica.log_end_offset,
        replica.high_watermark,
        replica.last_stable_offset,
        replica.recovery_point,
        replica.bounds.value,
        _of_epochs(replica.leader_epochs),
        replica.leader_epoch,
        [_of_segment(segment) for segment in replica.segments],
        replica.chosen,
        replica.owner_is_broker,
        replica.segment_bytes,
        replica.was_compacted,
    ]


def _replica(values: list[Any]) -> Replica:
    (topic_id, topic, number), broker_id, directory_id, start, end, watermark, stable, recovery, *rest = values
    bounds, epochs, epoch, segments, chosen, owner_is_broker, segment_bytes, was_compacted = rest
    return Replica(
        ReplicaId(TopicIdPartition(Uuid.parse(topic_id), number, topic), broker_id, directory_id),
        start,
        end,
        watermark,
        stable,
        recovery,
        BoundsQuality(bounds),
        _epochs(epochs),
        epoch,
        tuple(_segment(segment) for segment in segments),
        chosen,
        owner_is_broker,
        segment_bytes,
        was_compacted,
    )


def _of_segment(segment: LogSegment) -> list[Any]:
    return [
        segment.base_offset,
        segment.end_offset,
        segment.size_bytes,
        segment.max_timestamp_ms,
        _of_epochs(segment.leader_epochs),
        segment.active,
        None if segment.reason is None else segment.reason.code,
        segment.batch_count,
        segment.is_corrupt,
    ]


def _segment(values: list[Any]) -> LogSegment:
    first, last, size_bytes, timestamp_ms, epochs, active, code, batch_count, is_corrupt = values
    reason = None if code is None else IneligibleReason.of(code)
    return LogSegment(first, last, size_bytes, timestamp_ms, _epochs(epochs), active, reason, batch_count, is_corrupt)


def _of_epochs(epochs: LeaderEpochs) -> list[list[int]]:
    return [list(entry) for entry in epochs]


def _epochs(entries: Iterable[tuple[int, int]]) -> LeaderEpochs:
    return LeaderEpochs.of(entries)
