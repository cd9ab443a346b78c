"""Remote log metadata in a dictionary: enough of the contract for tasks that read segments and store verdicts."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from include.tiering.errors import UnknownSegmentError
from include.tiering.model.histories import Divergence, SeenDivergence, SkippedOffsets
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Verdict,
)
from include.tiering.model.sizes import PartitionSize, PartitionStates, partition_size, partition_states
from include.tiering.segments.contract import (
    PartitionRetentionState,
    QualityResult,
    RecordedVerdict,
    SegmentRow,
    Verification,
)
from include.tiering.segments.values import conclude, deep_passed_at_ms
from tests.doubles.partial import Partial


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
