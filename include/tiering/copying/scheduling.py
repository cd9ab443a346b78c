"""What a copy batch takes next: which partition, and whether the quota of its topic admits a segment.

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
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import QuotaExceededError, TieringError
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.segments import TopicIdPartition
from include.tiering.quotas.contract import QuotaLevel, Scope
from include.tiering.quotas.topic_quotas import Admission, TopicQuotas
from include.tiering.runs.contract import ClaimOrder, Lease, Placement, PlannedSegment, WorkStore
from include.tiering.telemetry import get_logger

EXHAUSTED_SECONDS: Final = 0.05
"""If copies under one lease waited this long in all, the quota counts as exhausted, and the lease may be handed on."""

NO_SCOPES: Final[frozenset[Scope]] = frozenset()
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

    def claim(self, excluded: Set[TopicIdPartition], exhausted: Set[Scope] = NO_SCOPES) -> Lease | None:
        """Claim the next lease; None if there is nothing to claim now. Raises what `WorkStore.claim` raises.

        No partition is claimed whose copies would wait for the quota of an `exhausted` scope.
        """
        handed_on, self._handed_on = self._handed_on, frozenset()
        if handed_on:
            lease = self._claim(excluded | handed_on, exhausted)
            if lease is not None:
                return lease
        self._order = ClaimOrder.URGENCY
        return self._claim(excluded, exhausted)

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

    def _claim(self, excluded: Set[TopicIdPartition], exhausted: Set[Scope]) -> Lease | None:
        return self._work.claim(
            self._run_id,
            self._batch_id,
            lease_ms=self._lease_ms,
            exclude=excluded,
            exclude_topics={scope.name for scope in exhausted if scope.level is QuotaLevel.TOPIC},
            exclude_brokers={int(scope.name) for scope in exhausted if scope.level is QuotaLevel.BROKER},
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
        """Admit one segment. When its copy has ended, call `TopicQuotas.accepted`, or `failed` if it failed.

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
