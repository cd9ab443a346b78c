"""Great Expectations says what plain Python says, on any measures; a rule that cannot be applied is no pass."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from include.tiering.errors import JudgeError
from include.tiering.quality.great_expectations_judge import GreatExpectationsJudge
from include.tiering.quality.judge import finding_of
from include.tiering.quality.measures import SegmentMeasure
from include.tiering.quality.rules import RULES, IsZero, Level, Rule
from tests.doubles.plain_judge import PlainJudge

_COLUMNS = sorted({column for rule in RULES for column in rule.check.columns})
_NUMBERS = st.one_of(st.none(), st.just(0), st.sampled_from([1, 7, 2**32 - 1, 2**62, 2**62 + 1]))


def measure(**columns: int | None) -> SegmentMeasure:
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
def judge() -> GreatExpectationsJudge:
    return GreatExpectationsJudge(RULES)


def test_faultless_measures_break_nothing(judge: GreatExpectationsJudge) -> None:
    assert judge.judge([measure(), measure()]) == ()
    assert judge.judge([]) == ()


@settings(max_examples=5)
@given(rows=st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(_COLUMNS, _NUMBERS)), min_size=1, max_size=40))
def test_it_agrees_with_the_oracle(judge: GreatExpectationsJudge, rows: list[dict[str, int | None]]) -> None:
    measures = [measure(**row) for row in rows]
    assert judge.judge(measures) == PlainJudge().judge(measures)


def test_what_could_not_be_measured_breaks_its_rule_and_no_other(judge: GreatExpectationsJudge) -> None:
    unmeasured = [measure(**{rule.check.column: None}) for rule in RULES]
    assert [(broken.measure, broken.rule) for broken in judge.judge([measure(), *unmeasured])] == list(
        zip(unmeasured, RULES, strict=True)
    )


def test_a_finding_names_segment_rule_and_numbers(judge: GreatExpectationsJudge) -> None:
    (broken,) = judge.judge([measure(missing_offsets=17)])
    finding = finding_of(broken)
    assert (finding.topic, finding.partition, finding.start_offset) == ("orders", 3, 100)
    assert (finding.rule, finding.level) == ("Q301", "partition")
    assert finding.message == "No offset is missing after the previous segment. Found: missing_offsets = 17"


def test_a_remark_replaces_the_bare_number(judge: GreatExpectationsJudge) -> None:
    remarked = measure(manifest_differences=2, remarks=(("manifest_differences", "they differ in a, b"),))
    (broken,) = judge.judge([remarked])
    assert finding_of(broken).message.endswith("Found: they differ in a, b")


def test_a_rule_that_cannot_be_applied_is_an_error(judge: GreatExpectationsJudge) -> None:
    crippled = GreatExpectationsJudge([Rule("Q999", Level.OBJECT, IsZero("missing_offsets"), "Never.")])
    crippled._columns.remove("missing_offsets")
    with pytest.raises(JudgeError, match="Q999"):
        crippled.judge([measure()])


def test_rule_ids_are_unique_and_say_their_level() -> None:
    assert len({rule.rule_id for rule in RULES}) == len(RULES)
    first_digit = {Level.OBJECT: "1", Level.SEGMENT: "2", Level.PARTITION: "3"}
    assert all(rule.rule_id[1] == first_digit[rule.level] for rule in RULES)


def test_rules_and_measures_do_not_import_great_expectations() -> None:
    program = (
        "import sys; import include.tiering.quality.judge, include.tiering.tasks.verify_segments;"
        "sys.exit('great_expectations' in sys.modules or 'pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
