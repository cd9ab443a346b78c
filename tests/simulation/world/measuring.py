"""How the quality check measures a stored segment here: what the store says of its objects, and how it follows the one
before. Whether indexes and batches are sound is the subject of other tests: here they are a model.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Final
from unittest.mock import patch

from include.tiering.model import histories
from include.tiering.model.segments import Depth, Verdict
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.segments.contract import SegmentRow
from include.tiering.verification import verify_segments
from include.tiering.verification.measures import SegmentMeasure

_SOUND: Final = {field.name: 0 for field in fields(SegmentMeasure) if field.type == (int | None)}
_OBJECTS: Final = frozenset({ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST})


@contextmanager
def measuring_by(current_world: Callable[[], Any]) -> Iterator[None]:
    """The product measures so."""

    def measure(row: SegmentRow, **given: Any) -> SegmentMeasure:
        return _measured(current_world(), row, **given)

    with patch.object(verify_segments, "measure_segment", measure):
        yield


def _measured(
    world: Any,
    row: SegmentRow,
    *,
    previous: Any,
    storage: Any,
    limiter: Any,
    decisions: Sequence[Any],
    depth: Depth,
    ranges: int,
) -> SegmentMeasure:
    metadata, process = row.metadata, world.scheduler.current_process()
    world.watch.quality.begins(process, metadata)
    stored = storage.stat_log_segment(metadata)
    log = next((one for one in stored if one.kind is ObjectKind.LOG), None)
    kinds = {one.kind for one in stored}
    had_failed = row.verdict is Verdict.FAILED
    world.watch.quality.measured(process, metadata, has_all=kinds >= _OBJECTS, had_failed=had_failed)
    partition = metadata.topic_id_partition
    missing = histories.missing_offsets(previous, metadata, decisions)
    numbers: dict[str, Any] = {
        **_SOUND,
        "log_crc32c": row.log_crc32c,
        "stored_log_size_bytes": None if log is None else log.size_bytes,
        "stored_log_crc32c": None if log is None else log.crc32c,
        "objects_missing": len(_OBJECTS - kinds),
        "objects_unlike_contents": len(_OBJECTS - kinds),
        "missing_offsets": sum(part.size for part in missing),
        "unexplained_overlap": histories.unexplained_overlap(previous, metadata),
        "leader_epochs_back": histories.leader_epochs_back(previous, metadata),
        "max_timestamp_ms": metadata.max_timestamp_ms,
    }
    return SegmentMeasure(
        topic=partition.topic,
        topic_id=str(partition.topic_id),
        partition=partition.partition,
        segment_id=str(metadata.remote_log_segment_id.id),
        start_offset=metadata.start_offset,
        end_offset=metadata.end_offset,
        segment_size_bytes=metadata.segment_size_bytes,
        depth=depth,
        remarks=(("stored_log_size_bytes", "there is no log"),) if log is None else (),
        **numbers,
    )
