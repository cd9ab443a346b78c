"""The bytes of one segment on their way to remote storage."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

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
