"""Let an archive go on without offsets that no source can give it any more: one partition, by decision.

Three things may be skipped, as a plan of this moment names them. A *hole*: offsets that the source lost before they
were copied, which the log that a copy reads proves by its start; or offsets that are missing between copied segments,
as the metadata itself proves: no copy comes back to them. *Compacted segments*: whole segments of which a log cleaner
took offsets before they were copied; what it left of them is not copied either. *Failed segments* that no new copy
replaces: they stay as they are, not served, and stop the partition no longer. Nothing else: not a segment that waits,
not a damaged source.

    step       a crash right after it leaves                      cleaned up by
    found      nothing                                            -
    recorded   the hole's decision and its event, together;       -
               of failed segments the first few, each whole       the same call again: it finds the others

The next run of a copy goes on behind it. Between the two steps a person may think for long. A copy that went on
meanwhile is refused by the comparison in the metadata; a hole that grew meanwhile is named again, by what it grew. A
segment that passed or was superseded meanwhile is refused likewise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.copying.copy_plan import CopyPlan, HeldBack, HeldBackPartition
from include.tiering.errors import CorruptFileError, SettingError
from include.tiering.kafka.log_dirs.contract import Replica, ScanReport
from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.model.ids import TopicIdPartition
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.failed_copies import FailedCopies, Loss

COMPACTED_AWAY: Final = "compacted away before it was copied"
"""What the reason of such a decision begins with."""


@dataclass(frozen=True, slots=True)
class Skip:
    """What may be skipped of a partition now: failed segments first, then a hole.

    Attributes:
        hole: None if there is none.
        lost: failed segments that no new copy replaces.
        is_compacted: the hole is segments that were compacted away; the source has what is left of them.
        is_within: the hole lies between copied segments, where no copy comes back to it.
        waits: why the partition waits, if it does.
        elsewhere: brokers whose replica still has some of the hole, above its own log start, though no copy reads it.
        decisions: all that were ever recorded of the partition, by offset.
    """

    topic_id_partition: TopicIdPartition
    hole: OffsetRange | None
    waits: HeldBackPartition | None = None
    elsewhere: tuple[int, ...] = ()
    decisions: tuple[SkippedOffsets, ...] = ()
    lost: tuple[Loss, ...] = ()
    is_within: bool = False
    is_compacted: bool = False

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """What would be missing, by offset."""
        return tuple(loss.offsets for loss in self.lost) if self.hole is None else (self.hole,)

    @property
    def offsets(self) -> int:
        return sum(part.size for part in self.ranges)


def plan_skip(
    report: ScanReport, plan: CopyPlan, metadata: RemoteLogMetadata, topic: str, number: int, topic_id: str | None
) -> Skip:
    """The hole of the partition that is named, by a scan and by the plan that was made of it. Changes nothing.

    Raises:
        SettingError: no replica that a copy may read is found, or several topics had the name.
        CorruptFileError: what seems to be gone lies above the log start: it is missing.
    """
    replica = meant_replica(report, topic, number, topic_id)
    partition = replica.topic_id_partition
    waits = next((one for one in plan.held_back if one.topic_id_partition == partition), None)
    decisions = tuple(metadata.skipped_offsets(partition))
    if waits is None or waits.hole is None:
        return Skip(partition, None, waits, decisions=decisions, lost=() if waits is None else waits.lost)
    if waits.reason is HeldBack.COMPACTED:
        return Skip(partition, waits.hole, waits, decisions=decisions, is_compacted=True)
    hole, highest = waits.hole, metadata.highest_copied_offset(partition)
    is_within = highest is not None and hole.last <= highest
    if not is_within and replica.log_start_offset <= hole.last:
        raise CorruptFileError(
            str(replica.replica_id),
            f"offsets {hole} are missing, not gone: its log starts at {replica.log_start_offset}; see ./tiering scan",
        )
    elsewhere = _elsewhere(report.replicas, replica, hole)
    return Skip(partition, hole, waits, elsewhere, decisions, is_within=is_within)


def skip_offsets(
    planned: Skip, *, metadata: RemoteLogMetadata, failed_copies: FailedCopies, reason: str, author: str
) -> Skip:
    """Record the decision, with an event. Where there is nothing to skip nothing is recorded.

    Raises:
        SettingError: no reason is given.
        StateConflictError: other offsets are next by now, a segment is not failed any more, or the platform does not
            own the topic any more.
    """
    if not reason.strip():
        raise SettingError("--reason is empty: say why the archive may go on without these offsets")
    if planned.lost:
        given_up = [
            decision
            for loss in planned.lost
            for decision in failed_copies.give_up(loss.segment_id, reason=reason.strip(), author=author)
        ]
        return replace(planned, waits=None, decisions=(*planned.decisions, *given_up))
    if planned.hole is None:
        return planned
    why = f"{COMPACTED_AWAY}: {reason.strip()}" if planned.is_compacted else reason.strip()
    decision = metadata.skip_offsets(
        planned.topic_id_partition, planned.hole, reason=why, author=author, may_be_first=planned.is_compacted
    )
    return replace(planned, waits=None, decisions=(*planned.decisions, decision))


def meant_replica(report: ScanReport, topic: str, number: int, topic_id: str | None) -> Replica:
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
