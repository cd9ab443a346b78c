"""An audit in the memory of one process: for stores of a size that one process lists. The Spark job judges the same
way, segment by segment, and is what a large store needs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from include.tiering.audit.context import AuditContext, PassedOver
from include.tiering.audit.duplicates import judge_ranges
from include.tiering.audit.finding import AuditFinding, FindingKind
from include.tiering.audit.key_names import named_segment_id
from include.tiering.audit.object_alone import judge_alone, needs_metadata
from include.tiering.audit.segment import judge_segment, judge_uploads
from include.tiering.audit.segment_facts import SegmentFact
from include.tiering.errors import ForeignStoreError
from include.tiering.model.segment_metadata import RemoteLogSegmentState
from include.tiering.remote_storage.listing import ListedObject, ListedUpload
from include.tiering.remote_storage.marker import MARKER_KEY


@dataclass(slots=True)
class Gathered:
    """What was listed, sorted by what each needs to be judged. `objects` counts current objects."""

    objects: int = 0
    object_bytes: int = 0
    has_marker: bool = False
    alone: list[AuditFinding] = field(default_factory=list)
    by_segment: dict[str, list[ListedObject]] = field(default_factory=lambda: defaultdict(list))
    uploads: dict[str | None, list[ListedUpload]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True, slots=True)
class AuditResult:
    """`objects` and `rows` are what was compared: current objects, segments in every state."""

    objects: int
    object_bytes: int
    rows: int
    findings: tuple[AuditFinding, ...]
    passed_over: Counter[PassedOver]


def gather(
    objects: Iterable[Sequence[ListedObject]], uploads: Iterable[Sequence[ListedUpload]], context: AuditContext
) -> Gathered:
    """Read a listing. Whoever calls reads the metadata after this, never before: a row is there before its objects."""
    gathered = Gathered()
    for page in objects:
        for listed in page:
            if listed.is_current:
                gathered.objects += 1
                gathered.object_bytes += listed.size_bytes
                gathered.has_marker |= listed.key == MARKER_KEY
            if needs_metadata(listed):
                gathered.by_segment[named_segment_id(listed.key) or ""].append(listed)
            elif (finding := judge_alone(listed, context.layout)) is not None:
                gathered.alone.append(finding)
    for found in uploads:
        for upload in found:
            gathered.uploads[named_segment_id(upload.key)].append(upload)
    return gathered


def judge(gathered: Gathered, facts: Iterable[SegmentFact], context: AuditContext) -> AuditResult:
    """Every finding, by kind and key.

    Raises:
        ForeignStoreError: the listing has no marker object, so it is not one of our store, or not all of it.
        RemoteStorageUnavailableError, RemoteMetadataError: see `judge_segment`.
    """
    require_marker(gathered.has_marker)
    by_segment: dict[str, list[SegmentFact]] = defaultdict(list)
    rows = 0
    for fact in facts:
        rows += 1
        by_segment[fact.segment_id].append(fact)
    passed_over: Counter[PassedOver] = Counter()
    findings = list(gathered.alone)
    nameless = judge_uploads((), gathered.uploads.pop(None, ()), context)
    findings += nameless.findings
    passed_over.update(nameless.passed_over)
    uploaded = {one for one in gathered.uploads if one}
    for segment_id in sorted(by_segment.keys() | gathered.by_segment.keys() | uploaded):
        outcome = judge_segment(
            by_segment.get(segment_id, ()),
            gathered.by_segment.get(segment_id, ()),
            gathered.uploads.get(segment_id, ()),
            context,
        )
        findings += outcome.findings
        passed_over.update(outcome.passed_over)
    finished = (
        fact
        for known in by_segment.values()
        for fact in known
        if fact.state == RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    )
    adoptable = [finding for finding in findings if finding.kind is FindingKind.ADOPTABLE]
    settled = [finding for finding in findings if finding.kind is not FindingKind.ADOPTABLE]
    settled += judge_ranges(finished, adoptable, context)
    settled.sort(key=lambda finding: finding.identity)
    return AuditResult(gathered.objects, gathered.object_bytes, rows, tuple(settled), passed_over)


def require_marker(has_marker: bool) -> None:
    """Raises ForeignStoreError without it."""
    if not has_marker:
        raise ForeignStoreError(
            f"the listing has no {MARKER_KEY}: it is of another place, older than the store, or not all of it;"
            " nothing can be concluded from it"
        )
