"""kill -9 at every named step of a removal: in the end every orphan is gone, and nothing else was touched.

The crash table of `remove_orphans` is the specification. Each case starts a real process, sees it die by SIGKILL at the
planned point, checks what the table says it leaves, and goes on: with the same run, or with another audit.
"""

import pytest

from include.tiering.app import App, open_app
from include.tiering.audit.plan_removals import RemovalOutcome
from include.tiering.audit.remove_orphans import RemovalStep
from include.tiering.settings import load_settings
from tests.doubles.copy_process import kill_worker, run_worker
from tests.doubles.removal_worker import ORPHANS, approve

pytestmark = pytest.mark.chaos

WORKER = "removal_worker"
MARKER = "_tiering-store.json"
OBJECTS = 2 * ORPHANS


def known_keys(app: App) -> set[str]:
    rows = [
        row
        for partition in app.adapters.stores.metadata.partitions()
        for row in app.adapters.stores.metadata.list_segments(partition)
    ]
    return {stored.key for row in rows for stored in app.adapters.storage.stat_log_segment(row.metadata)}


def orphans(app: App) -> set[str]:
    return {key for key, _ in app.adapters.storage.list_objects()} - {MARKER} - known_keys(app)


def require_whole(app: App) -> None:
    """Three objects for each segment, and not one without metadata."""
    segments = sum(
        len(app.adapters.stores.metadata.list_segments(partition))
        for partition in app.adapters.stores.metadata.partitions()
    )
    assert len(known_keys(app)) == 3 * segments > 0
    assert orphans(app) == set()


@pytest.fixture(autouse=True)
def _no_age_guard(deployment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERING_AUDIT__MIN__AGE__MS", "0")


class TestKill:
    @pytest.mark.parametrize("storage", ["file"], indirect=True)
    @pytest.mark.parametrize("step", RemovalStep, ids=str)
    def test_at_a_step_the_same_run_goes_on(self, step):
        kill_worker("one", "--kill-at", step, worker=WORKER)
        with open_app(load_settings()) as app:
            is_gone = step in (RemovalStep.REMOVED, RemovalStep.RECORDED)
            assert len(orphans(app)) == (0 if is_gone else OBJECTS)
            assert app.adapters.stores.removals.has_work("one") is (step is not RemovalStep.RECORDED)
        assert run_worker("one", worker=WORKER) == 0
        with open_app(load_settings()) as app:
            require_whole(app)
            outcomes = {item.outcome for item in app.adapters.stores.removals.items("one")}
            assert outcomes <= {RemovalOutcome.REMOVED, RemovalOutcome.GONE}

    def test_in_the_middle_of_the_objects_another_audit_goes_on(self):
        """The first run is never started again; its ids are marked for deletion, its lease runs out."""
        kill_worker("one", "--kill-after-objects", "3", worker=WORKER)
        with open_app(load_settings()) as app:
            assert len(orphans(app)) == OBJECTS - 3
            lease = app.adapters.stores.removals.claim("one", "one-batch", lease_ms=600_000)
            assert lease is not None
            app.adapters.stores.work.release(lease)
            approve(app, "two")
            assert len(app.audit.run_removal_batch("two", "two/0").of(RemovalOutcome.REMOVED)) == OBJECTS - 3
            require_whole(app)
            assert app.audit.run("three").findings == ()
