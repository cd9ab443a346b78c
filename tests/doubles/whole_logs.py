"""Whole logs of real brokers in remote storage, the active segments too, so that what a consumer got can be compared.

A copy never takes an active segment. These were closed by a clean stop, so that they have all that a segment needs.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from include.tiering.app import App, open_app
from include.tiering.formats.record_batch import HEADER_SIZE, ControlType, control_type
from include.tiering.formats.records import Decompressor, records_of
from include.tiering.model.segments import (
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SeenRecord,
    TopicIdPartition,
    Verdict,
)
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.reading.scan import batches_of
from include.tiering.settings import load_settings
from tests.doubles.broker_data import broker_data, expected
from tests.doubles.kafkas_remote_store import kafkas_segments, kafkas_store
from tests.doubles.quotas import NoQuotas
from tests.doubles.segments import finish, planned
from tests.doubles.stored_log import segments_of

_STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED


@dataclass(frozen=True)
class Consumed:
    """What a real consumer got of a partition: the count, and the SHA-256 that tests/data/README.md describes."""

    records: int
    sha256: str


def consumed(data_set: Any, partition: TopicIdPartition, *, committed: bool) -> Consumed:
    facts = expected(data_set)["facts"]["topics"][partition.topic]["partitions"][str(partition.partition)]
    found = facts["consumed_read_committed" if committed else "consumed_read_uncommitted"]
    return Consumed(found["records"], found["sha256"])


def digest_of(batches: Iterable[pa.RecordBatch]) -> Consumed:
    """The same of record batches with headers."""
    return digest_of_records(record for batch in batches for record in records_in(batch))


def digest_of_records(found: Iterable[SeenRecord]) -> Consumed:
    """The same of records."""
    sums, records = hashlib.sha256(), 0

    def add(content: bytes | None) -> None:
        sums.update(struct.pack(">i", -1 if content is None else len(content)) + (content or b""))

    for record in found:
        sums.update(struct.pack(">qq", record.offset, record.timestamp_ms))
        add(record.key)
        add(record.value)
        sums.update(struct.pack(">i", len(record.headers)))
        for header in record.headers:
            add(header[0])
            add(header[1])
        records += 1
    return Consumed(records, sums.hexdigest())


def records_in(batch: pa.RecordBatch) -> Iterator[SeenRecord]:
    """The rows of a batch; without a column of headers there are none."""
    names = ("offset", "timestampType", "key", "value")
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    headers = batch.column("headers").to_pylist() if "headers" in batch.schema.names else [None] * batch.num_rows
    columns = (batch.column(name).to_pylist() for name in names)
    for time_us, of_record, offset, type_, key, value in zip(times, headers, *columns, strict=True):
        pairs = tuple((header["key"].encode(), header["value"]) for header in of_record or ())
        assert of_record != [], "a record without headers has a null"
        yield SeenRecord(offset, bool(type_), time_us // 1000, key, value, pairs)


@dataclass(frozen=True)
class OracleRecord:
    """A record as a plain reading of the log finds it, control records included."""

    record: SeenRecord
    producer_id: int
    is_transactional: bool
    is_control: bool
    outcome: list[str]
    """Of its transaction: "open" without a marker, "aborted" or "committed"; "none" without a transaction."""

    @property
    def is_aborted(self) -> bool:
        return self.outcome == ["aborted"]


def oracle_of(logs: Iterable[bytes]) -> list[OracleRecord]:
    """Decode consecutive logs, and remember the transactions as they begin and end. No index is used."""
    found: list[OracleRecord] = []
    begun: dict[int, list[str]] = {}
    decompressor = Decompressor()
    for log in logs:
        for _, header, batch in batches_of([log], 0):
            outcome, producer_id = ["none"], header.producer_id
            if header.is_transactional and not header.is_control:
                outcome = begun.setdefault(producer_id, ["open"])
            found += [
                OracleRecord(record, producer_id, header.is_transactional, header.is_control, outcome)
                for record in records_of(header, batch[HEADER_SIZE:], decompressor)
            ]
            if header.is_control and (ended := begun.pop(producer_id, None)) is not None:
                ended[0] = "aborted" if control_type(batch, HEADER_SIZE) is ControlType.ABORT else "committed"
    return found


def last_stable_offset(oracle: Sequence[OracleRecord], end: int) -> int:
    """The first offset of a transaction without a marker; else the end."""
    return min((each.record.offset for each in oracle if each.outcome == ["open"]), default=end)


@dataclass(frozen=True)
class WholeLogs:
    """`settings` open the deployment anew; `logs` are the bytes of all segments, by partition."""

    config: Path
    app: App
    logs: Mapping[TopicIdPartition, list[bytes]]

    def partition(self, topic: str, number: int = 0) -> TopicIdPartition:
        (found,) = (each for each in self.logs if (each.topic, each.partition) == (topic, number))
        return found


@contextmanager
def public_logs(directory: Path) -> Iterator[WholeLogs]:
    """Every partition of topics that are not internal, as its leader has it."""
    brokers = broker_data("public") / "stopped"
    log_dirs = {number: brokers / f"broker-{number}" for number in (1, 2)}
    with deployment(directory, log_dirs, (directory / "store").as_uri()) as (app, config):
        logs: dict[TopicIdPartition, list[bytes]] = {}
        for topic, facts in expected("public")["facts"]["topics"].items():
            for number, partition_facts in facts["partitions"].items():
                if topic.startswith("__"):
                    continue
                leader = f"broker-{partition_facts['leader']}"
                replica = expected("public")["snapshots"]["stopped"][leader]["partitions"].get(f"{topic}-{number}")
                found = segments_of(brokers / leader / f"{topic}-{number}", replica)
                for metadata, data in found:
                    copy(app, metadata, data)
                if found:
                    partition = found[0][0].topic_id_partition
                    logs[partition] = [_bytes(data) for _, data in found]
                    finish_all(app, [metadata for metadata, _ in found], _earliest(partition_facts))
        yield WholeLogs(config, app, logs)


@contextmanager
def tiered_logs(directory: Path) -> Iterator[WholeLogs]:
    """What a real broker has tiered by itself: its objects, and segments as its metadata topic describes them.

    Segments that it had not tiered when it was stopped are copied.
    """
    store = kafkas_store(directory)
    log_dirs = {5: broker_data("tiered") / "data-stopped"}
    with deployment(directory, log_dirs, store.as_uri(), layout="local_tiered_storage") as (app, config):
        by_partition: dict[TopicIdPartition, list[RemoteLogSegmentMetadata]] = {}
        for metadata in kafkas_segments():
            if metadata.is_finished:
                by_partition.setdefault(metadata.topic_id_partition, []).append(metadata)
        logs = {}
        for partition, segments in by_partition.items():
            segments.sort(key=lambda each: each.end_offset)
            replica = expected("tiered")["snapshots"]["stopped"]["partitions"][str(partition)]
            for metadata, data in segments_of(log_dirs[5] / str(partition), replica):
                if metadata.start_offset > segments[-1].end_offset:
                    copy(app, metadata, data)
                    segments.append(metadata)
            facts = expected("tiered")["facts"]["topics"][partition.topic]["partitions"][str(partition.partition)]
            finish_all(app, segments, _earliest(facts))
            logs[partition] = [
                b"".join(app.adapters.storage.fetch_log_segment(each, limiter=UnlimitedBytes())) for each in segments
            ]
        yield WholeLogs(config, app, logs)


def _earliest(facts: Mapping[str, Any]) -> int:
    return int(facts["offsets"]["earliest"]["offset"])


@contextmanager
def deployment(
    directory: Path, log_dirs: Mapping[int, Path], url: str, *, layout: str = "aiven"
) -> Iterator[tuple[App, Path]]:
    """A new one without quotas, and its settings file. The log dirs only say which cluster it is of."""
    config = directory / "tiering.toml"
    lines = [
        'topics.include = ["*"]',
        f'metadata.url = "sqlite:///{directory / "metadata.sqlite"}"',
        f'remote_storage.url = "{url}"',
        f'remote_storage.layout = "{layout}"',
        *(f'[[log_dirs]]\nbroker_id = {broker}\npath = "{path}"' for broker, path in log_dirs.items()),
    ]
    config.write_text("\n".join(lines))
    with open_app(load_settings(config), quotas=NoQuotas()) as app:
        app.set_up.migrate()
        yield app, config


def copy(app: App, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
    app.adapters.storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)


def finish_all(app: App, segments: Iterable[RemoteLogSegmentMetadata], log_start_offset: int) -> None:
    """Record segments of one partition as copied, and as passed."""
    stores = app.adapters.stores
    segments = list(segments)
    partition = segments[0].topic_id_partition
    run_id = f"plant-{partition}"
    stores.work.save_plan(run_id, [planned(partition)])
    lease = stores.work.claim(run_id, "plant", lease_ms=600_000)
    assert lease is not None
    for each in segments:
        finish(stores.metadata, replace(each, state=_STARTED), lease.fence)
        stores.metadata.record_verdict(each.remote_log_segment_id, Verdict.PASSED)
    stores.metadata.raise_log_start(partition, log_start_offset, reason="test", author="test")
    stores.work.release(lease)


def _bytes(data: LogSegmentData) -> bytes:
    content = bytearray(data.log.size_bytes)
    data.log.read_into(0, memoryview(content))
    return bytes(content)
