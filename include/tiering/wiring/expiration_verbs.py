"""The verbs that delete: plan, brake, approve, delete, and truncate by decision."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Final

from include.tiering.errors import ClockDisagreesError, SourceError
from include.tiering.log_source.contract import LogSegment, ReplicaId, ScanReport
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.observability import get_logger
from include.tiering.observability.metrics import process_recorder
from include.tiering.quota.config_store import ConfigEntity, EntityType
from include.tiering.quota.topic_retention import TopicRetention
from include.tiering.tasks.brake import BrakeReport, apply_brake
from include.tiering.tasks.clock_guard import ClockBounds, ClockGuard
from include.tiering.tasks.delete_batch import DeleteBatch, DeleteResult
from include.tiering.tasks.delete_segments import SegmentDeleter
from include.tiering.tasks.plan_expiration import ExpirationPlan, ExpirationPlanner
from include.tiering.tasks.recheck_plan import StillPlanned, still_planned, withdrawn
from include.tiering.tasks.topic_standing import TopicStanding, deletion_demands
from include.tiering.tasks.truncate import Truncation, plan_truncation, truncate
from include.tiering.wiring.batches import around_deletion, deletion_limits
from include.tiering.wiring.decision_verbs import DecisionVerbs
from include.tiering.wiring.guard_parts import GuardParts
from include.tiering.wiring.size_verbs import SizeVerbs
from include.tiering.work.deletion_contract import DeletionRun, PlannedDeletion, PlannedExpiration, WithdrawnRun

_log: Final = get_logger(__name__)
_AUTHOR: Final = "expiration"
_TOMBSTONES_PER_PAGE: Final = 500


def _count(result: DeleteResult) -> None:
    deleted = [one.segment_id.topic_id_partition.topic for one in result.deleted]
    failed = [one.item.planned.segment_id.topic_id_partition.topic for one in result.failed]
    for topic in {*deleted, *failed}:
        process_recorder().segments_deleted(topic, deleted=deleted.count(topic), failed=failed.count(topic))
    for topic, segments in Counter(one.planned.segment_id.topic_id_partition.topic for one in result.held).items():
        process_recorder().superseded_held(topic, segments)


class ExpirationVerbs(SizeVerbs, GuardParts, DecisionVerbs):
    """Deletes only what is planned, and only after the brake let the run pass or a person approved its plan."""

    _observe: Callable[[StrEnum, TopicIdPartition, int], None]

    def plan_expiration(
        self,
        run_id: str,
        *,
        topics: Collection[str] = (),
        leave_out: Collection[Uuid] = (),
        dry_run: bool = False,
    ) -> ExpirationPlan:
        """Plan and store what expires now, of all topics that the platform owns or those that match `topics`.

        `leave_out` are ids of topics that are in the hands of another run.
        A stored plan deletes nothing by itself: `brake` comes next. Deletions of topics that can be seen now are
        recorded. A `dry_run` is stored too, to be shown; nothing is deleted by it, so it does not claim the store.

        Raises:
            ForeignStoreError: the store is not this database's.
            ClockDisagreesError: the database's clock cannot be believed; nothing was planned.
            DatabaseSetBackError: an audit found so, and nothing was planned; a dry run is told by
                `objection_to_expire`.
        """
        if dry_run:
            self.require_our_store()
        else:
            self.claim_store()
            self.require_expiration_allowed()
        clocks = self._clock_guard()
        clocks.require()
        self.note_topic_deletions()
        planner = self._planner(clocks)
        # Of a topic that is not in `standings` the first segment came since: the next plan asks about it.
        asked = planner.standings.keys() - set(leave_out)
        partitions = [one for one in planner.partitions(topics) if one.topic_id in asked]
        plan = self._decide(planner, run_id, partitions, clocks)
        self.deletions.save_plan(run_id, plan.expirations)
        return plan

    def withdrawn(self, run_id: str) -> Sequence[PlannedDeletion]:
        """What a stored plan would delete and nobody would plan now; see `recheck_plan`. Changes nothing.

        Raises:
            ClockDisagreesError
        """
        clocks = self._clock_guard()
        clocks.require()
        planned = self.deletions.plan(run_id)
        now = self._decide(self._planner(clocks), run_id, [one.topic_id_partition for one in planned], clocks)
        return withdrawn(planned, now, self.metadata)

    def brake(self, run_id: str, *, dry_run: bool = False) -> BrakeReport:
        """Whether the run may delete as it is, or waits for an approval; see the task. What goes because its topic was
        deleted always waits. Of a `dry_run` nothing is recorded: its plan is never released by the limits.

        Raises:
            DatabaseSetBackError
        """
        if not dry_run:
            self.require_expiration_allowed()
        limits = deletion_limits(self.effective_settings())
        demands = deletion_demands(self.deletions.plan(run_id), self.topic_deletions.all())
        return apply_brake(run_id, self.deletions, limits, author=_AUTHOR, demands=demands, dry_run=dry_run)

    def approve(self, run_id: str, plan_hash: str, *, author: str) -> DeletionRun:
        """Release the run if `plan_hash` is that of its plan. A copy of the database may have the same plan, so the
        store is claimed once more.

        Raises:
            StateConflictError: it is another plan, or no such run was planned.
            RunWithdrawnError
            ForeignStoreError: the store is not this database's.
            ClockDisagreesError: the database's clock is contradicted now.
            DatabaseSetBackError
        """
        self.claim_store()
        self.require_expiration_allowed()
        self._clock_guard().require()
        return self.deletions.approve(run_id, plan_hash, author=author)

    def withdraw_run(self, run_id: str, *, author: str) -> WithdrawnRun:
        """Decide, for good, that nothing more of a run is deleted, whoever works on it now.

        A batch that deletes stops before its next group of segments; a group whose deletion had begun is ended by the
        next run. Repeating it is harmless. A copy of the database may have the same plan and its release, so the store
        is claimed afterwards; the run is withdrawn here even if that cannot be done, and the report says so.

        Raises:
            StateConflictError: no such run was planned.
        """
        run = self.deletions.withdraw(run_id, author=author)
        return WithdrawnRun(run, self.deletions.items(run_id), self.claim_store_if_possible())

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
            ForeignStoreError: the store is not this database's.
            RunWithdrawnError: it was withdrawn before.
            ClockDisagreesError: the database's clock is contradicted; what is left stays planned.
            DatabaseSetBackError: an audit found so, before or while it runs; the same.
        """
        self.require_our_store()
        self.require_expiration_allowed()
        settings = self.effective_settings()
        clocks = self._clock_guard()
        clocks.require()
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
            partial(self._still_planned, clocks),
            self.require_expiration_allowed,
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
        self.claim_store()
        return truncate(planned, metadata=self.metadata, author=author)

    def forget_tombstones(self) -> int:
        """Remove metadata of segments that were deleted longer ago than `tiering.tombstone.ms`; returns how many.

        In pages, each a transaction of its own: a crash leaves the rest for the next call. By a clock that cannot be
        believed none is old: none is forgotten, with a warning.
        """
        try:
            self._clock_guard().require()
        except ClockDisagreesError as error:
            _log.warning("no tombstone is forgotten: %s", error)
            return 0
        older_than_ms = self.effective_settings().tombstone.ms
        forgotten = 0
        while page := self.metadata.forget_tombstones(older_than_ms, at_most=_TOMBSTONES_PER_PAGE):
            forgotten += page
        return forgotten

    def note_topic_deletions(self) -> None:
        """Record which topics with remote segments the cluster has deleted, as far as that can be seen now."""
        self.topic_watch.record(self.metadata.partitions(), author=_AUTHOR)

    def name_taken_because(self, partition: TopicIdPartition) -> str:
        """Why the topic's name does not mean this topic now, or may not; empty if it does. See `TopicStanding`."""
        return self._standings([partition], self.deletions.now_ms())[partition.topic_id].name_taken_because

    def _standings(
        self, partitions: Iterable[TopicIdPartition], now_ms: int, *, needs_answer: bool = True
    ) -> Mapping[Uuid, TopicStanding]:
        return self.topic_watch.standings(
            partitions,
            names_in_use=self.registry.names_in_use(),
            expire_after_days=self.effective_settings().on_topic.expire_after_days,
            now_ms=now_ms,
            needs_answer=needs_answer,
        )

    def _clock_guard(self) -> ClockGuard:
        """The store is asked whatever its marker says: nothing is changed there."""
        return ClockGuard(
            self.deletions, self.clock, lambda: self.unguarded_storage.clock_ms(), lambda: self._clock_bounds()
        )

    def _clock_bounds(self) -> ClockBounds:
        settings = self.effective_settings().clock
        return ClockBounds(settings.max_difference_ms, settings.ignored_until_ms)

    def _still_planned(self, clocks: ClockGuard, planned: PlannedExpiration) -> StillPlanned:
        """Ask again what would be planned of one partition, by all that holds now. Reads no log dir: a worker that
        deletes need not reach one, nor the cluster's metadata."""
        clocks.require(with_store=False)
        partition = planned.topic_id_partition
        retention = TopicRetention.of(self.configs.of_entity(ConfigEntity(EntityType.TOPICS, partition.topic)))
        standings = self._standings([partition], clocks.now_ms(), needs_answer=False)
        planner = self._planner_by({partition.topic: retention}, standings)
        again = planner.plan_again(planned, now_ms=clocks.now_ms())
        return still_planned(planned, again, self.metadata, waits=planner.why_it_waits(partition))

    def _planner(self, clocks: ClockGuard) -> ExpirationPlanner:
        standings = self._standings(self.metadata.partitions(), clocks.now_ms())
        return self._planner_by(self.topic_retentions(), standings)

    def _planner_by(
        self, retentions: Mapping[str, TopicRetention], standings: Mapping[Uuid, TopicStanding]
    ) -> ExpirationPlanner:
        settings = self.effective_settings()
        return ExpirationPlanner(
            self.metadata,
            self.registry,
            self.work,
            retentions,
            settings.unfinished_copy.expiry_ms,
            standings,
            settings.superseded.hold_ms,
            self._size_doubts,
        )

    def _decide(
        self, planner: ExpirationPlanner, run_id: str, partitions: Sequence[TopicIdPartition], clocks: ClockGuard
    ) -> ExpirationPlan:
        report = self._scan_of(planner.topics_by_size(partitions))
        return planner.plan(run_id, partitions, report, now_ms=clocks.now_ms())

    def _size_doubts(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Mapping[int, str]:
        """Of a replica that cannot be read any more, every size is in doubt."""
        try:
            return self.source.size_doubts(replica_id, segments)
        except SourceError as error:
            return {one.base_offset: f"it cannot be read now: {error}" for one in segments}

    def _scan_of(self, topics: Collection[str]) -> ScanReport | None:
        """None if there is nothing to ask for, or nobody to ask."""
        if not topics or not self.settings.log_dirs:
            return None
        return self.scan_of_our_cluster(topics)
