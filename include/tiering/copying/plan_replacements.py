"""Failed segments in a plan: which are copied again, and which no source can replace.

A new copy must have exactly the offsets and the leader epochs of the failed segment: then it holds the same records,
and neither its neighbours nor later segments have to change. The leader's replica may have the records in segments with
other bounds. Copies of such segments would begin or end inside FINISHED neighbours, below the highest end and out of
order. So this case counts as a loss, too, until a replica leads that has the segment with the same bounds.

What the source has may be unknown: its leader epoch checkpoint cannot be read, or the leader's log has not been read up
to these offsets yet. Then the segment does not count as lost: the partition waits, and nobody can skip the offsets.

A segment that fails only because of its neighbours is not copied again; if offsets are missing before it, they are a
hole. If a segment lacks an object in the store, it is copied again only if there is no doubt that this is the right
store (`StoreWitness`); otherwise nothing of the partition is planned. A loss stops the partition, usually until a
person decides. So does a segment whose new copies have failed as often as the limit allows: without a limit it would be
copied for ever.

Failed segments of a history that a decision replaced (`model.histories`) stop nothing and are no loss for the history
that is followed. Segments that reach the offsets of an undecided divergence are not planned: a person has to decide
about the divergence first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from include.tiering.copying.plan import WAITING_CANNOT_HELP, CopyPlan, HeldBack, HeldBackPartition
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica, ScanReport
from include.tiering.model.histories import (
    Divergence,
    OffsetRange,
    SkippedOffsets,
    last_offset_of,
    missing_offsets,
    same_before,
    with_records,
    without,
)
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.presentation import listed
from include.tiering.runs.contract import PlannedSegment
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.segments.failed_copies import FailedCopies, FailedCopy, Loss

MOST_NEW_COPIES: Final = 1
_MOST_NAMED: Final = 3
_NOT_ABOUT_IT: Final = frozenset({IneligibleReason.AFTER_CORRUPT, IneligibleReason.AMBIGUOUS_REPLICA})
"""Reasons that are not about the segment itself: once their cause is corrected, the segment can be copied."""

_GONE: Final = (WAITING_CANNOT_HELP | {IneligibleReason.BELOW_LOG_START}) - _NOT_ABOUT_IT


@dataclass(frozen=True, slots=True)
class Replacements:
    """New copies of failed segments, ascending. With `held_back` the partition stays stopped after them."""

    segments: tuple[PlannedSegment, ...] = ()
    held_back: HeldBackPartition | None = None


def plan_replacements(
    replica: Replica,
    copies: Sequence[FailedCopy],
    *,
    others: Sequence[Replica] = (),
    log_start_offset: int = 0,
    max_attempts: int,
    hole: OffsetRange | None = None,
) -> Replacements:
    """Decide about the failed segments of one partition.

    Args:
        replica: the replica that a copy reads.
        copies: by start offset. A segment that was given up is copied again if possible, and stops nothing.
        others: replicas that a copy does not read; they may still have segments that `replica` no longer has.
        log_start_offset: of the archive; segments wholly below it are about to expire and are not copied again.
        max_attempts: upper limit (inclusive) of new copies of the same offsets; see `FailedCopy.superseded`.
        hole: offsets that are missing in the archive before one of `copies`; see `hole_before`.
    """
    planned: list[PlannedSegment] = []
    lost: list[Loss] = []
    waits: list[_Wait] = []
    for copy in (failed for failed in copies if not failed.was_left):
        if copy.offsets.last < log_start_offset:
            if not copy.given_up:
                waits.append(_Wait(copy.offsets, f"below the archive's log start, {log_start_offset}: they expire"))
            continue
        if fails_by_neighbours(copy):
            if not copy.given_up:
                waits.append(_Wait(copy.offsets, f"a new copy would break the same rule: {copy.verdict_detail}"))
            continue
        segment = _same_segment(replica, copy.metadata)
        if segment is None and (unknown := _why_unknown(replica, copy.metadata)) is not None:
            waits += [] if copy.given_up else [_Wait(copy.offsets, unknown)]
            continue
        loss = _loss(replica, segment, copy, others, max_attempts)
        if loss is not None:
            lost += [] if copy.given_up else [loss]
        elif segment is not None and segment.eligible:
            planned.append(
                PlannedSegment(segment.base_offset, segment.end_offset, segment.size_bytes, copy.segment_id.id)
            )
        elif segment is not None and not copy.given_up:
            waits.append(_Wait(copy.offsets, f"not eligible in the source now: {segment.reason}"))
    return Replacements(tuple(planned), _held_back(replica, lost, waits, hole))


def replacements_of(
    replica: Replica, report: ScanReport, copies: Sequence[FailedCopy], metadata: RemoteLogMetadata, max_attempts: int
) -> Replacements:
    """Call `plan_replacements` with what the scan and the metadata hold of the partition."""
    partition, hole = replica.topic_id_partition, None
    if any(map(fails_by_neighbours, copies)):
        rows, decisions = metadata.list_segments(partition), metadata.skipped_offsets(partition)
        divergences = metadata.divergences(partition)
        for history in sorted({row.history for row in rows}):
            of_history = [row.metadata for row in rows if row.history == history]
            found = hole_before(copies, of_history, decisions)
            hole = hole or (None if found is None else _hole_of_partition(found, history, rows, divergences))
    return plan_replacements(
        replica,
        copies,
        others=[other for other in report.replicas if other.topic_id_partition == partition and other is not replica],
        log_start_offset=metadata.retention_state(partition).log_start_offset,
        max_attempts=max_attempts,
        hole=hole,
    )


def without_doubtful(
    replacements: Replacements, copies: Sequence[FailedCopy], doubt: Callable[[RemoteLogSegmentMetadata], str | None]
) -> Replacements:
    """Return `replacements`; if the store is in doubt, hold the partition back instead.

    Args:
        replacements: what is planned for `copies`.
        copies: the failed segments of one partition.
        doubt: returns why a failed segment may not count as lost, None if it may; see `StoreWitness`.
    """
    failed = {copy.segment_id.id: copy.metadata for copy in copies}
    for planned in replacements.segments:
        if planned.supersedes is not None and (why := doubt(failed[planned.supersedes])) is not None:
            partition = failed[planned.supersedes].topic_id_partition
            held_back = HeldBackPartition(partition, planned.base_offset, HeldBack.STORE_IN_DOUBT, why)
            return Replacements(held_back=held_back)
    return replacements


def before_divergence(copies: Sequence[FailedCopy], divergence: HeldBackPartition | None) -> Sequence[FailedCopy]:
    """Return the copies that end before a divergence: for later ones the history to follow is not decided."""
    return [copy for copy in copies if divergence is None or copy.offsets.last < divergence.next_offset]


def fails_by_neighbours(copy: FailedCopy) -> bool:
    """Return whether the segment fails only because of its neighbours; a copy of the same offsets would fail, too."""
    if not copy.broken_rules:
        return False
    # The suites of rules are only needed where a copy broke a rule.
    from include.tiering.verification.suites import RULES_ABOUT_NEIGHBOURS

    return RULES_ABOUT_NEIGHBOURS.issuperset(copy.broken_rules)


def hole_before(
    copies: Sequence[FailedCopy], rows: Iterable[RemoteLogSegmentMetadata], decisions: Sequence[SkippedOffsets]
) -> OffsetRange | None:
    """Return the first undecided offsets that are missing before a segment that fails only because of its neighbours.

    `rows` are the partition's segments of one history in any state.
    """
    finished = sorted((row for row in rows if row.is_finished), key=lambda row: row.end_offset)
    suspects = {copy.segment_id for copy in copies if fails_by_neighbours(copy) and not copy.given_up}
    for previous, current in pairwise(finished):
        if current.remote_log_segment_id in suspects and (missing := missing_offsets(previous, current, decisions)):
            return missing[0]
    return None


def record_losses(
    report: ScanReport, plan: CopyPlan, failed: Mapping[TopicIdPartition, Sequence[FailedCopy]], store: FailedCopies
) -> None:
    """Store which failed segments no source can replace, according to this plan.

    For partitions without a chosen replica in the report the stored losses stay. So `report` must be without the
    partitions that the run does not take (`RunScope.scan`); otherwise their stored losses are removed as settled.
    """
    seen = {replica.topic_id_partition for replica in report.replicas if replica.chosen}
    lost = {loss.segment_id: loss.why for held in plan.held_back for loss in held.lost if not loss.in_source}
    for partition, copies in failed.items():
        ids = [copy.segment_id for copy in copies if not copy.given_up]
        known = {copy.segment_id: copy.lost_because for copy in copies}
        if partition in seen and any(known[segment_id] != lost.get(segment_id) for segment_id in ids):
            store.note_losses(partition, {segment_id: lost[segment_id] for segment_id in ids if segment_id in lost})


def _hole_of_partition(
    hole: OffsetRange, history: int, rows: Sequence[SegmentRow], divergences: Sequence[Divergence]
) -> OffsetRange | None:
    """Return the first part of a hole in one history that is a hole of the partition.

    That is the part below the start of any later history and in no FINISHED segment of a later history.
    """
    last = last_offset_of(history, divergences)
    answered = OffsetRange(hole.first, hole.last if last is None else min(hole.last, last))
    later = [row for row in rows if row.history > history and row.metadata.is_finished]
    same = [(row.metadata, same_before(history, row.history, divergences) - 1) for row in later]
    held = [
        OffsetRange(segment.first_readable_offset, min(segment.end_offset, end))
        for segment, end in same
        if segment.first_readable_offset <= end
    ]
    return next(iter(without(answered, held)), None)


class _Wait(NamedTuple):
    offsets: OffsetRange
    why: str


def _same_segment(replica: Replica, failed: RemoteLogSegmentMetadata) -> LogSegment | None:
    """Return the replica's rolled segment with the same offsets and leader epochs; None if it has none."""
    segment = replica.segment_at(failed.start_offset)
    if segment is None or segment.active or segment.end_offset != failed.end_offset:
        return None
    same = with_records(segment.leader_epochs) == with_records(failed.segment_leader_epochs)
    return segment if same else None


def _why_unknown(replica: Replica, failed: RemoteLogSegmentMetadata) -> str | None:
    """Return why it cannot be known yet whether the replica has the records; None if it can be."""
    if replica.log_start_offset > failed.start_offset:
        return None
    if replica.found_to is not None and replica.found_to <= failed.end_offset:
        return f"the source's log is read up to offset {replica.found_to} so far: the next plans read on"
    if replica.log_end_offset > replica.log_start_offset and not replica.leader_epochs.entries:
        return "the source's leader epochs cannot be read: ./tiering scan names the file"
    return None


def _loss(
    replica: Replica, segment: LogSegment | None, copy: FailedCopy, others: Sequence[Replica], max_attempts: int
) -> Loss | None:
    if segment is None or segment.reason in _GONE:
        why = _why_gone(replica, segment, copy.metadata) + _elsewhere(others, copy.metadata)
        return Loss(copy.segment_id, copy.offsets, why)
    if copy.superseded >= max_attempts:
        return Loss(copy.segment_id, copy.offsets, _why_no_more(copy), in_source=True)
    return None


def _why_no_more(copy: FailedCopy) -> str:
    times = "once" if copy.superseded == 1 else f"{copy.superseded} times"
    tried = f"copied again {times}, and it failed again" if copy.superseded else "nothing is to be copied again"
    return f"{tried}: {copy.verdict_detail}; the source still has them"


def _why_gone(replica: Replica, segment: LogSegment | None, failed: RemoteLogSegmentMetadata) -> str:
    if replica.log_start_offset > failed.end_offset:
        return f"the source's log starts at {replica.log_start_offset}"
    if segment is not None:
        return f"the source itself has a segment that cannot be copied: {segment.reason}"
    within = [s for s in replica.segments if s.base_offset <= failed.end_offset and s.end_offset >= failed.start_offset]
    if not within:
        return "the source has no segment of them"
    if (within[0].base_offset, within[-1].end_offset) == (failed.start_offset, failed.end_offset) and len(within) == 1:
        return "the source has them in its active segment" if within[0].active else "the source has other leader epochs"
    return (
        f"the source has other segments: {', '.join(f'{s.base_offset}..{s.end_offset}' for s in within[:_MOST_NAMED])}"
    )


def _elsewhere(others: Sequence[Replica], failed: RemoteLogSegmentMetadata) -> str:
    brokers = [
        f"broker {other_replica.replica_id.broker_id}"
        for other_replica in others
        if other_replica.log_start_offset <= failed.end_offset
        and (found := _same_segment(other_replica, failed)) is not None
        and found.reason is not IneligibleReason.COMPACTED_SEGMENT
    ]
    return f"; unchanged on {' and '.join(brokers)}: let one of them lead" if brokers else ""


def _held_back(
    replica: Replica, lost: Sequence[Loss], waits: Sequence[_Wait], hole: OffsetRange | None
) -> HeldBackPartition | None:
    partition = replica.topic_id_partition
    if lost:
        reason = HeldBack.FAILED_AGAIN if all(loss.in_source for loss in lost) else HeldBack.LOST
        detail = listed([str(loss) for loss in lost], _MOST_NAMED) + "; see ./tiering skip"
        return HeldBackPartition(partition, lost[0].offsets.first, reason, detail, lost=tuple(lost))
    if hole is not None:
        detail = f"offsets {hole} are missing in the archive, between copied segments; see ./tiering skip"
        return HeldBackPartition(partition, hole.first, HeldBack.HOLE, detail, hole)
    if waits:
        detail = listed([f"offsets {wait.offsets}: {wait.why}" for wait in waits], _MOST_NAMED)
        return HeldBackPartition(partition, waits[0].offsets.first, HeldBack.STOPPED, detail)
    return None
