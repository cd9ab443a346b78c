"""Remote log metadata in SQL."""

from collections.abc import Sequence

from sqlalchemy import Engine

from include.tiering.database.migrations import is_at_head
from include.tiering.database.partitions import hold_fence, stopped_reason_of
from include.tiering.database.transactions import NowMs, database_now_ms, reading, writing
from include.tiering.errors import MetadataUnavailableError
from include.tiering.model.histories import Divergence, Followed, OffsetRange, SeenDivergence, SkippedOffsets
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.leader_epochs import Contradiction, LeaderEpochs
from include.tiering.model.ownership import Fence
from include.tiering.model.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Verdict,
    VerdictTotal,
)
from include.tiering.segments import (
    sql_changes,
    sql_divergences,
    sql_partitions,
    sql_queries,
    sql_skipped_offsets,
    sql_verdicts,
)
from include.tiering.segments.contract import PartitionSize, PartitionTruth, QualityResult, SegmentRow
from include.tiering.segments.sql_changes import SegmentChanges
from include.tiering.segments.sql_metadata_topic import not_ready_reason
from include.tiering.segments.sql_verdicts import record_look
from include.tiering.segments.values import Judgement, Look


class SqlRemoteLogMetadata:
    """`RemoteLogMetadata` of one cluster over the platform's database. Every call is one transaction."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    def add_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        *,
        fence: Fence,
        log_crc32c: int | None = None,
        source_fingerprint: str | None = None,
    ) -> int | None:
        # What a power failure may take back here names no object that anybody relies on.
        with writing(self._engine, durable=False) as connection:
            changes = SegmentChanges(connection, self._cluster_id, self._now_ms)
            changes.add(metadata, fence, log_crc32c, source_fingerprint)
            return sql_partitions.highest_finished_offset(connection, self._cluster_id, metadata.topic_id_partition)

    def update_segment(
        self,
        update: RemoteLogSegmentMetadataUpdate,
        *,
        expected: RemoteLogSegmentState,
        fence: Fence,
        supersedes: RemoteLogSegmentId | None = None,
    ) -> RemoteLogSegmentMetadata:
        with writing(self._engine) as connection:
            changes = SegmentChanges(connection, self._cluster_id, self._now_ms)
            return changes.change_state(update, expected, fence, supersedes)

    def advance_deletion(
        self,
        segments: Sequence[RemoteLogSegmentMetadata],
        state: RemoteLogSegmentState,
        *,
        event_timestamp_ms: int,
        fence: Fence,
    ) -> Sequence[RemoteLogSegmentMetadata]:
        with writing(self._engine) as connection:
            return sql_changes.advance_deletion(
                connection,
                self._cluster_id,
                segments,
                state,
                event_timestamp_ms=event_timestamp_ms,
                fence=fence,
                now_ms=self._now_ms,
            )

    def forget_tombstones(self, older_than_ms: int, *, at_most: int) -> int:
        with writing(self._engine) as connection:
            deleted_before_ms = self._now_ms(connection) - older_than_ms
            return sql_changes.forget_tombstones(
                connection, self._cluster_id, deleted_before_ms=deleted_before_ms, at_most=at_most
            )

    def partition_truth(self, partition: TopicIdPartition) -> PartitionTruth:
        with reading(self._engine) as connection:
            return sql_partitions.truth_of(connection, self._cluster_id, partition)

    def raise_log_start(
        self,
        partition: TopicIdPartition,
        offset: int,
        *,
        reason: str,
        author: str,
        fence: Fence | None = None,
        history: int | None = None,
    ) -> int:
        with writing(self._engine) as connection:
            if fence is not None:
                hold_fence(connection, self._cluster_id, fence)
            if history is not None:
                sql_divergences.require_history(connection, self._cluster_id, partition, history)
            now_ms = self._now_ms(connection)
            return sql_partitions.raise_log_start(
                connection, self._cluster_id, partition, offset, reason, author, now_ms
            )

    def merge_leader_epochs(
        self, partition: TopicIdPartition, seen: LeaderEpochs, seen_log_start: int
    ) -> Sequence[Contradiction]:
        with reading(self._engine) as connection:
            known, found = sql_partitions.learnt(
                connection, self._cluster_id, partition, seen, seen_log_start, is_followed=False
            )
        if found.history == known:
            return found.contradictions
        with writing(self._engine) as connection:
            return sql_partitions.learn_leader_epochs(
                connection, self._cluster_id, partition, seen, seen_log_start, self._now_ms, is_followed=False
            )

    def segment(self, segment_id: RemoteLogSegmentId) -> SegmentRow | None:
        with reading(self._engine) as connection:
            return sql_queries.find_segment(connection, self._cluster_id, segment_id)

    def list_segments(self, partition: TopicIdPartition, leader_epoch: int | None = None) -> Sequence[SegmentRow]:
        with reading(self._engine) as connection:
            return sql_queries.list_of_partition(connection, self._cluster_id, partition, leader_epoch)

    def partitions(self) -> Sequence[TopicIdPartition]:
        with reading(self._engine) as connection:
            return sql_queries.list_partitions(connection, self._cluster_id)

    def segment_for_offset(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        with reading(self._engine) as connection:
            return sql_queries.find_for_offset(connection, self._cluster_id, partition, leader_epoch, offset)

    def highest_offset_for_epoch(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        with reading(self._engine) as connection:
            return sql_partitions.highest_finished_offset(connection, self._cluster_id, partition, leader_epoch)

    def highest_copied_offset(self, partition: TopicIdPartition) -> int | None:
        with reading(self._engine) as connection:
            return sql_partitions.highest_finished_offset(connection, self._cluster_id, partition)

    def skipped_offsets(self, partition: TopicIdPartition) -> Sequence[SkippedOffsets]:
        with reading(self._engine) as connection:
            return sql_skipped_offsets.skipped_of(connection, self._cluster_id, partition)

    def skip_offsets(
        self,
        partition: TopicIdPartition,
        offsets: OffsetRange,
        *,
        reason: str,
        author: str,
        may_be_first: bool = False,
    ) -> SkippedOffsets:
        with writing(self._engine) as connection:
            decision = SkippedOffsets(offsets, reason, author, self._now_ms(connection))
            return sql_skipped_offsets.skip(
                connection, self._cluster_id, partition, decision, may_be_first=may_be_first
            )

    def divergences(self, partition: TopicIdPartition) -> Sequence[Divergence]:
        with reading(self._engine) as connection:
            return sql_divergences.divergences_of(connection, self._cluster_id, partition)

    def is_continued(self, partition: TopicIdPartition, leader_epoch: int, highest_copied: int) -> bool:
        with reading(self._engine) as connection:
            return sql_divergences.is_continued(connection, self._cluster_id, partition, leader_epoch, highest_copied)

    def record_divergence(
        self, partition: TopicIdPartition, seen: SeenDivergence, *, history: int
    ) -> Divergence | None:
        with writing(self._engine) as connection:
            now_ms = self._now_ms(connection)
            return sql_divergences.record(connection, self._cluster_id, partition, seen, history=history, now_ms=now_ms)

    def follow_source(
        self,
        partition: TopicIdPartition,
        number: int,
        from_offset: int,
        *,
        source_epochs: LeaderEpochs,
        reason: str,
        author: str,
    ) -> Divergence:
        with writing(self._engine) as connection:
            followed = Followed(from_offset, reason, author, self._now_ms(connection))
            return sql_divergences.follow(connection, self._cluster_id, partition, number, followed, source_epochs)

    def remote_log_size(self, partition: TopicIdPartition, leader_epoch: int) -> int:
        with reading(self._engine) as connection:
            return sql_partitions.finished_bytes(connection, self._cluster_id, partition, leader_epoch)

    def partition_sizes(self, partition: TopicIdPartition | None = None) -> Sequence[PartitionSize]:
        with reading(self._engine) as connection:
            return sql_partitions.finished_sizes(connection, self._cluster_id, partition)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        try:
            if not is_at_head(self._engine):
                return False
            with reading(self._engine) as connection:
                return not_ready_reason(connection, self._cluster_id, partition) is None
        except MetadataUnavailableError:
            return False

    def stopped_reason(self, partition: TopicIdPartition) -> str | None:
        with reading(self._engine) as connection:
            return stopped_reason_of(connection, self._cluster_id, partition)

    def record_verdict(self, segment_id: RemoteLogSegmentId, verdict: Verdict, *, detail: str = "") -> None:
        with writing(self._engine) as connection:
            sql_verdicts.record_verdict(
                connection, self._cluster_id, segment_id, verdict, detail=detail, now_ms=self._now_ms
            )

    def expire_verdicts(self, older_than_ms: int, *, at_most: int) -> int:
        with writing(self._engine) as connection:
            judged_before_ms = self._now_ms(connection) - older_than_ms
            return sql_verdicts.expire_verdicts(
                connection, self._cluster_id, judged_before_ms=judged_before_ms, at_most=at_most
            )

    def verdict_totals(self) -> Sequence[VerdictTotal]:
        with reading(self._engine) as connection:
            return sql_verdicts.verdict_totals(connection, self._cluster_id, self._now_ms(connection))

    def record_look(self, look: Look) -> Judgement | None:
        with writing(self._engine) as connection:
            return record_look(connection, self._cluster_id, look, self._now_ms)

    def quality_results(self, segment_id: RemoteLogSegmentId) -> Sequence[QualityResult]:
        with reading(self._engine) as connection:
            return sql_verdicts.results_of(connection, self._cluster_id, segment_id)

    def segments_of_run(self, run_id: str) -> Sequence[SegmentRow]:
        with reading(self._engine) as connection:
            return sql_queries.list_of_run(connection, self._cluster_id, run_id)

    def unjudged_segments(self) -> Sequence[SegmentRow]:
        with reading(self._engine) as connection:
            return sql_queries.list_unjudged(connection, self._cluster_id)
