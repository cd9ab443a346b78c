"""What a consumer sees of a range of records, as one SHA-256: equal digests mean equal records."""

import hashlib
import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct(">q?qI")
_LENGTH: Final = struct.Struct(">I")
_ABSENT: Final = b"\xff\xff\xff\xff"


class SeenRecord(NamedTuple):
    """One record. `is_append_time`: the timestamp is the broker's clock. Absent is not empty."""

    offset: int
    is_append_time: bool
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class RangeDigest:
    """Records of a range of offsets, control records left out, and SHA-256 over all that a consumer sees of them."""

    records: int
    sha256: str


class RecordDigest:
    """Takes records in the order of their offsets."""

    def __init__(self) -> None:
        self._sums = hashlib.sha256()
        self._records = 0

    def add(self, record: SeenRecord) -> None:
        self._records += 1
        add = self._sums.update
        add(_HEAD.pack(record.offset, record.is_append_time, record.timestamp_ms, len(record.headers)))
        for content in (record.key, record.value, *(part for header in record.headers for part in header)):
            if content is None:
                add(_ABSENT)
            else:
                add(_LENGTH.pack(len(content)))
                add(content)

    def result(self) -> RangeDigest:
        return RangeDigest(self._records, self._sums.hexdigest())
