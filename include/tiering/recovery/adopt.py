"""Adopt complete copies that the metadata does not know: each becomes FINISHED at once, under the partition's lease.

    step        done when it is reached                    a crash right after it leaves       cleaned up by
    planned     the run is stored, as that of a copy       a run with work left                nobody has to: no batch
                                                                                               goes on with it
    leased      nobody else copies the partition           a lease, until it expires           the next holder
    examined    the store still has all of the copy        the same                            the same
    adopted     FINISHED without a verdict, with event     the segment; the plan says          nobody has to: the next
                                                           PLANNED still                       plan does not name it

There is no step between unknown and FINISHED: as COPY_SEGMENT_STARTED it would be somebody's leftover, and deleted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from include.tiering.errors import StateConflictError, TieringError
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.histories import newest_history
from include.tiering.recovery.plan_adoption import AdoptionPlan, PartitionAdoption, RefusedAttempt, refused_attempt
from include.tiering.recovery.recovery_contract import SegmentAdoption, StoredSegment
from include.tiering.recovery.stored_attempts import FoundAttempt, examine, found_attempts
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.runs.contract import (
    Lease,
    PlannedPartition,
    PlannedSegment,
    SegmentOutcome,
    WorkItem,
    WorkStore,
)
from include.tiering.segments.contract import RemoteLogMetadata

_FROM_THE_STORE: Final = "remote storage"
_NOT_URGENT: Final = 0.0


class AdoptionStep(StrEnum):
    """Named points, in order; reported after each is done."""

    PLANNED = "planned"
    LEASED = "leased"
    EXAMINED = "examined"
    ADOPTED = "adopted"


StepObserver = Callable[[AdoptionStep], None]


@dataclass(frozen=True, slots=True)
class AdoptionReport:
    """What became of a plan. `adopted` in the order in which they were."""

    adopted: tuple[StoredSegment, ...]
    refused: tuple[RefusedAttempt, ...]


@dataclass(frozen=True, slots=True)
class Adoption:
    """Everything that an adoption touches."""

    storage: RemoteStorage
    metadata: RemoteLogMetadata
    adoption: SegmentAdoption
    work: WorkStore
    observe: StepObserver
    author: str
    lease_ms: int

    def run(self, plan: AdoptionPlan, run_id: str) -> AdoptionReport:
        """Adopt what was planned, partition by partition. One that fails ends its partition, the others go on.

        Raises:
            RemoteStorageUnavailableError, MetadataUnavailableError: what was adopted stays.
        """
        if not plan.partitions:
            return AdoptionReport((), plan.refused)
        self.work.save_plan(run_id, [_planned(one) for one in plan.partitions])
        self.observe(AdoptionStep.PLANNED)
        waiting = {one.topic_id_partition: one for one in plan.partitions}
        adopted: list[StoredSegment] = []
        refused = list(plan.refused)
        while waiting:
            done = [one.topic_id_partition for one in plan.partitions if one.topic_id_partition not in waiting]
            lease = self.work.claim(run_id, run_id, lease_ms=self.lease_ms, exclude=done)
            if lease is None:
                break
            self.observe(AdoptionStep.LEASED)
            partition = waiting.pop(lease.fence.topic_id_partition)
            try:
                refused += self._adopt(partition, lease, adopted)
            finally:
                self.work.release(lease)
        busy = StateConflictError("somebody else works on its partition, or its topic is paused: try again later")
        refused += [_refused(each, busy) for one in waiting.values() for each in one.segments]
        return AdoptionReport(tuple(adopted), tuple(refused))

    def _adopt(
        self, partition: PartitionAdoption, lease: Lease, adopted: list[StoredSegment]
    ) -> Sequence[RefusedAttempt]:
        """What is refused of a leased partition; the others are added to `adopted`, one by one."""
        where = partition.topic_id_partition
        highest = self.metadata.highest_copied_offset(where)
        if highest != partition.highest_copied_offset:
            went_on = StateConflictError(f"{where} went on meanwhile: offsets up to {highest} are copied")
            return [_refused(each, went_on) for each in partition.segments]
        if newest_history(self.metadata.divergences(where)) != partition.history:
            other = StateConflictError(f"{where} follows another history since this was planned")
            return [_refused(each, other) for each in partition.segments]
        listed = {
            (one.segment_id, one.start_offset): one for one in found_attempts(self.storage.list_segment_objects(where))
        }
        for number, segment in enumerate(partition.segments):
            metadata = segment.metadata
            try:
                self.work.renew(lease, lease_ms=self.lease_ms)
                self._adopt_one(segment, listed.get((metadata.remote_log_segment_id, metadata.start_offset)), lease)
            except TieringError as error:
                if error.retriable:
                    raise
                behind = StateConflictError(f"the one before it was not adopted: {error}")
                return [
                    _refused(segment, error),
                    *(_refused(each, behind) for each in partition.segments[number + 1 :]),
                ]
            adopted.append(segment)
        return ()

    def _adopt_one(self, segment: StoredSegment, listed: FoundAttempt | None, lease: Lease) -> None:
        if listed is None or examine(self.storage, listed) != segment:
            raise StateConflictError("its objects are not any more what they were when it was planned")
        self.observe(AdoptionStep.EXAMINED)
        self.adoption.adopt(segment, fence=lease.fence, author=self.author)
        self.observe(AdoptionStep.ADOPTED)
        where, segment_id = segment.metadata.topic_id_partition, str(segment.metadata.remote_log_segment_id.id)
        self.work.record_outcome(lease, WorkItem(where, _work(segment), SegmentOutcome.COPIED, segment_id))


def _planned(partition: PartitionAdoption) -> PlannedPartition:
    broker_id = partition.segments[0].metadata.broker_id
    replica_id = ReplicaId(partition.topic_id_partition, broker_id, _FROM_THE_STORE)
    return PlannedPartition(replica_id, _NOT_URGENT, tuple(map(_work, partition.segments)))


def _work(segment: StoredSegment) -> PlannedSegment:
    metadata = segment.metadata
    return PlannedSegment(metadata.start_offset, metadata.end_offset, metadata.segment_size_bytes)


def _refused(segment: StoredSegment, error: TieringError) -> RefusedAttempt:
    return refused_attempt(segment.metadata.remote_log_segment_id, segment.metadata.start_offset, error)
