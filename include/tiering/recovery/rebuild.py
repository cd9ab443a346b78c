"""Rebuild the metadata of a store in an empty database, from its marker and the manifests alone.

    step             done when it is reached                     a crash right after it leaves          cleaned up by
    BEGUN            the empty database is marked, with the      a marked database that serves nobody   the next call
                     marker that the store is to have            but a rebuild; the store as it was
    TAKEN_OVER       the store has that marker                   the same, and the old database is      the next call
                                                                 turned away from the store for good
    PARTITION_ADDED  all of one partition is stored              some partitions, each whole            the next call
    FINISHED         the mark is gone                            a database like any other              -

The store changes hands before it is listed: what the old database would still delete, or copy, is refused from then on.
A deletion that it had sent before may yet take objects away, so nothing is served before it was verified.

The next call goes on with the partitions that are not there. Given up for good, a half rebuilt database is dropped, and
another one begun: it takes the store over in its turn.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby

from include.tiering.clock import Clock
from include.tiering.errors import ForeignStoreError
from include.tiering.model.histories import OffsetRange
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import StoreMarker
from include.tiering.model.recovered_histories import RecoveredHistory, is_odd, lateness
from include.tiering.model.recovered_log import (
    LeftOut,
    Obstacle,
    RecoveredLog,
    by_offset,
    followed_epochs,
    recovered_log,
)
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.recovery.plan_rebuild import OtherName, RebuildPlan, by_name, require_ours
from include.tiering.recovery.recovery_contract import MetadataRecovery, RecoveredPartition, StoredSegment
from include.tiering.recovery.stored_attempts import (
    FaultyAttempt,
    FoundAttempt,
    examined,
    found_attempts,
    leader_epochs_of,
    told_apart,
)
from include.tiering.remote_storage.contract import RemoteStorage


class RebuildStep(StrEnum):
    """Named points, in order; reported after each is done."""

    BEGUN = "begun"
    TAKEN_OVER = "taken over"
    PARTITION_ADDED = "partition added"
    FINISHED = "finished"


StepObserver = Callable[[RebuildStep], None]


@dataclass(frozen=True, slots=True)
class RebuiltPartition:
    """One partition.

    Attributes:
        before: an earlier call had stored it; then nothing is known but `segments` and `not_taken`.
        decided: histories that the rebuild follows from some offset on, because the store holds copies of both.
        not_taken: attempts with a manifest that are not among its segments.
    """

    topic_id_partition: TopicIdPartition
    segments: int
    size_bytes: int = 0
    offsets: OffsetRange | None = None
    holes: tuple[OffsetRange, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    faulty: tuple[FaultyAttempt, ...] = ()
    decided: tuple[RecoveredHistory, ...] = ()
    before: bool = False
    not_taken: int = 0


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What became of a rebuild. `marker` is the store's now; None if nothing was changed (a dry run)."""

    found: StoreMarker
    marker: StoreMarker | None
    partitions: tuple[RebuiltPartition, ...]
    other_names: tuple[OtherName, ...]
    interrupted: bool
    seconds: float

    @property
    def segments(self) -> int:
        return sum(one.segments for one in self.partitions)


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Everything that a rebuild touches. Without `recovery` it is a dry run: all is read, nothing is changed."""

    storage: RemoteStorage
    recovery: MetadataRecovery | None
    clock: Clock
    observe: StepObserver
    author: str

    def run(
        self,
        plan: RebuildPlan,
        wanted: StoreMarker,
        *,
        on_examined: Callable[[int], None],
        stop: Callable[[], bool],
    ) -> RebuildReport:
        """Take the store over, and store what its manifests say, partition by partition.

        Args:
            wanted: the store's marker from then on; not used if a rebuild was begun before.
            on_examined: gets the number of attempts that were dealt with since the last call.
            stop: asked between partitions; what is stored by then stays, and the next call goes on.

        Raises:
            ForeignStoreError: the store has changed hands.
            RemoteStorageUnavailableError, MetadataUnavailableError: the next call goes on.
        """
        began = self.clock.monotonic()
        marker, known = None, {}
        if self.recovery is not None:
            marker = self._take_over(self.recovery, plan, wanted)
            known = dict(self.recovery.recovered())
        rebuilt = list(_stored_before(plan, known))
        on_examined(sum(one.segments + one.not_taken for one in rebuilt))
        missing = [one.topic_id_partition for one in plan.partitions if one.topic_id_partition not in known]
        interrupted = False
        with closing(examined(self.storage, self._attempts(missing))) as attempts:
            for partition, found in groupby(attempts, key=_partition_of):
                rebuilt.append(self._add(partition, list(_counted(found, on_examined))))
                if interrupted := stop():
                    break
        if self.recovery is not None and not interrupted:
            self.recovery.finish(author=self.author)
            self.observe(RebuildStep.FINISHED)
        seconds = self.clock.monotonic() - began
        rebuilt.sort(key=lambda one: by_name(one.topic_id_partition))
        return RebuildReport(plan.found, marker, tuple(rebuilt), plan.other_names, interrupted, seconds)

    def _take_over(self, recovery: MetadataRecovery, plan: RebuildPlan, wanted: StoreMarker) -> StoreMarker:
        marker = recovery.begin(plan.found, wanted, author=self.author)
        self.observe(RebuildStep.BEGUN)
        if plan.found != marker:
            require_ours(plan.found, marker)
            raised = replace(marker, raised_by=wanted.raised_by)
            now = self.storage.replace_marker(plan.found, raised, conditional=self.storage.replaces_conditionally())
            if now != marker:
                raise ForeignStoreError(f"the store belongs to {now} by now, {plan.found} was found before")
        self.observe(RebuildStep.TAKEN_OVER)
        return marker

    def _attempts(self, partitions: Iterable[TopicIdPartition]) -> Iterator[FoundAttempt]:
        for partition in partitions:
            yield from found_attempts(self.storage.list_segment_objects(partition))

    def _add(self, partition: TopicIdPartition, found: Sequence[StoredSegment | FaultyAttempt]) -> RebuiltPartition:
        stored, faulty = told_apart(found)
        log, carried = self._log([one.metadata for one in stored.values()])
        if not log.segments:
            return RebuiltPartition(partition, 0, faulty=faulty, not_taken=len(faulty))
        segments = tuple(stored[one.remote_log_segment_id] for one in log.segments)
        rebuilt = RebuiltPartition(
            partition,
            len(segments),
            sum(one.segment_size_bytes for one in log.segments),
            OffsetRange(min(one.start_offset for one in log.segments), max(one.end_offset for one in log.segments)),
            log.holes,
            log.left_out,
            faulty,
            log.decided,
            not_taken=len(log.left_out) + len(faulty),
        )
        if self.recovery is not None:
            epochs, detail = followed_epochs(log, carried), _detail(rebuilt)
            recovered = RecoveredPartition(partition, segments, epochs, log.holes, detail, log.decided, log.histories)
            self.recovery.add_partition(recovered, author=self.author)
            self.observe(RebuildStep.PARTITION_ADDED)
        return rebuilt

    def _log(self, copies: Sequence[RemoteLogSegmentMetadata]) -> tuple[RecoveredLog, LeaderEpochs]:
        """The log, and the leader epochs that its latest copy carries.

        Before a manifest makes another history of what others say, the history that its copy carries is asked: one odd
        manifest must not take a partition's other copies with it.
        """
        odd: list[LeftOut] = []
        left = list(copies)
        while True:
            carried = leader_epochs_of(self.storage, max(left, key=lateness)) if left else LeaderEpochs()
            log = recovered_log(left, carried)
            found = [one for one in log.contradicting if is_odd(one, leader_epochs_of(self.storage, one))]
            if not found:
                return replace(log, left_out=by_offset([*log.left_out, *odd])), carried
            odd += [LeftOut(one, Obstacle.ODD_EPOCHS) for one in found]
            left = [one for one in left if one not in found]


def _stored_before(plan: RebuildPlan, known: Mapping[TopicIdPartition, int]) -> Iterator[RebuiltPartition]:
    listed = {one.topic_id_partition: one.attempts for one in plan.partitions}
    for partition, segments in known.items():
        not_taken = max(0, listed.get(partition, 0) - segments)
        yield RebuiltPartition(partition, segments, before=True, not_taken=not_taken)


def _partition_of(found: StoredSegment | FaultyAttempt) -> TopicIdPartition:
    if isinstance(found, StoredSegment):
        return found.metadata.topic_id_partition
    return found.attempt.segment_id.topic_id_partition


def _counted(
    found: Iterable[StoredSegment | FaultyAttempt], on_examined: Callable[[int], None]
) -> Iterator[StoredSegment | FaultyAttempt]:
    for one in found:
        on_examined(1)
        yield one


def _detail(rebuilt: RebuiltPartition) -> str:
    return (
        f"{rebuilt.segments} segments, offsets {rebuilt.offsets}, {len(rebuilt.holes)} holes,"
        f" {len(rebuilt.decided)} histories that were followed, {_missing(rebuilt)} offsets missing of what they"
        " replaced; left out:"
        f" {len(rebuilt.left_out)} copies, {len(rebuilt.faulty)} that are not complete"
    )


def _missing(rebuilt: RebuiltPartition) -> int:
    return sum(hole.size for one in rebuilt.decided for hole in one.missing)
