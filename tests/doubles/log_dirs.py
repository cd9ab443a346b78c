"""Log directories written as a broker writes them, small and field by field, for tests that then disturb them."""

import os
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from include.tiering.formats import indexes
from include.tiering.formats.indexes import ProducerEntry
from include.tiering.formats.record_batch import parse_header
from include.tiering.model.segments import Uuid
from tests.doubles.record_batches import record_batch
from tests.doubles.tiered_topic import config_record, metadata_batch, partition_record, topic_record

CLUSTER_ID = "cluster-of-the-tests-A"
ORDERS = Uuid(b"orders-topic-id0")
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"


def directory_id(number: int) -> Uuid:
    return Uuid(struct.pack(">qq", 77, number + 1000))


class BrokerLogDir:
    """One log directory; `path` exists with its meta.properties."""

    def __init__(
        self, path: Path, *, broker_id: int = 1, directory: int | None = None, cluster_id: str = CLUSTER_ID
    ) -> None:
        self.path = path
        self.directory_id = directory_id(broker_id if directory is None else directory)
        path.mkdir(parents=True)
        text = f"version=1\ncluster.id={cluster_id}\nnode.id={broker_id}\ndirectory.id={self.directory_id}\n"
        (path / "meta.properties").write_text(text)
        self._metadata_offset = 0

    def checkpoint(self, name: str, offsets: Mapping[str, int]) -> None:
        """`offsets` by directory name."""
        lines = [
            f"{partition.rpartition('-')[0]} {partition.rpartition('-')[2]} {o}" for partition, o in offsets.items()
        ]
        _replace(self.path / name, "\n".join(["0", str(len(lines)), *lines, ""]))

    def all_current(self, offsets: Mapping[str, int]) -> None:
        """High watermarks and recovery points, as after a clean stop."""
        self.checkpoint(HIGH_WATERMARKS, offsets)
        self.checkpoint(RECOVERY_POINTS, offsets)

    def partition(
        self, name: str = "orders-0", topic_id: Uuid = ORDERS, *, epochs: Iterable[tuple[int, int]] = ((0, 0),)
    ) -> "PartitionDirectory":
        return PartitionDirectory(self.path / name, topic_id, epochs)

    def append_metadata(self, *values: bytes) -> None:
        """One more batch of the metadata log, which begins at offset 0."""
        directory = self.path / "__cluster_metadata-0"
        directory.mkdir(exist_ok=True)
        with (directory / f"{0:020d}.log").open("ab") as log:
            log.write(metadata_batch(self._metadata_offset, values))
        self._metadata_offset += len(values)

    def create_topic(
        self,
        topic: str = "orders",
        topic_id: Uuid = ORDERS,
        *,
        leader: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """A topic of one partition, whose replica is on broker 1 (leader -1: all brokers stopped)."""
        records = [topic_record(topic, topic_id), partition_record(topic_id, leader=leader)]
        self.append_metadata(*records, *(config_record(topic, key, value) for key, value in (configs or {}).items()))


class PartitionDirectory:
    """A replica, begun an hour ago. Segments are written in ascending order; the last one given without `next_base` is
    the active one."""

    def __init__(self, path: Path, topic_id: Uuid, epochs: Iterable[tuple[int, int]]) -> None:
        self.path = path
        path.mkdir()
        (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
        begun = time.time() - 3_600
        os.utime(path / "partition.metadata", (begun, begun))
        self.epochs(epochs)

    def epochs(self, entries: Iterable[tuple[int, int]]) -> None:
        lines = [f"{epoch} {start}" for epoch, start in entries]
        _replace(self.path / "leader-epoch-checkpoint", "\n".join(["0", str(len(lines)), *lines, ""]))

    def written_at(self, begun: float, *last_appends: float) -> None:
        """Times in seconds: when the log was begun, and when the last records of each segment came, in order."""
        os.utime(self.path / "partition.metadata", (begun, begun))
        for log, at in zip(sorted(self.path.glob("*.log")), last_appends, strict=True):
            os.utime(log, (at, at))

    def file(self, offset: int, kind: str) -> Path:
        return self.path / f"{offset:020d}.{kind}"

    def snapshot(self, offset: int, entries: Sequence[ProducerEntry] = ()) -> None:
        self.file(offset, "snapshot").write_bytes(indexes.serialize_producer_snapshot(entries))

    def segment(
        self,
        base: int,
        batches: Sequence[bytes],
        *,
        next_base: int | None = None,
        preallocated_bytes: int = 0,
        snapshot: Sequence[ProducerEntry] = (),
    ) -> None:
        """Rolled with `next_base`: trimmed indexes, and the producer snapshot at its end. All batches but the first are
        in the offset index."""
        offsets, times = index_entries(base, batches)
        self.file(base, "log").write_bytes(b"".join(batches).ljust(preallocated_bytes, b"\0"))
        padding = bytes(0 if next_base is not None else 240)
        self.file(base, "index").write_bytes(offsets + padding)
        self.file(base, "timeindex").write_bytes(times + padding)
        if next_base is not None:
            self.snapshot(next_base, snapshot)

    def remove_segment(self, base: int) -> None:
        """As a broker deletes it; the producer snapshot at its end is its successor's too."""
        for kind in ("log", "index", "timeindex"):
            self.file(base, kind).unlink()

    def filled(self, *bases: int, batch_records: int = 5, leader_epoch: int = 0) -> int:
        """Segments with these base offsets, the last of them active and one batch long. Returns the log end offset."""
        for base, next_base in zip(bases, [*bases[1:], None], strict=True):
            end = base + batch_records if next_base is None else next_base
            batches = [
                record_batch(
                    at,
                    count=min(batch_records, end - at),
                    leader_epoch=leader_epoch,
                    timestamp_ms=1_700_000_000_000 + at,
                )
                for at in range(base, end, batch_records)
            ]
            self.segment(base, batches, next_base=next_base)
        return bases[-1] + batch_records


def index_entries(base: int, batches: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Offset index and time index of a segment. The largest timestamp always has an entry."""
    offsets, times = b"", b""
    position, newest_ms = 0, -1
    for number, batch in enumerate(batches):
        header = parse_header(batch)
        if number:
            offsets += struct.pack(">ii", header.last_offset - base, position)
        if header.max_timestamp > newest_ms:
            newest_ms = header.max_timestamp
            times += struct.pack(">qi", newest_ms, header.last_offset - base)
        position += len(batch)
    return offsets, times


def _replace(path: Path, text: str) -> None:
    """As brokers replace a checkpoint: a new file under the old name."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(text)
    temporary.replace(path)
