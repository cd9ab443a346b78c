"""Stores and databases for audits, and what must be found in them.

Keys and manifests are put together here from what the layout's documentation says; no line of the audit takes part.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from include.tiering.audit.finding import AuditedSegment, AuditedTopic
from include.tiering.model.ownership import TopicOwner
from include.tiering.remote_storage.object_store import ListedObject, ListedUpload

HOUR_MS: Final = 3_600_000
LISTED_AT_MS: Final = 1_795_000_000_000
OLD_MS: Final = LISTED_AT_MS - 72 * HOUR_MS
YOUNG_MS: Final = LISTED_AT_MS - 2 * HOUR_MS
LATER_MS: Final = LISTED_AT_MS + 1_000
MARKER: Final = "_tiering-store.json"
KINDS: Final = ("log", "indexes", "rsm-manifest")
STARTED, FINISHED, DELETE_STARTED, TOMBSTONE = range(4)

Identity = tuple[str, str, str, str]


def text_id(seed: str) -> str:
    """22 characters, as Kafka prints 16 bytes."""
    return base64.urlsafe_b64encode(hashlib.sha256(seed.encode()).digest()[:16])[:22].decode()


@dataclass(frozen=True)
class Attempt:
    """One segment id with what its keys say."""

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    segment_id: str
    end_offset: int
    log_bytes: int
    leader_epoch: int = 0

    @property
    def stem(self) -> str:
        return f"{self.topic}-{self.topic_id}/{self.partition}/{self.start_offset:020d}-{self.segment_id}"

    def key(self, kind: str) -> str:
        return f"{self.stem}.{kind}"

    def size_bytes(self, kind: str) -> int:
        return {"log": self.log_bytes, "indexes": 46, "rsm-manifest": len(self.manifest())}[kind]

    def again(self) -> "Attempt":
        """Another attempt to copy the same offsets."""
        return replace(self, segment_id=text_id(f"again {self.segment_id}"))

    def of_another_history(self) -> "Attempt":
        """The same offsets with other records: as the leader of an unclean election has them."""
        return replace(self.again(), leader_epoch=self.leader_epoch + 1)

    def manifest(self, **members: object) -> bytes:
        """Plain form; `members` replace those of the metadata."""
        final = self.log_bytes % 4096 or min(4096, self.log_bytes)
        document = {
            "version": "1",
            "chunkIndex": {
                "type": "fixed",
                "originalChunkSize": 4096,
                "originalFileSize": self.log_bytes,
                "transformedChunkSize": 4096,
                "finalTransformedChunkSize": final,
            },
            "segmentIndexes": {
                "offset": {"position": 0, "size": 8},
                "timestamp": {"position": 8, "size": 12},
                "producerSnapshot": {"position": 20, "size": 10},
                "leaderEpoch": {"position": 30, "size": 16},
                "transaction": None,
            },
            "compression": False,
            "remoteLogSegmentMetadata": {
                "remoteLogSegmentId": {
                    "topicIdPartition": {
                        "topicId": self.topic_id,
                        "topicPartition": {"topic": self.topic, "partition": self.partition},
                    },
                    "id": self.segment_id,
                },
                "startOffset": self.start_offset,
                "endOffset": self.end_offset,
                "maxTimestampMs": 1_700_000_000_000,
                "brokerId": 1,
                "eventTimestampMs": 1_700_000_000_000,
                "segmentLeaderEpochs": {str(self.leader_epoch): self.start_offset},
                **members,
            },
        }
        return json.dumps(document, separators=(",", ":")).encode()


@dataclass
class World:
    """`expected`: identities of the findings that must come, no more and no less. Every attempt has offsets of its own.

    With `current_version` every object has that version id, as in a bucket that keeps versions.
    """

    topics: Mapping[str, AuditedTopic]
    current_version: str = ""
    objects: list[ListedObject] = field(default_factory=list)
    uploads: list[ListedUpload] = field(default_factory=list)
    segments: list[AuditedSegment] = field(default_factory=list)
    manifests: dict[str, bytes] = field(default_factory=dict)
    leased_partitions: set[tuple[str, int]] = field(default_factory=set)
    expected: list[Identity] = field(default_factory=list)
    attempts: int = 0

    @classmethod
    def empty(cls, topics: int = 3, *, current_version: str = "") -> "World":
        """Topics of ours, and one of the brokers'; the marker is there."""
        known = {text_id(f"topic {n}"): AuditedTopic(f"topic-{n}", TopicOwner.PLATFORM) for n in range(topics)}
        known[text_id("brokers'")] = AuditedTopic("brokers", TopicOwner.BROKER)
        world = cls(known, current_version)
        world.store(MARKER, 120)
        return world

    def attempt(self, *, topic: str | None = None, log_bytes: int = 50_000) -> Attempt:
        """A new one of a topic of ours, or of the named one."""
        self.attempts += 1
        number = self.attempts
        mine = [topic_id for topic_id, known in self.topics.items() if known.owner is TopicOwner.PLATFORM]
        topic_id = text_id(topic) if topic else mine[number % len(mine)]
        known = self.topics.get(topic_id)
        return Attempt(
            topic=known.name if known else str(topic),
            topic_id=topic_id,
            partition=number % 4,
            start_offset=number * 1000,
            segment_id=text_id(f"segment {number}"),
            end_offset=number * 1000 + 999,
            log_bytes=log_bytes + number,
        )

    def store(self, key: str, size_bytes: int, at_ms: int = OLD_MS) -> None:
        self.objects.append(ListedObject(key, size_bytes, at_ms, self.current_version or None))

    def store_all(self, attempt: Attempt, *kinds: str, at_ms: int = OLD_MS) -> None:
        for kind in kinds or KINDS:
            self.store(attempt.key(kind), attempt.size_bytes(kind), at_ms)
            if kind == "rsm-manifest":
                self.manifests[attempt.key(kind)] = attempt.manifest()

    def replace_manifest(self, attempt: Attempt, content: bytes) -> None:
        """The store has, and lists, this manifest of an attempt that was stored before."""
        key = attempt.key("rsm-manifest")
        self.manifests[key] = content
        self.objects = [
            listed._replace(size_bytes=len(content)) if listed.key == key else listed for listed in self.objects
        ]

    def know(self, attempt: Attempt, state: int = FINISHED, changed_at_ms: int = OLD_MS) -> None:
        self.segments.append(
            AuditedSegment(
                attempt.segment_id,
                attempt.topic_id,
                attempt.partition,
                state,
                attempt.start_offset,
                attempt.end_offset,
                attempt.log_bytes,
                changed_at_ms,
                len(self.segments) + 1,
                f"{attempt.leader_epoch}:{attempt.start_offset}",
            )
        )

    def healthy(self) -> Attempt:
        attempt = self.attempt()
        self.know(attempt)
        self.store_all(attempt)
        return attempt

    def expect(self, kind: str, *keys: str, version: str | None = None, upload: str = "") -> None:
        """Findings about current objects carry their version where there are versions; those about what is not there,
        or about a segment as a whole, do not."""
        self.expected += [(kind, key, version or "", upload) for key in keys]

    def content_of(self, listed: ListedObject) -> bytes:
        """Its manifest, or as many bytes as it has."""
        return self.manifests.get(listed.key, bytes(listed.size_bytes))

    def read_manifest(self, key: str) -> bytes | None:
        return self.manifests.get(key)
