"""Stores in memory, for tests of what stands above them."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from include.tiering.configs.config_store import (
    ConfigAlteration,
    ConfigChange,
    ConfigCheck,
    ConfigEntity,
    ConfigSnapshot,
    EntityType,
    accept_all,
)
from include.tiering.configs.pools import POOLS, PoolUsage, SeenPool
from include.tiering.errors import UnknownSegmentError
from include.tiering.model.histories import Divergence, SeenDivergence, SkippedOffsets
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.model.sizes import PartitionSize, PartitionStates, partition_size, partition_states
from include.tiering.quotas.contract import QuotasInForce, QuotaWorker
from include.tiering.segments.contract import (
    PartitionRetentionState,
    QualityResult,
    RecordedVerdict,
    SegmentRow,
    Verification,
)
from include.tiering.segments.topics import TopicDeletion
from include.tiering.segments.values import conclude, deep_passed_at_ms, listing_order
from include.tiering.verification.plan import (
    PlannedVerification,
    PlanShare,
    VerificationOutcome,
    VerificationResult,
    VerificationTotal,
)
from tests.doubles.manual_clock import ManualClock
from tests.doubles.partial import Partial

# Stores in memory, for tests of what stands above them.

# Remote log metadata in a dictionary: enough of the contract for tasks that read segments and store verdicts.


def _end_of(row: SegmentRow) -> tuple[int, int]:
    return row.metadata.end_offset, row.metadata.start_offset


class MemoryMetadata(Partial):
    """A test puts rows in and changes them as it likes.

    `runs` names the segments of each run, `skipped` the holes that were recorded and `state` what holds
    of any partition.
    """

    def __init__(self, rows: Iterable[SegmentRow] = ()) -> None:
        self.rows: dict[RemoteLogSegmentId, SegmentRow] = {}
        self.runs: dict[str, list[RemoteLogSegmentId]] = {}
        self.results: dict[tuple[RemoteLogSegmentId, str], tuple[QualityResult, int]] = {}
        self._now_ms = 0
        self.skipped: list[SkippedOffsets] = []
        self.diverged: list[Divergence] = []
        self.recorded: list[tuple[SeenDivergence, int]] = []
        self.state = PartitionRetentionState()
        self.selected = self
        for row in rows:
            self.put(row)

    def put(self, row: SegmentRow, *, run_id: str | None = None) -> None:
        segment_id = row.metadata.remote_log_segment_id
        self.rows[segment_id] = row
        if run_id is not None:
            self.runs.setdefault(run_id, []).append(segment_id)

    def segment(self, segment_id: RemoteLogSegmentId) -> SegmentRow | None:
        return self.rows.get(segment_id)

    def partitions(self) -> Sequence[TopicIdPartition]:
        return sorted({p.topic_id_partition for p in self.rows}, key=lambda p: (p.topic, p.partition))

    def list_segments(self, partition: TopicIdPartition, leader_epoch: int | None = None) -> Sequence[SegmentRow]:
        return sorted(self._live(partition), key=lambda row: row.metadata.start_offset)

    def segments_with_ids(
        self, partition: TopicIdPartition, ids: Iterable[Uuid], *, finished_from: int | None = None
    ) -> Sequence[SegmentRow]:
        assert finished_from is None
        wanted = set(ids)
        rows = [row for row in self._live(partition) if row.metadata.remote_log_segment_id.id in wanted]
        return sorted(rows, key=listing_order)

    def finished_before(self, row: SegmentRow) -> RemoteLogSegmentMetadata | None:
        partition = row.metadata.topic_id_partition
        others = [other for other in self._live(partition) if other.metadata.is_finished]
        before = [one for one in others if one.history == row.history and _end_of(one) < _end_of(row)]
        return max(before, key=_end_of).metadata if before else None

    def finished_with_verdicts(self, verdicts: Mapping[Verdict, int | None]) -> Sequence[SegmentRow]:
        latest_ms = {verdict: inf if value is None else value for verdict, value in verdicts.items()}
        rows = [
            row
            for row in self.rows.values()
            if row.metadata.is_finished
            and row.verdict in latest_ms
            and (row.verdict_at_ms or 0) <= latest_ms[row.verdict]
        ]
        return sorted(rows, key=lambda row: (str(row.metadata.topic_id_partition), listing_order(row)))

    def segment_for_offset(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """Of several the one that was put last."""
        found = None
        for row in self._live(partition):
            end = row.metadata.end_offset_of_epoch(leader_epoch)
            epochs = dict(row.metadata.segment_leader_epochs)
            if row.metadata.is_finished and end is not None and epochs[leader_epoch] <= offset <= end:
                found = row.metadata
        return found

    def retention_state(self, partition: TopicIdPartition) -> PartitionRetentionState:
        return self.state

    def divergences(self, partition: TopicIdPartition) -> Sequence[Divergence]:
        return self.diverged

    def record_divergence(self, partition: TopicIdPartition, seen: SeenDivergence, *, history: int) -> None:
        self.recorded.append((seen, history))

    def skipped_offsets(self, partition: TopicIdPartition) -> Sequence[SkippedOffsets]:
        return self.skipped

    def segments_of_run(self, run_id: str) -> Sequence[SegmentRow]:
        return [self.rows[segment_id] for segment_id in self.runs.get(run_id, ())]

    def unverified_segments(self) -> Sequence[SegmentRow]:
        return [row for row in self.rows.values() if row.metadata.is_finished and row.verdict is Verdict.NONE]

    def record_verdict(self, segment_id: RemoteLogSegmentId, verdict: Verdict, *, detail: str = "") -> None:
        if segment_id not in self.rows:
            raise UnknownSegmentError(f"no remote log segment {segment_id}")
        self._set_verdict(segment_id, verdict, detail, self._next_ms())

    def record_verification(self, verification: Verification) -> RecordedVerdict | None:
        row = self.rows.get(verification.segment_id)
        if row is None or not row.metadata.is_finished:
            return None
        at_ms = self._next_ms()
        unresolved = [pair for key, pair in self._results_of(verification.segment_id) if not pair[0].passed]
        conclusion = conclude(verification, unresolved)
        self.results.update({(one.segment_id, one.rule): (one, at_ms) for one in conclusion.results})
        if conclusion.verdict is not None:
            self._set_verdict(
                verification.segment_id, conclusion.verdict, conclusion.detail, at_ms, is_deep=verification.is_deep
            )
        return RecordedVerdict(self.rows[verification.segment_id].verdict, conclusion.broken)

    def quality_results(self, segment_id: RemoteLogSegmentId) -> Sequence[QualityResult]:
        return [result for _, (result, _) in self._results_of(segment_id)]

    def partition_sizes(self, partition: TopicIdPartition | None = None) -> Sequence[PartitionSize]:
        wanted = self.partitions() if partition is None else [partition]
        sizes = [partition_size(each, (row.metadata for row in self._live(each))) for each in wanted]
        return [size for size in sizes if size.segments]

    def partition_states(self, partition: TopicIdPartition | None = None) -> Sequence[PartitionStates]:
        wanted = self.partitions() if partition is None else [partition]
        return [partition_states(each, (row.metadata for row in self._live(each))) for each in wanted]

    def recount(self, partition: TopicIdPartition) -> PartitionStates:
        return partition_states(partition, (row.metadata for row in self.list_segments(partition)))

    def _live(self, partition: TopicIdPartition) -> list[SegmentRow]:
        hidden = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
        found = (row for row in self.rows.values() if row.metadata.topic_id_partition == partition)
        return [row for row in found if row.metadata.state is not hidden]

    def _results_of(
        self, segment_id: RemoteLogSegmentId
    ) -> list[tuple[tuple[RemoteLogSegmentId, str], tuple[QualityResult, int]]]:
        """By rule."""
        return sorted((item for item in self.results.items() if item[0][0] == segment_id), key=lambda item: item[0][1])

    def _set_verdict(
        self, segment_id: RemoteLogSegmentId, verdict: Verdict, detail: str, at_ms: int, *, is_deep: bool = False
    ) -> None:
        row = self.rows[segment_id]
        deep = deep_passed_at_ms(row, verdict, at_ms, is_deep=is_deep)
        self.rows[segment_id] = replace(
            row, verdict=verdict, verdict_detail=detail, verdict_at_ms=at_ms, deep_passed_at_ms=deep
        )

    def _next_ms(self) -> int:
        """A clock that ticks when it is read."""
        self._now_ms += 1
        return self._now_ms


# Plans of verifications in a dictionary: enough of the contract for tasks that work one off.


@dataclass
class MemoryVerifications(Partial):
    """`records` holds every call of `record`, in order."""

    plans: dict[str, dict[RemoteLogSegmentId, PlannedVerification]] = field(default_factory=dict)
    results: dict[tuple[str, RemoteLogSegmentId], VerificationResult] = field(default_factory=dict)
    records: list[list[VerificationResult]] = field(default_factory=list)
    confirmed: list[tuple[str, str]] = field(default_factory=list)

    def save_plan(self, run_id: str, planned: Sequence[PlannedVerification]) -> None:
        self.plans[run_id] = {one.segment_id: one for one in planned}

    def pending(self, run_id: str, *, at_most: int, share: PlanShare | None = None) -> Sequence[PlannedVerification]:
        first, end = (share or PlanShare(0, 1)).bounds(len(self.plans[run_id]))
        part = self._in_order(run_id)[first:end]
        return [one for one in part if self._outcome(run_id, one) is VerificationOutcome.PLANNED][:at_most]

    def planned(self, run_id: str, outcome: VerificationOutcome) -> list[PlannedVerification]:
        return [one for one in self._in_order(run_id) if self._outcome(run_id, one) is outcome]

    def _in_order(self, run_id: str) -> list[PlannedVerification]:

        def place(one: PlannedVerification) -> tuple[str, int, int]:
            partition = one.segment_id.topic_id_partition
            return partition.topic, partition.partition, one.start_offset

        return sorted(self.plans[run_id].values(), key=place)

    def record(self, run_id: str, results: Sequence[VerificationResult]) -> None:
        self.records.append(list(results))
        for result in results:
            assert result.segment_id in self.plans[run_id]
            self.results[run_id, result.segment_id] = result

    def note_confirmed_losses(self, found: str, *, author: str) -> None:
        self.confirmed.append((found, author))

    def totals(self, run_id: str) -> Sequence[VerificationTotal]:
        totals = []
        for outcome in VerificationOutcome:
            found = self.planned(run_id, outcome)
            read_bytes = sum(
                self.results[run_id, one.segment_id].read_bytes
                for one in found
                if outcome is not VerificationOutcome.PLANNED
            )
            planned_bytes = sum(one.planned_bytes for one in found)
            totals.append(VerificationTotal(outcome, len(found), planned_bytes, read_bytes))
        return totals

    def _outcome(self, run_id: str, planned: PlannedVerification) -> VerificationOutcome:
        result = self.results.get((run_id, planned.segment_id))
        return VerificationOutcome.PLANNED if result is None else result.outcome


# Deletions of topics in a dictionary, all seen at one moment.

SEEN_MS: Final = 1_700_000_000_000


class MemoryTopicDeletions:
    """`TopicDeletions`; `known` is what is recorded."""

    def __init__(self) -> None:
        self.known: dict[Uuid, TopicDeletion] = {}

    def all(self) -> Mapping[Uuid, TopicDeletion]:
        return dict(self.known)

    def record(self, topic_id: Uuid, topic: str, *, evidence: str, author: str) -> TopicDeletion:
        return self.known.setdefault(topic_id, TopicDeletion(topic, SEEN_MS, evidence))

    def withdraw(self, topic_id: Uuid, *, evidence: str, author: str) -> None:
        self.known.pop(topic_id, None)


# Dynamic configs in memory, and a quota ledger whose workers do as they are told.


class MemoryConfigStore:
    """`ConfigStore` for one thread. Versions count changes."""

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self._now_ms = now_ms or ManualClock().now_ms
        self._values: dict[ConfigEntity, dict[str, str]] = {}
        self._history: list[ConfigChange] = []

    def snapshot(self) -> ConfigSnapshot:
        return ConfigSnapshot(len(self._history), {one: dict(values) for one, values in self._values.items()})

    def of_entity(self, entity: ConfigEntity) -> Mapping[str, str]:
        return dict(self._values.get(entity, {}))

    def alter(
        self,
        entity: ConfigEntity,
        changes: Mapping[str, str | None],
        *,
        author: str,
        check: ConfigCheck = accept_all,
    ) -> ConfigAlteration:
        known = self.of_entity(entity)
        own = {name: value for name, value in {**known, **changes}.items() if value is not None}
        after = {one: values for one, values in {**self._values, entity: own}.items() if values}
        check(self._values, after)
        self._values = after
        made = tuple(
            ConfigChange(entity, name, known.get(name), value, author, self._now_ms())
            for name, value in changes.items()
            if known.get(name) != value
        )
        self._history += made
        return ConfigAlteration(made, self.snapshot())

    def history(
        self,
        entity: ConfigEntity | None = None,
        *,
        entity_type: EntityType | None = None,
        since_ms: int = 0,
        newest: int | None = None,
    ) -> Sequence[ConfigChange]:
        own = (change for change in self._history if entity in (None, change.entity))
        of_type = (change for change in own if entity_type in (None, change.entity.entity_type))
        found = [change for change in of_type if change.changed_at_ms >= since_ms]
        return found if newest is None else found[-newest:]

    def changes_of_topics(
        self, topics: Collection[str], names: Collection[str], *, at_most: int
    ) -> Sequence[ConfigChange]:
        found = [one for one in self._history if one.entity.entity_name in topics and one.name in names]
        return found[::-1][:at_most]


class ScriptedLedger:
    """`QuotaLedger` that keeps the newest announcement. A worker takes it after so many looks; None: never."""

    def __init__(self, **reads_until_taken: int | None) -> None:
        self.announced: list[QuotasInForce] = []
        self.reads_until_taken = reads_until_taken
        self.looks = 0

    def announce(self, quotas: QuotasInForce) -> None:
        self.announced.append(quotas)
        self.looks = 0

    def in_force(self) -> QuotasInForce:
        return max(self.announced, key=lambda quotas: quotas.version, default=QuotasInForce(0, {}))

    def workers(self) -> tuple[QuotaWorker, ...]:
        self.looks += 1
        return tuple(
            QuotaWorker(name, self.in_force().version if needed is not None and self.looks > needed else 0)
            for name, needed in self.reads_until_taken.items()
        )


# Airflow's pools and their mirror in memory.


def usage(slots: int, *, running: int = 0, queued: int = 0, scheduled: int = 0, deferred: int = 0) -> PoolUsage:
    return PoolUsage(slots, running, queued, scheduled, deferred)


class MemoryPools:
    """`Pools` that a test sets; `fails` is raised by every call, `log_fails` by a question for an author."""

    def __init__(self, slots: int = 2, *, parallelism: int | None = None) -> None:
        self.known: dict[str, PoolUsage] = {spec.name: usage(slots) for spec in POOLS}
        self.executor_parallelism = parallelism
        self.editors: dict[tuple[str, int], str] = {}
        self.resized: list[tuple[str, int]] = []
        self.fails: Exception | None = None
        self.log_fails: Exception | None = None

    def usages(self) -> Mapping[str, PoolUsage]:
        self._answer(self.fails)
        return dict(self.known)

    def resize(self, pool: str, slots: int) -> None:
        self._answer(self.fails)
        self.resized.append((pool, slots))
        self.known[pool] = replace(self.known[pool], slots=slots)

    def parallelism(self) -> int | None:
        self._answer(self.fails)
        return self.executor_parallelism

    def last_editor(self, pool: str, slots: int, *, since_ms: int) -> str | None:
        self._answer(self.fails)
        self._answer(self.log_fails)
        return self.editors.get((pool, slots))

    def close(self) -> None:
        return None

    def _answer(self, error: Exception | None) -> None:
        if error is not None:
            raise error


class MemoryMirror:
    """`PoolMirror` that remembers changes as (pool, old, new, author)."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms
        self.known: dict[str, SeenPool] = {}
        self.changes: list[tuple[str, int, int, str]] = []

    def seen(self) -> Mapping[str, SeenPool]:
        return dict(self.known)

    def record(self, pool: str, slots: int, *, seen: int | None, author: str) -> bool:
        stored = self.known.get(pool)
        if (None if stored is None else stored.slots) != seen:
            return False
        self.known[pool] = SeenPool(slots, self.now_ms)
        if seen is None or seen == slots:
            return False
        self.changes.append((pool, seen, slots, author))
        return True
