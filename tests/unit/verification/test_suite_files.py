"""Suite files: what they add, remove and tighten, and what is refused before anything runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from include.tiering.errors import SettingError
from include.tiering.model.segments import Depth
from include.tiering.verification.measures import PartitionMeasure, SegmentMeasure
from include.tiering.verification.rules import AreEqual, Expects, IsZero, Level, Rule, Severity
from include.tiering.verification.suite_files import columns_of, kwargs_of, read_suites, type_of
from include.tiering.verification.suites import ALL_SUITES, SAFETY_RULES, Suite

BETWEEN = "expect_column_values_to_be_between"


def expectation(rule_id: str, kind: str = BETWEEN, **members: Any) -> dict[str, Any]:
    kwargs = members.pop("kwargs", {"column": "segment_size_bytes", "max_value": 100})
    return {"type": kind, "kwargs": kwargs, "meta": {"rule_id": rule_id}, **members}


def write(directory: Path, suite: str, *expectations: Any, **members: Any) -> Path:
    path = directory / f"{suite}.json"
    path.write_text(json.dumps({"name": suite, "expectations": list(expectations), **members}))
    return directory


def rules_of(directory: Path) -> dict[str, Rule]:
    return {rule.rule_id: rule for suite in read_suites(directory).all for rule in suite.rules}


BUILT_IN = {rule.rule_id: rule for suite in ALL_SUITES for rule in suite.rules}


def test_without_files_nothing_changes(tmp_path: Path) -> None:
    (tmp_path / ".ge_store_backend_id").write_text("not a suite")
    assert read_suites(None).all == read_suites(tmp_path).all == ALL_SUITES
    assert read_suites(tmp_path).changes == "no file changes a rule"


def test_an_expectation_is_added_after_the_rules_of_its_suite(tmp_path: Path) -> None:
    write(tmp_path, "segments", expectation("small", severity="warning", description="No segment is large."))
    added = rules_of(tmp_path)["small"]
    assert added == Rule(
        "small",
        Level.SEGMENT,
        Expects(BETWEEN, '{"column": "segment_size_bytes", "max_value": 100}', ("segment_size_bytes",)),
        "No segment is large.",
        Severity.WARNING,
    )
    assert {**rules_of(tmp_path)} == {**BUILT_IN, "small": added}
    assert read_suites(tmp_path).changes == "added small"
    assert read_suites(tmp_path).has_expectations


def test_without_severity_and_description_it_is_critical_and_says_what_it_is(tmp_path: Path) -> None:
    added = rules_of(write(tmp_path, "segments", expectation("small")))["small"]
    assert added.severity is Severity.CRITICAL
    assert added.sentence == f'{BETWEEN} {{"column": "segment_size_bytes", "max_value": 100}}'


def test_a_rule_is_removed(tmp_path: Path) -> None:
    write(tmp_path, "segments", meta={"remove": ["Q269"], "great_expectations_version": "1.24.1"})
    assert BUILT_IN.keys() - rules_of(tmp_path).keys() == {"Q269"}
    assert read_suites(tmp_path).changes == "removed Q269"
    assert not read_suites(tmp_path).has_expectations


def test_a_warning_is_made_critical_and_keeps_its_meaning(tmp_path: Path) -> None:
    kwargs = {"column": "unexplained_overlap"}
    write(tmp_path, "succession", expectation("Q302", "expect_no_faults", kwargs=kwargs, severity="critical"))
    changed = rules_of(tmp_path)
    assert changed["Q302"].severity is Severity.CRITICAL
    assert {name for name in BUILT_IN if changed[name] != BUILT_IN[name]} == {"Q302"}
    assert changed["Q302"].check == BUILT_IN["Q302"].check
    assert read_suites(tmp_path).changes == "changed Q302 is critical"


def test_the_own_types_may_be_used_for_further_columns(tmp_path: Path) -> None:
    write(
        tmp_path,
        "segments",
        expectation("a", "expect_no_faults", kwargs={"column": "start_offset", "identity": ["topic"]}),
        expectation("b", "expect_equal_measures", kwargs={"column": "start_offset", "other": "end_offset"}),
    )
    rules = rules_of(tmp_path)
    assert (rules["a"].check, rules["b"].check) == (IsZero("start_offset"), AreEqual("start_offset", "end_offset"))
    assert not read_suites(tmp_path).has_expectations


@pytest.mark.parametrize(
    ("kwargs", "depths"),
    [
        ({"column": "segment_size_bytes"}, {Depth.SHALLOW, Depth.DEEP}),
        ({"column": "log_unreadable_bytes"}, {Depth.DEEP}),
        ({"column": "segment_size_bytes", "row_condition": "log_unreadable_bytes == 0"}, {Depth.DEEP}),
        ({"column_list": ["segment_size_bytes", "first_batch_faults"]}, {Depth.SHALLOW}),
    ],
)
def test_it_is_evaluated_where_all_of_its_columns_are_measured(
    tmp_path: Path, kwargs: dict[str, Any], depths: set[Depth]
) -> None:
    """Otherwise a shallow verification would clear what a deep one found: the value is missing there."""
    assert rules_of(write(tmp_path, "segments", expectation("own", kwargs=kwargs)))["own"].depths == depths


def test_the_columns_of_a_row_condition_are_shown(tmp_path: Path) -> None:
    kwargs = {"column": "segment_size_bytes", "row_condition": 'topic == "orders"', "condition_parser": "pandas"}
    check = rules_of(write(tmp_path, "segments", expectation("own", kwargs=kwargs)))["own"].check
    assert check.columns == ("segment_size_bytes", "topic")


@pytest.mark.parametrize("rule_id", sorted(SAFETY_RULES))
def test_no_file_removes_a_safety_rule_or_makes_it_a_warning(tmp_path: Path, rule_id: str) -> None:
    suite = next(suite for suite in ALL_SUITES for rule in suite.rules if rule.rule_id == rule_id)
    check = BUILT_IN[rule_id].check
    write(tmp_path, suite.name, meta={"remove": [rule_id]})
    with pytest.raises(SettingError, match=rf"{suite.name}\.json.*{rule_id} cannot be removed.* but S111, S112, S202$"):
        read_suites(tmp_path)
    write(tmp_path, suite.name, expectation(rule_id, type_of(check), kwargs=kwargs_of(check), severity="warning"))
    with pytest.raises(SettingError, match=f"{rule_id} cannot be made a warning"):
        read_suites(tmp_path)


def test_the_rules_that_may_go_are_the_warnings_and_three_about_sizes() -> None:
    warnings = {rule_id for rule_id, rule in BUILT_IN.items() if rule.severity is Severity.WARNING}
    assert BUILT_IN.keys() - SAFETY_RULES == warnings | {"S111", "S112", "S202"}
    assert len(warnings) == 9


WRONG: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("segments", [expectation("Q269")], {}, "Q269 is a built-in rule, expect_no_faults.*may change only its severity"),
    ("segments", [expectation("Q999")], {}, "segments has no rule Q999, and ids of this form are reserved"),
    ("segments", [expectation("Q302")], {}, "segments has no rule Q302"),
    ("segments", [expectation("own"), expectation("own")], {}, "own is used twice"),
    ("segments", [expectation("-")], {}, "rule_id is '-'; accepted are"),
    ("segments", [expectation("own", severity="info")], {}, "severity is 'info'; accepted are critical and warning"),
    ("segments", [expectation("own", description=1)], {}, "description is not a string"),
    ("segments", [expectation("own", depth="deep")], {}, r"unknown member expectations\[0\].depth"),
    ("segments", [{"type": BETWEEN, "kwargs": {}}], {}, r"expectations\[0\].meta is missing"),
    ("segments", [expectation("own", kwargs={"column": "segment_size_byte"})], {}, "did you mean segment_size_bytes"),
    ("segments", [expectation("own", kwargs={"column": ["topic"]})], {}, "is not a column"),
    ("segments", [expectation("own", kwargs={"column": "remarks"})], {}, "is not a column of segments"),
    ("segments", [expectation("own", kwargs={"max_value": 1})], {}, "names no column"),
    ("segments", [expectation("own", kwargs={"column": "topic", "mostly": 0.9})], {}, "mostly is 0.9"),
    (
        "segments",
        [expectation("own", kwargs={"column": "topic", "result_format": "BASIC"})],
        {},
        "_format cannot",
    ),
    (
        "segments",
        [expectation("own", kwargs={"column_list": ["first_batch_faults", "log_wrong_crcs"]})],
        {},
        "no depth measures all of first_batch_faults, log_wrong_crcs",
    ),
    ("partition-lineage", [expectation("own", kwargs={"column": "segments"})], {}, "needs one of duplicate_segments"),
    ("segments", [], {"meta": {"remove": ["Q302"]}}, "the suite segments has no rule Q302"),
    ("segments", [], {"meta": {"remove": "Q269"}}, "remove is not an array"),
    ("segments", [], {"meta": {"removed": ["Q269"]}}, "unknown member meta.removed"),
    ("segments", [expectation("Q269")], {"meta": {"remove": ["Q269"]}}, "both in meta.remove and among"),
    ("segments", [], {"name": "objects"}, "name is 'objects'; in a file of this name it must be 'segments'"),
    ("segments", [], {"suite_parameters": {"a": 1}}, "suite_parameters are not supported"),
    ("segments", [], {"expectations": {}}, "expectations is not an array"),
    ("segment", [], {}, "there is no suite segment: did you mean segments"),
]


@pytest.mark.parametrize(("suite", "expectations", "members", "says"), WRONG)
def test_a_wrong_file_is_refused(
    tmp_path: Path, suite: str, expectations: list[Any], members: dict[str, Any], says: str
) -> None:
    with pytest.raises(SettingError, match=says) as refused:
        read_suites(write(tmp_path, suite, *expectations, **members))
    assert str(tmp_path / f"{suite}.json") in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"name": "segments", "name": "segments"}', b"\xff"])
def test_what_is_no_json_object_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "segments.json").write_bytes(content)
    with pytest.raises(SettingError, match=r"segments\.json"):
        read_suites(tmp_path)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"suites\.path: .*missing cannot be read: No such file"):
        read_suites(tmp_path / "missing")
    (tmp_path / "segments.json").mkdir()
    with pytest.raises(SettingError, match=r"suites\.path: .*segments\.json cannot be read: Is a directory"):
        read_suites(tmp_path)


def test_an_id_is_used_in_one_suite_only(tmp_path: Path) -> None:
    write(tmp_path, "objects", expectation("own"))
    write(tmp_path, "segments", expectation("own"))
    with pytest.raises(SettingError, match=r"segments\.json: own is used twice, first in objects\.json"):
        read_suites(tmp_path)


def test_a_column_is_a_text_or_a_number() -> None:
    assert columns_of(SegmentMeasure)["topic"] == (str, False)
    assert columns_of(SegmentMeasure)["log_crc32c"] == (int, True)
    assert {"remarks", "depth"}.isdisjoint(columns_of(SegmentMeasure))
    assert "faults" not in columns_of(PartitionMeasure)


def test_every_rule_of_a_suite_reads_columns_that_a_file_can_name() -> None:
    def unknown(suite: Suite) -> set[str]:
        return {column for rule in suite.rules for column in rule.check.columns} - columns_of(suite.measure).keys()

    assert [unknown(suite) for suite in ALL_SUITES] == [set()] * len(ALL_SUITES)
