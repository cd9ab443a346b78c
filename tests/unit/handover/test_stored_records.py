"""The digest of stored records: of which segment, of which of its records, and when its bytes are not believed."""

from collections.abc import Iterator
from dataclasses import replace

import google_crc32c
import pytest

from include.tiering.errors import RemoteChecksumError, UnknownSegmentError
from include.tiering.formats.record_batch import ControlType
from include.tiering.handover import actions
from include.tiering.handover.actions import stored_digest
from include.tiering.model.histories import OffsetRange
from include.tiering.model.ownership import SegmentOrigin
from include.tiering.model.segments import (
    RangeDigest,
    RecordDigest,
    RemoteLogSegmentMetadata,
    SeenRecord,
    TopicIdPartition,
    Verdict,
)
from include.tiering.quotas.contract import ByteLimiter, UnlimitedBytes
from include.tiering.segments.contract import SegmentRow
from tests.doubles.memory_stores import MemoryMetadata
from tests.doubles.partial import Partial
from tests.doubles.record_batches import marker, record, record_batch
from tests.doubles.segments import FINISHED, STARTED, partition_of, segment_of

ORDERS = partition_of("orders")
BASE_MS = 1_700_000_000_000


def batch(base_offset: int, *values: bytes) -> bytes:
    blob = b"".join(record(delta, value, b"key") for delta, value in enumerate(values))
    return record_batch(base_offset, count=len(values), records=blob)


def seen(base_offset: int, *values: bytes) -> dict[int, SeenRecord]:
    """What a consumer gets of such a batch."""
    return {
        base_offset + delta: SeenRecord(base_offset + delta, False, BASE_MS + delta, b"key", value)
        for delta, value in enumerate(values)
    }


FIRST = batch(0, b"a", b"b", b"c") + batch(3, b"d", b"e")
SECOND = batch(5, b"f", b"g", b"h") + marker(8, 77, ControlType.COMMIT) + batch(9, b"i")
RECORDS = {**seen(0, b"a", b"b", b"c"), **seen(3, b"d", b"e"), **seen(5, b"f", b"g", b"h"), **seen(9, b"i")}


class Storage(Partial):
    """Logs by the number of their segment, in blocks of a few bytes."""

    def __init__(self) -> None:
        self.logs: dict[RemoteLogSegmentMetadata, bytes] = {}
        self.fetched: list[int] = []

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, *, limiter: ByteLimiter, ranges: int = 1
    ) -> Iterator[bytes]:
        self.fetched.append(metadata.start_offset)
        log = self.logs[metadata]
        return (log[at : at + 50] for at in range(0, len(log), 50))


class Stored:
    """Segments of `orders-0`, each with its log."""

    def __init__(self) -> None:
        self.metadata, self.storage = MemoryMetadata(), Storage()

    def put(
        self,
        number: int,
        start: int,
        end: int,
        log: bytes,
        *,
        origin: SegmentOrigin = SegmentOrigin.PLATFORM,
        finished: bool = True,
        partition: TopicIdPartition = ORDERS,
        crc: int | None = None,
    ) -> SegmentRow:
        state = FINISHED if finished else STARTED
        metadata = segment_of(partition, number, start, end, size_bytes=len(log), state=state)
        row = SegmentRow(metadata, Verdict.PASSED, google_crc32c.value(log) if crc is None else crc, origin=origin)
        self.metadata.put(row)
        self.storage.logs[metadata] = log
        return row

    def digest(self, start: int, end: int) -> RangeDigest:
        found = stored_digest(self.metadata, self.storage, lambda _: UnlimitedBytes(), ORDERS, start, end)
        assert found.not_opened == ()
        return found.digest


@pytest.fixture
def stored() -> Stored:
    """Offsets 0 to 4 and 5 to 9."""
    made = Stored()
    made.put(1, 0, 4, FIRST)
    made.put(2, 5, 9, SECOND)
    return made


def expected(start: int, end: int) -> RangeDigest:
    digest = RecordDigest()
    for offset in range(start, end + 1):
        if offset in RECORDS:
            digest.add(RECORDS[offset])
    return digest.result()


@pytest.mark.parametrize(
    ("start", "end"), [(0, 4), (0, 0), (1, 3), (2, 2), (4, 4), (5, 9), (6, 8), (8, 8), (9, 9), (5, 5)]
)
def test_exactly_the_records_of_the_range_count(stored: Stored, start: int, end: int) -> None:
    """Both ends are in it; markers of transactions are no records."""
    assert stored.digest(start, end) == expected(start, end)
    assert stored.storage.fetched == [0 if end < 5 else 5]


@pytest.mark.parametrize(("start", "end"), [(4, 5), (0, 9), (5, 10), (10, 12)])
def test_a_range_that_no_segment_holds_whole_is_refused(stored: Stored, start: int, end: int) -> None:
    with pytest.raises(
        UnknownSegmentError,
        match=rf"orders-0: no segment of this platform has all"
        rf" offsets {start}\.\.{end}",
    ):
        stored.digest(start, end)
    assert stored.storage.fetched == []


@pytest.mark.parametrize("other", ["a broker's", "not finished", "another partition's"])
def test_only_what_the_platform_finished_is_compared(other: str) -> None:
    stored = Stored()
    if other == "a broker's":
        stored.put(1, 0, 9, SECOND, origin=SegmentOrigin.BROKER)
    elif other == "not finished":
        stored.put(1, 0, 9, SECOND, finished=False)
    else:
        stored.put(1, 0, 9, SECOND, partition=partition_of("payments"))
    with pytest.raises(UnknownSegmentError):
        stored.digest(5, 9)
    stored.put(2, 5, 9, SECOND)
    assert stored.digest(5, 9) == expected(5, 9)
    assert stored.storage.fetched == [5]


@pytest.mark.parametrize("start", [0, 3])
def test_bytes_that_are_not_the_sources_are_not_believed(start: int) -> None:
    """Whatever part of them is asked for."""
    stored = Stored()
    row = stored.put(1, 0, 4, FIRST, crc=google_crc32c.value(FIRST) ^ 1)
    with pytest.raises(RemoteChecksumError, match=r"the stored log has CRC-32C [0-9a-f]{8}, that of the source was"):
        stored.digest(start, 4)
    stored.metadata.put(replace(row, log_crc32c=None))
    assert stored.digest(start, 4) == expected(start, 4)


def test_a_batch_that_is_larger_than_what_is_opened_is_named_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    large = batch(3, b"x" * 500, b"y" * 500)
    stored = Stored()
    stored.put(1, 0, 5, batch(0, b"a", b"b", b"c") + large + batch(5, b"f"))
    monkeypatch.setattr(actions, "_BLOCK_BYTES", 300)
    for start, end, left_out in ((0, 5, OffsetRange(3, 4)), (4, 5, OffsetRange(4, 4)), (0, 3, OffsetRange(3, 3))):
        found = stored_digest(stored.metadata, stored.storage, lambda _: UnlimitedBytes(), ORDERS, start, end)
        others = RecordDigest()
        for offset in (0, 1, 2, 5):
            if start <= offset <= end:
                others.add(RECORDS[offset])
        assert (found.not_opened, found.digest) == ((left_out,), others.result())


def test_a_read_is_charged_to_the_broker_of_the_segment(stored: Stored) -> None:
    charged: list[int] = []

    def limiter_of(broker_id: int) -> UnlimitedBytes:
        charged.append(broker_id)
        return UnlimitedBytes()

    row = stored.put(3, 10, 14, FIRST, partition=ORDERS)
    stored.metadata.put(replace(row, metadata=replace(row.metadata, broker_id=7)))
    stored.storage.logs = dict.fromkeys((one.metadata for one in stored.metadata.list_segments(ORDERS)), FIRST)
    stored_digest(stored.metadata, stored.storage, limiter_of, ORDERS, 10, 14)
    assert charged == [7]
