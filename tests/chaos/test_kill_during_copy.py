"""Kills and changes of the source while segments are copied."""

import shutil
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from include.tiering.app import App, open_app
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentState, TopicIdPartition, Verdict
from include.tiering.settings import load_settings
from tests.doubles.copied_state import fetched, require_whole
from tests.doubles.copy_process import kill_worker, run_worker
from tests.doubles.patience import PATIENCE_SECONDS

# kill -9 at every named step of a copy: afterwards the work completes and nothing is left over. The crash table of
# `copy_segment` is the specification. Each case starts a real process, sees it die by SIGKILL at the planned point,
# checks what the table says it leaves, starts another one and checks that all is whole.

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


ANY_OFFSET = "-1"


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

    @pytest.mark.parametrize("held_at", [CopyStep.OPENED, CopyStep.STARTED, CopyStep.VERIFIED], ids=str)
    @pytest.mark.parametrize("step", [CopyStep.STARTED, CopyStep.SENT, CopyStep.VERIFIED], ids=str)
    def test_with_several_transfers_in_flight(self, step, held_at, monkeypatch):
        """The first segment has come to one step, a later one to another: nothing is FINISHED; then all is, once."""
        monkeypatch.setenv("TIERING_COPIER__MAX__TRANSFERS", "4")
        with open_app(load_settings()) as app:
            app.set_up.migrate()
            plan = app.copying.plan("one")
        later = plan.partitions[0].segments[-1].base_offset
        kill_worker("one", "--hold-at", held_at, "--kill-at", step, "--base-offset", str(later))
        with open_app(load_settings()) as app:
            left = states(app)
            assert left
            assert set(left) == {STARTED}
            (partition,) = app.adapters.stores.metadata.partitions()
            assert app.adapters.stores.metadata.highest_copied_offset(partition) is None
        assert run_worker("one") == 0
        with open_app(load_settings()) as app:
            require_whole(app)

    @pytest.mark.parametrize("step", [CopyStep.RECHECKED, CopyStep.FINISHED], ids=str)
    def test_at_the_turn_of_one_of_several_transfers(self, step, monkeypatch):
        """Whatever the others have come to: what is FINISHED begins with the first segment and has no gap."""
        monkeypatch.setenv("TIERING_COPIER__MAX__TRANSFERS", "4")
        kill_worker("one", "--kill-at", step, "--base-offset", str(MIDDLE))
        with open_app(load_settings()) as app:
            finished = [start for _, start in finished_copies(app)]
            assert finished == ([0, MIDDLE] if step is CopyStep.FINISHED else [0])
            assert set(states(app)) <= {FINISHED, STARTED}
        assert run_worker("one") == 0
        with open_app(load_settings()) as app:
            require_whole(app)

    @pytest.mark.parametrize("step", [CopyStep.OPENED, CopyStep.CHECKED], ids=str)
    def test_before_a_later_transfer_has_begun(self, step, monkeypatch):
        """The first segment is stored meanwhile and waits for nothing: at most it is FINISHED."""
        monkeypatch.setenv("TIERING_COPIER__MAX__TRANSFERS", "4")
        kill_worker("one", "--kill-at", step, "--base-offset", str(MIDDLE))
        with open_app(load_settings()) as app:
            assert [start for _, start in finished_copies(app)] in ([], [0])
            assert set(states(app)) <= {FINISHED, STARTED}
        assert run_worker("one") == 0
        with open_app(load_settings()) as app:
            require_whole(app)

    @pytest.mark.parametrize("after_bytes", [63_361, 90_000], ids=["in the first", "in two"])
    @pytest.mark.parametrize("step", LEFT_BY_ABANDONING, ids=str)
    def test_at_a_step_of_the_clean_up_of_several_transfers(self, step, after_bytes, monkeypatch):
        """Each of the segments that were in flight is finished, or taken back, by whoever comes after both kills."""
        monkeypatch.setenv("TIERING_COPIER__MAX__TRANSFERS", "4")
        kill_worker("one", "--kill-after-bytes", str(after_bytes))
        kill_worker("one", "--kill-at", step, "--base-offset", ANY_OFFSET)
        with open_app(load_settings()) as app:
            assert set(states(app)) <= {FINISHED, STARTED, DELETING}
            finished = [start for _, start in finished_copies(app)]
            assert finished == [0, MIDDLE][: len(finished)]
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


# The source changes while a segment is copied: never FINISHED with the wrong bytes, whatever changed and when.

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

    @pytest.mark.parametrize("step", [CopyStep.STARTED, CopyStep.SENT, CopyStep.VERIFIED], ids=str)
    def test_while_all_segments_are_in_flight(self, change: Change, step, log_dir, original, monkeypatch):
        """The one before it becomes FINISHED or not; it does not, and a later batch finishes no wrong bytes either."""
        monkeypatch.setenv("TIERING_COPIER__MAX__TRANSFERS", "4")
        topic_id = topic_id_of(log_dir)
        all_in_flight = threading.Barrier(2)

        def change_at(reached: CopyStep, _partition: TopicIdPartition, base_offset: int) -> None:
            if reached is CopyStep.STARTED:
                all_in_flight.wait(PATIENCE_SECONDS)
            if (reached, base_offset) == (step, MIDDLE):
                change(log_dir)

        with open_app(load_settings(), observe=change_at) as app:
            app.set_up.migrate()
            (partition,) = app.copying.plan("one").partitions
            assert [segment.base_offset for segment in partition.segments] == [0, MIDDLE]
            app.copying.run_batch("one", "one/0")
            assert [start for topic, start in finished_copies(app) if topic == topic_id] in ([], [0])
        with open_app(load_settings()) as app:
            app.copying.run_batch("one", "one/1")
            require_not_finished_wrongly(app, topic_id, original, may_stay=[0, MIDDLE])

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
