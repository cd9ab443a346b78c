"""`MetadataTopic` in a directory: what was appended survives whoever appended it, as it does on brokers.

A file for each partition that was written to, its records one behind the other: size of the value int32, time int64,
value. One `write` appends a record while a lock is held, so a process that dies leaves all of it or nothing.
"""

import fcntl
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from include.tiering.errors import MetadataTopicRangeError, MetadataTopicRefusedError
from include.tiering.kafka.metadata_topic.contract import MetadataTopicRecord, OffsetBounds
from include.tiering.model.segments import Uuid

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

    def offsets(self, partition: int) -> OffsetBounds:
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
