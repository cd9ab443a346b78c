"""Check a record of the metadata topic before it is sent: a broker must read from it exactly the expected values.

One wrong record can permanently stop every broker that reads it. So this check shares no code with the codec: it parses
the fixed layout that this platform writes, and has its own implementation of the partitioner and of murmur2.
Records that a broker would accept but this platform never writes (e.g. tags, other versions) are refused, too.

    01 | key | 00 | length of topic + 1 | topic | topic id 16, partition int32, 00, segment id 16, 00 | rest
    key 0: start int64, end int64, broker int32, max int64, event int64 | epochs + 1 | each: int32, int64, 00 |
           size int32 | custom metadata | state int8 | end: 00, or 01 00 01 01 if there is no transaction index
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
_STARTED: Final = 0
_LAST_STATE: Final = 3
_LARGEST_SIZE: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ExpectedRecord:
    """The contents that a record must have: the segment, its new state, and the metadata partition.

    `segment` has the broker id, event time and custom metadata that the record must have.
    """

    segment: RemoteLogSegmentMetadata
    state: RemoteLogSegmentState
    metadata_partition: int
    partition_count: int


def require_valid_record(value: bytes, expected: ExpectedRecord) -> None:
    """Require that a broker reads the expected values from `value`, and looks for them in the expected partition.

    Raises:
        PublicationRefusedError: a rule is violated, which the message names. The record must not be sent.
    """
    try:
        fields = _Layout(value).read()
    except (struct.error, IndexError) as error:
        raise _refusal(expected, f"its {len(value)} bytes end too early") from error
    except ValueError as error:
        raise _refusal(expected, str(error)) from error
    for broken in (*_broken_rules(fields), *_differences(fields, expected)):
        raise _refusal(expected, broken)
    chosen = partition_choice(fields["topic_id"], fields["partition"], expected.partition_count)
    if chosen != expected.metadata_partition:
        raise _refusal(expected, f"brokers look for it in partition {chosen}, not {expected.metadata_partition}")


@dataclass(slots=True)
class _Layout:
    """A parser for the layout that this platform writes; other layouts raise ValueError, IndexError or struct.error."""

    value: bytes
    at: int = 0
    fields: dict[str, Any] = field(default_factory=dict)

    def read(self) -> dict[str, Any]:
        frame, key, version = self.value[0], self.value[1], self.value[2]
        if (frame, version) != (1, 0) or key not in (_SEGMENT, _UPDATE):
            raise ValueError(f"frame {frame}, key {key}, version {version} is no record of a segment")
        self.at, self.fields = 3, {"key": key}
        self.fields["topic"] = self._take(self._count())
        topic_id, partition, end, segment_id, other_end = self._unpack(_IDS)
        self.fields |= {"topic_id": topic_id, "partition": partition, "segment_id": segment_id}
        self._require_ends(end, other_end)
        if key == _SEGMENT:
            self._read_segment()
        else:
            self.fields["broker_id"], self.fields["event_timestamp_ms"] = self._unpack(_UPDATE_HEAD)
            self._read_tail(flag_allowed=False)
        return self.fields

    def _read_segment(self) -> None:
        names = ("start_offset", "end_offset", "broker_id", "max_timestamp_ms", "event_timestamp_ms")
        self.fields |= zip(names, self._unpack(_SEGMENT_HEAD), strict=True)
        entries = list(_EPOCH.iter_unpack(self._take(self._count() * _EPOCH.size)))
        self._require_ends(*(end for _, _, end in entries))
        self.fields["epochs"] = [(epoch, start) for epoch, start, _ in entries]
        (self.fields["size_bytes"],) = self._unpack(_SIZE)
        self._read_tail(flag_allowed=True)

    def _read_tail(self, *, flag_allowed: bool) -> None:
        is_null = self.value[self.at] == 0
        length = self._count(null_allowed=True)
        self.fields["custom_metadata"] = None if is_null else self._take(length)
        self.fields["state"] = self.value[self.at]
        rest = self.value[self.at + 1 :]
        if rest != b"\x00" and not (flag_allowed and rest == b"\x01\x00\x01\x01"):
            raise ValueError(f"it ends in {rest[:8].hex() or 'nothing'}")
        self.fields["txn_index_empty"] = rest != b"\x00"

    def _count(self, *, null_allowed: bool = False) -> int:
        """Read a count. It is stored as count + 1: in one byte if that is below 128, else in two or three bytes."""
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


def _broken_rules(fields: dict[str, Any]) -> Iterator[str]:
    """Return a sentence for each violated rule that does not depend on the expected values."""
    if not _TOPIC.fullmatch(fields["topic"]):
        yield f"the {len(fields['topic'])} bytes of its topic are no legal topic name"
    if fields["partition"] < 0:
        yield f"partition {fields['partition']} is negative"
    if fields["state"] > _LAST_STATE:
        yield f"there is no state {fields['state']}"
    yield from _broken_rules_of_segment(fields) if fields["key"] == _SEGMENT else _broken_rules_of_update(fields)


def _broken_rules_of_update(fields: dict[str, Any]) -> Iterator[str]:
    if fields["state"] == _STARTED:
        yield "an update cannot begin a segment"


def _broken_rules_of_segment(fields: dict[str, Any]) -> Iterator[str]:
    start, end = fields["start_offset"], fields["end_offset"]
    if fields["state"] != _STARTED:
        yield f"a segment begins in state {_STARTED}, not {fields['state']}: every broker would stop reading"
    if not 0 <= start <= end:
        yield f"offsets {start}..{end} are no range"
    if not 0 < fields["size_bytes"] <= _LARGEST_SIZE:
        yield f"a size of {fields['size_bytes']} bytes"
    yield from _broken_rules_of_epochs(fields["epochs"], start, end)


def _broken_rules_of_epochs(epochs: list[tuple[int, int]], start: int, end: int) -> Iterator[str]:
    if not epochs:
        yield "it has no leader epoch"
        return
    # A later start is legal: brokers write it if the log start lies within the segment.
    if epochs[0][1] < start:
        yield f"its first leader epoch is from {epochs[0][1]}, before its start {start}"
    if any(after[0] <= before[0] or after[1] < before[1] for before, after in pairwise(epochs)):
        yield f"its leader epochs do not ascend: {epochs}"
    if epochs[0][0] < 0 or epochs[-1][1] > end:
        yield f"its leader epochs {epochs} begin outside {start}..{end}, or are negative"


def _differences(fields: dict[str, Any], expected: ExpectedRecord) -> list[str]:
    segment = expected.segment
    partition = segment.topic_id_partition
    wanted: dict[str, Any] = {
        "key": _SEGMENT if expected.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED else _UPDATE,
        "topic": partition.topic.encode(),
        "topic_id": partition.topic_id.value,
        "partition": partition.partition,
        "segment_id": segment.remote_log_segment_id.id.value,
        "broker_id": segment.broker_id,
        "event_timestamp_ms": segment.event_timestamp_ms,
        "custom_metadata": segment.custom_metadata,
        "state": int(expected.state),
    }
    if fields["key"] == _SEGMENT:
        wanted |= {
            "start_offset": segment.start_offset,
            "end_offset": segment.end_offset,
            "max_timestamp_ms": segment.max_timestamp_ms,
            "epochs": [tuple(entry) for entry in segment.segment_leader_epochs],
            "size_bytes": segment.segment_size_bytes,
            "txn_index_empty": segment.txn_index_empty,
        }
    return [f"its {name} is not the expected value" for name, value in wanted.items() if fields[name] != value]


def partition_choice(topic_id: bytes, partition: int, partition_count: int) -> int:
    """Return the metadata partition that Kafka chooses: a hash with factor 31, then murmur2.

    The hash covers the lower half of the topic id, its upper half (each folded to 32 bits), and the partition's number.
    """
    upper_high, upper_low, lower_high, lower_low = struct.unpack(">IIII", topic_id)
    hashed = ((1 * 31 + (lower_high ^ lower_low)) * 31 + (upper_high ^ upper_low)) * 31 + partition
    return (_murmur2(struct.pack(">I", hashed % 2**32)) % 2**31) % partition_count


def _murmur2(key: bytes) -> int:
    """Return the 32-bit murmur2 of `key`, which may have any number of bytes, with Kafka's seed."""
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


def _refusal(expected: ExpectedRecord, rule: str) -> PublicationRefusedError:
    return PublicationRefusedError(
        f"{expected.segment.remote_log_segment_id}, {expected.state.name}: {rule}. The record was not sent"
    )
