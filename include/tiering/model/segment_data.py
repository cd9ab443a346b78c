"""The bytes of one segment on their way to remote storage, and what a consumer sees of a range of records.

The latter is one SHA-256: equal digests mean equal records.
"""

import hashlib
import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from include.tiering.units import MIB

RUNNING_CRC32C_STEP_BYTES: Final = 8 * MIB


class IndexType(StrEnum):
    """What a reader may ask for beside the records. Order = order inside the aiven `.indexes` object."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    PRODUCER_SNAPSHOT = "producerSnapshot"
    LEADER_EPOCH = "leaderEpoch"
    TRANSACTION = "transaction"


class ByteSource(Protocol):
    """Random access to a fixed number of bytes that stay the same while it is open."""

    @property
    def size_bytes(self) -> int: ...

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position` on; returns the bytes read, fewer only at the end.

        Raises:
            SourceChangedError: the source became shorter than `size_bytes`.
            SourceUnreadableError: an I/O error.
        """
        ...


@dataclass(frozen=True, slots=True)
class LogSegmentData:
    """All that is copied of one segment (KIP-405's LogSegmentData).

    `log` is the whole rolled `.log`, `log_crc32c` its CRC-32C as seen by the check pass. Indexes are trimmed.
    `transaction_index` is None if the broker wrote none. `producer_snapshot` is the snapshot at end offset + 1,
    `leader_epoch` the checkpoint text of the whole history up to the end. `log_running_crc32c` holds the CRC-32C of
    the first `RUNNING_CRC32C_STEP_BYTES` of the log, of the first two steps, and so on: from these the checksum of any
    part follows without reading it again. Empty if the check pass kept none.
    """

    log: ByteSource
    log_crc32c: int
    offset_index: bytes
    time_index: bytes
    producer_snapshot: bytes
    leader_epoch: bytes
    transaction_index: bytes | None = None
    log_running_crc32c: tuple[int, ...] = ()

    def index(self, index_type: IndexType) -> bytes | None:
        return {
            IndexType.OFFSET: self.offset_index,
            IndexType.TIMESTAMP: self.time_index,
            IndexType.PRODUCER_SNAPSHOT: self.producer_snapshot,
            IndexType.LEADER_EPOCH: self.leader_epoch,
            IndexType.TRANSACTION: self.transaction_index,
        }[index_type]


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
