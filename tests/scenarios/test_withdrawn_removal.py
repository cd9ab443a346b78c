"""The plan of a removal is taken back by one command, whoever works on it; it is never released again."""

import json
from pathlib import Path
from typing import Any

import pytest

from include.tiering.audit import remove_orphans
from include.tiering.audit.remove_orphans import RemovalStep
from include.tiering.cli.command import author
from include.tiering.errors import ForeignStoreError, RunWithdrawnError
from include.tiering.runs.batch import BatchEnd
from tests.doubles.archive import Archive, Command
from tests.doubles.orphans import plant_orphan

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("on_each_database")]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """With two orphans of two objects each."""
    archive = Archive.of(tmp_path)
    archive.copy()
    archive.set_default(tiering_audit_min_age_ms=0)
    for number in (1, 2):
        plant_orphan(archive.directory / "store", number)
    return archive


def files(archive: Archive) -> set[Path]:
    return {path for path in (archive.directory / "store").rglob("*") if path.is_file()}


def withdrawn(app: Command) -> Any:
    done = app("audit", "--withdraw", "remove", "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def released(archive: Archive) -> int:
    """How many objects an approved run would remove."""
    with archive.open() as opened:
        opened.audit.run("one")
        plan = opened.audit.plan_removals("remove", "one")
        opened.audit.apply_removal_limits("remove")
        opened.audit.approve_removals("remove", plan.plan_hash, author="admin")
        return len(plan.removals)


def test_nothing_of_it_goes_and_no_approval_brings_it_back(archive: Archive, app: Command) -> None:
    before, objects = files(archive), released(archive)
    shown = withdrawn(app)
    assert (shown["withdrawn_by"], shown["kept"], shown["removed"]) == (author(), objects, 0)
    assert withdrawn(app) == shown
    with archive.open() as opened:
        with pytest.raises(RunWithdrawnError):
            opened.audit.run_removal_batch("remove", "remove/0")
        with pytest.raises(RunWithdrawnError):
            opened.audit.approve_removals("remove", shown["plan_hash"], author="admin")
    assert files(archive) == before


def test_a_batch_at_work_stops_and_the_command_says_what_had_gone(
    archive: Archive, app: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remove_orphans.RemovalBatch.__init__, "__kwdefaults__", {"attempts_per_group": 1})
    before, objects = files(archive), released(archive)
    said: list[Any] = []
    with archive.open() as opened:
        opened.adapters.observe = lambda step, *_: (
            said.append(withdrawn(app)) if step is RemovalStep.RECORDED and not said else None
        )
        result = opened.audit.run_removal_batch("remove", "remove/0")
    assert result.ended is BatchEnd.WITHDRAWN
    gone = before - files(archive)
    assert 0 < len(gone) < objects
    assert (said[0]["removed"], said[0]["kept"], said[0]["unsettled"]) == (len(gone), objects - len(gone), [])


def test_what_is_in_the_midst_of_it_is_left_to_the_next_audit(archive: Archive, app: Command) -> None:
    objects = released(archive)
    said: list[Any] = []
    with archive.open() as opened:
        opened.adapters.observe = lambda step, *_: (
            said.append(withdrawn(app)) if step is RemovalStep.MARKED and not said else None
        )
        opened.audit.run_removal_batch("remove", "remove/0")
    assert len(said[0]["unsettled"]) == objects
    assert "is withdrawn: 0 objects" in app("audit", "--withdraw", "remove").stdout


def test_a_copy_of_the_database_with_the_same_release_does_not_go_on(archive: Archive, app: Command) -> None:
    before, _ = files(archive), released(archive)
    copied = archive.with_copied_database()
    assert withdrawn(app)["not_claimed"] is None
    archive.config.write_text(copied)
    with archive.open() as clone, pytest.raises(ForeignStoreError):
        clone.audit.run_removal_batch("remove", "remove/0")
    assert files(archive) == before


@pytest.mark.parametrize("flag", [["--delete-orphans"], ["--accept", "1"], ["--approve"]])
def test_it_goes_with_nothing_else(app: Command, flag: list[str]) -> None:
    assert app("audit", "--withdraw", "remove", *flag).exit_code == 2


def test_a_run_that_nobody_planned_is_named(app: Command) -> None:
    assert "no run nothing" in app("audit", "--withdraw", "nothing").stderr
