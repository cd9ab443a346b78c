"""The data docs: HTML pages about quality runs, and the directory that holds them.

    <root>/<origin>/index.html                list of runs
    <root>/<origin>/<page>/index.html         one run
    <root>/<origin>/<page>/summary.json       the run in numbers
    <root>/<origin>/<page>/results/...        validation results as Great Expectations stores them

    step       done when it is reached                    a crash right after it leaves       cleaned up by
    begun      results of an earlier try removed          an empty directory                  the same run, or age
    verified   results stored                             results without a page              the same run, or age
    published  page, then summary, each put in place      old runs, a page not in the list    the next publication
    removed    old runs removed                           a list with links to removed runs   the next publication
    listed     list put in place                          nothing                             -

"The same run" is its next attempt; "age": a publication removes the directory if it is older than `keep_days` days.
All files may be deleted at any time: verdicts and broken rules are in the platform's database.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element

from include.tiering.errors import DataDocsError
from include.tiering.html_markup import document, element, number, table
from include.tiering.units import format_bytes, format_duration, format_utc
from include.tiering.verification.quality_run import (
    PAGE_NAME,
    QualityRun,
    RuleOutcome,
    RunSummary,
    SegmentLine,
    StoredResults,
    SuiteOutcome,
    anchor_of,
    checked_origin,
    failed_lines,
    page_name,
    read_results,
    warned_lines,
)

MAX_LINES: Final = 2_000
"""The most lines in each list of a page. The database holds every finding."""

MAX_SHOWN_FINDINGS: Final = 2
"""How many broken rules of a segment are visible at once; a click unfolds the others."""

_WHAT_BECOMES_OF_FAILED: Final = (
    "They are kept, are not served, and stop their partitions. The next run of tiering_copy copies them again if a "
    "broker still has them; otherwise a person decides (docs/runbook.md, A segment failed the quality gate)."
)
_LINE_HEADS: Final = ("partition", "from offset>", "segment", "what was found")
_RULE_HEADS: Final = ("rule", "expected", "severity", "measured>", "broken>")
_RUN_HEADS: Final = ("began", "run", "depth", "segments>", "failed>", "warnings>")


def run_page(run: QualityRun, results: StoredResults) -> bytes:
    """Return the page of one run: its summary, lines for segments with findings, and every rule that was evaluated."""
    summary = RunSummary.of(run)
    body = [
        element("nav", element("a", f"All runs of {run.origin}", href="../index.html")),
        element("h1", f"Quality of {run.run_id}"),
        element("p", summary.sentence, class_=f"verdict {_colour(summary)}"),
        _overview(run, results),
        *_remarks(run),
        *_lines("Segments that failed", failed_lines(run), "bad", _WHAT_BECOMES_OF_FAILED),
        *_lines("Segments with warnings", warned_lines(run), "odd"),
        element("h2", "What was verified"),
        *(_suite(suite) for suite in results.suites),
        *_nothing_stored(results),
        _footer(results),
    ]
    return document(f"{summary.sentence} · {run.run_id}", *body)


def list_page(origin: str, runs: Sequence[tuple[str, RunSummary]]) -> bytes:
    """Return the page that lists `runs`, pairs of page name and summary, in this order."""
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
        table(_RUN_HEADS, rows) if rows else element("p", "No run has verified anything yet.", class_="dim"),
    )


def no_page(keep_days: int) -> bytes:
    """Return the page that is shown instead of a run's page that does not exist."""
    sentence = "No report of this run"
    why = f"It verified no segment, has not ended yet, or was removed: after {keep_days} days, or by newer runs."
    return document(sentence, element("h1", sentence), element("p", why, class_="dim"))


def _overview(run: QualityRun, results: StoredResults) -> Element:
    shown = {
        "DAG": run.origin,
        "Segments": f"{run.segments:,}",
        "Began": format_utc(run.began_at_ms),
        "Partitions as a whole": f"{run.partitions:,}",
        "Took": format_duration(max(0, run.ended_at_ms - run.began_at_ms) / 1000),
        "Rules": f"{sum(len(suite.rules) for suite in results.suites):,}",
        "Depth": run.depth,
        "Read from the store": format_bytes(run.bytes_read),
    }
    pairs = ((element("dt", name), element("dd", text)) for name, text in shown.items())
    return element("dl", *(part for pair in pairs for part in pair))


def _remarks(run: QualityRun) -> list[Element]:
    if not run.remarks:
        return []
    shown = [element("li", remark) for remark in run.remarks[:MAX_LINES]]
    return [element("h2", "Not verified", class_="bad"), element("ul", *shown), *_rest(len(run.remarks))]


def _lines(title: str, lines: Sequence[SegmentLine], colour: str, sentence: str | None = None) -> list[Element]:
    if not lines:
        return []
    said = [] if sentence is None else [element("p", sentence)]
    rows = table(_LINE_HEADS, [_line(line) for line in lines[:MAX_LINES]])
    return [element("h2", f"{title}: {len(lines):,}", class_=colour), *said, rows, *_rest(len(lines))]


def _line(line: SegmentLine) -> Element:
    messages = [element("p", element("strong", finding.rule), f" {finding.message}") for finding in line.findings]
    shown, more = messages[:MAX_SHOWN_FINDINGS], messages[MAX_SHOWN_FINDINGS:]
    rest = [element("details", element("summary", f"{len(more)} more rules"), *more)] if more else []
    anchor = anchor_of(line.segment_id)
    return element(
        "tr",
        element("td", f"{line.topic}-{line.partition}", class_="name"),
        number(line.start_offset),
        element("td", element("a", element("code", line.segment_id), href=f"#{anchor}"), class_="id"),
        element("td", *shown, *rest),
        id=anchor,
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
        lines.append("No readable result is stored.")
    return [element("p", line, class_="dim") for line in lines]


def _footer(results: StoredResults) -> Element:
    evaluator = f"Evaluated by Great Expectations {', '.join(results.evaluated_by)}. " if results.evaluated_by else ""
    return element("footer", f"{evaluator}The results are stored next to this page, in the directory results.")


def _coloured(count: int, colour: str) -> Element:
    return element("td", f"{count:,}", class_=f"number {colour}" if count else "number")


def _colour(summary: RunSummary) -> str:
    if not summary.is_right:
        return "bad"
    return "odd" if summary.warned_segments else "good"


_PAGE: Final = "index.html"
_SUMMARY: Final = "summary.json"
_RESULTS: Final = "results"
_DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class DataDocs:
    """Keeps pages of runs below `root`, by origin.

    Each publication removes, for its origin, all but the newest `keep_runs` runs, and the runs that ended more than
    `keep_days` days before the published run did.
    """

    root: Path
    keep_runs: int = 200
    keep_days: int = 90

    def begin(self, origin: str, run_id: str) -> Path:
        """Return an empty directory for the results of this run. Results of an earlier try are deleted.

        Raises:
            ValueError: `origin` is not a directory name.
            DataDocsError: the directory cannot be written.
        """
        results = self._directory(origin, run_id) / _RESULTS
        with self._writing():
            if results.exists():
                shutil.rmtree(results)
            results.mkdir(parents=True)
        return results

    def publish(self, run: QualityRun) -> Path:
        """Write the run's page, remove old runs and write the list; return the file of the page.

        The page shows the run's findings and the stored results.

        Raises:
            DataDocsError: the directory cannot be written.
        """
        directory = self._directory(run.origin, run.run_id)
        with self._writing():
            directory.mkdir(parents=True, exist_ok=True)
            page = _put(directory / _PAGE, run_page(run, read_results(directory / _RESULTS)))
            _put(directory / _SUMMARY, RunSummary.of(run).to_json().encode())
            self._remove_old(run.origin, run.ended_at_ms)
            runs = [(found.name, summary) for found, summary in self._runs(run.origin)]
            _put(directory.parent / _PAGE, list_page(run.origin, runs))
        return page

    def page(self, origin: str, run_id: str) -> Path | None:
        """Return the file of a run's page, None if there is none; the run id may be any text."""
        return _file(self._directory(origin, run_id) / _PAGE)

    def page_named(self, origin: str, name: str) -> Path | None:
        """Return the file of the page in the directory `name`; None if there is none."""
        return _file(self.root / checked_origin(origin) / name / _PAGE) if PAGE_NAME.match(name) else None

    def list_of(self, origin: str) -> Path | None:
        """Return the file of the list of runs; None if there is none."""
        return _file(self.root / checked_origin(origin) / _PAGE)

    def summary(self, origin: str, run_id: str) -> RunSummary | None:
        """Return the summary of a run; None if there is none or it cannot be read."""
        return _summary(self._directory(origin, run_id))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataDocsError(
                f"the data docs below {self.root} cannot be written: {error.strerror}: {error.filename}; "
                "set data_docs.path to another directory"
            ) from error

    def _directory(self, origin: str, run_id: str) -> Path:
        return self.root / checked_origin(origin) / page_name(run_id)

    def _runs(self, origin: str) -> list[tuple[Path, RunSummary]]:
        """Return directories and summaries of the runs that have a summary; the run that began last is first."""
        found = [(each, summary) for each in self._directories(origin) if (summary := _summary(each))]
        return sorted(found, key=lambda run: (-run[1].began_at_ms, run[0].name))

    def _directories(self, origin: str) -> Iterator[Path]:
        with os.scandir(self.root / checked_origin(origin)) as entries:
            for entry in entries:
                if PAGE_NAME.match(entry.name) and entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path)

    def _remove_old(self, origin: str, now_ms: int) -> None:
        oldest_ms = now_ms - self.keep_days * _DAY_MS
        kept = {
            directory for directory, summary in self._runs(origin)[: self.keep_runs] if summary.ended_at_ms >= oldest_ms
        }
        for directory in self._directories(origin):
            if directory not in kept and (_summary(directory) or _changed_ms(directory) < oldest_ms):
                shutil.rmtree(directory, ignore_errors=True)


def _put(path: Path, content: bytes) -> Path:
    """Write the file atomically: readers get the old or the new content."""
    stage = path.with_name(f".{path.name}.{os.getpid()}")
    stage.write_bytes(content)
    stage.replace(path)
    return path


def _file(path: Path) -> Path | None:
    return path if path.is_file() and not path.is_symlink() else None


def _summary(directory: Path) -> RunSummary | None:
    try:
        return RunSummary.from_json((directory / _SUMMARY).read_bytes())
    except (OSError, ValueError):
        return None


def _changed_ms(directory: Path) -> int:
    """Return the modification time; 0 if the directory is gone."""
    try:
        return int(directory.stat().st_mtime * 1000)
    except OSError:
        return 0
