"""Segments that failed the quality gate: kept, not served, until a new copy takes their place.

A new copy needs the source to have exactly these offsets still. Where it has not, the records are lost to the archive,
and the partition goes on by decision alone.

Here are the values, the contract of their store, the report and the metrics.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.presentation import Document, Table, TopicNames, labels
from include.tiering.telemetry.metrics import Metric, MetricKind

if TYPE_CHECKING:
    from include.tiering.telemetry.metrics import PrometheusRecorder

MEMORY_MS: Final = 7 * 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class FailedCopy:
    """A FINISHED segment whose verdict is FAILED.

    Attributes:
        verdict_detail: the rules that it breaks, for a person.
        broken_rules: ids of the critical rules that it broke when they were last applied, ascending.
        superseded: copies of exactly its offsets that failed and were superseded within `MEMORY_MS`, by the database's
            clock, tombstones included. What was sound for longer, and then failed, begins anew.
        given_up: somebody decided that the archive goes on without it. It stops nothing.
        was_left: another history is followed from an offset at or below its end (`model.histories`), so no source has
            it as it was. It stops nothing, and nothing is decided about it: the offsets from there on are those of the
            other history.
        lost_because: why no source can replace it, as the last plan found; None if it found none, or never looked.
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
    """A failed segment that no new copy replaces: its offsets (inclusive), and why, for a person.

    `in_source`: the source has it as it was, but what was copied again failed again.
    """

    segment_id: RemoteLogSegmentId
    offsets: OffsetRange
    why: str
    in_source: bool = False

    def __str__(self) -> str:
        return f"offsets {self.offsets} (segment {self.segment_id.id}): {self.why}"


def by_partition(copies: Iterable[FailedCopy]) -> Mapping[TopicIdPartition, Sequence[FailedCopy]]:
    """In the order in which they come."""
    found: dict[TopicIdPartition, list[FailedCopy]] = {}
    for copy in copies:
        found.setdefault(copy.metadata.topic_id_partition, []).append(copy)
    return found


class FailedCopies(Protocol):
    """Of one cluster."""

    def all(self) -> Sequence[FailedCopy]:
        """Every FINISHED segment that failed, given up or not, by topic, partition and start offset."""
        ...

    def failed_by(self, rule: str) -> Mapping[TopicIdPartition, int]:
        """How many segments of each partition are FINISHED, failed and break this rule, without those that were given
        up. Partitions without any are left out.
        """
        ...

    def note_losses(self, partition: TopicIdPartition, losses: Mapping[RemoteLogSegmentId, str]) -> None:
        """Record which failed segments of the partition no source can replace, and why; of the others, that nothing
        says so any more. What somebody gave up, and what has not failed, stays as it is.

        The stop of the partition tells it from then on. An event says which loss is new. Repeating a call is harmless.
        """
        ...

    def give_up(self, segment_id: RemoteLogSegmentId, *, reason: str, author: str) -> Sequence[SkippedOffsets]:
        """Record that the archive goes on without what a failed segment holds, with an event: its offsets join those
        that were skipped, and it stops its partition no longer. It stays as it is, FINISHED and not served; a verdict
        PASSED takes the decision about the segment back.

        Returns the decisions that were recorded: none for offsets that one covers already. Repeating it is harmless.

        Raises:
            UnknownSegmentError
            StateConflictError: it is not FINISHED or has not failed, a decision left its history, or the platform does
                not own the topic.
        """
        ...


def failed_copy_document(copy: FailedCopy) -> Document:
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
    """No table if nothing failed."""
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
        return "of a history that a decision left: nothing waits for it, no source has it; it stays until it expires"
    if copy.given_up:
        return "given up by decision; it stays until it expires"
    if copy.lost_because is not None:
        return f"lost: {copy.lost_because}; see ./tiering skip"
    return "the next run copies it anew, if the source has it as it was"


FAILED_SEGMENTS: Final = Metric(
    "tiering_failed_segments",
    MetricKind.GAUGE,
    ("topic",),
    "FINISHED remote log segments that failed the quality gate, but for those that somebody gave up and "
    "those of a history that a decision left: not served, and their partitions are stopped until new copies take their "
    "place.",
)
LOST_OFFSETS: Final = Metric(
    "tiering_lost_offsets",
    MetricKind.GAUGE,
    ("topic", "decided"),
    "Offsets of failed segments that no source can replace, as the last plan of a copy found (`no`), and of those that "
    "somebody decided to go on without (`yes`).",
)

FAILED_COPY_METRICS: Final = (FAILED_SEGMENTS, LOST_OFFSETS)


def publish_failed_copies(
    recorder: "PrometheusRecorder", copies: Iterable[FailedCopy], topics: Iterable[str] = ()
) -> None:
    """`topics` are all that may have one: those without are shown as 0."""
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
