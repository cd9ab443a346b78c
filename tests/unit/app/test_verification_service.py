"""Verification through the library: what a plan changes, which samples it takes, what it publishes."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import update

from include.tiering.app import App
from include.tiering.database import schema
from include.tiering.errors import ForeignStoreError
from include.tiering.model.segments import Depth, RemoteLogSegmentMetadata, Verdict
from include.tiering.verification.plan import PLACES, VerificationSample
from tests.doubles.recorded_metrics import stored_value
from tests.doubles.tiny_deployment import PARTITION, TinyDeployment

ALL, DUE = VerificationSample(everything=True), VerificationSample(due=True)


@pytest.fixture
def deployment(tmp_path: Path) -> TinyDeployment:
    return TinyDeployment(tmp_path)


def verdicts(app: App) -> list[Verdict]:
    return [row.verdict for row in app.adapters.stores.metadata.list_segments(PARTITION)]


def passed(app: App, segments: Sequence[RemoteLogSegmentMetadata]) -> None:
    for segment in segments:
        app.adapters.stores.metadata.record_verdict(segment.remote_log_segment_id, Verdict.PASSED)


def age(app: App, seconds: int) -> None:
    """All verdicts are so much older."""
    column = schema.segments.c.verdict_at_ms
    with app.adapters.engine.begin() as connection:
        connection.execute(update(schema.segments).values({column: column - seconds * 1_000}))


DAY = 86_400


def test_a_plan_expires_verdicts_and_is_stored_and_a_dry_run_does_neither(deployment: TinyDeployment) -> None:
    segments = deployment.copied(3)
    with deployment.open() as app:
        passed(app, segments)
        age(app, 91 * DAY)
        shown = app.verification.plan("run-1", DUE, depth=Depth.SHALLOW, dry_run=True)
        assert (len(shown.planned), verdicts(app)) == (3, [Verdict.PASSED] * 3)
        assert app.adapters.stores.verifications.pending("run-1", at_most=9) == []
        planned = app.verification.plan("run-1", DUE, depth=Depth.SHALLOW)
        assert len(app.adapters.stores.verifications.pending("run-1", at_most=9)) == 3
        assert (len(planned.planned), verdicts(app)) == (3, [Verdict.EXPIRED] * 3)
        assert (planned.segments, planned.size_bytes) == (3, sum(each.segment_size_bytes for each in segments))


@pytest.mark.parametrize(("days", "expired"), [(89, 0), (91, 3)])
def test_verdicts_expire_after_ninety_days(deployment: TinyDeployment, days: int, expired: int) -> None:
    segments = deployment.copied(3)
    with deployment.open() as app:
        passed(app, segments)
        age(app, days * DAY)
        assert app.verification.expire_verdicts() == expired
        assert app.verification.expire_verdicts() == 0


def test_pages_of_verdicts_are_added_up(deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("include.tiering.verification.service._EXPIRED_AT_ONCE", 2)
    segments = deployment.copied(5)
    with deployment.open() as app:
        passed(app, segments)
        age(app, 91 * DAY)
        assert app.verification.expire_verdicts() == 5


def test_without_a_share_there_is_no_rolling_sample(deployment: TinyDeployment) -> None:
    with deployment.open() as app:
        assert app.verification.current_rolling_sample(0) is None
        whole = app.verification.current_rolling_sample(1.0)
        tenth = app.verification.current_rolling_sample(0.1)
        assert whole is not None
        assert tenth is not None
        assert whole.length == PLACES
        assert tenth.length == pytest.approx(PLACES / 10, rel=1e-6)
        assert app.verification.current_rolling_sample(0.1) == tenth


def test_a_whole_rolling_sample_chooses_what_has_passed_too_and_each_segment_once(deployment: TinyDeployment) -> None:
    segments = deployment.copied(3)
    with deployment.open() as app:
        passed(app, segments[:2])
        sample = VerificationSample(due=True, rolling_sample=app.verification.current_rolling_sample(1.0))
        planned = app.verification.plan("run-1", sample, depth=Depth.SHALLOW).planned
        ids = [each.segment_id for each in planned]
        assert sorted(ids, key=str) == sorted((each.remote_log_segment_id for each in segments), key=str)
        assert len(app.verification.plan("run-2", DUE, depth=Depth.SHALLOW).planned) == 1


def test_one_segment_is_planned_however_small_the_limit(deployment: TinyDeployment) -> None:
    deployment.copied(3)
    with deployment.open() as app:
        plan = app.verification.plan("run-1", ALL, depth=Depth.DEEP, limit_bytes=1)
        assert (len(plan.planned), plan.left_out, plan.segments) == (1, 2, 3)


def test_what_is_published_is_by_verdict_with_the_age_in_seconds(deployment: TinyDeployment) -> None:
    segments = deployment.copied(3)
    with deployment.open() as app:
        passed(app, segments[:2])
        age(app, 1_000)
        app.verification.publish_verdicts()
    with deployment.open() as app:
        series = app.adapters.metrics_writer.series
        for verdict, number in ((Verdict.PASSED, 2), (Verdict.NONE, 1), (Verdict.FAILED, 0), (Verdict.EXPIRED, 0)):
            labels = {"verdict": str(verdict)}
            assert stored_value(series, "tiering_verdict_segments", labels) == number
            size_bytes = sum(each.segment_size_bytes for each in segments[:number])
            assert stored_value(series, "tiering_verdict_bytes", labels) == size_bytes
        found = stored_value(series, "tiering_verdict_age_seconds", {"verdict": "passed"})
        assert 1_000 <= (found or 0) < 1_060
        assert stored_value(series, "tiering_verdict_age_seconds", {"verdict": "failed"}) == 0


def test_nothing_is_planned_and_no_verdict_expires_in_a_store_that_is_not_ours(
    deployment: TinyDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another() -> None:
        raise ForeignStoreError("another")

    segments = deployment.copied(2)
    with deployment.open() as app:
        passed(app, segments)
        age(app, 91 * DAY)
        monkeypatch.setattr(app.verification._ownership, "require", another)
        with pytest.raises(ForeignStoreError):
            app.verification.plan("run-1", ALL, depth=Depth.SHALLOW)
        assert verdicts(app) == [Verdict.PASSED] * 2
        assert app.adapters.stores.verifications.pending("run-1", at_most=9) == []
