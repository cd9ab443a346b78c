"""Reports of fetched segments and records: what was read back, and into which files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from include.tiering.model.segments import TopicIdPartition
from include.tiering.presentation import PartitionLabels, Presentation, Table, count, labels
from include.tiering.reading.fetch import FetchedRecords
from include.tiering.reading.files import FetchedSegment
from include.tiering.reading.plan_scan import ScanPlan
from include.tiering.units import format_bytes, format_duration


class FetchedSegmentDocument(TypedDict):
    """One segment. `refused` says why it was not written; with `by_decision` a person decided for another history."""

    segment_id: str
    start_offset: int
    end_offset: int
    bytes: int
    path: str | None
    refused: str | None
    by_decision: bool
    history: int
    said: list[str]


class FetchDocument(PartitionLabels):
    """A partition that was read as a whole; `bytes` are those of the written files."""

    segments: list[FetchedSegmentDocument]
    bytes: int


class RecordsDocument(PartitionLabels):
    """What was read from an offset on. `throttle_ms` is above 0 if the quota was exhausted: nothing was read."""

    offset: int
    leader_epoch: int | None
    base_offset: int | None
    next_offset: int
    bytes: int
    path: str | None
    throttle_ms: int
    said: list[str]


def present_fetch(partition: TopicIdPartition, fetched: Sequence[FetchedSegment]) -> Presentation:
    written = [item for item in fetched if item.path is not None]
    summary = (
        f"fetched {count(len(written), 'segment')} of {partition}, {format_bytes(_bytes(written))}"
        + (f" into {written[0].path.parent}" if written and written[0].path else "")
        + (f"; {refused} not fetched" if (refused := sum(map(_is_refused, fetched))) else "")
        + (f"; {left} left out: other histories" if (left := sum(item.by_decision for item in fetched)) else "")
    )
    document: FetchDocument = {
        **labels(partition),
        "segments": [_segment(item) for item in fetched],
        "bytes": _bytes(written),
    }
    return Presentation(
        lambda: document,
        lambda: (Table(str(partition), _COLUMNS, tuple(map(_row, fetched))),),
        summary,
        ok=not any(map(_is_refused, fetched)),
    )


def present_records(fetched: FetchedRecords, path: Path | None) -> Presentation:
    """Present one fetch from an offset on. It is not `ok` if the fetch quota was exhausted: nothing was read."""
    fetch = fetched.fetch
    size_bytes = len(fetched.records)
    document: RecordsDocument = {
        **labels(fetch.partition),
        "offset": fetch.offset,
        "leader_epoch": fetch.leader_epoch,
        "base_offset": fetched.base_offset if size_bytes else None,
        "next_offset": fetched.next_offset,
        "bytes": size_bytes,
        "path": None if path is None else str(path),
        "throttle_ms": fetched.throttle_ms,
        "said": list(fetched.said),
    }
    if fetched.throttle_ms:
        summary = f"the fetch quota is exhausted: nothing was read, ask again in {fetched.throttle_ms} ms"
        summary = "; ".join((summary, *fetched.said))
    elif path is None:
        summary = f"no batch of {fetch.partition} from offset {fetch.offset} on is in remote storage"
    else:
        offsets = f"offsets {fetched.base_offset}..{fetched.next_offset - 1}"
        summary = f"fetched {offsets} of {fetch.partition}, {format_bytes(size_bytes)}, into {path}"
        summary = "; ".join((summary, *fetched.said))
    return Presentation(lambda: document, lambda: (), summary, ok=not fetched.throttle_ms)


def said_of_scan(plan: ScanPlan, least_seconds: float) -> str:
    """Return a sentence about what a scan will read; `least_seconds` as of `ReadService.least_seconds`."""
    partitions = len({each.segment.topic_id_partition for task in plan.tasks for each in task})
    read = f"{count(plan.segments, 'segment')} of {count(partitions, 'partition')}, {format_bytes(plan.size_bytes)}"
    sentence = f"reads {read}, in {count(len(plan.tasks), 'task')} and about {count(plan.requests, 'request')}"
    return sentence + (
        f"; the fetch quota holds it for {format_duration(least_seconds)} at least" if least_seconds else ""
    )


def _is_refused(item: FetchedSegment) -> bool:
    return item.refused is not None and not item.by_decision


def _bytes(items: Sequence[FetchedSegment]) -> int:
    return sum(item.row.metadata.segment_size_bytes for item in items)


def _segment(item: FetchedSegment) -> FetchedSegmentDocument:
    metadata = item.row.metadata
    return {
        "segment_id": str(metadata.remote_log_segment_id.id),
        "start_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
        "bytes": metadata.segment_size_bytes,
        "path": None if item.path is None else str(item.path),
        "refused": item.refused,
        "by_decision": item.by_decision,
        "history": item.row.history,
        "said": list(item.said),
    }


_COLUMNS = ("start offset>", "end offset>", "bytes>", "file, or why not")


def _row(item: FetchedSegment) -> tuple[str, ...]:
    metadata = item.row.metadata
    where = "; ".join((str(item.path), *item.said)) if item.path is not None else item.refused or ""
    return (str(metadata.start_offset), str(metadata.end_offset), format_bytes(metadata.segment_size_bytes), where)
