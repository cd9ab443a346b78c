"""Adopt complete copies that the metadata lack: each becomes FINISHED in one step, under the partition's lease.

A plan names the copies that may be adopted: those that continue the known segments. The copier stores the row of a
segment before it writes the segment's first object. So a segment id without a row does not belong to a copy under way:
either the database lost the row when it was restored from a backup, or another writer made the copy, perhaps a platform
with another database. A complete copy that this platform made and whose row is still in COPY_SEGMENT_STARTED counts as
unknown, too. Each copy is adopted under the copy lease of its partition, so no other process is copying the partition.

    step        done when it is reached                    a crash right after it leaves       cleaned up by
    planned     the run is stored, like a copy run         a run with work left                not needed: no batch
                                                                                               continues the run
    leased      no other process copies the partition      a lease, until it expires           the next holder
    examined    the store still has all of the copy        the same                            the same
    adopted     FINISHED without a verdict, with event     the lease                           the next holder
                                                           the segment, still a planned one    not needed: the next
                                                           in the stored run                   plan does not name it

No other state is committed between unknown and FINISHED: in COPY_SEGMENT_STARTED the segment would be taken for an
abandoned copy. Expiration deletes such copies, unless they may be the only copies of their offsets.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from include.tiering.errors import StateConflictError, TieringError, UnknownSegmentError
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.histories import FIRST_HISTORY, Divergence, SeenDivergence, newest_history, open_divergence
from include.tiering.model.ownership import SegmentOrigin, TopicOwner
from include.tiering.model.recovered_log import (
    LeftOut,
    Obstacle,
    by_offset,
    continued_log,
    newest_decision,
    not_followed,
)
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from include.tiering.recovery.contract import SegmentAdoption, StoredSegment
from include.tiering.recovery.rebuild import by_name
from include.tiering.recovery.stored_attempts import (
    FoundAttempt,
    examine,
    examined,
    found_attempts,
    separated,
    stored_histories,
)
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.runs.contract import Lease, PlannedPartition, PlannedSegment, SegmentOutcome, WorkItem, WorkStore
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow, TopicRegistry
from include.tiering.segments.stored_copies import ForgottenCopy


@dataclass(frozen=True, slots=True)
class RefusedAttempt:
    """A copy attempt that is not adopted. `error` is the class name of a TieringError.

    `topic_id_partition` and `start_offset` are None if no object in the store has the id.
    """

    segment_id: Uuid
    topic_id_partition: TopicIdPartition | None
    start_offset: int | None
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class PartitionAdoption:
    """The copies of one partition that may be adopted as long as its highest copied offset and newest history stay.

    Attributes:
        highest_copied_offset: inclusive; None if nothing was ever copied.
        segments: by ascending end offset; empty if `diverging` is set.
        history: number of the newest history in the metadata.
        diverging: the offsets of known segments that a later history in the store replaces; None if the store has no
            such history.
    """

    topic_id_partition: TopicIdPartition
    highest_copied_offset: int | None
    segments: tuple[StoredSegment, ...]
    history: int = FIRST_HISTORY
    diverging: SeenDivergence | None = None


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """What may be adopted now, and what may not.

    `diverging` are partitions of which the store has a later history than the metadata: a person must decide before
    their copies are adopted.
    """

    partitions: tuple[PartitionAdoption, ...]
    refused: tuple[RefusedAttempt, ...]
    diverging: tuple[PartitionAdoption, ...] = ()

    @property
    def segments(self) -> int:
        return sum(len(partition.segments) for partition in self.partitions)

    @property
    def size_bytes(self) -> int:
        return sum(each.metadata.segment_size_bytes for partition in self.partitions for each in partition.segments)


def plan_adoption(
    storage: RemoteStorage,
    metadata: RemoteLogMetadata,
    registry: TopicRegistry,
    ids: Collection[Uuid] | None,
) -> AdoptionPlan:
    """Examine every copy attempt that the metadata lack, or have as begun by the platform. Read only.

    With `ids`, only these are planned or refused; refused are also those that the metadata have otherwise, or that the
    store lacks. Without `ids`, attempts that the metadata have otherwise are left out; only deleted ones are refused.

    Raises:
        RemoteStorageUnavailableError: the store is not available.
    """
    adoptions, diverging, refused, seen = [], [], [], set[Uuid]()
    names = {known.topic_id: known.topic for known in metadata.partitions()}
    for partition in _partitions(storage):
        attempts = found_attempts(storage.list_segment_objects(partition))
        wanted = [attempt for attempt in attempts if ids is None or attempt.segment_id.id in ids]
        seen.update(attempt.segment_id.id for attempt in wanted)
        rows = metadata.list_segments(partition) if wanted else ()
        unknown, known = _unknown(wanted, rows, metadata)
        conflicts = [attempt for attempt in known if attempt.error == StateConflictError.__name__]
        refused += conflicts if ids is None else known
        if not unknown:
            continue
        objection = _objection(partition, names.get(partition.topic_id, partition.topic), registry, metadata)
        if objection is not None:
            refused += [refused_attempt(attempt.segment_id, attempt.start_offset, objection) for attempt in unknown]
            continue
        adoption, others = _adoptable(storage, metadata, partition, rows, unknown)
        refused += others
        if adoption.segments:
            adoptions.append(adoption)
        if adoption.diverging is not None:
            diverging.append(adoption)
    missing = UnknownSegmentError("no object in the store has this segment id")
    absent_ids = [segment_id for segment_id in ids or () if segment_id not in seen]
    refused += [RefusedAttempt(absent, None, None, type(missing).__name__, str(missing)) for absent in absent_ids]
    return AdoptionPlan(tuple(adoptions), tuple(refused), tuple(diverging))


def forgotten_copies(
    storage: RemoteStorage, metadata: RemoteLogMetadata, partition: TopicIdPartition
) -> Sequence[ForgottenCopy]:
    """Return the copies of a partition without a row that are complete, or may be. Read only; by start offset.

    Raises:
        RemoteStorageUnavailableError: the store is not available.
    """
    known = {row.metadata.remote_log_segment_id for row in metadata.list_segments(partition)}
    attempts = [
        attempt
        for attempt in found_attempts(storage.list_segment_objects(partition))
        if attempt.segment_id not in known and metadata.segment(attempt.segment_id) is None
    ]
    found = []
    for result in examined(storage, attempts):
        if isinstance(result, StoredSegment):
            copy = result.metadata
            found.append(ForgottenCopy(copy.remote_log_segment_id.id, copy.start_offset, copy.end_offset))
        elif result.is_unread:
            attempt = result.attempt
            found.append(ForgottenCopy(attempt.segment_id.id, attempt.start_offset, None, result.message))
    return found


def record_diverging(plan: AdoptionPlan, metadata: RemoteLogMetadata) -> None:
    """Record in the metadata that the store has later histories.

    From then on nothing of their partitions is copied or adopted until a person decides which history is followed.
    """
    for partition in plan.diverging:
        if partition.diverging is not None:
            metadata.record_divergence(partition.topic_id_partition, partition.diverging, history=partition.history)


def _unknown(
    attempts: Sequence[FoundAttempt], rows: Sequence[SegmentRow], metadata: RemoteLogMetadata
) -> tuple[list[FoundAttempt], list[RefusedAttempt]]:
    """Return the attempts that are still to be examined, then the others with the reason against their adoption.

    The first are attempts that the metadata lack, or have in COPY_SEGMENT_STARTED as the platform's own.
    """
    begun = {row.metadata.remote_log_segment_id for row in rows if _is_begun(row)}
    states = {row.metadata.remote_log_segment_id: row.metadata.state for row in rows}
    unknown, known = [], []
    for attempt in attempts:
        state = states.get(attempt.segment_id)
        if state is None and (row := metadata.segment(attempt.segment_id)) is not None:
            state = row.metadata.state
        if state is None or attempt.segment_id in begun:
            unknown.append(attempt)
        elif state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            deleted = StateConflictError("the segment was deleted, and its id must not be used again")
            known.append(refused_attempt(attempt.segment_id, attempt.start_offset, deleted))
        else:
            there = UnknownSegmentError(f"nothing to adopt: the metadata have it as {state.name}")
            known.append(refused_attempt(attempt.segment_id, attempt.start_offset, there))
    return unknown, known


def _is_begun(row: SegmentRow) -> bool:
    is_started = row.metadata.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
    return is_started and row.origin is SegmentOrigin.PLATFORM


def _objection(
    partition: TopicIdPartition, known_name: str, registry: TopicRegistry, metadata: RemoteLogMetadata
) -> StateConflictError | None:
    """Return why no copy of this partition may be adopted; None if they may."""
    if known_name != partition.topic:
        return StateConflictError(
            f"its topic {partition.topic_id} is known as {known_name}, its key says {partition.topic}"
        )
    owner = registry.owner(partition.topic_id)
    if owner not in (TopicOwner.NONE, TopicOwner.PLATFORM):
        return StateConflictError(f"the topic's owner is {owner}, so its copies must not be adopted")
    undecided = open_divergence(metadata.divergences(partition))
    return None if undecided is None else StateConflictError(f"its partition waits for a decision: {undecided}")


def _adoptable(
    storage: RemoteStorage,
    metadata: RemoteLogMetadata,
    partition: TopicIdPartition,
    rows: Sequence[SegmentRow],
    unknown: Sequence[FoundAttempt],
) -> tuple[PartitionAdoption, list[RefusedAttempt]]:
    stored, faulty = separated(examined(storage, unknown))
    divergences, highest = metadata.divergences(partition), metadata.highest_copied_offset(partition)
    history, decision = newest_history(divergences), newest_decision(divergences)
    log_start = metadata.retention_state(partition).log_start_offset
    finished = [row.metadata for row in rows if row.metadata.is_finished and row.history == history]
    others = [row.metadata for row in rows if row.metadata.remote_log_segment_id not in stored]
    begun = [segment for segment in others if segment.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED]
    # The first copy of a partition must not start after a copy that could not be read, so may be complete, or after
    # one that was begun, so may still be completed: later nothing below the first copy can be adopted.
    begun_offsets = [attempt.attempt.start_offset for attempt in faulty if attempt.is_unread]
    begun_offsets += [segment.start_offset for segment in begun]
    refused = [
        RefusedAttempt(found.attempt.segment_id.id, partition, found.attempt.start_offset, found.error, found.message)
        for found in faulty
    ]
    copies, left_out = _of_history([segment.metadata for segment in stored.values()], decision)
    above_log_start = [segment for segment in finished if segment.end_offset >= log_start]
    histories, odd = stored_histories(storage, above_log_start, copies)
    diverging = histories.diverging()
    if diverging is not None:
        objection = StateConflictError(
            f"the store has copies of a later history: {diverging}; a person must decide: see ./tiering skip"
        )
        refused += [_refused(segment, objection) for segment in stored.values()]
        return PartitionAdoption(partition, highest, (), history, diverging), refused

    continued = partial(
        continued_log,
        max(finished, key=lambda segment: segment.end_offset, default=None),
        highest,
        decisions=metadata.skipped_offsets(partition),
        log_start_offset=log_start,
        begun_offset=min(begun_offsets, default=None),
        followed_from=None
        if finished or decision is None or decision.followed is None
        else decision.followed.from_offset,
    )
    log = continued(histories.copies)
    if histories.mixes(log.segments):
        first = histories.of_first_history()
        left_out += [LeftOut(copy, Obstacle.LATER_HISTORY) for copy in histories.copies if copy not in first]
        log = continued(first)
    left_out += [*log.left_out, *(LeftOut(copy, Obstacle.ODD_EPOCHS) for copy in odd)]
    refused += [
        refused_attempt(left.segment.remote_log_segment_id, left.segment.start_offset, StateConflictError(_why(left)))
        for left in by_offset(left_out)
    ]
    segments = tuple(stored[segment.remote_log_segment_id] for segment in log.segments)
    return PartitionAdoption(partition, highest, segments, history), refused


def _of_history(
    copies: Sequence[RemoteLogSegmentMetadata], decision: Divergence | None
) -> tuple[list[RemoteLogSegmentMetadata], list[LeftOut]]:
    """Separate the copies that may belong to the newest history from the others."""
    obstacles = [(copy, None if decision is None else not_followed(copy, decision)) for copy in copies]
    followed = [segment for segment, obstacle in obstacles if obstacle is None]
    return followed, [LeftOut(segment, obstacle) for segment, obstacle in obstacles if obstacle is not None]


def _why(left_out: LeftOut) -> str:
    said = f"offsets {_offsets(left_out.segment)}: {left_out.obstacle}"
    return (
        said
        if left_out.beside is None
        else f"{said} ({left_out.beside.remote_log_segment_id.id}, {_offsets(left_out.beside)})"
    )


def _offsets(segment: RemoteLogSegmentMetadata) -> str:
    return f"{segment.start_offset}..{segment.end_offset}"


def refused_attempt(segment_id: RemoteLogSegmentId, start_offset: int, error: TieringError) -> RefusedAttempt:
    partition = segment_id.topic_id_partition
    return RefusedAttempt(segment_id.id, partition, start_offset, type(error).__name__, str(error))


def _partitions(storage: RemoteStorage) -> list[TopicIdPartition]:
    """Return the partitions in the store's keys. If keys give one topic id two names, each name has partitions."""
    named = (segment_object.segment_id.topic_id_partition for segment_object in storage.list_segment_objects())
    found = {by_name(partition): partition for partition in named}
    return [found[name] for name in sorted(found)]


_FROM_THE_STORE: Final = "remote storage"
_NOT_URGENT: Final = 0.0


class AdoptionStep(StrEnum):
    """Steps of an adoption, in order; each is reported after it is done."""

    PLANNED = "planned"
    LEASED = "leased"
    EXAMINED = "examined"
    ADOPTED = "adopted"


StepObserver = Callable[[AdoptionStep], None]


@dataclass(frozen=True, slots=True)
class AdoptionReport:
    """The result of an adoption. `adopted` is in the order in which the copies were adopted."""

    adopted: tuple[StoredSegment, ...]
    refused: tuple[RefusedAttempt, ...]


@dataclass(frozen=True, slots=True)
class Adoption:
    """Runs an adoption."""

    storage: RemoteStorage
    metadata: RemoteLogMetadata
    adoption: SegmentAdoption
    work: WorkStore
    observe: StepObserver
    author: str
    lease_ms: int

    def run(self, plan: AdoptionPlan, run_id: str) -> AdoptionReport:
        """Adopt what was planned. If a copy is refused, so are the later copies of its partition; others continue.

        Raises:
            TieringError: it is retriable, or is not about one copy (for example, the store refuses to be listed).
                Copies that were adopted before it stay adopted.
        """
        if not plan.partitions:
            return AdoptionReport((), plan.refused)
        self.work.save_plan(run_id, list(map(_planned, plan.partitions)))
        self.observe(AdoptionStep.PLANNED)
        waiting = {planned.topic_id_partition: planned for planned in plan.partitions}
        adopted: list[StoredSegment] = []
        refused = list(plan.refused)
        while waiting:
            done = [where for planned in plan.partitions if (where := planned.topic_id_partition) not in waiting]
            lease = self.work.claim(run_id, run_id, lease_ms=self.lease_ms, exclude=done)
            if lease is None:
                break
            self.observe(AdoptionStep.LEASED)
            partition = waiting.pop(lease.fence.topic_id_partition)
            try:
                refused += self._adopt(partition, lease, adopted)
            finally:
                self.work.release(lease)
        busy = StateConflictError("its partition is leased by another run, or its topic is paused: try again later")
        refused += [_refused(segment, busy) for planned in waiting.values() for segment in planned.segments]
        return AdoptionReport(tuple(adopted), tuple(refused))

    def _adopt(
        self, partition: PartitionAdoption, lease: Lease, adopted: list[StoredSegment]
    ) -> Sequence[RefusedAttempt]:
        """Adopt the copies of a leased partition one by one and add them to `adopted`; return the refused copies."""
        where = partition.topic_id_partition
        highest = self.metadata.highest_copied_offset(where)
        if highest != partition.highest_copied_offset:
            advanced = StateConflictError(f"{where} was copied further meanwhile: offsets up to {highest} are copied")
            return [_refused(segment, advanced) for segment in partition.segments]
        if newest_history(self.metadata.divergences(where)) != partition.history:
            other = StateConflictError(
                f"{where}: after the adoption was planned, a decision to follow another history was recorded"
            )
            return [_refused(segment, other) for segment in partition.segments]
        listed = {
            (attempt.segment_id, attempt.start_offset): attempt
            for attempt in found_attempts(self.storage.list_segment_objects(where))
        }
        for number, segment in enumerate(partition.segments):
            metadata = segment.metadata
            try:
                self.work.renew(lease, lease_ms=self.lease_ms)
                self._adopt_one(segment, listed.get((metadata.remote_log_segment_id, metadata.start_offset)), lease)
            except TieringError as error:
                if error.retriable:
                    raise
                behind = StateConflictError(f"the copy before it was not adopted: {error}")
                return [
                    _refused(segment, error),
                    *(_refused(later, behind) for later in partition.segments[number + 1 :]),
                ]
            adopted.append(segment)
        return ()

    def _adopt_one(self, segment: StoredSegment, listed: FoundAttempt | None, lease: Lease) -> None:
        if listed is None or examine(self.storage, listed) != segment:
            raise StateConflictError("its objects have changed since the adoption was planned")
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
