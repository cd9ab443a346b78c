"""The admission step of a batch: topics that were refused wait, each a little longer every time, and ask again."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import QuotaExceededError, TieringError
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.ids import TopicIdPartition
from include.tiering.quotas.topic_quotas import Admission, TopicQuotas
from include.tiering.runs.contract import PlannedSegment
from include.tiering.telemetry import get_logger

FIRST_BACK_OFF_SECONDS: Final = 1.0
LONGEST_BACK_OFF_SECONDS: Final = 30.0
_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _BackOff:
    """Of one topic on one broker, until a second of the monotonic clock."""

    seconds: float
    until: float
    error: QuotaExceededError


class TopicAdmission:
    """For one batch. Back-offs are its own: other batches ask for themselves."""

    def __init__(self, quotas: TopicQuotas, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock
        self._back_offs: dict[tuple[int, str], _BackOff] = {}
        self._left: dict[TopicIdPartition, tuple[int, str]] = {}

    @contextmanager
    def admitted(self, replica_id: ReplicaId, planned: PlannedSegment) -> Iterator[None]:
        """Copy the segment inside; how it ends is counted.

        Raises:
            QuotaExceededError: refused. The topic waits, and this partition with it.
            MetadataUnavailableError
        """
        admission = self._admit(replica_id, planned)
        try:
            yield
        except TieringError:
            self._count_failure(admission)
            raise
        self._quotas.accepted(admission)

    def must_wait(self, replica_id: ReplicaId) -> bool:
        """True while the replica's topic waits; then the partition is left as well, without asking."""
        topic = _topic_of(replica_id)
        if not self._is_waiting(topic):
            return False
        self._left[replica_id.topic_id_partition] = topic
        return True

    def waiting(self) -> frozenset[TopicIdPartition]:
        """Partitions that were left and whose topic's time has not come yet."""
        return frozenset(partition for partition, topic in self._left.items() if self._is_waiting(topic))

    def throttled(self) -> dict[TopicIdPartition, QuotaExceededError]:
        """Partitions that were refused, or left for their topic's sake, and not admitted since."""
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
        """What ended the copy matters more than a database that cannot count it."""
        try:
            self._quotas.failed(admission)
        except TieringError as error:
            _log.warning("%s: a failed segment was not counted: %s", admission.topic, error)


def _topic_of(replica_id: ReplicaId) -> tuple[int, str]:
    return replica_id.broker_id, replica_id.topic_id_partition.topic
