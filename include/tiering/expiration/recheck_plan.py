"""Whether what was planned would still be planned: hours may lie between a plan, its approval and its deletion.

Meanwhile more may have expired, which is not part of the plan and waits for the next one. What matters is the other
direction: a segment that stays by the log start, leader epochs, retention, owner and clock that hold now must not go
because they were others when it was planned. So the plan is asked about before an approval counts, and each batch asks
about its partition when it takes it and when it comes out of a pause.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from include.tiering.expiration.plan_expiration import ExpirationPlan
from include.tiering.model.histories import FIRST_HISTORY
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segment_metadata import RemoteLogSegmentState
from include.tiering.runs.deletion_contract import PlannedDeletion, PlannedExpiration
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_BEGUN = RemoteLogSegmentState.DELETE_SEGMENT_STARTED

WOULD_STAY = "it stays by the settings that hold now"
"""What the outcome of a planned deletion says that would not be planned any more."""


@dataclass(frozen=True, slots=True)
class StillPlanned:
    """What of a partition's plan goes on: `planned` with a log start that leaves what stays, and what is `kept`, `why`
    for a person. `history` is the newest one that was followed before anything was read."""

    planned: PlannedExpiration
    kept: tuple[PlannedDeletion, ...] = ()
    why: str = WOULD_STAY
    history: int = FIRST_HISTORY


PlanCheck = Callable[[PlannedExpiration], StillPlanned]
"""Asks whether the plan of one partition still holds, by everything that holds now."""


def still_planned(
    planned: PlannedExpiration,
    now: PlannedExpiration | None,
    metadata: RemoteLogMetadata,
    *,
    history: int,
    waits: str = "",
) -> StillPlanned:
    """Compare the rest of a partition's plan with what would be planned `now`; None: nothing of it.

    A deletion that was begun goes on: its records are hidden, and nothing brings them back. What is gone is left to the
    caller, who finds it gone.

    Args:
        planned: the rest of a partition's plan.
        now: what would be planned of the partition; None: nothing of it.
        metadata: where its segments are.
        history: the newest one that was followed before `now` was planned.
        waits: why the partition waits to expire now, if it does.
    """
    due = {one.segment_id for one in (() if now is None else now.deletions)}
    doubtful = [
        one for one in planned.deletions if one.reason != DeletionReason.UNFINISHED_DELETE and one.segment_id not in due
    ]
    if doubtful:
        rows = {row.metadata.remote_log_segment_id: row for row in metadata.list_segments(planned.topic_id_partition)}
        doubtful = [one for one in doubtful if _may_stay(rows.get(one.segment_id))]
    kept = set(doubtful)
    return StillPlanned(
        replace(
            planned,
            log_start_offset=min(planned.log_start_offset, 0 if now is None else now.log_start_offset),
            deletions=tuple(one for one in planned.deletions if one not in kept),
        ),
        tuple(doubtful),
        f"{WOULD_STAY}: {waits}" if waits else WOULD_STAY,
        history,
    )


def _may_stay(row: SegmentRow | None) -> bool:
    """Not what is gone, and not what a run began to delete: of a superseded segment nothing was begun yet."""
    return row is not None and (row.metadata.state is not _BEGUN or row.superseded_by is not None)


def withdrawn(
    approved: Iterable[PlannedExpiration], now: ExpirationPlan, metadata: RemoteLogMetadata
) -> list[PlannedDeletion]:
    """Approved deletions of FINISHED segments that are FINISHED still and that `now` does not name, in their order.

    Segments in other states are left to the batch, which looks at each again; one that is gone is nobody's loss.
    """
    due = {deletion.segment_id for planned in now.expirations for deletion in planned.deletions}
    kept: list[PlannedDeletion] = []
    for planned in approved:
        doubtful = [one for one in planned.deletions if one.state is _FINISHED and one.segment_id not in due]
        if doubtful:
            rows = metadata.list_segments(planned.topic_id_partition)
            there = {row.metadata.remote_log_segment_id for row in rows if row.metadata.state is _FINISHED}
            kept += [one for one in doubtful if one.segment_id in there]
    return kept
