"""What a broker deletes from its own disk as local retention is lowered, and in which steps to lower it.

Source of the rule: Kafka's local log deletion with remote copying on: oldest first, while the excess is at least the
segment's size, and only what is remote already.
"""

from collections.abc import Sequence
from typing import Protocol


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
    return sum(one.size_bytes for one in segments)


def target_bytes(segments: Sequence[LocalSegment], limit_ms: int, limit_bytes: int, now_ms: int) -> int:
    """About how much stays under both limits, each -1 for none."""
    kept = [one for one in segments if one.active or limit_ms < 0 or one.max_timestamp_ms >= now_ms - limit_ms]
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
    for one in segments:
        if one.active or excess < one.size_bytes or latest_tiered is None or one.end_offset > latest_tiered:
            break
        excess -= one.size_bytes
        start = one.end_offset + 1
    return start
