"""What a run will verify, and what that costs: said before it starts."""

from collections import Counter

from include.tiering.presentation import Document, Presentation, Table, TopicNames, count
from include.tiering.units import format_bytes, format_duration
from include.tiering.verification.plan_verification import VerificationPlan
from include.tiering.verification.verification_contract import VerificationReason


def present_plan(plan: VerificationPlan) -> Presentation:
    return Presentation(lambda: _document(plan), lambda: _tables(plan), cost_sentence(plan))


def cost_sentence(plan: VerificationPlan) -> str:
    """`12 of 300 segments, deep: about 1.2 GiB in 204 requests, 3 min at the fetch quota`"""
    if not plan.planned:
        return f"nothing to verify: none of {count(plan.segments, 'segment')} is due or asked for" + _left_out(plan)
    cost = plan.cost
    takes = "no fetch quota" if cost.seconds is None else f"{format_duration(cost.seconds)} at the fetch quota"
    return (
        f"{len(plan.planned):,} of {count(plan.segments, 'segment')}, {plan.depth}: about "
        f"{format_bytes(cost.read_bytes)} in {count(cost.requests, 'request')}, {takes}" + _left_out(plan)
    )


def _left_out(plan: VerificationPlan) -> str:
    return f"; {count(plan.left_out, 'segment')} beyond the limit wait for the next run" if plan.left_out else ""


def _document(plan: VerificationPlan) -> Document:
    return {
        "depth": str(plan.depth),
        "segments": len(plan.planned),
        "of_segments": plan.segments,
        "bytes": plan.cost.read_bytes,
        "of_bytes": plan.size_bytes,
        "requests": plan.cost.requests,
        "seconds": None if plan.cost.seconds is None else round(plan.cost.seconds, 1),
        "left_out": plan.left_out,
        "reasons": [{"reason": reason, "segments": segments} for reason, segments, _ in _by_reason(plan)],
        "topics": [
            {"topic": topic, "segments": segments, "bytes": size_bytes}
            for topic, segments, size_bytes in _by_topic(plan)
        ],
    }


def _tables(plan: VerificationPlan) -> tuple[Table, ...]:
    if not plan.planned:
        return ()
    columns = ("segments>", "to be read>")
    return tuple(
        Table(title, (head, *columns), tuple((str(name), f"{n:,}", format_bytes(size)) for name, n, size in rows))
        for title, head, rows in (
            ("why", "reason", _by_reason(plan)),
            ("to be verified", "topic", _by_topic(plan)),
        )
    )


def _by_reason(plan: VerificationPlan) -> list[tuple[str, int, int]]:
    """Those that occur, the most urgent first."""
    segments: Counter[VerificationReason] = Counter()
    size_bytes: Counter[VerificationReason] = Counter()
    for one in plan.planned:
        segments[one.reason] += 1
        size_bytes[one.reason] += one.planned_bytes
    return [(str(reason), segments[reason], size_bytes[reason]) for reason in VerificationReason if segments[reason]]


def _by_topic(plan: VerificationPlan) -> list[tuple[str, int, int]]:
    names = TopicNames(one.segment_id.topic_id_partition for one in plan.planned)
    segments: Counter[str] = Counter()
    size_bytes: Counter[str] = Counter()
    for one in plan.planned:
        partition = one.segment_id.topic_id_partition
        topic = names.topic(partition.topic, partition.topic_id)
        segments[topic] += 1
        size_bytes[topic] += one.planned_bytes
    return [(topic, segments[topic], size_bytes[topic]) for topic in sorted(segments)]
