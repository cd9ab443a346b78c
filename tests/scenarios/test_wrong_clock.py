"""A clock that is years ahead makes everything old: it is not believed where another one can be asked, and where none
can, what goes in all needs a person."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from include.tiering.app import App, open_app
from include.tiering.audit.record import Guard
from include.tiering.cli.app import cli
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.database.event_log import EventKind, record_event
from include.tiering.errors import ClockBehindError, ClockDisagreesError, RemoteStorageUnavailableError
from tests.doubles.archive import Archive, settings_of
from tests.doubles.orphans import plant_orphan

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("on_each_database")]

YEARS_MS = 365 * 24 * 3600 * 1000
TEN_YEARS, TWELVE_YEARS = 10 * YEARS_MS, 12 * YEARS_MS


class ShiftedClock:
    def __init__(self, by_ms: int) -> None:
        self.by_ms = by_ms

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.by_ms

    def monotonic(self) -> float:
        return time.monotonic()

    def process_seconds(self) -> float:
        return 0.0

    def thread_seconds(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive.of(tmp_path)
    archive.config.write_text(
        archive.config.read_text().replace('include = ["orders"]', 'include = ["orders", "trimmed"]')
    )
    archive.copy()
    with archive.open() as app:
        for topic in ("orders", "trimmed"):
            app.configs.alter(ConfigEntity(EntityType.TOPICS, topic), {"retention.ms": str(TEN_YEARS)}, author="test")
    return archive


@contextmanager
def shifted(archive: Archive, database_ms: int, *, worker_ms: int = 0) -> Iterator[App]:
    """The deployment with another clock of the database, and of the worker."""
    with open_app(settings_of(archive.config), clock=ShiftedClock(worker_ms)) as app:
        deletions: Any = app.adapters.stores.deletions
        right = deletions._now_ms
        deletions._now_ms = lambda connection: right(connection) + database_ms
        yield app


def test_one_that_is_far_from_the_workers_stops_expiration(archive: Archive) -> None:
    everything = archive.remote()
    with shifted(archive, TWELVE_YEARS) as app, pytest.raises(ClockDisagreesError, match="this worker's says"):
        app.expiration.plan("run")
    assert archive.remote() == everything


def test_one_that_the_worker_shares_is_far_from_the_stores(archive: Archive) -> None:
    both = shifted(archive, TWELVE_YEARS, worker_ms=TWELVE_YEARS)
    with both as app, pytest.raises(ClockDisagreesError, match="the remote store's answer says"):
        app.expiration.plan("run")


def test_what_goes_in_all_asks_where_no_other_clock_can_be_asked(archive: Archive) -> None:
    """One host, whose clock is twelve years ahead: each topic is far below the floor."""
    with shifted(archive, TWELVE_YEARS, worker_ms=TWELVE_YEARS) as app:
        app.adapters.unguarded_storage = cast(Any, Silent(app.adapters.unguarded_storage))
        plan = app.expiration.plan("run")
        limit_report = app.expiration.apply_limits("run")
    assert len({one.topic_id_partition.topic for one in plan.expirations}) == 2
    assert limit_report.needs_approval
    assert "2 topics lose everything within 24 hours (orders, trimmed)" in limit_report.reasons[0]


class Silent:
    """A store whose clock says nothing."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def clock_ms(self) -> None:
        return None


def test_a_store_that_does_not_answer_now_is_waited_for(archive: Archive) -> None:
    """It is the only clock that could contradict: without it, one topic of many would go without a question."""
    everything = archive.remote()
    with shifted(archive, TWELVE_YEARS, worker_ms=TWELVE_YEARS) as app:
        app.adapters.unguarded_storage = cast(Any, Busy(app.adapters.unguarded_storage))
        with pytest.raises(RemoteStorageUnavailableError, match="503"):
            app.expiration.plan("run")
        assert app.expiration.forget_tombstones() == 0
    assert archive.remote() == everything


class Busy(Silent):
    """A store that asks for fewer requests when its clock is read."""

    def clock_ms(self) -> None:
        raise RemoteStorageUnavailableError("the store answered SlowDown (503)")


def test_it_is_asked_again_at_the_release_and_by_the_batch(archive: Archive) -> None:
    everything = archive.remote()
    archive.set(retention_ms=1)
    with archive.open() as app:
        plan = app.expiration.plan("run", topics=["orders"])
    with shifted(archive, TWELVE_YEARS) as app, pytest.raises(ClockDisagreesError):
        app.expiration.approve("run", plan.plan_hash, author="admin")
    with archive.open() as app:
        app.expiration.approve("run", plan.plan_hash, author="admin")
    with shifted(archive, TWELVE_YEARS) as app:
        with pytest.raises(ClockDisagreesError):
            app.expiration.run_batch("run", "run/0")
        assert app.adapters.stores.deletions.has_work("run")
    assert archive.remote() == everything


def test_tombstones_are_not_forgotten_by_it(archive: Archive) -> None:
    archive.set(retention_ms=1)
    archive.expire()
    with shifted(archive, TWELVE_YEARS) as app:
        metadata: Any = app.adapters.stores.metadata
        right = metadata._now_ms
        metadata._now_ms = lambda connection: right(connection) + TWELVE_YEARS
        assert app.expiration.forget_tombstones() == 0
        # It is the clock that kept them: by this clock they are old.
        assert (
            app.adapters.stores.metadata.forget_tombstones(app.effective_configs.settings().tombstone.ms, at_most=1)
            == 1
        )


def test_one_that_jumps_while_a_batch_runs_stops_it(archive: Archive) -> None:
    archive.set(retention_ms=1)
    with archive.open() as app:
        plan = app.expiration.plan("run", topics=["orders"])
        app.expiration.approve("run", plan.plan_hash, author="admin")
    with shifted(archive, 0) as app:
        clocks = app.expiration._clocks()
        clocks.require()
        clock, deletions = cast(ShiftedClock, app.adapters.clock), cast(Any, app.adapters.stores.deletions)
        before, clock.by_ms = deletions._now_ms, TWELVE_YEARS
        deletions._now_ms = lambda connection: before(connection) + TWELVE_YEARS
        with pytest.raises(ClockDisagreesError, match="since this work began"):
            clocks.require(with_store=False)


def jumps(app: App, where: object, name: str) -> None:
    """From the next call of this method on, the database's clock is twelve years ahead."""
    deletions: Any = app.adapters.stores.deletions
    method, right = getattr(where, name), deletions._now_ms

    def ahead(*args: object, **options: object) -> object:
        deletions._now_ms = lambda connection: right(connection) + TWELVE_YEARS
        return method(*args, **options)

    setattr(where, name, ahead)


def test_one_that_jumps_after_it_was_asked_makes_nothing_old(archive: Archive) -> None:
    """Found by simulation, seed 3008303: a plan asked the clock twice, and believed what it had not compared."""
    with archive.open() as app:
        jumps(app, app.topic_lifecycle, "note_deletions")
        assert not app.expiration.plan("run").expirations


def test_nor_when_a_plan_is_asked_again(archive: Archive) -> None:
    with archive.open() as app:
        app.configs.alter(ConfigEntity(EntityType.TOPICS, "orders"), {"retention.ms": "1"}, author="test")
        planned = app.expiration.plan("run", topics=["orders"]).expirations
        ten_years = {"retention.ms": str(TEN_YEARS)}
        app.configs.alter(ConfigEntity(EntityType.TOPICS, "orders"), ten_years, author="test")
        jumps(app, app.topic_lifecycle, "lifecycle_states")
        named = {deletion.segment_id for one in planned for deletion in one.deletions}
        assert {one.segment_id for one in app.expiration.withdrawn("run")} == named
    with archive.open() as app:
        clocks = app.expiration._clocks()
        jumps(app, app.topic_lifecycle, "lifecycle_states")
        again = app.expiration._still_planned(clocks, planned[0])
        assert not again.planned.deletions


def test_one_that_lies_before_the_newest_event_stops_it_until_it_caught_up_or_somebody_decides(
    archive: Archive,
) -> None:
    now_ms = time.time_ns() // 1_000_000
    with archive.open() as app:
        with app.adapters.engine.begin() as connection:
            record_event(connection, app.adapters.cluster_id, EventKind.PAUSE, "", "", "test", now_ms + 120_000)
        with pytest.raises(ClockBehindError):
            app.expiration.plan("run")
        with app.adapters.engine.begin() as connection:
            record_event(connection, app.adapters.cluster_id, EventKind.PAUSE, "", "", "test", now_ms + TWELVE_YEARS)
        with pytest.raises(ClockDisagreesError, match="before 20"):
            app.expiration.plan("run")
    archive.set_default(tiering_clock_ignored_until_ms=now_ms + TWELVE_YEARS)
    with archive.open() as app:
        assert app.expiration.plan("run").expirations == ()


@pytest.mark.parametrize(("ahead_ms", "code"), [(120_000, 3), (TWELVE_YEARS, 1)])
def test_the_exit_code_says_whether_waiting_helps(archive: Archive, ahead_ms: int, code: int) -> None:
    with archive.open() as app, app.adapters.engine.begin() as connection:
        at_ms = time.time_ns() // 1_000_000 + ahead_ms
        record_event(connection, app.adapters.cluster_id, EventKind.PAUSE, "", "", "test", at_ms)
    result = CliRunner().invoke(cli, ["--config", str(archive.config), "expire", "--dry-run"])
    assert (result.exit_code, "the database's clock says" in result.stderr) == (code, True)


def ahead_for_audits(app: App) -> None:
    """From now on the database's clock is twelve years ahead for them as well."""
    stores = app.adapters.stores
    for one in (stores.audits, stores.audited_metadata):
        one._now_ms = lambda connection, right=one._now_ms: right(connection) + TWELVE_YEARS


def test_an_audit_that_goes_by_it_removes_nothing(archive: Archive) -> None:
    """Found by simulation, seed 11544: what had just been written was twelve years old, and went as an orphan."""
    plant_orphan(archive.directory / "store", age_seconds=60)
    with shifted(archive, TWELVE_YEARS) as app:
        ahead_for_audits(app)
        report = app.audit.run("audit")
        assert [one.guard for one in report.record.refusals] == [Guard.CLOCK_DISAGREES]
        assert "this worker's says" in report.record.refusals[0].sentence
        with pytest.raises(ClockDisagreesError):
            app.audit.plan_removals("removal", "audit")
    with archive.open() as app:
        plan = app.audit.plan_removals("removal", "audit")
        assert (plan.removals, [one.guard for one in plan.refusals]) == ((), [Guard.CLOCK_DISAGREES])
        again = app.audit.run("again")
        assert again.record.refusals == ()
        assert app.audit.plan_removals("of-again", "again").removals == ()


def test_nor_one_during_which_it_was_set_right(archive: Archive) -> None:
    plant_orphan(archive.directory / "store", age_seconds=60)
    with archive.open() as app:
        ahead_for_audits(app)
        report = app.audit.run("audit")
        (refusal,) = report.record.refusals
        assert (refusal.guard, "earlier, but says" in refusal.sentence) == (Guard.CLOCK_DISAGREES, True)
