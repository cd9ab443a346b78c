"""kill -9 at every named step of a rebuild, one after another: in the end the metadata are whole, and nobody used them
before. The crash table of `recovery/rebuild.py` is the specification.
"""

import pytest

from include.tiering.app import open_app
from include.tiering.errors import ForeignStoreError, MetadataUnavailableError
from include.tiering.recovery.rebuild import RebuildStep
from include.tiering.settings import load_settings
from tests.doubles.copy_process import kill_worker, run_worker

pytestmark = pytest.mark.chaos

WORKER = "rebuild_worker"


@pytest.mark.usefixtures("deployment")
def test_killed_at_each_step_in_turn_it_comes_to_its_end(tmp_path, monkeypatch) -> None:
    lost = load_settings()
    with open_app(lost) as app:
        app.set_up.migrate()
        app.copying.plan("run-1")
        assert app.copying.run_batch("run-1", "run-1/0").copied
        sizes = app.sizes.partition_sizes()
        objects = set(app.adapters.storage.list_objects())
    monkeypatch.setenv("TIERING_METADATA__URL", f"sqlite:///{tmp_path}/new.sqlite")
    for step in RebuildStep:
        kill_worker("one", "--kill-at", step, worker=WORKER)
        with open_app(lost) as old:
            if step is RebuildStep.BEGUN:
                old.adapters.storage.check_writable()
            else:
                with pytest.raises(ForeignStoreError):
                    old.adapters.storage.check_writable()
        if step is not RebuildStep.FINISHED:
            with open_app(load_settings()) as half, pytest.raises(MetadataUnavailableError, match="rebuild"):
                half.sizes.partition_sizes()
    assert run_worker("one", worker=WORKER) != 0
    with open_app(load_settings()) as app:
        assert app.sizes.partition_sizes() == sizes
        assert {key for key, _ in app.adapters.storage.list_objects()} == {key for key, _ in objects}
        app.adapters.storage.check_writable()
