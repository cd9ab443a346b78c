"""Data docs: pages and the site of them."""

import base64
import hashlib
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from include.tiering.errors import DataDocsError
from include.tiering.html_markup import CONTENT_SECURITY_POLICY, MAX_TEXT_CHARACTERS
from include.tiering.verification.data_docs import MAX_LINES, DataDocs, list_page, run_page
from include.tiering.verification.quality_run import (
    PAGE_NAME,
    QualityRun,
    RuleOutcome,
    RunSummary,
    StoredResults,
    SuiteOutcome,
    anchor_of,
    page_name,
    read_results,
)
from include.tiering.verification.rules import QualityFinding
from tests.doubles.self_contained import parsed

# Pages: what they say, that nothing breaks out of them, that they ask nobody for anything.

FINDING = QualityFinding(
    topic="orders",
    partition=3,
    topic_id="AQIDBAUGBwgJCgsMDQ4PEA",
    segment_id="ERITFBUWFxgZGhscHR4fIA",
    start_offset=12_300,
    rule="Q102",
    level="object",
    message="The checksum that the store computed over the log is the source's. Found: stored_log_crc32c = 7",
)
RESULTS = StoredResults(
    suites=(
        SuiteOutcome(
            "objects",
            "Each object in the store",
            (
                RuleOutcome("Q101", "The stored log is as long as the source's.", "critical", 14, 0),
                RuleOutcome("Q102", "The checksum is the source's.", "critical", 14, 1),
            ),
        ),
    ),
    unreadable=(),
    evaluated_by=("1.24.1",),
)
RUN = QualityRun(
    origin="tiering_quality",
    run_id="scheduled__2026-11-21T20:00:00+00:00",
    depth="deep",
    began_at_ms=1_700_000_000_000,
    ended_at_ms=1_700_000_075_000,
    segments=14,
    bytes_read=3 * 1024**2,
    failed=(FINDING, replace(FINDING, rule="Q301", message="No offset is missing.")),
    warnings=(replace(FINDING, rule="Q302", segment_id="IRITFBUWFxgZGhscHR4fIA", start_offset=99),),
)


def test_a_page_says_what_failed_in_a_line_per_segment() -> None:
    page = parsed(run_page(RUN, RESULTS))
    said = " ".join(" ".join(page.text).split())
    assert page.faults == []
    assert "1 of 14 segments failed, 1 with warnings" in said
    assert "orders-3 12,300 ERITFBUWFxgZGhscHR4fIA Q102 The checksum" in said
    assert "Q301 No offset is missing." in said
    assert "The next run of tiering_copy copies them again" in said
    assert "2023-11-14 22:13:20 UTC" in said
    assert "1m 15s" in said
    assert "3.0 MiB" in said
    assert "Each object in the store: 2 rules, 1 broken" in said
    assert "Evaluated by Great Expectations 1.24.1" in said
    assert page.ids == ["segment-ERITFBUWFxgZGhscHR4fIA", "segment-IRITFBUWFxgZGhscHR4fIA"]
    assert "#segment-ERITFBUWFxgZGhscHR4fIA" in page.links


def test_a_segment_that_breaks_many_rules_has_one_line() -> None:
    rules = ("Q101", "Q102", "Q105", "Q261")
    broken = tuple(replace(FINDING, rule=rule) for rule in rules)
    odd = replace(FINDING, rule="Q269")
    run = replace(RUN, failed=broken, warnings=(odd,))
    summary = RunSummary.of(run)
    assert (summary.failed_segments, summary.warned_segments) == (1, 0)
    (line,) = summary.first_lines
    assert line.rules == (*rules, "Q269")
    assert line.text.startswith("Q101, Q102, Q105 and 2 more: The checksum")
    page = parsed(run_page(run, RESULTS))
    assert page.ids == ["segment-ERITFBUWFxgZGhscHR4fIA"]
    assert "3 more rules" in page.text
    assert page.faults == []


def test_a_run_without_findings_and_one_without_segments() -> None:
    right = parsed(run_page(replace(RUN, failed=(), warnings=()), RESULTS))
    assert "All 14 segments passed" in right.text
    assert "copies them again" not in " ".join(right.text)
    nothing = parsed(run_page(replace(RUN, failed=(), warnings=(), segments=0), StoredResults((), ("a.json: x",), ())))
    assert "No segment was verified" in nothing.text
    assert any("a.json" in text for text in nothing.text)
    assert nothing.faults == right.faults == []


def test_segments_that_were_not_copied_are_named() -> None:
    page = parsed(run_page(replace(RUN, failed=(), remarks=("orders-1 from offset 5: not copied: gone",)), RESULTS))
    assert "orders-1 from offset 5: not copied: gone" in page.text
    assert any(text.endswith("1 not copied, 1 with warnings") for text in page.text)


def test_a_page_names_no_more_segments_than_fit() -> None:
    many = tuple(replace(FINDING, segment_id=f"{number:022d}") for number in range(MAX_LINES + 5))
    page = parsed(run_page(replace(RUN, failed=many, segments=9_999), RESULTS))
    assert len(page.ids) == MAX_LINES + 1
    assert "and 5 more, in the platform's database" in page.text


def test_a_list_leads_to_its_pages() -> None:
    page = parsed(list_page("tiering_quality", [("a-0123", RunSummary.of(RUN))]))
    assert page.links == ["a-0123/index.html"]
    assert RUN.run_id in page.text
    assert page.faults == []


HOSTILE = st.text() | st.sampled_from(
    [
        "<script>alert(1)</script>",
        "</style><img src=x onerror=alert(1)>",
        '" onmouseover="alert(1)',
        "]]><!--",
        "&lt;script&gt;",
        "javascript:alert(1)",
        "\u202eelif.exe\x00\x1b[31m",
        "\ud800",
        "http://evil.example/beacon.png",
        "x" * (MAX_TEXT_CHARACTERS + 1),
    ]
)


@settings(max_examples=40)
@given(first=HOSTILE, second=HOSTILE, third=HOSTILE)
def test_no_text_breaks_out_of_a_page(first: str, second: str, third: str) -> None:
    finding = replace(FINDING, topic=first, segment_id=second, message=third, rule=first)
    run = replace(RUN, run_id=first, depth=second, failed=(finding,), warnings=(finding,), remarks=(third,))
    rule = RuleOutcome(first, second, third, 1, 1)
    results = StoredResults((SuiteOutcome(first, second, (rule,)),), (third,), (first,))
    for content in (run_page(run, results), list_page("dag", [("name-1", RunSummary.of(run))])):
        page = parsed(content)
        assert page.faults == []
        assert all(character.isprintable() or character == "\n" for text in page.text for character in text)
        assert max(map(len, page.text)) < MAX_TEXT_CHARACTERS * 8


def test_the_policy_allows_the_style_that_is_there_and_nothing_else() -> None:
    content = run_page(RUN, RESULTS).decode()
    (style,) = re.findall(r"<style>(.*?)</style>", content, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (own,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', content)
    assert own == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert CONTENT_SECURITY_POLICY.startswith(own)
    assert "frame-ancestors 'self'" in CONTENT_SECURITY_POLICY
    assert " style=" not in content


# The directory of the data docs: pages of runs, what is kept, and that no name leads out of it.

DAY_MS = 86_400_000


def at(day: int, run_id: str = "", origin: str = "dag") -> QualityRun:
    began = RUN.began_at_ms + day * DAY_MS
    return replace(RUN, origin=origin, run_id=run_id or f"day-{day}", began_at_ms=began, ended_at_ms=began + 1)


def result(rule: str = "Q101", *, measured: int = 5, broken: int = 0, suite: str = "objects") -> str:
    """A result as it is stored, with what is read of it."""
    expectation = {
        "expectation_config": {"meta": {"rule_id": rule}, "description": f"{rule} holds.", "severity": "critical"},
        "result": {"element_count": measured, "unexpected_count": broken},
    }
    meta = {"great_expectations_version": "1.24.1"}
    return json.dumps({"results": [expectation], "suite_name": suite, "meta": meta})


def put(directory: Path, name: str, text: str) -> None:
    file = directory / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_page_is_built_from_findings_and_results(tmp_path: Path) -> None:
    docs = DataDocs(tmp_path / "docs")
    results = docs.begin("dag", "run 1")
    put(results, "objects/1/a.json", result(measured=500, broken=2))
    put(results, "objects/2/b.json", result(measured=11, broken=1))
    page = docs.publish(at(0, "run 1"))
    assert page == docs.page("dag", "run 1")
    assert {"Q101", "Q101 holds.", "511", "3"} <= set(parsed(page.read_bytes()).text)
    listed = docs.list_of("dag")
    assert listed is not None
    assert parsed(listed.read_bytes()).links == [f"{page.parent.name}/index.html"]
    assert docs.page_named("dag", page.parent.name) == page
    assert docs.summary("dag", "run 1") == RunSummary.of(at(0, "run 1"))


def test_another_try_forgets_the_results_of_the_one_before(tmp_path: Path) -> None:
    docs = DataDocs(tmp_path)
    put(docs.begin("dag", "a"), "x.json", result(measured=500))
    put(docs.begin("dag", "a"), "y.json", result(measured=7))
    assert [rule.measured for suite in read_results(docs.begin("dag", "b")).suites for rule in suite.rules] == []
    assert "7" in parsed(docs.publish(at(0, "a")).read_bytes()).text


def test_results_of_many_groups_and_suites_are_added_up(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path, f"{number}.json", result("Q301", measured=10, broken=number, suite="succession"))
    put(tmp_path, "4.json", result("Q102"))
    put(tmp_path, "5.json", result("Q101"))
    put(tmp_path, "6.json", result("X1", suite="of somebody else"))
    found = read_results(tmp_path)
    assert [suite.name for suite in found.suites] == ["objects", "succession", "of somebody else"]
    assert [rule.rule_id for rule in found.suites[0].rules] == ["Q101", "Q102"]
    assert [(rule.measured, rule.broken) for rule in found.suites[1].rules] == [(30, 3)]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"results": 1}', '{"results": [], "suite_name": "x"}', "\0", "[" * 99]
)
def test_what_is_no_result_is_named(tmp_path: Path, text: str) -> None:
    put(tmp_path, "a/bad.json", text)
    put(tmp_path, "good.json", result())
    found = read_results(tmp_path)
    assert len(found.suites) == 1
    (unreadable,) = found.unreadable
    assert unreadable.startswith("a/bad.json: ")


def test_old_runs_go_by_number_and_by_age_of_their_origin_alone(tmp_path: Path) -> None:
    docs = DataDocs(tmp_path, keep_runs=3, keep_days=10)
    docs.publish(at(0, origin="other"))
    kept = [docs.publish(at(day)) for day in range(5)]
    assert [page.exists() for page in kept] == [False, False, True, True, True]
    last = docs.publish(at(13))
    assert [page.exists() for page in kept] == [False, False, False, True, True]
    listed = docs.list_of("dag")
    assert listed is not None
    assert len(parsed(listed.read_bytes()).links) == 3
    assert last.exists()
    assert docs.page("other", "day-0")


def test_what_is_not_a_run_is_never_removed(tmp_path: Path) -> None:
    docs = DataDocs(tmp_path, keep_runs=1, keep_days=1)
    mine = tmp_path / "dag" / "mine"
    mine.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    link = tmp_path / "dag" / page_name("link")
    link.symlink_to(outside)
    unfinished = docs.begin("dag", "unfinished").parent
    crashed = docs.begin("dag", "crashed").parent
    os.utime(crashed, (0, 0))
    now = replace(at(0), ended_at_ms=int(unfinished.stat().st_mtime * 1000))
    docs.publish(now)
    assert mine.is_dir()
    assert outside.is_dir()
    assert unfinished.is_dir()
    assert not crashed.exists()


def test_a_summary_that_cannot_be_read_is_no_run(tmp_path: Path) -> None:
    docs = DataDocs(tmp_path)
    page = docs.publish(at(0))
    page.with_name("summary.json").write_text('{"first_lines": 3}')
    assert docs.summary("dag", "day-0") is None
    docs.publish(at(1))
    listed = docs.list_of("dag")
    assert listed is not None
    assert len(parsed(listed.read_bytes()).links) == 1


@given(run_id=st.text())
def test_a_run_id_is_never_a_path(run_id: str) -> None:
    name = page_name(run_id)
    assert PAGE_NAME.match(name)
    assert Path(name).name == name
    assert page_name(run_id + "x") != name


@pytest.mark.parametrize("origin", ["", ".", "..", "../x", "a/b", "a\\b", "a..b", ".hidden", "a b", "x" * 200, "a\n"])
def test_an_origin_that_is_no_name_is_refused(tmp_path: Path, origin: str) -> None:
    docs = DataDocs(tmp_path)
    for ask in (
        docs.list_of,
        lambda o: docs.page(o, "x"),
        lambda o: docs.page_named(o, page_name("x")),
        lambda o: docs.begin(o, "x"),
    ):
        with pytest.raises(ValueError, match="not the name of a DAG"):
            ask(origin)


@pytest.mark.parametrize(
    "name", ["..", "../..", "", "index.html", "results", "a/../b", "x-0123456789abcdef\n", "%2e%2e"]
)
def test_only_directories_of_runs_have_pages(tmp_path: Path, name: str) -> None:
    (tmp_path / "index.html").write_text("secret")
    (tmp_path / "dag").mkdir()
    (tmp_path / "dag" / "index.html").write_text("secret")
    assert DataDocs(tmp_path).page_named("dag", name) is None


def test_a_link_in_place_of_a_page_is_no_page(tmp_path: Path) -> None:
    docs = DataDocs(tmp_path)
    page = docs.publish(at(0))
    (tmp_path / "secret").write_text("secret")
    page.unlink()
    page.symlink_to(tmp_path / "secret")
    assert docs.page("dag", "day-0") is None
    assert docs.page_named("dag", page.parent.name) is None


def test_a_segment_has_an_anchor() -> None:
    assert anchor_of("ERITFBUWFxgZGhscHR4f_-") == "segment-ERITFBUWFxgZGhscHR4f_-"
    assert anchor_of('"><script>') == "segment--script-"


def test_a_directory_that_cannot_be_written_is_named_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "docs").write_text("a file")
    docs = DataDocs(tmp_path / "docs")
    for write in (lambda: docs.begin("dag", "run"), lambda: docs.publish(at(0))):
        with pytest.raises(DataDocsError, match=r"docs cannot be written: Not a directory: .*; set data_docs.path"):
            write()
