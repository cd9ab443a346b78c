"""One batch of a copy run: a stream that pulls partitions and copies their segments strictly in order.

A batch takes a lease on the most urgent partition with work, copies its planned segments one after another, releases
the lease and takes the next partition, until no work is left, its time is over, its pool has no slot for it any more,
or it is cancelled. Between segments it waits while the topic or the platform is paused. If the quota of a topic refuses
a segment, the batch releases the partition and backs off from the topic; the back-off doubles with each refusal in
succession, up to `LONGEST_BACK_OFF_SECONDS` (`TopicAdmission`). Segments that the batch did not reach stay planned for
another batch or the next run. A segment that failed stays planned only if the error is retriable and is no
`SourceError`; otherwise it is recorded as FAILED, and the run copies no later segment of the partition.

A killed batch leaves a lease that expires. What it leaves of the segment that it was copying is said in the table of
`copy_segment`.

**Fair scheduling of partitions** (`PartitionScheduler`). Without an exhausted quota a batch finishes the most urgent
partition, then takes the next. Under an exhausted quota, with fairness on, it releases its partition after a segment if
another partition that it could claim has waited longer (the partition is *handed on*). The next claims alternate:

    the partition handed on was claimed for    next claim
    its urgency                                the partition that has waited longest
    its wait                                   the most urgent partition other than the one handed on

So no partition starves however urgent another is, about every second claim takes the most urgent partition, and
partitions of equal urgency rotate. A partition that was handed on is claimed again by the next claim
only if no other partition is left to claim.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.clock import Clock
from include.tiering.copying.check_ahead import CheckAhead
from include.tiering.copying.copy_segment import CopiedSegment, SegmentCopier
from include.tiering.copying.finish_abandoned import AbandonedCopies
from include.tiering.errors import (
    CorruptFileError,
    LeaseLostError,
    MetadataUnavailableError,
    QuotaExceededError,
    SendingStoppedError,
    SourceError,
    StateConflictError,
    TieringError,
)
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.segments import TopicIdPartition
from include.tiering.quotas.contract import ByteLimiter, QuotaKind, Quotas
from include.tiering.quotas.topic_quotas import NO_TOPIC_QUOTAS, Admission, TopicQuotas
from include.tiering.runs.batch import BatchEnd, BatchHeartbeat, BatchLoop, CancellationToken, StopConditions
from include.tiering.runs.contract import (
    ClaimOrder,
    Lease,
    Placement,
    PlannedSegment,
    SegmentOutcome,
    WorkItem,
    WorkStore,
)
from include.tiering.segments.stored_copies import WholeCopy
from include.tiering.telemetry import for_partition, get_logger

EXHAUSTED_SECONDS: Final = 0.05
"""If copies under one lease waited this long in all, the quota counts as exhausted, and the lease may be handed on."""

_AFTER: Final = {
    ClaimOrder.URGENCY: ClaimOrder.LONGEST_WAIT,
    ClaimOrder.LONGEST_WAIT: ClaimOrder.URGENCY,
}


class PartitionScheduler:
    """Claims partitions for one batch. `excluded` are the partitions that the batch may not claim now."""

    def __init__(
        self, work: WorkStore, run_id: str, batch_id: str, *, lease_ms: int, placement: Placement | None, fairness: bool
    ) -> None:
        self._work = work
        self._run_id = run_id
        self._batch_id = batch_id
        self._lease_ms = lease_ms
        self._placement = placement
        self._fairness = fairness
        self._order = ClaimOrder.URGENCY
        self._handed_on: frozenset[TopicIdPartition] = frozenset()
        self._is_alternating = False

    def claim(self, excluded: Set[TopicIdPartition]) -> Lease | None:
        """Claim the next lease; None if there is nothing to claim now. Raises what `WorkStore.claim` raises."""
        handed_on, self._handed_on = self._handed_on, frozenset()
        if handed_on:
            lease = self._claim(excluded | handed_on)
            if lease is not None:
                self._is_alternating = True
                return lease
        self._is_alternating = False
        self._order = ClaimOrder.URGENCY
        return self._claim(excluded)

    def hand_on(self, lease: Lease, limiter: ByteLimiter, excluded: Set[TopicIdPartition]) -> bool:
        """Return whether to release this lease now; if so, the next claim prefers other partitions.

        `limiter` is the limiter of all copies under this lease.
        """
        if not self._fairness or limiter.waited_seconds < EXHAUSTED_SECONDS:
            return False
        if not self._work.waits_longer(lease, exclude=excluded, placement=self._placement):
            return False
        self._handed_on = frozenset({lease.replica_id.topic_id_partition})
        self._order = _AFTER[self._order]
        return True

    @property
    def is_alternating(self) -> bool:
        """Whether this lease follows one that was handed on, and will probably be handed on soon, too."""
        return self._is_alternating

    def _claim(self, excluded: Set[TopicIdPartition]) -> Lease | None:
        return self._work.claim(
            self._run_id,
            self._batch_id,
            lease_ms=self._lease_ms,
            exclude=excluded,
            placement=self._placement,
            order=self._order,
        )


FIRST_BACK_OFF_SECONDS: Final = 1.0
LONGEST_BACK_OFF_SECONDS: Final = 30.0
_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _BackOff:
    """Back-off of one topic on one broker. `until` is a time of the monotonic clock, in seconds."""

    seconds: float
    until: float
    error: QuotaExceededError


class TopicAdmission:
    """Admits segments of one batch by their topic's quota. Each batch has back-offs of its own."""

    def __init__(self, quotas: TopicQuotas, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock
        self._back_offs: dict[tuple[int, str], _BackOff] = {}
        self._left: dict[TopicIdPartition, tuple[int, str]] = {}

    @contextmanager
    def admitted(self, replica_id: ReplicaId, planned: PlannedSegment) -> Iterator[None]:
        """Admit one segment and count whether its copy, inside the context, succeeds.

        Raises:
            QuotaExceededError: refused; the topic, and with it this partition, backs off.
            MetadataUnavailableError: the database does not answer.
        """
        admission = self._admit(replica_id, planned)
        try:
            yield
        except TieringError:
            self._count_failure(admission)
            raise
        self._quotas.accepted(admission)

    def must_wait(self, replica_id: ReplicaId) -> bool:
        """Return whether the replica's topic backs off; if so, note that the batch left the partition."""
        topic = _topic_of(replica_id)
        if not self._is_waiting(topic):
            return False
        self._left[replica_id.topic_id_partition] = topic
        return True

    def waiting(self) -> frozenset[TopicIdPartition]:
        """Return the partitions that were left and whose topic still backs off."""
        return frozenset(partition for partition, topic in self._left.items() if self._is_waiting(topic))

    def throttled(self) -> dict[TopicIdPartition, QuotaExceededError]:
        """Return the partitions that were refused or left during a back-off, with the last refusal of their topic.

        Once any segment of a topic is admitted, its partitions are no longer returned.
        """
        return {partition: self._back_offs[topic].error for partition, topic in self._left.items()}

    def _admit(self, replica_id: ReplicaId, planned: PlannedSegment) -> Admission:
        partition, topic = replica_id.topic_id_partition, _topic_of(replica_id)
        offsets = planned.end_offset - planned.base_offset + 1
        try:
            admission = self._quotas.admit(*topic, size_bytes=planned.size_bytes, records=offsets)
        except QuotaExceededError as error:
            known = self._back_offs.get(topic)
            seconds = FIRST_BACK_OFF_SECONDS if known is None else min(2 * known.seconds, LONGEST_BACK_OFF_SECONDS)
            self._back_offs[topic] = _BackOff(seconds, self._clock.monotonic() + seconds, error)
            self._left[partition] = topic
            raise
        self._back_offs.pop(topic, None)
        self._left = {left: of_topic for left, of_topic in self._left.items() if of_topic != topic}
        return admission

    def _is_waiting(self, topic: tuple[int, str]) -> bool:
        back_off = self._back_offs.get(topic)
        return back_off is not None and self._clock.monotonic() < back_off.until

    def _count_failure(self, admission: Admission) -> None:
        """Count a failed copy; an error of the database here must not hide why the copy failed."""
        try:
            self._quotas.failed(admission)
        except TieringError as error:
            _log.warning("%s: the meters of the topic quota lack a copy that failed: %s", admission.topic, error)


def _topic_of(replica_id: ReplicaId) -> tuple[int, str]:
    return replica_id.broker_id, replica_id.topic_id_partition.topic


@dataclass(frozen=True, slots=True)
class UncopiedSegment:
    """A planned segment that was not copied, and why. `retriable`: another attempt may succeed without a change."""

    item: WorkItem
    retriable: bool


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What one batch did.

    `sent_bytes` counts the objects of the copied segments, each once; retries in the store's client are not counted.

    `throttled` are partitions that waited for topic quotas when the batch ended: their segments stay planned.
    """

    copied: tuple[CopiedSegment, ...]
    failed: tuple[UncopiedSegment, ...]
    sent_bytes: int
    seconds: float
    ended: BatchEnd
    throttled: tuple[TopicIdPartition, ...] = ()

    @property
    def worth_retrying(self) -> bool:
        """Whether segments failed and all of their errors are retriable."""
        return bool(self.failed) and all(failure.retriable for failure in self.failed)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of one batch. `pool` names the Airflow pool whose slot the batch occupies; None outside Airflow.

    A batch takes partitions of one `placement`; None means all placements. With `fairness` partitions alternate while
    the copy quota is exhausted.
    """

    max_seconds: float
    lease_ms: int
    pool: str | None = None
    placement: Placement | None = None
    fairness: bool = True


class CopyBatch:
    """One batch of a copy run. Call `run` once."""

    def __init__(
        self,
        copier: SegmentCopier,
        work: WorkStore,
        quotas: Quotas,
        cancellation: CancellationToken,
        heartbeat: BatchHeartbeat,
        clock: Clock,
        *,
        run_id: str,
        batch_id: str,
        limits: BatchLimits,
        on_copied: Callable[[CopiedSegment], None],
        topic_quotas: TopicQuotas = NO_TOPIC_QUOTAS,
        ahead: CheckAhead | None = None,
        claim: Callable[[], object] = lambda: None,
    ) -> None:
        self._copier = copier if ahead is None else replace(copier, source=ahead)
        self._abandoned_copies = AbandonedCopies(self._copier, WholeCopy(copier.storage, quotas), claim)
        self._ahead = ahead
        self._work = work
        self._quotas = quotas
        self._cancellation = cancellation
        self._heartbeat = heartbeat
        self._clock = clock
        self._run_id = run_id
        self._batch_id = batch_id
        self._limits = limits
        self._scheduler = PartitionScheduler(
            work,
            run_id,
            batch_id,
            lease_ms=limits.lease_ms,
            placement=limits.placement,
            fairness=limits.fairness,
        )
        self._on_copied = on_copied
        self._admission = TopicAdmission(topic_quotas, clock)
        stop_conditions = StopConditions(
            work, cancellation, clock, batch_id=batch_id, pool=limits.pool, max_seconds=limits.max_seconds
        )
        self._loop = BatchLoop(work, cancellation, heartbeat, stop_conditions, clock, throttled=self._admission.waiting)
        self._copied: list[CopiedSegment] = []
        self._failed: list[UncopiedSegment] = []

    def run(self) -> BatchResult:
        """Claim partitions and copy their segments until no work is left or a stop condition is met."""
        started = self._clock.monotonic()
        with self._heartbeat:
            ended = self._loop.pull(
                self._scheduler.claim,
                self._work_on,
                has_work=lambda: self._work.has_work(self._run_id, self._limits.placement),
            )
            throttled = self._note_throttled()
        sent_bytes = sum(segment.sent_bytes for segment in self._copied)
        seconds = self._clock.monotonic() - started
        return BatchResult(tuple(self._copied), tuple(self._failed), sent_bytes, seconds, ended, throttled)

    def _work_on(self, lease: Lease) -> None:
        try:
            self._copy_partition(lease)
        except SendingStoppedError as error:
            for_partition(_log, lease.replica_id.topic_id_partition).info("left for now: %s", error)

    def _note_throttled(self) -> tuple[TopicIdPartition, ...]:
        throttled = self._admission.throttled()
        for partition, error in throttled.items():
            self._work.record_left_reason(self._run_id, partition, error=type(error).__name__, message=str(error))
        return tuple(throttled)

    def _copy_partition(self, lease: Lease) -> None:
        planned = self._work.remaining(lease)
        if not planned or self._admission.must_wait(lease.replica_id):
            return
        partition = lease.replica_id.topic_id_partition
        limiter = self._quotas.copy(lease.replica_id.broker_id, partition.topic, go_on=self._cancellation.check)
        with self._loop.setting_aside(partition, lambda error: self._give_up(lease, planned[0], error)):
            if not self._copier.metadata.is_ready(partition):
                raise MetadataUnavailableError("its metadata is not complete: ./tiering ready")
            self._abandoned_copies.settle(lease.replica_id, planned, fence=lease.fence, limiter=limiter)
            self._copier.require_ours(partition)
        if partition in self._loop.set_aside:
            return
        self._heartbeat.add_planned(sum(segment.size_bytes for segment in planned))
        with self._checking_ahead(lease, planned):
            self._copy_in_order(lease, planned, limiter)

    def _checking_ahead(self, lease: Lease, planned: Sequence[PlannedSegment]) -> AbstractContextManager[None]:
        if self._ahead is None:
            return nullcontext()
        return self._ahead.expecting(lease.replica_id, planned, lambda: not self._scheduler.is_alternating)

    def _copy_in_order(self, lease: Lease, planned: Sequence[PlannedSegment], limiter: ByteLimiter) -> None:
        partition = lease.replica_id.topic_id_partition
        queue = list(planned)
        highest = self._copier.metadata.highest_copied_offset(partition)

        def copy_next() -> bool:
            nonlocal highest
            goes_on = self._copy_planned(lease, queue[0], highest, limiter)
            if partition in self._loop.set_aside:
                return False
            if goes_on:
                # Only this batch copies the partition while it holds the lease, so the metadata need not be read again.
                end_offset = queue.pop(0).end_offset
                highest = end_offset if highest is None else max(highest, end_offset)
            if not goes_on or (queue and self._scheduler.hand_on(lease, limiter, self._loop.excluded())):
                self._heartbeat.add_planned(-sum(segment.size_bytes for segment in queue))
                return False
            return bool(queue)

        self._loop.in_groups(copy_next)

    def _copy_planned(self, lease: Lease, planned: PlannedSegment, highest: int | None, limiter: ByteLimiter) -> bool:
        """Copy one segment, or record why that is needless; return False if nothing more is copied under this lease.

        The next holder of the partition's lease finishes, abandons or keeps what a stopped copy left.
        """
        partition = lease.replica_id.topic_id_partition
        try:
            if (needless := self._why_needless(partition, planned, highest)) is not None:
                self._record(lease, planned, SegmentOutcome.SKIPPED, message=needless)
                return True
            with (
                self._admission.admitted(lease.replica_id, planned),
                self._heartbeat.counting(planned.size_bytes) as on_sent,
            ):
                waited_seconds = limiter.waited_seconds
                try:
                    copied = self._copier.copy(
                        lease.replica_id, planned, highest, fence=lease.fence, limiter=limiter, on_sent=on_sent
                    )
                finally:
                    self._quotas.held_back(QuotaKind.COPY, limiter.waited_seconds - waited_seconds)
        except QuotaExceededError as error:
            # A warning, because the command line shows nothing below it; backing off keeps these lines few.
            for_partition(_log, partition).warning("waits at offset %s: %s", planned.base_offset, error)
            return False
        except SendingStoppedError:
            return False
        except LeaseLostError:
            raise
        except TieringError as error:
            self._loop.set_aside.add(partition)
            self._give_up(lease, planned, error)
            return False
        self._record(lease, planned, SegmentOutcome.COPIED, segment_id=str(copied.segment_id.id))
        self._copied.append(copied)
        self._on_copied(copied)
        return True

    def _why_needless(self, partition: TopicIdPartition, planned: PlannedSegment, highest: int | None) -> str | None:
        """Return why the segment need not be copied any more; None if it must be.

        Its offsets are copied already, or the segment that it would replace is not FINISHED and FAILED any more.
        """
        if planned.supersedes is None:
            return "already copied" if highest is not None and highest >= planned.end_offset else None
        try:
            self._copier.failed(partition, planned)
        except StateConflictError as error:
            return str(error)
        return None

    def _give_up(self, lease: Lease, planned: PlannedSegment, error: TieringError) -> None:
        """Note the failure: this batch copies nothing more of the partition.

        A SourceError, or an error that is not retriable, is stored: then no batch of the run copies more of it.
        """
        partition = lease.replica_id.topic_id_partition
        for_partition(_log, partition).warning("stopped at offset %s: %s", planned.base_offset, error)
        item = WorkItem(
            topic_id_partition=partition,
            segment=planned,
            outcome=SegmentOutcome.FAILED,
            path=error.path if isinstance(error, SourceError) else None,
            position=error.position if isinstance(error, SourceError) else None,
            error=type(error).__name__,
            message=_message(planned, error),
        )
        self._failed.append(UncopiedSegment(item, error.retriable))
        if isinstance(error, SourceError) or not error.retriable:
            self._work.record_outcome(lease, item)

    def _record(
        self,
        lease: Lease,
        planned: PlannedSegment,
        outcome: SegmentOutcome,
        *,
        segment_id: str | None = None,
        message: str | None = None,
    ) -> None:
        item = WorkItem(lease.replica_id.topic_id_partition, planned, outcome)
        self._work.record_outcome(lease, replace(item, segment_id=segment_id, message=message))


def _message(planned: PlannedSegment, error: TieringError) -> str:
    message = error.message if isinstance(error, SourceError) else str(error)
    if planned.supersedes is None:
        return message
    damaged = "the source itself is damaged: " if isinstance(error, CorruptFileError) else ""
    return f"failed segment {planned.supersedes} is not replaced: {damaged}{message}"
