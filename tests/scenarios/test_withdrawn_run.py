"""A released plan is taken back by one command, whoever works on it; it is never released again."""

from pathlib import Path

import pytest

from include.tiering.cli.command import author
from include.tiering.database.schema import events
from include.tiering.errors import ForeignStoreError, RunWithdrawnError
from include.tiering.expiration.delete_segments import DeleteStep
from include.tiering.runs.batch import BatchEnd
from tests.doubles.archive import EVERYTHING, Archive, Command, document

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("on_each_database")]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive.of(tmp_path)
    archive.copy()
    archive.set(retention_bytes=0)
    return archive


def released(archive: Archive, run_id: str = "run") -> int:
    """How many segments an approved run would delete."""
    with archive.open() as app:
        plan = app.expiration.plan(run_id)
        app.expiration.apply_limits(run_id)
        app.expiration.approve(run_id, plan.plan_hash, author="admin")
        return plan.segments


def test_nothing_of_it_goes_and_no_approval_brings_it_back(archive: Archive, app: Command) -> None:
    segments = released(archive)
    shown = document(app("expire", "--withdraw", "run", "--json"))
    assert (shown["withdrawn_by"], shown["kept"], shown["deleted"], shown["begun"]) == (author(), segments, 0, [])
    with archive.open() as opened:
        with pytest.raises(RunWithdrawnError):
            opened.expiration.run_batch("run", "run/0")
        with pytest.raises(RunWithdrawnError):
            opened.expiration.approve("run", shown["plan_hash"], author="admin")
        opened.expiration.apply_limits("run")
        assert not opened.adapters.stores.deletions.run("run").is_released
        with opened.adapters.engine.connect() as connection:
            kinds = connection.execute(events.select().where(events.c.kind == "withdrawal")).all()
    assert [(row.subject, row.author) for row in kinds] == [("run run", author())]
    assert archive.left() == EVERYTHING


def test_again_it_says_the_same(archive: Archive, app: Command) -> None:
    released(archive)
    first = document(app("expire", "--withdraw", "run", "--json"))
    assert document(app("expire", "--withdraw", "run", "--json")) == first


def test_a_batch_at_work_stops_and_the_command_says_what_had_gone(archive: Archive, app: Command) -> None:
    segments = released(archive)
    said: list[str] = []
    with archive.open() as opened:
        opened.adapters.observe = lambda step, *_: (
            said.append(app("expire", "--withdraw", "run").stdout) if step is DeleteStep.RECORDED and not said else None
        )
        result = opened.expiration.run_batch("run", "run/0")
    gone = len(result.deleted)
    assert result.ended is BatchEnd.WITHDRAWN
    assert 0 < gone < segments
    assert f"{gone} segments" in said[0]
    assert f"{segments - gone} segments" in said[0]
    assert sum(map(len, archive.left().values())) == segments - gone


def test_a_copy_of_the_database_with_the_same_release_does_not_go_on(archive: Archive, app: Command) -> None:
    released(archive)
    copied = archive.with_copied_database()
    assert document(app("expire", "--withdraw", "run", "--json"))["not_claimed"] is None
    right = archive.config.read_text()
    archive.config.write_text(copied)
    with archive.open() as clone, pytest.raises(ForeignStoreError):
        clone.expiration.run_batch("run", "run/0")
    archive.config.write_text(right)
    assert archive.left() == EVERYTHING


def test_a_store_that_is_away_keeps_nobody_from_it(archive: Archive, app: Command) -> None:
    segments = released(archive)
    (archive.directory / "store").rename(archive.directory / "unmounted")
    shown = document(app("expire", "--withdraw", "run", "--json"))
    assert (shown["withdrawn_by"], shown["kept"]) == (author(), segments)
    assert shown["not_claimed"]
    assert "a copy of this database may still carry it out" in app("expire", "--withdraw", "run").stdout


def test_it_may_be_planned_again(archive: Archive, app: Command) -> None:
    segments = released(archive)
    document(app("expire", "--withdraw", "run", "--json"))
    done = document(app("expire", "--approve", "--json"))
    assert len([one for one in done["decisions"] if one["outcome"] == "deleted"]) == segments


def test_an_unknown_run(app: Command) -> None:
    result = app("expire", "--withdraw", "nothing")
    assert (result.exit_code, "no run nothing" in result.stderr) == (1, True)


@pytest.mark.parametrize("other", ["--approve", "--dry-run"])
def test_it_goes_with_nothing_else(app: Command, other: str) -> None:
    assert app("expire", "--withdraw", "run", other).exit_code == 2
