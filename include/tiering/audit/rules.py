"""Classify an object in the store by its key and by the metadata of its segment, if any. Only manifests are read.

*By the key, also old versions.* The key is that of the marker or of a write check, names a segment id, or does neither.

*A segment id that the metadata has, not as a tombstone.* Its objects are never orphans. A FINISHED segment must have
all its required objects, with the right lengths; a segment that is being copied or deleted may have any of them; no
other key may name its id.

*A segment id that the metadata lacks, or has as a tombstone.* The platform writes a row before the first object of its
segment, and keeps it as a tombstone for months after the last object is deleted. So an object of an unknown id is of no
copy that is about to get a row: the database lost its row, or the write came late or from another writer.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from include.tiering.audit.finding import (
    AuditContext,
    AuditedSegment,
    AuditedTopic,
    AuditFinding,
    AuditOutcome,
    FindingKind,
    PartitionText,
    PassedOver,
    epochs_text,
)
from include.tiering.errors import (
    FormatError,
    ObjectKeyError,
    RemoteChecksumError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    UnknownVersionError,
)
from include.tiering.formats.aiven_manifest import MAX_MANIFEST_BYTES, SegmentManifest, parse_manifest
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState, Uuid
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.remote_storage.layouts.contract import SegmentKey, SegmentLayout
from include.tiering.remote_storage.object_store import ListedObject
from include.tiering.remote_storage.store_ownership import MARKER_KEY
from include.tiering.units import format_utc

_PROBE: Final = re.compile(r"_tiering-probe-[0-9a-f]{16}\Z")
_SEGMENT_FILE: Final = re.compile(r"(?:.*/)?[0-9]{20}-([A-Za-z0-9_-]{22})\.[A-Za-z_-]+\Z", re.DOTALL)


def is_marker_or_probe(key: str) -> bool:
    """Return whether the key is the marker's, or that of the short-lived object of a write check."""
    return key == MARKER_KEY or _PROBE.match(key) is not None


def named_segment_id(key: str) -> str | None:
    """Return the id as all layouts place it: ``…/<20 digits>-<id>.<suffix>``; None if no segment has such a key."""
    found = _SEGMENT_FILE.match(key)
    return None if found is None else found[1]


def needs_metadata(listed: ListedObject) -> bool:
    """Return whether this is a current object whose key names a segment id: `classify_by_key` cannot classify it."""
    return listed.is_current and named_segment_id(listed.key) is not None


def classify_by_key(listed: ListedObject, layout: SegmentLayout) -> AuditFinding | None:
    """Return the finding that follows from the key alone; None if there is none, or if it needs the metadata."""
    if is_marker_or_probe(listed.key):
        return None  # each plan replaces the marker, and write checks delete their object: old versions are normal
    if not listed.is_latest:
        what = "an older delete marker" if listed.is_delete_marker else "not the latest version of its key"
        return _finding(FindingKind.OLD_VERSION, listed, layout, f"{what}: nothing reads it")
    if listed.is_delete_marker:
        return _finding(FindingKind.DELETE_MARKER, listed, layout, "the key was deleted and the bucket keeps a marker")
    if named_segment_id(listed.key) is not None:
        return None
    return foreign(listed)


def foreign(listed: ListedObject) -> AuditFinding:
    """Return the finding about a key that this layout never writes."""
    return AuditFinding(
        kind=FindingKind.FOREIGN_OBJECT,
        key=listed.key,
        message="not an object of this platform: no segment has such a key",
        size_bytes=listed.size_bytes,
        last_modified_ms=listed.last_modified_ms,
        version_id=listed.version_id,
    )


def labels_of(key: str, layout: SegmentLayout) -> dict[str, Any]:
    """Return the members of a finding that follow from the key; empty if no segment has such a key."""
    try:
        parsed = layout.parse_key(key)
    except ObjectKeyError:
        return {}
    partition = parsed.segment_id.topic_id_partition
    return {
        "segment_id": parsed.segment_id.id,
        "topic_id": partition.topic_id,
        "topic": partition.topic,
        "partition": partition.partition,
        "start_offset": parsed.start_offset,
    }


def _finding(kind: FindingKind, listed: ListedObject, layout: SegmentLayout, message: str) -> AuditFinding:
    return AuditFinding(
        kind=kind,
        key=listed.key,
        message=message,
        size_bytes=listed.size_bytes,
        last_modified_ms=listed.last_modified_ms,
        version_id=listed.version_id,
        **labels_of(listed.key, layout),
    )


_NEVER_EMPTY: Final = frozenset({ObjectKind.MANIFEST, ObjectKind.INDEXES, ObjectKind.LEADER_EPOCH})
_NOTHING: Final = AuditOutcome()


def classify_known(
    segments: Sequence[AuditedSegment], objects: Sequence[ListedObject], context: AuditContext
) -> AuditOutcome:
    """Classify `objects`, the current objects that name one known segment id.

    `segments` have this id and are no tombstones; only a damaged database has more than one such segment.
    """
    if any((segment.topic_id, segment.partition) in context.unread for segment in segments):
        return AuditOutcome((), Counter({PassedOver.UNREAD: len(objects)}))
    by_key = {listed.key: listed for listed in objects}
    findings: list[AuditFinding] = []
    expected_keys: set[str] = set()
    for segment in segments:
        expected = expected_objects(segment, context)
        expected_keys.update(expected)
        if segment.state == RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            findings += _of_finished(segment, expected, by_key, context)
        else:
            findings += _of_begun(segment, expected, by_key, context)
    if len(expected_keys) == len(by_key) and not findings and by_key.keys() == expected_keys:
        return _NOTHING
    findings += [_misplaced(segments[0], listed, context) for key, listed in by_key.items() if key not in expected_keys]
    return AuditOutcome(tuple(findings))


def expected_objects(segment: AuditedSegment, context: AuditContext) -> Mapping[str, ObjectKind]:
    """Return every key that the segment may have, in the order of writing."""
    name = context.topic(segment.topic_id).name
    keys = context.layout.keys_of(name, segment.topic_id, segment.partition, segment.start_offset, segment.segment_id)
    return {key: kind for kind, key in keys}


def segment_finding(
    kind: FindingKind, key: str, message: str, segment: AuditedSegment, context: AuditContext, **members: Any
) -> AuditFinding:
    """Return a finding with what the metadata has about its segment."""
    return AuditFinding(
        kind=kind,
        key=key,
        message=message,
        segment_id=Uuid.parse(segment.segment_id),
        topic_id=Uuid.parse(segment.topic_id),
        topic=context.topic(segment.topic_id).name,
        partition=segment.partition,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        **members,
    )


def _of_finished(
    segment: AuditedSegment,
    expected: Mapping[str, ObjectKind],
    by_key: Mapping[str, ListedObject],
    context: AuditContext,
) -> Iterator[AuditFinding]:
    for key, kind in expected.items():
        listed = by_key.get(key)
        if listed is None:
            if kind in context.layout.required_kinds and context.moment.was_settled(segment.changed_at_ms):
                yield _dangling(segment, key, kind, context)
        elif (wrong := _wrong_length(segment, kind, listed, context)) is not None:
            yield segment_finding(
                FindingKind.SIZE_MISMATCH,
                key,
                wrong,
                segment,
                context,
                size_bytes=listed.size_bytes,
                last_modified_ms=listed.last_modified_ms,
                version_id=listed.version_id,
            )


def _dangling(segment: AuditedSegment, key: str, kind: ObjectKind, context: AuditContext) -> AuditFinding:
    message = (
        f"FINISHED since {format_utc(segment.changed_at_ms)}, but its {kind.value} object is missing:"
        f" offsets {segment.start_offset} to {segment.end_offset} cannot be read"
    )
    return segment_finding(FindingKind.DANGLING_REFERENCE, key, message, segment, context)


def _wrong_length(segment: AuditedSegment, kind: ObjectKind, listed: ListedObject, context: AuditContext) -> str | None:
    if kind is ObjectKind.LOG:
        if listed.size_bytes == segment.size_bytes:
            return None
        manifest, unread = _manifest_of(segment, context)
        if manifest is not None and not manifest.is_plain:  # Compressed or encrypted: of another length than the row's.
            chunks = manifest.chunk_index
            if (chunks.original_file_size_bytes, chunks.stored_size_bytes) == (segment.size_bytes, listed.size_bytes):
                return None
        return f"the log has {listed.size_bytes} bytes instead of the metadata's {segment.size_bytes}{unread}"
    if not listed.size_bytes and kind in _NEVER_EMPTY:
        return f"the {kind.value} object is empty"
    if kind is ObjectKind.MANIFEST and listed.size_bytes > MAX_MANIFEST_BYTES:
        return f"the manifest has {listed.size_bytes} bytes, above the limit of {MAX_MANIFEST_BYTES}"
    return None


def _manifest_of(segment: AuditedSegment, context: AuditContext) -> tuple[SegmentManifest | None, str]:
    """Return the manifest; or None and why it cannot be read: "" if it is absent, or the audit reads no manifests."""
    for key, kind in expected_objects(segment, context).items():
        if kind is ObjectKind.MANIFEST:
            try:
                content = context.read_manifest(key)
                return None if content is None else parse_manifest(content), ""
            except RemoteResourceNotFoundError:
                break
            except (FormatError, RemoteStorageError) as error:
                if error.retriable:
                    raise
                return None, f"; its manifest, which may explain this, cannot be read: {error}"
    return None, ""


def _of_begun(
    segment: AuditedSegment,
    expected: Mapping[str, ObjectKind],
    by_key: Mapping[str, ListedObject],
    context: AuditContext,
) -> Iterator[AuditFinding]:
    """Report a begun copy or deletion that is without a live lease and old enough, as ABANDONED_COPY says.

    Brokers hold no leases here, and continue deletions by themselves: only their unfinished copies are reported.
    """
    is_ours = context.topic(segment.topic_id).is_ours
    if is_ours and (segment.topic_id, segment.partition) in context.leased_partitions:
        return
    state = RemoteLogSegmentState(segment.state)
    if not is_ours and state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        return
    if state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        abandoned = not context.moment.is_young(segment.changed_at_ms)
    else:
        abandoned = context.moment.is_past_hold(segment.changed_at_ms)
    if abandoned:
        there = [listed for key in expected if (listed := by_key.get(key)) is not None]
        why = "no run works on it" if is_ours else "no broker continued it"
        message = f"{state.name} since {format_utc(segment.changed_at_ms)}, {why}; it has {len(there)} objects"
        yield segment_finding(
            FindingKind.ABANDONED_COPY,
            next(iter(expected)),
            message,
            segment,
            context,
            size_bytes=sum(listed.size_bytes for listed in there),
            last_modified_ms=max((listed.last_modified_ms for listed in there), default=None),
        )


def _misplaced(segment: AuditedSegment, listed: ListedObject, context: AuditContext) -> AuditFinding:
    place = next(iter(expected_objects(segment, context)))
    return segment_finding(
        FindingKind.WRONG_LAYOUT,
        listed.key,
        f"the key names segment {segment.segment_id}, but that segment's keys are like {place}",
        segment,
        context,
        size_bytes=listed.size_bytes,
        last_modified_ms=listed.last_modified_ms,
        version_id=listed.version_id,
    )


_LACKS: Final = "the metadata lacks its segment; "
_WITHOUT_MANIFEST: Final = (
    "the metadata lacks its segment, which has all of its objects; this layout has no manifests, so the segment cannot"
    " be adopted, nor distinguished from a segment whose row the database lost: its objects stay"
)


def classify_unknown(
    tombstones: Sequence[AuditedSegment], objects: Sequence[ListedObject], context: AuditContext
) -> AuditOutcome:
    """Classify current objects that name one segment id which has no row, or only the rows `tombstones`."""
    findings: list[AuditFinding] = []
    passed_over: Counter[PassedOver] = Counter()
    attempts: dict[tuple[str, SegmentKey], dict[ObjectKind, ListedObject]] = defaultdict(dict)
    for listed in objects:
        try:
            key = context.layout.parse_key(listed.key)
        except ObjectKeyError:
            findings.append(foreign(listed))
        else:
            # Two segment ids that differ only in the topic's name are equal, but their keys are not.
            attempt = SegmentKey(key.segment_id, key.start_offset, ObjectKind.LOG)
            attempts[key.segment_id.topic_id_partition.topic, attempt][key.kind] = listed
    for (_, attempt), stored in attempts.items():
        classified = _classify_attempt(attempt, stored, tombstones, context)
        if isinstance(classified, PassedOver):
            passed_over[classified] += len(stored)
        else:
            findings += classified
    return AuditOutcome(tuple(findings), passed_over)


def _classify_attempt(
    attempt: SegmentKey,
    stored: dict[ObjectKind, ListedObject],
    tombstones: Sequence[AuditedSegment],
    context: AuditContext,
) -> list[AuditFinding] | PassedOver:
    partition = attempt.segment_id.topic_id_partition
    topic = context.topics.get(str(partition.topic_id))
    if topic is not None and not topic.is_ours:
        return _classify_brokers(stored, tombstones, topic, (str(partition.topic_id), partition.partition), context)
    classified = _classify_settled(attempt, stored, tombstones, context)
    if isinstance(classified, PassedOver) or all(finding.kind is FindingKind.ADOPTABLE for finding in classified):
        # A complete copy is reported at any age: its objects are not removed, and a young one shows that the database
        # has just lost rows.
        return classified
    is_young = any(context.moment.is_young(listed.last_modified_ms) for listed in stored.values())
    return PassedOver.YOUNG if is_young else classified


def _classify_brokers(
    stored: dict[ObjectKind, ListedObject],
    tombstones: Sequence[AuditedSegment],
    topic: AuditedTopic,
    partition: PartitionText,
    context: AuditContext,
) -> list[AuditFinding] | PassedOver:
    """Classify objects of an unknown segment id in a topic that brokers tier, or that is handed over to them.

    A broker writes a record before a segment's first object, and another after it deleted the last. So objects without
    a record, or whose segment is recorded as deleted, are foreign if all records were read, and if objects and
    tombstones had the minimum age both when the listing began and when the end of the records was determined.
    """
    read_ms = context.brokers_read_ms.get(partition)
    if topic.owner is not TopicOwner.BROKER or read_ms is None or partition in context.unread:
        return PassedOver.OF_BROKERS
    settled_ms = min(read_ms, context.moment.listed_at_ms) - context.moment.min_age_ms
    changed_ms = [
        *(listed.last_modified_ms for listed in stored.values()),
        *(tombstone.changed_at_ms for tombstone in tombstones),
    ]
    if max(changed_ms) > settled_ms:
        return PassedOver.OF_BROKERS
    why = "brokers recorded its segment as deleted" if tombstones else "brokers have no record of its segment"
    return _foreigners(stored, f"{why}: no broker uses it, and this platform does not remove it", context)


def _classify_settled(
    attempt: SegmentKey,
    stored: dict[ObjectKind, ListedObject],
    tombstones: Sequence[AuditedSegment],
    context: AuditContext,
) -> list[AuditFinding] | PassedOver:
    partition = attempt.segment_id.topic_id_partition
    if tombstones:
        deleted_at_ms = max(segment.changed_at_ms for segment in tombstones)
        if not context.moment.was_settled(deleted_at_ms):
            return PassedOver.CHANGING
        return _orphans(stored, f"its segment was deleted at {format_utc(deleted_at_ms)}", context)
    keys = context.layout.keys_of(
        partition.topic,
        str(partition.topic_id),
        partition.partition,
        attempt.start_offset,
        str(attempt.segment_id.id),
    )
    required = context.layout.required_kinds
    if missing := [kind.value for kind, _ in keys if kind in required and kind not in stored]:
        return _orphans(stored, f"the metadata lacks its segment, which has no {', '.join(missing)} object", context)
    return _complete(attempt, stored, context)


def _complete(
    attempt: SegmentKey, stored: dict[ObjectKind, ListedObject], context: AuditContext
) -> list[AuditFinding] | PassedOver:
    described = stored.get(ObjectKind.MANIFEST)
    if described is None:
        return _foreigners(stored, _WITHOUT_MANIFEST, context)
    try:
        manifest = _manifest_as_listed(described, context)
    except RemoteResourceNotFoundError:
        return PassedOver.CHANGING
    except (FormatError, RemoteStorageError) as error:
        if error.retriable:
            raise
        if isinstance(error, FormatError) and not isinstance(error, UnknownVersionError):
            return _orphans(stored, f"the metadata lacks its segment, whose manifest cannot be used: {error}", context)
        # Access is denied, say, or a later release wrote it: the copy may be whole.
        return [_adoptable(stored, described, f"{_LACKS}its manifest cannot be read: {error}", context)]
    if manifest is None:
        return [_adoptable(stored, described, f"{_LACKS}its manifest was not read", context)]
    if (contradiction := _contradiction(attempt, stored, manifest)) is not None:
        return _orphans(stored, f"the metadata lacks its segment, and its manifest {contradiction}", context)
    if manifest.metadata is None:  # Brokers serve such a copy: they find the objects by their keys.
        why = "its manifest does not name it: the copy cannot be adopted"
        return [_adoptable(stored, described, f"{_LACKS}{why}", context)]
    end_offset, epochs = manifest.metadata.end_offset, epochs_text(manifest.metadata.segment_leader_epochs)
    message = (
        f"the metadata lacks its segment, whose manifest is complete: offsets {attempt.start_offset} to {end_offset}"
    )
    found = _adoptable(stored, described, message, context)
    return [replace(found, end_offset=end_offset, leader_epochs=epochs)]


def _manifest_as_listed(described: ListedObject, context: AuditContext) -> SegmentManifest | None:
    """Return the manifest; None if the audit reads none. Raises RemoteChecksumError if its length is not as listed."""
    content = context.read_manifest(described.key)
    if content is not None and len(content) != described.size_bytes:
        raise RemoteChecksumError(f"{len(content)} bytes came, and {described.size_bytes} are listed")
    return None if content is None else parse_manifest(content)


def _contradiction(
    attempt: SegmentKey, stored: dict[ObjectKind, ListedObject], manifest: SegmentManifest
) -> str | None:
    """Return how the manifest contradicts keys or lengths of the objects; None if it does not."""
    metadata = manifest.metadata
    if metadata is not None:
        same_name = metadata.topic_id_partition.topic == attempt.segment_id.topic_id_partition.topic
        if metadata.remote_log_segment_id != attempt.segment_id or not same_name:
            return f"is that of segment {metadata.remote_log_segment_id}"
        if metadata.start_offset != attempt.start_offset:
            return f"has the start offset {metadata.start_offset}"
    lengths = (
        (ObjectKind.LOG, manifest.chunk_index.stored_size_bytes),
        (ObjectKind.INDEXES, manifest.stored_indexes_bytes),
    )
    for kind, expected_bytes in lengths:
        listed = stored.get(kind)
        if listed is not None and listed.size_bytes != expected_bytes:
            return f"has {expected_bytes} bytes for the {kind.value} object instead of {listed.size_bytes}"
    return None


def _foreigners(stored: dict[ObjectKind, ListedObject], why: str, context: AuditContext) -> list[AuditFinding]:
    found = stored.values()
    return [replace(foreign(listed), message=why, **labels_of(listed.key, context.layout)) for listed in found]


def _orphans(stored: dict[ObjectKind, ListedObject], why: str, context: AuditContext) -> list[AuditFinding]:
    return [_finding(FindingKind.ORPHAN, listed, context.layout, why) for listed in stored.values()]


def _adoptable(
    stored: dict[ObjectKind, ListedObject],
    manifest: ListedObject,
    message: str,
    context: AuditContext,
) -> AuditFinding:
    return AuditFinding(
        kind=FindingKind.ADOPTABLE,
        key=manifest.key,
        message=message,
        size_bytes=sum(listed.size_bytes for listed in stored.values()),
        last_modified_ms=max(listed.last_modified_ms for listed in stored.values()),
        version_id=manifest.version_id,
        **labels_of(manifest.key, context.layout),
    )
