"""kill -9 at every named step of a deletion: in the end no row without object, no object without row.

The crash table of `delete_segments` is the specification. Each case starts a real process, sees it die by SIGKILL at
the planned point, checks what the table says it leaves, starts another one and checks that all is gone.
"""

import pytest

from include.tiering.app import App, open_app
from include.tiering.expiration.delete_segments import DeleteStep
from include.tiering.model.segments import RemoteLogSegmentState
from include.tiering.runs.deletion_run import DeletionOutcome
from include.tiering.settings import load_settings
from tests.doubles.copy_process import kill_worker, run_worker

pytestmark = pytest.mark.chaos

WORKER = "delete_worker"
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
MARKER = "_tiering-store.json"

LEFT = {
    DeleteStep.LOG_START: FINISHED,
    DeleteStep.DELETE_STARTED: DELETING,
    DeleteStep.OBJECTS_DELETED: DELETING,
    DeleteStep.DELETE_FINISHED: None,
    DeleteStep.RECORDED: None,
}
NO_OBJECTS = (DeleteStep.OBJECTS_DELETED, DeleteStep.DELETE_FINISHED, DeleteStep.RECORDED)


def states(app: App) -> set[RemoteLogSegmentState]:
    return {
        row.metadata.state
        for partition in app.adapters.stores.metadata.partitions()
        for row in app.adapters.stores.metadata.list_segments(partition)
    }


def keys(app: App) -> set[str]:
    return {key for key, _ in app.adapters.storage.list_objects()} - {MARKER}


def require_gone(run_id: str) -> None:
    with open_app(load_settings()) as app:
        assert app.adapters.stores.metadata.partitions() == []
        assert keys(app) == set()
        assert {item.outcome for item in app.adapters.stores.deletions.items(run_id)} == {DeletionOutcome.DELETED}
        assert app.sizes.partition_sizes() == []


@pytest.mark.usefixtures("deployment")
class TestKill:
    @pytest.mark.parametrize("step", LEFT, ids=str)
    def test_at_a_step(self, step):
        kill_worker("one", "--kill-at", step, worker=WORKER)
        with open_app(load_settings()) as app:
            assert states(app) == ({LEFT[step]} if LEFT[step] is not None else set())
            assert bool(keys(app)) is (step not in NO_OBJECTS)
        assert run_worker("one", worker=WORKER) == 0
        require_gone("one")

    def test_in_the_middle_of_the_objects(self):
        kill_worker("one", "--kill-after-segments", "1", worker=WORKER)
        with open_app(load_settings()) as app:
            assert states(app) == {DELETING}
            rows = [
                row
                for p in app.adapters.stores.metadata.partitions()
                for row in app.adapters.stores.metadata.list_segments(p)
            ]
            assert len(keys(app)) == 3 * (len(rows) - 1) > 0
        assert run_worker("one", worker=WORKER) == 0
        require_gone("one")

    def test_another_run_takes_up_what_a_dead_one_began(self):
        kill_worker("one", "--kill-at", DeleteStep.DELETE_STARTED, worker=WORKER)
        with open_app(load_settings()) as app:
            plan = app.expiration.plan("two")
            assert {d.reason for one in plan.expirations for d in one.deletions} == {"unfinished delete"}
            assert not app.expiration.apply_limits("two").needs_approval
            app.adapters.stores.work.release(_lease_of(app))
            assert len(app.expiration.run_batch("two", "two/0").deleted) == plan.segments > 0
        require_gone("two")


def _lease_of(app: App):
    """The dead batch claims again what is its own."""
    lease = app.adapters.stores.deletions.claim("one", "one-batch", lease_ms=600_000)
    assert lease is not None
    return lease
