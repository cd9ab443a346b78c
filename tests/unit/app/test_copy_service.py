"""Copying through the library: which limits a batch has, what a run reports, what a decision asks first."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.copying.copy_batch import BatchLimits
from include.tiering.errors import ForeignStoreError, MetadataUnavailableError, SettingError
from include.tiering.runs.contract import NoWork, Placement, SegmentOutcome
from tests.doubles.tiny_deployment import TinyDeployment


@pytest.fixture
def deployment(tmp_path: Path) -> TinyDeployment:
    return TinyDeployment(tmp_path)


def test_a_batch_has_the_limits_of_the_settings_of_now(deployment: TinyDeployment) -> None:
    placement = Placement("queue", "resource")
    with deployment.open() as app:
        assert app.copying._limits("pool", placement) == BatchLimits(
            600.0,
            30_000,
            "pool",
            placement,
            fairness=True,
            transfers=16,
            total_transfers=256,
            queued_bytes=-1,
        )
    deployment.set(
        ALL_BROKERS,
        tiering_copier_batch_max_seconds="77",
        tiering_copy_fairness_enable="false",
        tiering_copier_max_transfers="7",
        tiering_copier_total_max_transfers="9",
        queued_max_bytes="123456",
    )
    with deployment.open() as app:
        assert app.copying._limits(None, None) == BatchLimits(
            77.0, 30_000, None, None, fairness=False, transfers=7, total_transfers=9, queued_bytes=123_456
        )


@pytest.mark.parametrize(
    ("batches", "seconds"),
    [([], 0.0), ([(1_000, 3_500)], 2.5), ([(2_000, 3_000), (1_000, 2_500), (2_500, 9_000)], 8.0)],
)
def test_a_run_takes_from_the_begin_of_its_first_batch_to_the_end_of_its_last(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch, batches: Sequence[tuple[int, int]], seconds: float
) -> None:
    with deployment.open() as app:
        progress = [SimpleNamespace(started_at_ms=began, updated_at_ms=ended) for began, ended in batches]
        monkeypatch.setattr(app.copying._work, "progress", lambda _: progress)
        assert app.copying.run_report("run").seconds == seconds


@pytest.mark.parametrize(
    ("outcomes", "ended_early"),
    [
        ([], False),
        ([SegmentOutcome.PLANNED], False),
        ([SegmentOutcome.PLANNED, SegmentOutcome.COPIED], True),
        ([SegmentOutcome.FAILED], True),
    ],
    ids=str,
)
def test_a_run_of_which_something_has_an_outcome_may_have_ended_early(
    deployment: TinyDeployment,
    monkeypatch: pytest.MonkeyPatch,
    outcomes: Sequence[SegmentOutcome],
    ended_early: bool,
) -> None:
    asked: list[bool] = []

    def left(_items: Any, *, ended_early: bool) -> tuple[()]:
        asked.append(ended_early)
        return ()

    with deployment.open() as app:
        items = [SimpleNamespace(outcome=outcome) for outcome in outcomes]
        monkeypatch.setattr(app.copying._work, "items", lambda _: items)
        monkeypatch.setattr(app.copying, "left_work", left)
        assert app.copying.run_report("run").run_id == "run"
    assert asked == [ended_early]


@pytest.mark.parametrize("decide", ["skip_offsets", "follow_source"])
def test_a_decision_is_recorded_only_for_a_store_that_is_ours(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch, decide: str
) -> None:
    def another() -> None:
        raise ForeignStoreError("another")

    with deployment.open() as app:
        monkeypatch.setattr(app.copying._ownership, "require", another)
        with pytest.raises(ForeignStoreError):
            getattr(app.copying, decide)(None, reason="r", author="ada")


def test_without_planned_work_a_batch_need_not_begin(deployment: TinyDeployment) -> None:
    with deployment.open() as app:
        assert app.copying.why_no_work("run", "run/0", Placement(None, None)) is NoWork.DONE
        assert app.expiration.why_no_work("run", "run/0") is NoWork.DONE


def test_a_batch_keeps_its_limits_while_what_is_stored_is_not_accepted(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version may have stored it; a database that is away is another matter."""
    limits: list[Any] = []

    class Batch:
        def __init__(self, *_: object, limits_now: Any, **__: object) -> None:
            self.limits_now = limits_now

        def run(self) -> Any:
            limits.append(self.limits_now())
            monkeypatch.setattr(app.copying, "_effective", refuse)
            limits.append(self.limits_now())
            monkeypatch.setattr(app.copying, "_effective", be_away)
            with pytest.raises(MetadataUnavailableError):
                self.limits_now()
            return SimpleNamespace(failed=[])

    def refuse() -> None:
        raise SettingError("not accepted")

    def be_away() -> None:
        raise MetadataUnavailableError("away")

    with deployment.open() as app:
        monkeypatch.setattr("include.tiering.copying.copy_batch.CopyBatch", Batch)
        app.copying.run_batch("run", "run/0")
    assert limits[0] == limits[1]


@pytest.mark.parametrize(("dry_run", "asks"), [(False, "claim"), (True, "require")])
def test_a_plan_asks_first_whether_the_store_is_ours(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch, dry_run: bool, asks: str
) -> None:
    """Only a plan that is stored raises the store's generation."""

    def another() -> None:
        raise ForeignStoreError("another")

    with deployment.open() as app:
        with monkeypatch.context() as armed:
            armed.setattr(app.copying._ownership, asks, another)
            with pytest.raises(ForeignStoreError):
                app.copying.plan("run", dry_run=dry_run)
        assert app.adapters.stores.registry.names_in_use() == {}
        before = app.ownership._unguarded().read_marker()
        assert app.copying.plan("run", dry_run=dry_run).run_id == "run"
        after = app.ownership._unguarded().read_marker()
        assert before is not None
        assert after is not None
        assert after.generation == before.generation + (not dry_run)
        assert bool(app.adapters.stores.registry.names_in_use()) is not dry_run
