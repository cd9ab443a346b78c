"""The leader's own offsets beside what its log directory shows: exact bounds, or why nothing may be read. Pure.

The brokers are asked before the directory is read. So a directory of the leader holds at least what the leader said was
replicated, and knows no leader epoch that began after it spoke; one that does not is old, a copy, or another broker's.

Where nobody is asked, the bounds are what checkpoints show, if those are the log's own. The directories of followers
beside the leader's say whether that one is old: no follower has a high watermark above the end of its leader's log.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from include.tiering.errors import printable
from include.tiering.kafka.cluster.brokers_contract import OffsetsAnswer, PartitionOffsets
from include.tiering.kafka.cluster.contract import PartitionFacts
from include.tiering.kafka.log_dirs.contract import BoundsQuality, IneligibleReason, ScanError
from include.tiering.kafka.log_dirs.found_replica import FoundReplica
from include.tiering.kafka.log_dirs.names import DirectoryState


@dataclass(frozen=True, slots=True)
class BoundedReplica:
    """A replica with the bounds that count; `refusal` and `finding` say why they cannot be had, if so."""

    found: FoundReplica
    bounds: BoundsQuality = BoundsQuality.LOWER
    refusal: IneligibleReason | None = None
    finding: str = ""


def bounded(
    found: FoundReplica,
    facts: PartitionFacts | None,
    answer: OffsetsAnswer | None,
    replicas: Sequence[FoundReplica] = (),
) -> BoundedReplica:
    """The leader's replica with exact bounds; another's, and every one if nobody is asked, as it was found. Without a
    leader there is nothing to bound it by.

    Args:
        facts: of its partition; None = unknown.
        answer: of the brokers, asked before the replica was read; None = nobody is asked.
        replicas: all that were found of the partition.
    """
    if answer is None:
        return _by_directories(found, facts, replicas)
    partition = found.topic_id_partition
    if facts is None or facts.leader < 0:
        finding = "brokers do not know this partition of its topic id" if facts is None else "it has no leader just now"
        return BoundedReplica(found, refusal=IneligibleReason.OFFSETS_UNKNOWN, finding=finding)
    if facts.leader != found.identity.broker_id:
        return BoundedReplica(found)
    said = answer.offsets.get(partition)
    if said is None:
        refusal = answer.refused.get(partition, "it was not asked: it appeared meanwhile")
        return BoundedReplica(found, refusal=IneligibleReason.OFFSETS_UNKNOWN, finding=str(refusal))
    if (said.leader, said.leader_epoch) != (facts.leader, facts.leader_epoch):
        return BoundedReplica(
            found,
            refusal=IneligibleReason.OFFSETS_UNKNOWN,
            finding=f"its leader was broker {facts.leader} in epoch {facts.leader_epoch}, "
            f"then broker {said.leader} in epoch {said.leader_epoch}",
        )
    disagreement = _disagreement(found, said)
    if disagreement:
        return BoundedReplica(found, refusal=IneligibleReason.STALE_LOG_DIR, finding=disagreement)
    return BoundedReplica(_exact(found, said), BoundsQuality.EXACT)


def ahead_of_leader(
    found: FoundReplica, facts: PartitionFacts | None, replicas: Iterable[FoundReplica]
) -> FoundReplica | None:
    """The follower that knows a high watermark above the end of this log, which is the leader's; None if none does.

    A follower of an earlier leader epoch than the log's last one says nothing: an unclean election may have cut it.
    """
    if facts is None or facts.leader != found.identity.broker_id:
        return None
    followers = [
        one
        for one in replicas
        if one.state is DirectoryState.LIVE
        and one.identity.broker_id != facts.leader
        and one.doubt is None
        and one.last_epoch >= found.last_epoch
        and one.high_watermark > found.log_end_offset
    ]
    return max(followers, key=lambda one: one.high_watermark, default=None)


def scan_errors(replicas: Iterable[BoundedReplica]) -> list[ScanError]:
    """One for each replica that cannot be bounded, unless its own errors say why."""
    return [
        ScanError(
            printable(f"{one.found.identity.path}/{one.found.directory_name}"),
            None,
            "BrokersError" if one.refusal is IneligibleReason.OFFSETS_UNKNOWN else "SourceChangedError",
            printable(one.finding),
            str(one.found.topic_id_partition),
        )
        for one in replicas
        if one.refusal is not None and one.finding
    ]


def _by_directories(
    found: FoundReplica, facts: PartitionFacts | None, replicas: Sequence[FoundReplica]
) -> BoundedReplica:
    if found.doubt is not None:
        return BoundedReplica(found, refusal=found.doubt.reason, finding=found.doubt.what)
    ahead = ahead_of_leader(found, facts, replicas)
    if ahead is None:
        return BoundedReplica(found)
    finding = (
        f"its log ends at {found.log_end_offset}, but broker {ahead.identity.broker_id}, a follower in epoch"
        f" {ahead.last_epoch}, knows that {ahead.high_watermark} is replicated: an old copy of the leader's directory,"
        " or its log lost its end"
    )
    return BoundedReplica(found, refusal=IneligibleReason.STALE_LOG_DIR, finding=finding)


def _exact(found: FoundReplica, said: PartitionOffsets) -> FoundReplica:
    """The log start may have risen since the leader spoke; it never falls."""
    return replace(
        found,
        log_start_offset=max(said.earliest, found.log_start_offset),
        checkpointed_log_start=max(said.earliest, found.checkpointed_log_start or 0),
        high_watermark=said.high_watermark,
        last_stable_offset=said.last_stable_offset,
    )


def _disagreement(found: FoundReplica, said: PartitionOffsets) -> str:
    who = f"broker {said.leader}, which leads it in epoch {said.leader_epoch},"
    if found.log_end_offset < said.high_watermark:
        return (
            f"its log ends at {found.log_end_offset}, but {who} has replicated up to {said.high_watermark}: "
            "an old copy of the directory, or another one than the broker uses"
        )
    if found.last_epoch > said.leader_epoch:
        return f"it knows leader epoch {found.last_epoch}, but {who} does not: another history than the cluster's"
    return ""
