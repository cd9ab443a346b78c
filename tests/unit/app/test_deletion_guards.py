"""Before anything is deleted: the store is ours, no guard of an audit stands, no clock contradicts the database's.

Each step of an expiration and of a removal asks all that it has to ask, and one objection is enough: nothing goes.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.app import App
from include.tiering.errors import (
    ClockDisagreesError,
    DatabaseSetBackError,
    ForeignStoreError,
    RemoteStorageUnavailableError,
    TieringError,
)
from include.tiering.model.ownership import StoreMarker
from include.tiering.remote_storage.store_ownership import StoreOwnership
from include.tiering.runs.deletion_run import DeletionOutcome
from tests.doubles.orphans import plant_orphan, stored_files
from tests.doubles.tiny_deployment import PARTITION, TinyDeployment

Step = Callable[[App], object]


def objecting(error: TieringError) -> Any:
    def object_(*_: object, **__: object) -> None:
        raise error

    return object_


class _Clocks:
    """`clocks.require` objects; all else is as it is."""

    def __init__(self, clocks: Any) -> None:
        self._clocks = clocks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clocks, name)

    def require(self) -> None:
        raise ClockDisagreesError("another clock")


GUARDS: dict[str, tuple[type[TieringError], Callable[[Any, pytest.MonkeyPatch], None]]] = {
    "claim": (
        ForeignStoreError,
        lambda service, patch: patch.setattr(service._ownership, "claim", objecting(ForeignStoreError("another"))),
    ),
    "require": (
        ForeignStoreError,
        lambda service, patch: patch.setattr(service._ownership, "require", objecting(ForeignStoreError("another"))),
    ),
    "guard": (
        DatabaseSetBackError,
        lambda service, patch: patch.setattr(
            service._guards, "require_deletion_allowed", objecting(DatabaseSetBackError("set back"))
        ),
    ),
    "clocks": (
        ClockDisagreesError,
        lambda service, patch: patch.setattr(service, "_clocks", lambda made=service._clocks: _Clocks(made())),
    ),
}


@pytest.fixture
def deployment(tmp_path: Path) -> TinyDeployment:
    """All that is remote expires; one object is nobody's."""
    made = TinyDeployment(tmp_path)
    made.copied(3)
    made.set(retention_ms="1000")
    return made


def refused(app: App, service: Any, guard: str, step: Step, patch: pytest.MonkeyPatch) -> None:
    """The step fails with the error of the guard, and succeeds without it."""
    error, arm = GUARDS[guard]
    with patch.context() as armed:
        arm(service, armed)
        with pytest.raises(error):
            step(app)


@pytest.mark.parametrize("guard", ["require", "guard", "clocks"])
def test_a_batch_of_expiration_deletes_nothing_while_one_objects(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    with deployment.open() as app:
        plan = app.expiration.plan("run-1")
        app.expiration.apply_limits("run-1")
        app.expiration.approve("run-1", plan.plan_hash, author="ada")
        before = stored_files(deployment.store)
        refused(app, app.expiration, guard, lambda app: app.expiration.run_batch("run-1", "run-1/0"), monkeypatch)
        assert stored_files(deployment.store) == before
        items = app.adapters.stores.deletions.items("run-1")
        assert {item.outcome for item in items} == {DeletionOutcome.PLANNED}
        assert len(app.expiration.run_batch("run-1", "run-1/1").deleted) == 3
    assert stored_files(deployment.store) == set()


@pytest.mark.parametrize("guard", ["claim", "guard", "clocks"])
def test_a_plan_of_expiration_is_not_approved_while_one_objects(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    with deployment.open() as app:
        plan = app.expiration.plan("run-1")
        app.expiration.apply_limits("run-1")

        def approve(app: App) -> object:
            return app.expiration.approve("run-1", plan.plan_hash, author="ada")

        refused(app, app.expiration, guard, approve, monkeypatch)
        assert app.adapters.stores.deletions.run("run-1").approval is None
        approve(app)
        approval = app.adapters.stores.deletions.run("run-1").approval
        assert approval is not None
        assert approval.author == "ada"


def test_limits_release_nothing_while_a_guard_stands_but_show_what_they_would(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deployment.open() as app:
        app.expiration.plan("run-1")
        refused(app, app.expiration, "guard", lambda app: app.expiration.apply_limits("run-1"), monkeypatch)
        with monkeypatch.context() as armed:
            GUARDS["guard"][1](app.expiration, armed)
            assert app.expiration.apply_limits("run-1", dry_run=True).run_id == "run-1"
        assert app.adapters.stores.deletions.run("run-1").needs_approval is None


def test_what_would_stay_now_is_not_said_by_a_clock_that_is_contradicted(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deployment.open() as app:
        app.expiration.plan("run-1")
        refused(app, app.expiration, "clocks", lambda app: app.expiration.withdrawn("run-1"), monkeypatch)
        assert app.expiration.withdrawn("run-1") == []


def test_a_log_start_rises_only_in_a_store_that_is_ours(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deployment.open() as app:
        planned = app.expiration.plan_truncation(PARTITION, 30)

        def cut(app: App) -> object:
            return app.expiration.delete_records(planned, author="ada")

        refused(app, app.expiration, "claim", cut, monkeypatch)
        assert app.adapters.stores.metadata.retention_state(PARTITION).log_start_offset == 0
        cut(app)
        assert app.adapters.stores.metadata.retention_state(PARTITION).log_start_offset == 30


def test_a_withdrawal_holds_also_where_the_store_cannot_be_claimed(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deployment.open() as app:
        plan = app.expiration.plan("run-1")
        monkeypatch.setattr(app.expiration._ownership, "claim", objecting(ForeignStoreError("away")))
        withdrawn = app.expiration.withdraw("run-1", author="ada")
        assert (withdrawn.not_claimed, len(withdrawn.kept)) == ("away", len(plan.expirations[0].deletions))
        monkeypatch.undo()
        assert app.expiration.withdraw("run-1", author="ada").not_claimed is None


def test_tombstones_stay_while_a_clock_is_contradicted_and_go_page_by_page(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages, asked = [2, 1, 0], list[tuple[int, int]]()

    def forget(older_than_ms: int, *, at_most: int) -> int:
        asked.append((older_than_ms, at_most))
        return pages.pop(0)

    with deployment.open() as app:
        monkeypatch.setattr(app.expiration._metadata, "forget_tombstones", forget)
        with monkeypatch.context() as armed:
            GUARDS["clocks"][1](app.expiration, armed)
            assert app.expiration.forget_tombstones() == 0
            assert asked == []
        assert app.expiration.forget_tombstones() == 3
    assert asked == [(90 * 24 * 3_600_000, 500)] * 3


def audited(deployment: TinyDeployment, app: App) -> str:
    """An audit has found the orphan; its removal is planned."""
    plant_orphan(deployment.store)
    app.audit.run("audit-1")
    plan = app.audit.plan_removals("remove-1", "audit-1")
    app.audit.apply_removal_limits("remove-1")
    assert len(plan.removals) == 2
    return plan.plan_hash


@pytest.mark.parametrize("guard", ["claim", "clocks"])
def test_removals_are_not_planned_while_one_objects(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    plant_orphan(deployment.store)
    with deployment.open() as app:
        app.audit.run("audit-1")
        refused(app, app.audit, guard, lambda app: app.audit.plan_removals("remove-1", "audit-1"), monkeypatch)
        assert len(app.audit.plan_removals("remove-1", "audit-1").removals) == 2


@pytest.mark.parametrize("guard", ["claim", "guard"])
def test_removals_are_not_approved_while_one_objects(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    with deployment.open() as app:
        plan_hash = audited(deployment, app)

        def approve(app: App) -> object:
            return app.audit.approve_removals("remove-1", plan_hash, author="ada")

        refused(app, app.audit, guard, approve, monkeypatch)
        assert app.adapters.stores.removals.run("remove-1").approval is None
        approve(app)
        assert app.adapters.stores.removals.run("remove-1").approval is not None


@pytest.mark.parametrize("guard", ["require", "guard"])
def test_a_batch_of_removals_removes_nothing_while_one_objects(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    with deployment.open() as app:
        plan_hash = audited(deployment, app)
        app.audit.approve_removals("remove-1", plan_hash, author="ada")
        before = stored_files(deployment.store)
        refused(app, app.audit, guard, lambda app: app.audit.run_removal_batch("remove-1", "b/0"), monkeypatch)
        assert stored_files(deployment.store) == before
        app.audit.run_removal_batch("remove-1", "b/1")
    assert len(before - stored_files(deployment.store)) == 2


def ownership(error: Exception | None) -> StoreOwnership:
    """Of a store that answers every question with this error; None: it is ours."""

    def answer(*_: object) -> Any:
        if error is not None:
            raise error

    class Ownership(StoreOwnership):
        def claim(self) -> StoreMarker:
            answer()
            return StoreMarker("cluster", "store", 1)

    ports: dict[str, Any] = dict.fromkeys(
        ("unguarded", "generations", "place", "raised_by", "open_place", "clock", "random_bytes", "observe")
    )
    return Ownership(storage=lambda: SimpleNamespace(check_marker=answer), **ports)


def test_why_a_store_could_not_be_claimed_is_told_and_that_it_is_another_is_an_objection() -> None:
    assert (ownership(None).claim_if_possible(), ownership(None).objection()) == (None, None)
    away = ownership(RemoteStorageUnavailableError("no answer"))
    assert away.claim_if_possible() == "no answer"
    with pytest.raises(RemoteStorageUnavailableError):
        away.objection()
    assert ownership(ForeignStoreError("another")).objection() == "another"
    assert "full" in (ownership(OSError(28, "the disk is full")).claim_if_possible() or "")
