"""The verbs that delete: plan, brake, approve, delete, and truncate by decision."""

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Final

from include.tiering.log_source.contract import ScanReport
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.observability.metrics import process_recorder
from include.tiering.remote_metadata.sql_topic_deletions import SqlTopicDeletions
from include.tiering.remote_metadata.topic_deletions_contract import TopicDeletions
from include.tiering.tasks.brake import BrakeLimits, BrakeReport, apply_brake
from include.tiering.tasks.delete_batch import DeleteBatch, DeleteResult
from include.tiering.tasks.delete_segments import SegmentDeleter
from include.tiering.tasks.plan_expiration import ExpirationPlan, ExpirationPlanner
from include.tiering.tasks.recheck_plan import withdrawn
from include.tiering.tasks.topic_standing import TopicWatch, deletion_demands
from include.tiering.tasks.truncate import Truncation, plan_truncation, truncate
from include.tiering.wiring.batches import around_deletion
from include.tiering.wiring.size_verbs import SizeVerbs
from include.tiering.work.deletion_contract import DeletionRun, PlannedDeletion

_AUTHOR: Final = "expiration"
_TOMBSTONES_PER_PAGE: Final = 500


def _count(result: DeleteResult) -> None:
    deleted = [one.segment_id.topic_id_partition.topic for one in result.deleted]
    failed = [one.item.planned.segment_id.topic_id_partition.topic for one in result.failed]
    for topic in {*deleted, *failed}:
        process_recorder().segments_deleted(topic, deleted=deleted.count(topic), failed=failed.count(topic))


class ExpirationVerbs(SizeVerbs):
    """Deletes only what is planned, and only after the brake let the run pass or a person approved its plan."""

    _observe: Callable[[StrEnum, TopicIdPartition, int], None]

    def plan_expiration(
        self, run_id: str, *, topics: Collection[str] = (), leave_out: Collection[Uuid] = ()
    ) -> ExpirationPlan:
        """Plan and store what expires now, of all topics that the platform owns or those that match `topics`.

        `leave_out` are ids of topics that are in the hands of another run.
        A stored plan deletes nothing by itself: `brake` comes next. Deletions of topics that can be seen now are
        recorded.
        """
        self.note_topic_deletions()
        planner = self._planner()
        partitions = [one for one in planner.partitions(topics) if one.topic_id not in leave_out]
        plan = self._decide(planner, run_id, partitions)
        self.deletions.save_plan(run_id, plan.expirations)
        return plan

    def withdrawn(self, run_id: str) -> Sequence[PlannedDeletion]:
        """What a stored plan would delete and nobody would plan now; see `recheck_plan`. Changes nothing."""
        planned = self.deletions.plan(run_id)
        now = self._decide(self._planner(), run_id, [one.topic_id_partition for one in planned])
        return withdrawn(planned, now, self.metadata)

    def brake(self, run_id: str) -> BrakeReport:
        """Whether the run may delete as it is, or waits for an approval; see the task. What goes because its topic was
        deleted always waits."""
        expiration = self.effective_settings().expiration
        limits = BrakeLimits(expiration.max_share, expiration.min_bytes)
        demands = deletion_demands(self.deletions.plan(run_id), self.topic_deletions.all())
        return apply_brake(run_id, self.deletions, limits, author=_AUTHOR, demands=demands)

    def approve(self, run_id: str, plan_hash: str, *, author: str) -> DeletionRun:
        """Release the run if `plan_hash` is that of its plan. Raises StateConflictError otherwise."""
        return self.deletions.approve(run_id, plan_hash, author=author)

    def delete_batch(
        self,
        run_id: str,
        batch_id: str,
        *,
        pool: str | None = None,
        parent_alive: Callable[[], bool] = lambda: True,
    ) -> DeleteResult:
        """Run one batch of a released run in this process.

        Raises:
            ApprovalRequiredError: the run is not released.
        """
        settings = self.effective_settings()
        gate, heartbeat, room = around_deletion(self, settings, run_id, batch_id, pool=pool, parent_alive=parent_alive)
        deleter = SegmentDeleter(
            self.storage, self.metadata, self.registry, self.deletions, self.work, self.clock, self._observe
        )
        result = DeleteBatch(
            deleter,
            self.work,
            self.quotas,
            gate,
            heartbeat,
            room,
            run_id=run_id,
            batch_id=batch_id,
            lease_ms=settings.copier.lease_ms,
        ).run()
        _count(result)
        self.sizes()
        return result

    def truncation(self, partition: TopicIdPartition, before_offset: int) -> Truncation:
        """What `delete_records` would do. Raises SettingError if it may not."""
        return plan_truncation(partition, before_offset, metadata=self.metadata, registry=self.registry)

    def delete_records(self, planned: Truncation, *, author: str) -> Truncation:
        """Raise our log start; the next run of expiration deletes what lies wholly below."""
        return truncate(planned, metadata=self.metadata, author=author)

    def forget_tombstones(self) -> int:
        """Remove metadata of segments that were deleted longer ago than `tiering.tombstone.ms`; returns how many.

        In pages, each a transaction of its own: a crash leaves the rest for the next call.
        """
        older_than_ms = self.effective_settings().tombstone.ms
        forgotten = 0
        while page := self.metadata.forget_tombstones(older_than_ms, at_most=_TOMBSTONES_PER_PAGE):
            forgotten += page
        return forgotten

    def note_topic_deletions(self) -> None:
        """Record which topics with remote segments the cluster has deleted, as far as that can be seen now."""
        self._topic_watch.record(self.metadata.partitions(), author=_AUTHOR)

    @cached_property
    def topic_deletions(self) -> TopicDeletions:
        return SqlTopicDeletions(self.engine, self.cluster_id)

    @property
    def _topic_watch(self) -> TopicWatch:
        return TopicWatch(self.cluster_id, self.facts, self.topic_deletions)

    def _planner(self) -> ExpirationPlanner:
        settings = self.effective_settings()
        standings = self._topic_watch.standings(
            self.metadata.partitions(),
            expire_after_days=settings.on_topic.expire_after_days,
            now_ms=self.deletions.now_ms(),
        )
        return ExpirationPlanner(
            self.metadata,
            self.registry,
            self.work,
            self.topic_retentions(),
            settings.unfinished_copy.expiry_ms,
            standings,
            settings.superseded.hold_ms,
        )

    def _decide(
        self, planner: ExpirationPlanner, run_id: str, partitions: Sequence[TopicIdPartition]
    ) -> ExpirationPlan:
        report = self._scan_of(planner.topics_by_size(partitions))
        return planner.plan(run_id, partitions, report, now_ms=self.deletions.now_ms())

    def _scan_of(self, topics: Collection[str]) -> ScanReport | None:
        """None if there is nothing to ask for, or nobody to ask."""
        if not topics or not self.settings.log_dirs:
            return None
        return self.scan_of_our_cluster(topics)
