"""The JSON documents of expiration; docs/json.md shows them."""

from typing import NotRequired, TypedDict

from include.tiering.model.reasons import ReasonMembers
from include.tiering.presentation import PartitionLabels


class SegmentDocument(PartitionLabels):
    """A remote segment; both offsets are inclusive."""

    segment_id: str
    start_offset: int
    end_offset: int
    bytes: int


class DecisionDocument(SegmentDocument):
    """A segment that expires, why, and what became of it; `error` and `message` only if there was an error."""

    reason: str
    detail: str
    outcome: str
    error: NotRequired[str | None]
    message: NotRequired[str | None]


RaisedMembers = TypedDict("RaisedMembers", {"from": int, "to": int})


class RaisedLogStartDocument(PartitionLabels, RaisedMembers):
    """A log start that is raised; `from` is the one before."""


class ShareDocument(TypedDict):
    """The share of a topic's remote bytes that this run and those of the last 24 hours delete."""

    topic: str
    topic_id: str
    share: float
    planned_bytes: int
    recent_bytes: int
    remote_bytes: int


class UnknownDocument(PartitionLabels):
    """What is not known about a partition, so that less is deleted."""

    message: str


class WaitingDocument(PartitionLabels, ReasonMembers):
    """A partition of which nothing is deleted now, or less than its retention allows."""

    detail: str


class HeldDocument(PartitionLabels):
    """Superseded segments that are kept as evidence until a time."""

    segments: int
    bytes: int
    until_ms: int


class ExpirationDocument(TypedDict):
    """A run of expiration; of a dry run, what it would delete."""

    run_id: str
    plan_hash: str
    decisions: list[DecisionDocument]
    log_start_offsets: list[RaisedLogStartDocument]
    shares: list[ShareDocument]
    needs_approval: bool
    reasons: list[str]
    approved_by: str | None
    withdrawn_by: str | None
    refusal: str | None
    unknowns: list[UnknownDocument]
    waiting: list[WaitingDocument]
    held: list[HeldDocument]
    bytes: int
    deleted_bytes: int


class WithdrawalDocument(TypedDict):
    """A withdrawn run. The next run completes what had `begun`. `not_claimed`: why the store could not be claimed."""

    run_id: str
    plan_hash: str
    withdrawn_by: str | None
    withdrawn_at_ms: int | None
    kept: int
    kept_bytes: int
    deleted: int
    deleted_bytes: int
    begun: list[SegmentDocument]
    begun_bytes: int
    not_claimed: str | None


class TruncationDocument(PartitionLabels, RaisedMembers):
    """A raised log start of an archive; segments and bytes that the next run of expiration deletes because of it."""

    segments: int
    bytes: int
    refusal: str | None
