"""kill -9 at every named step of a copy: afterwards the work completes and nothing is left over.

The crash table of `copy_one_segment` is the specification. Each case starts a real process, sees it die by SIGKILL at
the planned point, checks what the table says it leaves, starts another one and checks that all is whole.
"""

from pathlib import Path

import pytest

from include.tiering.model.ids import RemoteLogSegmentId
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.model.verdict import Verdict
from include.tiering.quota.config_store import ConfigEntity, EntityType
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


LEFT_BY_SUPERSEDING = {
    CopyStep.RECHECKED: [FINISHED, STARTED],
    CopyStep.FINISHED: [FINISHED, DELETING],
}


def fail_the_first_segment() -> RemoteLogSegmentId:
    with open_tiering(load_settings()) as tiering:
        (row, *_) = [row for p in tiering.metadata.partitions() for row in tiering.metadata.list_segments(p)]
        tiering.metadata.record_verdict(row.metadata.remote_log_segment_id, Verdict.FAILED, detail="Q102")
        return row.metadata.remote_log_segment_id


def expire_at_once() -> None:
    """What is superseded, without a hold."""
    with open_tiering(load_settings()) as tiering:
        tiering.alter_configs(ConfigEntity(EntityType.BROKERS), {"tiering.superseded.hold.ms": "0"}, author="test")
        tiering.plan_expiration("expire")
        tiering.brake("expire")
        tiering.delete_batch("expire", "expire/0")


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
        kill_worker("one", "--kill-after-bytes", "63361")
        kill_worker("one", "--kill-at", step)
        with open_tiering(load_settings()) as tiering:
            assert states(tiering) == LEFT_BY_ABANDONING[step]
        assert run_worker("one") == 0
        with open_tiering(load_settings()) as tiering:
            require_whole(tiering)

    @pytest.mark.parametrize("step", LEFT_BY_SUPERSEDING, ids=str)
    def test_at_a_step_of_a_copy_that_takes_the_place_of_a_failed_one(self, step):
        assert run_worker("one") == 0
        old = fail_the_first_segment()
        kill_worker("two", "--kill-at", step)
        with open_tiering(load_settings()) as tiering:
            first = [row for p in tiering.metadata.partitions() for row in tiering.metadata.list_segments(p)][:2]
            assert [row.metadata.state for row in first] == LEFT_BY_SUPERSEDING[step]
            assert (tiering.metadata.segment(old).superseded_by is None) is (step is not CopyStep.FINISHED)
        assert run_worker("two") == 0
        with open_tiering(load_settings()) as tiering:
            for row in tiering.metadata.unjudged_segments():
                tiering.metadata.record_verdict(row.metadata.remote_log_segment_id, Verdict.PASSED)
        expire_at_once()
        with open_tiering(load_settings()) as tiering:
            require_whole(tiering)
            assert tiering.metadata.segment(old).metadata.state is GONE
            assert tiering.failed_copies.all() == []
