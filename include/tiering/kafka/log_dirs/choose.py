"""Which replica of a partition a copy may read: the leader's, in the directory that the cluster says. Pure."""

from collections.abc import Sequence
from typing import Final

from include.tiering.kafka.cluster.contract import PartitionFacts
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.kafka.log_dirs.found_replica import FoundReplica
from include.tiering.kafka.log_dirs.names import DirectoryState
from include.tiering.model.ids import Uuid

_RESERVED_DIRECTORY_IDS: Final = 100
"""Ids below this number say that a directory is not assigned, lost or changing."""


def refusals(replicas: Sequence[FoundReplica], facts: PartitionFacts | None) -> list[IneligibleReason | None]:
    """For each replica of one partition why it may not be read; None for at most one of them.

    Where a broker holds the partition in two directories, the directory id decides, else all of them are refused.
    The leader is the one of the facts. Without a leader (a stopped cluster) or without facts it is the replica with
    the highest (last leader epoch, log end offset), ties by replica order.
    """
    reasons = [_own_reason(replica, replicas, facts) for replica in replicas]
    standing = [replica for replica, reason in zip(replicas, reasons, strict=True) if reason is None]
    leader = _leader(standing, facts)
    return [
        reason or (None if replica is leader else IneligibleReason.NOT_LEADER)
        for replica, reason in zip(replicas, reasons, strict=True)
    ]


def _own_reason(
    replica: FoundReplica, replicas: Sequence[FoundReplica], facts: PartitionFacts | None
) -> IneligibleReason | None:
    if replica.state is DirectoryState.FUTURE:
        return IneligibleReason.BEING_MOVED
    if replica.state is not DirectoryState.LIVE:
        return IneligibleReason.BEING_DELETED
    broker_id = replica.identity.broker_id
    assigned = _assigned_directory(facts, broker_id)
    twins = [
        other
        for other in replicas
        if other.identity.broker_id == broker_id and other.state is DirectoryState.LIVE and other is not replica
    ]
    if assigned is not None:
        if str(assigned) == replica.identity.directory_id:
            return None
        return IneligibleReason.AMBIGUOUS_REPLICA if twins else IneligibleReason.NOT_LEADER
    return IneligibleReason.AMBIGUOUS_REPLICA if twins else None


def _assigned_directory(facts: PartitionFacts | None, broker_id: int) -> Uuid | None:
    """None if the facts do not say."""
    if facts is None or len(facts.directories) != len(facts.replicas) or broker_id not in facts.replicas:
        return None
    directory = facts.directories[facts.replicas.index(broker_id)]
    return None if int.from_bytes(directory.value) < _RESERVED_DIRECTORY_IDS else directory


def _leader(standing: Sequence[FoundReplica], facts: PartitionFacts | None) -> FoundReplica | None:
    if facts is None:
        order = sorted(replica.identity.broker_id for replica in standing)
    elif facts.leader >= 0:
        order = [facts.leader]
    else:
        order = [broker for broker in facts.replicas if not facts.isr or broker in facts.isr]
    candidates = [replica for replica in standing if replica.identity.broker_id in order]
    return max(
        candidates,
        key=lambda r: (r.last_epoch, r.log_end_offset, -order.index(r.identity.broker_id)),
        default=None,
    )
