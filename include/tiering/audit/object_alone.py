"""What a listed object tells without the metadata: nothing of the kind needs a segment to be looked up."""

from typing import Any

from include.tiering.audit.finding import AuditFinding, FindingKind
from include.tiering.audit.key_names import is_own, named_segment_id
from include.tiering.errors import ObjectKeyError
from include.tiering.remote_storage.layouts.contract import SegmentLayout
from include.tiering.remote_storage.listing import ListedObject


def needs_metadata(listed: ListedObject) -> bool:
    """Whether it is an object that names a segment: only the metadata can tell what it is."""
    return listed.is_current and named_segment_id(listed.key) is not None


def judge_alone(listed: ListedObject, layout: SegmentLayout) -> AuditFinding | None:
    """The finding about an object or version that does not need the metadata; None if there is none."""
    if is_own(listed.key):
        return None  # the marker is replaced by each plan, and a probe is removed at once: versions of both are left
    if not listed.is_latest:
        what = "an older delete marker" if listed.is_delete_marker else "not the latest version of its key"
        return _finding(FindingKind.OLD_VERSION, listed, layout, f"{what}: nothing reads it")
    if listed.is_delete_marker:
        return _finding(FindingKind.DELETE_MARKER, listed, layout, "the key was deleted and the bucket keeps a marker")
    if named_segment_id(listed.key) is not None:
        return None
    return foreign(listed)


def foreign(listed: ListedObject) -> AuditFinding:
    """About a key that this layout never writes."""
    return AuditFinding(
        kind=FindingKind.FOREIGN_OBJECT,
        key=listed.key,
        message="not an object of this platform: no segment has such a key",
        size_bytes=listed.size_bytes,
        last_modified_ms=listed.last_modified_ms,
        version_id=listed.version_id,
    )


def labels_of(key: str, layout: SegmentLayout) -> dict[str, Any]:
    """Members of a finding that the key alone tells; empty if no segment has such a key."""
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
