"""What a run may copy, and which partitions wait."""

from collections.abc import Iterable, Sequence

from include.tiering.copying.copy_plan import CopyPlan, HeldBackPartition
from include.tiering.kafka.log_dirs.contract import error_document, error_table, note_table, notes_member
from include.tiering.presentation import Document, Presentation, Table, TopicNames, count, labels
from include.tiering.runs.contract import ANYWHERE, PlannedPartition
from include.tiering.segments.failed_copies import Loss
from include.tiering.units import format_bytes


def present_plan(plan: CopyPlan) -> Presentation:
    summary = (
        f"{count(plan.segments, 'segment')} ({format_bytes(plan.size_bytes)}) to copy of "
        f"{count(len(plan.partitions), 'partition')}, {len(plan.held_back)} waiting, {count(len(plan.errors), 'error')}"
    )
    ok = not plan.errors and not needs_a_person(plan.held_back)
    return Presentation(lambda: _document(plan), lambda: _tables(plan), summary, ok=ok)


def needs_a_person(held_back: Iterable[HeldBackPartition]) -> bool:
    return any(item.needs_a_person for item in held_back)


def held_back_document(item: HeldBackPartition) -> Document:
    return {
        **labels(item.topic_id_partition),
        "next_offset": item.next_offset,
        "reason": str(item.reason),
        "detail": item.detail,
        "lost": [loss_document(loss) for loss in item.lost],
        "follow_from": item.follow_from,
    }


def loss_document(loss: Loss) -> Document:
    return {
        "segment_id": str(loss.segment_id.id),
        "start_offset": loss.offsets.first,
        "end_offset": loss.offsets.last,
        "in_source": loss.in_source,
        "why": loss.why,
    }


def held_back_table(items: Sequence[HeldBackPartition], names: TopicNames | None = None) -> tuple[Table, ...]:
    """No table if nothing waits. `names` of the whole report, if it has more than this."""
    if not items:
        return ()
    names = names or TopicNames(i.topic_id_partition for i in items)
    rows = tuple((names.partition(i.topic_id_partition), str(i.next_offset), f"{i.reason}: {i.detail}") for i in items)
    return (Table("waiting", ("partition", "next offset>", "why"), rows),)


def _tables(plan: CopyPlan) -> tuple[Table, ...]:
    names = TopicNames(
        (
            *(one.replica_id.topic_id_partition for one in plan.partitions),
            *(one.topic_id_partition for one in plan.held_back),
        )
    )
    columns: tuple[str, ...] = ("partition", "broker>", "offsets", "segments>", "bytes>", "urgency>")
    rows: tuple[tuple[str, ...], ...] = tuple(_row(partition, names) for partition in plan.partitions)
    if any(partition.placement != ANYWHERE for partition in plan.partitions):
        columns += ("queue", "Spark resource")
        rows = tuple((*row, *_where(partition)) for row, partition in zip(rows, plan.partitions, strict=True))
    return (
        Table("to copy", columns, rows),
        *_again(plan, names),
        *held_back_table(plan.held_back, names),
        *error_table(plan.errors),
        *note_table(plan.notes),
    )


def _again(plan: CopyPlan, names: TopicNames) -> tuple[Table, ...]:
    rows = tuple(
        (
            names.partition(partition.replica_id.topic_id_partition),
            f"{s.base_offset}..{s.end_offset}",
            str(s.supersedes),
        )
        for partition in plan.partitions
        for s in partition.segments
        if s.supersedes is not None
    )
    return (
        (Table("copied anew, as they failed the quality gate", ("partition", "offsets", "segment id"), rows),)
        if rows
        else ()
    )


def _document(plan: CopyPlan) -> Document:
    return {
        "run_id": plan.run_id,
        "partitions": [_partition(partition) for partition in plan.partitions],
        "held_back": [held_back_document(item) for item in plan.held_back],
        "errors": [error_document(error) for error in plan.errors],
        **notes_member(plan.notes),
        "segments": plan.segments,
        "bytes": plan.size_bytes,
    }


def _partition(partition: PlannedPartition) -> Document:
    return {
        "broker_id": partition.replica_id.broker_id,
        **labels(partition.replica_id.topic_id_partition),
        "urgency": round(partition.urgency, 6),
        "placement": {"queue": partition.placement.queue, "spark_resource": partition.placement.spark_resource},
        "segments": [
            {
                "base_offset": s.base_offset,
                "end_offset": s.end_offset,
                "size_bytes": s.size_bytes,
                "supersedes": None if s.supersedes is None else str(s.supersedes),
            }
            for s in partition.segments
        ],
    }


def _where(partition: PlannedPartition) -> tuple[str, str]:
    return (partition.placement.queue or "", partition.placement.spark_resource or "")


def _row(partition: PlannedPartition, names: TopicNames) -> tuple[str, ...]:
    first, last = partition.segments[0].base_offset, partition.segments[-1].end_offset
    return (
        names.partition(partition.replica_id.topic_id_partition),
        str(partition.replica_id.broker_id),
        f"{first}..{last}",
        str(len(partition.segments)),
        format_bytes(partition.size_bytes),
        f"{partition.urgency:.2f}",
    )
