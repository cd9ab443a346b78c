"""The expiration plan: the retention decisions about partitions of topics that the platform owns.

Log start, leader epochs, segments in any state and retention are the platform's own values, from SQL. Two inputs come
from brokers: the states of topics in the cluster (deleted, tiered by brokers, name taken by another topic), and, only
for topics with a retention.bytes, the bytes that are not remote yet. Bytes that are unknown or implausible count as 0,
which deletes less, and the plan says so. Segments that a broker began neither expire here nor count, in topics of any
owner. Planning changes nothing; the caller stores the plan, and each batch reads the owner of the topic and the state
of every segment again.

The work follows what expires, not the number of segments: a plan reads the oldest segments of each partition, until
they decide (`rules`), and takes sizes from the counters of KIP-852. It reads every segment only if the deletion of the
topic is due, if no leader epoch is known, if retention.bytes is exceeded in a partition whose segments are not all of
one lineage, or if segments would expire by size and the counters do not agree with the rows.

The beginning of a partition can also be deleted by decision: see `truncation`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Final

from include.tiering.configs.config_store import FOR_EVER, TopicRetention
from include.tiering.expiration.rules import decide_deletions, is_one_lineage
from include.tiering.kafka.log_dirs.contract import LogSegment, Replica, ReplicaId, ScanReport, matches
from include.tiering.kafka.log_dirs.rules import local_only_bytes, local_only_segments, without_doubtful
from include.tiering.model.histories import FIRST_HISTORY, Lineage, is_left, newest_history
from include.tiering.model.ownership import LeaseRole, SegmentOrigin, TopicOwner
from include.tiering.model.reasons import Reason
from include.tiering.model.retention import (
    SUPERSEDED_HOLD_MS,
    DeletionDecision,
    DeletionReason,
    RetentionInput,
    RetentionOutcome,
)
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentState, TopicIdPartition, Uuid
from include.tiering.runs.contract import WorkStore
from include.tiering.runs.deletion_run import PlannedDeletion, PlannedExpiration, plan_hash
from include.tiering.segments.contract import PartitionRetentionState, RemoteLogMetadata, SegmentRow, TopicRegistry
from include.tiering.segments.topics import UNKNOWN_LIFECYCLE_STATE, TopicDeletion, TopicLifecycleState
from include.tiering.units import format_utc


@dataclass(frozen=True, slots=True)
class Unknown:
    """An unknown value of a partition that makes the plan delete less."""

    topic_id_partition: TopicIdPartition
    sentence: str


class Waits(Reason):
    """Why segments of a partition do not expire although they might."""

    NOT_READY = "not-ready", "its metadata is not complete", True
    NOT_OURS = "not-ours", "another owner expires this topic", True
    STOPPED = "stopped", "stopped by a failed segment: retention by time and size waits"
    NAME_TAKEN = "name-taken", "another topic has, or may have, its name: retention set on the name does not apply"
    TOPIC_DELETED = "topic-deleted", "the deletion of its topic was recorded: its remote segments stay for now"
    PUBLISHED = "published", "brokers may take over segments that were published: these stay"


@dataclass(frozen=True, slots=True)
class WaitingPartition:
    """A partition in which this plan expires nothing, or less than retention allows. `detail` is for a person."""

    topic_id_partition: TopicIdPartition
    reason: Waits
    detail: str


@dataclass(frozen=True, slots=True)
class HeldSegments:
    """Failed segments that new copies replaced, and whose objects are kept as evidence for now.

    The last of them is due for deletion at `until_ms`, by the database's clock.
    """

    topic_id_partition: TopicIdPartition
    segments: int
    size_bytes: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class ExpirationPlan:
    """Planned deletions by topic and partition. `plan_hash` identifies what the plan deletes."""

    run_id: str
    expirations: tuple[PlannedExpiration, ...]
    unknowns: tuple[Unknown, ...]
    waiting: tuple[WaitingPartition, ...] = ()
    held: tuple[HeldSegments, ...] = ()

    @property
    def plan_hash(self) -> str:
        return plan_hash(self.expirations)

    @property
    def segments(self) -> int:
        return sum(len(planned.deletions) for planned in self.expirations)

    @property
    def size_bytes(self) -> int:
        return sum(deletion.size_bytes for planned in self.expirations for deletion in planned.deletions)


_NOTHING_EXPIRES: Final = frozenset({Waits.NOT_READY, Waits.NOT_OURS})
_LIMITS_WAIT: Final = frozenset({Waits.NAME_TAKEN, Waits.STOPPED})
_FIRST_READ: Final = 16
"""How many segments are read of a partition at first: with them it usually shows that nothing expires."""
_MORE_EACH_TIME: Final = 4


SizeDoubts = Callable[[ReplicaId, Sequence[LogSegment]], Mapping[int, str]]
"""See `LogSource.size_doubts`."""


def no_doubts(_replica_id: ReplicaId, _segments: Sequence[LogSegment]) -> Mapping[int, str]:
    """Return no doubts, for tests and callers without log directories."""
    return {}


Held = Callable[[TopicIdPartition], Collection[Uuid]]
"""See `PublicationStore.held_segments`."""


def nothing_held(_partition: TopicIdPartition) -> Collection[Uuid]:
    """Return no ids, for tests and callers without published records."""
    return ()


@dataclass(frozen=True, slots=True)
class ExpirationPlanner:
    """Plans deletions. Nothing is stored.

    `retentions` is the configured retention by topic name. `lifecycle_states` are the topics' states in the cluster, by
    topic id. `size_doubts` is called for segments whose local bytes would count. `held` returns the ids of the segments
    that the brokers' metadata topic has: they stay until their deletion was published.
    """

    metadata: RemoteLogMetadata
    registry: TopicRegistry
    work: WorkStore
    retentions: Mapping[str, TopicRetention]
    abandoned_copy_expiry_ms: int
    lifecycle_states: Mapping[Uuid, TopicLifecycleState] = field(default_factory=dict)
    superseded_hold_ms: int = SUPERSEDED_HOLD_MS
    size_doubts: SizeDoubts = no_doubts
    held: Held = nothing_held

    def partitions(self, patterns: Collection[str] = ()) -> Sequence[TopicIdPartition]:
        """Return partitions with segments, ordered by topic and partition; with patterns, those whose topics match one.

        Partitions of topics without an owner are left out.
        """
        return [
            partition
            for partition in self.metadata.partitions()
            if (not patterns or matches(partition.topic, patterns))
            and self.registry.owner(partition.topic_id) is not TopicOwner.NONE
        ]

    def topics_by_size(self, partitions: Collection[TopicIdPartition]) -> Collection[str]:
        """Return the names of topics with a retention.bytes that applies to them: their local bytes count."""
        names = {partition.topic for partition in partitions if not self._lifecycle_state(partition).is_name_taken}
        return sorted(name for name in names if self.retentions.get(name, FOR_EVER).retention_bytes is not None)

    def plan(
        self, run_id: str, partitions: Sequence[TopicIdPartition], report: ScanReport | None, *, now_ms: int
    ) -> ExpirationPlan:
        """Decide for each partition. `report` is a scan of `topics_by_size`; None if nothing was scanned.

        `now_ms` is the database's clock.
        """
        replicas = _current_replicas(report)
        expirations: list[PlannedExpiration] = []
        unknowns: list[Unknown] = []
        waiting: list[WaitingPartition] = []
        held: list[HeldSegments] = []
        for partition in partitions:
            waits = [WaitingPartition(partition, reason, detail) for reason, detail in self._waits(partition)]
            waiting += waits
            reasons = {wait.reason for wait in waits}
            if reasons & _NOTHING_EXPIRES:
                continue
            retention = FOR_EVER if reasons & _LIMITS_WAIT else self.retentions.get(partition.topic, FOR_EVER)
            replica, doubts = self._sure(replicas.get(partition), retention)
            # Read before the input, so that segments copied or decisions recorded in between count as later ones.
            highest = None if replica is None else self.metadata.highest_copied_offset(partition)
            history = FIRST_HISTORY if replica is None else self.newest_history(partition)
            given, outcome = self._decided(partition, retention, now_ms, partial(self._local_bytes, partition, replica))
            waiting += [
                WaitingPartition(partition, *wait) for wait in self._waits_of_published(partition, given.published)
            ]
            unknowns.extend(Unknown(partition, sentence) for sentence in doubts)
            unknowns.extend(Unknown(partition, sentence) for sentence in outcome.unknowns)
            held += _held(partition, given, outcome)
            if outcome.decisions:
                deletions = tuple(map(_planned, outcome.decisions))
                expirations.append(
                    PlannedExpiration(
                        partition,
                        given.log_start_offset,
                        outcome.log_start_offset,
                        deletions,
                        given.local_only_bytes,
                        -1 if highest is None else highest,
                        history,
                    )
                )
        return ExpirationPlan(run_id, tuple(expirations), tuple(unknowns), tuple(waiting), tuple(held))

    def plan_again(self, planned: PlannedExpiration, *, now_ms: int) -> PlannedExpiration | None:
        """Return what would be planned of this partition now; None if it is not ready or another owner expires it.

        A worker that deletes may be unable to read log directories. So the local bytes are those that `planned` was
        based on, less the segments that were copied since.
        """
        partition = planned.topic_id_partition
        reasons = {reason for reason, _ in self._waits(partition)}
        if reasons & _NOTHING_EXPIRES:
            return None
        retention = FOR_EVER if reasons & _LIMITS_WAIT else self.retentions.get(partition.topic, FOR_EVER)
        given, outcome = self._decided(partition, retention, now_ms, partial(self._local_bytes_left, planned))
        return replace(
            planned,
            log_start_before=given.log_start_offset,
            log_start_offset=outcome.log_start_offset,
            deletions=tuple(map(_planned, outcome.decisions)),
        )

    def why_it_waits(self, partition: TopicIdPartition) -> str:
        """Return why segments of the partition are kept now; empty if only retention decides."""
        waits = [*self._waits(partition)]
        if not _NOTHING_EXPIRES.intersection(reason for reason, _ in waits):
            waits += self._waits_of_published(partition, self._published(partition))
        return "; ".join(f"{reason}: {detail}" for reason, detail in waits)

    def _waits(self, partition: TopicIdPartition) -> Iterator[tuple[Waits, str]]:
        """Yield the reasons that are known without the segments; `_waits_of_published` has the other one."""
        lifecycle_state, owner = self._lifecycle_state(partition), self.registry.owner(partition.topic_id)
        if owner is not TopicOwner.BROKER and not self.metadata.is_ready(partition):
            yield Waits.NOT_READY, "./tiering ready"
            return
        if lifecycle_state.is_broker_tiered and owner is TopicOwner.PLATFORM:
            yield Waits.NOT_OURS, "remote.storage.enable is true"
        elif owner is not TopicOwner.PLATFORM:
            yield Waits.NOT_OURS, f"owner: {owner}"
        if lifecycle_state.kept_because:
            yield Waits.TOPIC_DELETED, lifecycle_state.kept_because
        if lifecycle_state.deletion_due or self.retentions.get(partition.topic, FOR_EVER) == FOR_EVER:
            return
        if lifecycle_state.is_name_taken:
            yield Waits.NAME_TAKEN, f"topic id {partition.topic_id} keeps all: {lifecycle_state.name_taken_because}"
        stopped = self.metadata.stopped_reason(partition)
        if stopped is not None:
            yield Waits.STOPPED, stopped

    def _waits_of_published(
        self, partition: TopicIdPartition, published: Collection[RemoteLogSegmentId]
    ) -> Iterator[tuple[Waits, str]]:
        if published:
            way_out = _way_out(partition, self._lifecycle_state(partition))
            yield Waits.PUBLISHED, f"segments that brokers know: {len(published)}; {way_out}"

    def _decided(
        self,
        partition: TopicIdPartition,
        retention: TopicRetention,
        now_ms: int,
        local_bytes: Callable[[], int | None],
    ) -> tuple[RetentionInput, RetentionOutcome]:
        """Decide from the oldest segments, then from as many as needed; return what was considered, and the result."""
        finished: int | None = _FIRST_READ
        while True:
            given = self._input(partition, retention, now_ms, local_bytes, finished)
            if given is not None and (outcome := decide_deletions(given)).is_conclusive:
                # Counters that are too high would delete too much: nothing goes by size before they were checked.
                if given.rest is None or not outcome.by_size or self.metadata.selected.counters_agree(partition):
                    return given, outcome
                finished = None
            finished = None if given is None or finished is None else finished * _MORE_EACH_TIME

    def _input(
        self,
        partition: TopicIdPartition,
        retention: TopicRetention,
        now_ms: int,
        local_bytes: Callable[[], int | None],
        finished: int | None,
    ) -> RetentionInput | None:
        """Return the input with about `finished` FINISHED segments; None if every segment has to be read."""
        retained, deletion_due = self.metadata.retention_state(partition), self._lifecycle_state(partition).deletion_due
        if finished is not None and (deletion_due or not retained.leader_epochs.entries):
            return None
        oldest = self.metadata.selected.oldest_segments(
            partition,
            finished,
            log_start_offset=retained.log_start_offset,
            with_size=retention.retention_bytes is not None,
            future_from_ms=None if retention.retention_ms is None else now_ms,
        )
        rows, rest = oldest.rows, oldest.rest
        # Read after the segments, so that one that is copied in between counts neither as remote nor as local.
        local_only_bytes, divergences = local_bytes(), self.metadata.divergences(partition)
        if rest is not None and retention.retention_bytes is not None:
            if self._is_within(partition, retained, retention.retention_bytes - (local_only_bytes or 0)):
                rest = replace(rest, size_bytes=0)
            elif newest_history(divergences) != FIRST_HISTORY or not is_one_lineage(
                retained.leader_epochs, oldest.extents
            ):
                return None
        left = (row.metadata for row in rows if is_left(row.metadata, row.history, divergences))
        return RetentionInput(
            topic_id_partition=partition,
            segments=tuple(row.metadata for row in rows),
            lineage=retained.leader_epochs,
            log_start_offset=retained.log_start_offset,
            now_ms=now_ms,
            # A broker that lost or truncated its log has a lower end. That must not put archived segments outside the
            # lineage: only leader epochs decide which segments are.
            log_end_offset=None,
            local_only_bytes=local_only_bytes,
            retention_ms=retention.retention_ms,
            retention_bytes=retention.retention_bytes,
            abandoned_copy_expiry_ms=self.abandoned_copy_expiry_ms,
            under_live_work=self._under_live_work(partition, rows),
            topic_deletion_due=deletion_due,
            superseded_at_ms={
                row.metadata.remote_log_segment_id: row.delete_started_at_ms
                for row in rows
                if row.superseded_by is not None and row.delete_started_at_ms is not None
            },
            superseded_hold_ms=self.superseded_hold_ms,
            left=frozenset(segment.remote_log_segment_id for segment in left),
            # Read after the rows: a segment among them that is published meanwhile counts as published.
            published=self._published(partition),
            rest=rest,
        )

    def _is_within(self, partition: TopicIdPartition, retained: PartitionRetentionState, limit_bytes: int) -> bool:
        """Return whether the remote log is certainly no larger than the limit: nothing expires by size then.

        As a broker does, it adds up the sizes of the leader epochs from the log start on (KIP-852). A segment with
        several epochs counts in each of them, so the sum may be too large, but not too small.
        """
        lineage = Lineage.of(retained.leader_epochs, log_start_offset=retained.log_start_offset)
        sizes = (self.metadata.remote_log_size(partition, entry.epoch) for entry in lineage.leader_epochs)
        return all(total <= limit_bytes for total in accumulate(sizes, initial=0))

    def _local_bytes(self, partition: TopicIdPartition, replica: Replica | None) -> int | None:
        if replica is None:
            return None
        highest, retained = self.metadata.highest_copied_offset(partition), self.metadata.retention_state(partition)
        return local_only_bytes(replica, highest, retained.log_start_offset)

    def _local_bytes_left(self, planned: PlannedExpiration) -> int | None:
        """Return the planned local bytes less the segments copied since; None if they are unknown.

        They are also unknown if another history is followed now than when they were counted: the source's log has
        changed.
        """
        partition = planned.topic_id_partition
        divergences = self.metadata.divergences(partition)
        if planned.local_bytes is None or planned.local_history != newest_history(divergences):
            return None
        copied = [
            row.metadata.segment_size_bytes
            for row in self.metadata.selected.finished_from(partition, planned.local_behind_offset + 1)
            # Segments of a replaced history were never among the local bytes.
            if row.origin is SegmentOrigin.PLATFORM and not is_left(row.metadata, row.history, divergences)
        ]
        return max(0, planned.local_bytes - sum(copied))

    def _published(self, partition: TopicIdPartition) -> frozenset[RemoteLogSegmentId]:
        """Return the segments that brokers may take over.

        No broker looks for those of a deleted topic; they go by `tiering.on.topic.delete` alone, with an approval.
        """
        if self._lifecycle_state(partition).deletion_due:
            return frozenset()
        return frozenset(RemoteLogSegmentId(partition, segment_id) for segment_id in self.held(partition))

    def newest_history(self, partition: TopicIdPartition) -> int:
        """Return the number of the history that is followed."""
        return newest_history(self.metadata.divergences(partition))

    def _sure(self, replica: Replica | None, retention: TopicRetention) -> tuple[Replica | None, list[str]]:
        """Return the replica without local segments whose sizes must not count, and a sentence about each of those."""
        if replica is None or retention.retention_bytes is None:
            return replica, []
        partition = replica.topic_id_partition
        highest, retained = self.metadata.highest_copied_offset(partition), self.metadata.retention_state(partition)
        segments = local_only_segments(replica, highest, retained.log_start_offset)
        return without_doubtful(replica, segments, self.size_doubts(replica.replica_id, segments))

    def _under_live_work(
        self, partition: TopicIdPartition, rows: Sequence[SegmentRow]
    ) -> frozenset[RemoteLogSegmentId]:
        started = [
            row.metadata.remote_log_segment_id
            for row in rows
            if row.metadata.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
        ]
        if not started or self.work.holder(partition, LeaseRole.COPY) is None:
            return frozenset()
        return frozenset(started)

    def _lifecycle_state(self, partition: TopicIdPartition) -> TopicLifecycleState:
        return self.lifecycle_states.get(partition.topic_id, UNKNOWN_LIFECYCLE_STATE)


def _way_out(partition: TopicIdPartition, lifecycle_state: TopicLifecycleState) -> str:
    """Return how published segments of the partition may expire."""
    if lifecycle_state.is_deleted:
        return "the topic was deleted, so they expire only by tiering.on.topic.delete=expire:Nd, with an approval"
    return f"./tiering publish {partition.topic} publishes the deletion of those below the broker's log start"


def deletion_demands(plan: Iterable[PlannedExpiration], recorded: Mapping[Uuid, TopicDeletion]) -> dict[Uuid, str]:
    """Return, by topic id, why deleting all segments of a deleted topic needs an approval, for each such topic."""
    topics = {
        planned.topic_id_partition.topic_id: planned.topic_id_partition.topic
        for planned in plan
        if any(deletion.reason == DeletionReason.TOPIC_DELETED for deletion in planned.deletions)
    }
    return {
        topic_id: f"{topic} ({topic_id}): {_why_all_goes(recorded.get(topic_id))}" for topic_id, topic in topics.items()
    }


def _why_all_goes(deletion: TopicDeletion | None) -> str:
    if deletion is None:
        return "all of its segments would be deleted because the topic was deleted, which is no longer recorded"
    seen = f"seen {format_utc(deletion.seen_at_ms)}, {deletion.evidence}"
    return f"the topic was deleted ({seen}): all of its segments are deleted, which always needs an approval"


def _held(partition: TopicIdPartition, given: RetentionInput, outcome: RetentionOutcome) -> list[HeldSegments]:
    if not outcome.held:
        return []
    last_ms = max(given.superseded_at_ms[segment.remote_log_segment_id] for segment in outcome.held)
    size_bytes = sum(segment.segment_size_bytes for segment in outcome.held)
    return [HeldSegments(partition, len(outcome.held), size_bytes, last_ms + given.superseded_hold_ms)]


def _current_replicas(report: ScanReport | None) -> Mapping[TopicIdPartition, Replica]:
    """Return the chosen replicas, except of partitions in which another replica has a later leader epoch.

    There the cluster metadata may be old, and the records of the chosen replica lost.
    """
    chosen: dict[TopicIdPartition, Replica] = {}
    latest: dict[TopicIdPartition, int] = {}
    for replica in () if report is None else report.replicas:
        partition = replica.topic_id_partition
        latest[partition] = max(latest.get(partition, -1), _last_epoch(replica))
        if replica.chosen:
            chosen[partition] = replica
    return {partition: replica for partition, replica in chosen.items() if _last_epoch(replica) == latest[partition]}


def _last_epoch(replica: Replica) -> int:
    entries = replica.leader_epochs.entries
    return entries[-1].epoch if entries else -1


def _planned(decision: DeletionDecision) -> PlannedDeletion:
    segment = decision.segment
    return PlannedDeletion(
        segment.remote_log_segment_id,
        segment.start_offset,
        segment.end_offset,
        segment.segment_size_bytes,
        segment.state,
        str(decision.reason),
        ", ".join(f"{name} {value}" for name, value in decision.numbers),
    )
