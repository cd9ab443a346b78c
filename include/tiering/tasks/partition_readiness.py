"""Which partitions may be worked on now, and what the others wait for (KIP-1105's isReady, for what we can know).

A partition is ready if its metadata is complete, the leader's replica is found where we can read, topic facts do not
contradict it, the topic is ours, and nothing has stopped it. One that is not waits by itself: the others go on.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from include.tiering.cluster.contract import ClusterFacts
from include.tiering.errors import ClusterFactsError
from include.tiering.log_source.contract import IneligibleReason, Replica, ScanReport
from include.tiering.log_source.topic_patterns import matches
from include.tiering.model.failed_copies import FailedCopy
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.model.topic_owner import TopicOwner
from include.tiering.remote_metadata.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.tasks.own_topics import owner_seen
from include.tiering.tasks.plan_replacements import MOST_NEW_COPIES, NOTHING_FAILED, plan_replacements
from include.tiering.work.contract import ALL_TOPICS


class NotReady(StrEnum):
    """Why nothing may be done with a partition now."""

    METADATA = "its metadata is not complete"
    FACTS = "topic facts are unknown or contradict what is on disk"
    NO_LEADER_REPLICA = "its leader's replica is not found in a readable log directory"
    NOT_OURS = "another owner works on this topic"
    UNREAD = "not all is read that its brokers wrote about it"
    STOPPED = "stopped until a person decides"
    PAUSED = "paused"

    @property
    def waitable(self) -> bool:
        """Whether it may pass without a person who decides something about this partition."""
        return self not in (NotReady.NOT_OURS, NotReady.STOPPED)


@dataclass(frozen=True, slots=True)
class PartitionReadiness:
    """`reason` is None exactly if the partition is ready; `detail` says more, for a person."""

    topic_id_partition: TopicIdPartition
    reason: NotReady | None
    detail: str = ""

    @property
    def ready(self) -> bool:
        return self.reason is None

    def __str__(self) -> str:
        if self.reason is None:
            return f"{self.topic_id_partition}: ready"
        return f"{self.topic_id_partition}: {self.reason}" + (f": {self.detail}" if self.detail else "")


_CONTRADICTIONS: Final = frozenset(
    {
        IneligibleReason.TOPIC_UNKNOWN,
        IneligibleReason.TOPIC_REMOVED,
        IneligibleReason.TOPIC_CONTRADICTED,
        IneligibleReason.AMBIGUOUS_REPLICA,
        IneligibleReason.OFFSETS_UNKNOWN,
        IneligibleReason.STALE_LOG_DIR,
        IneligibleReason.HIGH_WATERMARK_ABOVE_LOG_END,
        IneligibleReason.RECOVERY_POINT_ABOVE_LOG_END,
        IneligibleReason.LOG_START_ABOVE_LOG_END,
        IneligibleReason.CHECKPOINT_OLDER_THAN_LOG,
    }
)
_NEVER_TIERED: Final = frozenset({IneligibleReason.INTERNAL_TOPIC, IneligibleReason.COMPACTED})


def partition_readiness(
    report: ScanReport | None,
    *,
    topics: Collection[str],
    metadata: RemoteLogMetadata,
    registry: TopicRegistry,
    facts: ClusterFacts,
    paused: Collection[str],
    failed: Mapping[TopicIdPartition, Sequence[FailedCopy]] = NOTHING_FAILED,
    max_new_copies: int = MOST_NEW_COPIES,
) -> tuple[PartitionReadiness, ...]:
    """Every partition of `topics` (patterns) that is on disk, in the facts of a topic on disk, or has remote segments.

    Topics that are never tiered are left out. Ordered by topic and partition.

    Without a `report` it is about work that reads no log of a broker, such as deleting: what is or is not on disk, and
    what stopped the copy of a partition, holds nothing up. One is ready that is stopped by what `failed` alone, where a
    run of now would copy that anew.
    """
    groups: dict[TopicIdPartition, list[Replica]] = defaultdict(list)
    for replica in () if report is None else report.replicas:
        groups[replica.topic_id_partition].append(replica)
    never = {partition.topic_id for partition, replicas in groups.items() if _reasons(replicas) & _NEVER_TIERED}
    known = {partition for partition in metadata.partitions() if matches(partition.topic, topics)}

    def goes_on(chosen: Replica | None) -> bool:
        copies = () if chosen is None else failed.get(chosen.topic_id_partition, ())
        if chosen is None or not copies:
            return False
        return plan_replacements(chosen, copies, max_attempts=max_new_copies).held_back is None

    everywhere = {*groups, *known, *_in_facts(groups, facts)}
    judged = []
    for partition in sorted(everywhere, key=lambda one: (one.topic, one.partition, one.topic_id.value)):
        if partition.topic_id not in never:
            reason, detail = _first(
                _obstacles(partition, groups.get(partition, ()), report, metadata, registry, paused, goes_on)
            )
            judged.append(PartitionReadiness(partition, reason, detail))
    return tuple(judged)


def unread_partitions(unread: Mapping[TopicIdPartition, str]) -> tuple[PartitionReadiness, ...]:
    """Partitions that work which reads back (sizes, quality, audits) leaves out, with why."""
    return tuple(PartitionReadiness(partition, NotReady.UNREAD, why) for partition, why in unread.items())


def _first(obstacles: Iterator[tuple[NotReady, str]]) -> tuple[NotReady | None, str]:
    return next(obstacles, (None, ""))


def _obstacles(
    partition: TopicIdPartition,
    replicas: Sequence[Replica],
    report: ScanReport | None,
    metadata: RemoteLogMetadata,
    registry: TopicRegistry,
    paused: Collection[str],
    goes_on: Callable[[Replica | None], bool],
) -> Iterator[tuple[NotReady, str]]:
    """In the order in which one would mend them. Of a topic of brokers nothing is copied or expired here, whatever else
    it waits for."""
    is_brokers = registry.owner(partition.topic_id) is TopicOwner.BROKER
    if not is_brokers and not metadata.is_ready(partition):
        yield NotReady.METADATA, ""
    contradictions = sorted(_reasons(replicas) & _CONTRADICTIONS)
    chosen = next((replica for replica in replicas if replica.chosen), None)
    if contradictions and (chosen is None or _reasons([chosen]) & _CONTRADICTIONS):
        yield NotReady.FACTS, contradictions[0]
    if chosen is None and report is not None:
        yield NotReady.NO_LEADER_REPLICA, _where_it_could_be(replicas, report)
    owner = registry.owner(partition.topic_id)
    if chosen is not None:
        owner = owner_seen(chosen, owner)
    if owner not in (TopicOwner.PLATFORM, TopicOwner.NONE):
        yield NotReady.NOT_OURS, f"owner: {owner}"
    stopped = None if report is None else metadata.stopped_reason(partition)
    if stopped is not None and not goes_on(chosen):
        yield NotReady.STOPPED, stopped
    if ALL_TOPICS in paused or partition.topic in paused:
        yield NotReady.PAUSED, "./tiering resume" + ("" if ALL_TOPICS in paused else f" --topic {partition.topic}")


def _reasons(replicas: Iterable[Replica]) -> set[IneligibleReason]:
    """Why segments are not eligible."""
    return {segment.reason for replica in replicas for segment in replica.segments if segment.reason is not None}


def _where_it_could_be(replicas: Sequence[Replica], report: ScanReport) -> str:
    if report.errors:
        more = f" and {len(report.errors) - 1} more" if len(report.errors) > 1 else ""
        return f"{report.errors[0].path}: {report.errors[0].message}{more}"
    found = ", ".join(str(replica.replica_id.broker_id) for replica in replicas)
    return f"only followers of it are found, on broker {found}" if found else "no log directory in log_dirs holds it"


def _in_facts(groups: Mapping[TopicIdPartition, Sequence[Replica]], facts: ClusterFacts) -> Iterator[TopicIdPartition]:
    """All partitions of the topics on disk. Facts that cannot be read add nothing: the scan has said so."""
    names: dict[Uuid, str] = {partition.topic_id: partition.topic for partition in groups}
    try:
        for topic_id, name in names.items():
            topic = facts.topic(topic_id)
            for number in () if topic is None else topic.partitions:
                yield TopicIdPartition(topic_id, number, name)
    except ClusterFactsError:
        return
