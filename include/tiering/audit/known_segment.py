"""A segment that the metadata knows, beside the objects that name its id.

Its objects are never orphans, whatever its state. A FINISHED one must have all its objects, of the right length; one
that is being copied or deleted may have any of them; nothing else may stand under its id.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from include.tiering.audit.context import AuditContext, AuditOutcome, PassedOver
from include.tiering.audit.finding import AuditFinding, FindingKind
from include.tiering.audit.segment_facts import SegmentFact
from include.tiering.errors import FormatError, RemoteStorageError
from include.tiering.formats.manifest import MAX_MANIFEST_BYTES, SegmentManifest, parse_manifest
from include.tiering.model.ids import Uuid
from include.tiering.model.segment_metadata import RemoteLogSegmentState
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.remote_storage.listing import ListedObject
from include.tiering.units import format_utc

_NEVER_EMPTY: Final = frozenset({ObjectKind.MANIFEST, ObjectKind.INDEXES, ObjectKind.LEADER_EPOCH})
_NOTHING: Final = AuditOutcome()


def judge_known(facts: Sequence[SegmentFact], objects: Sequence[ListedObject], context: AuditContext) -> AuditOutcome:
    """`facts` share one segment id and are no tombstones (more than one only in a damaged database); `objects` are the
    current objects that name this id."""
    if any((fact.topic_id, fact.partition) in context.unread for fact in facts):
        return AuditOutcome((), Counter({PassedOver.UNREAD: len(objects)}))
    by_key = {listed.key: listed for listed in objects}
    findings: list[AuditFinding] = []
    expected_keys: set[str] = set()
    for fact in facts:
        expected = expected_objects(fact, context)
        expected_keys.update(expected)
        if fact.state == RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            findings += _of_finished(fact, expected, by_key, context)
        else:
            findings += _of_unfinished(fact, expected, by_key, context)
    if len(expected_keys) == len(by_key) and not findings and by_key.keys() == expected_keys:
        return _NOTHING
    findings += [_misplaced(facts[0], listed, context) for key, listed in by_key.items() if key not in expected_keys]
    return AuditOutcome(tuple(findings))


def expected_objects(fact: SegmentFact, context: AuditContext) -> Mapping[str, ObjectKind]:
    """Every key that the segment may have, in the order of writing."""
    name = context.topic(fact.topic_id).name
    keys = context.layout.keys_of(name, fact.topic_id, fact.partition, fact.start_offset, fact.segment_id)
    return {key: kind for kind, key in keys}


def segment_finding(
    kind: FindingKind, key: str, message: str, fact: SegmentFact, context: AuditContext, **members: Any
) -> AuditFinding:
    """A finding with all that the metadata tells of its segment."""
    return AuditFinding(
        kind=kind,
        key=key,
        message=message,
        segment_id=Uuid.parse(fact.segment_id),
        topic_id=Uuid.parse(fact.topic_id),
        topic=context.topic(fact.topic_id).name,
        partition=fact.partition,
        start_offset=fact.start_offset,
        end_offset=fact.end_offset,
        **members,
    )


def _of_finished(
    fact: SegmentFact, expected: Mapping[str, ObjectKind], by_key: Mapping[str, ListedObject], context: AuditContext
) -> Iterator[AuditFinding]:
    for key, kind in expected.items():
        listed = by_key.get(key)
        if listed is None:
            if kind in context.layout.required_kinds and context.moment.was_settled(fact.changed_at_ms):
                yield _dangling(fact, key, kind, context)
        elif (wrong := _wrong_length(fact, kind, listed, context)) is not None:
            yield segment_finding(
                FindingKind.SIZE_MISMATCH,
                key,
                wrong,
                fact,
                context,
                size_bytes=listed.size_bytes,
                last_modified_ms=listed.last_modified_ms,
                version_id=listed.version_id,
            )


def _dangling(fact: SegmentFact, key: str, kind: ObjectKind, context: AuditContext) -> AuditFinding:
    message = (
        f"FINISHED since {format_utc(fact.changed_at_ms)} and its {kind.value} object is missing:"
        f" offsets {fact.start_offset} to {fact.end_offset} cannot be read"
    )
    return segment_finding(FindingKind.DANGLING_REFERENCE, key, message, fact, context)


def _wrong_length(fact: SegmentFact, kind: ObjectKind, listed: ListedObject, context: AuditContext) -> str | None:
    if kind is ObjectKind.LOG:
        if listed.size_bytes == fact.size_bytes or _is_transformed(fact, listed, context):
            return None
        return f"the log has {listed.size_bytes} bytes, the metadata says {fact.size_bytes}"
    if not listed.size_bytes and kind in _NEVER_EMPTY:
        return f"the {kind.value} object is empty"
    if kind is ObjectKind.MANIFEST and listed.size_bytes > MAX_MANIFEST_BYTES:
        return f"the manifest has {listed.size_bytes} bytes, at most {MAX_MANIFEST_BYTES} are possible"
    return None


def _is_transformed(fact: SegmentFact, listed: ListedObject, context: AuditContext) -> bool:
    """Whether this log is compressed or encrypted, and as long as its manifest says."""
    manifest = _manifest_of(fact, context)
    if manifest is None or manifest.is_plain:
        return False
    chunks = manifest.chunk_index
    return (chunks.original_file_size_bytes, chunks.stored_size_bytes) == (fact.size_bytes, listed.size_bytes)


def _manifest_of(fact: SegmentFact, context: AuditContext) -> SegmentManifest | None:
    """None if there is none that can be used."""
    for key, kind in expected_objects(fact, context).items():
        if kind is ObjectKind.MANIFEST:
            try:
                content = context.read_manifest(key)
                return None if content is None else parse_manifest(content)
            except FormatError:
                return None
            except RemoteStorageError as error:
                if error.retriable:
                    raise
                return None
    return None


def _of_unfinished(
    fact: SegmentFact, expected: Mapping[str, ObjectKind], by_key: Mapping[str, ListedObject], context: AuditContext
) -> Iterator[AuditFinding]:
    """Abandoned when it is older than the age guard, and nobody works on it as far as we can know: brokers hold no
    lease of ours, and what they began to delete they go on with by themselves."""
    is_ours = context.topic(fact.topic_id).is_ours
    if is_ours and (fact.topic_id, fact.partition) in context.worked_on:
        return
    state = RemoteLogSegmentState(fact.state)
    if not is_ours and state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        return
    if state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        abandoned = not context.moment.is_young(fact.changed_at_ms)
    else:
        abandoned = context.moment.is_past_hold(fact.changed_at_ms)
    if abandoned:
        there = [listed for key in expected if (listed := by_key.get(key)) is not None]
        nobody = "nobody works on it" if is_ours else "no broker went on with it"
        message = f"{state.name} since {format_utc(fact.changed_at_ms)}, {nobody}; it has {len(there)} objects"
        yield segment_finding(
            FindingKind.ABANDONED_COPY,
            next(iter(expected)),
            message,
            fact,
            context,
            size_bytes=sum(listed.size_bytes for listed in there),
            last_modified_ms=max((listed.last_modified_ms for listed in there), default=None),
        )


def _misplaced(fact: SegmentFact, listed: ListedObject, context: AuditContext) -> AuditFinding:
    place = next(iter(expected_objects(fact, context)))
    return segment_finding(
        FindingKind.WRONG_LAYOUT,
        listed.key,
        f"the key names segment {fact.segment_id}, whose keys are like {place}",
        fact,
        context,
        size_bytes=listed.size_bytes,
        last_modified_ms=listed.last_modified_ms,
        version_id=listed.version_id,
    )
