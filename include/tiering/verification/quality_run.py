"""The contents of the page about one run: the findings of a quality check, or of a verification.

The page has the findings by segment, the validation results that Great Expectations stored, and a summary. The
validation results are read without Great Expectations and added up: each file is the result of one suite for one group
of measures, and a run writes such files for many groups, perhaps from several processes. The summary (numbers and the
first failed segments) is stored as JSON next to the page, for lists of runs and notes in Airflow.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from include.tiering.verification.rules import QualityFinding
from include.tiering.verification.suites import SUITE_TITLES

_ORIGIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_READABLE_CHARACTERS: Final = 60
PAGE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{0,60}-[0-9a-f]{16}\Z")


@dataclass(frozen=True, slots=True)
class QualityRun:
    """A run that ended. Times are UTC milliseconds.

    Attributes:
        origin: the id of the run's DAG, or `cli`. It is the name of a directory.
        run_id: any text.
        depth: the depth of the measures.
        segments: how many segments were verified.
        partitions: how many partitions were verified as a whole.
        failed, warnings: findings about segments; a segment may have several.
        remarks: lines about problems without a finding, such as segments that were not copied.

    Raises:
        ValueError: `origin` is not a directory name.
    """

    origin: str
    run_id: str
    depth: str
    began_at_ms: int
    ended_at_ms: int
    segments: int
    bytes_read: int
    failed: Sequence[QualityFinding] = ()
    warnings: Sequence[QualityFinding] = ()
    partitions: int = 0
    remarks: Sequence[str] = ()

    def __post_init__(self) -> None:
        checked_origin(self.origin)

    @property
    def is_right(self) -> bool:
        return not self.failed and not self.remarks


@dataclass(frozen=True, slots=True)
class SegmentLine:
    """The findings of one segment."""

    topic: str
    partition: int
    segment_id: str
    start_offset: int
    findings: tuple[QualityFinding, ...]


def failed_lines(run: QualityRun) -> list[SegmentLine]:
    """Return the failed segments in the order of their findings; a segment's warnings come after its failures."""
    failed = _by_segment(run.failed)
    warned = _by_segment(run.warnings)
    return [_line((*found, *warned.get(segment, ()))) for segment, found in failed.items()]


def warned_lines(run: QualityRun) -> list[SegmentLine]:
    """Return the segments that did not fail and have a warning."""
    failed = _by_segment(run.failed)
    return [_line(found) for segment, found in _by_segment(run.warnings).items() if segment not in failed]


def _by_segment(findings: Iterable[QualityFinding]) -> dict[tuple[str, int, str], list[QualityFinding]]:
    by_segment: dict[tuple[str, int, str], list[QualityFinding]] = {}
    for finding in findings:
        by_segment.setdefault((finding.topic_id, finding.partition, finding.segment_id), []).append(finding)
    return by_segment


def _line(findings: Sequence[QualityFinding]) -> SegmentLine:
    first = findings[0]
    return SegmentLine(first.topic, first.partition, first.segment_id, first.start_offset, tuple(findings))


def anchor_of(segment_id: str) -> str:
    """Return the URL fragment of a segment's line on the page."""
    return f"segment-{_UNSAFE.sub('-', segment_id)[:_READABLE_CHARACTERS]}"


def page_name(run_id: str) -> str:
    """Return the name of a run's directory: a single path component for any id, and unique to it."""
    readable = _UNSAFE.sub("-", run_id)[:_READABLE_CHARACTERS].strip("-")
    return f"{readable}-{hashlib.sha256(run_id.encode(errors='surrogatepass')).hexdigest()[:16]}"


def checked_origin(origin: str) -> str:
    """Return `origin`. Raises ValueError if it is not a directory name."""
    if not _ORIGIN.match(origin) or ".." in origin:
        raise ValueError(f"not the name of a DAG: {origin!r}")
    return origin


MAX_RESULT_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """One rule over all groups: to how many measures it was applied, and how many of them broke it."""

    rule_id: str
    sentence: str
    severity: str
    measured: int
    broken: int


@dataclass(frozen=True, slots=True)
class SuiteOutcome:
    """One suite over all groups. Its rules are sorted by id."""

    name: str
    title: str
    rules: tuple[RuleOutcome, ...]

    @property
    def broken_rules(self) -> int:
        return sum(rule.broken > 0 for rule in self.rules)


@dataclass(frozen=True, slots=True)
class StoredResults:
    """Results of all suites. `unreadable`: unusable files; `evaluated_by`: versions of Great Expectations."""

    suites: tuple[SuiteOutcome, ...]
    unreadable: tuple[str, ...]
    evaluated_by: tuple[str, ...]


def read_results(directory: Path) -> StoredResults:
    """Add up all results below `directory`. The result is empty if there is no such directory."""
    suites: dict[str, dict[str, RuleOutcome]] = {}
    unreadable, versions = [], set()
    for file in sorted(directory.rglob("*.json")):
        try:
            result = _load(file)
            rules = [_rule(each) for each in result["results"]]
            name, version = str(result["suite_name"]), str(result["meta"]["great_expectations_version"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            unreadable.append(f"{file.relative_to(directory)}: {type(error).__name__}")
            continue
        versions.add(version)
        _add(suites.setdefault(name, {}), rules)
    return StoredResults(
        tuple(_suite(name, suites[name]) for name in sorted(suites, key=_place)),
        tuple(unreadable),
        tuple(sorted(versions)),
    )


def _load(file: Path) -> Mapping[str, Any]:
    if file.stat().st_size > MAX_RESULT_BYTES:
        raise ValueError(f"{file} is longer than {MAX_RESULT_BYTES} bytes")
    content: Mapping[str, Any] = json.loads(file.read_bytes())
    return content


def _rule(result: Mapping[str, Any]) -> RuleOutcome:
    config, counted = result["expectation_config"], result["result"]
    return RuleOutcome(
        rule_id=str(config["meta"]["rule_id"]),
        sentence=str(config["description"]),
        severity=str(config["severity"]),
        measured=int(counted["element_count"]),
        broken=int(counted["unexpected_count"]),
    )


def _add(known: dict[str, RuleOutcome], rules: Iterable[RuleOutcome]) -> None:
    for rule in rules:
        before = known.get(rule.rule_id)
        measured, broken = (before.measured, before.broken) if before else (0, 0)
        known[rule.rule_id] = RuleOutcome(
            rule.rule_id, rule.sentence, rule.severity, measured + rule.measured, broken + rule.broken
        )


def _suite(name: str, rules: Mapping[str, RuleOutcome]) -> SuiteOutcome:
    return SuiteOutcome(name, SUITE_TITLES.get(name, name), tuple(rules[rule_id] for rule_id in sorted(rules)))


def _place(name: str) -> tuple[int, str]:
    known = list(SUITE_TITLES)
    return (known.index(name) if name in known else len(known), name)


MAX_FIRST_LINES: Final = 50
MAX_NAMED_RULES: Final = 3


@dataclass(frozen=True, slots=True)
class FirstLine:
    """A failed segment in one line. `rules` are the ids of its broken rules, `message` is that of the first rule."""

    partition: str
    segment_id: str
    start_offset: int
    rules: tuple[str, ...]
    message: str

    @classmethod
    def of(cls, line: SegmentLine) -> Self:
        rules = tuple(finding.rule for finding in line.findings)
        partition = f"{line.topic}-{line.partition}"
        return cls(partition, line.segment_id, line.start_offset, rules, line.findings[0].message)

    def __str__(self) -> str:
        return f"{self.partition} from offset {self.start_offset}, segment {self.segment_id}: {self.text}"

    @property
    def text(self) -> str:
        return f"{self.ids}: {self.message}"

    @property
    def ids(self) -> str:
        """Return a text such as `Q101, Q102, Q105 and 14 more`."""
        named = ", ".join(self.rules[:MAX_NAMED_RULES])
        more = len(self.rules) - MAX_NAMED_RULES
        return f"{named} and {more} more" if more > 0 else named


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The numbers of a `QualityRun`. `warned_segments` did not fail. `first_lines`: the first failed segments."""

    origin: str
    run_id: str
    depth: str
    began_at_ms: int
    ended_at_ms: int
    segments: int
    failed_segments: int
    warned_segments: int
    remarks: int
    first_lines: tuple[FirstLine, ...]

    @classmethod
    def of(cls, run: QualityRun) -> Self:
        failed = failed_lines(run)
        return cls(
            run.origin,
            run.run_id,
            run.depth,
            run.began_at_ms,
            run.ended_at_ms,
            run.segments,
            failed_segments=len(failed),
            warned_segments=len(warned_lines(run)),
            remarks=len(run.remarks),
            first_lines=tuple(FirstLine.of(line) for line in failed[:MAX_FIRST_LINES]),
        )

    @property
    def is_right(self) -> bool:
        return not self.failed_segments and not self.remarks

    @property
    def sentence(self) -> str:
        """Return a text such as `2 of 14 segments failed, 1 with warnings`."""
        if self.failed_segments:
            text = f"{self.failed_segments:,} of {self.segments:,} segments failed"
        else:
            text = f"All {self.segments:,} segments passed" if self.segments else "No segment was verified"
        if self.remarks:
            text += f", {self.remarks:,} not copied"
        return text + (f", {self.warned_segments:,} with warnings" if self.warned_segments else "")

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse the text that `to_json` returned. Raises ValueError if it is not such a text."""
        try:
            content: dict[str, Any] = json.loads(text)
            lines = content.pop("first_lines")
            return cls(
                **content, first_lines=tuple(FirstLine(**{**line, "rules": tuple(line["rules"])}) for line in lines)
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not the summary of a run: {error}") from error
