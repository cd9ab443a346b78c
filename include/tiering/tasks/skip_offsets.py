"""Let an archive go on behind offsets that its source lost before they were copied: one partition, by decision.

What may be skipped is what a plan of this moment calls a hole, and the source must prove it: the log that a copy reads
starts behind it. Nothing else becomes a hole: not a segment that is damaged, not one that waits.

    step       a crash right after it leaves             cleaned up by
    found      nothing                                   -
    recorded   the decision and its event, together      -

The next run of a copy goes on behind it. Between the two steps a person may think for long. A copy that went on
meanwhile is refused by the comparison in the metadata; a hole that grew meanwhile is named again, by what it grew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from include.tiering.errors import CorruptFileError, SettingError
from include.tiering.log_source.contract import Replica, ScanReport
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.skipped_offsets import OffsetRange, SkippedOffsets
from include.tiering.remote_metadata.contract import RemoteLogMetadata
from include.tiering.tasks.copy_plan import CopyPlan, HeldBackPartition


@dataclass(frozen=True, slots=True)
class Skip:
    """What may be skipped of a partition now.

    Attributes:
        hole: None if there is none.
        waits: why the partition waits, if it does.
        elsewhere: brokers whose replica still has some of the hole, above its own log start, though no copy reads it.
        decisions: all that were ever recorded of the partition, by offset.
    """

    topic_id_partition: TopicIdPartition
    hole: OffsetRange | None
    waits: HeldBackPartition | None = None
    elsewhere: tuple[int, ...] = ()
    decisions: tuple[SkippedOffsets, ...] = ()


def plan_skip(
    report: ScanReport, plan: CopyPlan, metadata: RemoteLogMetadata, topic: str, number: int, topic_id: str | None
) -> Skip:
    """The hole of the partition that is named, by a scan and by the plan that was made of it. Changes nothing.

    Raises:
        SettingError: no replica that a copy may read is found, or several topics had the name.
        CorruptFileError: what seems to be gone lies above the log start: it is missing.
    """
    replica = _meant(report, topic, number, topic_id)
    partition = replica.topic_id_partition
    waits = next((one for one in plan.held_back if one.topic_id_partition == partition), None)
    decisions = tuple(metadata.skipped_offsets(partition))
    if waits is None or waits.hole is None:
        return Skip(partition, None, waits, decisions=decisions)
    hole = waits.hole
    if replica.log_start_offset <= hole.last:
        raise CorruptFileError(
            str(replica.replica_id),
            f"offsets {hole} are missing, not gone: its log starts at {replica.log_start_offset}; see ./tiering scan",
        )
    return Skip(partition, hole, waits, _elsewhere(report.replicas, replica, hole), decisions)


def skip_offsets(planned: Skip, *, metadata: RemoteLogMetadata, reason: str, author: str) -> Skip:
    """Record the decision, with an event. Without a hole nothing is recorded.

    Raises:
        SettingError: no reason is given.
        StateConflictError: other offsets are next by now, or the platform does not own the topic any more.
    """
    if not reason.strip():
        raise SettingError("--reason is empty: say why the archive may go on without these offsets")
    if planned.hole is None:
        return planned
    decision = metadata.skip_offsets(planned.topic_id_partition, planned.hole, reason=reason.strip(), author=author)
    return replace(planned, waits=None, decisions=(*planned.decisions, decision))


def _meant(report: ScanReport, topic: str, number: int, topic_id: str | None) -> Replica:
    named = [
        one
        for one in report.replicas
        if one.chosen and one.topic_id_partition.topic == topic and one.topic_id_partition.partition == number
    ]
    meant = [one for one in named if topic_id in (None, str(one.topic_id_partition.topic_id))]
    if len(meant) == 1:
        return meant[0]
    if not named:
        raise SettingError(
            f"{topic}-{number}: no directory of log_dirs shows the replica that a copy reads, so nothing proves what is"
            f" gone; ./tiering doctor {topic} says more"
        )
    ids = ", ".join(str(one.topic_id_partition.topic_id) for one in named)
    raise SettingError(f"{topic}-{number}: topics of this name have the ids {ids}: choose one with --topic-id")


def _elsewhere(replicas: Sequence[Replica], read: Replica, hole: OffsetRange) -> tuple[int, ...]:
    others = (one for one in replicas if one.topic_id_partition == read.topic_id_partition and one is not read)
    return tuple(
        one.replica_id.broker_id
        for one in others
        if any(
            s.base_offset <= hole.last and s.end_offset >= max(hole.first, one.log_start_offset) for s in one.segments
        )
    )
