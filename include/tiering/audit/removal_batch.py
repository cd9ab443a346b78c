"""One batch of a run that removes what no metadata knows: a stream that pulls partitions, as `delete_batch` does.

It takes a lease to expire a partition, removes what is planned of it in groups, gives it back and takes the next.
Before each group it waits while paused and pays for one request. It never waits for a copy, nor a copy for it.

What a killed batch leaves: a lease that expires, and what `remove_strays` says of the group it was in.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.audit.removal_contract import PlannedRemoval, RemovalItem, RemovalOutcome
from include.tiering.audit.remove_strays import ATTEMPTS_PER_GROUP, StrayRemover, by_attempt
from include.tiering.clock import Clock
from include.tiering.errors import ApprovalRequiredError, LeaseLostError, SendingStoppedError, TieringError
from include.tiering.model.ids import TopicIdPartition
from include.tiering.quotas.contract import Quotas
from include.tiering.runs.batch_heartbeat import BatchHeartbeat
from include.tiering.runs.batch_room import BatchEnd, BatchRoom
from include.tiering.runs.contract import PartitionLease, WorkStore
from include.tiering.runs.send_gate import SendGate
from include.tiering.telemetry import for_partition, get_logger

_log: Final = get_logger(__name__)
_PAUSE_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class RemovalResult:
    """What one batch did. `waiting` failed and may succeed later; what else it left is still planned."""

    items: tuple[RemovalItem, ...]
    waiting: tuple[RemovalItem, ...]
    seconds: float
    ended: BatchEnd

    def of(self, outcome: RemovalOutcome) -> list[RemovalItem]:
        return [item for item in self.items if item.outcome is outcome]


class RemovalBatch:
    """Runs once, for a run that was released."""

    def __init__(
        self,
        remover: StrayRemover,
        work: WorkStore,
        quotas: Quotas,
        gate: SendGate,
        heartbeat: BatchHeartbeat,
        room: BatchRoom,
        clock: Clock,
        *,
        run_id: str,
        batch_id: str,
        lease_ms: int,
        attempts_per_group: int = ATTEMPTS_PER_GROUP,
    ) -> None:
        self._remover = remover
        self._work = work
        self._quotas = quotas
        self._gate = gate
        self._heartbeat = heartbeat
        self._room = room
        self._clock = clock
        self._run_id = run_id
        self._batch_id = batch_id
        self._lease_ms = lease_ms
        self._attempts_per_group = attempts_per_group
        self._given_up: set[TopicIdPartition] = set()
        self._items: list[RemovalItem] = []
        self._waiting: list[RemovalItem] = []

    def run(self) -> RemovalResult:
        """Pull partitions until there is a reason to end.

        Raises:
            ApprovalRequiredError: the run is not released.
            RunWithdrawnError: it was withdrawn before.
            StateConflictError: no such run was planned.
        """
        run = self._remover.removals.run(self._run_id)
        run.require_not_withdrawn()
        if not run.is_released:
            raise ApprovalRequiredError(
                f"run {self._run_id}: nothing is removed before plan {run.plan_hash} was approved"
            )
        started = self._clock.monotonic()
        with self._heartbeat:
            ended = self._pull()
        return RemovalResult(tuple(self._items), tuple(self._waiting), self._clock.monotonic() - started, ended)

    def _pull(self) -> BatchEnd:
        while (ended := self._room.reason_to_end()) is None:
            lease = self._heartbeat.claim(self._claim)
            if lease is None:
                if not self._wait_out_a_pause():
                    is_withdrawn = self._remover.removals.run(self._run_id).withdrawal is not None
                    return BatchEnd.WITHDRAWN if is_withdrawn else BatchEnd.NO_WORK
                continue
            try:
                self._work_on(lease)
            except (LeaseLostError, SendingStoppedError) as error:
                for_partition(_log, lease.fence.topic_id_partition).warning("%s", error)
                self._heartbeat.lost(lease)
            finally:
                self._heartbeat.release()
        return ended

    def _claim(self) -> PartitionLease | None:
        return self._remover.removals.claim(
            self._run_id, self._batch_id, lease_ms=self._lease_ms, exclude=self._given_up
        )

    def _wait_out_a_pause(self) -> bool:
        """True if paused topics still hold work of this run, after a short wait."""
        if not self._work.paused_topics() or not self._remover.removals.has_work(self._run_id):
            return False
        self._clock.sleep(_PAUSE_POLL_SECONDS)
        return True

    def _work_on(self, lease: PartitionLease) -> None:
        planned = self._remover.removals.remaining(lease)
        self._heartbeat.add_planned(sum(one.size_bytes for one in planned))
        partition = lease.fence.topic_id_partition
        limiter = self._quotas.delete(partition.topic, go_on=self._gate.check)
        groups = self._groups(planned)
        group = next(groups, None)
        while group is not None and self._room.reason_to_end() is None:
            if self._gate.paused:
                self._clock.sleep(_PAUSE_POLL_SECONDS)
                continue
            limiter.take()
            if not self._remover.is_ours(lease, planned) or not self._remove(lease, group):
                return
            group = next(groups, None)

    def _groups(self, planned: Sequence[PlannedRemoval]) -> Iterator[list[PlannedRemoval]]:
        attempts = by_attempt(planned)
        for first in range(0, len(attempts), self._attempts_per_group):
            yield [one for _, some in attempts[first : first + self._attempts_per_group] for one in some]

    def _remove(self, lease: PartitionLease, group: Sequence[PlannedRemoval]) -> bool:
        """Whether the partition may be gone on with."""
        try:
            outcome = self._remover.remove(lease, group)
        except (LeaseLostError, SendingStoppedError):
            raise
        except TieringError as error:
            for_partition(_log, lease.fence.topic_id_partition).warning("removal stopped: %s", error)
            state = RemovalOutcome.PLANNED if error.retriable else RemovalOutcome.FAILED
            self._give_up(lease, [RemovalItem(one, state, f"{type(error).__name__}: {error}") for one in group])
            return False
        self._items.extend(outcome.items)
        self._heartbeat.add_done(sum(item.planned.size_bytes for item in outcome.items))
        self._waiting.extend(outcome.waiting)
        if outcome.waiting:
            self._given_up.add(lease.fence.topic_id_partition)
        return not outcome.waiting

    def _give_up(self, lease: PartitionLease, failed: Sequence[RemovalItem]) -> None:
        """Leave the partition for this batch. What needs a person is recorded; the rest stays planned."""
        self._given_up.add(lease.fence.topic_id_partition)
        settled = [item for item in failed if item.outcome is RemovalOutcome.FAILED]
        self._remover.removals.record_outcomes(lease, settled)
        self._items.extend(settled)
        self._waiting.extend(item for item in failed if item.outcome is RemovalOutcome.PLANNED)
