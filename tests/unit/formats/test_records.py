"""Records, their contents and transactions."""

import contextlib
import struct
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats import records
from include.tiering.formats.indexes import (
    AbortedTxn,
    OngoingTransaction,
    ProducerEntry,
    Transactions,
    open_transactions,
)
from include.tiering.formats.primitive_types import write_varint, write_varlong
from include.tiering.formats.record_batch import HEADER_SIZE, Codec, ControlType, iter_headers, parse_header
from include.tiering.formats.records import (
    Decompressor,
    OpenedBatch,
    RecordsFound,
    check_records,
    read_record_pieces,
    read_records,
    records_of,
)
from include.tiering.model.segments import RecordDigest, SeenRecord
from include.tiering.units import MIB
from tests.doubles.broker_data import broker_data
from tests.doubles.many_segments import compressed, with_records, with_zeros
from tests.doubles.memory_source import BytesSource
from tests.doubles.record_batches import data_batch, marker, record, record_batch, with_crc

# Records of a batch against its header.

# Two records that a broker wrote: k1/v1 at +0 ms, a null key with a header at +10 ms.
GOLDEN = bytes.fromhex(
    "00000000000000640000004c0000000502f82d28120000000000010000018bcfe568000000018bcfe5680affffffffffffffffffffffffffff"
    "0000000214000000046b31047631001e001402010a68656c6c6f0202680278"
)


def check(batch: bytes, **changes: int) -> int:
    header = parse_header(batch)._replace(**changes)
    opened = check_records(header, memoryview(batch)[HEADER_SIZE:], Decompressor())
    assert not opened.not_opened
    return opened.plain_bytes


def test_the_records_of_a_broker() -> None:
    assert check(GOLDEN) == len(GOLDEN) - HEADER_SIZE
    assert read_records(GOLDEN[HEADER_SIZE:], 2) == RecordsFound(2, 1, 10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"record_count": 1}, "2 records are inside, the header says 1"),
        ({"record_count": 3}, "2 records are inside, the header says 3"),
        ({"last_offset_delta": 0}, "offset delta 1 is above the batch's 0"),
        ({"max_timestamp": 1_700_000_000_009}, "1700000000010, the header says 1700000000009"),
    ],
)
def test_a_header_that_says_something_else(changes: dict[str, int], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        check(GOLDEN, **changes)


def test_times_of_the_broker_and_of_compaction_are_not_those_of_the_records() -> None:
    for flag in (0x08, 0x40):
        assert check(GOLDEN, attributes=flag, max_timestamp=1)


def test_an_empty_batch_has_no_record_to_compare() -> None:
    assert check(record_batch(7, records=b""), record_count=0) == 0


@st.composite
def blobs(draw: st.DrawFn) -> tuple[bytes, list[int], list[int]]:
    """(records, offset deltas, timestamp deltas)"""
    deltas = sorted(draw(st.sets(st.integers(0, 2**31 - 1), max_size=8)))
    times = [draw(st.integers(-(2**40), 2**40)) for _ in deltas]
    blob = b""
    for delta, time in zip(deltas, times, strict=True):
        body = b"\0" + write_varlong(time) + write_varint(delta) + write_varint(-1)
        value = draw(st.binary(max_size=200))
        body += write_varint(len(value)) + value + write_varint(0)
        blob += write_varint(len(body)) + body
    return blob, deltas, times


@given(blobs())
def test_what_was_written_is_found(blob: tuple[bytes, list[int], list[int]]) -> None:
    data, deltas, times = blob
    assert read_records(data, len(deltas)) == RecordsFound(len(deltas), max(deltas, default=0), max(times, default=0))


@given(st.binary(max_size=300), st.integers(0, 50))
def test_noise_is_a_format_error_or_few_records(noise: bytes, most: int) -> None:
    with contextlib.suppress(FormatError):
        assert read_records(noise, most).records <= most + 1


@given(blobs(), st.data())
def test_a_cut_is_seen_by_the_count(blob: tuple[bytes, list[int], list[int]], data: st.DataObject) -> None:
    content, deltas, _ = blob
    cut = content[: data.draw(st.integers(0, max(len(content) - 1, 0)))]
    try:
        found = read_records(cut, len(deltas)).records
    except FormatError:
        return
    assert found < len(deltas) or not deltas


def in_pieces(content: bytes, cuts: list[int]) -> list[bytes]:
    """Some of them may be empty."""
    marks = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    return [content[a:b] for a, b in pairwise(marks)]


def outcome(read: Callable[[], RecordsFound]) -> RecordsFound | None:
    """None for a FormatError."""
    try:
        return read()
    except FormatError:
        return None


CUTS = st.lists(st.integers(0, 1000), max_size=12)


@given(blobs(), CUTS, st.integers(0, 9), st.data())
def test_records_in_pieces_are_those_in_one(
    blob: tuple[bytes, list[int], list[int]], cuts: list[int], most: int, data: st.DataObject
) -> None:
    """Whole ones, and with noise in the midst of them, cut off, or with bytes behind."""
    content = blob[0]
    at = data.draw(st.integers(0, len(content)))
    noise = data.draw(st.binary(max_size=4))
    for changed in (content, content[:at], content + noise, content[:at] + noise + content[at + len(noise) :]):
        whole = outcome(partial(read_records, changed, most))
        assert outcome(partial(read_record_pieces, in_pieces(changed, cuts), most)) == whole


@given(st.binary(max_size=300), CUTS, st.integers(0, 50))
def test_noise_in_pieces_is_noise_in_one(noise: bytes, cuts: list[int], most: int) -> None:
    assert outcome(lambda: read_record_pieces(in_pieces(noise, cuts), most)) == outcome(
        lambda: read_records(noise, most)
    )


def test_a_record_that_is_cut_off_is_named_with_its_position() -> None:
    first = record(0, b"a")
    with pytest.raises(FormatError, match=r"record of 1\d+ bytes, 50 are left") as caught:
        read_record_pieces([first + record(1, bytes(99))[:40], bytes(10)], 2)
    assert caught.value.position == len(first)


LARGE = record_batch(7, count=3, timestamp_ms=1_000)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_above_the_bound_is_checked_in_pieces(codec: Codec) -> None:
    batch = with_zeros(LARGE, 3 * MIB, codec)
    payload, header = memoryview(batch)[HEADER_SIZE:], parse_header(batch)
    whole = check_records(header, payload, Decompressor())
    assert check_records(header, payload, Decompressor(MIB)) == whole
    assert (whole.plain_bytes > 3 * MIB, whole.not_opened) == (True, "")
    for changes in ({"record_count": 4}, {"record_count": 2}, {"last_offset_delta": 1}, {"max_timestamp": 1_001}):
        with pytest.raises(FormatError, match=r"the header says|is above the batch's"):
            check_records(header._replace(**changes), payload, Decompressor(MIB))
    with pytest.raises(FormatError):
        check_records(header, payload[:-1], Decompressor(MIB))
    opened = check_records(header, payload, Decompressor(MIB, 2 * MIB))
    assert opened.not_opened == f"more than {2 * MIB} bytes after decompression"
    assert 2 * MIB < opened.plain_bytes < 3 * MIB


def test_what_is_wrong_before_the_bound_is_wrong() -> None:
    pieces = [record(1, b""), record(1, b""), record(2, bytes(3 * MIB))]
    batch = with_records(LARGE, Codec.ZSTD, pieces)
    with pytest.raises(FormatError, match="offset delta 1 follows 1"):
        check_records(parse_header(batch), memoryview(batch)[HEADER_SIZE:], Decompressor(MIB, 2 * MIB))


@pytest.mark.parametrize("max_bytes", [MIB, 4], ids=["at once", "in pieces"])
def test_of_very_many_records_so_many_are_followed(max_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_RECORDS", 10)
    plain = [record(delta, b"") for delta in range(11)]
    for count, not_opened in ((10, ""), (11, "more than 10 records are inside"), (9, None)):
        packed = compressed(Codec.ZSTD, plain[: max(count, 10)])
        batch = record_batch(0, count=count, attributes=Codec.ZSTD, records=packed)
        header, payload = parse_header(batch), memoryview(batch)[HEADER_SIZE:]
        if not_opened is None:
            with pytest.raises(FormatError, match="10 records are inside, the header says 9"):
                check_records(header, payload, Decompressor(max_bytes))
        else:
            size_bytes = sum(map(len, plain[:count]))
            assert check_records(header, payload, Decompressor(max_bytes)) == OpenedBatch(size_bytes, not_opened)


def test_offset_deltas_ascend() -> None:
    with pytest.raises(FormatError, match="offset delta 1 follows 1"):
        read_records(record(1, b"a") + record(1, b"b"), 2)


def test_a_compressed_batch_with_one_record_less_than_it_says() -> None:
    blob = bytes(cramjam.zstd.compress(record(0, b"a") + record(1, b"b")))
    batch = record_batch(0, count=3, attributes=Codec.ZSTD, records=blob)
    with pytest.raises(FormatError, match="2 records are inside, the header says 3"):
        check(with_crc(batch))


def test_every_batch_of_real_producers_opens() -> None:
    seen: dict[Codec, int] = {}
    for log in sorted((broker_data("public") / "stopped" / "broker-1").glob("[a-z]*-*/*.log")):
        content, at = log.read_bytes(), 0
        while at + HEADER_SIZE <= len(content) and struct.unpack_from(">i", content, at + 8)[0] > 0:
            header = parse_header(content, at)
            payload = memoryview(content)[at + HEADER_SIZE : at + header.size_bytes]
            check_records(header, payload, Decompressor())
            seen[header.codec] = seen.get(header.codec, 0) + 1
            at += header.size_bytes
    assert set(seen) == set(Codec)
    assert min(seen.values()) > 10


# Records inside of batches with keys, values and headers, and their digest.

BASE_MS = 1_700_000_000_000
BYTES = st.none() | st.binary(max_size=20)
HEADERS = st.lists(st.tuples(st.binary(max_size=8), BYTES), max_size=3)
# length 10 (zigzag) | attributes | timestamp delta 5 | offset delta 0 | key "k" | value absent | 1 header "h" = ""
GOLDEN_CONTENTS = bytes([20, 0, 10, 0, 2]) + b"k" + bytes([1, 2, 2]) + b"h" + bytes([0])


def encoded(delta, timestamp_delta, key, value, headers):
    def field(content):
        return write_varint(-1) if content is None else write_varint(len(content)) + content

    body = b"\0" + write_varlong(timestamp_delta) + write_varint(delta) + field(key) + field(value)
    body += write_varint(len(headers)) + b"".join(field(name) + field(content) for name, content in headers)
    return write_varint(len(body)) + body


def opened(batch):
    return list(records_of(parse_header(batch), memoryview(batch)[HEADER_SIZE:], Decompressor()))


def test_one_record_byte_by_byte():
    (record,) = opened(record_batch(40, records=GOLDEN_CONTENTS))
    assert record == SeenRecord(40, False, BASE_MS + 5, b"k", None, ((b"h", b""),))


@given(st.lists(st.tuples(st.integers(0, 1_000), BYTES, BYTES, HEADERS), min_size=1, max_size=5))
def test_what_was_written_is_read(contents):
    blob = b"".join(encoded(number, *one) for number, one in enumerate(contents))
    found = opened(record_batch(7, count=len(contents), records=blob))
    assert found == [
        SeenRecord(7 + number, False, BASE_MS + delta, key, value, tuple(headers))
        for number, (delta, key, value, headers) in enumerate(contents)
    ]


def test_a_codec_that_does_not_exist_is_named():
    with pytest.raises(FormatError, match="codec 6 is unknown"):
        opened(record_batch(0, records=GOLDEN_CONTENTS, attributes=6))


def test_log_append_time_is_that_of_the_batch():
    batch = record_batch(0, count=2, attributes=0x08)
    assert {one.timestamp_ms for one in opened(batch)} == {BASE_MS + 1}
    assert all(one.is_append_time for one in opened(batch))


@given(st.integers(0, len(GOLDEN_CONTENTS) - 1))
def test_what_is_cut_off_is_refused(length):
    with pytest.raises(FormatError):
        opened(record_batch(0, records=GOLDEN_CONTENTS[:length]))


def test_a_field_that_reaches_beyond_its_record_is_refused():
    with pytest.raises(FormatError, match="left in its record"):
        opened(record_batch(0, records=GOLDEN_CONTENTS.replace(b"\x02k", b"\x7ek")))


RECORD = SeenRecord(5, False, 9, b"k", b"v", ((b"h", None),))


def digest(*records):
    sums = RecordDigest()
    for one in records:
        sums.add(one)
    return sums.result()


@pytest.mark.parametrize(
    "other",
    [
        RECORD._replace(offset=6),
        RECORD._replace(is_append_time=True),
        RECORD._replace(timestamp_ms=8),
        RECORD._replace(key=None),
        RECORD._replace(key=b""),
        RECORD._replace(value=b""),
        RECORD._replace(headers=()),
        RECORD._replace(headers=((b"h", b""),)),
        RECORD._replace(key=b"kv", value=b""),
    ],
)
def test_whatever_a_consumer_sees_is_in_the_digest(other):
    assert digest(RECORD) == digest(RECORD)
    assert digest(RECORD) != digest(other)
    assert digest(RECORD, other).records == 2


ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def _producer(producer_id: int, first_offset: int = -1) -> ProducerEntry:
    return ProducerEntry(producer_id, 1, 0, 10, 0, 1_700_000_000_000, 4, first_offset)


def _after(*batches: bytes, entries: tuple[ProducerEntry, ...] = ()) -> Transactions:
    return open_transactions(entries, iter_headers(BytesSource(b"".join(batches))))


def test_without_transactions_the_log_is_stable_up_to_the_high_watermark() -> None:
    found = _after(record_batch(0, count=9))
    assert (found.open, found.completed) == ((), ())
    assert found.last_stable_offset(9) == 9


def test_an_open_transaction_holds_back_from_its_first_batch() -> None:
    found = _after(record_batch(0), data_batch(1, 7), record_batch(2), data_batch(3, 7))
    assert found.open == (OngoingTransaction(producer_id=7, first_offset=1),)
    assert found.last_stable_offset(4) == 1


@pytest.mark.parametrize("control", [ABORT, COMMIT])
def test_a_marker_ends_it(control: ControlType) -> None:
    found = _after(data_batch(0, 7, count=3), marker(3, 7, control))
    assert found.open == ()
    assert found.last_stable_offset(4) == 4
    assert found.aborted == ((AbortedTxn(7, 0, 3, 4),) if control is ABORT else ())


def test_the_first_open_one_counts() -> None:
    found = _after(data_batch(0, 7), data_batch(1, 8), data_batch(2, 9), marker(3, 7, COMMIT))
    assert [txn.first_offset for txn in found.open] == [1, 2]
    assert found.last_stable_offset(4) == 1


def test_a_transaction_of_the_snapshot_goes_on() -> None:
    entries = (_producer(6), _producer(7, 40))
    assert _after(record_batch(50), entries=entries).last_stable_offset(51) == 40
    assert _after(data_batch(50, 7), entries=entries).open == (OngoingTransaction(7, 40),)
    ended = _after(record_batch(50), marker(51, 7, ABORT), entries=entries)
    assert ended.open == ()
    assert ended.aborted == (AbortedTxn(producer_id=7, first_offset=40, last_offset=51, last_stable_offset=52),)


def test_an_abort_beside_an_older_open_one_records_that_one_s_start() -> None:
    found = _after(data_batch(5, 3), data_batch(6, 7), marker(7, 7, ABORT))
    assert found.aborted == (AbortedTxn(7, 6, 7, last_stable_offset=5),)


def test_a_marker_above_the_high_watermark_does_not_count_yet() -> None:
    found = _after(data_batch(0, 7, count=3), marker(3, 7, COMMIT), record_batch(4))
    assert found.last_stable_offset(3) == 0
    assert found.last_stable_offset(4) == 4


def test_a_marker_without_a_transaction_changes_nothing() -> None:
    found = _after(marker(0, 7, ABORT), record_batch(1))
    assert (found.open, found.completed) == ((), ())


def test_plain_batches_of_an_idempotent_producer_open_nothing() -> None:
    assert _after(record_batch(0, producer_id=7, producer_epoch=0, base_sequence=0)).open == ()


def test_kraft_s_control_batches_end_nothing() -> None:
    assert _after(data_batch(0, 7), marker(1, 7, ControlType.LEADER_CHANGE)).open == (OngoingTransaction(7, 0),)
