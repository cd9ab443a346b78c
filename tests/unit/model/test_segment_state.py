"""Every legal and illegal edge of the state machine."""

from itertools import product

import pytest

from include.tiering.model.segments import RemoteLogSegmentState, is_legal_transition

STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = RemoteLogSegmentState

LEGAL = {
    (None, STARTED),
    (STARTED, FINISHED),
    (STARTED, DELETE_STARTED),
    (FINISHED, DELETE_STARTED),
    (DELETE_STARTED, DELETE_FINISHED),
    *((state, state) for state in RemoteLogSegmentState),
}


@pytest.mark.parametrize(("source", "target"), list(product([None, *RemoteLogSegmentState], RemoteLogSegmentState)))
def test_edge(source: RemoteLogSegmentState | None, target: RemoteLogSegmentState):
    assert is_legal_transition(source, target) is ((source, target) in LEGAL)


def test_values_are_those_of_the_wire():
    assert [(state.name, state.value) for state in RemoteLogSegmentState] == [
        ("COPY_SEGMENT_STARTED", 0),
        ("COPY_SEGMENT_FINISHED", 1),
        ("DELETE_SEGMENT_STARTED", 2),
        ("DELETE_SEGMENT_FINISHED", 3),
    ]
