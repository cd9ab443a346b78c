"""The source changes while a segment is copied: never FINISHED with the wrong bytes, whatever changed and when."""

import shutil
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from include.tiering.app import App, open_app
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.model.segments import TopicIdPartition
from include.tiering.settings import load_settings
from tests.doubles.copied_state import fetched
from tests.doubles.copy_process import kill_worker, run_worker

pytestmark = pytest.mark.chaos

MIDDLE = 118
OTHER_TOPIC_ID = "AQIDBAUGBwgJCgsMDQ4PEA"


def delete_segment(log_dir: Path) -> None:
    """Retention: renamed first, removed later."""
    for file in (log_dir / "normal-0").glob(f"{MIDDLE:020d}.*"):
        file.rename(file.with_name(f"{file.name}.deleted"))


def truncate(log_dir: Path) -> None:
    """A leader change took the log back into the segment, which is the active one again."""
    for file in (log_dir / "normal-0").glob(f"{246:020d}.*"):
        file.unlink()
    with (log_dir / "normal-0" / f"{MIDDLE:020d}.log").open("r+b") as log:
        log.truncate(20_000)


def recreate_topic(log_dir: Path) -> None:
    """Same name, another topic id, and other bytes under the same base offsets."""
    partition = log_dir / "normal-0"
    partition.rename(log_dir / "normal-0.0123456789abcdef0123456789abcdef-delete")
    shutil.copytree(log_dir / "prealloc-0", partition)
    (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_TOPIC_ID}")


def swap_directory(log_dir: Path) -> None:
    """Other files behind the same names, the topic id the same."""
    partition = log_dir / "normal-0"
    old = log_dir / "old"
    partition.rename(old)
    shutil.copytree(log_dir / "prealloc-0", partition)
    shutil.copy(old / "partition.metadata", partition)
    shutil.rmtree(old)


def change_epochs(log_dir: Path) -> None:
    """The history up to the segment's end is another one now."""
    (log_dir / "normal-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 150\n")


CHANGES = [delete_segment, truncate, recreate_topic, swap_directory, change_epochs]
Change = Callable[[Path], None]


@pytest.fixture
def original(log_dir: Path) -> bytes:
    return (log_dir / "normal-0" / f"{MIDDLE:020d}.log").read_bytes()


def finished_copies(app: App) -> dict[tuple[str, int], bytes]:
    """Stored record bytes of every FINISHED segment, by topic id and start offset."""
    return {
        (str(partition.topic_id), row.metadata.start_offset): fetched(app, row.metadata)
        for partition in app.adapters.stores.metadata.partitions()
        for row in app.adapters.stores.metadata.list_segments(partition)
        if row.metadata.is_finished
    }


def require_not_finished_wrongly(app: App, topic_id: str, original: bytes, *, may_stay: Collection[int] = ()) -> None:
    """Only copies that were begun at these offsets may be neither finished nor gone."""
    assert finished_copies(app).get((topic_id, MIDDLE), original) == original
    for partition in app.adapters.stores.metadata.partitions():
        rows = [row.metadata for row in app.adapters.stores.metadata.list_segments(partition)]
        assert all(row.is_finished or row.start_offset in may_stay for row in rows)


def topic_id_of(log_dir: Path) -> str:
    return (log_dir / "normal-0" / "partition.metadata").read_text().split()[-1]


@pytest.mark.usefixtures("deployment")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
class TestChange:
    @pytest.mark.parametrize("step", [CopyStep.STARTED, CopyStep.VERIFIED], ids=str)
    def test_while_the_segment_is_copied(self, change: Change, step, log_dir, original):
        topic_id = topic_id_of(log_dir)

        def change_at(reached: CopyStep, _partition: TopicIdPartition, base_offset: int) -> None:
            if (reached, base_offset) == (step, MIDDLE):
                change(log_dir)

        with open_app(load_settings(), observe=change_at) as app:
            app.set_up.migrate()
            app.copying.plan("one")
            result = app.copying.run_batch("one", "one/0")
            assert [failure.item.segment.base_offset for failure in result.failed] == [MIDDLE]
            assert (topic_id, MIDDLE) not in finished_copies(app)
            # What the source has no longer may be whole in the store: the next copy run settles it.
            may_stay = [MIDDLE] if change is delete_segment else []
            require_not_finished_wrongly(app, topic_id, original, may_stay=may_stay)

    def test_while_the_worker_is_dead(self, change: Change, log_dir, original):
        topic_id = topic_id_of(log_dir)
        kill_worker("one", "--kill-at", CopyStep.RECHECKED, "--base-offset", str(MIDDLE))
        change(log_dir)
        assert run_worker("one") == 0
        with open_app(load_settings()) as app:
            # A whole copy, which may be all that is left of what the source had.
            require_not_finished_wrongly(app, topic_id, original, may_stay=[MIDDLE])


@pytest.mark.usefixtures("deployment")
def test_epochs_that_contradict_the_batches_are_refused(log_dir):
    change_epochs(log_dir)
    with open_app(load_settings()) as app:
        app.set_up.migrate()
        app.copying.plan("one")
        (failure,) = app.copying.run_batch("one", "one/0").failed
        assert failure.item.segment.base_offset == MIDDLE
        assert "leader epoch 0" in str(failure.item.message)
        assert [start for _, start in finished_copies(app)] == [0]
