"""Batches that are small on disk and large once opened, as any producer may send them: right lengths, right CRC-32C."""

import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import cramjam
import zstandard

from include.tiering.formats.primitive_types import write_varint, write_varlong
from include.tiering.formats.record_batch import HEADER_SIZE, Codec, parse_header
from include.tiering.units import KIB, MIB
from tests.doubles.damages.batches import batches_of, value_of, with_value
from tests.doubles.record_batches import with_crc

_STEP_BYTES = MIB
_SNAPPY_BLOCK_BYTES = 32 * KIB


def records_with_zeros(size_bytes: int, deltas: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Records with these offset and timestamp deltas, in pieces; the value of the first is `size_bytes` zeros."""
    for number, (offset_delta, timestamp_delta) in enumerate(deltas):
        value_bytes = 0 if number else size_bytes
        head = b"\0" + write_varlong(timestamp_delta) + write_varint(offset_delta) + write_varint(-1)
        head += write_varint(value_bytes)
        yield write_varint(len(head) + value_bytes + 1) + head
        for at in range(0, value_bytes, _STEP_BYTES):
            yield bytes(min(_STEP_BYTES, value_bytes - at))
        yield write_varint(0)


def compressed(codec: Codec, pieces: Iterable[bytes]) -> bytes:
    """As clients write them: one gzip member, snappy-java's blocks, one LZ4 frame, one Zstandard frame."""
    if codec is Codec.GZIP:
        member = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
        return b"".join(map(member.compress, pieces)) + member.flush()
    if codec is Codec.ZSTD:
        frame = zstandard.ZstdCompressor(level=3).compressobj()
        return b"".join(map(frame.compress, pieces)) + frame.flush()
    if codec is Codec.LZ4:
        return bytes(cramjam.lz4.compress(b"".join(pieces)))
    if codec is Codec.SNAPPY:
        return b"".join(chain([b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)], _snappy_blocks(b"".join(pieces))))
    return b"".join(pieces)


def _snappy_blocks(plain: bytes) -> Iterator[bytes]:
    for at in range(0, len(plain), _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(plain[at : at + _SNAPPY_BLOCK_BYTES]))
        yield struct.pack(">i", len(block)) + block


def with_zeros(batch: bytes, size_bytes: int, codec: Codec = Codec.ZSTD) -> bytes:
    """The batch with the same offsets, timestamps, epoch and producer, and other records: all that its header tells of
    are there, the first of them with `size_bytes` zeros."""
    header = parse_header(batch)
    last = header.record_count - 1
    times = [0] * last + [header.max_timestamp - header.base_timestamp]
    offsets = [*range(last), header.last_offset_delta]
    return with_records(batch, codec, records_with_zeros(size_bytes, zip(offsets, times, strict=True)))


def with_records(batch: bytes, codec: Codec, pieces: Iterable[bytes]) -> bytes:
    """The batch's header with other records behind it."""
    changed = batch[:HEADER_SIZE] + compressed(codec, pieces)
    changed = with_value(changed, "attributes", value_of(batch, "attributes") & ~7 | codec)
    return with_crc(with_value(changed, "batch length", len(changed) - 12))


def replace_last_batch(log: Path, size_bytes: int, codec: Codec = Codec.ZSTD) -> int:
    """In a segment's file; returns the first offset of the batch."""
    *rest, last = batches_of(log.read_bytes())
    log.write_bytes(b"".join(rest) + with_zeros(last, size_bytes, codec))
    return parse_header(last).base_offset
