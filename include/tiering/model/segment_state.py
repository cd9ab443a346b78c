"""The life of one remote log segment (KIP-405).

    (none) --> COPY_SEGMENT_STARTED --> COPY_SEGMENT_FINISHED
                        |                        |
                        +----------+-------------+
                                   v
                        DELETE_SEGMENT_STARTED --> DELETE_SEGMENT_FINISHED

Staying in a state is legal, so a repeated request is harmless.
"""

from enum import IntEnum


class RemoteLogSegmentState(IntEnum):
    """The value is the id on Kafka's wire."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3

    def may_become(self, target: "RemoteLogSegmentState") -> bool:
        return target is self or target in _EDGES[self]


_EDGES = {
    RemoteLogSegmentState.COPY_SEGMENT_STARTED: {
        RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
    },
    RemoteLogSegmentState.COPY_SEGMENT_FINISHED: {RemoteLogSegmentState.DELETE_SEGMENT_STARTED},
    RemoteLogSegmentState.DELETE_SEGMENT_STARTED: {RemoteLogSegmentState.DELETE_SEGMENT_FINISHED},
    RemoteLogSegmentState.DELETE_SEGMENT_FINISHED: set(),
}


def is_legal_transition(source: RemoteLogSegmentState | None, target: RemoteLogSegmentState) -> bool:
    """`source` None means an id that was never seen: only COPY_SEGMENT_STARTED may follow."""
    if source is None:
        return target is RemoteLogSegmentState.COPY_SEGMENT_STARTED
    return source.may_become(target)
