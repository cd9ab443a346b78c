"""Verifying by plan with the real parts but for the judge: verdicts grow old, are due, and are taken again."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import update

from include.tiering.database.schema import segments
from include.tiering.errors import MetadataUnavailableError
from include.tiering.model.depth import Depth
from include.tiering.model.verdict import Verdict
from include.tiering.quality.suites import Suite
from include.tiering.quota.config_store import ALL_BROKERS
from include.tiering.settings import load_settings
from include.tiering.tasks.plan_verification import Sample
from include.tiering.wiring import Tiering, open_tiering, quality_verbs
from include.tiering.work.verification_contract import VerificationReason
from tests.doubles.broker_data import broker_data
from tests.doubles.plain_judge import PlainJudge

DAY_MS = 24 * 60 * 60 * 1000


def plain_judge(suites: Sequence[Suite], results_dir: Path | None) -> PlainJudge:
    return PlainJudge([rule for suite in suites for rule in suite.rules])


@pytest.fixture
def tiering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiering]:
    """Without log dirs, so that nothing but metadata and store is asked."""
    monkeypatch.setattr(quality_verbs, "_great_expectations", plain_judge)
    brokers = broker_data("public") / "stopped"
    settings = load_settings(
        environ={
            "TIERING_LOG_DIRS": f"1:{brokers / 'broker-1'},2:{brokers / 'broker-2'}",
            "TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'tiering.db'}",
            "TIERING_REMOTE_STORAGE__URL": f"file://{tmp_path / 'remote'}",
        }
    )
    with open_tiering(settings) as opened:
        opened.migrate()
        opened.plan_copy("copy-1", topics=["payments*", "audit_log"])
        opened.copy_batch("copy-1", "copy-1/0")
        yield opened


def verdicts(tiering: Tiering) -> dict[Verdict, int]:
    return {total.verdict: total.segments for total in tiering.metadata.verdict_totals() if total.segments}


def make_older(tiering: Tiering, milliseconds: int) -> None:
    with tiering.engine.begin() as connection:
        connection.execute(update(segments).values(verdict_at_ms=segments.c.verdict_at_ms - milliseconds))


def reasons(tiering: Tiering, run_id: str, **rest) -> set[VerificationReason]:
    plan = tiering.plan_verification(run_id, Sample(due=True), depth=Depth.SHALLOW, **rest)
    return {one.reason for one in plan.planned}


def test_a_verdict_is_due_before_it_expires_and_then_no_longer_safe(tiering: Tiering) -> None:
    assert reasons(tiering, "v-1") == {VerificationReason.NEVER}
    copied = tiering.verify_planned("v-1").segments
    assert verdicts(tiering) == {Verdict.PASSED: copied}
    make_older(tiering, 80 * DAY_MS)
    assert reasons(tiering, "v-2") == set()
    make_older(tiering, 2 * DAY_MS)
    assert reasons(tiering, "v-3", dry_run=True) == {VerificationReason.EXPIRING}
    make_older(tiering, 9 * DAY_MS)
    # A dry run changes nothing, not even what is certain.
    assert reasons(tiering, "v-4", dry_run=True) == {VerificationReason.EXPIRING}
    assert verdicts(tiering) == {Verdict.PASSED: copied}
    assert reasons(tiering, "v-5") == {VerificationReason.EXPIRED}
    assert verdicts(tiering) == {Verdict.EXPIRED: copied}
    # Served all the same, and safe again once it was verified.
    assert {
        row.verdict.is_served for p in tiering.metadata.partitions() for row in tiering.metadata.list_segments(p)
    } == {True}
    assert tiering.verify_planned("v-5").segments == copied
    assert verdicts(tiering) == {Verdict.PASSED: copied}


def test_what_a_deep_look_convicted_is_read_deep_until_it_passes(tiering: Tiering, tmp_path: Path) -> None:
    tiering.verify()
    log = max((tmp_path / "remote").rglob("*.log"), key=lambda path: path.stat().st_size)
    content = log.read_bytes()
    middle = len(content) // 2
    log.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    tiering.plan_verification("v-1", Sample(everything=True), depth=Depth.DEEP)
    assert {finding.segment_id for finding in tiering.verify_planned("v-1").failed} == {log.stem[21:]}
    log.write_bytes(content)
    plan = tiering.plan_verification("v-2", Sample(due=True), depth=Depth.SHALLOW)
    assert [(one.depth, one.reason) for one in plan.planned] == [(Depth.DEEP, VerificationReason.FAILED)]
    assert plan.cost.read_bytes > len(content)
    assert tiering.verify_planned("v-2").failed == ()
    assert set(verdicts(tiering)) == {Verdict.PASSED}
    assert reasons(tiering, "v-3") == set()


def test_the_age_of_a_verdict_is_a_dynamic_setting(tiering: Tiering) -> None:
    copied = tiering.verify().segments
    make_older(tiering, DAY_MS)
    assert tiering.expire_verdicts() == 0
    tiering.alter_configs(ALL_BROKERS, {"tiering.verdict.max.age.ms": str(DAY_MS)}, author="test")
    assert tiering.expire_verdicts() == copied
    assert tiering.expire_verdicts() == 0


def test_the_cost_is_said_at_the_quota_in_force(tiering: Tiering) -> None:
    sample = Sample(everything=True)
    free = tiering.plan_verification("v-1", sample, depth=Depth.DEEP, dry_run=True)
    assert free.cost.seconds is None
    quota = {"tiering.fetch.total.max.bytes.per.second": "1000"}
    tiering.alter_configs(ALL_BROKERS, quota, author="test")
    paced = tiering.plan_verification("v-1", sample, depth=Depth.DEEP, dry_run=True)
    assert paced.cost.seconds == pytest.approx(free.cost.read_bytes / 1000)
    assert list(tiering.verifications.pending("v-1", at_most=1)) == []


def test_shares_of_consecutive_periods_reach_every_segment(tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = tiering.deletions.now_ms()
    found = set()
    for day in range(4):
        monkeypatch.setattr(type(tiering.deletions), "now_ms", lambda _, at=now_ms + day * DAY_MS: at)
        sample = Sample(turn=tiering.turn_of_now(0.25))
        plan = tiering.plan_verification(f"v-{day}", sample, depth=Depth.DEEP, dry_run=True)
        planned = {one.segment_id for one in plan.planned}
        assert planned.isdisjoint(found)
        found |= planned
    assert len(found) == plan.segments > 4
    assert tiering.turn_of_now(0) is None


def test_topics_and_partitions_narrow_a_sample(tiering: Tiering) -> None:
    def planned(**rest) -> set[str]:
        sample = Sample(everything=True, **rest)
        plan = tiering.plan_verification("v", sample, depth=Depth.SHALLOW, dry_run=True)
        return {str(one.segment_id.topic_id_partition) for one in plan.planned}

    assert planned(topics=("audit*",)) == {"audit_log-0", "audit_log-1"}
    assert planned(topics=("audit*",), partitions=frozenset({1})) == {"audit_log-1"}
    assert planned(partitions=frozenset({7})) == set()
    assert planned(topics=("payments*",), partitions=frozenset({0})) == {"payments.v1-eu-0"}


def test_nobody_is_asked_to_judge_before_there_is_something(
    tiering: Tiering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiering.verify()

    def imported_too_early(*_: object) -> None:
        raise AssertionError("Great Expectations takes seconds to import")

    monkeypatch.setattr(quality_verbs, "_great_expectations", imported_too_early)
    assert tiering.verify().segments == 0
    assert tiering.verify("unknown-run").segments == 0
    assert reasons(tiering, "v-1") == set()
    assert tiering.verify_planned("v-1").segments == 0
    empty = load_settings(environ={"TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'new.db'}"})
    with open_tiering(empty) as unmigrated, pytest.raises(MetadataUnavailableError):
        unmigrated.verify()
