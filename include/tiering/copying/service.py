"""Copying: plan runs, run their batches, report on a run, and record decisions about offsets."""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from include.tiering.clock import Clock
from include.tiering.copying.metrics import (
    COPY_BYTES,
    COPY_ERRORS,
    COPY_ERRORS_BY_CLASS,
    COPY_REQUESTS,
    COPY_SENT_BYTES,
    publish_held_back,
)
from include.tiering.copying.plan import CopyPlan, LeftPartition, left_work, record_divergences
from include.tiering.copying.plan_copy import CopyPlanner
from include.tiering.copying.plan_replacements import record_losses
from include.tiering.copying.report import CopyRun
from include.tiering.copying.run_scope import AS_CONFIGURED, RunScope
from include.tiering.errors import SendingStoppedError, SettingError
from include.tiering.kafka.cluster.contract import ClusterMetadata
from include.tiering.kafka.log_dirs.contract import LogSource, ScanReport
from include.tiering.model.ownership import LeaseRole, TopicOwner
from include.tiering.model.segments import TopicIdPartition
from include.tiering.quotas.contract import Quotas
from include.tiering.quotas.topic_quotas import TopicQuotas
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.store_ownership import StoreOwnership
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs
from include.tiering.runs.contract import (
    ALL_TOPICS,
    NoWork,
    Placement,
    SegmentOutcome,
    WorkItem,
    WorkStore,
    why_no_work,
)
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.failed_copies import FailedCopies, by_partition, publish_failed_copies
from include.tiering.segments.stored_copies import ForgottenCopy, WholeCopy
from include.tiering.segments.topics import TopicLifecycle, register_owners
from include.tiering.settings import TieringSettings
from include.tiering.telemetry import for_partition, get_logger
from include.tiering.telemetry.metrics import MetricsRecorder, RunKind, StepObserver, ignore

if TYPE_CHECKING:
    from include.tiering.copying.copy_batch import BatchLimits, BatchResult
    from include.tiering.copying.copy_segment import CopiedSegment, SegmentCopier
    from include.tiering.copying.decisions import FollowSource, Skip
    from include.tiering.copying.finish_abandoned import AbandonedCopies


_log: Final = get_logger(__name__)


def store_leader_epochs(report: ScanReport, metadata: RemoteLogMetadata, registry: TopicRegistry) -> None:
    """Merge the leader epochs of each chosen replica in the platform's topics; log each contradiction as a warning.

    Entries at or above the high watermark are left out: even an election that loses no committed record may truncate
    them.
    """
    for replica in report.replicas:
        partition = replica.topic_id_partition
        if not replica.chosen or registry.owner(partition.topic_id) is not TopicOwner.PLATFORM:
            continue
        committed = replica.leader_epochs.range(-1, replica.high_watermark)
        for contradiction in metadata.merge_leader_epochs(partition, committed, replica.log_start_offset):
            for_partition(_log, partition).warning("leader epochs: %s", contradiction)


class CopyService:
    """Copies rolled segments from the brokers' log directories, or from leaders, into the remote store.

    Log directories and the remote store are opened when a call needs them, so `run_report` works without them.
    `topics` are the patterns of the topics that are copied if a scope names no topic. `record_cluster_metadata` stores
    that the cluster's topic metadata was readable once. `effective` returns the settings overlaid with the current
    dynamic configs. `forgotten_copies` returns the copies in the store of which the metadata have no row. `observe`
    receives each step of the copy protocol.
    """

    def __init__(
        self,
        *,
        topics: Collection[str],
        source: Callable[[], LogSource],
        storage: Callable[[], RemoteStorage],
        ownership: StoreOwnership,
        quotas: Callable[[], Quotas],
        topic_quotas: Callable[[], TopicQuotas],
        metadata: RemoteLogMetadata,
        registry: TopicRegistry,
        failed_copies: FailedCopies,
        work: WorkStore,
        cluster_metadata: Callable[[], ClusterMetadata],
        record_cluster_metadata: Callable[[], None],
        log_dirs: ClusterLogDirs,
        names: TopicLifecycle,
        planner: CopyPlanner,
        effective: Callable[[], TieringSettings],
        recorder: MetricsRecorder,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        forgotten_copies: Callable[[TopicIdPartition], Sequence[ForgottenCopy]],
        observe: StepObserver,
    ) -> None:
        self._topics = topics
        self._source = source
        self._storage = storage
        self._ownership = ownership
        self._quotas = quotas
        self._topic_quotas = topic_quotas
        self._metadata = metadata
        self._registry = registry
        self._failed_copies = failed_copies
        self._work = work
        self._cluster_metadata = cluster_metadata
        self._record_cluster_metadata = record_cluster_metadata
        self._log_dirs = log_dirs
        self._names = names
        self._planner = planner
        self._effective = effective
        self._recorder = recorder
        self._clock = clock
        self._random_bytes = random_bytes
        self._forgotten_copies = forgotten_copies
        self._observe = observe

    def plan(
        self,
        run_id: str,
        *,
        scope: RunScope = AS_CONFIGURED,
        limit_bytes: int | None = None,
        dry_run: bool = False,
        at_once: bool = False,
        parent_alive: Callable[[], bool] = lambda: True,
    ) -> CopyPlan:
        """Plan a run and, unless `dry_run`, store the plan.

        A divergence that is found is recorded even in a dry run: by the next scan the source may no longer show it.
        Where segments are read from leaders, this also finds and records further segments of their logs.

        Args:
            run_id: of the run that the plan belongs to.
            scope: which partitions the run takes; without topics those of `topics.include`, none by default.
            limit_bytes: upper limit for the planned `.log` bytes (a larger first segment is planned alone); None for
                no limit.
            dry_run: whether to claim nothing, register nothing and store no plan.
            at_once: whether segments are planned, too, whose copy their topic delays.
            parent_alive: while it returns False, no leader is read to find segments.

        Raises:
            SettingError: there are neither log dirs nor bootstrap servers, or the log dirs belong to another cluster
                than the database.
            ForeignClusterError: the brokers belong to another cluster than the database.
            ForeignStoreError: the store belongs to another database.
            StateConflictError: the run has another plan already.
        """
        is_of_all = scope == AS_CONFIGURED and limit_bytes is None
        scope = scope.or_topics(self._topics)
        report = scope.scan(
            partial(
                self._log_dirs.find_and_scan,
                copied_to=self._metadata.highest_copied_offset,
                go_on=partial(self._require_reads, parent_alive),
            )
        )
        if dry_run:
            self._ownership.require()
        else:
            self._ownership.claim()
            if self._cluster_metadata().cluster_id() is not None:
                self._record_cluster_metadata()
            register_owners(report, self._registry)
            store_leader_epochs(report, self._metadata, self._registry)
            self._names.note_deletions()
        failed = by_partition(self._failed_copies.all())
        plan = self._planner.plan(report, run_id, scope, failed=failed, limit_bytes=limit_bytes, at_once=at_once)
        record_divergences(plan, self._metadata)
        if not dry_run:
            record_losses(report, plan, failed, self._failed_copies)
            publish_failed_copies(self._recorder, self._failed_copies.all() if failed else ())
            self._work.save_plan(run_id, plan.partitions)
            if is_of_all:
                publish_held_back(self._recorder, plan.held_back)
            self._recorder.ended(RunKind.COPY)
        return plan

    def report_queue(self, queue: str, run_id: str, *, scope: RunScope = AS_CONFIGURED) -> ScanReport:
        """Scan the log dirs of a queue on a worker of it, and store what was found for plans on other hosts.

        Topics of `topics.include` are always scanned, too, because plans of other runs also read the report.

        Raises:
            SettingError, SourceError, ClusterMetadataError, BrokersError: as for `ClusterLogDirs.report_queue`.
            MetadataUnavailableError: the database is locked or unreachable.
        """
        topics = tuple(dict.fromkeys((*self._topics, *scope.topics)))
        failed = by_partition(self._failed_copies.all())
        # Which segments are compacted is read from their files, so it is found here.
        return self._log_dirs.report_queue(
            queue, run_id, topics, lambda report: self._planner.marked(report, failed, at_once=True)
        )

    def run_batch(
        self,
        run_id: str,
        batch_id: str,
        *,
        pool: str | None = None,
        placement: Placement | None = None,
        parent_alive: Callable[[], bool] = lambda: True,
        on_copied: "Callable[[CopiedSegment], None]" = ignore,
    ) -> "BatchResult":
        """Run one batch of a stored plan in this process.

        Args:
            run_id: the run whose plan is stored.
            batch_id: unique in the cluster.
            pool: Airflow pool whose slot the batch occupies; None outside Airflow.
            placement: the batch takes partitions of this placement only; None for all.
            parent_alive: the batch stops once it returns False.
            on_copied: called with each segment that the batch sent and that became FINISHED.
        """
        from include.tiering.copying.copy_batch import CopyBatch
        from include.tiering.runs.batch import cancellation_and_heartbeat

        limits = self._limits(pool, placement)

        def limits_now() -> "BatchLimits":
            nonlocal limits
            with suppress(SettingError):  # Another version may have stored what this one does not accept.
                limits = self._limits(pool, placement)
            return limits

        def copied(segment: "CopiedSegment") -> None:
            count_copied(self._recorder, segment)
            on_copied(segment)

        cancellation, heartbeat = cancellation_and_heartbeat(
            self._work,
            self._clock,
            run_id,
            batch_id,
            pool=pool,
            lease_ms=limits.lease_ms,
            parent_alive=parent_alive,
        )
        result = CopyBatch(
            self.segment_copier(),
            self._work,
            self._quotas(),
            cancellation,
            heartbeat,
            self._clock,
            run_id=run_id,
            batch_id=batch_id,
            limits_now=limits_now,
            on_copied=copied,
            topic_quotas=self._topic_quotas(),
            claim=self._ownership.claim,
        ).run()
        for failure in result.failed:
            count_failed(self._recorder, failure.item.topic_id_partition.topic, str(failure.item.error))
        self._recorder.ended(RunKind.COPY)
        return result

    def _limits(self, pool: str | None, placement: Placement | None) -> "BatchLimits":
        """Return the limits of a batch by the settings and dynamic configs of now."""
        from include.tiering.copying.copy_batch import BatchLimits

        settings = self._effective()
        return BatchLimits(
            float(settings.copier.batch_max_seconds),
            settings.copier.lease_ms,
            pool,
            placement,
            fairness=settings.copy_fairness.enable,
            transfers=settings.copier.max_transfers,
            total_transfers=settings.copier.total_max_transfers,
            queued_bytes=settings.queue.max_bytes,
        )

    def why_no_work(self, run_id: str, batch_id: str, placement: Placement) -> NoWork | None:
        """Return why a batch that begins now would end at once; None if it would not."""
        return why_no_work(
            has_work=self._work.has_work(run_id, placement),
            could_claim=lambda: self._work.could_claim(run_id, batch_id, placement),
            paused_topics=self._work.paused_topics,
        )

    def run_report(self, run_id: str) -> CopyRun:
        """Return what a run has done so far."""
        batches = self._work.progress(run_id)
        began_ms = min((batch.started_at_ms for batch in batches), default=0)
        ended_ms = max((batch.updated_at_ms for batch in batches), default=0)
        items = self._work.items(run_id)
        # A batch may have ended early (its time was over, or its pool was made smaller) if any segment has an outcome.
        ended_early = any(item.outcome is not SegmentOutcome.PLANNED for item in items)
        left = self.left_work(items, ended_early=ended_early)
        return CopyRun(run_id, items, (ended_ms - began_ms) / 1000, left=left)

    def _require_reads(self, parent_alive: Callable[[], bool], topic: str) -> None:
        """Raise SendingStoppedError if leaders of the topic may not be read now."""
        if not parent_alive():
            raise SendingStoppedError("interrupted")
        paused = self._work.paused_topics()
        if ALL_TOPICS in paused or topic in paused:
            raise SendingStoppedError(f"topic {topic} is paused: ./tiering resume")

    def left_work(self, items: Iterable[WorkItem], *, ended_early: bool) -> tuple[LeftPartition, ...]:
        """Return, for each partition, why segments of a run were left."""
        return left_work(
            items,
            holder=lambda partition: self._work.holder(partition, LeaseRole.COPY),
            highest_copied=self._metadata.highest_copied_offset,
            paused=self._work.paused_topics(),
            ended_early=ended_early,
        )

    def plan_skip(self, topic: str, partition: int, topic_id: str | None = None) -> "Skip":
        """Return what may be skipped of a partition now, from a new scan. Changes nothing."""
        from include.tiering.copying.decisions import plan_skip

        report = self._log_dirs.scan((topic,))
        plan = self._planner.plan(report, "skip", RunScope((topic,)))
        return plan_skip(report, plan, self._metadata, topic, partition, topic_id, self._forgotten_copies)

    def skip_offsets(self, planned: "Skip", *, reason: str, author: str) -> "Skip":
        """Record the decision to continue after the skipped offsets."""
        from include.tiering.copying.decisions import skip_offsets

        self._ownership.require()
        return skip_offsets(
            planned, metadata=self._metadata, failed_copies=self._failed_copies, reason=reason, author=author
        )

    def plan_follow(self, topic: str, partition: int, from_offset: int, topic_id: str | None = None) -> "FollowSource":
        """Return what following the source from this offset (inclusive) would change. Changes nothing."""
        from include.tiering.copying.decisions import plan_follow

        report = self._log_dirs.scan((topic,))
        plan = self._planner.plan(report, "skip", RunScope((topic,)))
        return plan_follow(report, plan, topic, partition, from_offset, topic_id)

    def follow_source(self, planned: "FollowSource", *, reason: str, author: str) -> "FollowSource":
        """Record the decision to continue with the source's history."""
        from include.tiering.copying.decisions import follow_source

        self._ownership.require()
        return follow_source(planned, metadata=self._metadata, reason=reason, author=author)

    def abandoned_copies(self) -> "AbandonedCopies":
        """Return the object that finishes, discards or keeps abandoned copies."""
        from include.tiering.copying.finish_abandoned import AbandonedCopies

        return AbandonedCopies(self.segment_copier(), WholeCopy(self._storage(), self._quotas()), self._ownership.claim)

    def segment_copier(self) -> "SegmentCopier":
        """Return the object that copies single segments and discards attempts."""
        from include.tiering.copying.copy_segment import SegmentCopier

        return SegmentCopier(
            self._source(),
            self._storage(),
            self._metadata,
            self._registry,
            self._clock,
            self._random_bytes,
            self._observe,
        )


def count_copied(recorder: MetricsRecorder, segment: "CopiedSegment") -> None:
    """Count a segment that was sent and became FINISHED."""
    topic = segment.segment_id.topic_id_partition.topic
    recorder.add(COPY_REQUESTS, 1, topic)
    recorder.add(COPY_ERRORS, 0, topic)  # So that the counter is there, and the first error is an increase.
    recorder.add(COPY_BYTES, segment.size_bytes, topic)
    recorder.add(COPY_SENT_BYTES, segment.sent_bytes, topic)


def count_failed(recorder: MetricsRecorder, topic: str, error: str) -> None:
    """Count one segment that could not be copied; `error` is the class name of a TieringError."""
    recorder.add(COPY_REQUESTS, 1, topic)
    recorder.add(COPY_ERRORS, 1, topic)
    recorder.add(COPY_ERRORS_BY_CLASS, 1, topic, error)
