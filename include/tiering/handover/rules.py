"""Rules of a handover, without I/O.

This module defines the steps and states of a handover and decides which step is next, what can be undone, what follows
if remote storage is enabled by hand, and what a broker deletes from its own disk as local retention is lowered.

    preconditions -> guards -> copy -> gate -> approval -> fence -> recheck -> publish
        -> switch -> watch -> take-over -> retention -> local-retention -> (done)

Up to `recheck` (inclusive) the only effect outside the platform is changed configs, whose old values are stored. From
the first published record on, the brokers' metadata topic contains the platform's segments, and brokers do not lower
the highest offset that they read there. From the switch on, the brokers copy and expire the topic.

Local retention by size deletes as Kafka's does with remote copying enabled: the oldest segments first, while the bytes
above the limit are at least the segment's size, and only segments that are remote already.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, Protocol


class HandoverStep(StrEnum):
    """The steps in their order. Each step is idempotent: a step that was interrupted is run again."""

    PRECONDITIONS = "preconditions"
    OVERRIDES = "guards"
    COPY = "copy"
    QUALITY_CHECK = "gate"
    APPROVAL = "approval"
    FENCE = "fence"
    RECHECK = "recheck"
    PUBLISH = "publish"
    SWITCH = "switch"
    WATCH = "watch"
    TAKE_OVER = "take-over"
    RETENTION = "retention"
    LOCAL_RETENTION = "local-retention"


STEPS: Final = tuple(HandoverStep)
_FOLLOWING: Final = dict(pairwise(STEPS))


class HandoverState(StrEnum):
    """The state of a handover.

    ACTIVE: a driver runs the next step, or it waits. STOPPED: a check refused, a step found that a person has to act or
    failed with an error that is not retriable, or an undo cannot continue; a person resumes it. UNDOING: it is being
    undone. PARKED: it was undone as far as possible, its published records stay (see `undo_of`), and it can be resumed.
    UNDONE and DONE: it has ended; a parked one also ends as UNDONE if its topic is archived again.
    """

    ACTIVE = "active"
    STOPPED = "stopped"
    UNDOING = "undoing"
    PARKED = "parked"
    UNDONE = "undone"
    DONE = "done"

    @property
    def has_ended(self) -> bool:
        """Whether the handover cannot continue any more."""
        return self in (HandoverState.UNDONE, HandoverState.DONE)

    @property
    def holds_overrides(self) -> bool:
        """Whether configs of the topic may have values that only a handover needs."""
        return self in (HandoverState.ACTIVE, HandoverState.STOPPED, HandoverState.UNDOING)


class RetentionOrder(StrEnum):
    """The order in which a handover sets total retention back and lowers local retention. Stored when it begins.

    TOTAL_FIRST: the order of handovers that began before LOCAL_FIRST existed. LOCAL_FIRST: retention.ms is restored
    in the step `retention`, and so is retention.bytes where brokers are known to count every byte once; elsewhere
    retention.bytes is restored after local retention, once no broker that starts again can delete records within it.
    """

    TOTAL_FIRST = "total-first"
    LOCAL_FIRST = "local-first"


class UndoAction(StrEnum):
    """The actions of an undo, in the order in which they are done."""

    RESTORE_OVERRIDES = "restore the old values of the topic's configs"
    OWNER_TO_PLATFORM = "make the platform the owner again, which continues to copy and expire the topic"


@dataclass(frozen=True, slots=True)
class Undo:
    """What an undo does.

    `ends_as`: the state after the undo; None if nothing can be undone, and `actions` is empty. `reason` says why not
    everything can be undone; None if everything can.
    """

    actions: tuple[UndoAction, ...]
    ends_as: HandoverState | None
    reason: str | None = None


PUBLISHED: Final = (
    "records of its segments are in __remote_log_metadata, and brokers never lower the highest offset that they read"
    " there: if the segments were deleted, brokers would not upload these offsets again after a later"
    " remote.storage.enable=true, and local retention would delete their only copy. So the segments stay, the platform"
    " neither copies nor expires the topic. ./tiering handover TOPIC --resume continues the handover, --archive-again"
    " makes the platform the owner again, which then expires none of the published segments"
)
SWITCHED: Final = (
    "remote.storage.enable is true: the brokers copy and expire the topic. Kafka has one way back only,"
    " remote.storage.enable=false with remote.log.delete.on.disable=true: it deletes all remote segments and raises the"
    " log start to the earliest local offset, so it loses nothing only while earliest and earliest-local are equal. To"
    " stop only new uploads, set remote.log.copy.disable=true. ./tiering handover TOPIC --resume restores the retention"
)


ARCHIVED_AGAIN: Final = (
    "the platform copies and expires the topic again. Published segments stay until their deletion was published"
    " (./tiering publish TOPIC), and another handover can begin"
)


def following(step: HandoverStep) -> HandoverStep | None:
    """Return the step that follows `step`; None if `step` is the last one."""
    return _FOLLOWING.get(step)


def is_before(step: HandoverStep, other: HandoverStep) -> bool:
    """Return whether `step` comes before `other` in the order of steps."""
    return STEPS.index(step) < STEPS.index(other)


def undo_of(*, is_fenced: bool, is_published: bool, is_enabled: bool) -> Undo:
    """Return how far a handover can be undone.

    Args:
        is_fenced: whether the owner of the topic is `handing-over`. The step of the handover does not show this: a
            handover may have returned from the step `fence` to the quality check.
        is_published: whether the platform's record of a segment of the topic may be in the metadata topic.
        is_enabled: whether remote.storage.enable is true for the topic on the brokers.
    """
    if is_enabled:
        return Undo((), None, SWITCHED)
    if is_published:
        return Undo((UndoAction.RESTORE_OVERRIDES,), HandoverState.PARKED, PUBLISHED)
    if is_fenced:
        return Undo((UndoAction.RESTORE_OVERRIDES, UndoAction.OWNER_TO_PLATFORM), HandoverState.UNDONE)
    return Undo((UndoAction.RESTORE_OVERRIDES,), HandoverState.UNDONE)


@dataclass(frozen=True, slots=True)
class SwitchedByHand:
    """remote.storage.enable=true was set by hand before the handover set it.

    `goes_to` is the step that follows. `meaning` says what the brokers do with the platform's copies.
    """

    goes_to: HandoverStep
    meaning: str


def switched_by_hand(step: HandoverStep, *, is_published: bool) -> SwitchedByHand | None:
    """Return what follows if remote storage is found enabled at `step`; None if `step` is `switch` or a later step.

    After a switch by hand the brokers own the topic: the platform copies and publishes nothing more. The overrides are
    removed as after a switch by the handover, once the brokers report what is remote.
    """
    if not is_before(step, HandoverStep.SWITCH):
        return None
    if is_published:
        return SwitchedByHand(
            HandoverStep.WATCH,
            "the brokers serve the segments that were published until then, and upload the rest themselves; the"
            " platform's copies of the rest are not read any more",
        )
    return SwitchedByHand(
        HandoverStep.WATCH,
        "nothing was published: the brokers have no metadata of the platform's copies and upload the whole topic"
        " themselves, all at once",
    )


class LocalSegment(Protocol):
    """The properties of a segment on a broker's disk that these rules use."""

    @property
    def base_offset(self) -> int:
        """First offset (inclusive)."""

    @property
    def end_offset(self) -> int:
        """Last offset (inclusive)."""

    @property
    def size_bytes(self) -> int:
        """Size of the log file in bytes."""

    @property
    def max_timestamp_ms(self) -> int:
        """Largest timestamp of the segment's records."""

    @property
    def active(self) -> bool:
        """Whether the broker still appends to the segment."""


def local_bytes(segments: Sequence[LocalSegment]) -> int:
    """Return the bytes of all segments, including the active one."""
    return sum(segment.size_bytes for segment in segments)


def target_bytes(segments: Sequence[LocalSegment], limit_ms: int, limit_bytes: int, now_ms: int) -> int:
    """Return roughly how many local bytes remain after the broker has applied both limits.

    Args:
        segments: all local segments in the order of offsets.
        limit_ms: local retention by time; -1 for none.
        limit_bytes: local retention by size; -1 for none.
        now_ms: the present time.
    """
    kept = [
        segment
        for segment in segments
        if segment.active or limit_ms < 0 or segment.max_timestamp_ms >= now_ms - limit_ms
    ]
    by_time = local_bytes(kept)
    return by_time if limit_bytes < 0 else min(by_time, limit_bytes)


def kept_bytes(segments: Sequence[LocalSegment], limit_ms: int, limit_bytes: int, now_ms: int) -> int:
    """Return the local bytes that remain if everything that was rolled is remote: what brokers do with both limits.

    Unlike `target_bytes` this is exact: a segment goes by size only while the bytes above the limit are at least its
    own, and the active segment stays.

    Args:
        segments: all local segments in the order of offsets.
        limit_ms: local retention by time; negative for none.
        limit_bytes: local retention by size; negative for none.
        now_ms: the present time.
    """
    left = local_bytes(segments)
    for segment in segments:
        is_old = limit_ms >= 0 and segment.max_timestamp_ms < now_ms - limit_ms
        if segment.active or not (is_old or 0 <= limit_bytes <= left - segment.size_bytes):
            break
        left -= segment.size_bytes
    return left


def levels(has_bytes: int, wants_bytes: int, steps: int) -> list[int]:
    """Return at most `steps` evenly falling levels below `has_bytes`, the last of which is `wants_bytes`.

    There are no levels if `wants_bytes` is at least `has_bytes`.
    """
    if wants_bytes >= has_bytes:
        return []
    gap = has_bytes - wants_bytes
    found = {has_bytes - gap * step // steps for step in range(1, steps + 1)}
    return sorted(found - {has_bytes}, reverse=True)


def next_local_start(segments: Sequence[LocalSegment], level: int, latest_tiered: int | None) -> int | None:
    """Return the first local offset after the broker has applied local retention; None if it deletes nothing.

    Args:
        segments: all local segments in the order of offsets.
        level: local retention in bytes.
        latest_tiered: highest offset (inclusive) that is remote; None if nothing is remote.
    """
    excess, start = local_bytes(segments) - level, None
    for segment in segments:
        if segment.active or excess < segment.size_bytes or latest_tiered is None or segment.end_offset > latest_tiered:
            break
        excess -= segment.size_bytes
        start = segment.end_offset + 1
    return start
