"""Fields of the batches of a log, changed in place."""

import struct
from typing import Final

from include.tiering.formats.record_batch import HEADER_SIZE, LOG_OVERHEAD
from tests.doubles.record_batches import with_crc

FIELDS: Final = {
    "base offset": (0, ">q"),
    "batch length": (8, ">i"),
    "leader epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last offset delta": (23, ">i"),
    "base timestamp": (27, ">q"),
    "max timestamp": (35, ">q"),
    "producer id": (43, ">q"),
    "producer epoch": (51, ">h"),
    "base sequence": (53, ">i"),
    "record count": (57, ">i"),
}
"""Position and code of each: see formats/record_batch."""


def batches_of(log: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(log):
        size_bytes = LOG_OVERHEAD + value_of(log[at:], "batch length")
        found.append(log[at : at + size_bytes])
        at += size_bytes
    return found


def value_of(batch: bytes, field: str) -> int:
    at, code = FIELDS[field]
    return int(struct.unpack_from(code, batch, at)[0])


def with_value(batch: bytes, field: str, value: int, *, signed: bool = False) -> bytes:
    """`signed`: with the CRC that belongs to it."""
    changed = bytearray(batch)
    at, code = FIELDS[field]
    struct.pack_into(code, changed, at, value)
    return with_crc(bytes(changed)) if signed else bytes(changed)


def with_flipped_byte(batch: bytes, *, after_header: int, signed: bool = False) -> bytes:
    """One byte of the records."""
    changed = bytearray(batch)
    changed[HEADER_SIZE + after_header] ^= 0x01
    return with_crc(bytes(changed)) if signed else bytes(changed)


def moved(log: bytes, by_offsets: int, by_epochs: int) -> bytes:
    """All batches, elsewhere: neither is under their CRCs."""
    return b"".join(
        with_value(
            with_value(batch, "base offset", value_of(batch, "base offset") + by_offsets),
            "leader epoch",
            value_of(batch, "leader epoch") + by_epochs,
        )
        for batch in batches_of(log)
    )
