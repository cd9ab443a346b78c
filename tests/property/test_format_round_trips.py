"""Formats: what is written is read again, and damaged bytes never crash a parser."""

import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats import checkpoints, indexes, primitive_types
from include.tiering.formats.checkpoints import parse_offset_checkpoint
from include.tiering.formats.indexes import ProducerEntry, open_transactions
from include.tiering.formats.log_batches import check_segment, find_log_end
from include.tiering.formats.record_batch import ControlType, control_type, iter_headers, parse_header
from include.tiering.model.leader_epochs import LeaderEpochs
from tests.doubles.memory_source import BytesSource
from tests.doubles.record_batches import data_batch, marker, record_batch

# What is written is read back, and lookups and bounds equal those of a plain search.

_INT16, _INT32, _INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
_OFFSETS = st.integers(0, 2**63 - 1)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_uvarint(value: int, before: bytes) -> None:
    encoded = primitive_types.write_uvarint(value)
    assert primitive_types.read_uvarint(before + encoded, len(before)) == (value, len(before) + len(encoded))


@given(_INT32)
def test_varint(value: int) -> None:
    encoded = primitive_types.write_varint(value)
    assert primitive_types.read_varint(encoded, 0) == (value, len(encoded))
    assert primitive_types.write_varlong(value) == encoded


@given(_INT64)
def test_varlong(value: int) -> None:
    encoded = primitive_types.write_varlong(value)
    assert primitive_types.read_varlong(encoded, 0) == (value, len(encoded))


@given(st.lists(st.builds(ProducerEntry, _INT64, _INT16, _INT32, _INT64, _INT32, _INT64, _INT32, _INT64), max_size=5))
def test_producer_snapshot(entries: list[ProducerEntry]) -> None:
    assert indexes.parse_producer_snapshot(indexes.serialize_producer_snapshot(entries)) == tuple(entries)


@given(st.sets(st.integers(0, 2**31 - 1), max_size=6), st.lists(_OFFSETS, min_size=6, max_size=6))
def test_leader_epoch_checkpoint(epochs: set[int], offsets: list[int]) -> None:
    history = LeaderEpochs.of(zip(sorted(epochs), sorted(offsets), strict=False))
    assert checkpoints.parse_leader_epochs(checkpoints.serialize_leader_epochs(history)) == history


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,20}", fullmatch=True), st.integers(0, 2**31 - 1)),
        _OFFSETS,
        max_size=5,
    )
)
def test_offset_checkpoint(offsets: dict[tuple[str, int], int]) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    text = "\n".join(["0", str(len(lines)), *lines, ""])
    assert parse_offset_checkpoint(text.encode()) == offsets


@given(
    st.integers(0, 2**62),
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 2**31 - 1)), max_size=8, unique_by=lambda entry: entry[0]),
    st.integers(0, 5),
)
def test_offset_index_lookups(base_offset: int, entries: list[tuple[int, int]], spare: int) -> None:
    entries.sort()
    data = b"".join(struct.pack(">ii", *entry) for entry in entries)
    assert indexes.trim_offset_index(data + bytes(8 * spare)) == data
    index = indexes.parse_offset_index(data + bytes(8 * spare), base_offset=base_offset)
    for target in range(510):
        plain = [(base_offset, 0)] + [(base_offset + offset, at) for offset, at in entries if offset <= target]
        assert index.lookup(base_offset + target) == plain[-1]


@given(st.integers(0, 2**62), st.sets(st.integers(1, 2**62), max_size=8), st.integers(0, 5))
def test_time_index(base_offset: int, timestamps: set[int], spare: int) -> None:
    ascending = sorted(timestamps)
    data = b"".join(struct.pack(">qi", timestamp, number) for number, timestamp in enumerate(ascending))
    trimmed = indexes.trim_time_index(data + bytes(12 * spare))
    assert trimmed == (bytes(12) if len(data) + 12 * spare == 12 and spare else data), "one entry alone is timestamp 0"
    index = indexes.check_time_index(data, base_offset=base_offset, end_offset=base_offset + 8)
    assert np.array_equal(index.timestamps_ms, ascending)
    assert index.largest_timestamp_ms == max(timestamps, default=-1)


_STEPS = st.lists(
    st.tuples(st.sampled_from(["data", "abort", "commit", "plain"]), st.integers(1, 3), st.integers(1, 3)), max_size=14
)


@given(_STEPS, st.integers(0, 40))
def test_last_stable_offset(steps: list[tuple[str, int, int]], high_watermark: int) -> None:
    """Against its definition: below it, no batch of a transaction without a marker below the high watermark."""
    log, offset, belongs_to, ended_at = b"", 0, [], {}
    current: dict[int, int] = {}
    for number, (kind, producer_id, count) in enumerate(steps):
        if kind == "data":
            current.setdefault(producer_id, number)
            belongs_to.append((offset, current[producer_id]))
            log += data_batch(offset, producer_id, count=count)
        elif kind == "plain":
            log += record_batch(offset, count=count)
        else:
            count = 1
            control = ControlType.ABORT if kind == "abort" else ControlType.COMMIT
            log += marker(offset, producer_id, control)
            ended_at[current.pop(producer_id, None)] = offset
        offset += count
    undecided = [first for first, txn in belongs_to if ended_at.get(txn, high_watermark) >= high_watermark]
    found = open_transactions((), iter_headers(BytesSource(log)))
    assert found.last_stable_offset(high_watermark) == min([high_watermark, *undecided])
    assert [txn.first_offset for txn in found.open] == sorted({first for first, _ in _firsts(belongs_to, current)})
    assert len(found.aborted) == sum(txn.aborted for txn in found.completed)


def _firsts(belongs_to: list[tuple[int, int]], current: dict[int, int]) -> list[tuple[int, int]]:
    firsts: dict[int, int] = {}
    for first, txn in belongs_to:
        if txn in current.values():
            firsts.setdefault(txn, first)
    return [(first, txn) for txn, first in firsts.items()]


# Whatever the bytes are, a parser gives a value or a FormatError whose position lies in them.

_PRODUCER = ProducerEntry(4242, 1, 6, 101, 1, 1_700_000_000_010, 9, 100)
_LOG = record_batch(5, count=3) + data_batch(8, 7) + marker(9, 7, ControlType.COMMIT)

# A parser, and bytes that it takes.
_PARSERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "uvarint": (lambda data: primitive_types.read_uvarint(data, 0), b"\xff\xff\x01"),
    "varlong": (lambda data: primitive_types.read_varlong(data, 0), b"\xff\xff\x01"),
    "batch header": (parse_header, _LOG),
    "control record": (lambda data: control_type(data, 0), marker(9, 7, ControlType.ABORT)[61:]),
    "offset checkpoint": (parse_offset_checkpoint, b"0\n2\norders 0 1500\norders 1 77\n"),
    "leader epoch checkpoint": (checkpoints.parse_leader_epochs, b"0\n2\n0 0\n3 1500\n"),
    "meta.properties": (
        checkpoints.parse_meta_properties,
        b"#\nversion=1\nnode.id=1\ncluster.id=12IO-UzuQxmrizG4BTlN8w\n",
    ),
    "partition.metadata": (checkpoints.parse_partition_metadata, b"version: 0\ntopic_id: DhwUnU7hQAGOf7zmLzw1Gg"),
    "producer snapshot": (
        indexes.parse_producer_snapshot,
        indexes.serialize_producer_snapshot([_PRODUCER]),
    ),
    "offset index": (
        lambda data: indexes.check_offset_index(data, base_offset=100, end_offset=200, size_bytes=9000),
        bytes.fromhex("00000032000010680000005000002134"),
    ),
    "offset index, trimmed": (indexes.trim_offset_index, bytes.fromhex("00000032000010680000000000000000")),
    "time index": (
        lambda data: indexes.check_time_index(data, base_offset=100, end_offset=200),
        bytes.fromhex("0000018bcfe56800000000320000018bcfe5680a00000050"),
    ),
    "transaction index": (
        lambda data: list(indexes.check_transaction_index(data, base_offset=100, end_offset=200)),
        bytes.fromhex("00000000000000001092000000000000006400000000000000660000000000000067"),
    ),
    "segment": (
        lambda data: check_segment(BytesSource(data), base_offset=0, end_offset=99, leader_epochs=None),
        _LOG,
    ),
    "log end": (lambda data: find_log_end(BytesSource(data), base_offset=0), _LOG),
    "headers": (lambda data: list(iter_headers(BytesSource(data))), _LOG),
}


@st.composite
def _mutations(draw: st.DrawFn, sound: bytes) -> bytes:
    """Sound bytes with a few replaced, removed or put in."""
    data = bytearray(sound)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        removed = draw(st.integers(0, 9))
        data[at : at + removed] = draw(st.binary(max_size=9))
    return bytes(data)


@pytest.mark.parametrize("name", _PARSERS)
@given(data=st.data())
def test_only_a_format_error_comes_out(name: str, data: st.DataObject) -> None:
    parse, sound = _PARSERS[name]
    given_bytes = data.draw(st.one_of(st.binary(max_size=300), _mutations(sound)))
    error = _error_of(parse, given_bytes)
    if error is not None:
        assert 0 <= error.position <= len(given_bytes)
        assert len(error.message) < 500


def _error_of(parse: Callable[[bytes], object], data: bytes) -> FormatError | None:
    """Anything but a FormatError goes on to fail the test."""
    try:
        parse(data)
    except FormatError as error:
        return error
    return None


@pytest.mark.parametrize("name", _PARSERS)
def test_the_sound_bytes_are_sound(name: str) -> None:
    parse, sound = _PARSERS[name]
    parse(sound)
