"""The batch loop that copying, expiration and orphan removal run on: claims, cancellation, stop conditions, heartbeat.

- The `BatchLoop` claims a partition under a lease, has its work done in groups, and gives the lease back.
- The `CancellationToken` of a lease says, before every grant of a copy or delete quota, whether this worker may still
  send. The heartbeat sets its state: a pause or the death of the parent process stops the sending at the next heartbeat
  (every `BEAT_SECONDS`), a lost lease at the next renewal, which is due when a third of the lease has passed.
- `StopConditions` end the batch when its time is over, its pool has become too small, or the batch was cancelled.
- The `BatchHeartbeat` thread renews the leases, reports the progress, and looks for pauses and a dead parent process.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Generic, Self
from weakref import WeakSet

from include.tiering.clock import Clock
from include.tiering.errors import LeaseLostError, MetadataUnavailableError, SendingStoppedError, TieringError
from include.tiering.model.ownership import PartitionLease
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.contract import ALL_TOPICS, AnyLease, BatchProgress, WorkStore
from include.tiering.telemetry import for_partition, get_logger

PAUSE_HOLD_SECONDS: Final = 20.0
BEAT_SECONDS: Final = 0.4
_PAUSE_POLL_SECONDS: Final = 0.5
_log: Final = get_logger(__name__)


class CancellationToken:
    """Says whether work may continue; can be cancelled for good, or paused for a while.

    During a pause `check` waits for at most `pause_hold_seconds`, about as long as a store keeps an idle connection.
    After that the caller gives up its attempt; another attempt may begin after the pause.
    """

    def __init__(self, clock: Clock, *, pause_hold_seconds: float = PAUSE_HOLD_SECONDS) -> None:
        self._clock = clock
        self._pause_hold_seconds = pause_hold_seconds
        self._changed = threading.Condition()
        self._paused = False
        self._pauses = 0
        self._stop_reason: str | None = None
        self._lease_valid_until: float | None = None
        self._of_leases: WeakSet[CancellationToken] = WeakSet()

    def for_lease(self) -> "CancellationToken":
        """Return a token of one lease, which is cancelled when this token is."""
        token = CancellationToken(self._clock, pause_hold_seconds=self._pause_hold_seconds)
        with self._changed:
            self._of_leases.add(token)
            token._stop_reason = self._stop_reason
        return token

    def check(self) -> None:
        """Wait until a short pause is over, then return if work may continue.

        Raises:
            SendingStoppedError: the token was cancelled, or the pause lasts longer than `pause_hold_seconds`.
            LeaseLostError: the lease ran out by this host's monotonic clock, or its renewal was refused because it was
                taken over, given back, or ended by a withdrawal of its run.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._paused or self._stop_reason, timeout=self._pause_hold_seconds)
            self.check_now(f"paused for more than {self._pause_hold_seconds:.0f} s")

    def check_now(self, if_paused: str = "paused") -> None:
        """As `check`, but in a pause raise SendingStoppedError at once, with the message `if_paused`."""
        with self._changed:
            if self._stop_reason is not None:
                raise SendingStoppedError(self._stop_reason)
            if self._paused:
                raise SendingStoppedError(if_paused)
            if self._lease_valid_until is not None and self._clock.monotonic() >= self._lease_valid_until:
                raise LeaseLostError("the lease was not renewed in time: another worker may own the partition")

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def pauses(self) -> int:
        """How many pauses have begun: if the number differs between two reads, a pause began between them."""
        return self._pauses

    @property
    def stop_reason(self) -> str | None:
        return self._stop_reason

    def set_paused(self, paused: bool) -> None:
        with self._changed:
            self._pauses += paused and not self._paused
            self._paused = paused
            self._changed.notify_all()

    def stop(self, reason: str) -> None:
        with self._changed:
            self._stop_reason = reason
            self._changed.notify_all()
            for token in self._of_leases:
                token.stop(reason)

    def lease_valid_until(self, monotonic_seconds: float | None) -> None:
        """Set the monotonic second from which on the lease counts as lost; None while no lease is held."""
        with self._changed:
            self._lease_valid_until = monotonic_seconds


class BatchEnd(StrEnum):
    """Why a batch ended."""

    NO_WORK = "no work left"
    TIME_OVER = "its time is over"
    SURPLUS = "its pool was made smaller"
    STOPPED = "stopped"
    WITHDRAWN = "its run was withdrawn"


class StopConditions:
    """When one batch ends. `max_seconds` count from the creation of this object; `pool` is None outside of Airflow."""

    def __init__(
        self,
        work: WorkStore,
        cancellation: CancellationToken,
        clock: Clock,
        *,
        batch_id: str,
        pool: str | None,
        max_seconds: float,
    ) -> None:
        self._work = work
        self._cancellation = cancellation
        self._clock = clock
        self._batch_id = batch_id
        self._pool = pool
        self._deadline = clock.monotonic() + max_seconds

    def reason_to_end(self) -> BatchEnd | None:
        """Return why the batch must end, None if it may begin more work. Call this before each new piece of work."""
        if self._cancellation.stop_reason is not None:
            return BatchEnd.STOPPED
        if self._clock.monotonic() >= self._deadline:
            return BatchEnd.TIME_OVER
        if self._is_surplus():
            return BatchEnd.SURPLUS
        return None

    def _is_surplus(self) -> bool:
        """Return whether earlier live batches leave this live batch no slot; False for an unknown or negative size."""
        if self._pool is None or (slots := self._work.pool_size(self._pool)) is None or slots < 0:
            return False
        return self._batch_id in self._work.live_batches(self._pool)[slots:]


@dataclass(slots=True, eq=False)
class HeldLease(Generic[AnyLease]):
    """A lease that this batch holds, as claimed (`taken`) and as renewed last (`current`: None once it was lost).

    `token` refuses when the work on its partition may not continue. `renew_at` is a monotonic second.
    """

    taken: AnyLease
    token: CancellationToken
    current: AnyLease | None
    renew_at: float = 0.0


class BatchHeartbeat:
    """Runs as long as the batch; makes the tokens refuse when the batch may not continue.

    An unreachable database does not stop the sending until a lease has run out by this host's clock. From then on the
    token of this lease refuses, because another worker may hold the partition.
    """

    def __init__(
        self,
        work: WorkStore,
        cancellation: CancellationToken,
        clock: Clock,
        *,
        identity: BatchProgress,
        lease_ms: int,
        parent_alive: Callable[[], bool],
    ) -> None:
        self._work = work
        self._cancellation = cancellation
        self._clock = clock
        self._identity = identity
        self._lease_ms = lease_ms
        self._parent_alive = parent_alive
        self._lock = threading.RLock()
        self._counting = threading.Lock()
        self._held: list[HeldLease[Any]] = []
        self._done_bytes = 0
        self._planned_bytes = 0
        self._finished = False
        self._reported: tuple[float, int] = (clock.monotonic(), 0)
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heartbeat-{identity.batch_id}", daemon=True)

    def __enter__(self) -> Self:
        self.beat()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._wake.set()
        self._thread.join()
        self._finished = True
        self._ignoring_outage(self._report)

    def claim(self, take: Callable[[], AnyLease | None]) -> HeldLease[AnyLease] | None:
        """Take a lease. Here it counts from before the call of `take`, so it ends no later than in the database."""
        before = self._clock.monotonic()
        taken = take()  # without the lock: the leases that are held already are renewed meanwhile
        if taken is None:
            return None
        with self._lock:
            held = HeldLease(taken, self._cancellation.for_lease(), current=taken)
            self._watch_pause(held)  # if the database does not answer, the lease is left to expire
            self._held.append(held)
            self._hold_from(held, before)
            return held

    def release(self, held: HeldLease[AnyLease]) -> None:
        """Give the lease back. Do nothing if it was lost; if the database is unreachable, leave it to expire."""
        with self._lock:
            self._held.remove(held)
            lease, held.current = held.current, None
            held.token.lease_valid_until(None)
            if lease is not None:
                self._ignoring_outage(lambda: self._work.release(lease))

    def on_lease_lost(self, lease: PartitionLease) -> None:
        """Cancel the batch if another process of the same batch holds the lease that this process has lost.

        The task was started again then, and both processes would take the lease from each other.
        """
        fence, mine = lease.fence, (lease.run_id, lease.batch_id)

        def stop_if_restarted() -> None:
            holder = self._work.holder(fence.topic_id_partition, fence.role)
            if holder is not None and (holder.run_id, holder.batch_id) == mine and holder.token != fence.token:
                self._cancellation.stop("this batch was started again, and another process runs it")

        self._ignoring_outage(stop_if_restarted)

    def add_planned(self, size_bytes: int) -> None:
        with self._counting:
            self._planned_bytes += size_bytes

    def add_done(self, size_bytes: int) -> None:
        with self._counting:
            self._done_bytes += size_bytes

    @contextmanager
    def counting(self, segment_bytes: int) -> Iterator[Callable[[int], None]]:
        """Count the bytes of one segment as they are sent, at most `segment_bytes`; subtract them if the block fails.

        After a block without an error exactly `segment_bytes` are counted, even if fewer were sent. Several threads may
        each count a segment of their own.
        """
        sent_bytes = 0

        def count_up_to(total_bytes: int) -> None:
            nonlocal sent_bytes
            before, sent_bytes = min(sent_bytes, segment_bytes), total_bytes
            self.add_done(min(sent_bytes, segment_bytes) - before)

        try:
            yield lambda size_bytes: count_up_to(sent_bytes + size_bytes)
        except BaseException:
            count_up_to(0)
            raise
        count_up_to(segment_bytes)

    def beat(self) -> None:
        """Check the parent process and the pauses; renew the leases and report the progress if that is due."""
        if not self._parent_alive():
            self._cancellation.stop("the process that started this batch is gone")
        with self._lock:
            self._ignoring_outage(self._watch_pause)
            self._renew()
        if self._clock.monotonic() - self._reported[0] >= 1.0 or self._reported[1] == 0:
            self._ignoring_outage(self._report)

    def _run(self) -> None:
        """Beat until the batch ends; an error cancels the token, as pauses and lost leases would go unnoticed."""
        try:
            while not self._wake.wait(BEAT_SECONDS):
                self.beat()
        except TieringError as error:
            _log.error("heartbeat of batch %s failed: %s: %s", self._identity.batch_id, type(error).__name__, error)
        finally:
            if not self._wake.is_set():
                self._cancellation.stop("the heartbeat failed: pauses and a lost lease would go unnoticed")

    def _watch_pause(self, *more: HeldLease[Any]) -> None:
        paused = self._work.paused_topics()
        for held in (*self._held, *more):
            topic = held.taken.fence.topic_id_partition.topic
            held.token.set_paused(ALL_TOPICS in paused or topic in paused)

    def _renew(self) -> None:
        looked_at = self._clock.monotonic()
        for held in self._held:
            before = self._clock.monotonic()
            if held.current is None or before < held.renew_at:
                continue
            if before - looked_at >= BEAT_SECONDS:  # to renew many leases may take longer than a pause may wait
                self._ignoring_outage(self._watch_pause)
                looked_at = before
            try:
                held.current = self._work.renew(held.current, lease_ms=self._lease_ms)
            except MetadataUnavailableError:
                continue
            except LeaseLostError:
                held.current = None
                held.token.lease_valid_until(before)
                continue
            self._hold_from(held, before)

    def _hold_from(self, held: HeldLease[AnyLease], monotonic_seconds: float) -> None:
        seconds = self._lease_ms / 1000
        held.renew_at = monotonic_seconds + seconds / 3
        held.token.lease_valid_until(monotonic_seconds + seconds)

    def _report(self) -> None:
        now, done = self._clock.monotonic(), self._done_bytes
        since, before = self._reported
        rate = max(0.0, (done - before) / (now - since)) if now > since else 0.0
        self._reported = (now, done)
        with self._lock:
            first, *others = [str(held.taken.fence.topic_id_partition) for held in self._held] or [""]
        report = replace(
            self._identity,
            partition=f"{first} and {len(others)} more" if others else first,
            done_bytes=done,
            planned_bytes=self._planned_bytes,
            bytes_per_second=rate,
            finished=self._finished,
        )
        self._work.report_progress(report)

    def _ignoring_outage(self, action: Callable[[], object]) -> None:
        with suppress(MetadataUnavailableError):
            action()


class BatchLoop:
    """The loop of one batch. It never claims partitions in `set_aside` again, nor those that are `throttled` now."""

    def __init__(
        self,
        work: WorkStore,
        cancellation: CancellationToken,
        heartbeat: BatchHeartbeat,
        stop_conditions: StopConditions,
        clock: Clock,
        *,
        throttled: Callable[[], Set[TopicIdPartition]] = frozenset,
    ) -> None:
        self.cancellation = cancellation  # of the lease that `pull` works on
        self.heartbeat = heartbeat
        self._work = work
        self._stop_conditions = stop_conditions
        self._clock = clock
        self._throttled = throttled
        self.set_aside: set[TopicIdPartition] = set()

    def pull(
        self,
        claim: Callable[[Set[TopicIdPartition]], AnyLease | None],
        work_on: Callable[[AnyLease], None],
        *,
        has_work: Callable[[], bool],
        is_withdrawn: Callable[[], bool] = lambda: False,
    ) -> BatchEnd:
        """Claim partitions and work on them until there is a reason to end.

        Args:
            claim: gets the partitions that it must not claim, and takes a lease on another one; returns None if no
                partition can be claimed now.
            work_on: does the planned work of the leased partition. If it raises LeaseLostError or SendingStoppedError,
                the loop continues with the next check for a reason to end; other errors end the batch.
            has_work: returns whether planned work of the run is left, claimed or not.
            is_withdrawn: returns whether the run was withdrawn; called when nothing is left to claim.

        Returns:
            Why the batch ended.
        """
        while (ended := self._stop_conditions.reason_to_end()) is None:
            held = self.heartbeat.claim(lambda: claim(self.excluded()))
            if held is None:
                if not self.wait_for_work(has_work):
                    return BatchEnd.WITHDRAWN if is_withdrawn() else BatchEnd.NO_WORK
                continue
            self.cancellation, lease = held.token, held.taken
            try:
                work_on(lease)
            except (LeaseLostError, SendingStoppedError) as error:
                for_partition(_log, lease.fence.topic_id_partition).warning("%s", error)
                self.heartbeat.on_lease_lost(lease)
            finally:
                self.heartbeat.release(held)
        return ended

    def in_groups(self, do_next: Callable[[], bool], *, may_go_on: Callable[[], bool] = lambda: True) -> None:
        """Work on the leased partition group by group, and wait while paused.

        Return when no group is left, the batch has a reason to end, or `may_go_on` returns False.

        Args:
            do_next: does the next group and returns whether another group is left.
            may_go_on: called before each group, and again after each short wait in a pause.
        """
        while self._stop_conditions.reason_to_end() is None and may_go_on():
            if self.cancellation.paused:
                self._clock.sleep(_PAUSE_POLL_SECONDS)
            elif not do_next():
                return

    @contextmanager
    def setting_aside(
        self,
        partition: TopicIdPartition,
        give_up: Callable[[TieringError], None],
        *,
        reraise: tuple[type[TieringError], ...] = (),
    ) -> Iterator[None]:
        """If the block raises a TieringError, set the partition aside and let `give_up` record the error.

        LeaseLostError, SendingStoppedError, and the errors in `reraise`, which concern the whole batch, are raised
        instead.
        """
        try:
            yield
        except TieringError as error:
            if isinstance(error, (LeaseLostError, SendingStoppedError, *reraise)):
                raise
            self.set_aside.add(partition)
            give_up(error)

    def excluded(self) -> Set[TopicIdPartition]:
        """Return the partitions that this batch must not claim now."""
        return self.set_aside | self._throttled()

    def wait_for_work(self, has_work: Callable[[], bool]) -> bool:
        """If planned work is left while a topic is paused or a partition throttled, wait briefly and return True.

        Otherwise return False at once.
        """
        if not (self._work.paused_topics() or self._throttled()) or not has_work():
            return False
        self._clock.sleep(_PAUSE_POLL_SECONDS)
        return True


def cancellation_and_heartbeat(
    work: WorkStore,
    clock: Clock,
    run_id: str,
    batch_id: str,
    *,
    pool: str | None,
    lease_ms: int,
    parent_alive: Callable[[], bool],
) -> tuple[CancellationToken, BatchHeartbeat]:
    """Make the token and the heartbeat of a batch that this process is about to run."""
    cancellation = CancellationToken(clock)
    identity = BatchProgress(run_id, batch_id, pool, socket.gethostname(), os.getpid(), "", 0, 0, 0.0, False)
    heartbeat = BatchHeartbeat(
        work, cancellation, clock, identity=identity, lease_ms=lease_ms, parent_alive=parent_alive
    )
    return cancellation, heartbeat
