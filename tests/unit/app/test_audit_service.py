"""An audit through the library: what it publishes, and what the history says of the removal that follows it."""

from pathlib import Path

import pytest
from sqlalchemy import select

from include.tiering.database.schema import events
from tests.doubles.manual_clock import ManualClock
from tests.doubles.orphans import plant_orphan
from tests.doubles.recorded_metrics import stored_value
from tests.doubles.tiny_deployment import TinyDeployment


def metric(deployment: TinyDeployment, name: str, **labels: str) -> float | None:
    with deployment.open() as app:
        return stored_value(app.adapters.metrics_writer.series, name, labels)


def test_when_an_audit_ended_is_published_in_seconds_since_1970(tmp_path: Path) -> None:
    """An alert compares it with the time of the machine that asks: nobody has looked for two days."""
    deployment = TinyDeployment(tmp_path, ManualClock(now_ms=1_700_000_000_250))
    deployment.copied(1)
    with deployment.open() as app:
        app.audit.run("audit-1")
    assert metric(deployment, "tiering_audit_ended_timestamp_seconds") == 1_700_000_000.25


def test_what_an_audit_found_is_counted_by_kind(tmp_path: Path) -> None:
    deployment = TinyDeployment(tmp_path)
    deployment.copied(1)
    planted = plant_orphan(deployment.store)
    with deployment.open() as app:
        report = app.audit.run("audit-1")
    size_bytes = sum((deployment.store / key).stat().st_size for key in planted)
    assert metric(deployment, "tiering_audit_findings", kind="orphan") == len(planted) == 2
    assert metric(deployment, "tiering_audit_finding_bytes", kind="orphan") == size_bytes
    assert metric(deployment, "tiering_audit_findings", kind="dangling-reference") == 0
    assert metric(deployment, "tiering_audit_refusals") == 0
    with_marker = 3 + 2 + 1
    assert (report.record.objects, report.record.rows) == (with_marker, 1)


def test_an_audit_that_objects_publishes_how_many_guards_do(tmp_path: Path) -> None:
    deployment = TinyDeployment(tmp_path)
    deployment.plant_log()
    with deployment.open() as app:
        assert len(app.audit.run("audit-1").record.refusals) == 1
    assert metric(deployment, "tiering_audit_refusals") == 1


@pytest.mark.parametrize("planted", [True, False], ids=["something", "nothing"])
def test_the_history_says_why_a_removal_needs_an_approval(tmp_path: Path, planted: bool) -> None:
    deployment = TinyDeployment(tmp_path)
    deployment.copied(4)
    if planted:
        plant_orphan(deployment.store)
    with deployment.open() as app:
        app.audit.run("audit-1")
        app.audit.plan_removals("remove-1", "audit-1")
        report = app.audit.apply_removal_limits("remove-1")
        assert app.adapters.stores.removals.run("remove-1").needs_approval is planted is report.needs_approval
        with app.adapters.engine.connect() as connection:
            said = connection.execute(
                select(events.c.subject, events.c.detail, events.c.author).where(events.c.kind == "brake")
            ).all()
    detail = "objects without metadata are removed only with an approval" if planted else "nothing to remove"
    assert said == [("run remove-1", detail, "audit")]
