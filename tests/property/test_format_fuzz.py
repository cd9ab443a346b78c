"""Whatever the bytes are, a parser gives a value or a FormatError whose position lies in them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats import checkpoints, indexes, primitive_types
from include.tiering.formats.checkpoints import parse_offset_checkpoint
from include.tiering.formats.indexes import ProducerEntry
from include.tiering.formats.log_batches import check_segment, find_log_end
from include.tiering.formats.record_batch import ControlType, control_type, iter_headers, parse_header
from tests.doubles.memory_source import BytesSource
from tests.doubles.record_batches import data_batch, marker, record_batch

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
