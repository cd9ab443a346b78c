"""Great Expectations says what plain Python says, on any measures; a rule that cannot be applied is no pass."""

import json
import socket
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from great_expectations import ExpectationSuite
from great_expectations.render.renderer.page_renderer import ExpectationSuitePageRenderer
from hypothesis import given, settings
from hypothesis import strategies as st

from include.tiering.errors import RuleEvaluationError
from include.tiering.model.segments import Depth
from include.tiering.verification.great_expectations_evaluator import GreatExpectationsEvaluator, expectations_of
from include.tiering.verification.measures import PartitionMeasure, SegmentMeasure
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
from tests.doubles.plain_evaluator import PlainEvaluator

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
    expected = "No offset is missing after the previous segment. Found: missing_offsets = 17"
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
    assert broken["expectation_config"]["description"] == "No offset is missing after the previous segment."
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
