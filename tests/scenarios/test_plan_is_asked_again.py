"""What nobody would plan now is not deleted, whatever was released: a batch asks again when it takes a partition and
when it comes out of a pause."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from include.tiering.app import App
from include.tiering.errors import ClockDisagreesError
from include.tiering.expiration import delete_segments
from include.tiering.expiration.delete_segments import DeleteStep
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Uuid
from include.tiering.runs.batch import BEAT_SECONDS
from include.tiering.runs.deletion_run import DeletionOutcome
from tests.doubles.archive import EVERYTHING, ORDERS, Archive

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("on_each_database")]


def released(archive: Archive) -> int:
    """How many segments the approved run would delete."""
    with archive.open() as app:
        plan = app.expiration.plan("run")
        app.expiration.apply_limits("run")
        app.expiration.approve("run", plan.plan_hash, author="admin")
        return plan.segments


def deleted(archive: Archive, prepare: Callable[[App], None] = lambda _: None) -> int:
    with archive.open() as app:
        prepare(app)
        return len(app.expiration.run_batch("run", "run/0").deleted)


def outcomes(archive: Archive) -> list[tuple[DeletionOutcome, str | None]]:
    with archive.open() as app:
        return [(item.outcome, item.message) for item in app.adapters.stores.deletions.items("run")]


def log_starts(archive: Archive) -> set[int]:
    with archive.open() as app:
        return {
            app.adapters.stores.metadata.retention_state(one).log_start_offset
            for one in app.adapters.stores.metadata.partitions()
        }


def retention_is_mended(archive: Archive) -> None:
    archive.set(retention_ms=-1, retention_bytes=None)


def topic_is_not_to_expire(archive: Archive) -> None:
    with archive.open() as app:
        (topic_id,) = {one.topic_id for one in app.adapters.stores.metadata.partitions()}
        app.adapters.stores.registry.set_owner(
            topic_id, ORDERS, TopicOwner.HANDING_OVER, expected=TopicOwner.PLATFORM, author="test"
        )


def name_has_another_holder(archive: Archive) -> None:
    """Another topic of the name is ours, too, and nothing says which of the two has the name now."""
    with archive.open() as app:
        other = Uuid(bytes(range(16)))
        app.adapters.stores.registry.set_owner(
            other, ORDERS, TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="test"
        )
    archive.lose_log_dirs()


@pytest.mark.parametrize("mend", [retention_is_mended, topic_is_not_to_expire, name_has_another_holder])
def test_between_the_release_and_the_batch(archive: Archive, mend: Callable[[Archive], None]) -> None:
    archive.set(retention_ms=1)
    segments = released(archive)
    assert segments > 0
    mend(archive)
    assert deleted(archive) == 0
    assert archive.left() == EVERYTHING
    assert log_starts(archive) == {0}
    assert {outcome for outcome, _ in outcomes(archive)} == {DeletionOutcome.SKIPPED}


def test_the_outcome_says_why(archive: Archive) -> None:
    archive.set(retention_ms=1)
    released(archive)
    retention_is_mended(archive)
    deleted(archive)
    assert {message for _, message in outcomes(archive)} == {"it stays by the settings that hold now"}


def test_the_outcome_names_what_the_partition_waits_for(archive: Archive) -> None:
    archive.set(retention_ms=1)
    released(archive)
    name_has_another_holder(archive)
    deleted(archive)
    (message,) = {message for _, message in outcomes(archive)}
    assert message is not None
    assert message.startswith("it stays by the settings that hold now: ")
    assert "keeps all: " in message
    assert "the cluster does not say now whose it is" in message


def test_a_retention_that_is_mended_in_a_pause(archive: Archive) -> None:
    """Pause, mend, resume: what the runbook offers against a wrong retention at work."""
    archive.set(retention_ms=1)
    released(archive)
    with archive.open() as app:
        app.adapters.stores.work.pause(None, author="me")
    done: list[int] = []
    batch = threading.Thread(target=lambda: done.append(deleted(archive)))
    batch.start()
    time.sleep(1.0)
    retention_is_mended(archive)
    with archive.open() as app:
        app.adapters.stores.work.resume(None, author="me")
    batch.join(60)
    assert done == [0]
    assert archive.left() == EVERYTHING


def test_a_retention_that_is_mended_in_a_pause_between_two_groups(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What went is gone; nothing else goes, and the log start stays just behind what went."""
    monkeypatch.setattr(delete_segments.DeleteBatch.__init__, "__kwdefaults__", {"segments_per_group": 1})
    archive.set(retention_ms=1)
    released(archive)

    def pause_and_mend() -> None:
        with archive.open() as other:
            other.adapters.stores.work.pause(None, author="me")
        time.sleep(3 * BEAT_SECONDS)
        retention_is_mended(archive)
        with archive.open() as other:
            other.adapters.stores.work.resume(None, author="me")

    once: list[Callable[[], None]] = [pause_and_mend]

    def prepare(app: App) -> None:
        def observe(step: Any, *_: Any) -> None:
            if step is DeleteStep.RECORDED and once:
                once.pop()()

        app.adapters.observe = observe

    assert deleted(archive, prepare) == 1
    assert archive.left() == {0: EVERYTHING[0][1:], 1: EVERYTHING[1]}
    assert log_starts(archive) == {0, EVERYTHING[0][1]}
    archive.require_served()


def test_a_longer_retention_leaves_what_is_within_it(archive: Archive) -> None:
    archive.set(retention_bytes=0)
    assert released(archive) == 10
    archive.set(retention_bytes=100_000)
    assert 0 < deleted(archive) < 10
    assert archive.left()[0] == [282, 664, 808]
    assert archive.expire()[0].items == []


def test_a_right_plan_by_size_goes_on_where_no_log_dir_can_be_reached(archive: Archive) -> None:
    """Local bytes are those of the plan: a worker elsewhere that sees no log dir deletes what was planned."""
    archive.set(retention_bytes=100_000)
    segments = released(archive)
    with archive.open() as app:
        assert all(one.local_bytes for one in app.adapters.stores.deletions.plan("run"))
    archive.lose_log_dirs()
    assert deleted(archive) == segments > 0


def test_what_was_copied_since_is_not_counted_twice(tmp_path: Path) -> None:
    """Bytes that were local when it was planned are remote now: the same plan holds, and a retention that grew counts
    in full."""
    archive = Archive.of(tmp_path)
    archive.copy(limit_bytes=300_000)
    archive.set(retention_bytes=100_000)
    released(archive)
    archive.copy()

    def still() -> int:
        with archive.open() as app:
            return sum(
                len(app.expiration._still_planned(app.expiration._clocks(), one).planned.deletions)
                for one in app.adapters.stores.deletions.plan("run")
            )

    with archive.open() as app:
        planned = sum(len(one.deletions) for one in app.adapters.stores.deletions.plan("run"))
    assert still() == planned > 0
    archive.set(retention_bytes=250_000)
    assert still() == 0


def test_a_topic_whose_deletion_was_taken_back(archive: Archive) -> None:
    archive.set_default(tiering_on_topic_delete="expire:1d")
    with archive.open() as app:
        (topic_id,) = {one.topic_id for one in app.adapters.stores.metadata.partitions()}
    archive.delete_topic()
    with archive.open() as app:
        app.topic_lifecycle.note_deletions()
        with app.adapters.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE topics SET deletion_seen_at_ms = 1")
    assert released(archive) == 10
    with archive.open() as app:
        app.adapters.stores.topic_deletions.withdraw(topic_id, evidence="it is there", author="test")
    assert deleted(archive, lambda app: setattr(app.topic_lifecycle, "note_deletions", lambda: None)) == 0
    assert archive.left() == EVERYTHING


def test_a_deleted_topic_goes_where_the_cluster_cannot_be_asked(archive: Archive) -> None:
    """The plan asked: a worker that reaches no metadata log need not ask again, but for what people changed."""
    archive.set_default(tiering_on_topic_delete="expire:1d")
    archive.delete_topic()
    with archive.open() as app:
        app.topic_lifecycle.note_deletions()
        with app.adapters.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE topics SET deletion_seen_at_ms = 1")
    assert released(archive) == 10
    archive.lose_log_dirs()
    assert deleted(archive) == 10


def test_a_topic_whose_deletion_is_to_be_kept_by_now(archive: Archive) -> None:
    archive.set_default(tiering_on_topic_delete="expire:1d")
    archive.delete_topic()
    with archive.open() as app:
        app.topic_lifecycle.note_deletions()
        with app.adapters.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE topics SET deletion_seen_at_ms = 1")
    released(archive)
    archive.set_default(tiering_on_topic_delete="keep")
    assert deleted(archive) == 0
    assert archive.left() == EVERYTHING


def test_a_plan_of_a_wrong_clock_does_not_outlive_its_correction(archive: Archive) -> None:
    """Nothing could be compared with the clock when it was planned; by now the clock is right again."""
    year_ms = 365 * 24 * 3600 * 1000
    archive.set(retention_ms=10 * year_ms)
    archive.set_default(tiering_clock_max_difference_ms=13 * year_ms)
    with archive.open() as app:
        deletions: Any = app.adapters.stores.deletions
        right = deletions._now_ms
        deletions._now_ms = lambda connection: right(connection) + 12 * year_ms
        plan = app.expiration.plan("run")
        assert plan.segments == 10
        app.expiration.approve("run", plan.plan_hash, author="admin")
        dated_ms = app.adapters.stores.deletions.now_ms()
    with pytest.raises(ClockDisagreesError, match="the time of the newest event in it"):
        deleted(archive)
    archive.set_default(tiering_clock_ignored_until_ms=dated_ms)
    assert deleted(archive) == 0
    assert archive.left() == EVERYTHING
