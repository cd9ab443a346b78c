"""Checks of retention.bytes on brokers that may count bytes that are both local and remote twice (KAFKA-20732).

Such a broker does so for a moment after each start, and then deletes as many bytes as the sum is above the limit. So
the limit may be in force only while local and remote copies together are far below it, or have no bytes in common.
"""

from collections.abc import Iterator
from typing import Final

from include.tiering.handover.checks import (
    UNLIMITED,
    CheckOutcome,
    HandoverEvidence,
    NamedCheck,
    Remark,
)
from include.tiering.handover.rules import HandoverStep, RetentionOrder

_FAR_BELOW: Final = 0.9
"""The part of retention.bytes that local and remote copies together may have: producers write on meanwhile."""


def _restarts(evidence: HandoverEvidence) -> Iterator[Remark]:
    limit = evidence.limit("retention.bytes", evidence.old_configs)
    if limit == UNLIMITED or evidence.brokers_count_once:
        return
    for partition in evidence.partitions:
        remote_bytes = sum(segment.metadata.segment_size_bytes for segment in partition.seed)
        target = evidence.local_target_bytes
        local_bytes = remote_bytes if target < 0 else min(remote_bytes, target)
        if remote_bytes + local_bytes > limit:
            yield Remark(
                f"{remote_bytes} remote bytes, up to {local_bytes} of them also local, exceed retention.bytes {limit}",
                "brokers before 4.3.2 count both shortly after they start, and delete the excess: hand over with a"
                " small --local-retention-bytes, and restart no broker before the handover is done (docs/handover.md)",
                partition.partition,
                CheckOutcome.NOTE,
            )


def _within_total(evidence: HandoverEvidence) -> Iterator[Remark]:
    for unit, local in (("ms", evidence.local_target_ms), ("bytes", evidence.local_target_bytes)):
        total = evidence.limit(f"retention.{unit}", evidence.old_configs)
        if 0 <= total < local:
            yield Remark(
                f"local.retention.{unit} would be {local} at the end, more than retention.{unit} {total}",
                f"Kafka refuses this with remote storage: --undo this handover and begin with --local-retention-{unit}"
                f" {total} or less; or raise retention.{unit}, then --resume",
            )


def _waits_for_local_retention(evidence: HandoverEvidence) -> bool:
    """Return whether retention.bytes may be restored only once local and remote copies are far below it."""
    limit = evidence.limit("retention.bytes", evidence.old_configs)
    is_last = evidence.retention_order is RetentionOrder.LOCAL_FIRST
    return is_last and limit != UNLIMITED and not evidence.brokers_count_once


def _comes_back(evidence: HandoverEvidence) -> Iterator[Remark]:
    if not _waits_for_local_retention(evidence):
        return
    limit = evidence.limit("retention.bytes", evidence.old_configs)
    for partition in evidence.partitions:
        if (replica := partition.replica) is None or replica.local_bytes is None:
            continue  # The check leader-is-read refuses.
        rolled_bytes = replica.local_bytes - replica.active_bytes
        both_bytes = replica.kept_bytes - replica.active_bytes
        if both_bytes > 0 and rolled_bytes + replica.kept_bytes > limit * _FAR_BELOW:
            fits = int(limit * _FAR_BELOW) - rolled_bytes - replica.active_bytes
            smaller = (
                f"begin with --local-retention-bytes {fits} or less (segments larger than that stay a while longer)"
                if fits > 0
                else f"begin with --local-retention-bytes {1 if replica.active_bytes else 0}"
            )
            yield Remark(
                f"at the end {rolled_bytes} remote bytes and {replica.kept_bytes} local ones would be"
                f" {rolled_bytes + replica.kept_bytes}, more than {_FAR_BELOW:.0%} of retention.bytes {limit}, with"
                f" {both_bytes} bytes in both places",
                "a broker without the fix of KAFKA-20732 counts these twice after each start and deletes as much, so"
                f" retention.bytes could not be restored. --undo this handover and {smaller}; or raise retention.bytes"
                " or limit by retention.ms only; or, if every broker has the fix, set"
                " tiering.handover.brokers.count.once=true",
                partition.partition,
            )


def _may_come_back(evidence: HandoverEvidence) -> Iterator[Remark]:
    if not _waits_for_local_retention(evidence):
        return
    limit = evidence.limit("retention.bytes", evidence.old_configs)
    published = evidence.metadata_topic.published if evidence.metadata_topic is not None else ()
    for partition in evidence.partitions:
        replica, offsets = partition.replica, partition.offsets
        if replica is None or offsets is None or replica.local_bytes is None:
            yield Remark(
                partition.problem or "the log of its leader is not read here, so its local bytes are not known",
                "add the leader's log directory to log_dirs; without log_dirs, allow Describe on the cluster to the"
                " user of the settings cluster.*; then --resume",
                partition.partition,
                CheckOutcome.WAITING,
            )
            continue
        if replica.broker_id != offsets.leader or (replica.is_fetched and replica.leader_epoch != offsets.leader_epoch):
            yield Remark(
                f"the local bytes are of broker {replica.broker_id}, the offsets of broker {offsets.leader}",
                "the leadership is moving: repeat the check in a moment",
                partition.partition,
                CheckOutcome.WAITING,
            )
            continue
        remote = [
            segment
            for segment in published
            if segment.partition == partition.partition and segment.end_offset >= offsets.earliest
        ]
        remote_bytes = sum(segment.size_bytes for segment in remote)
        both_bytes = sum(segment.size_bytes for segment in remote if segment.end_offset >= replica.earliest_local)
        if both_bytes > 0 and remote_bytes + replica.local_bytes > limit * _FAR_BELOW:
            found = (
                f"{remote_bytes} remote and {replica.local_bytes} local bytes, {both_bytes} of them in both places, are"
                f" more than {_FAR_BELOW:.0%} of retention.bytes {limit}"
            )
            # Over the network it is not known where the broker's segments end, so neither whether it deletes more.
            is_exact = not replica.is_fetched and evidence.local_target_ms < 0
            is_lasting = is_exact and replica.kept_bytes >= replica.local_bytes
            if is_lasting:
                local = evidence.local_target_bytes
                found += (
                    f"; brokers delete no more of them with local.retention.bytes {'unlimited' if local < 0 else local}"
                    f" and {replica.active_bytes} bytes in the active segment"
                )
            yield Remark(
                found,
                "a broker that starts now may count them twice, so retention.bytes stays at -1: --resume when brokers"
                " have deleted local segments; set a lower local.retention.bytes for that, which stays (with 0 brokers"
                " roll the active segment, too); or set retention.bytes of the topic to a larger value or to -1, which"
                " replaces the old value; or set tiering.handover.brokers.count.once=true if every broker has the fix"
                " of KAFKA-20732",
                partition.partition,
                CheckOutcome.REFUSED if is_lasting else CheckOutcome.WAITING,
            )
        yield from _followers_may_lead(evidence, partition.partition, replica.local_bytes, remote_bytes, limit)


def _followers_may_lead(
    evidence: HandoverEvidence, partition: int, leader_bytes: int, remote_bytes: int, limit: int
) -> Iterator[Remark]:
    """Yield what a follower has that the leader has deleted: if it leads after a start, it counts that twice.

    What it has more than the leader is remote, because nothing else leaves the leader's disk.

    Args:
        evidence: has the bytes of the followers.
        partition: the partition.
        leader_bytes: of the leader's log, asked for after those of the followers.
        remote_bytes: of all remote segments that brokers count.
        limit: retention.bytes.
    """
    for broker_id, follower_bytes in sorted(evidence.followers.get(partition, {}).items()):
        most_bytes = remote_bytes + leader_bytes if follower_bytes is None else follower_bytes
        if most_bytes <= leader_bytes or remote_bytes + most_bytes <= limit * _FAR_BELOW:
            continue
        if follower_bytes is None:
            yield Remark(
                f"broker {broker_id}, which has a replica, does not tell the size of its log",
                "if it leads the partition after a start, it may count bytes twice that are remote and, for the"
                " leader, not local any more; so retention.bytes stays at -1: start the broker, or allow Describe on"
                " the cluster to the user of the settings cluster.*; or set tiering.handover.brokers.count.once=true if"
                " every broker has the fix of KAFKA-20732; then --resume",
                partition,
                CheckOutcome.WAITING,
            )
        else:
            yield Remark(
                f"broker {broker_id}, which has a replica, has {follower_bytes} local bytes, the leader"
                f" {leader_bytes}; with {remote_bytes} remote ones they are more than {_FAR_BELOW:.0%} of"
                f" retention.bytes {limit}",
                "if it leads the partition after a start, it may count the difference twice, so retention.bytes stays"
                " at -1: --resume when that broker has deleted local segments, too",
                partition,
                CheckOutcome.WAITING,
            )


_BEFORE_PUBLISHING: Final = frozenset({HandoverStep.PRECONDITIONS, HandoverStep.QUALITY_CHECK, HandoverStep.RECHECK})

RETENTION_CHECKS: Final = (
    NamedCheck(
        "local-retention-fits-total",
        "no limit of local retention at the end is above that of total retention",
        _within_total,
        _BEFORE_PUBLISHING,
    ),
    NamedCheck(
        "retention-bytes-can-come-back",
        "at the end, local and remote copies together are far below retention.bytes, or brokers count them once",
        _comes_back,
        _BEFORE_PUBLISHING,
    ),
    NamedCheck(
        "restarts-are-harmless",
        "copies are within retention.bytes, or a note says so",
        _restarts,
        frozenset({HandoverStep.QUALITY_CHECK, HandoverStep.RECHECK}),
    ),
    NamedCheck(
        "retention-bytes-is-safe",
        "a broker that starts again, whether it leads now or then, deletes nothing that is within retention.bytes",
        _may_come_back,
        frozenset({HandoverStep.LOCAL_RETENTION}),
    ),
)
