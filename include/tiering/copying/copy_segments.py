"""One batch of a copy run: a stream that pulls partitions and copies their segments strictly in order.

A batch takes a lease on the most urgent partition with work, copies its planned segments one after another, gives it
back and takes the next, until nothing is left, its time is over, or its pool has no room for it any more. Between
segments it waits while paused. A partition whose topic quota is exceeded is given back until it may be tried again; one
that met an exhausted copy quota may be given back for another that has waited longer (`turns`).
What the batch could not finish stays planned for another batch or the next run.

What a killed batch leaves: a lease that expires, and what `copy_one_segment` says of the segment it was in.
"""

from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.clock import Clock
from include.tiering.copying.check_ahead import CheckAhead
from include.tiering.copying.copy_one_segment import CopiedSegment, SegmentCopier
from include.tiering.copying.leftover_copies import LeftoverCopies
from include.tiering.copying.topic_admission import TopicAdmission
from include.tiering.copying.turns import Turns
from include.tiering.errors import (
    CorruptFileError,
    LeaseLostError,
    QuotaExceededError,
    SendingStoppedError,
    SourceError,
    StateConflictError,
    TieringError,
)
from include.tiering.model.ids import TopicIdPartition
from include.tiering.quotas.contract import ByteLimiter, Quotas
from include.tiering.quotas.topic_quotas import NO_TOPIC_QUOTAS, TopicQuotas
from include.tiering.runs.batch import BatchEnd, BatchHeartbeat, BatchRoom, SendGate
from include.tiering.runs.contract import Lease, Placement, PlannedSegment, SegmentOutcome, WorkItem, WorkStore
from include.tiering.segments.stored_copies import WholeCopy
from include.tiering.telemetry import for_partition, get_logger

_log: Final = get_logger(__name__)
_PAUSE_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class FailedSegment:
    """A planned segment that was not copied, and why. `retriable`: another try may succeed as things are."""

    item: WorkItem
    retriable: bool


@dataclass(frozen=True, slots=True)
class BatchResult:
    """`sent_bytes` counts all objects, on the wire once; retries inside the store's client are not in it.

    `throttled` are partitions that topic quotas refused to the end: what is planned of them stays planned.
    """

    copied: tuple[CopiedSegment, ...]
    failed: tuple[FailedSegment, ...]
    sent_bytes: int
    seconds: float
    ended: BatchEnd
    throttled: tuple[TopicIdPartition, ...] = ()

    @property
    def worth_retrying(self) -> bool:
        """True if something failed and nothing of it needs a person."""
        return bool(self.failed) and all(failure.retriable for failure in self.failed)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """`pool` names the Airflow pool whose slot this batch holds, None if it runs outside of Airflow.

    A batch takes partitions of one `placement`; None = of every placement. With `fairness` partitions take turns while
    the copy quota is exhausted.
    """

    max_seconds: float
    lease_ms: int
    pool: str | None = None
    placement: Placement | None = None
    fairness: bool = True


class CopyBatch:
    """Runs once. All that it may do comes in through the arguments."""

    def __init__(
        self,
        copier: SegmentCopier,
        work: WorkStore,
        quotas: Quotas,
        gate: SendGate,
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
        self._leftovers = LeftoverCopies(self._copier, WholeCopy(copier.storage, quotas), claim)
        self._ahead = ahead
        self._work = work
        self._quotas = quotas
        self._gate = gate
        self._heartbeat = heartbeat
        self._clock = clock
        self._run_id = run_id
        self._batch_id = batch_id
        self._limits = limits
        self._turns = Turns(
            work,
            run_id,
            batch_id,
            lease_ms=limits.lease_ms,
            placement=limits.placement,
            fairness=limits.fairness,
        )
        self._on_copied = on_copied
        self._admission = TopicAdmission(topic_quotas, clock)
        self._room = BatchRoom(work, gate, clock, batch_id=batch_id, pool=limits.pool, max_seconds=limits.max_seconds)
        self._given_up: set[TopicIdPartition] = set()
        self._copied: list[CopiedSegment] = []
        self._failed: list[FailedSegment] = []

    def run(self) -> BatchResult:
        """Pull partitions until there is a reason to end."""
        started = self._clock.monotonic()
        with self._heartbeat:
            ended = self._pull()
            throttled = self._note_throttled()
        sent_bytes = sum(segment.sent_bytes for segment in self._copied)
        seconds = self._clock.monotonic() - started
        return BatchResult(tuple(self._copied), tuple(self._failed), sent_bytes, seconds, ended, throttled)

    def _pull(self) -> BatchEnd:
        while (ended := self._room.reason_to_end()) is None:
            lease = self._heartbeat.claim(lambda: self._turns.claim(self._excluded()))
            if lease is None:
                if not self._wait_for_work():
                    return BatchEnd.NO_WORK
                continue
            try:
                self._copy_partition(lease)
            except LeaseLostError as error:
                for_partition(_log, lease.replica_id.topic_id_partition).warning("%s", error)
                self._heartbeat.lost(lease)
            except SendingStoppedError as error:
                for_partition(_log, lease.replica_id.topic_id_partition).info("left for now: %s", error)
            finally:
                self._heartbeat.release()
        return ended

    def _excluded(self) -> Set[TopicIdPartition]:
        return self._given_up | self._admission.waiting()

    def _wait_for_work(self) -> bool:
        """True if paused or throttled topics still hold work of this run, after a short wait."""
        is_held = bool(self._work.paused_topics() or self._admission.waiting())
        if not is_held or not self._work.has_work(self._run_id, self._limits.placement):
            return False
        self._clock.sleep(_PAUSE_POLL_SECONDS)
        return True

    def _note_throttled(self) -> tuple[TopicIdPartition, ...]:
        throttled = self._admission.throttled()
        for partition, error in throttled.items():
            self._work.note_left(self._run_id, partition, error=type(error).__name__, message=str(error))
        return tuple(throttled)

    def _copy_partition(self, lease: Lease) -> None:
        planned = self._work.remaining(lease)
        if not planned or self._admission.must_wait(lease.replica_id):
            return
        partition = lease.replica_id.topic_id_partition
        limiter = self._quotas.copy(lease.replica_id.broker_id, partition.topic, go_on=self._gate.check)
        try:
            self._leftovers.settle(lease.replica_id, planned, fence=lease.fence, limiter=limiter)
            self._copier.require_ours(partition)
        except (LeaseLostError, SendingStoppedError):
            raise
        except TieringError as error:
            self._give_up(lease, planned[0], error)
            return
        self._heartbeat.add_planned(sum(segment.size_bytes for segment in planned))
        with self._checking_ahead(lease, planned):
            self._copy_in_order(lease, planned, limiter)

    def _checking_ahead(self, lease: Lease, planned: Sequence[PlannedSegment]) -> AbstractContextManager[None]:
        if self._ahead is None:
            return nullcontext()
        return self._ahead.expecting(lease.replica_id, planned, lambda: not self._turns.is_taking_turns)

    def _copy_in_order(self, lease: Lease, planned: Sequence[PlannedSegment], limiter: ByteLimiter) -> None:
        partition = lease.replica_id.topic_id_partition
        queue = list(planned)
        highest = self._copier.metadata.highest_copied_offset(partition)
        while queue and self._room.reason_to_end() is None:
            if self._gate.paused:
                self._clock.sleep(_PAUSE_POLL_SECONDS)
                continue
            goes_on = self._copy_planned(lease, queue[0], highest, limiter)
            if partition in self._given_up:
                return
            if goes_on:
                # Nobody else copies while the lease is ours.
                end_offset = queue.pop(0).end_offset
                highest = end_offset if highest is None else max(highest, end_offset)
            if not goes_on or (queue and self._turns.hand_on(lease, limiter, self._excluded())):
                self._heartbeat.add_planned(-sum(segment.size_bytes for segment in queue))
                return

    def _copy_planned(self, lease: Lease, planned: PlannedSegment, highest: int | None, limiter: ByteLimiter) -> bool:
        """False: the partition is left for now; who claims it next cleans up before it begins anew."""
        partition = lease.replica_id.topic_id_partition
        try:
            if (needless := self._why_needless(partition, planned, highest)) is not None:
                self._record(lease, planned, SegmentOutcome.SKIPPED, message=needless)
                return True
            with (
                self._admission.admitted(lease.replica_id, planned),
                self._heartbeat.counting(planned.size_bytes) as on_sent,
            ):
                copied = self._copier.copy(
                    lease.replica_id, planned, highest, fence=lease.fence, limiter=limiter, on_sent=on_sent
                )
        except QuotaExceededError as error:
            for_partition(_log, partition).info("waits at %s: %s", planned.base_offset, error)
            return False
        except SendingStoppedError:
            return False
        except LeaseLostError:
            raise
        except TieringError as error:
            self._give_up(lease, planned, error)
            return False
        self._record(lease, planned, SegmentOutcome.COPIED, segment_id=str(copied.segment_id.id))
        self._copied.append(copied)
        self._on_copied(copied)
        return True

    def _why_needless(self, partition: TopicIdPartition, planned: PlannedSegment, highest: int | None) -> str | None:
        """Why it need not be copied any more: somebody else did, or it passed, since it was planned."""
        if planned.supersedes is None:
            return "already copied" if highest is not None and highest >= planned.end_offset else None
        try:
            self._copier.failed(partition, planned)
        except StateConflictError as error:
            return str(error)
        return None

    def _give_up(self, lease: Lease, planned: PlannedSegment, error: TieringError) -> None:
        """Stop the partition: for this batch if another try may help, else for the run."""
        partition = lease.replica_id.topic_id_partition
        for_partition(_log, partition).warning("stopped at %s: %s", planned.base_offset, error)
        self._given_up.add(partition)
        item = WorkItem(
            topic_id_partition=partition,
            segment=planned,
            outcome=SegmentOutcome.FAILED,
            path=error.path if isinstance(error, SourceError) else None,
            position=error.position if isinstance(error, SourceError) else None,
            error=type(error).__name__,
            message=_message(planned, error),
        )
        self._failed.append(FailedSegment(item, error.retriable))
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
