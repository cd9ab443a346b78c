"""Segments in remote storage (KIP-405): ids of segments and partitions, states, metadata, and the copied data.

The states of a segment:

    (none) --> COPY_SEGMENT_STARTED --> COPY_SEGMENT_FINISHED
                        |                        |
                        +----------+-------------+
                                   v
                        DELETE_SEGMENT_STARTED --> DELETE_SEGMENT_FINISHED

The deletion of a whole partition. No broker writes these states, but every broker reads them:

    (none) --> DELETE_PARTITION_MARKED --> DELETE_PARTITION_STARTED --> DELETE_PARTITION_FINISHED

A transition to the same state is legal, so requests are idempotent. A segment's `Verdict` is separate from its state.
A segment in COPY_SEGMENT_FINISHED is called FINISHED, and one in DELETE_SEGMENT_FINISHED is called a tombstone.

`RecordDigest` is a SHA-256 over offsets, timestamps with their type, keys, values and headers of a range of records:
equal digests mean equal records.
"""

import base64
import binascii
import hashlib
import re
import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple, Protocol, Self

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.units import MIB

UUID_TEXT_LENGTH: Final = 22
_RESERVED: Final = frozenset({bytes(16), bytes(15) + b"\x01"})
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")


@dataclass(frozen=True, slots=True, order=True)
class Uuid:
    """16 bytes, written as URL-safe base64 without padding (22 characters), as Kafka prints them."""

    value: bytes

    def __post_init__(self) -> None:
        if len(self.value) != 16:
            raise ValueError(f"a Uuid has 16 bytes, not {len(self.value)}")

    def __str__(self) -> str:
        return _text_of(self.value)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the canonical text of 22 characters.

        Raises:
            ValueError: the text is not canonical.
        """
        if len(text) != UUID_TEXT_LENGTH:
            raise ValueError(f"a Uuid has {UUID_TEXT_LENGTH} characters, not {len(text)}")
        try:
            parsed = cls(base64.b64decode(text + "==", altchars=b"-_", validate=True))
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"not a Uuid: {text!r}") from error
        if str(parsed) != text:
            raise ValueError(f"not a canonical Uuid: {text!r}")
        return parsed

    @classmethod
    def random(cls, random_bytes: Callable[[int], bytes]) -> Self:
        """Return a random version 4 UUID, neither reserved nor with a text that starts with ``-``, as Kafka does."""
        while True:
            raw = bytearray(random_bytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            drawn = cls(bytes(raw))
            if drawn.value not in _RESERVED and not str(drawn).startswith("-"):
                return drawn

    @property
    def is_zero(self) -> bool:
        return not any(self.value)


@lru_cache(maxsize=4_096)
def _text_of(value: bytes) -> str:
    """Return the text of a UUID, cached: the ids of a few topics are in the keys of most SQL statements."""
    return base64.urlsafe_b64encode(value)[:UUID_TEXT_LENGTH].decode()


def is_legal_topic_name(name: str) -> bool:
    """Return whether Kafka accepts the name: 1 to 249 of ``[a-zA-Z0-9._-]``, and neither ``.`` nor ``..``."""
    return name not in (".", "..") and _TOPIC_NAME.match(name) is not None


@dataclass(frozen=True, slots=True)
class TopicIdPartition:
    """A partition. Identity is (topic id, partition); the topic's name is a label."""

    topic_id: Uuid
    partition: int
    topic: str = field(compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.partition < 2**31:
            raise ValueError(f"partition {self.partition} is outside 0..2^31-1")
        if not is_legal_topic_name(self.topic):
            raise ValueError(f"not a legal topic name: {self.topic!r}")

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentId:
    """Id of one ATTEMPT to copy a segment: a retry has a new id, so no object is ever overwritten."""

    topic_id_partition: TopicIdPartition
    id: Uuid

    def __str__(self) -> str:
        return f"{self.topic_id_partition}:{self.id}"


class RemoteLogSegmentState(IntEnum):
    """State of a segment; the value is the id in Kafka's records."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3

    def may_become(self, target: "RemoteLogSegmentState") -> bool:
        return target is self or target in _EDGES[self]


_EDGES = {
    RemoteLogSegmentState.COPY_SEGMENT_STARTED: {
        RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
    },
    RemoteLogSegmentState.COPY_SEGMENT_FINISHED: {RemoteLogSegmentState.DELETE_SEGMENT_STARTED},
    RemoteLogSegmentState.DELETE_SEGMENT_STARTED: {RemoteLogSegmentState.DELETE_SEGMENT_FINISHED},
    RemoteLogSegmentState.DELETE_SEGMENT_FINISHED: set(),
}


def is_legal_transition(source: RemoteLogSegmentState | None, target: RemoteLogSegmentState) -> bool:
    """Return whether the transition is legal. If `source` is None (a new id), only COPY_SEGMENT_STARTED is legal."""
    if source is None:
        return target is RemoteLogSegmentState.COPY_SEGMENT_STARTED
    return source.may_become(target)


class RemotePartitionDeleteState(IntEnum):
    """State of a partition's deletion; the value is the id in Kafka's records."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


class Verdict(StrEnum):
    """Result of the last verification of a segment.

    NONE: not verified yet. EXPIRED: the segment passed, but too long ago. Of the segments in COPY_SEGMENT_FINISHED,
    readers are served from those that are PASSED or EXPIRED. Only those that are PASSED count as safe, and only these
    are added to the brokers' metadata topic, `__remote_log_metadata`.
    """

    NONE = "none"
    PASSED = "passed"
    FAILED = "failed"
    EXPIRED = "expired"

    @property
    def is_served(self) -> bool:
        return self in (Verdict.PASSED, Verdict.EXPIRED)

    @property
    def is_safe(self) -> bool:
        return self is Verdict.PASSED


class VerdictAge(StrEnum):
    """Ranges of ages, in days: the lower bound is inclusive, the upper one exclusive."""

    DAY = "0-1"
    WEEK = "1-7"
    MONTH = "7-30"
    QUARTER = "30-90"
    OLDER = "90-"

    @property
    def below_ms(self) -> int | None:
        """Return the upper bound; None without one."""
        upper = self.value.partition("-")[2]
        return int(upper) * 24 * 60 * 60 * 1000 if upper else None


class Depth(StrEnum):
    """Depth of a verification.

    Both depths ask the store for the length and the checksum of every object, and read manifest and indexes whole.
    SHALLOW also reads the first batch of the log, and the batches from the last offset index entry on: it finds objects
    that are missing, truncated, exchanged or described wrongly. DEEP reads every byte of the log once, paced by the
    fetch quota: it finds each batch that is damaged or misplaced, and each wrong index entry.
    """

    SHALLOW = "shallow"
    DEEP = "deep"


@dataclass(frozen=True, slots=True)
class AgedSegments:
    """FINISHED segments of one verdict that were verified equally deep and are in the same range of ages.

    Attributes:
        depth: DEEP if a deep verification passed, and since then no verification of either depth has failed; otherwise
            SHALLOW. None if the verdict is NONE or FAILED.
        age: the time since the last deep verification that passed, if `depth` is DEEP. Otherwise the time since the
            verdict was recorded; if the verdict is EXPIRED, since PASSED was recorded. None if the verdict is NONE.
        segments: the number of the segments.
        size_bytes: the size of all of their `.log` files.
    """

    depth: Depth | None
    age: VerdictAge | None
    segments: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class VerdictTotal:
    """Total of FINISHED segments with one verdict. `oldest_age_ms` is the age of the oldest of these verdicts.

    `oldest_age_ms` is None if there are no segments, and for the verdict NONE, which has no time. `by_age` has the same
    segments by depth and range of ages, without combinations that no segment has.
    """

    verdict: Verdict
    segments: int
    size_bytes: int
    oldest_age_ms: int | None
    by_age: tuple[AgedSegments, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadata:
    """One copy attempt of one rolled segment.

    Offsets are inclusive. `segment_leader_epochs` is the history clipped to [start_offset, end_offset]; its first
    entry is at `start_offset`, or later if the history began within the segment (for example, at the log start).
    `max_timestamp_ms` is the largest record timestamp. If no record has one, it is the modification time of the `.log`;
    -1 means that it is unknown. `segment_size_bytes` counts only the `.log`, as Kafka does.

    Raises:
        ValueError: the offsets are not a range, the size is outside 0..2^31-1, there is no leader epoch, or the last
            leader epoch starts above `end_offset`.
    """

    remote_log_segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_size_bytes: int
    segment_leader_epochs: LeaderEpochs
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    custom_metadata: bytes | None = None
    txn_index_empty: bool = False

    def __post_init__(self) -> None:
        if self.start_offset < 0 or self.end_offset < self.start_offset:
            raise ValueError(f"offsets {self.start_offset}..{self.end_offset} are not a range")
        if not 0 <= self.segment_size_bytes < 2**31:
            raise ValueError(f"segment size {self.segment_size_bytes} is outside 0..2^31-1")
        if not self.segment_leader_epochs.entries:
            raise ValueError("a remote log segment has at least one leader epoch")
        if self.segment_leader_epochs.entries[-1].start_offset > self.end_offset:
            raise ValueError(f"leader epochs {list(self.segment_leader_epochs)} start after end {self.end_offset}")

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self.remote_log_segment_id.topic_id_partition

    @property
    def is_finished(self) -> bool:
        return self.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED

    @property
    def first_readable_offset(self) -> int:
        """The first offset that the source's log had when the segment was copied.

        A segment is copied whole, also if the log start was inside of it. Its leader epochs begin at the log start.
        """
        return max(self.start_offset, self.segment_leader_epochs.entries[0].start_offset)

    def end_offset_of_epoch(self, epoch: int) -> int | None:
        """Return the last offset (inclusive) of `epoch` in this segment; None if it does not have the epoch."""
        for entry, after in pairwise(self.segment_leader_epochs):
            if entry.epoch == epoch:
                return after.start_offset - 1
        return self.end_offset if self.segment_leader_epochs.entries[-1].epoch == epoch else None

    def with_update(self, update: "RemoteLogSegmentMetadataUpdate") -> "RemoteLogSegmentMetadata":
        """Return the metadata with the update's broker id, event time, custom metadata (even if None) and state.

        All other values stay.

        Raises:
            ValueError: the update has another id, or its transition is illegal.
        """
        if update.remote_log_segment_id != self.remote_log_segment_id:
            raise ValueError(f"update of {update.remote_log_segment_id} applied to {self.remote_log_segment_id}")
        if not is_legal_transition(self.state, update.state):
            raise ValueError(f"{self.remote_log_segment_id}: {self.state.name} may not become {update.state.name}")
        return replace(
            self,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
            custom_metadata=update.custom_metadata,
            state=update.state,
        )


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadataUpdate:
    """The next state of one segment."""

    remote_log_segment_id: RemoteLogSegmentId
    state: RemoteLogSegmentState
    event_timestamp_ms: int
    broker_id: int
    custom_metadata: bytes | None = None


RUNNING_CRC32C_STEP_BYTES: Final = 8 * MIB


class IndexType(StrEnum):
    """Indexes that a reader may fetch, in their order within the `.indexes` object of the aiven layout."""

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
        """Fill `buffer` from `position` on; return the number of bytes read, which is less only at the end.

        Raises:
            SourceChangedError: the source became shorter than `size_bytes`.
            SourceUnreadableError: an I/O error.
        """
        ...


@dataclass(frozen=True, slots=True)
class LogSegmentData:
    """Everything that is copied of one segment (KIP-405's LogSegmentData).

    The *check pass* reads and checks the whole segment before it is copied. No index ends in zero entries or in an
    incomplete entry.

    Attributes:
        log: the whole rolled `.log`.
        log_crc32c: the CRC-32C of the log, which the check pass computed.
        offset_index: the `.index`.
        time_index: the `.timeindex`.
        producer_snapshot: the snapshot at the end offset + 1.
        leader_epoch: the text of a checkpoint with the replica's history up to the end of the segment.
        transaction_index: the `.txnindex`; None if the broker wrote none.
        log_running_crc32c: the CRC-32C of the first 1, 2, 3, ... times `RUNNING_CRC32C_STEP_BYTES` of the log; empty if
            the check pass kept none. From these the checksum of a part of the log can be computed without reading it
            again, if the part begins at a multiple of that size, and ends at one or at the end of the log.
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
    """One record. `is_append_time` means that the broker set the timestamp. None differs from empty bytes."""

    offset: int
    is_append_time: bool
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class RangeDigest:
    """Number of records of a range, without control records, and the SHA-256 of `RecordDigest` over them."""

    records: int
    sha256: str


class RecordDigest:
    """Computes a `RangeDigest` of records that are added in the order of their offsets."""

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


SegmentDigests = Mapping[int, RangeDigest]
"""By base offset; a segment of which a consumer gets no record is absent."""


def segment_digests(records: Iterable[SeenRecord], bases: Sequence[int]) -> dict[int, RangeDigest]:
    """Return the digest of each segment that has records, by base offset.

    `bases` are the base offsets of all segments (ascending); `records` are ordered by offset.
    """
    digests: dict[int, RecordDigest] = defaultdict(RecordDigest)
    for record in records:
        digests[bases[max(0, bisect_right(bases, record.offset) - 1)]].add(record)
    return {base: digest.result() for base, digest in digests.items()}
