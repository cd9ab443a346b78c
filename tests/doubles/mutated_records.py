"""Values of remote log metadata records, damaged in the ways that meet a decoder's checks."""

import random
from collections.abc import Iterator, Sequence
from typing import Final

from include.tiering.formats.primitive_types import write_uvarint
from include.tiering.formats.remote_log_metadata import decode, encode
from include.tiering.formats.remote_log_metadata_records import (
    EpochEntry,
    PartitionDeleteRecord,
    SegmentRecord,
    SegmentSnapshotRecord,
)
from include.tiering.model.segments import RemoteLogSegmentState, RemotePartitionDeleteState
from tests.doubles.broker_data import expected

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
