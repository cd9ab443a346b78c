"""Verification with Great Expectations."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from great_expectations import ExpectationSuite
from great_expectations.render.renderer.page_renderer import ExpectationSuitePageRenderer
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from include.tiering.app import App, adapters, open_app
from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.copying.run_scope import RunScope
from include.tiering.database.schema import segments
from include.tiering.errors import MetadataUnavailableError, RuleEvaluationError
from include.tiering.model.segments import Depth, Verdict
from include.tiering.settings import load_settings
from include.tiering.verification.great_expectations_evaluator import GreatExpectationsEvaluator, expectations_of
from include.tiering.verification.measures import PartitionMeasure, SegmentMeasure
from include.tiering.verification.plan import VerificationReason, VerificationSample
from include.tiering.verification.rules import RULES, Level, explain
from include.tiering.verification.suites import (
    PARTITION_SUITES,
    SIZE_SUITES,
    STORED_SUITES,
    SizeMeasure,
    StoredMeasure,
    Suite,
    segment_suites,
)
from tests.doubles.broker_data import broker_data
from tests.doubles.plain_evaluator import PlainEvaluator

# Great Expectations says what plain Python says, on any measures; a rule that cannot be applied is no pass.

_COLUMNS = sorted({column for rule in RULES for column in rule.check.columns})
_NUMBERS = st.one_of(st.none(), st.just(0), st.sampled_from([1, 7, 2**32 - 1, 2**62, 2**62 + 1]))


def measure(**columns: Any) -> SegmentMeasure:
    return SegmentMeasure(
        **{
            "topic": "orders",
            "topic_id": "AQIDBAUGBwgJCgsMDQ4PEA",
            "partition": 3,
            "segment_id": "ERITFBUWFxgZGhscHR4fIA",
            "start_offset": 100,
            "end_offset": 199,
            **dict.fromkeys(_COLUMNS, 0),
            **columns,
        }
    )


@pytest.fixture(scope="module")
def evaluator() -> GreatExpectationsEvaluator[SegmentMeasure]:
    return GreatExpectationsEvaluator(segment_suites())


def test_faultless_measures_break_nothing(evaluator: GreatExpectationsEvaluator[SegmentMeasure]) -> None:
    assert evaluator.evaluate([measure(), measure()]) == ()
    assert evaluator.evaluate([]) == ()


@settings(max_examples=5)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(Depth), st.fixed_dictionaries({}, optional=dict.fromkeys(_COLUMNS, _NUMBERS))),
        min_size=1,
        max_size=40,
    )
)
def test_it_agrees_with_the_oracle(
    evaluator: GreatExpectationsEvaluator[SegmentMeasure], rows: list[tuple[Depth, dict[str, int | None]]]
) -> None:
    measures = [replace(measure(**columns), depth=depth) for depth, columns in rows]
    assert evaluator.evaluate(measures) == PlainEvaluator().evaluate(measures)


def test_what_could_not_be_measured_breaks_its_rule_and_no_other(
    evaluator: GreatExpectationsEvaluator[SegmentMeasure],
) -> None:
    unmeasured = [replace(measure(**{rule.check.column: None}), depth=max(rule.depths)) for rule in RULES]
    assert [(broken.measure, broken.rule) for broken in evaluator.evaluate([measure(), *unmeasured])] == list(
        zip(unmeasured, RULES, strict=True)
    )


def test_a_broken_rule_is_explained_by_its_numbers(evaluator: GreatExpectationsEvaluator[SegmentMeasure]) -> None:
    (broken,) = evaluator.evaluate([measure(missing_offsets=17)])
    assert (broken.measure, broken.rule.rule_id) == (measure(missing_offsets=17), "Q301")
    expected = "Expected: Only skipped offsets are missing after the previous segment. Found: missing_offsets = 17"
    assert explain(broken.rule, broken.measure) == expected


def test_a_remark_replaces_the_bare_number(evaluator: GreatExpectationsEvaluator[SegmentMeasure]) -> None:
    remarked = measure(manifest_differences=2, remarks=(("manifest_differences", "they differ in a, b"),))
    (broken,) = evaluator.evaluate([remarked])
    assert explain(broken.rule, broken.measure).endswith("Found: they differ in a, b")


class Incomparable(int):
    def __ne__(self, other: object) -> bool:
        raise ArithmeticError("nobody knows")


def test_a_rule_that_cannot_be_applied_is_an_error(evaluator: GreatExpectationsEvaluator[SegmentMeasure]) -> None:
    with pytest.raises(RuleEvaluationError, match=r"Q301 could not be applied.*nobody knows"):
        evaluator.evaluate([measure(), measure(missing_offsets=Incomparable(0))])


@settings(max_examples=3)
@given(data=st.data())
@pytest.mark.parametrize(
    ("suites", "kind"),
    [(PARTITION_SUITES, PartitionMeasure), (SIZE_SUITES, SizeMeasure), (STORED_SUITES, StoredMeasure)],
    ids=["partition", "sizes", "stored"],
)
def test_other_suites_agree_with_the_oracle(suites: tuple[Suite, ...], kind: type, data: st.DataObject) -> None:
    labels = {"topic": st.just("orders"), "topic_id": st.just("id"), "state": st.just("x"), "faults": st.just(())}
    columns = {field.name: labels.get(field.name, st.integers(0, 2)) for field in fields(kind)}
    measures = data.draw(st.lists(st.builds(kind, **columns), max_size=10))
    rules = [rule for suite in suites for rule in suite.rules]
    assert GreatExpectationsEvaluator[object](suites).evaluate(measures) == PlainEvaluator(rules).evaluate(measures)


def test_evaluating_makes_no_request(
    evaluator: GreatExpectationsEvaluator[SegmentMeasure], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("somebody was asked")

    for ask in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, ask, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert len(evaluator.evaluate([measure(missing_offsets=1)])) == 1
    assert GreatExpectationsEvaluator[SegmentMeasure](segment_suites()).evaluate([measure()]) == ()


def test_results_are_stored_by_suite_and_read_as_the_rules_say(tmp_path: Path) -> None:
    evaluator: GreatExpectationsEvaluator[SegmentMeasure] = GreatExpectationsEvaluator(
        segment_suites(), results_dir=tmp_path
    )
    assert evaluator.evaluate([measure(), measure(missing_offsets=17)])
    assert evaluator.evaluate([measure()]) == ()
    stored = [json.loads(file.read_text()) for file in sorted(tmp_path.rglob("*.json"))]
    by_suite = {suite.name: [one for one in stored if one["suite_name"] == suite.name] for suite in segment_suites()}
    assert all(len(results) == 2 for results in by_suite.values())
    (broken,) = (r for one in by_suite["succession"] for r in one["results"] if not r["success"])
    assert broken["expectation_config"]["description"] == "Only skipped offsets are missing after the previous segment."
    assert broken["expectation_config"]["severity"] == "critical"
    assert broken["result"]["unexpected_index_list"] == [1]
    assert broken["result"]["partial_unexpected_list"] == [
        {"topic": "orders", "partition": 3, "segment_id": "ERITFBUWFxgZGhscHR4fIA"}
    ]


def test_its_own_documents_would_say_the_sentence_of_a_rule() -> None:
    """Whoever renders a suite with Great Expectations reads sentences, not columns and sets."""
    for suite in (*segment_suites(), *PARTITION_SUITES, *SIZE_SUITES, *STORED_SUITES):
        page = ExpectationSuitePageRenderer().render(
            ExpectationSuite(name=suite.name, expectations=expectations_of(suite))
        )
        text = json.dumps(page.to_json_dict(), ensure_ascii=False)
        assert [rule.sentence for rule in suite.rules if rule.sentence not in text] == []


@pytest.mark.parametrize("depth", list(Depth))
def test_a_measure_is_evaluated_by_the_rules_of_its_depth(
    evaluator: GreatExpectationsEvaluator[SegmentMeasure], depth: Depth
) -> None:
    unmeasured = replace(measure(**dict.fromkeys(_COLUMNS)), depth=depth)
    broken = evaluator.evaluate([replace(measure(), depth=other) for other in Depth] + [unmeasured])
    assert [each.rule for each in broken] == [rule for rule in RULES if depth in rule.depths]


def test_rule_ids_are_unique_and_say_their_level() -> None:
    assert len({rule.rule_id for rule in RULES}) == len(RULES)
    first_digit = {Level.OBJECT: "1", Level.SEGMENT: "2", Level.PARTITION: "3"}
    assert all(rule.rule_id[1] == first_digit[rule.level] for rule in RULES)


def test_rules_and_measures_do_not_import_great_expectations() -> None:
    program = (
        "import sys; import include.tiering.verification.rules, include.tiering.verification.verify_segments;"
        "sys.exit('great_expectations' in sys.modules or 'pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# Verifying by plan with the real parts except the evaluator: verdicts grow old, are due, and are taken again.

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
        opened.copying.plan("copy-1", scope=RunScope(("payments*", "audit_log")))
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
