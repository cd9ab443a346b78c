"""Rebuild the metadata of a store in an empty database, from the store alone: its marker, manifests and leader epochs.

A plan lists what the store holds: its marker, and the partitions that the keys of its objects name.

    step             done when it is reached                     a crash right after it leaves          cleaned up by
    BEGUN            the empty database is marked, with the      a marked database, which only a        the next call
                     marker that the store is to get             rebuild may use; an unchanged store
    TAKEN_OVER       the store has that marker                   the marked database; the old database  the next call
                                                                 may never use the store again
    PARTITION_ADDED  all of one partition is stored              some partitions, each whole            the next call
    FINISHED         the mark is removed                         a database like any other              -

The store gets its new marker before the objects of the planned partitions are listed again and read: from then on
deletions and copies of the old database are refused. A deletion that the old database sent before that may still remove
objects, so segments are served only after a verification.

The next call continues with the planned partitions that are missing. To give up a half rebuilt database, drop it, and
begin a rebuild in another empty database, which takes the store over again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import ForeignStoreError, RemoteStorageError, StateConflictError, printable
from include.tiering.model.histories import OffsetRange
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import StoreMarker, StorePlace, elsewhere
from include.tiering.model.recovered_histories import RecoveredHistory, is_odd, lateness
from include.tiering.model.recovered_log import (
    LeftOut,
    Obstacle,
    RecoveredLog,
    by_offset,
    followed_epochs,
    recovered_log,
)
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from include.tiering.recovery.contract import MetadataRecovery, RecoveredPartition, StoredSegment
from include.tiering.recovery.stored_attempts import (
    FaultyAttempt,
    FoundAttempt,
    examined,
    found_attempts,
    leader_epochs_of,
    separated,
)
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage
from include.tiering.remote_storage.store_ownership import MARKER_KEY

_REPORT_EVERY: Final = 1_000


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """One partition in the listing. `attempts` counts manifests, `log_bytes` all logs, also of incomplete attempts."""

    topic_id_partition: TopicIdPartition
    attempts: int
    log_bytes: int


@dataclass(frozen=True, slots=True)
class OtherName:
    """Objects whose keys give a topic id another name than most of its objects have; they are not rebuilt.

    Kafka never renames a topic.
    """

    topic_id: Uuid
    name: str
    objects: int


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """What can be rebuilt.

    `found` is the store's marker. `begun` is the marker of an unfinished rebuild, which is continued; None without one.
    """

    found: StoreMarker
    begun: StoreMarker | None
    partitions: tuple[ListedPartition, ...]
    other_names: tuple[OtherName, ...]

    @property
    def attempts(self) -> int:
        return sum(partition.attempts for partition in self.partitions)

    @property
    def log_bytes(self) -> int:
        return sum(partition.log_bytes for partition in self.partitions)


def plan_rebuild(
    storage: RemoteStorage,
    begun: Callable[[StoreMarker], StoreMarker | None],
    cluster_id: str | None,
    *,
    place: StorePlace | None = None,
    on_listed: Callable[[int], None] = lambda _: None,
) -> RebuildPlan:
    """Read the marker and list the store. Read only.

    Args:
        storage: the store, without the check of its marker.
        begun: as `MetadataRecovery.begun`; returns None for a database without tables, which is empty.
        cluster_id: of the brokers' log directories; None if there are none.
        place: the place of the keys according to the settings; None: do not compare it.
        on_listed: called after each 1,000 listed objects, with this number.

    Raises:
        ForeignStoreError: the store has no marker, or a marker of another cluster, another place than the settings
            name, or another database than an unfinished rebuild; or the listing lacks the marker; or the marker names
            no place, and the store has other objects, of which no key matches the settings.
        StateConflictError: the database has other rows or an unfinished rebuild of another cluster, or the layout
            writes no manifests.
    """
    if ObjectKind.MANIFEST not in storage.required_kinds:
        raise StateConflictError(
            "this store's layout writes no manifests, so it cannot be rebuilt from its objects: restore a backup of"
            " the database, or ingest the brokers' metadata topic"
        )
    found = storage.read_marker()
    if found is None:
        raise ForeignStoreError(
            f"the store has no {MARKER_KEY}, so its owner is unknown: is its disk mounted and its URL right?"
            " A store of another program is set up by ./tiering migrate, and taken over by ./tiering adopt"
        )
    if cluster_id is not None and found.cluster_id != cluster_id:
        raise ForeignStoreError(f"the store belongs to {found}, the log_dirs to cluster {cluster_id}")
    if place is not None and found.place not in (None, place):
        raise ForeignStoreError(elsewhere(found.place, place))
    begun_before = begun(found)
    if begun_before is not None:
        require_ours(found, begun_before)
    partitions, other_names = _listed(storage, on_listed)
    if not partitions and found.place is None:
        _require_empty(storage)
    return RebuildPlan(found, begun_before, partitions, other_names)


def _require_empty(storage: RemoteStorage) -> None:
    """Refuse a store that has other objects than its marker: the caller found no key of the settings' layout in it."""
    other_key = next((key for key, _ in storage.list_objects() if key != MARKER_KEY), None)
    if other_key is not None:
        raise ForeignStoreError(
            f"the store holds objects, for example {printable(other_key)}, and none of their keys matches"
            " remote_storage.layout and remote_storage.key_prefix: correct these settings"
        )


def require_ours(found: StoreMarker, begun: StoreMarker) -> None:
    """Raise ForeignStoreError if another database has taken the store over since this rebuild began."""
    before = found.cluster_id == begun.cluster_id and found.generation == begun.generation - 1
    if found != begun and not before:
        raise ForeignStoreError(
            f"the store belongs to {found}, this rebuild began as {begun}: drop this database and begin in another one"
        )


def by_name(partition: TopicIdPartition) -> tuple[str, Uuid, int]:
    """Return the sort key in whose order partitions are shown."""
    return partition.topic, partition.topic_id, partition.partition


@dataclass(slots=True)
class _Count:
    names: Counter[str] = field(default_factory=Counter)
    attempts: Counter[tuple[str, int]] = field(default_factory=Counter)
    log_bytes: Counter[tuple[str, int]] = field(default_factory=Counter)


def _listed(
    storage: RemoteStorage, on_listed: Callable[[int], None]
) -> tuple[tuple[ListedPartition, ...], tuple[OtherName, ...]]:
    """Return partitions, under the name that most objects of their topic id have, and the other names of topic ids."""
    topics: dict[Uuid, _Count] = {}
    has_marker = False
    for number, (key, size_bytes) in enumerate(storage.list_objects(), start=1):
        if not number % _REPORT_EVERY:
            on_listed(_REPORT_EVERY)
        has_marker |= key == MARKER_KEY
        if (found := storage.segment_object(key, size_bytes)) is None:
            continue
        partition = found.segment_id.topic_id_partition
        count = topics.setdefault(partition.topic_id, _Count())
        count.names[partition.topic] += 1
        at = (partition.topic, partition.partition)
        count.attempts[at] += found.kind is ObjectKind.MANIFEST
        count.log_bytes[at] += found.size_bytes if found.kind is ObjectKind.LOG else 0
    if not has_marker:
        raise ForeignStoreError(
            f"the listing of the store has no {MARKER_KEY}, which the store has: it is incomplete, or of another place;"
            " nothing is rebuilt from it"
        )
    partitions, others = [], []
    for topic_id, count in topics.items():
        name, *other_names = (name for name, _ in sorted(count.names.items(), key=_most_first))
        others += [OtherName(topic_id, other_name, count.names[other_name]) for other_name in other_names]
        partitions += [
            ListedPartition(TopicIdPartition(topic_id, number, name), attempts, count.log_bytes[name, number])
            for (named, number), attempts in count.attempts.items()
            if named == name
        ]
    partitions.sort(key=lambda listed: by_name(listed.topic_id_partition))
    return tuple(partitions), tuple(others)


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    return -counted[1], counted[0]


class RebuildStep(StrEnum):
    """Steps of a rebuild, in order; each is reported after it is done."""

    BEGUN = "begun"
    TAKEN_OVER = "taken over"
    PARTITION_ADDED = "partition added"
    FINISHED = "finished"


StepObserver = Callable[[RebuildStep], None]


@dataclass(frozen=True, slots=True)
class RebuiltPartition:
    """The result for one partition.

    Attributes:
        segments: how many were stored, or would be in a dry run; 0: the partition is not stored.
        offsets: from the first to the last offset of its segments, inclusive; None without segments.
        left_out: complete copies that were not taken.
        faulty: attempts that are no complete copies, or whose segment id another copy has.
        decided: later histories, each with the offset from which the rebuild follows it.
        before: an earlier call has stored it; then only `segments` and `not_taken` are known.
        not_taken: number of attempts that did not become segments; with `before`, of those that have a manifest.
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
    """The result of a rebuild. `marker` is the store's marker now; None after a dry run, which changes nothing."""

    found: StoreMarker
    marker: StoreMarker | None
    partitions: tuple[RebuiltPartition, ...]
    other_names: tuple[OtherName, ...]
    interrupted: bool
    seconds: float

    @property
    def segments(self) -> int:
        return sum(partition.segments for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Runs a rebuild. Without `recovery` it is a dry run: everything is read, nothing is changed."""

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
        """Take the store over, and store the content of its manifests, partition by partition.

        Args:
            plan: from `plan_rebuild`.
            wanted: the store's new marker; if an unfinished rebuild is continued, only its `raised_by` is used. If it
                is the marker that was found, the store is not taken over.
            on_examined: called with the number of attempts that were examined since the last call.
            stop: called after each partition; if it returns True, the run ends, and the next call continues.

        Raises:
            ForeignStoreError: another database has taken the store over.
            StateConflictError: the database is not empty, or is rebuilt for another cluster.
            RemoteStorageError: the store is not available, or an object that may be right cannot be read: the next call
                continues. A dry run only raises the second for a leader epoch index.
            MetadataUnavailableError: the next call continues.
        """
        began = self.clock.monotonic()
        marker, known = None, {}
        if self.recovery is not None:
            marker = self._take_over(self.recovery, plan, wanted)
            known = dict(self.recovery.recovered())
        rebuilt = list(_stored_before(plan, known))
        on_examined(sum(stored.segments + stored.not_taken for stored in rebuilt))
        missing = [where for listed in plan.partitions if (where := listed.topic_id_partition) not in known]
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
        rebuilt.sort(key=lambda partition: by_name(partition.topic_id_partition))
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
        stored, faulty = separated(found)
        if self.recovery is not None:
            _require_read(partition, faulty)
        log, carried = self._log([segment.metadata for segment in stored.values()])
        if not log.segments:
            left = log.left_out
            return RebuiltPartition(partition, 0, left_out=left, faulty=faulty, not_taken=len(left) + len(faulty))
        segments = tuple(stored[segment.remote_log_segment_id] for segment in log.segments)
        rebuilt = RebuiltPartition(
            partition,
            len(segments),
            sum(segment.segment_size_bytes for segment in log.segments),
            OffsetRange(
                min(segment.start_offset for segment in log.segments),
                max(segment.end_offset for segment in log.segments),
            ),
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
        """Return the recovered log, and the leader epochs in the leader epoch index of its latest copy.

        A manifest whose leader epochs contradict other manifests is first compared with the leader epoch index of its
        own copy. If the two differ, the copy is left out: a single odd manifest must not displace the other copies of a
        partition.
        """
        odd: list[LeftOut] = []
        left = list(copies)
        while True:
            carried = leader_epochs_of(self.storage, max(left, key=lateness)) if left else LeaderEpochs()
            log = recovered_log(left, carried)
            found = [
                segment for segment in log.contradicting if is_odd(segment, leader_epochs_of(self.storage, segment))
            ]
            if not found:
                return replace(log, left_out=by_offset([*log.left_out, *odd])), carried
            odd += [LeftOut(segment, Obstacle.ODD_EPOCHS) for segment in found]
            left = [segment for segment in left if segment not in found]


def _require_read(partition: TopicIdPartition, faulty: Iterable[FaultyAttempt]) -> None:
    """Refuse to add a partition with a copy that may be complete: its offsets would be recorded as skipped for ever."""
    unread = [attempt for attempt in faulty if attempt.is_unread]
    if unread:
        raise RemoteStorageError(
            f"{partition}: {len(unread)} copies may be complete and cannot be read, first"
            f" {unread[0].attempt.segment_id.id} at offset {unread[0].attempt.start_offset}: {unread[0].message}; make"
            " them readable, or move their objects out of the store if they are lost, and call ./tiering rebuild again"
        )


def _stored_before(plan: RebuildPlan, known: Mapping[TopicIdPartition, int]) -> Iterator[RebuiltPartition]:
    listed = {partition.topic_id_partition: partition.attempts for partition in plan.partitions}
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
    for segment in found:
        on_examined(1)
        yield segment


def _detail(rebuilt: RebuiltPartition) -> str:
    return (
        f"{rebuilt.segments} segments, offsets {rebuilt.offsets}, {len(rebuilt.holes)} holes,"
        f" {len(rebuilt.decided)} later histories that are followed, {_missing(rebuilt)} offsets that they replaced and"
        f" no copy has; left out: {len(rebuilt.left_out)} complete copies, {len(rebuilt.faulty)} incomplete copies"
    )


def _missing(rebuilt: RebuiltPartition) -> int:
    return sum(hole.size for history in rebuilt.decided for hole in history.missing)
