"""Expiration: plan, apply the limits, approve, delete, withdraw; and raise a log start by decision."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from include.tiering.audit.record import ActiveGuards
from include.tiering.clock import Clock
from include.tiering.configs.config_store import EffectiveConfigs, TopicRetention
from include.tiering.errors import ClockDisagreesError, RemoteStorageUnavailableError, SettingError, SourceError
from include.tiering.expiration.checks import StillPlanned, still_planned, withdrawn
from include.tiering.expiration.delete_segments import DeleteBatch, DeleteResult, SegmentDeleter
from include.tiering.expiration.metrics import count_batch, count_deleted
from include.tiering.expiration.plan import (
    ExpirationPlan,
    ExpirationPlanner,
    Held,
    deletion_demands,
)
from include.tiering.expiration.preview import RetentionPreview, previewed, retention_asked
from include.tiering.expiration.truncation import Truncation, plan_truncation, truncate
from include.tiering.kafka.log_dirs.contract import LogSegment, LogSource, ReplicaId
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.quotas.contract import Quotas
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.store_ownership import StoreOwnership
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs
from include.tiering.runs.contract import NoWork, WorkStore, why_no_work
from include.tiering.runs.database_clock import ClockGuard
from include.tiering.runs.deletion_limits import DeletionLimitReport, apply_deletion_limits, deletion_limits
from include.tiering.runs.deletion_run import (
    DeletionRun,
    DeletionStore,
    PlannedDeletion,
    PlannedExpiration,
    WithdrawnRun,
    deletion_loop,
)
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.sizes_contract import RemoteLogSizes
from include.tiering.segments.topics import TopicDeletions, TopicLifecycle, TopicLifecycleState
from include.tiering.telemetry import get_logger
from include.tiering.telemetry.metrics import MetricsRecorder, RunKind, StepObserver

_log: Final = get_logger(__name__)
_AUTHOR: Final = "expiration"
_TOMBSTONES_PER_PAGE: Final = 500


class ExpirationService:
    """Deletes only planned segments, and only after the limits released the run or a person approved its plan.

    `source` opens the log directories, because retention by size counts bytes that are not copied yet. `clocks` returns
    a guard that compares the clocks from then on. `held` returns the segments that the brokers' metadata topic has, by
    partition: none of them is deleted, unless its topic was deleted. `publish_sizes` publishes the remote sizes after
    every plan and every batch. `observe` receives each step of a deletion.
    """

    def __init__(
        self,
        *,
        source: Callable[[], LogSource],
        storage: Callable[[], RemoteStorage],
        clocks: Callable[[], ClockGuard],
        quotas: Callable[[], Quotas],
        metadata: RemoteLogMetadata,
        registry: TopicRegistry,
        topic_deletions: TopicDeletions,
        deletions: DeletionStore,
        work: WorkStore,
        configs: EffectiveConfigs,
        log_dirs: ClusterLogDirs,
        names: TopicLifecycle,
        guards: ActiveGuards,
        ownership: StoreOwnership,
        held: Held,
        sizes: RemoteLogSizes,
        publish_sizes: Callable[[], object],
        recorder: MetricsRecorder,
        clock: Clock,
        observe: StepObserver,
    ) -> None:
        self._source = source
        self._storage = storage
        self._clocks = clocks
        self._quotas = quotas
        self._metadata = metadata
        self._registry = registry
        self._topic_deletions = topic_deletions
        self._deletions = deletions
        self._work = work
        self._configs = configs
        self._log_dirs = log_dirs
        self._names = names
        self._guards = guards
        self._ownership = ownership
        self._held = held
        self._sizes = sizes
        self._publish_sizes = publish_sizes
        self._recorder = recorder
        self._clock = clock
        self._observe = observe

    def plan(
        self,
        run_id: str,
        *,
        topics: Collection[str] = (),
        leave_out: Collection[Uuid] = (),
        dry_run: bool = False,
    ) -> ExpirationPlan:
        """Plan what expires now and store the plan. The plan deletes nothing by itself: `apply_limits` comes next.

        Also record which topics the cluster has deleted, as far as there is evidence now, and publish the remote sizes.

        Args:
            run_id: of the run that the plan belongs to.
            topics: patterns of topic names; without any, all topics that have an owner. The plan lists topics that
                brokers own as waiting, and deletes nothing of them.
            leave_out: ids of topics that another run works on.
            dry_run: whether the plan is only for display. It is stored, but does not claim the store, and deletes
                nothing unless a person approves it.

        Raises:
            ForeignStoreError: the store belongs to another database.
            ClockDisagreesError: other clocks contradict the database's clock; nothing was planned.
            DatabaseSetBackError: a guard forbids deletions (`ActiveGuards`); nothing was planned. A dry run does not
                raise it: see `ActiveGuards.objection`.
            StateConflictError: the run has another plan already.
        """
        if dry_run:
            self._ownership.require()
        else:
            self._ownership.claim()
            self._guards.require_deletion_allowed()
        clocks = self._clocks()
        clocks.require()
        self._names.note_deletions()
        planner = self._planner(clocks)
        # A topic that is not in `lifecycle_states` got its first segment just now: the next plan includes it.
        included = planner.lifecycle_states.keys() - set(leave_out)
        partitions = [partition for partition in planner.partitions(topics) if partition.topic_id in included]
        plan = self._decide(planner, run_id, partitions, clocks)
        self._deletions.save_plan(run_id, plan.expirations)
        self._publish_sizes()
        if not dry_run:
            self._recorder.ended(RunKind.EXPIRATION)
        return plan

    def preview(
        self,
        topic: str,
        changes: Mapping[str, str | None],
        *,
        numbers: Collection[int] = (),
        at_most: int | None = None,
    ) -> RetentionPreview:
        """Return what other values of retention.ms and retention.bytes would delete of a topic. Changes nothing.

        Args:
            topic: the name of one topic.
            changes: by name, the values as `./tiering configs` accepts them; None or absent: the present value.
            numbers: of the partitions to decide about; empty: all.
            at_most: the highest number of partitions to decide about, the lowest first; None: no limit.

        Raises:
            SettingError: a value is invalid, or none of these partitions has a segment in the archive.
        """
        retentions, now_ms = self._configs.topic_retentions(), self._deletions.now_ms()
        asked = retention_asked(topic, retentions.get(topic, TopicRetention()), changes)
        archived = [partition for partition in self._metadata.partitions() if partition.topic == topic]
        wanted = [partition for partition in archived if not numbers or partition.partition in numbers]
        if not wanted:
            raise SettingError(f"nothing of {'these partitions of ' if numbers else ''}{topic} is archived")
        partitions = wanted[:at_most]
        states = self._names.lifecycle_states(partitions, now_ms, needs_answer=False)
        return previewed(
            self._planner_by(retentions, states),
            topic,
            asked,
            now_ms=now_ms,
            partitions=partitions,
            more_partitions=len(archived) - len(partitions),
            stored_bytes={total.topic_id: total.stored_bytes for total in self._sizes.topic_totals((topic,))},
            limits=deletion_limits(self._configs.settings()),
        )

    def withdrawn(self, run_id: str) -> Sequence[PlannedDeletion]:
        """Return deletions of a stored plan that would not be planned now; see `checks.withdrawn`. Changes nothing.

        Raises:
            ClockDisagreesError: other clocks contradict the database's clock.
        """
        clocks = self._clocks()
        clocks.require()
        planned = self._deletions.plan(run_id)
        partitions = [partition.topic_id_partition for partition in planned]
        now = self._decide(self._planner(clocks), run_id, partitions, clocks)
        return withdrawn(planned, now, self._metadata)

    def apply_limits(self, run_id: str, *, dry_run: bool = False) -> DeletionLimitReport:
        """Decide whether the run is released or waits for an approval: see `apply_deletion_limits`.

        Deletions because of a deleted topic always wait. For a `dry_run` nothing is recorded: the limits never release
        its plan.

        Raises:
            DatabaseSetBackError: a guard forbids deletions. A dry run does not raise it.
            StateConflictError: no such run was planned.
        """
        if not dry_run:
            self._guards.require_deletion_allowed()
        limits = deletion_limits(self._configs.settings())
        demands = deletion_demands(self._deletions.plan(run_id), self._topic_deletions.all())
        return apply_deletion_limits(run_id, self._deletions, limits, author=_AUTHOR, demands=demands, dry_run=dry_run)

    def approve(self, run_id: str, plan_hash: str, *, author: str) -> DeletionRun:
        """Release the run if `plan_hash` is the hash of its plan.

        A copy of the database may have the same plan, so the store is claimed once more.

        Raises:
            StateConflictError: the hash is of another plan, or no such run was planned.
            RunWithdrawnError: the run was withdrawn.
            ForeignStoreError: the store belongs to another database.
            ClockDisagreesError: other clocks contradict the database's clock.
            DatabaseSetBackError: a guard forbids deletions.
        """
        self._ownership.claim()
        self._guards.require_deletion_allowed()
        self._clocks().require()
        return self._deletions.approve(run_id, plan_hash, author=author)

    def withdraw(self, run_id: str, *, author: str) -> WithdrawnRun:
        """Withdraw a run for good: no further group of its segments is deleted, even by a running batch. Idempotent.

        A running batch stops before its next group of segments; the next run completes a group whose deletion had
        begun. A copy of the database may have the same released plan, so the store is claimed afterwards. If it cannot
        be claimed, the run is still withdrawn here, and the report says so.

        Raises:
            StateConflictError: no such run was planned.
        """
        run = self._deletions.withdraw(run_id, author=author)
        return WithdrawnRun(run, self._deletions.items(run_id), self._ownership.claim_if_possible())

    def why_no_work(self, run_id: str, batch_id: str) -> NoWork | None:
        """Return why a batch that begins now would end at once; None if it would not."""
        return why_no_work(
            has_work=self._deletions.has_work(run_id),
            could_claim=lambda: self._deletions.could_claim(run_id, batch_id),
            paused_topics=self._work.paused_topics,
        )

    def run_batch(
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
            ForeignStoreError: the store belongs to another database.
            RunWithdrawnError: the run was withdrawn before.
            StateConflictError: no such run was planned.
            ClockDisagreesError: other clocks contradict the database's clock; the rest stays planned.
            DatabaseSetBackError: a guard forbade deletions before the batch, or became active during it; the rest stays
                planned.
        """
        self._ownership.require()
        self._guards.require_deletion_allowed()
        settings = self._configs.settings()
        clocks = self._clocks()
        clocks.require()
        loop = deletion_loop(self._work, self._clock, settings, run_id, batch_id, pool=pool, parent_alive=parent_alive)
        deleter = SegmentDeleter(
            self._storage(),
            self._metadata,
            self._registry,
            self._deletions,
            self._work,
            self._clock,
            self._observe,
            self._ownership.claim,
        )
        result = DeleteBatch(
            deleter,
            self._quotas(),
            loop,
            partial(self._still_planned, clocks),
            self._guards.require_deletion_allowed,
            run_id=run_id,
            batch_id=batch_id,
            lease_ms=settings.copier.lease_ms,
            on_deleted=partial(count_deleted, self._recorder),
        ).run()
        count_batch(self._recorder, result)
        self._recorder.ended(RunKind.EXPIRATION)
        self._publish_sizes()
        return result

    def plan_truncation(self, partition: TopicIdPartition, before_offset: int) -> Truncation:
        """Return what `delete_records` would do.

        Raises:
            SettingError: the log start may not be raised so: see `truncation.plan_truncation`.
        """
        return plan_truncation(partition, before_offset, metadata=self._metadata, registry=self._registry)

    def delete_records(self, planned: Truncation, *, author: str) -> Truncation:
        """Raise the archive's log start; the next plan of expiration names the segments wholly below it."""
        self._ownership.claim()
        return truncate(planned, metadata=self._metadata, author=author)

    def forget_tombstones(self) -> int:
        """Remove metadata of segments that were deleted longer ago than `tiering.tombstone.ms`; return their number.

        Some tombstones stay longer, see `RemoteLogMetadata.forget_tombstones`. Works in pages, each a transaction of
        its own: a crash leaves the rest for the next call. If something contradicts the database's clock, nothing is
        removed, and a warning is logged.
        """
        try:
            self._clocks().require()
        except (ClockDisagreesError, RemoteStorageUnavailableError) as error:
            _log.warning("no tombstone is removed: %s", error)
            return 0
        older_than_ms = self._configs.settings().tombstone.ms
        removed = 0
        while page := self._metadata.forget_tombstones(older_than_ms, at_most=_TOMBSTONES_PER_PAGE):
            removed += page
        return removed

    def _still_planned(self, clocks: ClockGuard, planned: PlannedExpiration) -> StillPlanned:
        """Plan one partition again from the current state, and compare.

        Does not read log directories and does not require the cluster's metadata, because a worker that deletes may be
        unable to reach them.
        """
        clocks.require(with_store=False)
        partition = planned.topic_id_partition
        lifecycle_states = self._names.lifecycle_states([partition], clocks.now_ms(), needs_answer=False)
        planner = self._planner_by({partition.topic: self._configs.retention_of(partition.topic)}, lifecycle_states)
        history = planner.newest_history(partition)
        again = planner.plan_again(planned, now_ms=clocks.now_ms())
        return still_planned(planned, again, self._metadata, history=history, waits=planner.why_it_waits(partition))

    def _planner(self, clocks: ClockGuard) -> ExpirationPlanner:
        lifecycle_states = self._names.lifecycle_states(self._metadata.partitions(), clocks.now_ms())
        return self._planner_by(self._configs.topic_retentions(), lifecycle_states)

    def _planner_by(
        self, retentions: Mapping[str, TopicRetention], lifecycle_states: Mapping[Uuid, TopicLifecycleState]
    ) -> ExpirationPlanner:
        settings = self._configs.settings()
        return ExpirationPlanner(
            self._metadata,
            self._registry,
            self._work,
            retentions,
            settings.abandoned_copy.expiry_ms,
            lifecycle_states,
            settings.superseded.hold_ms,
            self._size_doubts,
            self._held,
        )

    def _decide(
        self, planner: ExpirationPlanner, run_id: str, partitions: Sequence[TopicIdPartition], clocks: ClockGuard
    ) -> ExpirationPlan:
        # Without topics with a retention by size, or without configured log directories, nothing is scanned.
        topics = planner.topics_by_size(partitions)
        report = self._log_dirs.scan_files(topics) if topics and self._log_dirs.are_configured else None
        return planner.plan(run_id, partitions, report, now_ms=clocks.now_ms())

    def _size_doubts(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Mapping[int, str]:
        """Return why sizes are doubtful, by base offset; all sizes are if the replica cannot be read any more."""
        try:
            return self._source().size_doubts(replica_id, segments)
        except SourceError as error:
            return {segment.base_offset: f"it cannot be read now: {error}" for segment in segments}
