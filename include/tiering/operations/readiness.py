"""The checks before a run starts, and the partitions that it may work on (like KIP-1105's isReady).

A partition is ready if its metadata is complete, its leader's replica is found in a readable log directory, cluster
metadata does not contradict it, its topic is owned by the platform or by no one, it is neither stopped nor paused, and
the plan of a copy does not hold it back until a person decides (`_obstacles_of_plan` has the exceptions).
For deletions fewer of these conditions apply. A partition that is not ready waits alone: the others are processed. No
run waits for partitions of deleted topics.

Each check of a run has a name, a result, and says whether waiting can help. The report shows all checks, the partitions
that wait and those of deleted topics; its JSON has every partition.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Final, TypedDict

from include.tiering.copying.plan import NEVER_TIERED, CopyPlan, partitions_of_cluster, where_it_may_be
from include.tiering.copying.run_scope import RunScope
from include.tiering.errors import (
    ClusterMetadataError,
)
from include.tiering.kafka.cluster.contract import ClusterMetadata, PartitionMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, Replica, ScanReport
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.reasons import Reason, ReasonMembers, reason_members
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.operations.checks import Check
from include.tiering.presentation import PartitionLabels, Presentation, Table, TopicNames, count, labels
from include.tiering.runs.contract import ALL_TOPICS
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.topics import TopicDeletion, owner_seen
from include.tiering.units import format_utc

MOST_NAMED: Final = 20


class NotReady(Reason):
    """Why a partition cannot be processed now."""

    METADATA = "metadata-incomplete", "its metadata is not complete", True
    CLUSTER_METADATA = "cluster-metadata", "cluster metadata is unknown or contradicts what is on disk", True
    NO_LEADER_REPLICA = "no-leader-replica", "its leader's replica is not found in a readable log directory", True
    NOT_OURS = "not-ours", "another owner works on this topic"
    DELETED = "deleted", "deleted in the cluster"
    UNREAD = "unread", "not all metadata records of its brokers are read", True
    STOPPED = "stopped", "stopped until a person decides"
    UNDECIDED = "undecided", "waits until a person decides"
    PAUSED = "paused", "paused", True


@dataclass(frozen=True, slots=True)
class PartitionReadiness:
    """The readiness of one partition. `reason` is None exactly if it is ready; `detail` is for a person, or empty."""

    topic_id_partition: TopicIdPartition
    reason: NotReady | None
    detail: str = ""

    @property
    def ready(self) -> bool:
        """Whether the partition can be processed."""
        return self.reason is None

    @property
    def waits(self) -> bool:
        """Whether the partition is not ready, and its topic was not deleted."""
        return self.reason not in (None, NotReady.DELETED)

    def __str__(self) -> str:
        if self.reason is None:
            return f"{self.topic_id_partition}: ready"
        return f"{self.topic_id_partition}: {self.reason}" + (f": {self.detail}" if self.detail else "")


_CONTRADICTIONS: Final = frozenset(
    {
        IneligibleReason.TOPIC_UNKNOWN,
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
Obstacle = tuple[NotReady, str]
"""Why a partition cannot be processed, and a detail for a person."""
NOTHING_PLANNED: Final = CopyPlan("", (), (), ())
NOTHING_DELETED: Final[Mapping[Uuid, TopicDeletion]] = MappingProxyType({})


def partition_readiness(
    report: ScanReport | None,
    *,
    scope: RunScope,
    metadata: RemoteLogMetadata,
    registry: TopicRegistry,
    cluster_metadata: ClusterMetadata,
    paused: Collection[str],
    plan: CopyPlan = NOTHING_PLANNED,
    deletions: Mapping[Uuid, TopicDeletion] = NOTHING_DELETED,
    expire_after_days: int | None = None,
) -> tuple[PartitionReadiness, ...]:
    """Return the readiness of every partition of `scope` that is on disk, in the cluster, or has remote segments.

    Topics that are never tiered, according to the scan, are left out; so are topics that brokers tier if they are
    neither on disk nor remote. Ordered by topic and partition.

    Args:
        report: the scan of `scope`. If it is None, readiness is evaluated for work that reads no log of a broker, such
            as deletions: then only partitions with remote segments are returned, and missing replicas, stopped or
            undecided copies and deleted topics are no obstacles.
        scope: which partitions the run takes.
        metadata: segment metadata.
        registry: topics and their owners.
        cluster_metadata: topics and partitions of the cluster.
        paused: names of paused topics.
        plan: what a copy would do now, from the same scan.
        deletions: topics that are recorded as deleted in the cluster.
        expire_after_days: after how many days segments of deleted topics expire; None: never. For details only.
    """
    groups: dict[TopicIdPartition, list[Replica]] = defaultdict(list)
    for replica in () if report is None else report.replicas:
        groups[replica.topic_id_partition].append(replica)
    never = {partition.topic_id for partition, replicas in groups.items() if _reasons(replicas) & NEVER_TIERED}
    remote = scope.archived(metadata.partitions())
    known_partitions = {} if report is None else _in_cluster_metadata(report, scope, cluster_metadata)
    found = []
    for partition in sorted(
        {*groups, *remote, *known_partitions},
        key=lambda partition: (partition.topic, partition.partition, partition.topic_id.value),
    ):
        if partition.topic_id in never:
            continue
        replicas = groups.get(partition, ())
        if report is not None and _is_deleted(partition, replicas, cluster_metadata, deletions):
            stays = "nothing of it is remote" if partition not in remote else _what_stays(expire_after_days)
            found.append(_deleted(partition, deletions.get(partition.topic_id), stays))
            continue
        obstacles = chain(
            _obstacles_of_metadata(partition, replicas, report, metadata, registry, known_partitions),
            () if report is None else _obstacles_of_plan(partition, metadata, plan),
            _pause(partition, paused),
        )
        reason, detail = next(obstacles, (None, ""))
        found.append(PartitionReadiness(partition, reason, detail))
    return tuple(found)


def unread_partitions(unread: Mapping[TopicIdPartition, str]) -> tuple[PartitionReadiness, ...]:
    """Return the partitions of `unread`."""
    return tuple(PartitionReadiness(partition, NotReady.UNREAD, why) for partition, why in unread.items())


def _obstacles_of_metadata(
    partition: TopicIdPartition,
    replicas: Sequence[Replica],
    report: ScanReport | None,
    metadata: RemoteLogMetadata,
    registry: TopicRegistry,
    known_partitions: Mapping[TopicIdPartition, PartitionMetadata],
) -> Iterator[Obstacle]:
    """Yield obstacles in the order in which they should be removed.

    Incomplete metadata is no obstacle for a topic that brokers own, as the platform does not copy or expire it.
    """
    is_brokers = registry.owner(partition.topic_id) is TopicOwner.BROKER
    if not is_brokers and not metadata.is_ready(partition):
        yield NotReady.METADATA, ""
    contradictions = sorted(str(reason) for reason in _reasons(replicas) & _CONTRADICTIONS)
    chosen = next((replica for replica in replicas if replica.chosen), None)
    if contradictions and (chosen is None or _reasons([chosen]) & _CONTRADICTIONS):
        yield NotReady.CLUSTER_METADATA, contradictions[0]
    if chosen is None and report is not None:
        yield NotReady.NO_LEADER_REPLICA, where_it_may_be(partition, report, known_partitions.get(partition))
    owner = registry.owner(partition.topic_id)
    if chosen is not None:
        owner = owner_seen(chosen, owner)
    if owner not in (TopicOwner.PLATFORM, TopicOwner.NONE):
        yield NotReady.NOT_OURS, f"owner: {owner}"


def _obstacles_of_plan(partition: TopicIdPartition, metadata: RemoteLogMetadata, plan: CopyPlan) -> Iterator[Obstacle]:
    """Yield the obstacles to copying a partition.

    A partition that is not stopped and has planned segments is ready even if others are held back. A stopped partition
    is ready only if the plan copies failed segments again and holds none back for a person.
    """
    held_back = [held for held in plan.held_back if held.topic_id_partition == partition and held.needs_a_person]
    planned = [planned for planned in plan.partitions if planned.replica_id.topic_id_partition == partition]
    stopped = metadata.stopped_reason(partition)
    is_repaired = any(
        segment.supersedes is not None for partition_plan in planned for segment in partition_plan.segments
    )
    if stopped is not None and (held_back or not is_repaired):
        yield NotReady.STOPPED, stopped
    if held_back and not planned:
        first = held_back[0]
        yield NotReady.UNDECIDED, f"from offset {first.next_offset}: {first.reason}: {first.detail}"


def _pause(partition: TopicIdPartition, paused: Collection[str]) -> Iterator[Obstacle]:
    if ALL_TOPICS in paused or partition.topic in paused:
        yield NotReady.PAUSED, "./tiering resume" + ("" if ALL_TOPICS in paused else f" --topic {partition.topic}")


def _is_deleted(
    partition: TopicIdPartition,
    replicas: Sequence[Replica],
    cluster_metadata: ClusterMetadata,
    deletions: Mapping[Uuid, TopicDeletion],
) -> bool:
    """Return whether the topic of a partition was deleted.

    The topic was deleted if the scan found it removed. It was also deleted if the cluster metadata lack its id, and one
    of these holds: `deletions` has it, the cluster metadata record its deletion, or another topic has its name now. If
    the cluster metadata are unavailable, only the scan and `deletions` count.
    """
    if IneligibleReason.TOPIC_REMOVED in _reasons(replicas):
        return True
    try:
        if cluster_metadata.topic(partition.topic_id) is not None:
            return False
        is_recorded = partition.topic_id in deletions or cluster_metadata.is_removed(partition.topic_id)
        return is_recorded or cluster_metadata.topic_named(partition.topic) is not None
    except ClusterMetadataError:
        return partition.topic_id in deletions


def _deleted(partition: TopicIdPartition, deletion: TopicDeletion | None, stays: str) -> PartitionReadiness:
    seen = "" if deletion is None else f"seen {format_utc(deletion.seen_at_ms)}; "
    return PartitionReadiness(partition, NotReady.DELETED, seen + stays)


def _what_stays(expire_after_days: int | None) -> str:
    if expire_after_days is None:
        return "its archive stays"
    return f"its archive stays for {expire_after_days} days, then it is deleted after an approval"


def _reasons(replicas: Iterable[Replica]) -> set[IneligibleReason]:
    """Return the reasons why segments are not eligible."""
    return {segment.reason for replica in replicas for segment in replica.segments if segment.reason is not None}


def _in_cluster_metadata(
    report: ScanReport, scope: RunScope, cluster_metadata: ClusterMetadata
) -> Mapping[TopicIdPartition, PartitionMetadata]:
    """Return the partitions of the cluster; none if its metadata cannot be read."""
    try:
        return partitions_of_cluster(report, scope, cluster_metadata)
    except ClusterMetadataError:
        return {}


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a run may start, and with which partitions.

    `partitions` are evaluated only if every check holds. A run without any partition may start: it ends at once.
    `needs_one`: the run does not start while every partition of the topics that exist waits for a state that may pass
    without a person.
    """

    checks: tuple[Check, ...]
    partitions: tuple[PartitionReadiness, ...] = ()
    needs_one: bool = True

    @property
    def ready(self) -> bool:
        """Whether all checks hold and, with `needs_one`, not every existing partition waits for a passing state."""
        there = [partition for partition in self.partitions if partition.ready or partition.waits]
        all_wait = bool(there) and all(partition.reason and partition.reason.retriable for partition in there)
        return self.holds and not (self.needs_one and all_wait)

    @property
    def holds(self) -> bool:
        """Whether every check holds. Partitions are not considered."""
        return all(check.holds for check in self.checks)

    @property
    def waitable(self) -> bool:
        """Whether waiting may help with every failed check."""
        return all(check.waitable for check in self.checks)

    @property
    def wrong(self) -> tuple[Check, ...]:
        """Checks that found what a person has to put right, although the run starts."""
        return tuple(check for check in self.checks if check.wrong)

    @property
    def waiting(self) -> tuple[PartitionReadiness, ...]:
        """Partitions that are not ready, without those of deleted topics."""
        return tuple(partition for partition in self.partitions if partition.waits)

    @property
    def deleted(self) -> tuple[PartitionReadiness, ...]:
        """Partitions of deleted topics."""
        return tuple(partition for partition in self.partitions if not partition.ready and not partition.waits)

    @property
    def missing(self) -> tuple[str, ...]:
        """One line for each needed check that failed."""
        return tuple(str(check) for check in self.checks if not check.holds)

    @property
    def remarks(self) -> tuple[str, ...]:
        """One line for each failed check that this run does not need."""
        return tuple(str(check) for check in self.checks if not check.ok and not check.needed)


class ReadinessCheckDocument(TypedDict):
    """A check of the deployment; `waitable`: waiting may help."""

    name: str
    ok: bool
    waitable: bool
    message: str


class PartitionReadinessDocument(PartitionLabels, ReasonMembers):
    """A partition that is ready, or why not."""

    ready: bool
    waitable: bool
    detail: str


class ReadinessDocument(TypedDict):
    """Whether a run can start."""

    ready: bool
    checks: list[ReadinessCheckDocument]
    partitions: list[PartitionReadinessDocument]


def present_ready(readiness: Readiness, *, all_of_them: bool = False) -> Presentation:
    """Present readiness.

    The result is `ok` if the run may start, nothing is `wrong`, and, with `all_of_them`, no partition waits.
    """
    ok = readiness.ready and not readiness.wrong and not (all_of_them and readiness.waiting)
    return Presentation(
        lambda: _document(readiness, ok),
        lambda: _tables(readiness),
        summary_of(readiness),
        ok=ok,
    )


def summary_of(readiness: Readiness) -> str:
    """Return readiness in one line."""
    if not readiness.holds:
        return f"not ready: {', '.join(check.name for check in readiness.checks if not check.holds)}"
    there = len(readiness.partitions) - len(readiness.deleted)
    words = f"{there - len(readiness.waiting)} of {count(there, 'partition')} ready" if there else "ready"
    words += f"; {len(readiness.deleted)} of deleted topics" if readiness.deleted else ""
    if readiness.wrong:
        words += f"; for a person to put right: {', '.join(check.name for check in readiness.wrong)}"
    return words if readiness.ready else f"not ready: {words}"


def waiting_lines(readiness: Readiness) -> list[str]:
    """Return a line for each of the first `MOST_NAMED` partitions that wait, and a line with the number of the rest."""
    names = TopicNames(partition.topic_id_partition for partition in readiness.partitions)
    lines = [_line(waiting, names) for waiting in readiness.waiting[:MOST_NAMED]]
    more = len(readiness.waiting) - len(lines)
    return [*lines, f"and {more} more: ./tiering ready"] if more else lines


def _line(partition_readiness: PartitionReadiness, names: TopicNames) -> str:
    return names.partition(partition_readiness.topic_id_partition) + str(partition_readiness).removeprefix(
        str(partition_readiness.topic_id_partition)
    )


def _document(readiness: Readiness, ok: bool) -> ReadinessDocument:
    return {
        "ready": ok,
        "checks": [
            {"name": c.name, "ok": c.ok, "waitable": c.waitable, "message": c.message} for c in readiness.checks
        ],
        "partitions": [
            {
                **labels(partition.topic_id_partition),
                "ready": partition.ready,
                **reason_members(partition.reason),
                "waitable": partition.reason is None or partition.reason.retriable,
                "detail": partition.detail,
            }
            for partition in readiness.partitions
        ],
    }


def _tables(readiness: Readiness) -> tuple[Table, ...]:
    checks = Table("checks", ("check", "result", "found"), tuple(map(_row, readiness.checks)))
    names = TopicNames(partition.topic_id_partition for partition in readiness.partitions)
    waiting = _named("waiting", readiness.waiting, names)
    return (checks, *waiting, *_named("nothing to wait for", readiness.deleted, names))


def _named(title: str, partitions: Sequence[PartitionReadiness], names: TopicNames) -> tuple[Table, ...]:
    """Return a table of partitions; none if there is no partition."""
    rows = tuple(
        (names.partition(partition.topic_id_partition), str(partition.reason), partition.detail)
        for partition in partitions
    )
    return (Table(title, ("partition", "why", "found"), rows),) if rows else ()


def _row(check: Check) -> tuple[str, ...]:
    if check.ok or check.wrong:
        return (check.name, "ok" if check.ok else "wrong", check.message)
    result = "not needed" if check.holds else "wait" if check.waitable else "failed"
    return (check.name, result, check.message)
