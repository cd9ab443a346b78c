"""retention.bytes cut to a tenth by mistake: the run stops; no leaves everything, yes goes on with that plan alone."""

import os
import pty
import subprocess
from pathlib import Path

import pytest

from include.tiering.cli.command import author
from include.tiering.database.schema import approvals, events
from include.tiering.errors import ApprovalRequiredError
from tests.doubles.archive import EVERYTHING, Archive, Command, document
from tests.doubles.source_tree import ROOT

pytestmark = pytest.mark.integration


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """All copied, kept with 250,000 bytes a partition, which nothing exceeds; no floor for small topics."""
    archive = Archive.of(tmp_path)
    archive.copy()
    archive.set_default(tiering_expiration_min_bytes=0)
    archive.set(retention_bytes=250_000)
    assert archive.expire()[0].items == []
    return archive


def approval_rows(archive: Archive) -> list[tuple[str, str]]:
    with archive.open() as app, app.adapters.engine.connect() as connection:
        return [(row.plan_hash, row.author) for row in connection.execute(approvals.select())]


class TestCommandLine:
    def test_the_run_stops_until_exactly_this_plan_is_approved(self, archive: Archive, app: Command) -> None:
        archive.set(retention_bytes=25_000)
        shown = document(app("expire", "--dry-run", "--json"), 0)
        assert shown["needs_approval"]
        assert [one["topic"] for one in shown["shares"]] == ["orders"]
        assert shown["shares"][0]["share"] > 0.2
        assert "orders" in shown["reasons"][0]
        refused = document(app("expire", "--json"), 1)
        assert refused["plan_hash"] == shown["plan_hash"]
        assert shown["plan_hash"] in refused["refusal"]
        assert archive.left() == EVERYTHING
        assert approval_rows(archive) == []

        done = document(app("expire", "--approve-plan", shown["plan_hash"], "--json"), 0)
        assert [one["segment_id"] for one in done["decisions"]] == [one["segment_id"] for one in shown["decisions"]]
        assert {one["outcome"] for one in done["decisions"]} == {"deleted"}
        assert done["approved_by"] == author()
        assert approval_rows(archive) == [(shown["plan_hash"], author())]
        archive.require_served()
        archive.require_no_other_objects()

    def test_a_changed_plan_needs_a_new_approval(self, archive: Archive, app: Command) -> None:
        archive.set(retention_bytes=25_000)
        old = document(app("expire", "--dry-run", "--json"), 0)["plan_hash"]
        archive.set(retention_bytes=100_000)
        refused = document(app("expire", "--approve-plan", old, "--json"), 1)
        assert refused["plan_hash"] != old
        assert "and not the approved one" in refused["refusal"]
        assert archive.left() == EVERYTHING

    def test_approve_agrees_to_the_plan_of_this_run(self, archive: Archive, app: Command) -> None:
        archive.set(retention_bytes=100_000)
        done = document(app("expire", "--approve", "--json"), 0)
        assert done["deleted_bytes"] == done["bytes"] > 0
        assert archive.left()[0] == [282, 664, 808]

    def test_what_was_deleted_within_a_day_counts(self, archive: Archive, app: Command) -> None:
        archive.set_default(tiering_expiration_max_share="0.3")
        archive.set(retention_bytes=145_000)
        first = document(app("expire", "--dry-run", "--json"), 0)
        assert not first["needs_approval"]
        document(app("expire", "--approve", "--json"), 0)
        archive.set(retention_bytes=100_000)
        second = document(app("expire", "--dry-run", "--json"), 0)
        assert second["needs_approval"]
        assert second["shares"][0]["recent_bytes"] == first["shares"][0]["planned_bytes"]

    def test_the_floor_keeps_small_topics_quiet(self, archive: Archive, app: Command) -> None:
        archive.set_default(tiering_expiration_min_bytes=None)
        archive.set(retention_bytes=25_000)
        assert not document(app("expire", "--dry-run", "--json"), 0)["needs_approval"]

    def test_without_a_terminal_even_a_small_share_needs_a_flag(self, archive: Archive, app: Command) -> None:
        archive.set_default(tiering_expiration_max_share=1)
        archive.set(retention_bytes=100_000)
        refused = document(app("expire", "--json"), 1)
        assert not refused["needs_approval"]
        assert "without a terminal" in refused["refusal"]
        assert archive.left() == EVERYTHING

    @pytest.mark.parametrize(("answer", "goes"), [("y", True), ("n", False)])
    def test_on_a_terminal_it_asks(self, archive: Archive, answer: str, goes: bool) -> None:
        archive.set_default(tiering_expiration_max_share=1)
        archive.set(retention_bytes=100_000)
        terminal, side = pty.openpty()
        command = [str(ROOT / "tiering"), "--config", str(archive.config), "expire"]
        os.write(terminal, f"{answer}\n".encode())
        done = subprocess.run(command, stdin=side, stderr=side, stdout=subprocess.PIPE, timeout=240, check=False)
        os.close(side)
        os.close(terminal)
        assert done.returncode == (0 if goes else 1)
        assert (archive.left() == EVERYTHING) is not goes

    def test_flags_that_contradict(self, app: Command) -> None:
        result = app("expire", "--dry-run", "--approve")
        assert result.exit_code == 2
        assert "exclude each other" in result.stderr


class TestRun:
    def test_no_batch_starts_before_the_approval_and_a_no_leaves_everything(self, archive: Archive) -> None:
        archive.set(retention_bytes=25_000)
        with archive.open() as app:
            plan = app.expiration.plan("run")
            with pytest.raises(ApprovalRequiredError):
                app.expiration.run_batch("run", "run/0")
            assert app.expiration.apply_limits("run").needs_approval
            with pytest.raises(ApprovalRequiredError, match=plan.plan_hash):
                app.expiration.run_batch("run", "run/0")
            assert archive.left() == EVERYTHING
            app.expiration.approve("run", plan.plan_hash, author="admin@airflow")
            assert len(app.expiration.run_batch("run", "run/0").deleted) == plan.segments
            with app.adapters.engine.connect() as connection:
                rows = connection.execute(events.select().where(events.c.kind == "approval")).all()
        assert [(row.author, row.detail) for row in rows] == [("admin@airflow", plan.plan_hash)]

    def test_a_plan_that_the_database_counts_otherwise_waits(self, archive: Archive) -> None:
        """Another run deletes a planned segment between plan and limit check: the second sum shows it."""
        archive.set_default(tiering_expiration_max_share=1)
        archive.set(retention_bytes=100_000)
        with archive.open() as app:
            app.expiration.plan("run")
            archive.expire()
            report = app.expiration.apply_limits("run")
        assert report.needs_approval
        assert "the plan counts" in report.reasons[0]
