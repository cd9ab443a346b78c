"""What the report of quality shows: which cells, both values of a broken rule, and what can be done."""

from typing import Final

import pytest

from include.tiering.audit.finding import AuditFinding, FindingKind
from include.tiering.audit.record import FindingState, RecordedFinding
from include.tiering.audit.report import HARMLESS
from include.tiering.database.metric_series import Series, SeriesKey
from include.tiering.model.segments import Depth, Verdict, VerdictAge
from include.tiering.operations.quality import (
    MOST_FINDINGS,
    CountedFindings,
    CountedVerdicts,
    Quality,
    counted_findings,
    counted_verdicts,
    open_findings,
    present_quality,
    quality_document,
)
from include.tiering.presentation import as_text
from include.tiering.segments.failed_copies import FailedCopy
from include.tiering.segments.values import QualityResult
from tests.doubles.segments import partition_of, segment_of

NOW_MS: Final = 1_700_000_000_000


def series(metric: str, value: float, **labels: str) -> Series:
    return Series(SeriesKey(metric, tuple(sorted(labels.items()))), value, NOW_MS)


def found_by(kind: FindingKind) -> RecordedFinding:
    return RecordedFinding(1, AuditFinding(kind=kind, key="k", message="m"), FindingState.OPEN, NOW_MS, NOW_MS)


def test_cells_are_ordered_by_verdict_depth_and_age() -> None:
    cells = [
        {"verdict": "none", "depth": "", "age": ""},
        {"verdict": "passed", "depth": "shallow", "age": "7-30"},
        {"verdict": "passed", "depth": "deep", "age": "90-"},
        {"verdict": "passed", "depth": "deep", "age": "0-1"},
        {"verdict": "of another version", "depth": "", "age": ""},
    ]
    gauges = {
        "tiering_verdict_segments_by_age": [series("s", number, **cell) for number, cell in enumerate(cells, 1)],
        "tiering_verdict_bytes_by_age": [series("b", 10 * number, **cell) for number, cell in enumerate(cells, 1)],
    }
    assert counted_verdicts(gauges) == (
        CountedVerdicts(Verdict.NONE, None, None, 1, 10),
        CountedVerdicts(Verdict.PASSED, Depth.DEEP, VerdictAge.DAY, 4, 40),
        CountedVerdicts(Verdict.PASSED, Depth.DEEP, VerdictAge.OLDER, 3, 30),
        CountedVerdicts(Verdict.PASSED, Depth.SHALLOW, VerdictAge.MONTH, 2, 20),
    )


def test_kinds_without_findings_are_left_out() -> None:
    gauges = {
        "tiering_audit_findings": [
            series("f", number, kind=kind) for kind, number in (("orphan", 2), ("duplicate", 3), ("adoptable", 0))
        ],
        "tiering_audit_finding_bytes": [series("b", 9, kind="orphan")],
    }
    assert counted_findings(gauges) == (
        CountedFindings(FindingKind.DUPLICATE, 3, 0),
        CountedFindings(FindingKind.ORPHAN, 2, 9),
    )


@pytest.mark.parametrize(("listed", "more"), [(1, 0), (MOST_FINDINGS, 7)])
def test_findings_beyond_the_list_are_counted_without_harmless_ones(listed: int, more: int) -> None:
    class Audits:
        def newest_open(self, *, leave_out: object, at_most: int) -> list[RecordedFinding]:
            assert leave_out == HARMLESS
            return [found_by(FindingKind.ORPHAN)] * listed

    gauges = {
        "tiering_audit_findings": [
            series("f", MOST_FINDINGS + 7, kind="orphan"),
            series("f", 1_000, kind="old-version"),
        ]
    }
    findings, left = open_findings(Audits(), gauges)  # type: ignore[arg-type]
    assert (len(findings), left) == (listed, more)


def test_every_kind_says_what_can_be_done() -> None:
    found = quality_document(Quality(NOW_MS, findings=tuple(map(found_by, FindingKind))))
    assert all(finding["advice"] for finding in found["findings"])


def test_a_broken_rule_has_both_values() -> None:
    own = segment_of(partition_of("orders"), 1, 0, 9)
    segment_id = own.remote_log_segment_id
    messages = ["Expected: The stored log has the length. Found: a = 1; b = 2", "of a rule of one's own"]
    broken = [QualityResult(segment_id, "Q101", "critical", passed=False, message=message) for message in messages]
    quality = Quality(NOW_MS, NOW_MS, failed=(FailedCopy(own, "d", ("Q101",)),), broken={segment_id: broken})
    (shown,) = quality_document(quality)["failed"]
    assert [(each["expected"], each["found"]) for each in shown["broken"]] == [
        ("The stored log has the length.", "a = 1; b = 2"),
        ("", "of a rule of one's own"),
    ]
    assert not present_quality(quality).ok
    assert "a = 1; b = 2" in as_text(present_quality(quality))


def test_what_was_never_counted_is_not_said_to_be_nothing() -> None:
    assert "not counted yet" in as_text(present_quality(Quality(NOW_MS)))
    assert present_quality(Quality(NOW_MS)).ok
    assert "0 of 0 segments passed" in as_text(present_quality(Quality(NOW_MS, NOW_MS)))
