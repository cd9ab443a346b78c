"""Whether what was approved is still to be deleted: an approval may come hours after the plan that it is for.

Meanwhile more may have expired, which is not part of the plan and waits for the next one. What matters is the other
direction: a segment that would stay by the log start, leader epochs and retention of now must not go because somebody
looked at yesterday's.
"""

from collections.abc import Iterable

from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.remote_metadata.contract import RemoteLogMetadata
from include.tiering.tasks.plan_expiration import ExpirationPlan
from include.tiering.work.deletion_contract import PlannedDeletion, PlannedExpiration

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


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
