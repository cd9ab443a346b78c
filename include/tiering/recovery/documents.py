"""The JSON documents of rebuilding and adopting; docs/json.md shows them."""

from typing import TypedDict

from include.tiering.model.reasons import ReasonMembers
from include.tiering.presentation import PartitionLabels


class RebuiltMarkerDocument(TypedDict):
    """The marker of the store: whose it is, and how often its owner changed."""

    cluster_id: str
    store_id: str
    generation: int


class OffsetRangeDocument(TypedDict):
    """A range of offsets, both ends inclusive."""

    first_offset: int
    last_offset: int


class FollowedDocument(TypedDict):
    """A decision for another history that was found in the store."""

    from_offset: int
    replaced: OffsetRangeDocument
    replaced_epochs: list[int]
    epochs: list[int]
    missing: list[OffsetRangeDocument]


class RebuiltPartitionDocument(PartitionLabels):
    """One partition; with `before` an earlier call has rebuilt it, and only `segments` and `not_taken` are known."""

    segments: int
    bytes: int
    start_offset: int | None
    end_offset: int | None
    followed: list[FollowedDocument]
    holes: list[OffsetRangeDocument]
    not_taken: int
    before: bool


class StoredSegmentDocument(PartitionLabels):
    """A complete copy in the store."""

    segment_id: str
    start_offset: int
    end_offset: int
    bytes: int


class LeftOutDocument(StoredSegmentDocument, ReasonMembers):
    """A copy that did not become a segment; `beside` is the id of the segment that has its offsets."""

    beside: str | None


class FaultyDocument(PartitionLabels):
    """A copy whose objects are damaged."""

    segment_id: str
    start_offset: int
    error: str
    message: str


class OtherNameDocument(TypedDict):
    """Another topic name under which objects of a topic id are stored."""

    topic_id: str
    topic: str
    objects: int


class NotInManifestsDocument(TypedDict):
    """What the store does not know, and what holds after a rebuild instead."""

    what: str
    now: str


class RebuildDocument(TypedDict):
    """A rebuild of the metadata from the store; `marker` is null if nothing was stored."""

    found: RebuiltMarkerDocument
    marker: RebuiltMarkerDocument | None
    planned_segments: int
    planned_bytes: int
    partitions: list[RebuiltPartitionDocument]
    left_out: list[LeftOutDocument]
    failed: list[FaultyDocument]
    other_names: list[OtherNameDocument]
    not_in_manifests: list[NotInManifestsDocument]
    refusal: str | None
    interrupted: bool
    seconds: float


class RefusedAttemptDocument(TypedDict):
    """A copy that cannot be adopted; the partition is null if its objects do not tell it."""

    topic: str | None
    topic_id: str | None
    partition: int | None
    segment_id: str
    start_offset: int | None
    error: str
    message: str


class AdoptionDocument(TypedDict):
    """Complete copies without metadata: those that can be adopted, were adopted now, and cannot be."""

    adoptable: list[StoredSegmentDocument]
    adopted: list[StoredSegmentDocument]
    refused: list[RefusedAttemptDocument]
    refusal: str | None
