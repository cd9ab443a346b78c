"""Decisions of a handover, without I/O: its steps and states, what follows, what can be undone, what it means that
somebody switches by hand; and what a broker deletes from its own disk as local retention is lowered.

    preconditions -> guards -> copy -> gate -> approval -> fence -> recheck -> publish
        -> switch -> watch -> take-over -> retention -> local-retention -> (done)

Up to `recheck` nothing has left the platform but configs whose old values are kept. From the first published record on
the brokers' metadata topic knows our segments, and forgets none of their offsets; from the switch on the broker is who
copies and expires.

What local retention lets go is decided as Kafka's local log deletion does with remote copying on: oldest first, while
the excess is at least the segment's size, and only what is remote already.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, Protocol


class HandoverStep(StrEnum):
    """What is to be done next, in this order. Each is idempotent: a step that was cut off is done again."""

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
    """Whether a handover goes on by itself.

    ACTIVE: whoever drives it goes on. STOPPED: a check refused; it goes on when a person says so. UNDOING: it goes
    back. PARKED: it went back as far as it can, published records stay (see `undo_of`); it can begin again.
    UNDONE and DONE have ended.
    """

    ACTIVE = "active"
    STOPPED = "stopped"
    UNDOING = "undoing"
    PARKED = "parked"
    UNDONE = "undone"
    DONE = "done"

    @property
    def has_ended(self) -> bool:
        return self in (HandoverState.UNDONE, HandoverState.DONE)

    @property
    def holds_overrides(self) -> bool:
        """Whether configs of the topic may stand at values that only a handover wants."""
        return self in (HandoverState.ACTIVE, HandoverState.STOPPED, HandoverState.UNDOING)


class UndoAction(StrEnum):
    """In the order in which they are done."""

    RESTORE_OVERRIDES = "put the topic's configs back to what they were"
    OWNER_TO_PLATFORM = "give the topic back to the platform, which goes on copying and expiring it"


@dataclass(frozen=True, slots=True)
class Undo:
    """What going back means. With a `reason` not everything can be undone; without `actions` nothing is done."""

    actions: tuple[UndoAction, ...]
    ends_as: HandoverState | None
    reason: str | None = None


PUBLISHED: Final = (
    "records of its segments are in __remote_log_metadata, and brokers never lower the highest offset that they read"
    " there: were the segments deleted, a later remote.storage.enable=true would not upload these offsets again and"
    " local retention would delete their only copy. So they stay, nobody copies or expires the topic, and"
    " ./tiering handover TOPIC --resume goes on"
)
SWITCHED: Final = (
    "remote.storage.enable is true: the brokers copy and expire the topic. Kafka goes back in one way only,"
    " remote.storage.enable=false with remote.log.delete.on.disable=true: it deletes all remote segments and raises the"
    " log start to the earliest local offset, so it loses nothing only while earliest and earliest-local are equal. To"
    " stop new uploads alone: remote.log.copy.disable=true. ./tiering handover TOPIC --resume restores the retention"
)


def following(step: HandoverStep) -> HandoverStep | None:
    """The next step; None after the last, which ends the handover."""
    return _FOLLOWING.get(step)


def is_before(step: HandoverStep, other: HandoverStep) -> bool:
    return STEPS.index(step) < STEPS.index(other)


def undo_of(*, is_fenced: bool, is_published: bool, is_enabled: bool) -> Undo:
    """How far a handover can go back.

    `is_fenced`: the topic is nobody's. Its step does not tell: one that was fenced off may be back at the gate.
    `is_published`: a record of one of its segments may be in the metadata topic. `is_enabled`: the brokers say that
    remote.storage.enable is true for the topic.
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
    """Somebody set remote.storage.enable=true before the handover did. `goes_to` is the step that follows."""

    goes_to: HandoverStep
    meaning: str


def switched_by_hand(step: HandoverStep, *, is_published: bool) -> SwitchedByHand | None:
    """What it means that remote storage is seen enabled at `step`; None where the handover itself enables it.

    From then on the topic is the brokers': nothing more is copied or published, and what the overrides hold back is
    released as after a switch of ours, once the brokers know what is remote.
    """
    if not is_before(step, HandoverStep.SWITCH):
        return None
    if is_published:
        return SwitchedByHand(
            HandoverStep.WATCH,
            "the brokers serve what was published until then and upload the rest themselves; our copies of the rest"
            " have no reader any more",
        )
    return SwitchedByHand(
        HandoverStep.WATCH,
        "nothing was published: the brokers know none of our copies and upload the whole topic themselves, all at once",
    )


class LocalSegment(Protocol):
    """What is asked of a segment on a broker's disk. Offsets are inclusive."""

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...
    @property
    def active(self) -> bool: ...


def local_bytes(segments: Sequence[LocalSegment]) -> int:
    """The active segment included."""
    return sum(segment.size_bytes for segment in segments)


def target_bytes(segments: Sequence[LocalSegment], limit_ms: int, limit_bytes: int, now_ms: int) -> int:
    """About how much stays under both limits, each -1 for none."""
    kept = [
        segment
        for segment in segments
        if segment.active or limit_ms < 0 or segment.max_timestamp_ms >= now_ms - limit_ms
    ]
    by_time = local_bytes(kept)
    return by_time if limit_bytes < 0 else min(by_time, limit_bytes)


def levels(has_bytes: int, wants_bytes: int, steps: int) -> list[int]:
    """Falling levels from below `has_bytes` down to `wants_bytes` (inclusive), evenly; none if nothing is to go."""
    if wants_bytes >= has_bytes:
        return []
    gap = has_bytes - wants_bytes
    found = {has_bytes - gap * step // steps for step in range(1, steps + 1)}
    return sorted(found - {has_bytes}, reverse=True)


def next_local_start(segments: Sequence[LocalSegment], level: int, latest_tiered: int | None) -> int | None:
    """First local offset once the broker has deleted what `level` lets go of what is tiered; None if nothing goes."""
    excess, start = local_bytes(segments) - level, None
    for segment in segments:
        if segment.active or excess < segment.size_bytes or latest_tiered is None or segment.end_offset > latest_tiered:
            break
        excess -= segment.size_bytes
        start = segment.end_offset + 1
    return start
