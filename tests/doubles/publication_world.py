"""Segments that passed the gate, in a topic that is being handed over, and what publishes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from include.tiering.clock import Clock
from include.tiering.database.transactions import NowMs, database_now_ms
from include.tiering.kafka.metadata_topic.contract import MetadataTopic
from include.tiering.metadata_sync.publish import Publisher, PublishObserver
from include.tiering.metadata_sync.sql_publication import SqlPublicationStore
from include.tiering.model.ownership import Fence, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition, Uuid, Verdict
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_topics import SqlTopicRegistry
from tests.doubles.segments import CLUSTER_ID, fence_of, finish, segment_of

BROKER_ID: Final = 424_242
LOG_START_OFFSET: Final = 100
RANGES: Final = ((100, 199), (200, 299), (300, 420))


def ignore(*_: object) -> None:
    """An observer that does nothing."""


@dataclass(frozen=True)
class PublicationWorld:
    """One topic's partitions in a migrated database."""

    engine: Engine
    now_ms: NowMs = database_now_ms

    @property
    def metadata(self) -> SqlRemoteLogMetadata:
        return SqlRemoteLogMetadata(self.engine, CLUSTER_ID, now_ms=self.now_ms)

    @property
    def journals(self) -> SqlPublicationStore:
        return SqlPublicationStore(self.engine, CLUSTER_ID, now_ms=self.now_ms)

    @property
    def work(self) -> SqlWorkStore:
        return SqlWorkStore(self.engine, CLUSTER_ID, now_ms=self.now_ms)

    @property
    def registry(self) -> SqlTopicRegistry:
        return SqlTopicRegistry(self.engine, CLUSTER_ID)

    def owned_by(self, partition: TopicIdPartition, owner: TopicOwner) -> None:
        found = self.registry.owner(partition.topic_id)
        self.registry.set_owner(partition.topic_id, partition.topic, owner, expected=found, author="test")

    def copied(
        self,
        partition: TopicIdPartition,
        ranges: Sequence[tuple[int, int]] = RANGES,
        *,
        verdicts: Mapping[int, Verdict] | None = None,
        first_number: int = 0,
        custom_metadata: bytes | None = None,
    ) -> tuple[list[RemoteLogSegmentMetadata], Fence]:
        """Segments of these offsets (inclusive) that are FINISHED, all PASSED but the `verdicts` by number, and the
        fence of who copied them. The topic is then being handed over."""
        self.owned_by(partition, TopicOwner.PLATFORM)
        fence = fence_of(self.engine, partition)
        segments = []
        for number, (start, end) in enumerate(ranges, start=first_number):
            segment = segment_of(partition, number, start, end, {0: start, 3: start + 20})
            finish(self.metadata, segment, fence)
            verdict = (verdicts or {}).get(number, Verdict.PASSED)
            if verdict is not Verdict.NONE:
                self.metadata.record_verdict(segment.remote_log_segment_id, verdict)
            segments.append(segment)
        self.owned_by(partition, TopicOwner.HANDING_OVER)
        return segments, fence

    def publisher(
        self,
        topic: MetadataTopic,
        clock: Clock,
        *,
        observe: PublishObserver = ignore,
        settle_ms: int = 0,
        lease_ms: int = 120_000,
    ) -> Publisher:
        return Publisher(
            topic=topic,
            journals=self.journals,
            metadata=self.metadata,
            registry=self.registry,
            work=self.work,
            clock=clock,
            observe=observe,
            broker_id=BROKER_ID,
            settle_ms=settle_ms,
            lease_ms=lease_ms,
        )


def orders(partition: int = 0) -> TopicIdPartition:
    return TopicIdPartition(Uuid(bytes(range(16))), partition, "orders")
