"""Pages: what they say, that nothing breaks out of them, that they ask nobody for anything."""

import base64
import hashlib
import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from include.tiering.html_markup import CONTENT_SECURITY_POLICY, MAX_TEXT_CHARACTERS
from include.tiering.verification.data_docs import MAX_LINES, list_page, run_page
from include.tiering.verification.quality_run import QualityRun, RuleOutcome, RunSummary, StoredResults, SuiteOutcome
from include.tiering.verification.rules import QualityFinding
from tests.doubles.self_contained import parsed

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
