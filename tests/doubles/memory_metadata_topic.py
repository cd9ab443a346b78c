"""Metadata topics in memory and in a file."""

import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from include.tiering.errors import MetadataTopicRangeError, MetadataTopicRefusedError
from include.tiering.kafka.metadata_topic.contract import MetadataTopicRecord, OffsetBounds
from include.tiering.model.segments import Uuid

# `MetadataTopic` in memory, with holes, retention and scripted faults.


def _no_fault(_call: str) -> None:
    """Nothing goes wrong."""


@dataclass
class MemoryMetadataTopic:
    """Kept as it is for the life of the object.

    Attributes:
        partitions: how many there are.
        id: of the topic.
        now_ms: time stamped on what is appended.
        fault: called with the name of each call before it takes effect; may raise. An `append` is announced twice, as
            "append" before and as "appended" after the record arrived, so an answer can get lost.
    """

    partitions: int = 50
    id: Uuid = field(default_factory=lambda: Uuid(bytes(15) + b"\x07"))
    now_ms: Callable[[], int] = lambda: 0
    fault: Callable[[str], None] = _no_fault
    _records: dict[int, list[MetadataTopicRecord]] = field(default_factory=dict)
    _bounds: dict[int, OffsetBounds] = field(default_factory=dict)

    def topic_id(self) -> Uuid:
        self.fault("topic_id")
        return self.id

    def partition_count(self) -> int:
        self.fault("partition_count")
        return self.partitions

    def offsets(self, partition: int, *, wait: bool = True) -> OffsetBounds:
        self.fault("offsets")
        self._require(partition)
        return self._bounds.get(partition, OffsetBounds(0, 0))

    def read(self, partition: int, start_offset: int, *, end_offset: int) -> Iterator[MetadataTopicRecord]:
        self._require(partition)
        begin, end = self._bounds.get(partition, OffsetBounds(0, 0))
        if start_offset < begin or end_offset > end:
            raise MetadataTopicRangeError(
                f"partition {partition} holds {begin}..{end}, not {start_offset}..{end_offset}"
            )
        return self._read(partition, start_offset, end_offset)

    def _read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[MetadataTopicRecord]:
        for record in list(self._records.get(partition, ())):
            if start_offset <= record.offset < end_offset:
                self.fault("read")
                yield record

    def append(self, partition: int, value: bytes) -> int:
        self.fault("append")
        self._require(partition)
        begin, end = self._bounds.get(partition, OffsetBounds(0, 0))
        self._records.setdefault(partition, []).append(MetadataTopicRecord(partition, end, self.now_ms(), value))
        self._bounds[partition] = OffsetBounds(begin, end + 1)
        self.fault("appended")
        return end

    def close(self) -> None:
        """There is nothing to give back."""

    def leave_hole(self, partition: int) -> None:
        """An offset without a record, as the marker of a transaction takes it."""
        begin, end = self._bounds.get(partition, OffsetBounds(0, 0))
        self._bounds[partition] = OffsetBounds(begin, end + 1)

    def forget_before(self, partition: int, begin: int) -> None:
        """What retention or delete-records leaves: nothing below `begin`."""
        self._bounds[partition] = OffsetBounds(begin, self._bounds[partition].end)
        self._records[partition] = [one for one in self._records[partition] if one.offset >= begin]

    def _require(self, partition: int) -> None:
        if not 0 <= partition < self.partitions:
            raise MetadataTopicRefusedError(f"partition {partition} does not exist: there are {self.partitions}")


# `MetadataTopic` in a directory: what was appended survives whoever appended it, as it does on brokers. A file for
# each partition that was written to, its records one behind the other: size of the value int32, time int64, value.
# One `write` appends a record while a lock is held, so a process that dies leaves all of it or nothing.

_HEAD: Final = struct.Struct(">iq")
_ID: Final = Uuid(bytes(15) + b"\x07")


@dataclass(frozen=True)
class FileMetadataTopic:
    """`directory` exists."""

    directory: Path
    partitions: int = 50

    def topic_id(self) -> Uuid:
        return _ID

    def partition_count(self) -> int:
        return self.partitions

    def offsets(self, partition: int, *, wait: bool = True) -> OffsetBounds:
        return OffsetBounds(0, len(self._records(partition)))

    def read(self, partition: int, start_offset: int, *, end_offset: int) -> Iterator[MetadataTopicRecord]:
        records = self._records(partition)
        if start_offset < 0 or end_offset > len(records):
            raise MetadataTopicRangeError(f"partition {partition} ends at {len(records)}, not at {end_offset}")
        return iter(records[start_offset:end_offset])

    def append(self, partition: int, value: bytes) -> int:
        path = self._path(partition)
        with path.open("ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            offset = len(self._records(partition))
            file.write(_HEAD.pack(len(value), 0) + value)
            os.fsync(file.fileno())
        return offset

    def close(self) -> None:
        """There is nothing to give back."""

    def _records(self, partition: int) -> list[MetadataTopicRecord]:
        path = self._path(partition)
        content = path.read_bytes() if path.exists() else b""
        records: list[MetadataTopicRecord] = []
        position = 0
        while position < len(content):
            size, timestamp_ms = _HEAD.unpack_from(content, position)
            position += _HEAD.size
            records.append(
                MetadataTopicRecord(partition, len(records), timestamp_ms, content[position : position + size])
            )
            position += size
        return records

    def _path(self, partition: int) -> Path:
        if not 0 <= partition < self.partitions:
            raise MetadataTopicRefusedError(f"partition {partition} does not exist: there are {self.partitions}")
        return self.directory / f"{partition}.records"
