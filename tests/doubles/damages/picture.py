"""What is stored of two partitions of a real broker, and what the metadata says of it. A damage changes a picture; the
test brings the change into a real store."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import google_crc32c

from include.tiering.formats.aiven_manifest import index_positions
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Verdict,
)
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.segments.contract import SegmentRow
from tests.doubles.broker_data import expected
from tests.doubles.stored_log import PAYMENTS, rolled_segments

ORDERS: Final = "orders-0"
VICTIM: Final = 6
"""Of PAYMENTS: 21 batches of three leader epochs, four codecs and three producers; one transaction that began in an
earlier segment aborts, two commit, one stays open."""

LAYOUT: Final = AivenLayout(AivenForm(with_txn_index_empty=True))
LOG, INDEXES, MANIFEST = ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST


@dataclass
class Picture:
    """`rows` by partition, in the order of their offsets; `objects` by key. `log_ends` are exclusive. `histories` are
    leader epochs that are remembered of partitions."""

    rows: dict[str, list[SegmentRow]]
    objects: dict[str, bytes]
    log_starts: dict[str, int]
    log_ends: dict[str, int]
    histories: dict[str, LeaderEpochs] = field(default_factory=dict)

    def segment(self, number: int = VICTIM, name: str = PAYMENTS) -> "StoredSegment":
        return StoredSegment(self, name, number)

    def record_checksums(self) -> None:
        """As if all logs had been as they are when they were copied."""
        for name, rows in self.rows.items():
            logs = [self.objects[self.segment(number, name).key(LOG)] for number in range(len(rows))]
            self.rows[name] = [
                replace(row, log_crc32c=google_crc32c.value(log)) for row, log in zip(rows, logs, strict=True)
            ]

    def copy(self) -> "Picture":
        rows = {name: list(rows) for name, rows in self.rows.items()}
        return Picture(rows, dict(self.objects), dict(self.log_starts), dict(self.log_ends), dict(self.histories))


@cache
def whole_picture() -> Picture:
    """Without damage. Not to be changed: take a copy."""
    rows: dict[str, list[SegmentRow]] = {}
    objects: dict[str, bytes] = {}
    segments = expected("public")["facts"]["topics"]
    ends = {}
    for name in (PAYMENTS, ORDERS):
        rows[name] = []
        for metadata, data in rolled_segments(name):
            finished = replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
            rows[name].append(SegmentRow(finished, Verdict.NONE, data.log_crc32c))
            for planned in LAYOUT.objects(metadata, data):
                content = bytearray(planned.body.size_bytes)
                planned.body.read_into(0, memoryview(content))
                objects[planned.key] = bytes(content)
        topic, _, partition = name.rpartition("-")
        ends[name] = segments[topic]["partitions"][partition]["offsets"]["latest"]["offset"]
    return Picture(rows, objects, dict.fromkeys(rows, 0), ends)


@dataclass(frozen=True)
class StoredSegment:
    """One segment of a picture, for whoever changes it."""

    picture: Picture
    name: str
    number: int

    @property
    def row(self) -> SegmentRow:
        return self.picture.rows[self.name][self.number]

    @property
    def metadata(self) -> RemoteLogSegmentMetadata:
        return self.row.metadata

    @property
    def partition(self) -> TopicIdPartition:
        return self.metadata.topic_id_partition

    def key(self, kind: ObjectKind) -> str:
        return dict(LAYOUT.keys(self.metadata))[kind]

    def read(self, kind: ObjectKind) -> bytes:
        return self.picture.objects[self.key(kind)]

    def write(self, kind: ObjectKind, content: bytes) -> None:
        self.picture.objects[self.key(kind)] = content

    def remove(self, *kinds: ObjectKind) -> None:
        for kind in kinds:
            del self.picture.objects[self.key(kind)]

    def indexes(self) -> dict[IndexType, bytes]:
        """By type, empty where there is none."""
        content = self.read(INDEXES)
        parts = self.manifest()["segmentIndexes"]
        return {t: content[p["position"] :][: p["size"]] if (p := parts[t]) else b"" for t in IndexType}

    def write_index(self, index_type: IndexType, content: bytes) -> None:
        """The manifest says where the parts are then."""
        parts = self.indexes() | {index_type: content}
        self.write(INDEXES, b"".join(parts.values()))
        positions = index_positions(
            {t: len(p) if p or t is not IndexType.TRANSACTION else None for t, p in parts.items()}
        )
        document = self.manifest()
        document["segmentIndexes"] = {
            t: None if p is None else {"position": p.position, "size": p.size_bytes} for t, p in positions.items()
        }
        self.write_manifest(document)

    def manifest(self) -> dict[str, Any]:
        return dict(json.loads(self.read(MANIFEST)))

    def write_manifest(self, document: dict[str, Any]) -> None:
        self.write(MANIFEST, json.dumps(document, separators=(",", ":")).encode())

    def change_manifest(self, change: Callable[[dict[str, Any]], object]) -> None:
        document = self.manifest()
        change(document)
        self.write_manifest(document)

    def change_row(self, **members: Any) -> None:
        """Members of the metadata. Its objects stay where they are."""
        self.picture.rows[self.name][self.number] = replace(self.row, metadata=replace(self.metadata, **members))
