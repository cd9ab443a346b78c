"""Values of every kind for tests of formats, and records that are changed at random."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from include.tiering.copying.plan import CopyPlan, HeldBack, HeldBackPartition
from include.tiering.copying.report import CopyRun
from include.tiering.formats.primitive_types import write_uvarint
from include.tiering.formats.remote_log_metadata import decode, encode
from include.tiering.formats.remote_log_metadata_records import (
    EpochEntry,
    PartitionDeleteRecord,
    SegmentRecord,
    SegmentSnapshotRecord,
)
from include.tiering.kafka.log_dirs.contract import (
    IneligibleReason,
    LogSegment,
    Replica,
    ReplicaId,
    ScanError,
    ScanReport,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    Depth,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.model.sizes import EpochSize, PartitionSize
from include.tiering.reading.files import FetchedSegment
from include.tiering.runs.contract import PlannedPartition, PlannedSegment, SegmentOutcome, WorkItem
from include.tiering.segments.contract import SegmentRow
from include.tiering.verification.plan import PlannedVerification, ReadCost, VerificationPlan, VerificationReason
from tests.doubles.broker_data import expected
from tests.doubles.segments import whole_replica

# A small cluster as contract values: what a scan, a plan and a run of two partitions look like.

TOPIC_ID = Uuid(bytes(range(16)))
TOPIC_ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"
SEGMENT_ID_TEXT = "Dw4NDAsKCQgHBgUEAwIBAA"
ORDERS_0 = TopicIdPartition(TOPIC_ID, 0, "orders")
ORDERS_1 = TopicIdPartition(TOPIC_ID, 1, "orders")
REPLICA_0 = ReplicaId(ORDERS_0, 1, "dir-a")
EPOCHS = LeaderEpochs.of([(0, 0), (3, 120)])
LABELS = {"topic": "orders", "topic_id": TOPIC_ID_TEXT, "partition": 0}

ROLLED = LogSegment(100, 199, 4096, 1_700_000_000_000, EPOCHS, active=False, reason=None)
ACTIVE = LogSegment(200, 199, 0, -1, EPOCHS, active=True, reason=IneligibleReason.ACTIVE)

SCAN_ERROR = ScanError("/data/orders-1/00000000000000000000.log", 61, "CorruptFileError", "CRC-32C differs")

DAMAGED_PLAN_ITEM = HeldBackPartition(ORDERS_1, 0, HeldBack.STOPPED, "segment 0..99 failed Q102")


def replica(*segments: LogSegment) -> Replica:
    return whole_replica(
        REPLICA_0, segments, 200, leader_epochs=EPOCHS, log_start_offset=100, last_stable_offset=199, leader_epoch=3
    )


def scan_report(*errors: ScanError) -> ScanReport:
    return ScanReport("cluster-1", (replica(ROLLED, ACTIVE),), errors)


def copy_plan(
    run_id: str = "run-1", *, held_back: tuple[HeldBackPartition, ...] = (), errors: tuple[ScanError, ...] = ()
) -> CopyPlan:
    segments = (PlannedSegment(100, 199, 4096), PlannedSegment(200, 299, 1024))
    return CopyPlan(run_id, (PlannedPartition(REPLICA_0, 0.5, segments),), held_back, errors)


def partition_size(partition: TopicIdPartition = ORDERS_0) -> PartitionSize:
    return PartitionSize(partition, 5120, 2, (EpochSize(0, 4096, 1), EpochSize(3, 5120, 2)))


def segment_row(verdict: Verdict = Verdict.PASSED) -> SegmentRow:
    metadata = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(ORDERS_0, Uuid(bytes(reversed(range(16))))),
        start_offset=100,
        end_offset=199,
        max_timestamp_ms=1_700_000_000_000,
        broker_id=1,
        event_timestamp_ms=1_700_000_001_000,
        segment_size_bytes=4096,
        segment_leader_epochs=EPOCHS.range(100, 200),
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    )
    return SegmentRow(metadata, verdict, 0x1234)


def fetched(path: Path | None, refused: str | None = None) -> FetchedSegment:
    return FetchedSegment(segment_row(), path, refused)


def work_item(outcome: SegmentOutcome, base_offset: int, **rest: Any) -> WorkItem:
    return WorkItem(ORDERS_0, PlannedSegment(base_offset, base_offset + 99, 1024), outcome, **rest)


def copy_run() -> CopyRun:
    """One segment of each outcome, a partition that waits, and a file that could not be read."""
    failure = {"path": "/d/2.log", "position": 61, "error": "CorruptFileError", "message": "CRC-32C"}
    items = [
        work_item(SegmentOutcome.COPIED, 0, segment_id=SEGMENT_ID_TEXT),
        work_item(SegmentOutcome.SKIPPED, 100, message="already copied"),
        work_item(SegmentOutcome.FAILED, 200, **failure),
        work_item(SegmentOutcome.PLANNED, 300),
    ]
    return CopyRun("run-1", items, seconds=2.0004, held_back=(DAMAGED_PLAN_ITEM,), errors=(SCAN_ERROR,))


def verification_plan(run_id: str = "run-1") -> VerificationPlan:
    """Two segments of forty."""
    planned = tuple(
        PlannedVerification(
            RemoteLogSegmentId(ORDERS_0, Uuid(bytes([n] * 16))), 100 * n, Depth.SHALLOW, VerificationReason.ASKED, 1_536
        )
        for n in (1, 2)
    )
    return VerificationPlan(run_id, Depth.SHALLOW, planned, ReadCost(3_072, 36, 90.0), 40, 2**20)


# Values of remote log metadata records, damaged in the ways that meet a decoder's checks.

_EDGES: Final = (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF)


def seed_values() -> tuple[bytes, ...]:
    """Sound values to damage: a real broker's, and the two kinds of records that no broker writes."""
    written = [bytes.fromhex(one["value_hex"]) for one in expected("tiered")["remote_log_metadata"]]
    first = decode(written[0])
    if not isinstance(first, SegmentRecord):
        raise TypeError("the first record of a broker begins a segment")
    snapshot = SegmentSnapshotRecord(
        id=first.segment_id.id,
        start_offset=3,
        end_offset=9,
        broker_id=1,
        max_timestamp_ms=5,
        event_timestamp_ms=6,
        epochs=(EpochEntry(0, 3), EpochEntry(2, 5)),
        size_bytes=9,
        custom_metadata=b"ab",
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    )
    deletion = PartitionDeleteRecord(
        first.segment_id.partition, 5, 6, RemotePartitionDeleteState.DELETE_PARTITION_STARTED
    )
    return (*written[::4], *[encode(snapshot)] * 8, *[encode(deletion)] * 4)


def mutated_values(values: Sequence[bytes], count: int, *, seed: int) -> Iterator[bytes]:
    """`count` values, each one of `values` with one to three damages; the same ones for the same seed."""
    choose = random.Random(seed)
    for _ in range(count):
        value = bytearray(choose.choice(values))
        for _ in range(choose.choice((1, 1, 1, 2, 3))):
            choose.choice(_DAMAGES)(value, values, choose)
        yield bytes(value)


def _flip_bit(value: bytearray, _: Sequence[bytes], choose: random.Random) -> None:
    if value:
        value[choose.randrange(len(value))] ^= 1 << choose.randrange(8)


def _set_edge(value: bytearray, _: Sequence[bytes], choose: random.Random) -> None:
    if value:
        value[choose.randrange(len(value))] = choose.choice(_EDGES)


def _cut_off(value: bytearray, _: Sequence[bytes], choose: random.Random) -> None:
    del value[choose.randrange(len(value) + 1) :]


def _remove(value: bytearray, _: Sequence[bytes], choose: random.Random) -> None:
    start = choose.randrange(len(value) + 1)
    del value[start : start + choose.randrange(1, 9)]


def _insert(value: bytearray, _: Sequence[bytes], choose: random.Random) -> None:
    start = choose.randrange(len(value) + 1)
    value[start:start] = choose.randbytes(choose.randrange(1, 6))


def _append(value: bytearray, _: Sequence[bytes], choose: random.Random) -> None:
    value += choose.randbytes(choose.randrange(1, 4))


def _splice(value: bytearray, values: Sequence[bytes], choose: random.Random) -> None:
    other = choose.choice(values)
    start = choose.randrange(len(value) + 1)
    value[start:] = other[min(start, len(other)) :]


def _other_head(value: bytearray, _: Sequence[bytes], choose: random.Random) -> None:
    value[:3] = bytes((choose.choice((0, 1, 1, 2)), choose.randrange(5), choose.choice((0, 0, 1))))


def _long_uvarint(value: bytearray, _: Sequence[bytes], choose: random.Random) -> None:
    """In the place of one byte the same number, or any other, in more bytes than it needs."""
    if not value:
        return
    position = choose.randrange(len(value))
    number = value[position] if choose.random() < 0.5 else choose.getrandbits(32)
    encoded = bytearray(write_uvarint(number))
    while len(encoded) < choose.randrange(1, 7):
        encoded[-1] |= 0x80
        encoded.append(choose.choice((0x00, 0x00, 0x70)))
    value[position : position + 1] = encoded


def _tagged_fields(value: bytearray, _: Sequence[bytes], choose: random.Random) -> None:
    """In the place of a zero byte, which may have been an empty section, one with up to three fields."""
    zeros = [at for at, byte in enumerate(value) if byte == 0]
    if not zeros:
        return
    section = bytearray(write_uvarint(count := choose.randrange(1, 4)))
    for _tag in range(count):
        field = choose.randbytes(choose.randrange(0, 4))
        section += write_uvarint(choose.choice((0, 0, 1, 2, 300, 2**32 - 1))) + write_uvarint(len(field)) + field
    position = choose.choice(zeros)
    value[position : position + 1] = section


_DAMAGES: Final = (
    _flip_bit,
    _set_edge,
    _cut_off,
    _remove,
    _insert,
    _append,
    _splice,
    _other_head,
    _long_uvarint,
    _tagged_fields,
)
