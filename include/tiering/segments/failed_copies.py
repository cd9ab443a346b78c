"""Segments that failed the quality check: not served, and kept until they pass, expire or are replaced by a new copy.

A new copy is only possible while the source still has a segment of exactly these offsets and leader epochs. Otherwise
copies of the partition wait until a later verification passes, a person decides, or the segment expires.

This module holds the values, the contract of their store, the report and the metrics.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.presentation import PartitionLabels, Table, TopicNames, labels
from include.tiering.segments.values import QualityResult
from include.tiering.telemetry.metrics import Metric, MetricKind

if TYPE_CHECKING:
    from include.tiering.telemetry.metrics import MetricsRecorder

MEMORY_MS: Final = 7 * 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class FailedCopy:
    """A FINISHED segment whose verdict is FAILED.

    Attributes:
        verdict_detail: a text for a person that names the critical rules that the segment breaks.
        broken_rules: ids of the critical rules that it broke when they were last applied, ascending.
        superseded: number of copies of exactly its offsets that failed and were superseded within the last
            `MEMORY_MS`, by the database's clock, tombstones included.
        given_up: whether a person decided to continue without the segment; then it does not stop its partition.
        was_left: whether a later history is followed from an offset at or below the last offset of the segment
            (`model.histories`). Then the segment does not stop its partition and needs no decision, because the offsets
            from there on belong to the later history.
        lost_because: why the source that the last copy plan chose for the partition cannot replace the segment; None if
            that plan found no such reason. Another replica may have the segment.
    """

    metadata: RemoteLogSegmentMetadata
    verdict_detail: str
    broken_rules: tuple[str, ...] = ()
    superseded: int = 0
    given_up: bool = False
    was_left: bool = False
    lost_because: str | None = None

    @property
    def segment_id(self) -> RemoteLogSegmentId:
        return self.metadata.remote_log_segment_id

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.metadata.start_offset, self.metadata.end_offset)


@dataclass(frozen=True, slots=True)
class Loss:
    """A failed segment that the source cannot replace now: its offsets (inclusive), and the reason for a person.

    `in_source` means that the source still has the segment, but as many new copies failed as are permitted.
    """

    segment_id: RemoteLogSegmentId
    offsets: OffsetRange
    why: str
    in_source: bool = False

    def __str__(self) -> str:
        return f"offsets {self.offsets} (segment {self.segment_id.id}): {self.why}"


def by_partition(copies: Iterable[FailedCopy]) -> Mapping[TopicIdPartition, Sequence[FailedCopy]]:
    """Group copies by partition; each group keeps the given order."""
    found: dict[TopicIdPartition, list[FailedCopy]] = {}
    for copy in copies:
        found.setdefault(copy.metadata.topic_id_partition, []).append(copy)
    return found


class FailedCopies(Protocol):
    """Store of one cluster's failed segments."""

    def all(self) -> Sequence[FailedCopy]:
        """Return every FINISHED segment that failed, given up or not, ordered by topic, partition and start offset."""
        ...

    def failed_by(self, rule: str) -> Mapping[TopicIdPartition, int]:
        """Count, for each partition, FINISHED failed segments that break this rule and were not given up.

        Partitions without any are left out.
        """
        ...

    def broken(
        self, segment_ids: Collection[RemoteLogSegmentId]
    ) -> Mapping[RemoteLogSegmentId, Sequence[QualityResult]]:
        """Return, for some segments, the results of the rules that they break now, with warnings, ordered by rule."""
        ...

    def note_losses(self, partition: TopicIdPartition, losses: Mapping[RemoteLogSegmentId, str]) -> None:
        """Store which failed segments of the partition the source cannot replace, and why; clear the others' reasons.

        Segments that were given up or have not failed stay as they are. If the segment that stops the partition is
        lost, the stored reason of the stop includes the loss from then on. Each new loss is an event. Idempotent.
        """
        ...

    def give_up(self, segment_id: RemoteLogSegmentId, *, reason: str, author: str) -> Sequence[SkippedOffsets]:
        """Record the decision to continue without the records of a failed segment, with an event. Idempotent.

        The segment's offsets count as skipped, and the segment no longer stops its partition. It stays FINISHED and is
        not served. If it gets the verdict PASSED later, it is not given up any more; its offsets stay recorded as
        skipped.

        Returns:
            The recorded decisions; none for offsets that an earlier decision covers, and none at all if the segment was
            given up before.

        Raises:
            UnknownSegmentError: there is no such segment.
            StateConflictError: the segment is not FINISHED or has not failed, a later history is followed from an
                offset at or below its last one, or the platform does not own the topic.
        """
        ...


class FailedCopyDocument(PartitionLabels):
    """A copied segment that failed its verification, and that reads leave out.

    `lost_because` says why the source cannot replace it. `given_up`: a person decided to continue without it.
    `was_left`: it belongs to a history that is not followed any more.
    """

    segment_id: str
    start_offset: int
    end_offset: int
    bytes: int
    lost_because: str | None
    given_up: bool
    was_left: bool


def failed_copy_document(copy: FailedCopy) -> FailedCopyDocument:
    return {
        **labels(copy.metadata.topic_id_partition),
        "segment_id": str(copy.segment_id.id),
        "start_offset": copy.offsets.first,
        "end_offset": copy.offsets.last,
        "bytes": copy.metadata.segment_size_bytes,
        "lost_because": copy.lost_because,
        "given_up": copy.given_up,
        "was_left": copy.was_left,
    }


def failed_copies_table(copies: Sequence[FailedCopy]) -> tuple[Table, ...]:
    """Return a table of the failed segments, if any."""
    names = TopicNames(copy.metadata.topic_id_partition for copy in copies)
    rows = tuple(
        (
            names.partition(copy.metadata.topic_id_partition),
            str(copy.offsets),
            str(copy.segment_id.id),
            _next_step(copy),
        )
        for copy in copies
    )
    columns = ("partition", "offsets", "segment id", "what becomes of it")
    return (Table("not served, as they failed the quality gate", columns, rows),) if rows else ()


def _next_step(copy: FailedCopy) -> str:
    if copy.was_left:
        return "of a history that a decision replaced: it stops no partition; it stays until it expires"
    if copy.given_up:
        return "given up by decision; it stays until it expires"
    if copy.lost_because is not None:
        return f"lost: {copy.lost_because}; see ./tiering skip"
    return "the next run copies it again, if the source still has the same segment; not after too many failed copies"


FAILED_SEGMENTS: Final = Metric(
    "tiering_failed_segments",
    MetricKind.GAUGE,
    ("topic",),
    "FINISHED remote log segments that failed the quality check, except those that were given up and those whose "
    "last offset belongs to another history by a decision. The counted segments are not served, and each stops its "
    "partition.",
)
LOST_OFFSETS: Final = Metric(
    "tiering_lost_offsets",
    MetricKind.GAUGE,
    ("topic", "decided"),
    "Offsets of failed segments: under the value `no`, segments that the source cannot replace, as the last copy plan "
    "found; under `yes`, segments that were given up by decision.",
)

FAILED_COPY_METRICS: Final = (FAILED_SEGMENTS, LOST_OFFSETS)


def publish_failed_copies(
    recorder: "MetricsRecorder", copies: Iterable[FailedCopy], topics: Iterable[str] = ()
) -> None:
    """Set the metrics of failed segments; each of `topics` without failed segments is set to 0."""
    known = set(topics)
    failed: Counter[str] = Counter(dict.fromkeys(known, 0))
    lost: Counter[tuple[str, ...]] = Counter({(topic, decided): 0 for topic in known for decided in ("no", "yes")})
    for copy in copies:
        topic = copy.metadata.topic_id_partition.topic
        if copy.given_up:
            lost[topic, "yes"] += copy.offsets.size
            continue
        if copy.was_left:
            continue
        failed[topic] += 1
        if copy.lost_because is not None:
            lost[topic, "no"] += copy.offsets.size
    recorder.show(FAILED_SEGMENTS, {(topic,): number for topic, number in failed.items()})
    recorder.show(LOST_OFFSETS, lost)
