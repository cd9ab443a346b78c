"""What all layouts' keys have in common: names of segments in text, and what a matching pattern says."""

import re

from include.tiering.errors import ObjectKeyError, printable
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.remote_storage.layouts.contract import SegmentKey

TOPIC_PATTERN = r"(?P<topic>[a-zA-Z0-9._-]{1,249})"
TOPIC_ID_PATTERN = r"(?P<topic_id>[A-Za-z0-9_-]{22})"
PARTITION_PATTERN = r"(?P<partition>0|[1-9][0-9]{0,9})"
SEGMENT_PATTERN = r"(?P<start_offset>[0-9]{20})-(?P<segment_id>[A-Za-z0-9_-]{22})"


def segment_key(pattern: re.Pattern[str], key: str, layout: str) -> SegmentKey:
    """What `key` says; `pattern` has the groups of the patterns above and `kind`.

    Raises:
        ObjectKeyError: it does not match, or names an impossible topic, partition or offset.
    """
    matched = pattern.match(key)
    if matched is None:
        raise ObjectKeyError(f"{printable(key)!r} is not a key of the {layout} layout")
    try:
        partition = TopicIdPartition(Uuid.parse(matched["topic_id"]), int(matched["partition"]), topic=matched["topic"])
        segment_id = RemoteLogSegmentId(partition, Uuid.parse(matched["segment_id"]))
    except ValueError as error:
        raise ObjectKeyError(f"{key!r} is not a key of the {layout} layout: {error}") from error
    start_offset = int(matched["start_offset"])
    if start_offset >= 2**63:
        raise ObjectKeyError(f"{key!r} is not a key of the {layout} layout: the offset exceeds 2^63-1")
    return SegmentKey(segment_id, start_offset, ObjectKind(matched["kind"]))
