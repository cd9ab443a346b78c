"""The JSON documents of scans, copies and decisions; docs/json.md shows them."""

from collections import Counter
from typing import NotRequired, TypedDict

from include.tiering.kafka.log_dirs.contract import (
    NotesMember,
    Replica,
    ScanErrorDocument,
)
from include.tiering.model.reasons import ReasonMembers
from include.tiering.presentation import PartitionLabels, count
from include.tiering.units import format_bytes


class ScannedSegmentDocument(ReasonMembers):
    """A local segment; the reason says why it may not be copied. `batch_count` only with `--deep`.

    Each leader epoch is a pair of epoch and start offset.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    leader_epochs: list[list[int]]
    active: bool
    eligible: bool
    batch_count: NotRequired[int]


class UnreadMember(TypedDict):
    """Only where segments are read from leaders: how many offsets no plan of a copy has read yet, and the log's size.

    The size is null if the brokers do not tell it.
    """

    unread_offsets: NotRequired[int]
    log_bytes: NotRequired[int | None]


def unread_member(replica: Replica) -> UnreadMember:
    """Return nothing if the segments are files, all of which a scan lists."""
    if replica.found_to is None:
        return {}
    return {"unread_offsets": replica.unread_offsets, "log_bytes": replica.log_bytes}


def why_not_copied(replica: Replica) -> str:
    """Return, for a person, why segments are not eligible, and what no plan of a copy has read yet."""
    reasons = Counter(str(segment.reason) for segment in replica.segments if segment.reason is not None)
    words = [f"{number} {reason}" for reason, number in reasons.items()]
    if replica.unread_offsets:
        of_log = "" if replica.log_bytes is None else f" of a log of {format_bytes(replica.log_bytes)}"
        words.append(f"{count(replica.unread_offsets, 'offset')}{of_log} that the next plan of a copy reads")
    return ", ".join(words)


class ScannedReplicaDocument(PartitionLabels, UnreadMember):
    """A replica in a log directory, or a leader; only the chosen replica of a partition has eligible segments."""

    broker_id: int
    directory_id: str | None
    chosen: bool
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    bounds: str
    leader_epochs: list[list[int]]
    segments: list[ScannedSegmentDocument]


class ScanDocument(NotesMember):
    """All replicas in the log directories, or those of the leaders; `errors` are items that could not be read."""

    cluster_id: str | None
    partitions: list[ScannedReplicaDocument]
    errors: list[ScanErrorDocument]


class LossDocument(TypedDict):
    """A failed segment that no new copy replaces; `in_source` says whether the source still has its records."""

    segment_id: str
    start_offset: int
    end_offset: int
    in_source: bool
    why: str


class HeldBackDocument(PartitionLabels, ReasonMembers):
    """A partition that waits, as a whole or in part; `next_offset` is the first offset to which the reason applies.

    `segment_reason` is the code of the reason why the next segment may not be copied, null if the partition waits for
    another reason. `follow_from` is the offset from which a diverged source can be followed.
    """

    next_offset: int
    segment_reason: str | None
    detail: str
    lost: list[LossDocument]
    follow_from: int | None


class PlacementDocument(TypedDict):
    """Where a partition must be copied: an Airflow queue and a Spark resource; null is anywhere."""

    queue: str | None
    spark_resource: str | None


class PlannedSegmentDocument(TypedDict):
    """A segment to copy. `supersedes` is the id of the failed segment that the copy replaces; null for a first copy."""

    base_offset: int
    end_offset: int
    size_bytes: int
    supersedes: str | None


class PlannedPartitionDocument(PartitionLabels):
    """The segments to copy of a partition.

    `urgency` is the age of the first of them, divided by the retention.ms that the brokers have for the topic.
    """

    broker_id: int
    urgency: float
    placement: PlacementDocument
    segments: list[PlannedSegmentDocument]


class CopyPlanDocument(NotesMember):
    """What a copy would copy now, the most urgent partition first, and what waits (`held_back`)."""

    run_id: str
    partitions: list[PlannedPartitionDocument]
    held_back: list[HeldBackDocument]
    errors: list[ScanErrorDocument]
    segments: int
    bytes: int


class OffsetsDocument(PartitionLabels):
    """The offsets and bytes of a segment; both offsets are inclusive."""

    start_offset: int
    end_offset: int
    bytes: int


class CopiedSegmentDocument(OffsetsDocument):
    """A copied segment."""

    segment_id: str | None
    supersedes: str | None


class LeftSegmentDocument(OffsetsDocument):
    """A segment that is still to be copied. There is no `reason` if it is not known, and no `error` without an error.

    `error` and `message` are the error that a batch stored last as the reason why it did not copy the segment.
    """

    reason: NotRequired[str | None]
    reason_message: NotRequired[str | None]
    detail: NotRequired[str]
    error: NotRequired[str | None]
    message: NotRequired[str | None]


class FailedSegmentDocument(PartitionLabels):
    """A segment that could not be copied; `position` is in bytes."""

    base_offset: int
    path: str | None
    position: int | None
    error: str | None
    message: str | None


class CopyDocument(NotesMember):
    """A run of copying. `skipped` are planned segments that a batch did not copy, because that was needless by then."""

    run_id: str
    copied: list[CopiedSegmentDocument]
    failed: list[FailedSegmentDocument]
    skipped: list[OffsetsDocument]
    left: list[LeftSegmentDocument]
    held_back: list[HeldBackDocument]
    errors: list[ScanErrorDocument]
    bytes: int
    seconds: float


class SkippedOffsetsDocument(TypedDict):
    """A range of offsets, both ends inclusive; null without offsets."""

    first_offset: int | None
    last_offset: int | None
    offsets: int


class RecordedSkipDocument(SkippedOffsetsDocument):
    """A recorded decision to continue without some offsets."""

    reason: str
    author: str
    recorded_at_ms: int


class SkipDocument(PartitionLabels, SkippedOffsetsDocument):
    """The offsets that can be skipped or were skipped now; `recorded` are all decisions for the partition.

    If failed segments are skipped (`lost`), `first_offset` to `last_offset` are those of the first of them. `elsewhere`
    are brokers whose replicas still have some of the offsets. `waits` is why the partition waits. `refusal` is why
    nothing was recorded.
    """

    lost: list[LossDocument]
    elsewhere: list[int]
    waits: str | None
    refusal: str | None
    recorded: list[RecordedSkipDocument]


class RangeDocument(TypedDict):
    """A range of offsets, both ends inclusive; without members if there are none."""

    first_offset: NotRequired[int]
    last_offset: NotRequired[int]


class DivergenceDocument(RangeDocument):
    """Where the archive and the source differ, with the leader epochs of both."""

    archive_epochs: list[int]
    source_epochs: list[int]
    seen_by: str


class DecidedDocument(TypedDict):
    """A recorded decision to follow the source; `history` is the number of the history that begins."""

    history: int
    reason: str
    author: str
    decided_at_ms: int


class FollowDocument(PartitionLabels):
    """A decision to follow a source whose log diverged from the archive; `decided` is null if nothing was recorded."""

    from_offset: int
    diverges: DivergenceDocument
    kept: RangeDocument
    missing: RangeDocument
    refusal: str | None
    decided: DecidedDocument | None
