"""Compare the store with the metadata: first by segment id, then by range of offsets.

`gather` and `classify` do this in the memory of one process, for stores that one process can list. For large stores,
the Spark job's executors apply `classify_segment` to each segment id, and `classify_same_range` to each range.

Segments that overlap without having the same start and end offsets are not duplicates: after a leader change the new
leader's segment is copied whole, as Kafka does. Of two segments with equal start and end offsets one is superfluous if
the same leader epochs wrote the same offsets, because an epoch and an offset identify a record. If their leader epochs
differ, each of the two segments has records of its own: one of them is from a history that an unclean leader election
has replaced.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from include.tiering.audit.finding import (
    NOTHING_FOUND,
    AuditContext,
    AuditedSegment,
    AuditFinding,
    AuditOutcome,
    FindingKind,
    PartitionText,
    PassedOver,
    epochs_of_text,
)
from include.tiering.audit.rules import (
    classify_by_key,
    classify_known,
    classify_unknown,
    expected_objects,
    labels_of,
    named_segment_id,
    needs_metadata,
    segment_finding,
)
from include.tiering.errors import ForeignStoreError, ObjectKeyError
from include.tiering.model.histories import OffsetRange, written
from include.tiering.model.segments import RemoteLogSegmentState
from include.tiering.remote_storage.object_store import ListedObject, ListedUpload
from include.tiering.remote_storage.store_ownership import MARKER_KEY
from include.tiering.units import format_utc

_TOMBSTONE: Final = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


def classify_segment(
    segments: Sequence[AuditedSegment],
    objects: Sequence[ListedObject],
    uploads: Sequence[ListedUpload],
    context: AuditContext,
) -> AuditOutcome:
    """Classify the segments, current objects and open uploads of one segment id.

    Raises:
        RemoteStorageUnavailableError: the store did not answer when a manifest was read.
        RemoteMetadataError: a segment's topic is not in the metadata.
    """
    known = [segment for segment in segments if segment.state != _TOMBSTONE]
    if known:
        outcome = classify_known(known, objects, context)
    elif objects:
        outcome = classify_unknown(segments, objects, context)
    else:
        outcome = NOTHING_FOUND
    return _joined(outcome, classify_uploads(known, uploads, context)) if uploads else outcome


def classify_uploads(
    known: Sequence[AuditedSegment], uploads: Sequence[ListedUpload], context: AuditContext
) -> AuditOutcome:
    """Report the abandoned ones of `uploads`, whose keys all name one segment id, or all name none.

    `known` are the segments of this id that are no tombstones. An upload is passed over if it is younger than the
    minimum age, its partition has a live lease, or brokers tier its topic or take it over.
    """
    findings = []
    passed_over: Counter[PassedOver] = Counter()
    for upload in uploads:
        if (why := _upload_passed_over(known, upload, context)) is not None:
            passed_over[why] += 1
            continue
        findings.append(
            AuditFinding(
                kind=FindingKind.OPEN_MULTIPART_UPLOAD,
                key=upload.key,
                message=f"begun at {format_utc(upload.initiated_ms)}, never completed, and no run works on it",
                size_bytes=upload.size_bytes,
                last_modified_ms=upload.initiated_ms,
                upload_id=upload.upload_id,
                **labels_of(upload.key, context.layout),
            )
        )
    return AuditOutcome(tuple(findings), passed_over)


def _upload_passed_over(
    known: Sequence[AuditedSegment], upload: ListedUpload, context: AuditContext
) -> PassedOver | None:
    if context.moment.is_young(upload.initiated_ms):
        return PassedOver.YOUNG
    for topic_id, partition in {*_partition_of(upload.key, context), *((f.topic_id, f.partition) for f in known)}:
        topic = context.topics.get(topic_id)
        if topic is not None and not topic.is_ours:
            return PassedOver.OF_BROKERS
        if (topic_id, partition) in context.leased_partitions:
            return PassedOver.CHANGING
    return None


def _partition_of(key: str, context: AuditContext) -> tuple[PartitionText, ...]:
    try:
        partition = context.layout.parse_key(key).segment_id.topic_id_partition
    except ObjectKeyError:
        return ()
    return ((str(partition.topic_id), partition.partition),)


def _joined(audit_outcome: AuditOutcome, other: AuditOutcome) -> AuditOutcome:
    passed_over: Counter[Any] = Counter(audit_outcome.passed_over)
    passed_over.update(other.passed_over)
    return AuditOutcome(audit_outcome.findings + other.findings, passed_over)


StoredRange = tuple[str, int, int, int]
"""Topic id, partition, start offset, end offset (inclusive)."""

_Records = tuple[tuple[int, int], ...]
"""Each leader epoch that wrote offsets of a range, with the first of these offsets, ascending."""


def range_of_segment(segment: AuditedSegment) -> StoredRange:
    """Return the range of a segment."""
    return (segment.topic_id, segment.partition, segment.start_offset, segment.end_offset)


def range_of_adoptable(finding: AuditFinding) -> StoredRange | None:
    """Return the range of a finding; None if its end is unknown because its manifest was not read."""
    if finding.topic_id is None or finding.partition is None:
        return None
    if finding.start_offset is None or finding.end_offset is None:
        return None
    return (str(finding.topic_id), finding.partition, finding.start_offset, finding.end_offset)


def classify_same_range(
    finished: Iterable[AuditedSegment], adoptable: Iterable[AuditFinding], context: AuditContext
) -> Iterator[AuditFinding]:
    """Yield a DUPLICATE for each superfluous segment or copy of one range, and the findings that stay ADOPTABLE.

    `finished` are FINISHED segments of the range. `adoptable` are provisional findings: such a copy stays adoptable
    only if no FINISHED segment and no newer adoptable copy has the range under the same leader epochs.
    """
    segments: dict[_Records, list[AuditedSegment]] = defaultdict(list)
    findings: dict[_Records, list[AuditFinding]] = defaultdict(list)
    for segment in finished:
        segments[_records(segment.leader_epochs, segment.start_offset, segment.end_offset)].append(segment)
    for finding in adoptable:
        start_offset, end_offset = finding.start_offset or 0, finding.end_offset or 0
        findings[_records(finding.leader_epochs, start_offset, end_offset)].append(finding)
    for records in segments.keys() | findings.keys():
        yield from _classify_same_records(segments.get(records, ()), findings.get(records, ()), context)


def _records(leader_epochs: str | None, start_offset: int, end_offset: int) -> _Records:
    """Return which epochs wrote the range.

    If the first epoch starts above the start of the range, it still counts from the start of the range on: a broker
    that raises its log start offset also raises the start of the first epoch to it.
    """
    parts = written(epochs_of_text(leader_epochs or ""), OffsetRange(start_offset, end_offset))
    return tuple((epoch, start_offset if place == 0 else part.first) for place, (epoch, part) in enumerate(parts))


def _classify_same_records(
    finished: Iterable[AuditedSegment], adoptable: Iterable[AuditFinding], context: AuditContext
) -> Iterator[AuditFinding]:
    by_arrival = sorted(finished, key=lambda segment: segment.arrival)
    for segment in by_arrival[:-1]:
        message = f"segment {by_arrival[-1].segment_id} has the same records and is the one that lookups return"
        yield segment_finding(
            FindingKind.DUPLICATE,
            next(iter(expected_objects(segment, context))),
            message,
            segment,
            context,
            size_bytes=segment.size_bytes,
        )
    by_age = sorted(adoptable, key=lambda finding: (finding.last_modified_ms or 0, finding.key))
    if by_arrival:
        yield from (_superfluous(finding, by_arrival[-1].segment_id) for finding in by_age)
    elif by_age:
        yield from (_superfluous(finding, str(by_age[-1].segment_id)) for finding in by_age[:-1])
        yield by_age[-1]


def classify_ranges(
    finished: Iterable[AuditedSegment], adoptable: Iterable[AuditFinding], context: AuditContext
) -> Iterator[AuditFinding]:
    """Apply `classify_same_range` to each range, in memory. A finding whose range is unknown stays adoptable."""
    segments: dict[StoredRange, list[AuditedSegment]] = defaultdict(list)
    findings: dict[StoredRange, list[AuditFinding]] = defaultdict(list)
    for segment in finished:
        segments[range_of_segment(segment)].append(segment)
    for finding in adoptable:
        stored = range_of_adoptable(finding)
        if stored is None:
            yield finding
        else:
            findings[stored].append(finding)
    for stored in segments.keys() | findings.keys():
        yield from classify_same_range(segments.get(stored, ()), findings.get(stored, ()), context)


def _superfluous(finding: AuditFinding, segment_id: str) -> AuditFinding:
    message = f"the metadata lacks its segment, and segment {segment_id} has the same records"
    return replace(finding, kind=FindingKind.DUPLICATE, message=message)


@dataclass(slots=True)
class Gathered:
    """A listing, grouped for classification.

    `objects` counts current objects. `alone` are findings that need no metadata. Objects and uploads are grouped by the
    segment id that their keys name; None is the group of uploads whose keys name none.
    """

    objects: int = 0
    object_bytes: int = 0
    has_marker: bool = False
    alone: list[AuditFinding] = field(default_factory=list)
    by_segment: dict[str, list[ListedObject]] = field(default_factory=lambda: defaultdict(list))
    uploads: dict[str | None, list[ListedUpload]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The findings. `objects` counts the current objects, `rows` the segments in every state that were compared."""

    objects: int
    object_bytes: int
    rows: int
    findings: tuple[AuditFinding, ...]
    passed_over: Counter[PassedOver]


def gather(
    objects: Iterable[Sequence[ListedObject]], uploads: Iterable[Sequence[ListedUpload]], context: AuditContext
) -> Gathered:
    """Read a listing.

    The caller must read the metadata afterwards. A copy writes its row before its objects, so metadata that is read
    after the listing has the rows of all copies that the listing shows. Other objects can get a row later only if they
    are adopted or brokers wrote them.
    """
    gathered = Gathered()
    for page in objects:
        for listed in page:
            if listed.is_current:
                gathered.objects += 1
                gathered.object_bytes += listed.size_bytes
                gathered.has_marker |= listed.key == MARKER_KEY
            if needs_metadata(listed):
                gathered.by_segment[named_segment_id(listed.key) or ""].append(listed)
            elif (finding := classify_by_key(listed, context.layout)) is not None:
                gathered.alone.append(finding)
    for found in uploads:
        for upload in found:
            gathered.uploads[named_segment_id(upload.key)].append(upload)
    return gathered


def classify(gathered: Gathered, segments: Iterable[AuditedSegment], context: AuditContext) -> AuditResult:
    """Return every finding, ordered by kind and key.

    Raises:
        ForeignStoreError: the listing has no marker object, so it is of another store, too old, or incomplete.
        RemoteStorageUnavailableError, RemoteMetadataError: see `classify_segment`.
    """
    require_marker(gathered.has_marker)
    by_segment: dict[str, list[AuditedSegment]] = defaultdict(list)
    rows = 0
    for segment in segments:
        rows += 1
        by_segment[segment.segment_id].append(segment)
    passed_over: Counter[PassedOver] = Counter()
    findings = list(gathered.alone)
    without_id = classify_uploads((), gathered.uploads.pop(None, ()), context)
    findings += without_id.findings
    passed_over.update(without_id.passed_over)
    uploaded = {upload for upload in gathered.uploads if upload}
    for segment_id in sorted(by_segment.keys() | gathered.by_segment.keys() | uploaded):
        outcome = classify_segment(
            by_segment.get(segment_id, ()),
            gathered.by_segment.get(segment_id, ()),
            gathered.uploads.get(segment_id, ()),
            context,
        )
        findings += outcome.findings
        passed_over.update(outcome.passed_over)
    finished = (
        segment
        for known in by_segment.values()
        for segment in known
        if segment.state == RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    )
    adoptable = [finding for finding in findings if finding.kind is FindingKind.ADOPTABLE]
    settled = [finding for finding in findings if finding.kind is not FindingKind.ADOPTABLE]
    settled += classify_ranges(finished, adoptable, context)
    settled.sort(key=lambda finding: finding.identity)
    return AuditResult(gathered.objects, gathered.object_bytes, rows, tuple(settled), passed_over)


def require_marker(has_marker: bool) -> None:
    """Raise ForeignStoreError if the listing has no marker."""
    if not has_marker:
        raise ForeignStoreError(
            f"the listing has no {MARKER_KEY}: it is of another place, older than the store, or incomplete;"
            " the audit cannot use it"
        )
