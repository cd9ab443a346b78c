"""What was verified and what is wrong: verdicts by age and depth, failed segments, and findings of audits.

One `Quality` feeds `./tiering quality` and the page *Tiering*. Verifications and size runs count verdicts, and audits
count findings; they publish the numbers as metrics, and the report says when that was. Failed segments and the listed
findings are of this moment, each with what a person can do about it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypedDict

from include.tiering.audit.finding import FindingKind
from include.tiering.audit.record import ActiveGuard, AuditRecord, AuditStore, RecordedFinding
from include.tiering.audit.report import HARMLESS, AuditRefusalDocument, FindingDocument, finding_document
from include.tiering.clock import Clock
from include.tiering.database.metric_series import MetricSeries, Series
from include.tiering.model.segments import Depth, RemoteLogSegmentId, Verdict, VerdictAge
from include.tiering.operations.alarms import runbook_entry
from include.tiering.presentation import Presentation, Table, count
from include.tiering.segments.failed_copies import FailedCopies, FailedCopy, FailedCopyDocument, failed_copy_document
from include.tiering.segments.values import QualityResult
from include.tiering.units import format_bytes, format_duration

MOST_FAILED: Final = 100
MOST_FINDINGS: Final = 200
FINDINGS: Final = "tiering_audit_findings"
_FINDING_BYTES: Final = "tiering_audit_finding_bytes"
_SEGMENTS: Final = "tiering_verdict_segments"
_BY_AGE: Final = "tiering_verdict_segments_by_age"
_BYTES_BY_AGE: Final = "tiering_verdict_bytes_by_age"
GAUGES: Final = (FINDINGS, _FINDING_BYTES, _SEGMENTS, _BY_AGE, _BYTES_BY_AGE)
"""Names of the metrics that the report needs. Those of other use cases are named by their text."""

FAILED_ENTRY: Final = runbook_entry("a-segment-failed-the-quality-gate")
LOST_ENTRY: Final = runbook_entry("a-failed-segment-is-lost")
FINDING_ENTRY: Final = runbook_entry("findings")
_COPIED_AGAIN: Final = "./tiering verify, then the next copy copies it again while its source is there"
_ADVICE: Final[Mapping[FindingKind, str]] = {
    FindingKind.ORPHAN: "./tiering audit --delete-orphans",
    FindingKind.ADOPTABLE: "./tiering adopt {segment}",
    FindingKind.ABANDONED_COPY: "the next copy or expiration ends it",
    FindingKind.DANGLING_REFERENCE: _COPIED_AGAIN,
    FindingKind.SIZE_MISMATCH: _COPIED_AGAIN,
    FindingKind.DUPLICATE: "accept it: it costs storage and endangers nothing",
    FindingKind.WRONG_LAYOUT: "look at it, then delete it by hand",
    FindingKind.FOREIGN_OBJECT: "accept it, or delete it by hand",
    FindingKind.OPEN_MULTIPART_UPLOAD: "./tiering audit --delete-orphans",
    FindingKind.OLD_VERSION: "nothing: normal in a bucket that keeps versions",
    FindingKind.DELETE_MARKER: "nothing: normal in a bucket that keeps versions",
}


@dataclass(frozen=True, slots=True)
class CountedVerdicts:
    """FINISHED segments with one verdict, depth and range of ages; see `AgedSegments`."""

    verdict: Verdict
    depth: Depth | None
    age: VerdictAge | None
    segments: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CountedFindings:
    """Open findings of one kind, and the stored bytes that they are about."""

    kind: FindingKind
    number: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Quality:
    """What was verified, and what is wrong.

    Attributes:
        as_of_ms: when it was read, by this process' clock.
        counted_at_ms: when verdicts were counted last; None if they never were.
        verdicts: that count.
        failed: FINISHED segments that failed, with those that were given up and those of replaced histories.
        broken: the rules that the first `MOST_FAILED` of them break now, with what was expected and found.
        audit: the last audit; None without any.
        guards: why no audit may remove anything, and nothing expires.
        kinds: open findings by kind, as of the last audit, those with most first.
        findings: open findings, the last seen first; at most `MOST_FINDINGS`, harmless kinds left out.
        more_findings: how many more there are, as of the last audit.
    """

    as_of_ms: int
    counted_at_ms: int | None = None
    verdicts: tuple[CountedVerdicts, ...] = ()
    failed: tuple[FailedCopy, ...] = ()
    broken: Mapping[RemoteLogSegmentId, Sequence[QualityResult]] = field(default_factory=dict)
    audit: AuditRecord | None = None
    guards: tuple[ActiveGuard, ...] = ()
    kinds: tuple[CountedFindings, ...] = ()
    findings: tuple[RecordedFinding, ...] = ()
    more_findings: int = 0


class QualityService:
    """Reads the report with at most ten statements, whose cost does not grow with the archive."""

    def __init__(
        self,
        *,
        failed_copies: FailedCopies,
        audits: AuditStore,
        series: Callable[[], MetricSeries],
        clock: Clock,
    ) -> None:
        self._failed_copies = failed_copies
        self._audits = audits
        self._series = series
        self._clock = clock

    def now(self) -> Quality:
        """Return what is known now. Raises MetadataUnavailableError."""
        gauges = self._series().latest(GAUGES)
        failed = tuple(self._failed_copies.all())
        findings, more_findings = open_findings(self._audits, gauges)
        return Quality(
            self._clock.now_ms(),
            min((series.updated_at_ms for series in gauges.get(_SEGMENTS, ())), default=None),
            counted_verdicts(gauges),
            failed,
            self._failed_copies.broken([copy.segment_id for copy in failed[:MOST_FAILED]]) if failed else {},
            self._audits.last_audit(),
            tuple(self._audits.active_guards()),
            counted_findings(gauges),
            findings,
            more_findings,
        )


def open_findings(
    audits: AuditStore, gauges: Mapping[str, Sequence[Series]]
) -> tuple[tuple[RecordedFinding, ...], int]:
    """Return the open findings that are not harmless, and how many more there are as of the last audit."""
    found = tuple(audits.newest_open(leave_out=HARMLESS, at_most=MOST_FINDINGS))
    if len(found) < MOST_FINDINGS:
        return found, 0
    known = sum(kind.number for kind in counted_findings(gauges) if kind.kind not in HARMLESS)
    return found, max(0, known - len(found))


def counted_verdicts(gauges: Mapping[str, Sequence[Series]]) -> tuple[CountedVerdicts, ...]:
    """Return the counted verdicts, ordered by verdict, depth (deep ones first) and age.

    Series with labels that only another version knows are left out.
    """
    size_bytes = {series.key.labels: round(series.value) for series in gauges.get(_BYTES_BY_AGE, ())}
    found = []
    for series in gauges.get(_BY_AGE, ()):
        labels = dict(series.key.labels)
        verdict, depth, age = (labels.get(name, "") for name in ("verdict", "depth", "age"))
        if verdict in set(Verdict) and depth in {"", *Depth} and age in {"", *VerdictAge}:
            counted = CountedVerdicts(
                Verdict(verdict),
                Depth(depth) if depth else None,
                VerdictAge(age) if age else None,
                round(series.value),
                size_bytes.get(series.key.labels, 0),
            )
            found.append(counted)
    return tuple(
        sorted(
            found,
            key=lambda each: (
                list(Verdict).index(each.verdict),
                each.depth or "",
                -1 if each.age is None else list(VerdictAge).index(each.age),
            ),
        )
    )


def counted_findings(gauges: Mapping[str, Sequence[Series]]) -> tuple[CountedFindings, ...]:
    """Return the kinds of which findings are open as of the last audit, those with most first."""

    def by_kind(metric: str) -> dict[str, int]:
        return {dict(series.key.labels).get("kind", ""): round(series.value) for series in gauges.get(metric, ())}

    numbers, size_bytes = by_kind(FINDINGS), by_kind(_FINDING_BYTES)
    found = [CountedFindings(kind, numbers[kind], size_bytes.get(kind, 0)) for kind in FindingKind if numbers.get(kind)]
    return tuple(sorted(found, key=lambda each: (-each.number, each.kind)))


class StoppingSegmentDocument(FailedCopyDocument):
    """A failed segment that stops its partition: what was found, and the rules that it breaks."""

    detail: str
    rules: list[str]
    runbook: str


class BrokenRuleValuesDocument(TypedDict):
    """A rule that a segment breaks now: what was expected and what was found. Only `critical` ones fail a segment."""

    rule: str
    level: str
    expected: str
    found: str


class SegmentWithRulesDocument(StoppingSegmentDocument):
    """A failed segment with both values of each rule that it breaks."""

    broken: list[BrokenRuleValuesDocument]


class OpenFindingDocument(FindingDocument):
    """An open finding of an audit, and what to do about it."""

    advice: str
    runbook: str


class CountedVerdictsDocument(TypedDict):
    """FINISHED segments with one verdict, depth and range of ages in days.

    A range includes its lower bound, and not its upper one. `deep`: every byte was once read and found right, and the
    age is that of this reading; `shallow`: the age is that of the verdict. Depth and age are null where they do not
    apply.
    """

    verdict: str
    depth: str | None
    age_days: str | None
    segments: int
    bytes: int


class FindingsOfKindDocument(TypedDict):
    """Open findings of one kind as of the last audit, the stored bytes that they are about, and what to do."""

    kind: str
    findings: int
    bytes: int
    advice: str


class LastAuditDocument(TypedDict):
    """The last audit; `seen_at_ms` is when it read the store."""

    run_id: str
    source: str
    seen_at_ms: int
    objects: int
    rows: int
    findings: int


class QualityDocument(TypedDict):
    """What was verified and what is wrong.

    `counted_at_ms` is when verdicts were counted last, by a verification or a size run; null: not counted yet.
    `more_failed` and `more_findings` are how many are left out. `guards` are objections of audits because of which
    nothing expires and nothing is removed.
    """

    as_of_ms: int
    counted_at_ms: int | None
    ages_days: list[str]
    verdicts: list[CountedVerdictsDocument]
    failed: list[SegmentWithRulesDocument]
    more_failed: int
    audit: LastAuditDocument | None
    guards: list[AuditRefusalDocument]
    kinds: list[FindingsOfKindDocument]
    findings: list[OpenFindingDocument]
    more_findings: int


def quality_document(quality: Quality) -> QualityDocument:
    """Return the JSON of the report."""
    audit = quality.audit
    return {
        "as_of_ms": quality.as_of_ms,
        "counted_at_ms": quality.counted_at_ms,
        "ages_days": list(map(str, VerdictAge)),
        "verdicts": [
            {
                "verdict": str(each.verdict),
                "depth": each.depth and str(each.depth),
                "age_days": each.age and str(each.age),
                "segments": each.segments,
                "bytes": each.size_bytes,
            }
            for each in quality.verdicts
        ],
        "failed": [
            {**failed_segment(copy), "broken": list(map(_broken, quality.broken.get(copy.segment_id, ())))}
            for copy in quality.failed[:MOST_FAILED]
        ],
        "more_failed": max(0, len(quality.failed) - MOST_FAILED),
        "audit": None
        if audit is None
        else {
            "run_id": audit.run_id,
            "source": str(audit.source),
            "seen_at_ms": audit.seen_at_ms,
            "objects": audit.objects,
            "rows": audit.rows,
            "findings": audit.findings,
        },
        "guards": [{"guard": str(active.guard), "message": active.objection} for active in quality.guards],
        "kinds": [
            {
                "kind": str(each.kind),
                "findings": each.number,
                "bytes": each.size_bytes,
                "advice": _ADVICE[each.kind].replace("{segment}", "SEGMENT"),
            }
            for each in quality.kinds
        ],
        "findings": list(map(open_finding, quality.findings)),
        "more_findings": quality.more_findings,
    }


def failed_segment(copy: FailedCopy) -> StoppingSegmentDocument:
    """Return the JSON of a failed segment."""
    return {
        **failed_copy_document(copy),
        "detail": copy.verdict_detail,
        "rules": list(copy.broken_rules),
        "runbook": FAILED_ENTRY if copy.lost_because is None else LOST_ENTRY,
    }


def open_finding(recorded: RecordedFinding) -> OpenFindingDocument:
    """Return the JSON of a finding."""
    finding = recorded.finding
    advice = _ADVICE[finding.kind].replace("{segment}", str(finding.segment_id))
    return {**finding_document(recorded), "advice": advice, "runbook": FINDING_ENTRY}


def _broken(result: QualityResult) -> BrokenRuleValuesDocument:
    """Return both values of a broken rule; `rules.explain` writes them one after the other."""
    expected, separator, found = result.message.removeprefix("Expected: ").partition(" Found: ")
    if not separator:
        expected, found = "", result.message
    return {"rule": result.rule, "level": result.level, "expected": expected, "found": found}


def present_quality(quality: Quality) -> Presentation:
    """Present the report; it is not `ok` if a segment failed or a finding is open."""
    findings = len(quality.findings) + quality.more_findings
    stopping = sum(not copy.given_up and not copy.was_left for copy in quality.failed)
    counted = "verdicts are not counted yet"
    if quality.counted_at_ms is not None:
        passed = sum(each.segments for each in quality.verdicts if each.verdict.is_safe)
        counted = f"{passed} of {count(sum(each.segments for each in quality.verdicts), 'segment')} passed"
    return Presentation(
        lambda: quality_document(quality),
        lambda: _tables(quality_document(quality)),
        f"{counted}, {count(stopping, 'failed segment')}, {count(findings, 'finding')}",
        ok=not stopping and not findings,
    )


def _tables(found: QualityDocument) -> tuple[Table, ...]:
    now_ms = found["as_of_ms"]
    verdicts = tuple(
        (
            each["verdict"],
            each["depth"] or "",
            each["age_days"] or "",
            str(each["segments"]),
            format_bytes(each["bytes"]),
        )
        for each in found["verdicts"]
    )
    failed = tuple(
        (
            f"{copy['topic']}-{copy['partition']}",
            f"{copy['start_offset']}..{copy['end_offset']}",
            broken["rule"],
            broken["expected"],
            broken["found"],
        )
        for copy in found["failed"]
        for broken in copy["broken"]
    )
    kinds = tuple(
        (each["kind"], str(each["findings"]), format_bytes(each["bytes"]), each["advice"]) for each in found["kinds"]
    )
    findings = tuple(
        (
            str(each["finding_id"]),
            each["kind"],
            each["key"],
            each["message"],
            f"{format_duration(max(0, now_ms - each['first_seen_ms']) / 1000)} ago",
        )
        for each in found["findings"]
    )
    guards = tuple((guard["guard"], guard["message"]) for guard in found["guards"])
    tables = (
        Table("verdicts", ("verdict", "depth", "age in days", "segments>", "bytes>"), verdicts),
        Table("failed segments", ("partition", "offsets", "rule", "expected", "found"), failed),
        Table("findings by kind", ("kind", "findings>", "bytes>", "what to do"), kinds),
        Table("findings of audits", ("id>", "kind", "key", "what", "first seen"), findings),
        Table("nothing may be deleted", ("guard", "why"), guards),
    )
    return tuple(table for table in tables if table.rows)
