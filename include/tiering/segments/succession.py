"""How a segment follows the one before it in its partition."""

from collections.abc import Sequence

from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.skipped_offsets import OffsetRange, SkippedOffsets, not_skipped


def missing_offsets(
    previous: RemoteLogSegmentMetadata | None,
    current: RemoteLogSegmentMetadata,
    decisions: Sequence[SkippedOffsets] = (),
) -> tuple[OffsetRange, ...]:
    """Offsets after `previous` and before `current`, which nobody holds and nobody decided to go on without.

    The first segment misses nothing.
    """
    if previous is None:
        return ()
    return not_skipped(previous.end_offset + 1, current.start_offset - 1, decisions)


def unexplained_overlap(previous: RemoteLogSegmentMetadata | None, current: RemoteLogSegmentMetadata) -> int:
    """Offsets that both hold, unless a change of the leader explains them.

    Replicas roll at different offsets: the first segment taken from a new leader is taken whole and begins before the
    previous one's end. It shows by another broker id or by a later leader epoch, and it brings new offsets.
    """
    if previous is None or current.start_offset > previous.end_offset:
        return 0
    led_by_another = (
        current.broker_id != previous.broker_id
        or current.segment_leader_epochs.entries[-1].epoch > previous.segment_leader_epochs.entries[-1].epoch
    )
    if led_by_another and current.end_offset > previous.end_offset:
        return 0
    return min(previous.end_offset, current.end_offset) - current.start_offset + 1


def leader_epochs_back(previous: RemoteLogSegmentMetadata | None, current: RemoteLogSegmentMetadata) -> int:
    """By how much the leader epoch falls at the first offset that `previous` does not hold."""
    if previous is None:
        return 0
    first_new = min(max(current.start_offset, previous.end_offset + 1), current.end_offset)
    epochs = current.segment_leader_epochs
    epoch = epochs.epoch_for(first_new)
    continued = epochs.entries[0].epoch if epoch is None else epoch
    return max(0, previous.segment_leader_epochs.entries[-1].epoch - continued)
