"""Whether a run could start, check by check, and which partitions it could work on."""

from collections.abc import Sequence
from typing import Final

from include.tiering.operations.partition_readiness import PartitionReadiness
from include.tiering.operations.readiness import Check, Readiness
from include.tiering.presentation import Document, Presentation, Table, TopicNames, count, labels

MOST_NAMED: Final = 20


def present_ready(readiness: Readiness, *, all_of_them: bool = False) -> Presentation:
    """`all_of_them`: ok only if no partition waits."""
    ok = readiness.ready and not (all_of_them and readiness.waiting)
    return Presentation(
        lambda: _document(readiness, ok),
        lambda: _tables(readiness),
        summary_of(readiness),
        ok=ok,
    )


def summary_of(readiness: Readiness) -> str:
    """In one line."""
    if not readiness.holds:
        return f"not ready: {', '.join(check.name for check in readiness.checks if not check.holds)}"
    there = len(readiness.partitions) - len(readiness.deleted)
    words = f"{there - len(readiness.waiting)} of {count(there, 'partition')} ready" if there else "ready"
    words += f"; {len(readiness.deleted)} of deleted topics" if readiness.deleted else ""
    return words if readiness.ready else f"not ready: {words}"


def waiting_lines(readiness: Readiness) -> list[str]:
    """Which partitions wait and why: the first `MOST_NAMED`, and how many more."""
    names = TopicNames(one.topic_id_partition for one in readiness.partitions)
    lines = [_line(one, names) for one in readiness.waiting[:MOST_NAMED]]
    more = len(readiness.waiting) - len(lines)
    return [*lines, f"and {more} more: ./tiering ready"] if more else lines


def _line(one: PartitionReadiness, names: TopicNames) -> str:
    return names.partition(one.topic_id_partition) + str(one).removeprefix(str(one.topic_id_partition))


def _document(readiness: Readiness, ok: bool) -> Document:
    return {
        "ready": ok,
        "checks": [
            {"name": c.name, "ok": c.ok, "waitable": c.waitable, "message": c.message} for c in readiness.checks
        ],
        "partitions": [
            {
                **labels(one.topic_id_partition),
                "ready": one.ready,
                "reason": None if one.reason is None else str(one.reason),
                "waitable": one.reason is None or one.reason.waitable,
                "detail": one.detail,
            }
            for one in readiness.partitions
        ],
    }


def _tables(readiness: Readiness) -> tuple[Table, ...]:
    checks = Table("checks", ("check", "result", "found"), tuple(map(_row, readiness.checks)))
    names = TopicNames(one.topic_id_partition for one in readiness.partitions)
    waiting = _named("waiting", readiness.waiting, names)
    return (checks, *waiting, *_named("nothing to wait for", readiness.deleted, names))


def _named(title: str, partitions: Sequence[PartitionReadiness], names: TopicNames) -> tuple[Table, ...]:
    """No table without a partition."""
    rows = tuple((names.partition(one.topic_id_partition), str(one.reason), one.detail) for one in partitions)
    return (Table(title, ("partition", "why", "found"), rows),) if rows else ()


def _row(check: Check) -> tuple[str, ...]:
    result = "ok" if check.ok else "not needed" if check.holds else "wait" if check.waitable else "failed"
    return (check.name, result, check.message)
