"""What one run of the quality gate, or of a verification, found: what its page is about."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.verification.judge import QualityFinding

_ORIGIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_READABLE_CHARACTERS: Final = 60
PAGE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{0,60}-[0-9a-f]{16}\Z")


@dataclass(frozen=True, slots=True)
class QualityRun:
    """A run that ended. Times are UTC milliseconds.

    Attributes:
        origin: whose run it is: the id of a DAG, or `cli`. It is the name of a directory.
        run_id: any text.
        depth: how the segments were measured, in a word.
        segments, partitions: how many were judged; partitions as a whole.
        failed, warnings: findings by segment; a segment may have several.
        remarks: lines about what has no finding, such as segments that were not copied.

    Raises:
        ValueError: an origin that is no name of a directory.
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
    """What one segment breaks, in a line."""

    topic: str
    partition: int
    segment_id: str
    start_offset: int
    findings: tuple[QualityFinding, ...]

    @property
    def anchor(self) -> str:
        return anchor_of(self.segment_id)


def failed_lines(run: QualityRun) -> list[SegmentLine]:
    """One per segment that failed, in the order in which they were found; warnings about it come last."""
    failed = _by_segment(run.failed)
    warned = _by_segment(run.warnings)
    return [_line((*found, *warned.get(segment, ()))) for segment, found in failed.items()]


def warned_lines(run: QualityRun) -> list[SegmentLine]:
    """One per segment that did not fail and has a warning."""
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
    """The fragment of a page's address that leads to a segment's line."""
    return f"segment-{_UNSAFE.sub('-', segment_id)[:_READABLE_CHARACTERS]}"


def page_name(run_id: str) -> str:
    """Name of a run's directory: whatever the id is, the name is no path, and no two ids share one."""
    readable = _UNSAFE.sub("-", run_id)[:_READABLE_CHARACTERS].strip("-")
    return f"{readable}-{hashlib.sha256(run_id.encode(errors='surrogatepass')).hexdigest()[:16]}"


def checked_origin(origin: str) -> str:
    """Raises ValueError."""
    if not _ORIGIN.match(origin) or ".." in origin:
        raise ValueError(f"not the name of a DAG: {origin!r}")
    return origin
