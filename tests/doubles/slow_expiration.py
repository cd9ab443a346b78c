"""Retention by plain models."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.retention import RetentionInput, RetentionOutcome
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from include.tiering.model.segments import RemoteLogSegmentMetadata as Segment
from tests.doubles.segments import DELETE_FINISHED, DELETE_STARTED, FINISHED, STARTED, partition_of, segment_of

# What expires, slowly: a broker's runs one after the other, written from the prose of its rules. No history is
# compared with another: which epoch wrote an offset is asked offset by offset. No excess is carried along: after
# each deletion everything is added up again.

BEYOND_ALL = 100
"""Every offset and every start offset of a generated log lies below it."""

Deletion = tuple[Segment, str]


@dataclass
class SlowExpiration:
    """Decides once; `deletions` and `log_start_offset` are the result."""

    given: RetentionInput
    deletions: list[Deletion] = field(default_factory=list)
    log_start_offset: int = 0

    def __post_init__(self) -> None:
        self.log_start_offset = self.given.log_start_offset
        for segment in self._listed(self.given.segments):
            if self._is_live(segment) or segment.state is not DELETE_STARTED:
                continue
            since_ms = self.given.superseded_at_ms.get(segment.remote_log_segment_id)
            if since_ms is None:
                self.deletions.append((segment, "unfinished delete"))
            elif since_ms + self.given.superseded_hold_ms <= self.given.now_ms:
                self.deletions.append((segment, "superseded"))
        for segment in self._listed(self.given.segments):
            age_ms = self.given.now_ms - segment.event_timestamp_ms
            is_old = age_ms >= self.given.abandoned_copy_expiry_ms
            if not self._is_live(segment) and segment.state is STARTED and is_old:
                self.deletions.append((segment, "abandoned copy"))
        while self._run():
            pass

    def _run(self) -> bool:
        before = len(self.deletions)
        self._visit_lineage()
        for segment in self._listed(self._alive()):
            is_older = max(epoch for epoch, _ in segment.segment_leader_epochs) < min(self._epochs(), default=-1)
            if is_older and segment.end_offset < self.log_start_offset and not self._is_live(segment):
                self.deletions.append((segment, "unreferenced leader epoch"))
        for segment, reason in self.deletions[before:]:
            if reason in ("time", "size") and segment.state is FINISHED and segment.end_offset >= self.log_start_offset:
                self.log_start_offset = segment.end_offset + 1
        return len(self.deletions) > before

    def _visit_lineage(self) -> None:
        visited: list[Segment] = []
        is_kept = False
        for epoch in sorted(self._epochs()):
            for segment in self._listed(self._alive()):
                if segment in visited or epoch not in dict(segment.segment_leader_epochs):
                    continue
                visited.append(segment)
                if self._is_live(segment):
                    return
                reason = self._breach(segment)
                if is_kept and reason != "log start":
                    continue
                if reason is not None:
                    self.deletions.append((segment, reason))
                elif self._is_within(segment):
                    is_kept = True

    def _breach(self, segment: Segment) -> str | None:
        if self._is_below(segment):
            return "log start"
        if not self._is_within(segment):
            return None
        if self.given.retention_ms is not None and self.given.retention_ms <= self.given.now_ms:
            timestamp_ms = segment.max_timestamp_ms if segment.max_timestamp_ms != -1 else segment.event_timestamp_ms
            if self.given.now_ms - timestamp_ms > self.given.retention_ms:
                return "time"
        if self.given.retention_bytes is not None and segment.state is FINISHED:
            left = self.total_bytes(behind=max(segment.end_offset, self._passed()))
            if self.total_bytes(behind=self._passed()) > self.given.retention_bytes <= left:
                return "size"
        return None

    def _passed(self) -> int:
        """The log start will rise to behind this offset."""
        by_limit = [one for one, reason in self.deletions if reason in ("time", "size") and one.state is FINISHED]
        return max((one.end_offset for one in by_limit), default=-1)

    def total_bytes(self, behind: int = -1) -> int:
        """What counts for the size limit now, of segments that end behind an offset."""
        remote = (
            one.segment_size_bytes
            for one in self._alive()
            if one.state is FINISHED and self._is_within(one) and not self._is_below(one) and one.end_offset > behind
        )
        return (self.given.local_only_bytes or 0) + sum(remote)

    def first_within(self) -> Segment | None:
        """The first segment of the lineage that stays."""
        return next((one for one in self._listed(self._alive()) if self._is_within(one)), None)

    def _is_below(self, segment: Segment) -> bool:
        latest = max(epoch for epoch, _ in segment.segment_leader_epochs)
        return segment.end_offset < self.log_start_offset and latest <= min(self._epochs(), default=-1)

    def _is_within(self, segment: Segment) -> bool:
        """Offset by offset: from the first one that is recorded, one epoch wrote it in both. What a decision left is
        not."""
        if segment.remote_log_segment_id in self.given.left:
            return False
        if self.given.log_end_offset is not None and segment.end_offset >= self.given.log_end_offset:
            return False
        recorded = self._recorded_offsets()
        offsets = [offset for offset in range(segment.start_offset, segment.end_offset + 1) if offset in recorded]
        if not offsets:
            return segment.segment_leader_epochs.epoch_for(segment.end_offset) == min(self._epochs(), default=None)
        return all(
            segment.segment_leader_epochs.epoch_for(offset) == self.given.lineage.epoch_for(offset)
            for offset in offsets
        )

    def _recorded_offsets(self) -> range:
        starts = [start for _, start in self.given.lineage]
        return range(max(self.log_start_offset, min(starts)), BEYOND_ALL) if starts else range(0)

    def _epochs(self) -> set[int]:
        """Those that wrote an offset which is recorded."""
        found = {self.given.lineage.epoch_for(offset) for offset in self._recorded_offsets()}
        return {epoch for epoch in found if epoch is not None}

    def _alive(self) -> list[Segment]:
        gone = [segment for segment, _ in self.deletions]
        kept = [one for one in self.given.segments if one not in gone]
        return [one for one in kept if one.state not in (DELETE_STARTED, DELETE_FINISHED)]

    def _is_live(self, segment: Segment) -> bool:
        return segment.remote_log_segment_id in self.given.under_live_work

    @staticmethod
    def _listed(segments: tuple[Segment, ...] | list[Segment]) -> list[Segment]:
        """By start offset, readable ones first, of these the longest first, else by arrival."""
        finished = sorted((one for one in segments if one.state is FINISHED), key=lambda one: -one.end_offset)
        return sorted(
            [*finished, *(one for one in segments if one.state is not FINISHED)], key=lambda s: s.start_offset
        )


# Segments with the times and sizes that retention asks for, and what a decision leaves behind.

PARTITION: Final = partition_of()
NOW_MS: Final = 1_700_000_000_000
ONE_EPOCH: Final = LeaderEpochs.of([(0, 0)])


def remote_segment(
    number: int,
    start_offset: int,
    end_offset: int,
    leader_epochs: Mapping[int, int] | None = None,
    *,
    size_bytes: int = 10,
    state: RemoteLogSegmentState = FINISHED,
    age_ms: int = 0,
    event_age_ms: int = 0,
) -> RemoteLogSegmentMetadata:
    """Ages are counted back from NOW_MS; a negative one lies in the future."""
    segment = segment_of(PARTITION, number, start_offset, end_offset, leader_epochs, size_bytes=size_bytes, state=state)
    return replace(segment, max_timestamp_ms=NOW_MS - age_ms, event_timestamp_ms=NOW_MS - event_age_ms)


def row_of_segments(count: int, **rest: Any) -> tuple[RemoteLogSegmentMetadata, ...]:
    """0-9, 10-19, ... of epoch 0; the first is the oldest, each next one a millisecond younger."""
    return tuple(
        remote_segment(number, 10 * number, 10 * number + 9, age_ms=count - number, **rest) for number in range(count)
    )


def retention_input(
    segments: tuple[RemoteLogSegmentMetadata, ...], lineage: LeaderEpochs = ONE_EPOCH, **rest: Any
) -> RetentionInput:
    """At NOW_MS, from log start 0, with no local bytes, unless said otherwise."""
    given: dict[str, Any] = {"log_start_offset": 0, "now_ms": NOW_MS, "local_only_bytes": 0} | rest
    return RetentionInput(PARTITION, segments, lineage, **given)


def named(outcome: RetentionOutcome) -> list[tuple[int, int, str]]:
    """Start offset, end offset and reason of each decision, in order."""
    return [(one.segment.start_offset, one.segment.end_offset, str(one.reason)) for one in outcome.decisions]


def after(given: RetentionInput, outcome: RetentionOutcome) -> RetentionInput:
    """What the next decision at the same time is about, once this one was carried out."""
    gone = {one.segment.remote_log_segment_id for one in outcome.decisions}
    left = tuple(one for one in given.segments if one.remote_log_segment_id not in gone)
    return replace(given, segments=left, log_start_offset=outcome.log_start_offset)
