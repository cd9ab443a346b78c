"""Every verb of the platform, with its adapters joined."""

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from include.tiering.clock import Clock
from include.tiering.log_source.contract import ScanReport
from include.tiering.model.failed_copies import by_partition
from include.tiering.model.ids import TopicIdPartition
from include.tiering.observability.failed_copy_metrics import publish_failed_copies
from include.tiering.observability.metrics import process_recorder
from include.tiering.quota.contract import Quotas
from include.tiering.quota.fetch_admission import FetchAdmission
from include.tiering.quota.scopes import QuotaKind
from include.tiering.remote_metadata.contract import LeaseRole
from include.tiering.remote_storage.store_marker import StoreMarker
from include.tiering.reports.copy import CopyRun
from include.tiering.settings import TieringSettings, load_settings
from include.tiering.tasks.check_ahead import CheckAhead
from include.tiering.tasks.copy_one_segment import CopiedSegment, SegmentCopier
from include.tiering.tasks.copy_plan import CopyPlan
from include.tiering.tasks.copy_segments import BatchLimits, BatchResult, CopyBatch
from include.tiering.tasks.fetch_partition import FetchedSegment, fetch_partition
from include.tiering.tasks.fetch_records import FetchedRecords, PartitionFetch, RecordReader
from include.tiering.tasks.follow_source import FollowSource, follow_source, plan_follow
from include.tiering.tasks.held_by_divergence import record_divergences
from include.tiering.tasks.left_work import LeftPartition, left_work
from include.tiering.tasks.leftover_copies import LeftoverCopies
from include.tiering.tasks.own_topics import register_owners
from include.tiering.tasks.plan_replacements import remember_losses
from include.tiering.tasks.record_readers import RecordReaders
from include.tiering.tasks.remember_epochs import remember_leader_epochs
from include.tiering.tasks.skip_offsets import Skip, plan_skip, skip_offsets
from include.tiering.tasks.whole_copy import WholeCopy
from include.tiering.wiring.batches import gate_and_heartbeat
from include.tiering.wiring.broker_verbs import BrokerVerbs
from include.tiering.wiring.expiration_verbs import ExpirationVerbs
from include.tiering.wiring.handover_verbs import HandoverVerbs
from include.tiering.wiring.quality_verbs import QualityVerbs
from include.tiering.wiring.readiness_verbs import ReadinessVerbs
from include.tiering.wiring.recovery_verbs import RecoveryVerbs
from include.tiering.wiring.set_up import set_up
from include.tiering.wiring.size_verbs import SizeVerbs
from include.tiering.wiring.unwatched import ignore
from include.tiering.work.contract import Placement, SegmentOutcome, WorkItem


def _count(result: BatchResult) -> None:
    recorder = process_recorder()
    for copied in result.copied:
        topic = copied.segment_id.topic_id_partition.topic
        recorder.segment_copied(topic, log_bytes=copied.size_bytes, sent_bytes=copied.sent_bytes)
    for failure in result.failed:
        recorder.copy_failed(failure.item.topic_id_partition.topic, str(failure.item.error))


class Tiering(
    ReadinessVerbs,
    BrokerVerbs,
    ExpirationVerbs,
    QualityVerbs,
    SizeVerbs,
    RecoveryVerbs,
    HandoverVerbs,
):
    """The library as its entry points see it. Close it, or use `open_tiering`."""

    def __init__(
        self,
        settings: TieringSettings,
        *,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        quotas: Quotas | None = None,
        observe: Callable[[StrEnum, TopicIdPartition, int], None] = ignore,
    ) -> None:
        super().__init__(settings, clock=clock)
        self._random_bytes = random_bytes
        if quotas is not None:
            self.quotas = quotas
        self._observe = observe

    def migrate(self) -> StoreMarker:
        """Set the deployment up; see `set_up`."""
        return set_up(self, self._random_bytes)

    def scan(self, *, topics: Collection[str] | None = None, deep: bool = False) -> ScanReport:
        return self.source.scan(topics=topics, deep=deep)

    def plan_copy(
        self,
        run_id: str,
        *,
        topics: Collection[str] | None = None,
        limit_bytes: int | None = None,
        dry_run: bool = False,
    ) -> CopyPlan:
        """Plan and, unless `dry_run`, store it. Without `topics` those of `topics.include`: none by default.

        A divergence that shows is recorded in either case: the next look may come when the source has forgotten it.

        Raises:
            SettingError: the log dirs belong to another cluster than the database.
            ForeignStoreError: the store is not this database's.
        """
        wanted = tuple(topics or self.settings.topics.include)
        report = self.scan_of_our_cluster(wanted)
        if dry_run:
            self.require_our_store()
        else:
            self.claim_store()
            if self.facts.cluster_id() is not None:
                self.facts_memory.remember()
            register_owners(report, self.registry)
            remember_leader_epochs(report, self.metadata, self.registry)
            self.note_topic_deletions()
        failed = by_partition(self.failed_copies.all())
        plan = self.plan_of(report, run_id, wanted, failed=failed, limit_bytes=limit_bytes)
        record_divergences(plan, self.metadata)
        if not dry_run:
            remember_losses(report, plan, failed, self.failed_copies)
            publish_failed_copies(process_recorder(), self.failed_copies.all() if failed else ())
            self.work.save_plan(run_id, plan.partitions)
        return plan

    def plan_skip(self, topic: str, partition: int, topic_id: str | None = None) -> Skip:
        """What of a partition the source has lost before it was copied, as it is now; see the task. Changes nothing."""
        report = self.scan_of_our_cluster((topic,))
        plan = self.plan_of(report, "skip", (topic,))
        return plan_skip(report, plan, self.metadata, topic, partition, topic_id)

    def plan_follow(self, topic: str, partition: int, from_offset: int, topic_id: str | None = None) -> FollowSource:
        """What it means to follow the source from this offset on; see the task. Changes nothing."""
        report = self.scan_of_our_cluster((topic,))
        plan = self.plan_of(report, "skip", (topic,))
        return plan_follow(report, plan, topic, partition, from_offset, topic_id)

    def follow_source(self, planned: FollowSource, *, reason: str, author: str) -> FollowSource:
        """Record the decision to go on with the source's history."""
        self.require_our_store()
        return follow_source(planned, metadata=self.metadata, reason=reason, author=author)

    def skip_offsets(self, planned: Skip, *, reason: str, author: str) -> Skip:
        """Record the decision to go on behind it."""
        self.require_our_store()
        return skip_offsets(
            planned, metadata=self.metadata, failed_copies=self.failed_copies, reason=reason, author=author
        )

    def copy_batch(
        self,
        run_id: str,
        batch_id: str,
        *,
        pool: str | None = None,
        placement: Placement | None = None,
        parent_alive: Callable[[], bool] = lambda: True,
        on_copied: Callable[[CopiedSegment], None] = ignore,
    ) -> BatchResult:
        """Run one batch of a stored plan in this process, on partitions of one placement; without one, of every."""
        settings = self.effective_settings()
        copier = settings.copier
        gate, heartbeat = gate_and_heartbeat(
            self, run_id, batch_id, pool=pool, lease_ms=copier.lease_ms, parent_alive=parent_alive
        )
        result = CopyBatch(
            self.segment_copier(),
            self.work,
            self.quotas,
            gate,
            heartbeat,
            self.clock,
            run_id=run_id,
            batch_id=batch_id,
            limits=BatchLimits(
                float(copier.batch_max_seconds),
                copier.lease_ms,
                pool,
                placement,
                fairness=settings.copy_fairness.enable,
            ),
            on_copied=on_copied,
            topic_quotas=self.topic_quotas,
            ahead=CheckAhead(self.source, self.clock, max_bytes=settings.queue.max_bytes),
            claim=self.claim_store,
        ).run()
        _count(result)
        return result

    def copy_run(self, run_id: str) -> CopyRun:
        """What a run has done so far."""
        batches = self.work.progress(run_id)
        began_ms = min((batch.started_at_ms for batch in batches), default=0)
        ended_ms = max((batch.updated_at_ms for batch in batches), default=0)
        items = self.work.items(run_id)
        # Batches end when their time is over, or their pool was made smaller: one that did something may have.
        ended_early = any(item.outcome is not SegmentOutcome.PLANNED for item in items)
        left = self.left_work(items, ended_early=ended_early)
        return CopyRun(run_id, items, (ended_ms - began_ms) / 1000, left=left)

    def left_work(self, items: Iterable[WorkItem], *, ended_early: bool) -> tuple[LeftPartition, ...]:
        """Why segments of a run were left; see the task."""
        return left_work(
            items,
            holder=lambda partition: self.work.holder(partition, LeaseRole.COPY),
            highest_copied=self.metadata.highest_copied_offset,
            paused=self.work.paused_topics(),
            ended_early=ended_early,
        )

    def fetch_partition(self, partition: TopicIdPartition, output_dir: Path) -> Iterator[FetchedSegment]:
        return fetch_partition(partition, output_dir, metadata=self.metadata, storage=self.storage, quotas=self.quotas)

    @contextmanager
    def record_readers(self) -> Iterator[RecordReaders]:
        """The reader pool, for as long as the context lasts, under the fetch quota."""
        settings = self.effective_settings()
        window = settings.fetch_quota_window
        admission = FetchAdmission(
            self.quotas.share, self.clock, samples=window.num, sample_ms=window.size_seconds * 1000
        )
        with RecordReaders(
            RecordReader(self.metadata, self.storage, self.quotas, admission),
            threads=self.reader_threads(),
            max_requests=settings.queue.max_requests,
            max_bytes=settings.queue.max_bytes,
            on_throttled=partial(process_recorder().throttled, QuotaKind.FETCH),
        ) as readers:
            yield readers

    def fetch_records(self, fetches: Sequence[PartitionFetch], client: str | None = None) -> Iterator[FetchedRecords]:
        """One answer for each partition, as they come; see `RecordReaders.fetch`."""
        with self.record_readers() as readers:
            yield from readers.fetch(fetches, client)

    def leftover_copies(self) -> LeftoverCopies:
        """Settles what copies left."""
        return LeftoverCopies(self.segment_copier(), WholeCopy(self.storage, self.quotas), self.claim_store)

    def segment_copier(self) -> SegmentCopier:
        """Copies one segment, or abandons what was copied of it."""
        return SegmentCopier(
            self.source, self.storage, self.metadata, self.registry, self.clock, self._random_bytes, self._observe
        )


@contextmanager
def open_tiering(settings: TieringSettings | None = None, **parts: Any) -> Iterator[Tiering]:
    """A `Tiering` that is closed when the context ends; `parts` as for `Tiering`."""
    tiering = Tiering(settings if settings is not None else load_settings(), **parts)
    try:
        yield tiering
    finally:
        tiering.close()
