"""All that names one segment id, judged together: its facts, its current objects, its open uploads."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from include.tiering.audit.context import NOTHING_FOUND, AuditContext, AuditOutcome, PassedOver
from include.tiering.audit.finding import AuditFinding, FindingKind
from include.tiering.audit.known_segment import judge_known
from include.tiering.audit.object_alone import labels_of
from include.tiering.audit.segment_facts import PartitionText, SegmentFact
from include.tiering.audit.unknown_segment import judge_unknown
from include.tiering.errors import ObjectKeyError
from include.tiering.model.segment_metadata import RemoteLogSegmentState
from include.tiering.remote_storage.listing import ListedObject, ListedUpload
from include.tiering.units import format_utc

_TOMBSTONE: Final = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


def judge_segment(
    facts: Sequence[SegmentFact],
    objects: Sequence[ListedObject],
    uploads: Sequence[ListedUpload],
    context: AuditContext,
) -> AuditOutcome:
    """Everything that names one segment id; `objects` are current ones.

    Raises:
        RemoteStorageUnavailableError: a manifest had to be read and the store did not answer.
        RemoteMetadataError: the metadata contradicts itself.
    """
    known = [fact for fact in facts if fact.state != _TOMBSTONE]
    if known:
        outcome = judge_known(known, objects, context)
    elif objects:
        outcome = judge_unknown(facts, objects, context)
    else:
        outcome = NOTHING_FOUND
    return _joined(outcome, judge_uploads(known, uploads, context)) if uploads else outcome


def judge_uploads(known: Sequence[SegmentFact], uploads: Sequence[ListedUpload], context: AuditContext) -> AuditOutcome:
    """Uploads that name one segment id, or none: those that nobody goes on with.

    One is passed over while it is young, while somebody holds a lease of its partition, and where brokers write.
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
                message=f"begun at {format_utc(upload.initiated_ms)}, never completed, and nobody works on it",
                size_bytes=upload.size_bytes,
                last_modified_ms=upload.initiated_ms,
                upload_id=upload.upload_id,
                **labels_of(upload.key, context.layout),
            )
        )
    return AuditOutcome(tuple(findings), passed_over)


def _upload_passed_over(known: Sequence[SegmentFact], upload: ListedUpload, context: AuditContext) -> PassedOver | None:
    if context.moment.is_young(upload.initiated_ms):
        return PassedOver.YOUNG
    for topic_id, partition in {*_partition_of(upload.key, context), *((f.topic_id, f.partition) for f in known)}:
        topic = context.topics.get(topic_id)
        if topic is not None and not topic.is_ours:
            return PassedOver.OF_BROKERS
        if (topic_id, partition) in context.worked_on:
            return PassedOver.CHANGING
    return None


def _partition_of(key: str, context: AuditContext) -> tuple[PartitionText, ...]:
    try:
        partition = context.layout.parse_key(key).segment_id.topic_id_partition
    except ObjectKeyError:
        return ()
    return ((str(partition.topic_id), partition.partition),)


def _joined(one: AuditOutcome, other: AuditOutcome) -> AuditOutcome:
    passed_over: Counter[Any] = Counter(one.passed_over)
    passed_over.update(other.passed_over)
    return AuditOutcome(one.findings + other.findings, passed_over)
