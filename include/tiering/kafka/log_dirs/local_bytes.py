"""How many bytes of a partition are local alone, as far as they may decide that something remote goes.

The size that a file system gives a file proves nothing: a damaged one may be sparse, or longer than what was written.
So a segment counts at most what Kafka allows, and nothing if it is damaged, or if its size cannot be what its batches
take. Less is counted than there is, and less is deleted; what did not count is named. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from include.tiering.kafka.log_dirs.contract import LogSegment, Replica
from include.tiering.units import format_bytes

MOST_SEGMENT_BYTES: Final = 2**31 - 1
"""Positions in a segment are 32-bit integers in Kafka."""


def local_only_segments(replica: Replica, highest_copied_offset: int | None, log_start_offset: int) -> list[LogSegment]:
    """Segments wholly behind what was copied, the active one included.

    One that is remote in part counts as remote, and one that a log start fell into as gone: the total is rather too
    low, which deletes less.
    """
    first = max(replica.log_start_offset, log_start_offset)
    highest = -1 if highest_copied_offset is None else highest_copied_offset
    return [segment for segment in replica.segments if segment.base_offset >= max(highest + 1, first)]


def local_only_bytes(replica: Replica, highest_copied_offset: int | None, log_start_offset: int) -> int:
    """Bytes of the replica that are not remote, of each segment at most what Kafka allows."""
    segments = local_only_segments(replica, highest_copied_offset, log_start_offset)
    return sum(counted_bytes(segment, replica) for segment in segments)


def counted_bytes(segment: LogSegment, replica: Replica) -> int:
    """At most `segment.bytes`, where it is known, and what 32-bit positions reach."""
    allowed = MOST_SEGMENT_BYTES if replica.segment_bytes is None else replica.segment_bytes
    return min(segment.size_bytes, allowed, MOST_SEGMENT_BYTES)


def without_doubtful(
    replica: Replica, segments: Sequence[LogSegment], doubts: Mapping[int, str]
) -> tuple[Replica, list[str]]:
    """The replica without those of `segments` that must not count, and a sentence for each.

    `doubts` says by base offset why the size of one cannot be right.
    """
    why = {**{one.base_offset: "it is corrupt" for one in segments if one.is_corrupt}, **doubts}
    doubtful = [one for one in segments if one.base_offset in why]
    sentences = [
        f"the local segment at offset {one.base_offset} has {format_bytes(one.size_bytes)}, which count as 0:"
        f" {why[one.base_offset]}"
        for one in doubtful
    ]
    sure = tuple(one for one in replica.segments if one.base_offset not in why)
    return replace(replica, segments=sure), sentences
