"""Record batches as they stand in a `.log`, read by rules of their own: nothing here comes from `include/`.

Written from Kafka's description of message format 2: a batch begins with its base offset (8 bytes), its length (4) and
its leader epoch (4); then magic, CRC-32C of all that follows, attributes, last offset delta, first and largest
timestamp, producer id, producer epoch, sequence, number of records. Codecs are those of the standard library, of
`zstandard` and of `pyarrow`.
"""

import gzip
import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import google_crc32c
import pyarrow as pa
import zstandard

_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_COVERS_FROM: Final = 21
_LENGTH_COUNTS_FROM: Final = 12
_CODEC, _LOG_APPEND_TIME, _CONTROL = 0x07, 0x08, 0x20
_XERIAL: Final = b"\x82SNAPPY\x00"
_ABSENT: Final = b"\xff\xff\xff\xff"
_MOST_BYTES: Final = 1 << 26
CREATE_TIME, LOG_APPEND_TIME = 1, 2
"""As librdkafka numbers them."""


class NotARecordError(Exception):
    """The bytes are no log of format 2, with the position."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    offset: int
    leader_epoch: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class StoredLog:
    """`holes`: (first, last) offsets that no batch covers, between batches or inside of one that was compacted."""

    first_offset: int
    last_offset: int
    records: tuple[StoredRecord, ...]
    holes: tuple[tuple[int, int], ...]


def digest_of(
    kind: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> bytes:
    """Everything of a record but where it is; lengths come before contents, absent is not empty."""
    parts = [_sized(key), _sized(value)]
    for name, content in headers:
        parts += [_sized(name.encode()), _sized(content)]
    head = struct.pack(">bqI", kind, timestamp, len(headers))
    return hashlib.blake2b(head + b"".join(parts), digest_size=12).digest()


def read_log(path: Path) -> StoredLog:
    """Raises NotARecordError, also where a checksum is wrong."""
    content = path.read_bytes()
    records: list[StoredRecord] = []
    holes: list[tuple[int, int]] = []
    position, first, expected = 0, -1, -1
    while position < len(content):
        if position + _HEAD.size > len(content):
            raise NotARecordError(f"{path.name} ends inside of a batch at {position}")
        base, length, epoch, magic, crc, attributes, delta, begun, largest, *_, count = _HEAD.unpack_from(
            content, position
        )
        end = position + _LENGTH_COUNTS_FROM + length
        if magic != 2 or end > len(content):
            raise NotARecordError(f"{path.name}: no batch of format 2 at {position}")
        if google_crc32c.value(content[position + _CRC_COVERS_FROM : end]) != crc:
            raise NotARecordError(f"{path.name}: wrong checksum of the batch at {position}")
        if first < 0:
            first = base
        elif base != expected:
            holes.append((expected, base - 1))
        expected = base + delta + 1
        if not attributes & _CONTROL:
            kind = LOG_APPEND_TIME if attributes & _LOG_APPEND_TIME else CREATE_TIME
            body = _opened(attributes & _CODEC, content[position + _HEAD.size : end])
            found = list(_records(body, count, base, epoch, kind, largest if kind == LOG_APPEND_TIME else begun))
            records += found
            if count != delta + 1:
                holes.append((base, expected - 1))
        position = end
    return StoredLog(first, expected - 1, tuple(records), tuple(holes))


def _records(body: bytes, count: int, base: int, epoch: int, kind: int, time_ms: int) -> Iterator[StoredRecord]:
    reader = _Reader(body)
    for _ in range(count):
        reader.varint()
        reader.position += 1
        time_delta, offset_delta = reader.varint(), reader.varint()
        key, value = reader.sized(), reader.sized()
        headers = []
        for _ in range(reader.varint()):
            name = reader.sized() or b""
            headers.append((name.decode(), reader.sized()))
        timestamp = time_ms if kind == LOG_APPEND_TIME else time_ms + time_delta
        yield StoredRecord(base + offset_delta, epoch, digest_of(kind, timestamp, key, value, headers))


@dataclass(slots=True)
class _Reader:
    content: bytes
    position: int = 0

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.content[self.position]
            self.position += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)

    def sized(self) -> bytes | None:
        length = self.varint()
        if length < 0:
            return None
        found = self.content[self.position : self.position + length]
        self.position += length
        return found


def _opened(codec: int, body: bytes) -> bytes:
    if codec == 0:
        return body
    if codec == 1:
        return gzip.decompress(body)
    if codec == 2:
        return _unsnapped(body)
    if codec == 3:
        return pa.input_stream(pa.py_buffer(body), compression="lz4").read()
    if codec == 4:
        return zstandard.ZstdDecompressor().decompress(body, max_output_size=_MOST_BYTES)
    raise NotARecordError(f"codec {codec}")


def _unsnapped(body: bytes) -> bytes:
    """Raw as librdkafka writes it, or in the blocks of Java's clients."""
    blocks = [body]
    if body.startswith(_XERIAL):
        blocks, position = [], 16
        while position < len(body):
            (length,) = struct.unpack_from(">i", body, position)
            blocks.append(body[position + 4 : position + 4 + length])
            position += 4 + length
    return b"".join(_raw_snappy(block) for block in blocks)


def _raw_snappy(block: bytes) -> bytes:
    """A block begins with its length when it is open, seven bits a byte, the lowest first."""
    length = shift = position = 0
    while True:
        byte = block[position]
        length |= (byte & 0x7F) << shift
        shift, position = shift + 7, position + 1
        if byte < 0x80:
            break
    return pa.decompress(block, decompressed_size=length, codec="snappy", asbytes=True)


def _sized(content: bytes | None) -> bytes:
    return _ABSENT if content is None else struct.pack(">I", len(content)) + content
