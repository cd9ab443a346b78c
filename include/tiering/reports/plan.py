"""What a run may copy, and which partitions wait."""

from collections.abc import Collection, Sequence
from typing import Protocol

from include.tiering.log_source.contract import ScanError
from include.tiering.model.ids import TopicIdPartition
from include.tiering.reports.presentation import (
    Document,
    Presentation,
    Table,
    count,
    error_document,
    error_table,
    labels,
)
from include.tiering.units import format_bytes
from include.tiering.work.contract import PlannedPartition


class HeldBackItem(Protocol):
    """A partition that has something to copy and waits. `next_offset` (inclusive) is the first one not copied."""

    @property
    def topic_id_partition(self) -> TopicIdPartition: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def detail(self) -> str: ...


class Plan(Protocol):
    """One plan, most urgent partition first."""

    @property
    def run_id(self) -> str: ...
    @property
    def partitions(self) -> Sequence[PlannedPartition]: ...
    @property
    def held_back(self) -> Sequence[HeldBackItem]: ...
    @property
    def errors(self) -> tuple[ScanError, ...]: ...


def present_plan(plan: Plan, findings: Collection[str] = ()) -> Presentation:
    """`findings` are the reasons for waiting that need a person."""
    segments = sum(len(partition.segments) for partition in plan.partitions)
    size_bytes = sum(partition.size_bytes for partition in plan.partitions)
    summary = (
        f"{count(segments, 'segment')} ({format_bytes(size_bytes)}) of {count(len(plan.partitions), 'partition')} "
        f"to copy, {len(plan.held_back)} waiting, {count(len(plan.errors), 'error')}"
    )
    ok = not plan.errors and not any(item.reason in findings for item in plan.held_back)
    return Presentation(lambda: _document(plan), lambda: plan_tables(plan), summary, ok=ok)


def held_back_document(item: HeldBackItem) -> Document:
    return {
        **labels(item.topic_id_partition),
        "next_offset": item.next_offset,
        "reason": str(item.reason),
        "detail": item.detail,
    }


def held_back_table(items: Sequence[HeldBackItem]) -> tuple[Table, ...]:
    """No table if nothing waits."""
    if not items:
        return ()
    rows = tuple((str(i.topic_id_partition), str(i.next_offset), f"{i.reason}: {i.detail}") for i in items)
    return (Table("waiting", ("partition", "next offset>", "why"), rows),)


def plan_tables(plan: Plan) -> tuple[Table, ...]:
    rows = tuple(_row(partition) for partition in plan.partitions)
    columns = ("partition", "broker>", "offsets", "segments>", "bytes>", "urgency>")
    return (Table("to copy", columns, rows), *held_back_table(plan.held_back), *error_table(plan.errors))


def _document(plan: Plan) -> Document:
    return {
        "run_id": plan.run_id,
        "partitions": [_partition(partition) for partition in plan.partitions],
        "held_back": [held_back_document(item) for item in plan.held_back],
        "errors": [error_document(error) for error in plan.errors],
        "segments": sum(len(partition.segments) for partition in plan.partitions),
        "bytes": sum(partition.size_bytes for partition in plan.partitions),
    }


def _partition(partition: PlannedPartition) -> Document:
    return {
        "broker_id": partition.replica_id.broker_id,
        **labels(partition.replica_id.topic_id_partition),
        "urgency": round(partition.urgency, 6),
        "segments": [
            {"base_offset": s.base_offset, "end_offset": s.end_offset, "size_bytes": s.size_bytes}
            for s in partition.segments
        ],
    }


def _row(partition: PlannedPartition) -> tuple[str, ...]:
    first, last = partition.segments[0].base_offset, partition.segments[-1].end_offset
    return (
        str(partition.replica_id.topic_id_partition),
        str(partition.replica_id.broker_id),
        f"{first}..{last}",
        str(len(partition.segments)),
        format_bytes(partition.size_bytes),
        f"{partition.urgency:.2f}",
    )
