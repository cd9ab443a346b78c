"""Verifying by plan with the real parts except the evaluator: verdicts grow old, are due, and are taken again."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from include.tiering.app import App, adapters, open_app
from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.database.schema import segments
from include.tiering.errors import MetadataUnavailableError
from include.tiering.model.segments import Depth, Verdict
from include.tiering.settings import load_settings
from include.tiering.verification.plan import VerificationReason, VerificationSample
from include.tiering.verification.suites import Suite
from tests.doubles.broker_data import broker_data
from tests.doubles.plain_evaluator import PlainEvaluator

DAY_MS = 24 * 60 * 60 * 1000


def plain_evaluator(suites: Sequence[Suite], results_dir: Path | None) -> PlainEvaluator:
    return PlainEvaluator([rule for suite in suites for rule in suite.rules])


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """Without log dirs, so that nothing but metadata and store is asked."""
    monkeypatch.setattr(adapters, "great_expectations", plain_evaluator)
    brokers = broker_data("public") / "stopped"
    settings = load_settings(
        environ={
            "TIERING_LOG_DIRS": f"1:{brokers / 'broker-1'},2:{brokers / 'broker-2'}",
            "TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'tiering.db'}",
            "TIERING_REMOTE_STORAGE__URL": f"file://{tmp_path / 'remote'}",
        }
    )
    with open_app(settings) as opened:
        opened.set_up.migrate()
        opened.copying.plan("copy-1", topics=["payments*", "audit_log"])
        opened.copying.run_batch("copy-1", "copy-1/0")
        yield opened


def verdicts(app: App) -> dict[Verdict, int]:
    return {total.verdict: total.segments for total in app.adapters.stores.metadata.verdict_totals() if total.segments}


def make_older(app: App, milliseconds: int) -> None:
    with app.adapters.engine.begin() as connection:
        connection.execute(update(segments).values(verdict_at_ms=segments.c.verdict_at_ms - milliseconds))


def reasons(app: App, run_id: str, **rest) -> set[VerificationReason]:
    plan = app.verification.plan(run_id, VerificationSample(due=True), depth=Depth.SHALLOW, **rest)
    return {one.reason for one in plan.planned}


def test_a_verdict_is_due_before_it_expires_and_then_no_longer_safe(app: App) -> None:
    assert reasons(app, "v-1") == {VerificationReason.NEVER}
    copied = app.verification.run_planned("v-1").segments
    assert verdicts(app) == {Verdict.PASSED: copied}
    make_older(app, 80 * DAY_MS)
    assert reasons(app, "v-2") == set()
    make_older(app, 2 * DAY_MS)
    assert reasons(app, "v-3", dry_run=True) == {VerificationReason.EXPIRING}
    make_older(app, 9 * DAY_MS)
    # A dry run changes nothing, not even what is certain.
    assert reasons(app, "v-4", dry_run=True) == {VerificationReason.EXPIRING}
    assert verdicts(app) == {Verdict.PASSED: copied}
    assert reasons(app, "v-5") == {VerificationReason.EXPIRED}
    assert verdicts(app) == {Verdict.EXPIRED: copied}
    # Served all the same, and safe again once it was verified.
    assert {
        row.verdict.is_served
        for p in app.adapters.stores.metadata.partitions()
        for row in app.adapters.stores.metadata.list_segments(p)
    } == {True}
    assert app.verification.run_planned("v-5").segments == copied
    assert verdicts(app) == {Verdict.PASSED: copied}


def test_what_a_deep_verification_failed_is_read_deep_until_it_passes(app: App, tmp_path: Path) -> None:
    app.verification.verify_run()
    log = max((tmp_path / "remote").rglob("*.log"), key=lambda path: path.stat().st_size)
    content = log.read_bytes()
    middle = len(content) // 2
    log.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    app.verification.plan("v-1", VerificationSample(everything=True), depth=Depth.DEEP)
    assert {finding.segment_id for finding in app.verification.run_planned("v-1").failed} == {log.stem[21:]}
    log.write_bytes(content)
    plan = app.verification.plan("v-2", VerificationSample(due=True), depth=Depth.SHALLOW)
    assert [(one.depth, one.reason) for one in plan.planned] == [(Depth.DEEP, VerificationReason.FAILED)]
    assert plan.cost.read_bytes > len(content)
    assert app.verification.run_planned("v-2").failed == ()
    assert set(verdicts(app)) == {Verdict.PASSED}
    assert reasons(app, "v-3") == set()


def test_the_age_of_a_verdict_is_a_dynamic_setting(app: App) -> None:
    copied = app.verification.verify_run().segments
    make_older(app, DAY_MS)
    assert app.verification.expire_verdicts() == 0
    app.configs.alter(ALL_BROKERS, {"tiering.verdict.max.age.ms": str(DAY_MS)}, author="test")
    assert app.verification.expire_verdicts() == copied
    assert app.verification.expire_verdicts() == 0


def test_the_cost_is_said_at_the_quota_in_force(app: App) -> None:
    sample = VerificationSample(everything=True)
    free = app.verification.plan("v-1", sample, depth=Depth.DEEP, dry_run=True)
    assert free.cost.seconds is None
    quota = {"tiering.fetch.total.max.bytes.per.second": "1000"}
    app.configs.alter(ALL_BROKERS, quota, author="test")
    paced = app.verification.plan("v-1", sample, depth=Depth.DEEP, dry_run=True)
    assert paced.cost.seconds == pytest.approx(free.cost.read_bytes / 1000)
    assert list(app.adapters.stores.verifications.pending("v-1", at_most=1)) == []


def test_shares_of_consecutive_periods_reach_every_segment(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = app.adapters.stores.deletions.now_ms()
    found: set[Any] = set()
    for day in range(4):
        monkeypatch.setattr(app.verification, "_now_ms", lambda at=now_ms + day * DAY_MS: at)
        sample = VerificationSample(rolling_sample=app.verification.current_rolling_sample(0.25))
        plan = app.verification.plan(f"v-{day}", sample, depth=Depth.DEEP, dry_run=True)
        planned = {one.segment_id for one in plan.planned}
        assert planned.isdisjoint(found)
        found |= planned
    assert len(found) == plan.segments > 4
    assert app.verification.current_rolling_sample(0) is None


def test_topics_and_partitions_narrow_a_sample(app: App) -> None:
    def planned(**rest) -> set[str]:
        sample = VerificationSample(everything=True, **rest)
        plan = app.verification.plan("v", sample, depth=Depth.SHALLOW, dry_run=True)
        return {str(one.segment_id.topic_id_partition) for one in plan.planned}

    assert planned(topics=("audit*",)) == {"audit_log-0", "audit_log-1"}
    assert planned(topics=("audit*",), partitions=frozenset({1})) == {"audit_log-1"}
    assert planned(partitions=frozenset({7})) == set()
    assert planned(topics=("payments*",), partitions=frozenset({0})) == {"payments.v1-eu-0"}


def test_no_evaluator_is_made_before_there_is_a_measure(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.verification.verify_run()

    def imported_too_early(*_: object) -> None:
        raise AssertionError("Great Expectations takes seconds to import")

    monkeypatch.setattr(adapters, "great_expectations", imported_too_early)
    assert app.verification.verify_run().segments == 0
    assert app.verification.verify_run("unknown-run").segments == 0
    assert reasons(app, "v-1") == set()
    assert app.verification.run_planned("v-1").segments == 0
    empty = load_settings(environ={"TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'new.db'}"})
    with open_app(empty) as unmigrated, pytest.raises(MetadataUnavailableError):
        unmigrated.verification.verify_run()
