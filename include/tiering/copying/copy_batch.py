"""One batch of a copy run: it pulls partitions and keeps several transfers of their segments in flight.

A batch takes a lease on the most urgent partition with work, settles its abandoned copies and copies its planned
segments. While it may begin another transfer (`transfers`), it begins the next segment of a partition that it holds,
and if there is none, it takes a further partition. A partition is released when its last transfer has ended. The batch
ends when no work is left, its time is over, its pool has no slot for it any more, or it is cancelled. Then it begins
nothing more; transfers in flight go on to their end, unless the batch was cancelled, which stops them. Transfers and
settlements run in threads of their own; all decisions are made in the thread of `run`, which never waits for the store,
for a quota, or for the end of a pause.

**Order.** The segments of a partition are sent side by side and become FINISHED in ascending order: a transfer waits
before FINISHED until the one before it is FINISHED (`SegmentCopier.copy`, `turn`). If one fails, the later transfers of
its partition are stopped, and this batch copies nothing more of the partition. A stopped transfer is discarded unless
all of its objects are stored. If they are, the copy stays: the next holder of the lease finishes it in its turn,
without sending it again.

While a topic is paused, or all are, the batch begins no transfer of it. If the quota of a topic refuses a segment, the
batch releases the partition and backs off from the topic (`TopicAdmission`). Segments that the batch did not reach stay
planned for another batch or the next run. A segment that failed stays planned only if the error is retriable and is no
`SourceError`; otherwise it is recorded as FAILED, and the run copies no later segment of the partition.

A killed batch leaves leases that expire. The table of `copy_segment` says what it leaves of the segments that it was
copying.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from include.tiering.clock import Clock
from include.tiering.copying.copy_checks import failure_message
from include.tiering.copying.copy_segment import CopiedSegment, SegmentCopier
from include.tiering.copying.finish_abandoned import AbandonedCopies
from include.tiering.copying.scheduling import EXHAUSTED_SECONDS, PartitionScheduler, TopicAdmission
from include.tiering.copying.transfers import (
    BATCH_BOUND,
    MOST_TRANSFERS,
    InFlight,
    LeasedPartition,
    Settlement,
    Transfer,
    TransferLimit,
)
from include.tiering.errors import (
    LeaseLostError,
    MetadataUnavailableError,
    QuotaExceededError,
    SendingStoppedError,
    SourceError,
    SourceVanishedError,
    StateConflictError,
    TieringError,
)
from include.tiering.model.segments import TopicIdPartition
from include.tiering.quotas.byte_bounded_queue import NO_BYTE_BOUND
from include.tiering.quotas.contract import ByteLimiter, GoOn, QuotaKind, Quotas, Scope
from include.tiering.quotas.topic_quotas import NO_TOPIC_QUOTAS, TopicQuotas
from include.tiering.runs.batch import BatchEnd, BatchHeartbeat, BatchLoop, CancellationToken, StopConditions
from include.tiering.runs.contract import Lease, Placement, PlannedSegment, SegmentOutcome, WorkItem, WorkStore
from include.tiering.segments.stored_copies import WholeCopy
from include.tiering.telemetry import for_partition, get_logger

_TICK_SECONDS: Final = 0.03
"""How long the batch waits until a transfer ends or waits for its turn before it looks again what it may begin."""
_CLAIM_AGAIN_SECONDS: Final = 0.5
"""After a claim that found no partition, how long the batch does not claim again while transfers are in flight."""
_CLAIM_PACE_SECONDS: Final = 0.25
"""After a claim that found a partition, how long the batch does not claim again, unless a partition ends.

By then the transfers show whether a quota is exhausted; if one is, other partitions are left to other batches."""
_LOOK_AGAIN_SECONDS: Final = 1.0
_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class UncopiedSegment:
    """A planned segment that was not copied, and why. `retriable`: another try may succeed without a change."""

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
    the copy quota is exhausted. At most `transfers` transfers of this batch have a slot, and about `total_transfers` of
    all running batches together. Another transfer begins only while the segments in flight have fewer than
    `queued_bytes` bytes (-1: no bound).
    """

    max_seconds: float
    lease_ms: int
    pool: str | None = None
    placement: Placement | None = None
    fairness: bool = True
    transfers: int = 1
    total_transfers: int = 256
    queued_bytes: int = NO_BYTE_BOUND


class CopyBatch:
    """One batch of a copy run. Call `run` once. It reads the limits of transfers and bytes again while it runs."""

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
        limits_now: Callable[[], BatchLimits],
        on_copied: Callable[[CopiedSegment], None],
        topic_quotas: TopicQuotas = NO_TOPIC_QUOTAS,
        claim: Callable[[], object] = lambda: None,
    ) -> None:
        self._copier = copier
        self._abandoned_copies = AbandonedCopies(copier, WholeCopy(copier.storage, quotas), claim)
        self._work = work
        self._quotas = quotas
        self._cancellation = cancellation
        self._heartbeat = heartbeat
        self._clock = clock
        self._run_id = run_id
        self._batch_id = batch_id
        self._limits_now, limits = limits_now, limits_now()
        self._placement = limits.placement
        self._scheduler = PartitionScheduler(
            work, run_id, batch_id, lease_ms=limits.lease_ms, placement=limits.placement, fairness=limits.fairness
        )
        self._on_copied = on_copied
        self._topic_quotas = topic_quotas
        self._admission = TopicAdmission(topic_quotas, clock)
        self._stop_conditions = StopConditions(
            work, cancellation, clock, batch_id=batch_id, pool=limits.pool, max_seconds=limits.max_seconds
        )
        self._loop = BatchLoop(
            work, cancellation, heartbeat, self._stop_conditions, clock, throttled=self._admission.waiting
        )
        self._limit = TransferLimit(clock, most=limits.transfers, most_bytes=limits.queued_bytes)
        self._partitions: list[LeasedPartition] = []
        self._start_again_at = self._claim_again_at = self._look_again_at = clock.monotonic()
        self._changed = threading.Event()
        self._copied: list[CopiedSegment] = []
        self._failed: list[UncopiedSegment] = []

    def run(self) -> BatchResult:
        """Claim partitions and copy their segments until no work is left or a stop condition is met."""
        started = self._clock.monotonic()
        with self._heartbeat:
            with ThreadPoolExecutor(BATCH_BOUND * MOST_TRANSFERS, "transfer") as threads:
                ended = self._pull(threads)
            throttled = self._note_throttled()
        sent_bytes, seconds = sum(each.sent_bytes for each in self._copied), self._clock.monotonic() - started
        return BatchResult(tuple(self._copied), tuple(self._failed), sent_bytes, seconds, ended, throttled)

    def _pull(self, threads: ThreadPoolExecutor) -> BatchEnd:
        """Begin transfers and collect their results until the batch has a reason to end; return the reason."""
        ended: BatchEnd | None = None
        with self._releasing_all():
            while True:
                self._collect()
                if ended is None:
                    ended = self._start(threads)
                if self._partitions:
                    self._changed.wait(_TICK_SECONDS)
                    self._changed.clear()
                elif ended is not None:
                    return ended
                elif not self._loop.wait_for_work(lambda: self._work.has_work(self._run_id, self._placement)):
                    return BatchEnd.NO_WORK

    @contextmanager
    def _releasing_all(self) -> Iterator[None]:
        """If the block fails, stop what is in flight, wait for its end, and release the leases."""
        try:
            yield
        except BaseException:
            self._cancellation.stop("the batch has failed")
            for partition in self._partitions:
                for transfer in partition.in_flight:
                    if transfer.copied.exception() is not None:
                        self._admission.failed(transfer.admission)
                if partition.settlement is not None:
                    partition.settlement.settled.exception()
                self._heartbeat.release(partition.held)
            raise

    def _start(self, threads: ThreadPoolExecutor) -> BatchEnd | None:
        """Begin as many transfers as the limits allow; return why the batch has to end, None if it goes on.

        While the database does not answer, nothing is begun, and what is in flight goes on.
        """
        if self._clock.monotonic() < self._start_again_at and self._partitions:
            return None
        try:
            return self._start_transfers(threads)
        except MetadataUnavailableError as error:
            if not self._partitions:
                raise
            _log.warning("no transfer is begun for now: %s", error)
            self._start_again_at = self._clock.monotonic() + _CLAIM_AGAIN_SECONDS
            return None

    def _start_transfers(self, threads: ThreadPoolExecutor) -> BatchEnd | None:
        while True:
            self._look_at_limits()
            in_flight = InFlight.of(self._partitions, self._quotas.share)
            allows = partial(self._limit.allows_another, in_flight, self._copier.storage.slow_downs)
            ready = [each for each in self._partitions if each.may_start]
            partition = next(filter(allows, ready), None)
            is_due = not self._partitions or self._clock.monotonic() >= self._claim_again_at
            may_claim = is_due and all(self._limit.is_held_back(in_flight, each) for each in ready) and allows(None)
            if partition is None and not may_claim:
                return None
            if (ended := self._stop_conditions.reason_to_end()) is not None:
                for each in self._partitions:
                    self._leave(each)
                return ended
            if partition is not None:
                self._begin(partition, threads)
            elif not self._claim(in_flight.exhausted, threads):
                return None

    def _look_at_limits(self) -> None:
        """Once a second, set how much may be in flight: the limits, but at most this batch's part of all transfers."""
        if self._clock.monotonic() < self._look_again_at:
            return
        self._look_again_at = self._clock.monotonic() + _LOOK_AGAIN_SECONDS
        now, batches = self._limits_now(), max(1, len(self._work.running_batches()))
        self._limit.most_bytes = now.queued_bytes
        self._limit.most = min(now.transfers, max(1, now.total_transfers // batches))

    def _claim(self, exhausted: frozenset[Scope], threads: ThreadPoolExecutor) -> bool:
        """Take a further partition and begin to settle its abandoned copies; return False if none can be claimed now.

        Partitions whose copies would wait for the quota of an `exhausted` scope are not claimed.
        """
        excluded = self._loop.excluded() | {partition.key for partition in self._partitions}
        held = self._heartbeat.claim(lambda: self._scheduler.claim(excluded, exhausted))
        if held is None:
            self._claim_again_at = self._clock.monotonic() + _CLAIM_AGAIN_SECONDS
            return False
        partition = LeasedPartition(held)
        self._partitions.append(partition)
        planned = self._work.remaining(partition.lease)
        if planned and not self._admission.must_wait(partition.lease.replica_id):
            partition.to_start.extend(planned)
            self._heartbeat.add_planned(sum(segment.size_bytes for segment in planned))
            self._begin_to_settle(partition, threads)
            self._claim_again_at = self._clock.monotonic() + _CLAIM_PACE_SECONDS
        self._release_if_ended(partition)
        return True

    def _begin_to_settle(self, partition: LeasedPartition, threads: ThreadPoolExecutor) -> None:
        planned = tuple(partition.to_start)
        partition.settlement = Settlement(planned, threads.submit(self._settle, partition, planned))
        partition.settlement.settled.add_done_callback(lambda _: self._changed.set())

    def _settle(
        self, partition: LeasedPartition, planned: tuple[PlannedSegment, ...]
    ) -> tuple[frozenset[int], int | None]:
        """Settle the abandoned copies, in a thread of its own; return what `Settlement.settled` ends with."""
        if not self._copier.metadata.is_ready(partition.key):
            raise MetadataUnavailableError("its metadata is not complete: ./tiering ready")
        lease, limiter = partition.lease, self._new_limiter(partition, partition.held.token.check_now)
        kept = self._abandoned_copies.settle(lease.replica_id, planned, fence=lease.fence, limiter=limiter)
        self._copier.require_ours(partition.key)
        return kept, self._copier.metadata.highest_copied_offset(partition.key)

    def _note_settled(self, partition: LeasedPartition, settlement: Settlement) -> None:
        """Note what is copied, and which copies are settled again before their segments are begun: not the first."""
        partition.settlement, first = None, settlement.planned[0]
        with self._failing(partition, first):
            kept, partition.highest = settlement.settled.result()
            partition.kept = kept - {first.base_offset}

    def _new_limiter(self, partition: LeasedPartition, go_on: GoOn) -> ByteLimiter:
        return self._quotas.copy(partition.lease.replica_id.broker_id, partition.key.topic, go_on=go_on)

    def _begin(self, partition: LeasedPartition, threads: ThreadPoolExecutor) -> None:
        """Begin the transfer of the next segment, or record why that is needless, or leave the partition."""
        planned, lease = partition.to_start[0], partition.lease
        excluded = self._loop.excluded() | {each.key for each in self._partitions}
        if partition.has_begun and self._scheduler.hand_on(lease, partition.quota_wait_seconds(), excluded):
            self._leave(partition)
            return
        if partition.held.token.paused:
            return  # since `may_start`: what is in flight may wait for the end of the pause
        with self._failing(partition, planned, reraise=(MetadataUnavailableError,)):
            partition.held.token.check_now()
            if planned.base_offset in partition.kept:
                self._begin_to_settle(partition, threads)
                return
            if (needless := self._why_needless(partition, planned)) is not None:
                skipped = WorkItem(partition.key, planned, SegmentOutcome.SKIPPED, message=needless)
                self._work.record_outcome(lease, skipped)
                partition.to_start.popleft()
                self._heartbeat.add_planned(-planned.size_bytes)
                return
            admission = self._admission.admit(lease.replica_id, planned)
            transfer = Transfer(planned, self._new_limiter(partition, partition.held.token.check), admission)
            before = partition.in_flight[-1].copied if partition.in_flight else None
            transfer.copied = threads.submit(self._copy, partition.lease, transfer, partition.highest, before)
            transfer.copied.add_done_callback(lambda _: self._changed.set())
            partition.to_start.popleft()
            partition.has_begun = True
            partition.in_flight.append(transfer)
            if partition.highest is None or partition.highest < planned.end_offset:
                partition.highest = planned.end_offset
            if partition.quota_wait_seconds() >= EXHAUSTED_SECONDS:
                self._partitions.append(self._partitions.pop(self._partitions.index(partition)))

    def _copy(
        self, lease: Lease, transfer: Transfer, highest: int | None, before: Future[CopiedSegment] | None
    ) -> CopiedSegment:
        """Copy one segment, in a thread of its own."""
        turn = None if before is None else partial(transfer.wait_for_turn, before, self._clock, self._changed.set)
        with transfer.noting_use(self._clock), self._heartbeat.counting(transfer.planned.size_bytes) as on_sent:
            copy = partial(self._copier.copy, fence=lease.fence, limiter=transfer.limiter, on_sent=on_sent, turn=turn)
            return copy(lease.replica_id, transfer.planned, highest)

    def _collect(self) -> None:
        """Record the transfers that have ended, in the order of their segments, and release partitions without work."""
        for partition in list(self._partitions):
            if partition.settlement is not None and partition.settlement.settled.done():
                self._note_settled(partition, partition.settlement)
            while partition.in_flight and partition.in_flight[0].copied.done():
                self._end(partition, partition.in_flight.popleft())
            self._release_if_ended(partition)

    def _end(self, partition: LeasedPartition, transfer: Transfer) -> None:
        self._quotas.held_back(QuotaKind.COPY, transfer.limiter.waited_seconds)
        partition.waited_seconds += transfer.limiter.waited_seconds
        with self._failing(partition, transfer.planned):
            try:
                copied = transfer.copied.result()
            except TieringError as error:
                self._admission.failed(transfer.admission)
                if partition.has_failed or isinstance(error, (SendingStoppedError, LeaseLostError)):
                    self._heartbeat.add_planned(-transfer.planned.size_bytes)
                raise
            self._copied.append(copied)
            self._limit.note_end(transfer)
            try:
                self._topic_quotas.accepted(transfer.admission)
                outcome, segment_id = SegmentOutcome.COPIED, str(copied.segment_id.id)
                item = WorkItem(partition.key, transfer.planned, outcome, segment_id=segment_id)
                self._work.record_outcome(partition.lease, item)
            except MetadataUnavailableError as error:
                # The next holder of the lease finds the segment copied and records that.
                log = for_partition(_log, partition.key)
                log.warning("copied at offset %s, which is not recorded yet: %s", transfer.planned.base_offset, error)
        if transfer.copied.exception() is None:
            self._on_copied(transfer.copied.result())

    @contextmanager
    def _failing(
        self, partition: LeasedPartition, planned: PlannedSegment, *, reraise: tuple[type[TieringError], ...] = ()
    ) -> Iterator[None]:
        """If the block raises a TieringError, begin nothing more of the partition and stop what is in flight of it.

        Errors in `reraise` are raised instead. The first error of a partition is recorded; the errors of later
        transfers are its consequences. If the segment vanished from the source, its copy may be whole all the same, and
        so may the later ones: nothing is stopped.
        """
        try:
            yield
        except reraise:
            raise
        except TieringError as error:
            log = for_partition(_log, partition.key)
            is_first, partition.has_failed = not partition.has_failed, True
            self._leave(partition)
            if not isinstance(error, (SourceVanishedError, QuotaExceededError)):
                partition.held.token.stop(f"the copy at offset {planned.base_offset} did not succeed")
            if not is_first:
                log.debug("not copied at offset %s: %s", planned.base_offset, error)
            elif isinstance(error, QuotaExceededError):
                # A warning, because the command line shows nothing below it; backing off keeps these lines few.
                log.warning("waits at offset %s: %s", planned.base_offset, error)
                partition.has_failed = False
            elif isinstance(error, SendingStoppedError):
                log.info("left for now: %s", error)
            elif isinstance(error, LeaseLostError):
                log.warning("%s", error)
                self._heartbeat.on_lease_lost(partition.lease)
            else:
                self._loop.set_aside.add(partition.key)
                self._give_up(partition.lease, planned, error)

    def _leave(self, partition: LeasedPartition) -> None:
        """Begin nothing more of the partition under this lease."""
        self._heartbeat.add_planned(-sum(segment.size_bytes for segment in partition.to_start))
        partition.to_start.clear()

    def _release_if_ended(self, partition: LeasedPartition) -> None:
        if partition.has_ended:
            self._partitions.remove(partition)
            self._heartbeat.release(partition.held)
            self._claim_again_at = self._clock.monotonic()

    def _note_throttled(self) -> tuple[TopicIdPartition, ...]:
        throttled = self._admission.throttled()
        for partition, error in throttled.items():
            self._work.record_left_reason(self._run_id, partition, error=type(error).__name__, message=str(error))
        return tuple(throttled)

    def _why_needless(self, partition: LeasedPartition, planned: PlannedSegment) -> str | None:
        """Return why the segment need not be copied any more; None if it must be.

        Its offsets are copied already; or it would replace a segment whose state is not FINISHED any more, or whose
        verdict is not FAILED any more.
        """
        if planned.supersedes is None:
            is_copied = partition.highest is not None and partition.highest >= planned.end_offset
            return "already copied" if is_copied else None
        try:
            self._copier.failed(partition.key, planned)
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
            message=failure_message(planned, error),
        )
        self._failed.append(UncopiedSegment(item, error.retriable))
        if not isinstance(error, SourceError) and error.retriable:
            return
        try:
            self._work.record_outcome(lease, item)
        except (LeaseLostError, MetadataUnavailableError) as unrecorded:
            # The other partitions go on. The next holder of the lease meets the same error and records it.
            for_partition(_log, partition).warning("this failure is not recorded: %s", unrecorded)
            self._heartbeat.on_lease_lost(lease)
