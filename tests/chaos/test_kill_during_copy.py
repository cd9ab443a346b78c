"""kill -9 at every named step of a copy: afterwards the work completes and nothing is left over.

The crash table of `copy_segment` is the specification. Each case starts a real process, sees it die by SIGKILL at
the planned point, checks what the table says it leaves, starts another one and checks that all is whole.
"""

from pathlib import Path

import pytest

from include.tiering.app import App, open_app
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentState, Verdict
from include.tiering.settings import load_settings
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


def states(app: App) -> list[RemoteLogSegmentState]:
    return [
        row.metadata.state
        for partition in app.adapters.stores.metadata.partitions()
        for row in app.adapters.stores.metadata.list_segments(partition)
    ]


LEFT_BY_SUPERSEDING = {
    CopyStep.RECHECKED: [FINISHED, STARTED],
    CopyStep.FINISHED: [FINISHED, DELETING],
}


def fail_the_first_segment() -> RemoteLogSegmentId:
    with open_app(load_settings()) as app:
        (row, *_) = [
            row
            for p in app.adapters.stores.metadata.partitions()
            for row in app.adapters.stores.metadata.list_segments(p)
        ]
        app.adapters.stores.metadata.record_verdict(row.metadata.remote_log_segment_id, Verdict.FAILED, detail="Q102")
        return row.metadata.remote_log_segment_id


def expire_at_once() -> None:
    """What is superseded, without a hold."""
    with open_app(load_settings()) as app:
        app.configs.alter(ConfigEntity(EntityType.BROKERS), {"tiering.superseded.hold.ms": "0"}, author="test")
        app.expiration.plan("expire")
        app.expiration.apply_limits("expire")
        app.expiration.run_batch("expire", "expire/0")


@pytest.mark.usefixtures("deployment")
class TestKill:
    @pytest.mark.parametrize("step", LEFT_BY_COPY, ids=str)
    def test_at_a_step_of_the_copy(self, step):
        kill_worker("one", "--kill-at", step)
        with open_app(load_settings()) as app:
            assert states(app) == LEFT_BY_COPY[step]
        assert run_worker("one") == 0
        with open_app(load_settings()) as app:
            require_whole(app)

    @pytest.mark.parametrize("after_bytes", [0, 63_361, 63_400], ids=["log", "indexes", "manifest"])
    def test_in_the_middle_of_an_object(self, after_bytes):
        kill_worker("one", "--kill-after-bytes", str(after_bytes))
        with open_app(load_settings()) as app:
            assert states(app) == [STARTED]
        assert run_worker("one") == 0
        with open_app(load_settings()) as app:
            require_whole(app)

    @pytest.mark.parametrize("step", LEFT_BY_ABANDONING, ids=str)
    def test_at_a_step_of_the_clean_up(self, step):
        kill_worker("one", "--kill-after-bytes", "63361")
        kill_worker("one", "--kill-at", step)
        with open_app(load_settings()) as app:
            assert states(app) == LEFT_BY_ABANDONING[step]
        assert run_worker("one") == 0
        with open_app(load_settings()) as app:
            require_whole(app)

    @pytest.mark.parametrize("step", LEFT_BY_SUPERSEDING, ids=str)
    def test_at_a_step_of_a_copy_that_takes_the_place_of_a_failed_one(self, step):
        assert run_worker("one") == 0
        old = fail_the_first_segment()
        kill_worker("two", "--kill-at", step)
        with open_app(load_settings()) as app:
            first = [
                row
                for p in app.adapters.stores.metadata.partitions()
                for row in app.adapters.stores.metadata.list_segments(p)
            ][:2]
            assert [row.metadata.state for row in first] == LEFT_BY_SUPERSEDING[step]
            assert (app.adapters.stores.metadata.segment(old).superseded_by is None) is (step is not CopyStep.FINISHED)
        assert run_worker("two") == 0
        with open_app(load_settings()) as app:
            for row in app.adapters.stores.metadata.unverified_segments():
                app.adapters.stores.metadata.record_verdict(row.metadata.remote_log_segment_id, Verdict.PASSED)
        expire_at_once()
        with open_app(load_settings()) as app:
            require_whole(app)
            assert app.adapters.stores.metadata.segment(old).metadata.state is GONE
            assert app.adapters.stores.failed_copies.all() == []
