"""The verbs that delete: plan, brake, approve, delete, and truncate by decision."""

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum

from include.tiering.log_source.contract import ScanReport
from include.tiering.model.ids import TopicIdPartition
from include.tiering.observability.metrics import process_recorder
from include.tiering.quota.config_store import EntityType
from include.tiering.quota.topic_retention import TopicRetention
from include.tiering.tasks.batch_room import BatchRoom
from include.tiering.tasks.brake import BrakeLimits, BrakeReport, apply_brake
from include.tiering.tasks.delete_batch import DeleteBatch, DeleteResult
from include.tiering.tasks.delete_segments import SegmentDeleter
from include.tiering.tasks.plan_expiration import ExpirationPlan, ExpirationPlanner
from include.tiering.tasks.recheck_plan import withdrawn
from include.tiering.tasks.truncate import Truncation, plan_truncation, truncate
from include.tiering.wiring.batches import gate_and_heartbeat
from include.tiering.wiring.size_verbs import SizeVerbs
from include.tiering.work.deletion_contract import DeletionRun, PlannedDeletion

_AUTHOR = "expiration"


def _count(result: DeleteResult) -> None:
    deleted = [one.segment_id.topic_id_partition.topic for one in result.deleted]
    failed = [one.item.planned.segment_id.topic_id_partition.topic for one in result.failed]
    for topic in {*deleted, *failed}:
        process_recorder().segments_deleted(topic, deleted=deleted.count(topic), failed=failed.count(topic))


class ExpirationVerbs(SizeVerbs):
    """Deletes only what is planned, and only after the brake let the run pass or a person approved its plan."""

    _observe: Callable[[StrEnum, TopicIdPartition, int], None]

    def plan_expiration(self, run_id: str, *, topics: Collection[str] = ()) -> ExpirationPlan:
        """Plan and store what expires now, of all topics that the platform owns or those that match `topics`.

        A stored plan deletes nothing by itself: `brake` comes next.
        """
        planner = self._planner()
        plan = self._decide(planner, run_id, planner.owned_partitions(topics))
        self.deletions.save_plan(run_id, plan.expirations)
        return plan

    def withdrawn(self, run_id: str) -> Sequence[PlannedDeletion]:
        """What a stored plan would delete and nobody would plan now; see `recheck_plan`. Changes nothing."""
        planned = self.deletions.plan(run_id)
        now = self._decide(self._planner(), run_id, [one.topic_id_partition for one in planned])
        return withdrawn(planned, now, self.metadata)

    def brake(self, run_id: str) -> BrakeReport:
        """Whether the run may delete as it is, or waits for an approval; see the task."""
        expiration = self.effective_settings().expiration
        limits = BrakeLimits(expiration.max_share, expiration.min_bytes)
        return apply_brake(run_id, self.deletions, limits, author=_AUTHOR)

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
        lease_ms = settings.copier.lease_ms
        gate, heartbeat = gate_and_heartbeat(
            self, run_id, batch_id, pool=pool, lease_ms=lease_ms, parent_alive=parent_alive
        )
        room = BatchRoom(
            self.work,
            gate,
            self.clock,
            batch_id=batch_id,
            pool=pool,
            max_seconds=float(settings.expiration.batch_max_seconds),
        )
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
            lease_ms=lease_ms,
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

    def _planner(self) -> ExpirationPlanner:
        return ExpirationPlanner(
            self.metadata,
            self.registry,
            self.work,
            self._retentions(),
            self.effective_settings().unfinished_copy.expiry_ms,
        )

    def _decide(
        self, planner: ExpirationPlanner, run_id: str, partitions: Sequence[TopicIdPartition]
    ) -> ExpirationPlan:
        report = self._scan_of(planner.topics_by_size(partitions))
        return planner.plan(run_id, partitions, report, now_ms=self.deletions.now_ms())

    def _retentions(self) -> dict[str, TopicRetention]:
        """What is set, by topic name."""
        values = self.configs.snapshot().values
        return {
            entity.entity_name: TopicRetention.of(configs)
            for entity, configs in values.items()
            if entity.entity_type is EntityType.TOPICS
        }

    def _scan_of(self, topics: Collection[str]) -> ScanReport | None:
        """None if there is nothing to ask for, or nobody to ask."""
        if not topics or not self.settings.log_dirs:
            return None
        return self.scan_of_our_cluster(topics)
