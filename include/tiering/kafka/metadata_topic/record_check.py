"""The last look at a value before it is sent: what would a broker read from it, and is that what is meant?

One wrong record stops every broker that reads it, for good. So this shares nothing with the codec: no reader of single
fields, but the layout of exactly what this platform writes, laid over the bytes, and the partitioner's arithmetic once
more, over bytes of any length. What a broker would take and this platform never writes (tags, other versions, names of
other characters) is refused too.

    01 | key | 00 | length of topic + 1 | topic | topic id 16, partition int32, 00, segment id 16, 00 | rest
    key 0: start int64, end int64, broker int32, max int64, event int64 | epochs + 1 | each: int32, int64, 00 |
           size int32 | custom metadata | state int8 | 00, or 01 00 01 01 without a transaction index
    key 1: broker int32, event int64 | custom metadata | state int8 | 00
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from include.tiering.errors import PublicationRefusedError
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState

_SEGMENT, _UPDATE = 0, 1
_IDS: Final = struct.Struct(">16siB16sB")
_SEGMENT_HEAD: Final = struct.Struct(">qqiqq")
_EPOCH: Final = struct.Struct(">iqB")
_SIZE: Final = struct.Struct(">i")
_UPDATE_HEAD: Final = struct.Struct(">iq")
_TOPIC: Final = re.compile(rb"[A-Za-z0-9._-]{1,249}")
_STARTED, _FINISHED = 0, 1
_LAST_STATE: Final = 3
_LARGEST_SIZE: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ExpectedRecord:
    """What a value is to say: this segment is in `state` from now on, and that in the partition it is for.

    `segment` has the broker id, event time and custom metadata that the record is to have.
    """

    segment: RemoteLogSegmentMetadata
    state: RemoteLogSegmentState
    metadata_partition: int
    partition_count: int


def require_valid_record(value: bytes, meant: ExpectedRecord) -> None:
    """Nothing, if a broker reads from `value` what is meant, in the partition where it looks for it.

    Raises:
        PublicationRefusedError: with the rule that is broken. It must not be sent.
    """
    try:
        said = _Layout(value).read()
    except (struct.error, IndexError) as error:
        raise _refusal(meant, f"its {len(value)} bytes end too early") from error
    except ValueError as error:
        raise _refusal(meant, str(error)) from error
    for broken in (*_broken_rules(said), *_differences(said, meant)):
        raise _refusal(meant, broken)
    chosen = partition_choice(said["topic_id"], said["partition"], meant.partition_count)
    if chosen != meant.metadata_partition:
        raise _refusal(meant, f"brokers look for it in partition {chosen}, not {meant.metadata_partition}")


@dataclass(slots=True)
class _Layout:
    """Raises ValueError for bytes that are not laid out as this platform writes them."""

    value: bytes
    at: int = 0
    said: dict[str, Any] = field(default_factory=dict)

    def read(self) -> dict[str, Any]:
        frame, key, version = self.value[0], self.value[1], self.value[2]
        if (frame, version) != (1, 0) or key not in (_SEGMENT, _UPDATE):
            raise ValueError(f"frame {frame}, key {key}, version {version} is no record of a segment")
        self.at, self.said = 3, {"key": key}
        self.said["topic"] = self._take(self._count())
        topic_id, partition, end, segment_id, other_end = self._unpack(_IDS)
        self.said |= {"topic_id": topic_id, "partition": partition, "segment_id": segment_id}
        self._require_ends(end, other_end)
        if key == _SEGMENT:
            self._read_segment()
        else:
            self.said["broker_id"], self.said["event_timestamp_ms"] = self._unpack(_UPDATE_HEAD)
            self._read_tail(flag_allowed=False)
        return self.said

    def _read_segment(self) -> None:
        names = ("start_offset", "end_offset", "broker_id", "max_timestamp_ms", "event_timestamp_ms")
        self.said |= zip(names, self._unpack(_SEGMENT_HEAD), strict=True)
        entries = list(_EPOCH.iter_unpack(self._take(self._count() * _EPOCH.size)))
        self._require_ends(*(end for _, _, end in entries))
        self.said["epochs"] = [(epoch, start) for epoch, start, _ in entries]
        (self.said["size_bytes"],) = self._unpack(_SIZE)
        self._read_tail(flag_allowed=True)

    def _read_tail(self, *, flag_allowed: bool) -> None:
        is_null = self.value[self.at] == 0
        length = self._count(null_allowed=True)
        self.said["custom_metadata"] = None if is_null else self._take(length)
        self.said["state"] = self.value[self.at]
        rest = self.value[self.at + 1 :]
        if rest != b"\x00" and not (flag_allowed and rest == b"\x01\x00\x01\x01"):
            raise ValueError(f"it ends in {rest[:8].hex() or 'nothing'}")
        self.said["txn_index_empty"] = rest != b"\x00"

    def _count(self, *, null_allowed: bool = False) -> int:
        """A count plus one, in one byte below 128, else in two or three."""
        stored = shift = 0
        for _ in range(3):
            byte = self.value[self.at]
            self.at += 1
            stored += (byte % 128) << shift
            shift += 7
            if byte < 128:
                break
        else:
            raise ValueError(f"a count of more than three bytes at byte {self.at - 3}")
        if stored == 0 and not null_allowed:
            raise ValueError(f"a null at byte {self.at - 1}")
        return stored - 1

    def _unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack(self._take(form.size))

    def _take(self, size: int) -> bytes:
        taken = self.value[self.at : self.at + size]
        if len(taken) != size:
            raise IndexError(size)
        self.at += size
        return taken

    def _require_ends(self, *ends: int) -> None:
        if any(ends):
            raise ValueError(f"a tagged field before byte {self.at}")


def _broken_rules(said: dict[str, Any]) -> Iterator[str]:
    """What brokers, or those who read by the record, could not bear; whatever was meant."""
    if not _TOPIC.fullmatch(said["topic"]):
        yield f"no topic is called by these {len(said['topic'])} bytes"
    if said["partition"] < 0:
        yield f"partition {said['partition']} is negative"
    if said["state"] > _LAST_STATE:
        yield f"there is no state {said['state']}"
    yield from _broken_rules_of_segment(said) if said["key"] == _SEGMENT else _broken_rules_of_update(said)


def _broken_rules_of_update(said: dict[str, Any]) -> Iterator[str]:
    if said["state"] == _STARTED:
        yield "an update cannot begin a segment"


def _broken_rules_of_segment(said: dict[str, Any]) -> Iterator[str]:
    start, end = said["start_offset"], said["end_offset"]
    if said["state"] != _STARTED:
        yield f"a segment begins in state {_STARTED}, not {said['state']}: every broker would stop over it"
    if not 0 <= start <= end:
        yield f"offsets {start}..{end} are no range"
    if not 0 < said["size_bytes"] <= _LARGEST_SIZE:
        yield f"a size of {said['size_bytes']} bytes"
    yield from _broken_rules_of_epochs(said["epochs"], start, end)


def _broken_rules_of_epochs(epochs: list[tuple[int, int]], start: int, end: int) -> Iterator[str]:
    if not epochs:
        yield "it has no leader epoch"
        return
    # A later one is what brokers write themselves where the log start lies within the segment.
    if epochs[0][1] < start:
        yield f"its first leader epoch is from {epochs[0][1]}, before its start {start}"
    if any(after[0] <= before[0] or after[1] < before[1] for before, after in pairwise(epochs)):
        yield f"its leader epochs do not ascend: {epochs}"
    if epochs[0][0] < 0 or epochs[-1][1] > end:
        yield f"its leader epochs {epochs} lead outside {start}..{end}"


def _differences(said: dict[str, Any], meant: ExpectedRecord) -> list[str]:
    segment = meant.segment
    partition = segment.topic_id_partition
    wanted: dict[str, Any] = {
        "key": _SEGMENT if meant.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED else _UPDATE,
        "topic": partition.topic.encode(),
        "topic_id": partition.topic_id.value,
        "partition": partition.partition,
        "segment_id": segment.remote_log_segment_id.id.value,
        "broker_id": segment.broker_id,
        "event_timestamp_ms": segment.event_timestamp_ms,
        "custom_metadata": segment.custom_metadata,
        "state": int(meant.state),
    }
    if said["key"] == _SEGMENT:
        wanted |= {
            "start_offset": segment.start_offset,
            "end_offset": segment.end_offset,
            "max_timestamp_ms": segment.max_timestamp_ms,
            "epochs": [tuple(entry) for entry in segment.segment_leader_epochs],
            "size_bytes": segment.segment_size_bytes,
            "txn_index_empty": segment.txn_index_empty,
        }
    return [f"its {name} is not what is meant" for name, value in wanted.items() if said[name] != value]


def partition_choice(topic_id: bytes, partition: int, partition_count: int) -> int:
    """Kafka's choice: a hash of 31s over both halves of the id, each folded, then murmur2 of its bytes."""
    upper_high, upper_low, lower_high, lower_low = struct.unpack(">IIII", topic_id)
    hashed = ((1 * 31 + (lower_high ^ lower_low)) * 31 + (upper_high ^ upper_low)) * 31 + partition
    return (_murmur2(struct.pack(">I", hashed % 2**32)) % 2**31) % partition_count


def _murmur2(key: bytes) -> int:
    """murmur2 with Kafka's seed, of any number of bytes."""
    magic, word = 0x5BD1E995, 2**32
    state = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for (block,) in struct.iter_unpack("<I", key[:whole]):
        scrambled = block * magic % word
        scrambled = (scrambled ^ scrambled >> 24) * magic % word
        state = state * magic % word ^ scrambled
    if tail := key[whole:]:
        state = (state ^ int.from_bytes(tail, "little")) * magic % word
    state = (state ^ state >> 13) * magic % word
    return state ^ state >> 15


def _refusal(meant: ExpectedRecord, rule: str) -> PublicationRefusedError:
    return PublicationRefusedError(
        f"{meant.segment.remote_log_segment_id}, {meant.state.name}: {rule}. The record was not sent"
    )
