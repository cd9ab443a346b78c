"""Objects that name a segment id which the metadata does not know, or knows to be deleted.

A row is there before the first object of its segment, and stays as a tombstone long after the last one: so an unknown
id is not a copy that is about to be known. It is an attempt of another time (a database that was restored or lost), of
another writer, or nobody's.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from include.tiering.audit.context import AuditContext, AuditOutcome, PassedOver
from include.tiering.audit.finding import AuditFinding, FindingKind
from include.tiering.audit.object_alone import foreign, labels_of
from include.tiering.audit.segment_facts import AuditedTopic, PartitionText, SegmentFact, epochs_text
from include.tiering.errors import FormatError, ObjectKeyError, RemoteResourceNotFoundError, RemoteStorageError
from include.tiering.formats.manifest import SegmentManifest, parse_manifest
from include.tiering.model.ownership import TopicOwner
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.remote_storage.layouts.contract import SegmentKey
from include.tiering.remote_storage.listing import ListedObject
from include.tiering.units import format_utc

_UNREAD: Final = "its manifest was not read"
_UNTOLD: Final = (
    "no metadata knows its segment, of which all objects are there; this layout writes no manifests, so it can neither"
    " be adopted nor told from one that an older database has lost: it is left alone"
)


def judge_unknown(
    tombstones: Sequence[SegmentFact], objects: Sequence[ListedObject], context: AuditContext
) -> AuditOutcome:
    """All facts of one segment id, which are tombstones or none, and the current objects that name this id."""
    findings: list[AuditFinding] = []
    passed_over: Counter[PassedOver] = Counter()
    attempts: dict[tuple[str, SegmentKey], dict[ObjectKind, ListedObject]] = defaultdict(dict)
    for listed in objects:
        try:
            key = context.layout.parse_key(listed.key)
        except ObjectKeyError:
            findings.append(foreign(listed))
        else:
            # A topic's name is no part of an id's identity, but it is of a key's.
            attempt = SegmentKey(key.segment_id, key.start_offset, ObjectKind.LOG)
            attempts[key.segment_id.topic_id_partition.topic, attempt][key.kind] = listed
    for (_, attempt), stored in attempts.items():
        judged = _judge_attempt(attempt, stored, tombstones, context)
        if isinstance(judged, PassedOver):
            passed_over[judged] += len(stored)
        else:
            findings += judged
    return AuditOutcome(tuple(findings), passed_over)


def _judge_attempt(
    attempt: SegmentKey,
    stored: dict[ObjectKind, ListedObject],
    tombstones: Sequence[SegmentFact],
    context: AuditContext,
) -> list[AuditFinding] | PassedOver:
    partition = attempt.segment_id.topic_id_partition
    topic = context.topics.get(str(partition.topic_id))
    if topic is not None and not topic.is_ours:
        return _judge_brokers(stored, tombstones, topic, (str(partition.topic_id), partition.partition), context)
    judged = _judge_settled(attempt, stored, tombstones, context)
    if isinstance(judged, PassedOver) or all(finding.kind is FindingKind.ADOPTABLE for finding in judged):
        # A complete copy is offered whatever its age: nothing of it is removed, and a young one says that the database
        # has lost what it knew a moment ago.
        return judged
    is_young = any(context.moment.is_young(listed.last_modified_ms) for listed in stored.values())
    return PassedOver.YOUNG if is_young else judged


def _judge_brokers(
    stored: dict[ObjectKind, ListedObject],
    tombstones: Sequence[SegmentFact],
    topic: AuditedTopic,
    partition: PartitionText,
    context: AuditContext,
) -> list[AuditFinding] | PassedOver:
    """A broker writes its record before the first object and behind the last one's deletion: a day behind a look at all
    records it is no copy that is about to be known."""
    read_ms = context.brokers_read_ms.get(partition)
    if topic.owner is not TopicOwner.BROKER or read_ms is None or partition in context.unread:
        return PassedOver.OF_BROKERS
    settled_ms = min(read_ms, context.moment.listed_at_ms) - context.moment.min_age_ms
    changed_ms = [*(listed.last_modified_ms for listed in stored.values()), *(one.changed_at_ms for one in tombstones)]
    if max(changed_ms) > settled_ms:
        return PassedOver.OF_BROKERS
    why = "brokers say that they deleted its segment" if tombstones else "brokers tell of no such segment"
    return [
        replace(
            foreign(listed),
            message=f"{why}: nobody goes on with it, and nothing here removes it",
            **labels_of(listed.key, context.layout),
        )
        for listed in stored.values()
    ]


def _judge_settled(
    attempt: SegmentKey,
    stored: dict[ObjectKind, ListedObject],
    tombstones: Sequence[SegmentFact],
    context: AuditContext,
) -> list[AuditFinding] | PassedOver:
    partition = attempt.segment_id.topic_id_partition
    if tombstones:
        deleted_at_ms = max(fact.changed_at_ms for fact in tombstones)
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
        return _orphans(stored, f"no metadata knows its segment, which has no {', '.join(missing)} object", context)
    return _complete(attempt, stored, context)


def _complete(
    attempt: SegmentKey, stored: dict[ObjectKind, ListedObject], context: AuditContext
) -> list[AuditFinding] | PassedOver:
    described = stored.get(ObjectKind.MANIFEST)
    if described is None:
        return [
            replace(foreign(listed), message=_UNTOLD, **labels_of(listed.key, context.layout))
            for listed in stored.values()
        ]
    try:
        content = context.read_manifest(described.key)
        manifest = None if content is None else parse_manifest(content)
    except RemoteResourceNotFoundError:
        return PassedOver.CHANGING
    except (FormatError, RemoteStorageError) as error:
        if isinstance(error, RemoteStorageError) and error.retriable:
            raise
        return _orphans(stored, f"no metadata knows its segment, whose manifest cannot be used: {error}", context)
    if manifest is None:
        return [_adoptable(stored, described, f"no metadata knows its segment; {_UNREAD}", context)]
    if (contradiction := _contradiction(attempt, stored, manifest)) is not None:
        return _orphans(stored, f"no metadata knows its segment, and its manifest {contradiction}", context)
    end_offset = None if manifest.metadata is None else manifest.metadata.end_offset
    epochs = None if manifest.metadata is None else epochs_text(manifest.metadata.segment_leader_epochs)
    message = (
        f"no metadata knows its segment, whose manifest is complete: offsets {attempt.start_offset} to {end_offset}"
    )
    found = _adoptable(stored, described, message, context)
    return [replace(found, end_offset=end_offset, leader_epochs=epochs)]


def _contradiction(
    attempt: SegmentKey, stored: dict[ObjectKind, ListedObject], manifest: SegmentManifest
) -> str | None:
    """What the manifest says that keys or lengths of the objects do not."""
    metadata = manifest.metadata
    if metadata is None:
        return "does not say whose segment it is"
    same_name = metadata.topic_id_partition.topic == attempt.segment_id.topic_id_partition.topic
    if metadata.remote_log_segment_id != attempt.segment_id or not same_name:
        return f"is that of {metadata.remote_log_segment_id}"
    if metadata.start_offset != attempt.start_offset:
        return f"says that it begins at offset {metadata.start_offset}"
    lengths = (
        (ObjectKind.LOG, manifest.chunk_index.stored_size_bytes),
        (ObjectKind.INDEXES, manifest.stored_indexes_bytes),
    )
    for kind, expected_bytes in lengths:
        listed = stored.get(kind)
        if listed is not None and listed.size_bytes != expected_bytes:
            return f"says that its {kind.value} object has {expected_bytes} bytes, it has {listed.size_bytes}"
    return None


def _orphans(stored: dict[ObjectKind, ListedObject], why: str, context: AuditContext) -> list[AuditFinding]:
    return [
        AuditFinding(
            kind=FindingKind.ORPHAN,
            key=listed.key,
            message=why,
            size_bytes=listed.size_bytes,
            last_modified_ms=listed.last_modified_ms,
            version_id=listed.version_id,
            **labels_of(listed.key, context.layout),
        )
        for listed in stored.values()
    ]


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
