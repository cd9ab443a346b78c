"""What was, or would be, published about each partition."""

from collections.abc import Sequence
from typing import Final

from include.tiering.metadata_sync.plan_publication import PublicationPlan
from include.tiering.metadata_sync.publish_partitions import PublishedPartition
from include.tiering.presentation import Document, Presentation, Table, count, labels

_COLUMNS: Final = ("partition", "log start>", "published before>", "records>", "up to offset>", "state")


def present_publication(partitions: Sequence[PublishedPartition], *, dry_run: bool) -> Presentation:
    """Not `ok`: a partition that was refused, failed, or stops before its last segment."""
    return Presentation(
        lambda: {"dry_run": dry_run, "partitions": [_document(one) for one in partitions]},
        lambda: (Table("publication", _COLUMNS, tuple(_row(one, dry_run=dry_run) for one in partitions)),),
        _summary(partitions, dry_run=dry_run),
        ok=not any(_trouble(one) for one in partitions),
    )


def _document(one: PublishedPartition) -> Document:
    plan = one.plan
    return {
        **labels(one.topic_id_partition),
        "log_start_offset": one.log_start_offset,
        "records": one.records,
        "planned_records": 0 if plan is None else len(plan.steps),
        "published_before": 0 if plan is None else len(plan.live),
        "end_offset": None if plan is None else plan.end_offset,
        "remembered_end_offset": None if plan is None else plan.remembered_end_offset,
        "withheld": _withheld(plan),
        "refused": None if plan is None else plan.refused,
        "error": one.error,
        "message": one.message,
    }


def _withheld(plan: PublicationPlan | None) -> Document | None:
    if plan is None or plan.withheld is None:
        return None
    return {"offset": plan.withheld.offset, "reason": plan.withheld.reason}


def _trouble(one: PublishedPartition) -> str:
    """Why a person has to look, or nothing."""
    if one.error is not None:
        return f"{one.error}: {one.message}"
    if one.plan is None:
        return ""
    if one.plan.refused is not None:
        return f"refused: {one.plan.refused}"
    withheld = one.plan.withheld
    return "" if withheld is None else f"waits at offset {withheld.offset}: {withheld.reason}"


def _row(one: PublishedPartition, *, dry_run: bool) -> tuple[str, ...]:
    plan = one.plan
    end = None if plan is None else plan.end_offset
    records = len(plan.steps) if dry_run and plan is not None else one.records
    return (
        str(one.topic_id_partition),
        str(one.log_start_offset),
        "" if plan is None else str(len(plan.live)),
        str(records),
        "" if end is None else str(end),
        _trouble(one) or ("would be sent" if dry_run else "read back"),
    )


def _summary(partitions: Sequence[PublishedPartition], *, dry_run: bool) -> str:
    records = sum(len(one.plan.steps) if dry_run and one.plan is not None else one.records for one in partitions)
    told = f"{count(records, 'record')} of {count(len(partitions), 'partition')}"
    troubles = sum(1 for one in partitions if _trouble(one))
    what = f"{told} would be sent" if dry_run else f"{told} sent and read back"
    return f"{what}, {count(troubles, 'partition')} to look at" if troubles else what
