"""kill -9 at every named step of a copy: afterwards the work completes and nothing is left over.

The crash table of `copy_one_segment` is the specification. Each case starts a real process, sees it die by SIGKILL at
the planned point, checks what the table says it leaves, starts another one and checks that all is whole.
"""

from pathlib import Path

import pytest

from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.settings import load_settings
from include.tiering.tasks.copy_one_segment import CopyStep
from include.tiering.wiring import Tiering, open_tiering
from tests.doubles.copied_state import require_whole
from tests.doubles.copy_process import kill_worker, run_worker

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).resolve().parents[2]
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
GONE = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED

LEFT_BY_COPY = {
    CopyStep.OPENED: [],
    CopyStep.CHECKED: [],
    CopyStep.STARTED: [STARTED],
    CopyStep.SENT: [STARTED],
    CopyStep.VERIFIED: [STARTED],
    CopyStep.RECHECKED: [STARTED],
    CopyStep.FINISHED: [FINISHED],
}
LEFT_BY_ABANDONING = {
    CopyStep.DELETE_STARTED: [DELETING],
    CopyStep.OBJECTS_DELETED: [DELETING],
    CopyStep.DELETE_FINISHED: [],
}


def states(tiering: Tiering) -> list[RemoteLogSegmentState]:
    return [
        row.metadata.state
        for partition in tiering.metadata.partitions()
        for row in tiering.metadata.list_segments(partition)
    ]


@pytest.mark.usefixtures("deployment")
class TestKill:
    @pytest.mark.parametrize("step", LEFT_BY_COPY, ids=str)
    def test_at_a_step_of_the_copy(self, step):
        kill_worker("one", "--kill-at", step)
        with open_tiering(load_settings()) as tiering:
            assert states(tiering) == LEFT_BY_COPY[step]
        assert run_worker("one") == 0
        with open_tiering(load_settings()) as tiering:
            require_whole(tiering)

    @pytest.mark.parametrize("after_bytes", [0, 63_361, 63_400], ids=["log", "indexes", "manifest"])
    def test_in_the_middle_of_an_object(self, after_bytes):
        kill_worker("one", "--kill-after-bytes", str(after_bytes))
        with open_tiering(load_settings()) as tiering:
            assert states(tiering) == [STARTED]
        assert run_worker("one") == 0
        with open_tiering(load_settings()) as tiering:
            require_whole(tiering)

    @pytest.mark.parametrize("step", LEFT_BY_ABANDONING, ids=str)
    def test_at_a_step_of_the_clean_up(self, step):
        kill_worker("one", "--kill-at", CopyStep.VERIFIED)
        kill_worker("one", "--kill-at", step)
        with open_tiering(load_settings()) as tiering:
            assert states(tiering) == LEFT_BY_ABANDONING[step]
        assert run_worker("one") == 0
        with open_tiering(load_settings()) as tiering:
            require_whole(tiering)
