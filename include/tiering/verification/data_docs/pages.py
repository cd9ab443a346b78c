"""The pages of the data docs: one per run, one that lists the runs of a DAG."""

from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element

from include.tiering.html_markup import document, element, number, table
from include.tiering.units import format_bytes, format_duration, format_utc
from include.tiering.verification.data_docs.quality_run import QualityRun, SegmentLine, failed_lines, warned_lines
from include.tiering.verification.data_docs.run_summary import RunSummary
from include.tiering.verification.data_docs.stored_results import RuleOutcome, StoredResults, SuiteOutcome

MAX_LINES: Final = 2_000
"""Segments that a page names. The database holds every finding."""

MAX_SHOWN_FINDINGS: Final = 2
"""Broken rules of a segment that are open to see; the others unfold."""

_LINE_HEADS: Final = ("partition", "from offset>", "segment", "what is wrong")
_RULE_HEADS: Final = ("rule", "what must hold", "severity", "measured>", "broken>")
_RUN_HEADS: Final = ("began", "run", "depth", "segments>", "failed>", "warnings>")


def run_page(run: QualityRun, results: StoredResults) -> bytes:
    """What a person reads about one run: the verdict, a line per segment that is not right, every rule."""
    summary = RunSummary.of(run)
    body = [
        element("nav", element("a", f"All runs of {run.origin}", href="../index.html")),
        element("h1", f"Quality of {run.run_id}"),
        element("p", summary.sentence, class_=f"verdict {_colour(summary)}"),
        _facts(run, results),
        *_remarks(run),
        *_lines("Segments that failed", failed_lines(run), "bad"),
        *_lines("Segments with warnings", warned_lines(run), "odd"),
        element("h2", "What was judged"),
        *(_suite(suite) for suite in results.suites),
        *_nothing_stored(results),
        _footer(results),
    ]
    return document(f"{summary.sentence} · {run.run_id}", *body)


def list_page(origin: str, runs: Sequence[tuple[str, RunSummary]]) -> bytes:
    """Runs by the name of their page, in this order."""
    rows = [
        element(
            "tr",
            element("td", format_utc(summary.began_at_ms)),
            element("td", element("a", summary.run_id, href=f"{name}/index.html")),
            element("td", summary.depth),
            number(summary.segments),
            _coloured(summary.failed_segments, "bad"),
            _coloured(summary.warned_segments, "odd"),
        )
        for name, summary in runs
    ]
    return document(
        f"Quality of {origin}",
        element("h1", f"Quality of {origin}"),
        table(_RUN_HEADS, rows) if rows else element("p", "No run has judged anything yet.", class_="dim"),
    )


def no_page(keep_days: int) -> bytes:
    """What is shown in place of a page that is not there."""
    sentence = "No report of this run"
    why = f"It judged no segment, has not ended yet, or ended more than {keep_days} days ago."
    return document(sentence, element("h1", sentence), element("p", why, class_="dim"))


def _facts(run: QualityRun, results: StoredResults) -> Element:
    facts = {
        "DAG": run.origin,
        "Segments": f"{run.segments:,}",
        "Began": format_utc(run.began_at_ms),
        "Partitions as a whole": f"{run.partitions:,}",
        "Took": format_duration(max(0, run.ended_at_ms - run.began_at_ms) / 1000),
        "Rules": f"{sum(len(suite.rules) for suite in results.suites):,}",
        "Depth": run.depth,
        "Read from the store": format_bytes(run.bytes_read),
    }
    pairs = ((element("dt", name), element("dd", text)) for name, text in facts.items())
    return element("dl", *(part for pair in pairs for part in pair))


def _remarks(run: QualityRun) -> list[Element]:
    if not run.remarks:
        return []
    shown = [element("li", remark) for remark in run.remarks[:MAX_LINES]]
    return [element("h2", "Not judged", class_="bad"), element("ul", *shown), *_rest(len(run.remarks))]


def _lines(title: str, lines: Sequence[SegmentLine], colour: str) -> list[Element]:
    if not lines:
        return []
    rows = [_line(line) for line in lines[:MAX_LINES]]
    return [element("h2", f"{title}: {len(lines):,}", class_=colour), table(_LINE_HEADS, rows), *_rest(len(lines))]


def _line(line: SegmentLine) -> Element:
    said = [element("p", element("strong", finding.rule), f" {finding.message}") for finding in line.findings]
    shown, more = said[:MAX_SHOWN_FINDINGS], said[MAX_SHOWN_FINDINGS:]
    rest = [element("details", element("summary", f"{len(more)} more rules"), *more)] if more else []
    return element(
        "tr",
        element("td", f"{line.topic}-{line.partition}", class_="name"),
        number(line.start_offset),
        element("td", element("a", element("code", line.segment_id), href=f"#{line.anchor}"), class_="id"),
        element("td", *shown, *rest),
        id=line.anchor,
    )


def _rest(count: int) -> list[Element]:
    if count <= MAX_LINES:
        return []
    return [element("p", f"and {count - MAX_LINES:,} more, in the platform's database", class_="dim")]


def _suite(suite: SuiteOutcome) -> Element:
    title = f"{suite.title}: {len(suite.rules)} rules, {suite.broken_rules} broken"
    opened = {"open": "open"} if suite.broken_rules else {}
    rows = [_rule(rule) for rule in suite.rules]
    return element("details", element("summary", title), table(_RULE_HEADS, rows), **opened)


def _rule(rule: RuleOutcome) -> Element:
    return element(
        "tr",
        element("td", element("strong", rule.rule_id)),
        element("td", rule.sentence),
        element("td", rule.severity),
        number(rule.measured),
        _coloured(rule.broken, "bad" if rule.severity == "critical" else "odd"),
    )


def _nothing_stored(results: StoredResults) -> list[Element]:
    lines = [f"A stored result could not be read: {name}" for name in results.unreadable]
    if not results.suites:
        lines.append("No result is stored: nothing was judged.")
    return [element("p", line, class_="dim") for line in lines]


def _footer(results: StoredResults) -> Element:
    judge = f"Judged by Great Expectations {', '.join(results.judged_by)}. " if results.judged_by else ""
    return element("footer", f"{judge}The results are stored beside this page, in the directory results.")


def _coloured(count: int, colour: str) -> Element:
    return element("td", f"{count:,}", class_=f"number {colour}" if count else "number")


def _colour(summary: RunSummary) -> str:
    if not summary.is_right:
        return "bad"
    return "odd" if summary.warned_segments else "good"
