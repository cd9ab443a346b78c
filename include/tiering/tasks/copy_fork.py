"""Records that are remote and that the source has replaced: an unclean leader election may do that.

A plan names such a fork of the history and holds the partition back. A plan may be older than the election, so a copy
asks again, about the segment that it opened: behind it nobody would find the fork any more, because from then on the
newest remote epoch is the source's.
"""

from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.skipped_offsets import OffsetRange, not_skipped
from include.tiering.remote_metadata.contract import RemoteLogMetadata


def replaced_offsets(
    partition: TopicIdPartition,
    leader_epochs: LeaderEpochs,
    log_end_offset: int,
    highest_copied: int,
    following_offset: int,
    metadata: RemoteLogMetadata,
) -> OffsetRange | None:
    """The first offsets that are remote and under which the source has other records, below what follows: that segment
    is copied whole, and covers what it holds.

    Args:
        leader_epochs: the source's, up to `log_end_offset` (exclusive).
        highest_copied: inclusive.
        following_offset: where the segment begins that is copied next.
    """
    fork = fork_offset(partition, leader_epochs, log_end_offset, highest_copied, metadata)
    return None if fork is None else undecided_offsets(partition, fork, following_offset, metadata)


def fork_offset(
    partition: TopicIdPartition,
    leader_epochs: LeaderEpochs,
    log_end_offset: int,
    highest_copied: int,
    metadata: RemoteLogMetadata,
) -> int | None:
    """First offset of the source that is not remote under the source's own leader epochs, though offsets above it are.

    None if the histories agree, or if the source's no longer reaches back to `highest_copied`. Kafka's rule: of the
    newest epoch that has something remote, the lower of its remote end and its end in the source's history counts.
    """
    newest = leader_epochs.epoch_for(highest_copied)
    if newest is None or metadata.highest_offset_for_epoch(partition, newest) == highest_copied:
        return None
    for epoch, _ in reversed(leader_epochs.entries):
        remote_end = metadata.highest_offset_for_epoch(partition, epoch)
        source_end = leader_epochs.end_offset_of(epoch, log_end_offset)
        if remote_end is not None and source_end is not None:
            return min(remote_end + 1, source_end)
    return leader_epochs.entries[0].start_offset


def undecided_offsets(
    partition: TopicIdPartition, offset: int, following_offset: int, metadata: RemoteLogMetadata
) -> OffsetRange | None:
    """The first offsets from `offset` to the following one (exclusive) that no recorded hole covers. Where they meet
    nobody is asked."""
    if offset >= following_offset:
        return None
    decisions = metadata.skipped_offsets(partition)
    return next(iter(not_skipped(offset, following_offset - 1, decisions)), None)
