"""Suite files with Great Expectations: what they add is evaluated as a rule; what it cannot load is refused first."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from include.tiering.app import App, open_app
from include.tiering.copying.run_scope import RunScope
from include.tiering.errors import SettingError
from include.tiering.model.segments import Depth, Verdict
from include.tiering.settings import load_settings
from include.tiering.verification.great_expectations_evaluator import GreatExpectationsEvaluator, check_expectations
from include.tiering.verification.measures import PartitionMeasure
from include.tiering.verification.plan import VerificationReason, VerificationSample
from include.tiering.verification.quality_run import read_results
from include.tiering.verification.rules import Severity
from include.tiering.verification.suite_files import columns_of, kwargs_of, read_suites, type_of
from include.tiering.verification.suites import ALL_SUITES, PARTITION_SUITES, SAFETY_RULES
from tests.doubles.broker_data import broker_data
from tests.doubles.source_tree import ROOT
from tests.integration.test_verification import measure, verdicts

BETWEEN = "expect_column_values_to_be_between"


def suite_file(directory: Path, suite: str, *expectations: Any, **members: Any) -> None:
    directory.mkdir(exist_ok=True)
    (directory / f"{suite}.json").write_text(json.dumps({"name": suite, "expectations": expectations, **members}))


def own(kind: str, rule_id: str = "own", *, severity: str = "critical", **kwargs: Any) -> dict[str, Any]:
    return {"type": kind, "kwargs": kwargs, "severity": severity, "meta": {"rule_id": rule_id}}


def broken(directory: Path, *measures: Any) -> list[tuple[int, str]]:
    suites = read_suites(directory)
    check_expectations(suites)
    found = GreatExpectationsEvaluator[Any](suites.segments).evaluate(measures)
    return [(measures.index(one.measure), one.rule.rule_id) for one in found]


def test_added_expectations_name_the_measures_that_break_them(tmp_path: Path) -> None:
    suite_file(
        tmp_path,
        "segments",
        own(BETWEEN, "size", column="segment_size_bytes", max_value=100),
        own("expect_column_values_to_match_regex", "name", column="topic", regex="^(?:orders|other)$"),
        own("expect_column_pair_values_a_to_be_greater_than_b", "pair", column_A="end_offset", column_B="start_offset"),
    )
    small, large = measure(segment_size_bytes=100), measure(segment_size_bytes=101, stored_log_size_bytes=101)
    assert broken(tmp_path, replace(small, stored_log_size_bytes=100), large) == [(1, "size")]
    renamed = replace(measure(), topic="payments", end_offset=99)
    assert broken(tmp_path, measure(), renamed) == [(1, "name"), (1, "pair")]


def test_a_row_condition_narrows_it_and_offsets_stay_exact(tmp_path: Path) -> None:
    condition = {"row_condition": 'topic == "payments"', "condition_parser": "pandas"}
    suite_file(tmp_path, "segments", own(BETWEEN, column="end_offset", max_value=2**62, **condition))
    other = measure(end_offset=2**62 + 1)
    assert broken(tmp_path, other, replace(other, topic="payments"), replace(other, topic="payments-2")) == [(1, "own")]


def test_what_is_removed_is_not_evaluated(tmp_path: Path) -> None:
    thinned = replace(measure(log_thinned_batches=3), depth=Depth.DEEP)
    suite_file(tmp_path, "segments")
    assert broken(tmp_path, thinned) == [(0, "Q269")]
    suite_file(tmp_path, "segments", meta={"remove": ["Q269"]})
    assert broken(tmp_path, thinned) == []


def test_results_of_added_expectations_are_stored_and_read_like_those_of_rules(tmp_path: Path) -> None:
    suite_file(tmp_path / "suites", "segments", own(BETWEEN, column="segment_size_bytes", max_value=100))
    suites = read_suites(tmp_path / "suites")
    large = measure(segment_size_bytes=101, stored_log_size_bytes=101)
    evaluator = GreatExpectationsEvaluator[Any](suites.segments, results_dir=tmp_path / "results")
    assert len(evaluator.evaluate([measure(), large])) == 1
    stored = read_results(tmp_path / "results")
    assert stored.unreadable == ()
    rules = {rule.rule_id: rule for suite in stored.suites for rule in suite.rules}
    assert (rules["own"].measured, rules["own"].broken, rules["own"].severity) == (2, 1, "critical")
    assert rules["own"].sentence.startswith(BETWEEN)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (own("expect_nonsense", column="topic"), "expect_nonsense not found"),
        (own(BETWEEN, column="topic", maximum=3), "maximum extra fields not permitted"),
        (own(BETWEEN, column="topic", max_value=3), "must either be None or of the same type"),
        (
            own("expect_column_values_to_be_betwen", column="end_offset", max_value=3),
            r"not found: did you mean expect_column_values_to_be_between\?",
        ),
        (own("expect_column_max_to_be_between", column="end_offset", max_value=3), "about a whole table"),
        (own("expect_column_values_to_be_unique", column="end_offset"), "compares rows with each other"),
        (own("expect_column_values_to_be_increasing", column="end_offset"), "compares rows with each other"),
        (own("expect_column_values_to_match_regex", column="topic", regex="("), "unterminated subpattern"),
    ],
    ids=["type", "argument", "text", "near", "table", "unique", "order", "regex"],
)
def test_what_cannot_be_loaded_or_applied_is_refused(tmp_path: Path, wrong: dict[str, Any], says: str) -> None:
    suite_file(tmp_path, "segments", wrong)
    with pytest.raises(SettingError, match=rf"segments\.json: expectation own: .*{says}") as refused:
        check_expectations(read_suites(tmp_path))
    assert "Traceback" not in str(refused.value)


# The application: before anything is measured, and what a verdict keeps.


@pytest.fixture
def open_with(tmp_path: Path) -> Iterator[Callable[[], App]]:
    opened: list[Any] = []

    def open_now() -> App:
        brokers = broker_data("public") / "stopped"
        settings = load_settings(
            environ={
                "TIERING_LOG_DIRS": f"1:{brokers / 'broker-1'},2:{brokers / 'broker-2'}",
                "TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'tiering.db'}",
                "TIERING_REMOTE_STORAGE__URL": f"file://{tmp_path / 'remote'}",
                "TIERING_SUITES__PATH": str(tmp_path / "suites"),
            }
        )
        opened.append(open_app(settings))
        app: App = opened[-1].__enter__()
        return app

    (tmp_path / "suites").mkdir()
    yield open_now
    for context in opened:
        context.__exit__(None, None, None)


@pytest.fixture
def app(open_with: Callable[[], App]) -> App:
    app = open_with()
    app.set_up.migrate()
    app.copying.plan("copy-1", scope=RunScope(("payments*",)))
    app.copying.run_batch("copy-1", "copy-1/0")
    return app


def test_a_wrong_file_stops_everything_before_anything_is_read(
    app: App, open_with: Callable[[], App], tmp_path: Path
) -> None:
    suite_file(tmp_path / "suites", "size-totals", own("expect_nonsense", column="counted_bytes"))
    again = open_with()
    again.adapters.__dict__["storage"] = None
    for run in (
        lambda: again.verification.verify_run(),
        lambda: again.verification.run_planned("v"),
        lambda: again.verification.plan("v", VerificationSample(everything=True), depth=Depth.SHALLOW),
        lambda: again.verification.verify_partitions(),
    ):
        with pytest.raises(SettingError, match=r"size-totals\.json: expectation own: expect_nonsense not found"):
            run()


def test_what_a_partition_without_faults_breaks_is_refused(tmp_path: Path) -> None:
    suite_file(tmp_path, "partition-lineage", own(BETWEEN, column="missing_offsets", min_value=1))
    with pytest.raises(SettingError, match=r"partition-lineage\.json: expectation own: a partition without any fault"):
        check_expectations(read_suites(tmp_path))
    suite_file(tmp_path, "partition-lineage", own(BETWEEN, column="missing_offsets", max_value=1))
    check_expectations(read_suites(tmp_path))


def test_readiness_names_a_wrong_file_without_great_expectations(app: App, tmp_path: Path) -> None:
    probe = app.deployment_checks.probes(None, None, needs_log_dirs=False)["suites"]
    assert probe() == "no file changes a rule"
    suite_file(tmp_path / "suites", "segments", own("expect_nonsense", column="topic"))
    assert probe() == "added own"
    suite_file(tmp_path / "suites", "segments", meta={"remove": ["Q262"]})
    with pytest.raises(SettingError, match="Q262 cannot be removed"):
        probe()


def test_what_an_expectation_found_deep_stays_until_a_deep_verification_or_its_end(
    app: App, open_with: Callable[[], App], tmp_path: Path
) -> None:
    suite_file(tmp_path / "suites", "segments", own(BETWEEN, column="read_log_crc32c", max_value=0))
    strict = open_with()
    strict.verification.plan("v-1", VerificationSample(everything=True), depth=Depth.DEEP)
    report = strict.verification.run_planned("v-1")
    assert {finding.rule for finding in report.failed} == {"own"}
    assert {finding.level for finding in report.failed} == {"segment"}
    assert report.failed[0].message.startswith(f"Expected: {BETWEEN}")
    assert "Found: read_log_crc32c = " in report.failed[0].message
    copied = report.segments
    assert verdicts(strict) == {Verdict.FAILED: copied}
    assert strict.verification.verify_run(depth=Depth.SHALLOW).segments == copied
    assert verdicts(strict) == {Verdict.FAILED: copied}
    plan = strict.verification.plan("v-2", VerificationSample(due=True), depth=Depth.SHALLOW)
    assert {(one.depth, one.reason) for one in plan.planned} == {(Depth.DEEP, VerificationReason.FAILED)}
    assert {finding.level for _, finding in strict.verification.findings_of("v-1")} == {"segment"}
    (tmp_path / "suites" / "segments.json").unlink()
    assert open_with().verification.verify_run().failed == ()
    assert verdicts(strict) == {Verdict.PASSED: copied}


# The page, as it is written.

PAGE = (ROOT / "docs" / "expectations.md").read_text()
FILES = dict(re.findall(r"`/etc/tiering/suites/([^`]+\.json)`:\n\n```json\n(.*?)```", PAGE, re.DOTALL))


def test_the_examples_of_the_page_do_what_it_says(open_with: Callable[[], App], app: App, tmp_path: Path) -> None:
    assert len(FILES) == 3
    for name, content in FILES.items():
        (tmp_path / "suites" / name).write_text(content)
    app.copying.plan("copy-2", scope=RunScope(("bigrecs",)))
    app.copying.run_batch("copy-2", "copy-2/0")
    app = open_with()
    assert f"`{app.deployment_checks.probes(None, None, needs_log_dirs=False)['suites']()}`" in PAGE
    app.verification.plan("v", VerificationSample(everything=True), depth=Depth.DEEP)
    report = app.verification.run_planned("v")
    assert report.failed == ()
    assert [(finding.topic, finding.rule) for finding in report.warnings] == [("bigrecs", "small-segments")]
    assert f"\n    {report.warnings[0].message}\n" in PAGE


def test_the_removed_rule_of_the_page_would_warn_and_the_tightened_one_fails(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    thinned = replace(measure(log_thinned_batches=1), depth=Depth.DEEP)
    assert GreatExpectationsEvaluator[Any](read_suites(None).segments).evaluate([thinned])
    suites = read_suites(tmp_path)
    assert not GreatExpectationsEvaluator[Any](suites.segments).evaluate([thinned])
    columns: dict[str, Any] = dict.fromkeys(columns_of(PartitionMeasure), 0)
    columns.update(topic="orders", topic_id="id", duplicate_segments=1)
    twice = PartitionMeasure(**columns)
    severities = [
        broken.rule.severity
        for partitions in (PARTITION_SUITES, suites.partitions)
        for broken in GreatExpectationsEvaluator[Any](partitions).evaluate([twice])
    ]
    assert severities == [Severity.WARNING, Severity.CRITICAL]


def test_the_page_has_every_rule_and_every_column() -> None:
    for suite in ALL_SUITES:
        assert f"### `{suite.name}`" in PAGE
        assert {column for column in columns_of(suite.measure) if f"`{column}`" not in PAGE} == set()
        for rule in suite.rules:
            fixed = "yes" if rule.rule_id in SAFETY_RULES else "no"
            kwargs = json.dumps(kwargs_of(rule.check))
            row = f"{rule.rule_id} | {rule.sentence} | `{type_of(rule.check)}` `{kwargs}` | {rule.severity} | {fixed}"
            assert f"| {row} |\n" in PAGE
