"""Many segments of one partition a step further in their deletion, in one transaction of the caller.

What a crash leaves is what `sql_changes` says: the whole step or nothing of it; repeating it is harmless.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, select, update

from include.tiering.database.clock import NowMs
from include.tiering.database.fencing import hold_fence
from include.tiering.database.partition_rows import in_partition, key_of, lock_partition
from include.tiering.database.schema import segments as rows
from include.tiering.errors import IllegalTransitionError, StateConflictError
from include.tiering.model.fence import Fence
from include.tiering.model.ids import RemoteLogSegmentId
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.segment_origin import SegmentOrigin
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.model.verdict import Verdict
from include.tiering.segments.sql_changes import TIME_OF_STATE, require_same_partition
from include.tiering.segments.sql_counters import count_in, count_out
from include.tiering.segments.sql_stops import refresh_stop

_DELETION: Final = (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_IDS_PER_STATEMENT: Final = 500
_AMONG: Final = (in_partition(rows), rows.c.segment_id.in_(bindparam("of_segments", expanding=True)))
_FIND: Final = select(rows.c.segment_id, rows.c.state, rows.c.verdict, rows.c.superseded_by, rows.c.origin).where(
    *_AMONG
)
_COMPARE_AND_SET: Final = update(rows).where(*_AMONG, rows.c.state == bindparam("of_state"))


def advance_deletion(
    connection: Connection,
    cluster_id: str,
    segments: Sequence[RemoteLogSegmentMetadata],
    state: RemoteLogSegmentState,
    *,
    event_timestamp_ms: int,
    fence: Fence,
    now_ms: NowMs,
) -> Sequence[RemoteLogSegmentMetadata]:
    """See `RemoteLogMetadata.advance_deletion`."""
    for segment in segments:
        require_same_partition(segment.remote_log_segment_id, fence)
        if state not in _DELETION or not segment.state.may_become(state):
            raise IllegalTransitionError(
                f"{segment.remote_log_segment_id}: {segment.state.name} may not become {state.name} by a deletion"
            )
    hold_fence(connection, cluster_id, fence)
    lock_partition(connection, cluster_id, fence.topic_id_partition)
    found = _found(connection, cluster_id, segments)
    there = [one for one in segments if _is_as_given(one, found.get(one.remote_log_segment_id), state)]
    changing = [one for one in there if found[one.remote_log_segment_id].state is not state]
    advanced = [replace(one, state=state, event_timestamp_ms=event_timestamp_ms) for one in changing]
    if changing:
        values = {
            "state": int(state),
            "event_timestamp_ms": event_timestamp_ms,
            "fencing_token": fence.token,
            TIME_OF_STATE[state]: now_ms(connection),
        }
        _write(connection, cluster_id, changing, values)
        count_out(connection, cluster_id, *changing)
        count_in(connection, cluster_id, *advanced)
        if any(found[one.remote_log_segment_id].verdict is Verdict.FAILED for one in changing):
            refresh_stop(connection, cluster_id, fence.topic_id_partition)
    return [replace(one, state=state, event_timestamp_ms=event_timestamp_ms) for one in there]


class _Found(NamedTuple):
    state: RemoteLogSegmentState
    verdict: Verdict
    is_superseded: bool
    is_ours: bool


def _is_as_given(segment: RemoteLogSegmentMetadata, found: _Found | None, target: RemoteLogSegmentState) -> bool:
    """Whether it is where it was given, or there already: but the deletion that a new copy began is another one, and
    what a broker began is the broker's."""
    if found is None or not found.is_ours or found.state not in (segment.state, target):
        return False
    return not (segment.is_finished and found.is_superseded)


def _found(
    connection: Connection, cluster_id: str, segments: Iterable[RemoteLogSegmentMetadata]
) -> dict[RemoteLogSegmentId, _Found]:
    found = {}
    for group in _groups(segments):
        ids = {str(one.remote_log_segment_id.id): one.remote_log_segment_id for one in group}
        key = key_of(cluster_id, group[0].topic_id_partition) | {"of_segments": list(ids)}
        for row in connection.execute(_FIND, key):
            state, verdict = RemoteLogSegmentState(row.state), Verdict(row.verdict)
            found[ids[row.segment_id]] = _Found(
                state, verdict, row.superseded_by is not None, row.origin == SegmentOrigin.PLATFORM
            )
    return found


def _write(
    connection: Connection, cluster_id: str, segments: Sequence[RemoteLogSegmentMetadata], values: dict[str, int]
) -> None:
    by_state = defaultdict(list)
    for segment in segments:
        by_state[segment.state].append(segment)
    for state, of_state in by_state.items():
        for group in _groups(of_state):
            ids = [str(one.remote_log_segment_id.id) for one in group]
            partition = group[0].topic_id_partition
            key = key_of(cluster_id, partition) | {"of_segments": ids, "of_state": int(state)}
            if connection.execute(_COMPARE_AND_SET, key | values).rowcount != len(ids):
                raise StateConflictError(f"{partition}: some of {len(ids)} segments are no longer {state.name}")


def _groups(segments: Iterable[RemoteLogSegmentMetadata]) -> Iterator[list[RemoteLogSegmentMetadata]]:
    left = iter(segments)
    while group := list(islice(left, _IDS_PER_STATEMENT)):
        yield group
