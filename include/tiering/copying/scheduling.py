"""What a copy batch takes next: which partition, whether its topic quota admits a segment, how many transfers.

**Fair scheduling of partitions** (`PartitionScheduler`). Without an exhausted quota a batch finishes the most urgent
partition, then takes the next. Under an exhausted quota, with fairness on, it releases its partition after a segment if
another partition that it could claim has waited longer (the partition is *handed on*). The next claims alternate:

    the partition handed on was claimed for    next claim
    its urgency                                the partition that has waited longest
    its wait                                   the most urgent partition other than the one handed on

So no partition starves however urgent another is, about every second claim takes the most urgent partition, and
partitions of equal urgency rotate. A partition that was handed on is claimed again by the next claim only if no other
partition is left to claim.

**Topic quotas** (`TopicAdmission`). If the quota of a topic refuses a segment, the batch releases the partition and
backs off from the topic; the back-off doubles with each refusal in succession, up to `LONGEST_BACK_OFF_SECONDS`.

**Transfers in flight** (`TransferLimit`). A transfer waits for the store most of its time: a store is tens of
milliseconds away, and gives one connection a bounded rate. So several transfers go on side by side. More of them help
only until something else limits the batch:

    this machine    the process uses about a whole core: Python code runs in one thread at a time
    a quota         transfers already wait for it
    the store       it answered that requests should slow down

The number begins with one and doubles as long as all allowed transfers are in flight and none of these limits is
reached. It never falls because of this machine or a quota: each reduces the transfers by beginning no further one. When
the store asks to slow down, the number is halved at once, and then grows by one each `RECOVERY_SECONDS`.
"""

from collections import deque
from collections.abc import Collection, Set
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from include.tiering.clock import Clock
from include.tiering.copying.copy_segment import CopiedSegment
from include.tiering.errors import (
    LeaseLostError,
    QuotaExceededError,
    SendingStoppedError,
    SourceVanishedError,
    TieringError,
)
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.segments import TopicIdPartition
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.quotas.topic_quotas import Admission, TopicQuotas
from include.tiering.runs.batch import HeldLease
from include.tiering.runs.contract import ClaimOrder, Lease, Placement, PlannedSegment, WorkStore
from include.tiering.telemetry import get_logger

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

    def claim(self, excluded: Set[TopicIdPartition]) -> Lease | None:
        """Claim the next lease; None if there is nothing to claim now. Raises what `WorkStore.claim` raises."""
        handed_on, self._handed_on = self._handed_on, frozenset()
        if handed_on:
            lease = self._claim(excluded | handed_on)
            if lease is not None:
                return lease
        self._order = ClaimOrder.URGENCY
        return self._claim(excluded)

    def hand_on(self, lease: Lease, waited_seconds: float, excluded: Set[TopicIdPartition]) -> bool:
        """Return whether to release this lease now; if so, the next claim prefers other partitions.

        `waited_seconds` is how long all copies under this lease have waited for the quota.
        """
        if not self._fairness or waited_seconds < EXHAUSTED_SECONDS:
            return False
        if not self._work.waits_longer(lease, exclude=excluded, placement=self._placement):
            return False
        self._handed_on |= {lease.replica_id.topic_id_partition}
        self._order = _AFTER[self._order]
        return True

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

    def admit(self, replica_id: ReplicaId, planned: PlannedSegment) -> Admission:
        """Admit one segment; tell the topic quotas, or `failed`, afterwards how its copy ended.

        Raises:
            QuotaExceededError: refused; the topic, and with it this partition, backs off.
            MetadataUnavailableError: the database does not answer.
        """
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

    def failed(self, admission: Admission) -> None:
        """Count a copy that failed; an error of the database here must not hide why the copy failed."""
        try:
            self._quotas.failed(admission)
        except TieringError as error:
            _log.warning("%s: the meters of the topic quota lack a copy that failed: %s", admission.topic, error)

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

    def _is_waiting(self, topic: tuple[int, str]) -> bool:
        back_off = self._back_offs.get(topic)
        return back_off is not None and self._clock.monotonic() < back_off.until


def _topic_of(replica_id: ReplicaId) -> tuple[int, str]:
    return replica_id.broker_id, replica_id.topic_id_partition.topic


WINDOW_SECONDS: Final = 0.03
"""How long the use of this machine is measured before the number may grow."""

BUSY_CORES: Final = 0.8
"""A process that used this much of a core, or more, is limited by this machine."""

ENOUGH_WAITING: Final = 2
"""If so many transfers wait for the quota, they use it to the full: one sends, the other is ready to."""

RECOVERY_SECONDS: Final = 1.0


class TransferLimit:
    """The limit of one batch. For one thread."""

    def __init__(self, clock: Clock, *, most: int) -> None:
        self._clock = clock
        self.most = most
        """The number never exceeds this one, which may be changed at any time."""
        self._allowed = 1
        self._measured_at = clock.monotonic()
        self._used_seconds = clock.process_seconds()
        self._slow_downs: int | None = None
        self._slowed_at: float | None = None

    def allows_another(self, in_flight: Collection[ByteLimiter], slow_downs: int) -> bool:
        """Return whether another transfer may begin; the first one always may.

        Args:
            in_flight: the limiters of the transfers in flight.
            slow_downs: how often the store has asked so far to slow down.
        """
        self._note_slow_downs(slow_downs)
        if not in_flight:
            return True
        if sum(limiter.is_waiting for limiter in in_flight) >= ENOUGH_WAITING:
            return False
        if len(in_flight) >= self._allowed:
            self._grow()
        return len(in_flight) < min(self._allowed, self.most)

    def _note_slow_downs(self, slow_downs: int) -> None:
        before, self._slow_downs = self._slow_downs, slow_downs
        now = self._clock.monotonic()
        if before is None or slow_downs <= before:
            return
        if self._slowed_at is None or now - self._slowed_at >= RECOVERY_SECONDS:
            self._allowed = max(1, self._allowed // 2)
            self._slowed_at = self._measured_at = now
            self._used_seconds = self._clock.process_seconds()

    def _grow(self) -> None:
        now, used_seconds = self._clock.monotonic(), self._clock.process_seconds()
        seconds = now - self._measured_at
        if seconds < (WINDOW_SECONDS if self._slowed_at is None else RECOVERY_SECONDS):
            return
        used_cores = (used_seconds - self._used_seconds) / seconds
        self._measured_at, self._used_seconds = now, used_seconds
        if used_cores < BUSY_CORES:
            wanted = 2 * self._allowed if self._slowed_at is None else self._allowed + 1
            self._allowed = min(wanted, self.most)


@dataclass(slots=True, eq=False)
class Transfer:
    """One segment in flight. `copied` ends with the copied segment, or with the error of the copy."""

    planned: PlannedSegment
    limiter: ByteLimiter
    admission: Admission
    copied: Future[CopiedSegment]


@dataclass(slots=True, eq=False)
class LeasedPartition:
    """A leased partition.

    Attributes:
        held: the lease, with its token.
        highest: end (inclusive) of what is copied or in flight; None if nothing is.
        to_start: planned segments that were not begun.
        in_flight: the transfers in the order of their segments.
        kept: start offsets of whole abandoned copies that may be finished once the segments before them are.
        has_failed: whether a transfer ended with an error; then the later ones do, too.
        waited_seconds: how long the transfers that have ended waited for the quota.
    """

    held: HeldLease[Lease]
    highest: int | None = None
    to_start: deque[PlannedSegment] = field(default_factory=deque)
    in_flight: deque[Transfer] = field(default_factory=deque)
    kept: frozenset[int] = frozenset()
    has_begun: bool = False
    has_failed: bool = False
    waited_seconds: float = 0.0

    @property
    def lease(self) -> Lease:
        return self.held.taken

    @property
    def key(self) -> TopicIdPartition:
        return self.lease.replica_id.topic_id_partition

    @property
    def may_start(self) -> bool:
        """Whether the next segment may be begun now. One that may be copied already waits for those in flight."""
        if not self.to_start or self.held.token.paused:
            return False
        planned = self.to_start[0]
        is_new = planned.supersedes is not None or self.highest is None or planned.end_offset > self.highest
        is_new = is_new and planned.base_offset not in self.kept
        has_error = any(each.copied.done() and each.copied.exception() is not None for each in self.in_flight)
        return (is_new or not self.in_flight) and not has_error

    def quota_wait_seconds(self) -> float:
        return self.waited_seconds + sum(transfer.limiter.waited_seconds for transfer in self.in_flight)


def wait_for(predecessor: Future[CopiedSegment]) -> None:
    """Return when the copy of the segment before is FINISHED.

    Raises:
        LeaseLostError, SourceVanishedError: it ended with this error, so the later copy is left as it is, too.
        SendingStoppedError: it was not copied for another reason.
    """
    error = predecessor.exception()
    if error is None:
        return
    if isinstance(error, LeaseLostError):
        raise LeaseLostError(str(error))
    if isinstance(error, SourceVanishedError):
        raise SourceVanishedError(error.path, "the segment before it vanished from the source")
    raise SendingStoppedError("the segment before it was not copied")
